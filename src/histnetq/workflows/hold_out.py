"""Held-out bags or rows: for comparing methods, and for calibrating intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from histnetq.bags.bags import Bags
from histnetq.bags.protocols import APP
from histnetq.training.supervision import Supervision
from histnetq.uncertainty.half_splits import FEWEST_ROWS, can_halve, draw_sizes

HELD_OUT = 0.25  # fraction of the bags or rows that methods are compared on
FEWEST_TO_CALIBRATE = 20  # smallest number of bags for intervals at the usual coverages
_FEWEST_ROWS = 50  # smallest number of held-out rows to draw bags from
_FEWEST_TO_COMPARE = 3  # smallest number of held-out bags for a comparison
_DRAWN, _DRAWN_SIZE = 200, 100  # number and size of bags drawn from held-out rows for a comparison
_DRAWN_TO_CALIBRATE = 500


@dataclass(frozen=True)
class Split:
    """Bags to learn from, held-out bags (None if there are too few), and a description of the held-out bags."""

    learned: Bags
    held: Bags | None = None
    words: str = ""


def are_rows_alone(bags: Bags) -> bool:
    """Return whether these are labelled rows without a bag column."""
    return len(bags) == 1 and bags.labels is not None


def can_compare(bags: Bags) -> bool:
    """Return whether there are enough bags to hold some out for a comparison."""
    return round(HELD_OUT * len(bags)) >= _FEWEST_TO_COMPARE


def hold_out_to_calibrate(bags: Bags, fraction: float, sizes: Sequence[int], random_state: int) -> Split:
    """Hold out whole bags for calibration; without a bag column, hold out rows and draw bags of `sizes` from them."""
    if fraction > 0 and are_rows_alone(bags):
        learned, rows, n_rows = _hold_out_rows(bags, fraction, random_state)
        if n_rows >= _FEWEST_ROWS:
            held = draw_sizes(rows, sizes, _DRAWN_TO_CALIBRATE, np.random.default_rng(random_state))
            return Split(learned, held, words_of_drawn(len(held), sizes, f"{n_rows:,} held-out rows"))
    elif fraction > 0 and round(fraction * len(bags)) >= FEWEST_TO_CALIBRATE:
        learned, held = bags.split(1 - fraction, random_state)
        return Split(learned, held, f"{len(held)} held-out bags")
    return Split(bags)


def hold_out_to_compare(bags: Bags, random_state: int) -> Split:
    """Hold out whole bags for a comparison; if there are few, hold out labelled rows and draw bags from them."""
    if can_compare(bags):
        learned, held = bags.split(1 - HELD_OUT, random_state)
        return Split(learned, held.with_known_prevalences(), f"{len(held)} held-out bags")
    if bags.labels is None:
        raise ValueError(
            f"bags: expected at least {round(_FEWEST_TO_COMPARE / HELD_OUT)} bags to hold some out for a comparison, "
            f"got {len(bags)}; name one method, or give more bags."
        )
    learned, rows, n_rows = _hold_out_rows(bags, HELD_OUT, random_state)
    held = APP(_DRAWN_SIZE).draw(rows, _DRAWN, random_state)
    return Split(learned, held, words_of_drawn(len(held), [_DRAWN_SIZE], f"{n_rows:,} held-out rows"))


def why_uncalibrated(bags: Bags, fraction: float) -> str:
    """Return the reason why no bags were held out for calibration."""
    if fraction == 0:
        return "nothing was held out for intervals"
    if are_rows_alone(bags):
        few = len(bags.index) < FEWEST_ROWS or not can_halve(bags)
        needed = f"calibrate intervals, which needs {FEWEST_ROWS}, and 2 of each class"
        return f"too few rows to {needed if few else 'hold some out for intervals'}"
    if len(bags) < FEWEST_TO_CALIBRATE:
        return f"too few bags to calibrate intervals, which needs {FEWEST_TO_CALIBRATE}"
    return f"too few bags to hold some out for intervals, which needs {round(FEWEST_TO_CALIBRATE / fraction)}"


def take_part(bags: Bags, fraction: float, random_state: int) -> Bags:
    """Take a fraction of the bags; without a bag column, take this fraction of the rows of each class."""
    if len(bags) > 1:
        return bags.split(fraction, random_state)[0]
    drawn = Supervision.of(bags, None, None).split(fraction, random_state)[1].rows
    assert drawn is not None
    return drawn


def words_of_drawn(n_bags: int, sizes: Sequence[int], source: str) -> str:
    """Describe bags that are drawn from labelled rows.

    Examples
    --------
    >>> words_of_drawn(500, [20, 10_000], "halves of 300 rows")
    '500 bags of 20 to 10,000 rows drawn from halves of 300 rows'
    """
    ends = sorted({min(sizes), max(sizes)})
    rows = f"{' to '.join(f'{size:,}' for size in ends)} row{'' if ends == [1] else 's'}"
    return f"{n_bags} bags of {rows} drawn from {source}"


def _hold_out_rows(bags: Bags, fraction: float, random_state: int) -> tuple[Bags, Bags, int]:
    """Hold out rows of each class; return the remaining rows or bags, the held-out rows, and their number."""
    kept, out = Supervision.of(bags, None, None).split(fraction, random_state)
    learned = kept.rows if kept.bags is None else kept.bags
    assert learned is not None
    assert out.rows is not None
    return learned, out.rows, len(np.unique(out.rows.index))
