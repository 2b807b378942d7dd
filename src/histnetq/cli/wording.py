"""Messages of the library in the words of the command line: options and arguments as they are typed."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

# Names of arguments in Python beside those of the option that they come from, where these differ.
_ALIASES = {"weights": "weight", "y": "label", "labels": "label", "random_state": "seed", "predict_rows": "model"}
_WAYS_OUT = (
    ("missing='drop'", "--missing drop"),
    ("missing='mean'", "--missing mean"),
    ("label= or prevalences=", "--label or --prevalences"),
    ("pass counts=True", "add --counts"),
    ("pass overwrite=True", "pass --force"),
    ("pass prevalences= instead", "give --prevalences instead"),
    ("pass another name= or storage=", "give another --storage"),
    ("the same storage=", "the same --storage"),
    ("pass skip_unreadable=True", "pass --skip-unreadable"),
    ("read images by read_images", "add --images"),
    ("in a script, put the call under if __name__ == '__main__', which workers do not run, or let",
     "leave out --dask, or let"),
    ("use read_images if it holds images", "add --images if it holds images"),
    ("name one by timezone", "name one by --timezone"),
    (" or use cv=None", ""),
    (" or use sampler=None", ""),
    ("that save() or histnetq fit wrote", "that histnetq fit wrote"),
    ("that save() wrote; save again", "that histnetq fit wrote; fit again"),
    ("that save() did not write; save again", "that histnetq fit did not write; fit again"),
    ("Bags.from_labels takes classes= with the names of those that have no rows", "add rows of others"),
    ("bin a continuous y", "name a column of classes"),
    ("name the label column", "name their column by --label"),
    ("name their columns by proba", "name their columns by --proba"),
    ("name the features without this column", "name other columns by --features"),
    ("lower training__lr, set training__clip, or check a custom loss for division by zero",
     "look for extreme values among the features, or choose another --method"),
    ("is not calibrated; call calibrate with bags of rows not used in training first",
     "is not calibrated; fit it to more bags, some of which calibrate it, or leave --coverage and --interval out"),
)  # fmt: skip


def in_options(message: str, params: Sequence[click.Parameter]) -> str:
    """Give a message about arguments in Python as one about the options and arguments of a command.

    Examples
    --------
    >>> option = click.Option(["--weight"])
    >>> in_options("weights: expected finite numbers.", [option])
    '--weight: expected finite numbers.'
    """
    names = {str(p.name): max(p.opts, key=len) if isinstance(p, click.Option) else str(p.name).upper() for p in params}
    for python, typed in _WAYS_OUT:
        if set(re.findall(r"--[\w-]+", typed)) <= set(names.values()):  # the command has the option
            message = message.replace(python, typed)
    names["source"] = next((str(p.name).upper() for p in params if p.nargs == -1), "source")
    if "methods" in names:
        names["method"] = names["methods"]
    names |= {python: names[name] for python, name in _ALIASES.items() if name in names}
    message = re.sub(r"^path: ", "", message).replace("Mixer: ", "bags: ")
    head, colon, rest = message.partition(": ")
    parts = head.split(", ")
    if colon and all(part in names for part in parts):
        return ", ".join(names[part] for part in parts) + colon + rest
    return message
