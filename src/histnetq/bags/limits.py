"""Upper limits that several modules share, and shortened values for error messages.

The limits are high enough for any real model, and low enough to compute with any stored model. This module imports no
other package, so that `histnetq info` starts fast.
"""

from __future__ import annotations

import reprlib
from typing import Any

LONGEST_NAME = 1000  # characters in the name of a class, a feature or a bag
MOST_BINS = 100_000  # bins of one histogram
_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = _brief.maxlong = 80


def brief(value: Any) -> str:
    """Return a short text of a value for a message; long texts, long lists and nested lists are cut.

    Examples
    --------
    >>> brief("a" * 1000)[:4], len(brief("a" * 1000)), brief((3, 1))
    ("'aaa", 80, '(3, 1)')
    """
    return _brief.repr(value)
