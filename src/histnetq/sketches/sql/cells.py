"""The cell of a row as an expression in SQL, by the rules of `cell_rules`."""

from __future__ import annotations

from histnetq.simplex import Floats
from histnetq.sketches.cell_rules import Between, CellRule, Largest, LikeliestClasses, Odds
from histnetq.sketches.sql.dialects import Dialect, Expression

_FARTHEST = 1e300  # beyond all odds
Columns = dict[str, Expression]


def cell_steps(sql: Dialect, rule: CellRule, names: list[str], prefix: str) -> list[Columns]:
    """Return the columns that steps of a query compute from the posteriors `names`; the last has the cell, `prefix`.

    Each step may use the columns of the steps before it.
    """
    p = [sql.column(name) for name in names]
    if isinstance(rule, Largest):
        return [{f"{prefix}_1": sql.call("GREATEST", *p)}, {prefix: first_equal(sql, names, f"{prefix}_1")}]
    if isinstance(rule, Between):
        return [{prefix: count_not_below(sql, p[rule.of], rule.edges)}]
    if isinstance(rule, Odds):
        above, below = (sql.call("GREATEST", p[i], sql.number(rule.floor)) for i in (rule.above, rule.below))
        odds = {f"{prefix}_odds": sql.ratio(above, below)}
        return [odds, {prefix: count_not_below(sql, sql.column(f"{prefix}_odds"), rule.edges, rule.by_log)}]
    return _likeliest(sql, rule, names, prefix)


def _likeliest(sql: Dialect, rule: LikeliestClasses, names: list[str], prefix: str) -> list[Columns]:
    """Find the largest posterior three times, each time without the places that were found before."""
    k, floor = len(rule.order), sql.number(rule.floor)
    left = [f"{prefix}_left{c}" for c in range(k)]
    steps: list[Columns] = [
        {own: sql.call("GREATEST", sql.column(names[c]), floor) for own, c in zip(left, rule.order, strict=True)}
    ]
    for i in range(3):
        value, place = f"{prefix}_value{i}", f"{prefix}_place{i}"
        steps.append({value: sql.call("GREATEST", *map(sql.column, left))})
        steps.append({place: first_equal(sql, left, value)})
        gone, left = left, [f"{own}_" for own in left]
        is_gone = [sql.exp.EQ(this=sql.column(place), expression=sql.whole(c)) for c in range(k)]
        steps[-1:] = [
            steps[-1],
            {
                own: sql.case((found, sql.number(0.0)), default=sql.column(before))
                for own, before, found in zip(left, gone, is_gone, strict=True)
            },
        ]
    one, two, three = (sql.column(f"{prefix}_value{i}") for i in range(3))
    steps[-1] = {f"{prefix}_odds0": sql.ratio(one, two), f"{prefix}_odds1": sql.ratio(two, three)}
    cell = sql.column(f"{prefix}_place0")
    firsts, seconds = (
        count_not_below(sql, sql.column(f"{prefix}_odds{i}"), e) for i, e in ((0, rule.first), (1, rule.second))
    )
    digits = (k, sql.column(f"{prefix}_place1")), (len(rule.first) + 1, firsts), (len(rule.second) + 1, seconds)
    for base, digit in digits:
        cell = sql.total([sql.product(cell, sql.whole(base)), digit])
    return [*steps, {prefix: cell}]


def first_equal(sql: Dialect, names: list[str], value: str) -> Expression:
    """Return the place of the first column that equals the column `value`."""
    cases = [
        (sql.exp.EQ(this=sql.column(name), expression=sql.column(value)), sql.whole(c))
        for c, name in enumerate(names[:-1])
    ]
    return sql.case(*cases, default=sql.whole(len(names) - 1))


def count_not_below(
    sql: Dialect, value: Expression, edges: Floats, by_log: tuple[float, float] | None = None
) -> Expression:
    """Count the rising edges that a value is not below.

    A tree of comparisons takes time in proportion to the number of edges in some databases. If the logarithms of the
    edges are ``start + i · step``, given as `by_log`, a logarithm finds a cell that is wrong by at most one, and the
    edges decide.

    Examples
    --------
    >>> import numpy as np
    >>> sql = Dialect("duckdb")
    >>> sql.written(count_not_below(sql, sql.column("x"), np.array([0.25, 0.5])))
    'CASE WHEN "x" < 5.0e-01 THEN CASE WHEN "x" < 2.5e-01 THEN 0 ELSE 1 END ELSE 2 END'
    """
    if sql.name == "postgres" and len(edges):
        return sql.call("WIDTH_BUCKET", value, sql.array(edges))
    if by_log is not None and sql.can_index:
        return _count_by_log(sql, value, edges, *by_log)

    def counted(low: int, high: int) -> Expression:
        if low == high:
            return sql.whole(low)
        middle = (low + high) // 2
        below = sql.exp.LT(this=value, expression=sql.number(float(edges[middle])))
        return sql.case((below, counted(low, middle)), default=counted(middle + 1, high))

    return counted(0, len(edges))


def _count_by_log(sql: Dialect, value: Expression, edges: Floats, start: float, step: float) -> Expression:
    ends = sql.array([-1.0, *edges.tolist(), _FARTHEST])
    near = sql.call("LN", sql.clipped(value, float(edges[0]) / 2, float(edges[-1]) * 2))
    place = sql.ratio(sql.difference(near, sql.number(start)), sql.number(step))
    guess = sql.integer(sql.call("FLOOR", sql.clipped(place, 0.0, float(len(edges)))))
    low, high = (sql.element(ends, sql.total([guess, sql.whole(i)])) for i in (1, 2))
    below = sql.exp.LT(this=value, expression=low), sql.whole(-1)
    above = sql.exp.GTE(this=value, expression=high), sql.whole(1)
    return sql.total([guess, sql.case(below, above, default=sql.whole(0))])
