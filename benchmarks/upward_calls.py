"""Count calls from a lower package to a higher one: ``python -m benchmarks.upward_calls fit rows.csv --label y -o m``.

The order of the packages is read from the import contract in ``pyproject.toml``. A call upward is allowed where the
higher function was passed as an argument, or held by an object that was. It is also allowed where the higher function
implements a method that a class of a lower package or of another library declares, such as scikit-learn's `get_params`,
or that a protocol in the caller's module declares, such as `SketchingModel`. Imports are not counted. The script exits
with 1 if any other call goes upward.
"""

from __future__ import annotations

import collections
import functools
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import tomllib

ROOT = Path(__file__).parents[1]


def read_ranks() -> dict[str, int]:
    """Return the rank of each package or module below histnetq; a higher rank may import a lower one."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    rows = [[name.strip() for name in layer.split("|")] for layer in reversed(layers)]
    return {name: rank for rank, names in enumerate(rows, start=1) for name in names}


def package_of(module: str) -> str | None:
    """Return the package of a module below histnetq, or None for other modules."""
    parts = module.split(".")
    return parts[1] if parts[0] == "histnetq" and len(parts) > 1 else None


def _codes_of(value: Any, depth: int = 2) -> set[CodeType]:
    """Return the code of a callable, of the methods of a class, and of callables that an object holds."""
    if isinstance(value, functools.partial):
        return _codes_of(value.func, depth)
    if isinstance(value, type):
        return {code for method in vars(value).values() for code in _codes_of(method, 0)}
    function = getattr(value, "__func__", value)
    if hasattr(function, "__code__"):
        return {function.__code__}
    if depth and hasattr(value, "__dict__"):
        return {code for held in list(vars(value).values()) for code in _codes_of(held, depth - 1)}
    if depth and isinstance(value, list | tuple | dict):
        held = value.values() if isinstance(value, dict) else value
        return {code for one in list(held)[:50] for code in _codes_of(one, depth - 1)}
    return set()


class UpwardCalls:
    """A profile function that counts calls upward."""

    def __init__(self) -> None:
        self.ranks = read_ranks()
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self._known: dict[tuple[CodeType, CodeType], bool] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        caller = frame.f_back
        if event != "call" or caller is None or frame.f_code.co_name in ("<module>", "<listcomp>", "<genexpr>"):
            return
        lower, higher = (package_of(f.f_globals.get("__name__", "")) for f in (caller, frame))
        if lower is None or higher is None or self.ranks.get(lower, 0) >= self.ranks.get(higher, 0):
            return
        key = caller.f_code, frame.f_code
        if key not in self._known:
            declared = self._is_declared(frame, self.ranks[lower]) or self._is_in_protocol(caller, frame)
            self._known[key] = declared or self._is_passed(caller, frame.f_code)
        if not self._known[key]:
            places = (f"{f.f_globals['__name__']}.{f.f_code.co_qualname}" for f in (caller, frame))
            self.counts[tuple(places)] += 1  # type: ignore[index]

    def _is_declared(self, frame: FrameType, rank: int) -> bool:
        """Return whether a class of a lower package or of another library declares the method that is called."""
        owner = frame.f_locals.get("self")
        for base in type(owner).__mro__ if owner is not None else ():
            package = package_of(base.__module__)
            below = package is None or self.ranks.get(package, 99) <= rank
            if below and frame.f_code.co_name in vars(base):
                return True
        return False

    def _is_in_protocol(self, caller: FrameType, frame: FrameType) -> bool:
        """Return whether a protocol in the caller's module declares the method that is called."""
        protocols = [value for value in caller.f_globals.values() if getattr(value, "_is_protocol", False)]
        return "self" in frame.f_locals and any(frame.f_code.co_name in vars(one) for one in protocols)

    def _is_passed(self, caller: FrameType, code: CodeType) -> bool:
        frame: FrameType | None = caller
        while frame is not None and package_of(frame.f_globals.get("__name__", "")) == package_of(
            caller.f_globals["__name__"]
        ):
            if any(code in _codes_of(value) for value in list(frame.f_locals.values())):
                return True
            frame = frame.f_back
        return False


def main(arguments: list[str]) -> int:
    """Run a command line under the profile, and print the calls upward that are not allowed."""
    from histnetq.cli import main as command

    profile = UpwardCalls()
    sys.setprofile(profile)
    try:
        command(arguments, standalone_mode=False)
    finally:
        sys.setprofile(None)
    for (lower, higher), n in profile.counts.most_common():
        print(f"{n:8,}  {lower} -> {higher}")
    print(f"{len(profile.counts)} kinds of calls from a lower to a higher package")
    return int(bool(profile.counts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
