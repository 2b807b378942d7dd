"""Words of 28 languages from Debian's word lists, in letters a to z alone."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import click

__all__ = ["LISTS", "ROOT", "WordList", "read_words", "require_lists"]

ROOT = Path("/usr/share")


@dataclass(frozen=True)
class WordList:
    """The source of the words of a language.

    Parameters
    ----------
    path : str
        The list, one word a line, below the directory of Debian's shared files.
    package : str
        The Debian package that has it.
    encoding : str
        Encoding of the list, if it is not UTF-8.
    """

    path: str
    package: str
    encoding: str = "iso8859-1"


def _dict(path: str, package: str | None = None, encoding: str = "iso8859-1") -> WordList:
    return WordList(f"dict/{path}", package or f"w{path}", encoding)


def _hunspell(path: str, package: str | None = None, encoding: str = "iso8859-1") -> WordList:
    return WordList(f"hunspell/{path}.dic", package or f"hunspell-{path[:2]}", encoding)


# By name; a class has the number of its place here.
LISTS: dict[str, WordList] = {
    "afrikaans": _hunspell("af_ZA"),
    "basque": _hunspell("eu"),
    "breton": _hunspell("br_FR"),
    "catalan": _dict("catalan"),
    "czech": _hunspell("cs_CZ", encoding="iso8859-2"),
    "danish": _dict("danish"),
    "dutch": _dict("dutch"),
    "english": _dict("american-english-huge", "wamerican-huge"),
    "estonian": _hunspell("et_EE", "myspell-et", "iso8859-4"),
    "faroese": _dict("faroese"),
    "french": _dict("french"),
    "gaelic": _hunspell("gd_GB"),
    "galician": _dict("galician-minimos"),
    "german": _dict("ngerman"),
    "icelandic": _hunspell("is_IS"),
    "italian": _dict("italian"),
    "latvian": _hunspell("lv_LV", encoding="iso8859-4"),
    "lithuanian": _hunspell("lt_LT", encoding="iso8859-4"),
    "norwegian": _dict("bokmaal", "wnorwegian"),
    "nynorsk": _dict("nynorsk", "wnorwegian"),
    "occitan": _hunspell("oc_FR"),
    "polish": _dict("polish", encoding="iso8859-2"),
    "portuguese": _dict("portuguese"),
    "romanian": _hunspell("ro_RO", encoding="iso8859-2"),
    "slovak": _hunspell("sk_SK", encoding="iso8859-2"),
    "slovene": _hunspell("sl_SI", encoding="iso8859-2"),
    "spanish": _dict("spanish"),
    "swedish": _dict("swedish"),
}
# Letters that are no letter of a to z with an accent.
_SPELLED = str.maketrans({"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "ł": "l", "þ": "th", "ı": "i"})
# A line is a word; in hunspell's lists a slash and flags, or a tab and grammar, may follow.
_WORD_ENDS = re.compile(r"[/\t]")
_WORD = re.compile(r"^[a-z]{4,20}$", re.MULTILINE)


def read_words(found: WordList) -> list[str]:
    """The different words of 4 to 20 letters, sorted; accents are taken off, so that they tell nothing."""
    data = (ROOT / found.path).read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode(found.encoding)
    words = {_WORD_ENDS.split(line, maxsplit=1)[0].strip() for line in text.lower().translate(_SPELLED).split("\n")}
    # Spaces are stripped first: an accent that stands alone becomes a space and an accent, and is no part of a word.
    text = unicodedata.normalize("NFKD", "\n".join(words))
    accents = {ord(letter): None for letter in set(text) if unicodedata.combining(letter)}
    return sorted(set(_WORD.findall(text.translate(accents))))


def require_lists() -> list[Path]:
    """The files of all lists, in the order of the languages; an error names the packages of those that are missing."""
    missing = [found for found in LISTS.values() if not (ROOT / found.path).is_file()]
    if missing:
        packages = " ".join(dict.fromkeys(found.package for found in missing))
        raise click.UsageError(
            f"words: expected the word list {ROOT / missing[0].path}, got no such file; "
            f"install the Debian package{'s' * (' ' in packages)} {packages}."
        )
    return [ROOT / found.path for found in LISTS.values()]
