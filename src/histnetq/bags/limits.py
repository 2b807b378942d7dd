"""Upper limits that several modules share, and short forms of values for error messages.

Limits are wide enough for any real model, and narrow enough that any stored model can be computed. This module imports
no other package, as `histnetq info` needs it.
"""

from __future__ import annotations

import reprlib
from typing import Any

LONGEST_NAME = 1000  # characters in the name of a class, a feature or a bag
MOST_BINS = 100_000  # of one histogram
_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = _brief.maxlong = 80


def brief(value: Any) -> str:
    """Shorten a value for a message: long texts, long lists and deep lists are cut.

    Examples
    --------
    >>> brief("a" * 1000)[:4], len(brief("a" * 1000)), brief((3, 1))
    ("'aaa", 80, '(3, 1)')
    """
    return _brief.repr(value)
