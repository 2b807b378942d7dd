"""A query whose result is the sketch of a table's bags, so that no row leaves the database.

The query computes what `sketch_table` computes, step by step: it reads the features, rounds them to the precision of
the model, turns them into posteriors, and counts rows in cells. Steps of the same numbers in the same order round in
the same way, so counts are equal to the last bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from histnetq.errors import InputError
from histnetq.simplex import Floats
from histnetq.sketches.cell_rules import CellRule
from histnetq.sketches.moments import FARTHEST, STEPS, Moments
from histnetq.sketches.sketch import Maker
from histnetq.sketches.sql.cells import cell_steps
from histnetq.sketches.sql.dialects import Dialect, Expression
from histnetq.sketches.sql.results import (
    CELL,
    MISSING,
    MODEL,
    OF_SUMS,
    PREFIX,
    READ,
    ROWS,
    STATE,
    TOTAL,
    UNREADABLE,
    Origin,
)
from histnetq.tables.columns import OTHER, FeatureSpec
from histnetq.tables.scores import ROUNDING, TOLERANCE

_LARGEST = float(np.finfo(np.float32).max)  # of a feature
_NEARLY = 1.1e-6  # beyond 0 and 1, rounding to single precision does not bring a score back into its range
_SAME = 1e-12  # sums this near to 1 count as 1, as in `check_posteriors`
_EXPONENT = 700.0  # differences of log-odds beyond this are cut off: some databases call an underflow an error


@dataclass(frozen=True)
class Logistic:
    """A logistic regression on scaled features.

    Attributes
    ----------
    scalings : list of ((n_features,), (n_features,))
        The means that are subtracted from the features, and the scales that they are then divided by.
    coefficients : (n_scores, n_features)
        One row per class, or one row for the log-odds of the second of two classes.
    intercepts : (n_scores,)
    columns : tuple of int
        The class of each probability, as a model may know more classes than its classifier.
    """

    scalings: list[tuple[Floats, Floats]]
    coefficients: Floats
    intercepts: Floats
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Task:
    """The computation of a query, taken from a fitted model.

    Attributes
    ----------
    reading : FeatureSpec
        The features, by the names of their columns.
    classes : (n_classes,)
        Names of the classes.
    rules : list of CellRule
        How rows are counted, one rule for each row of the state; empty for sums of posteriors.
    logistic : Logistic or None
        How features become posteriors; None if they are posteriors.
    moments : Moments or None
        Sums of features that trust needs.
    maker : Maker
        Origin of the sketch.
    shape : tuple of int
        Shape of the state of a bag.
    """

    reading: FeatureSpec
    classes: NDArray
    rules: list[CellRule]
    logistic: Logistic | None
    moments: Moments | None
    maker: Maker
    shape: tuple[int, ...]


def write_query(task: Task, table: str | Sequence[str], bag: str | Sequence[str] | None, dialect: str) -> str:
    """Return the query as text. The parts of a table's name are separated by dots, or given as a list."""
    sql = Dialect(dialect)
    parts = table.split(".") if isinstance(table, str) else list(table)
    bags = [bag] if isinstance(bag, str) else list(bag or ())
    _check_names(parts, bags)
    if task.reading.weight is not None:
        warnings.warn(
            f"to_sql: the query has no weights, but the model was fitted with the weights in column "
            f"{task.reading.weight!r}; the estimates describe only the rows.",
            UserWarning, stacklevel=3,
        )  # fmt: skip
    query = _Query(sql, sql.table(parts), {f"k{i}": name for i, name in enumerate(bags)})
    x = query.read(task)
    if task.logistic is None:
        p = query.given(x, task.reading.double)
    else:
        p = query.fitted(x, task.logistic, len(task.classes))
    for i, rule in enumerate(task.rules):
        for step in cell_steps(sql, rule, p, f"c{i}"):
            query.add(step)
    sums = [] if task.rules else [sql.column(name) for name in p]
    if task.moments is not None:
        sums += query.moments(task.moments, x)
    return query.grouped(task, sums)


def _check_names(parts: list[str], bags: list[str]) -> None:
    names = "a name, after the names of its schema and catalog if necessary"
    if not 1 <= len(parts) <= 3 or not all(isinstance(part, str) and part for part in parts):
        raise InputError("table", names, repr(".".join(map(str, parts))), "pass the parts as a list if they have dots")
    for name in [parts[-1], *bags]:
        if not isinstance(name, str) or not name or "\0" in name:
            raise InputError("bag", "the names of columns", repr(name), "correct it")
        if name.lower().startswith(PREFIX):
            raise InputError(
                "table, bag", f"names that do not start with {PREFIX!r}", repr(name), "rename it in a view"
            )
    if twice := [name for name in bags if bags.count(name) > 1]:
        raise InputError("bag", "different columns", f"{twice[0]!r} twice", "name each once")


class _Query:
    """Steps of a query; each selects from the one before, and passes the columns of the bags and of later use on."""

    def __init__(self, sql: Dialect, table: Expression, keys: dict[str, str]) -> None:
        self.sql, self.keys = sql, keys
        self.source = table
        self.steps: list[tuple[str, Expression]] = []
        self.columns: list[str] = []

    def add(self, new: dict[str, Expression]) -> None:
        """Add a step with new columns, which may replace earlier columns."""
        sql, kept = self.sql, [name for name in self.columns if name not in new]
        if self.steps:
            found = [sql.column(name) for name in (*self.keys, *kept)]
        else:
            found = [sql.named(sql.column(name), own) for own, name in self.keys.items()]
        found += [sql.named(expression, name) for name, expression in new.items()]
        self.columns = [*kept, *new]
        self._select(sql.apart(sql.exp.select(*found).from_(self.source)))

    def _select(self, select: Expression) -> None:
        name = f"{PREFIX}{len(self.steps) + 1}"
        self.steps.append((name, select))
        self.source = self.sql.table([name])

    def add_each(self, names: Sequence[str], values: Sequence[Expression]) -> None:
        self.add(dict(zip(names, values, strict=True)))

    def read(self, task: Task) -> list[str]:
        """Read the features as numbers of double precision, and find the rows that lack some or have too large ones."""
        sql, x = self.sql, [f"x{j}" for j in range(len(task.reading.names))]
        self.add_each(x, _features(sql, task))
        low, high = (-_NEARLY, 1 + _NEARLY) if task.logistic is None else (-_LARGEST, _LARGEST)
        columns = [sql.column(name) for name in x]
        nan = [sql.is_nan(column) for column in columns]
        outside = [sql.exp.not_(sql.within(column, low, high)) for column in columns]
        wrong = sql.exp.or_(*(sql.exp.and_(out, sql.exp.not_(n)) for out, n in zip(outside, nan, strict=True)))
        empty = sql.exp.or_(*(sql.exp.or_(c.is_(sql.exp.null()), n) for c, n in zip(columns, nan, strict=True)))
        unread = (wrong, sql.whole(UNREADABLE)), (empty, sql.whole(MISSING))
        self.add({"known": sql.case(*unread, default=sql.whole(READ))})
        self.add_each(x, [sql.case((self.is_known, column)) for column in columns])
        self.round(x, task.reading.double)
        return x

    @property
    def is_known(self) -> Expression:
        return self.sql.exp.EQ(this=self.sql.column("known"), expression=self.sql.whole(READ))

    def round(self, names: list[str], double: bool) -> None:
        """Round columns to the precision of the model's rows."""
        if not double:
            self.add_each(names, [self.sql.single(self.sql.column(name)) for name in names])

    def given(self, x: list[str], double: bool) -> list[str]:
        """Check features that are posteriors, and scale them to the sum 1, as `check_scores` and `check_posteriors`."""
        sql, columns = self.sql, [self.sql.column(name) for name in x]
        self.add({"total": sql.total(columns)})
        inside = [sql.within(column, -ROUNDING, 1 + ROUNDING) for column in columns]
        off = sql.exp.Abs(this=sql.difference(sql.column("total"), sql.number(1.0)))
        right = sql.exp.and_(*inside, sql.exp.LTE(this=off, expression=sql.number(TOLERANCE)))
        unread = sql.exp.and_(self.is_known, sql.exp.not_(sql.exp.paren(right)))
        self.add({"known": sql.case((unread, sql.whole(UNREADABLE)), default=sql.column("known"))})
        scaled = [sql.ratio(sql.clipped(column, 0.0, 1.0), sql.column("total")) for column in columns]
        self.add_each(x, [sql.case((self.is_known, value)) for value in scaled])
        self.round(x, double)
        p = [f"p{j}" for j in range(len(x))]
        self.add_each(p, [sql.call("LEAST", column, sql.number(1.0)) for column in columns])
        self.add({"total": sql.total([sql.column(name) for name in p])})
        off = sql.exp.Abs(this=sql.difference(sql.column("total"), sql.number(1.0)))
        same = sql.exp.LT(this=off, expression=sql.number(_SAME))
        ratios = [(sql.column(name), sql.ratio(sql.column(name), sql.column("total"))) for name in p]
        self.add_each(p, [sql.case((same, own), default=ratio) for own, ratio in ratios])
        return p

    def fitted(self, x: list[str], model: Logistic, n_classes: int) -> list[str]:
        """Compute the posteriors of a logistic regression."""
        sql, scaled = self.sql, [f"s{j}" for j in range(len(x))]
        source = x
        for means, scales in model.scalings:
            moved = zip(source, means.tolist(), scales.tolist(), strict=True)
            self.add_each(scaled, [
                sql.ratio(sql.difference(sql.column(name), sql.number(a)), sql.number(b)) for name, a, b in moved
            ])  # fmt: skip
            source = scaled
        z = [f"z{j}" for j in range(len(model.intercepts))]
        rows = zip(model.coefficients.tolist(), model.intercepts.tolist(), strict=True)
        self.add_each(z, [
            sql.total([*(sql.product(sql.column(n), sql.number(w)) for n, w in zip(source, row, strict=True)),
                       sql.number(b)]) for row, b in rows
        ])  # fmt: skip
        p, columns = [f"p{c}" for c in range(n_classes)], [sql.column(name) for name in z]
        values = {c: sql.number(0.0) for c in range(n_classes)}
        if len(z) == 1:
            negative = sql.difference(sql.number(0.0), sql.clipped(columns[0], -_EXPONENT, _EXPONENT))
            self.add({"odd": sql.call("EXP", negative)})
            second = sql.ratio(sql.number(1.0), sql.total([sql.number(1.0), sql.column("odd")]))
            self.add({"second": second})
            found = [sql.difference(sql.number(1.0), sql.column("second")), sql.column("second")]
        else:
            self.add({"top": sql.call("GREATEST", *columns)})
            least = sql.number(-_EXPONENT)
            below = [sql.call("GREATEST", sql.difference(column, sql.column("top")), least) for column in columns]
            self.add_each(z, [sql.call("EXP", value) for value in below])
            self.add({"total": sql.total(columns)})
            found = [sql.ratio(column, sql.column("total")) for column in columns]
        self.add_each(p, list({**values, **dict(zip(model.columns, found, strict=True))}.values()))
        return p

    def moments(self, moments: Moments, x: list[str]) -> list[Expression]:
        """Return the sums of `Moments` as expressions to add up, in its order."""
        sql, most = self.sql, FARTHEST * STEPS
        names = [f"v{j}" for j in range(len(moments.origin))]
        scales = (STEPS / moments.unit).tolist()
        known = zip(moments.columns.tolist(), moments.origin.tolist(), scales, strict=True)
        steps = [sql.product(sql.difference(sql.column(x[j]), sql.number(a)), sql.number(b)) for j, a, b in known]
        self.add_each(names, [sql.nearest(sql.clipped(step, -most, most)) for step in steps])
        directed = names
        if not np.array_equal(moments.paired, np.eye(len(names))):
            directed = [f"d{i}" for i in range(len(moments.paired))]
            mixed = [
                sql.total([sql.product(sql.number(w), sql.column(v)) for w, v in zip(row, names, strict=True)])
                for row in moments.paired.tolist()
            ]
            self.add_each(directed, [sql.nearest(sql.clipped(value, -most, most)) for value in mixed])
        values, paired = ([sql.column(name) for name in some] for some in (names, directed))
        products = [sql.product(a, b) for i, a in enumerate(paired) for b in paired[i:]]
        return [*values, *(sql.product(value, value) for value in values), *products]

    def grouped(self, task: Task, summed: list[Expression]) -> str:
        """Count the rows of each bag in each cell, add up values, and return the text of the query."""
        sql, exp, keys = self.sql, self.sql.exp, [self.sql.column(name) for name in self.keys]
        cells = [f"c{i}" for i in range(len(task.rules))]
        counted = {name: sql.case((self.is_known, sql.column(name)), default=sql.column("known")) for name in cells}
        sums = {f"{PREFIX}sum{i}": sql.case((self.is_known, value)) for i, value in enumerate(summed)}
        self.add({**counted, **sums})
        groups = cells if task.rules and not sums else ["known", *cells]
        n = sql.named(exp.Cast(this=exp.Count(this=exp.Star()), to=exp.DataType.build("bigint")), f"{PREFIX}rows")
        added = [sql.named(exp.Sum(this=sql.column(name)), name) for name in sums]
        select = exp.select(*keys, *map(sql.column, groups), n, *added).from_(self.source)
        if len(groups) == 1:
            select = select.group_by(*keys, sql.column(groups[0]))
        else:
            sets = [exp.Tuple(expressions=[*keys, sql.column(name)]) for name in groups]
            select = select.group_by(exp.GroupingSets(expressions=sets))
        self._select(select)
        numbers = [OF_SUMS if name == "known" else int(name[1:]) for name in groups]
        is_group = [exp.not_(sql.column(name).is_(exp.null())) for name in groups]
        state = sql.case(*zip(is_group[:-1], map(sql.whole, numbers[:-1]), strict=True), default=sql.whole(numbers[-1]))
        cell = sql.call("COALESCE", *map(sql.column, groups)) if len(groups) > 1 else sql.column(groups[0])
        own = exp.Cast(this=exp.Window(this=exp.Sum(this=sql.column(f"{PREFIX}rows"))), to=exp.DataType.build("bigint"))
        origin = Origin(task.maker, task.shape, bool(task.rules), 0 if task.moments is None else task.moments.n_sums)
        final = exp.select(
            *(sql.named(sql.column(own_name), name) for own_name, name in self.keys.items()),
            sql.named(sql.text(origin.written()), MODEL),
            sql.named(state if len(groups) > 1 else sql.whole(numbers[0]), STATE),
            sql.named(cell, CELL),
            sql.column(ROWS),
            sql.named(own, TOTAL),
            *(sql.column(name) for name in sums),
        ).from_(self.source)
        parts = [f"{sql.written(sql.table([name]))} AS (\n  {sql.written(step)}\n)" for name, step in self.steps]
        return f"WITH {', '.join(parts)}\n{sql.written(final)}\n"


def _features(sql: Dialect, task: Task) -> list[Expression]:
    """Return the features as expressions of the table's columns."""
    names, classes = list(task.reading.names), [str(name) for name in task.classes]
    if task.logistic is not None:
        if category := next((name for name in names if "=" in name), None):
            expected = "features that are columns of numbers"
            raise InputError("to_sql", expected, f"the category {category!r}", "encode it as a column of numbers")
        return [sql.double(sql.column(name)) for name in names]
    before = names[0].removesuffix(f"={classes[0]}")
    if before and names == [f"{before}={name}" for name in classes]:
        column = sql.exp.cast(sql.column(before), "text")
        is_class = [sql.exp.EQ(this=column, expression=sql.text(name)) for name in classes]
        is_none = sql.exp.not_(sql.column(before).is_(sql.exp.null()))
        ones = [((found, sql.number(1.0)), (is_none, sql.number(0.0))) for found in is_class]
        return [sql.case(*pairs) for pairs in ones]
    if len(names) == 2:
        one = next((j for j in (0, 1) if names[j] == f"{OTHER}{names[1 - j]}"), None)
        if one is not None:
            score = sql.double(sql.column(names[1 - one]))
            other = sql.difference(sql.number(1.0), score)
            return [other, score] if one == 0 else [score, other]
    return [sql.double(sql.column(name)) for name in names]
