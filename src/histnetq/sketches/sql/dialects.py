"""Differences between databases: literals, rounding to single precision, and the test for NaN.

All names are quoted and all texts escaped by sqlglot, so that a name of a table, a column or a class cannot become SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from histnetq.bags.checks import check_choice
from histnetq.errors import InputError
from histnetq.registry import SQL_DIALECTS

Expression = Any  # of sqlglot, which is imported when a query is written
_BY_EXPONENT = ("duckdb", "bigquery")  # where a number with an exponent is a double; elsewhere a text is converted
_SINGLE = {"duckdb": "REAL", "postgres": "REAL", "spark": "FLOAT"}  # the rest have no type of single precision
_ELEMENT = {"duckdb": "LIST_EXTRACT", "spark": "ELEMENT_AT"}
_SPLIT = 2.0**29 + 1  # Veltkamp's splitting with this factor keeps the 24 bits of single precision
_UNDERFLOW = 2.0**-150  # numbers up to this are 0 in single precision, which PostgreSQL calls an error
_WHOLE = 1.5 * 2**52  # adding and subtracting it rounds to the nearest whole number, and halves to the even one


class Dialect:
    """The SQL of one database, as expressions of sqlglot.

    Examples
    --------
    >>> sql = Dialect("postgres")
    >>> sql.written(sql.single(sql.column("x")))
    'CASE WHEN ABS("x") <= CAST(\\'7.006492321624085e-46\\' AS DOUBLE PRECISION) THEN CAST(\\'0.0e+00\\' AS DOUBLE \
PRECISION) ELSE CAST(CAST("x" AS REAL) AS DOUBLE PRECISION) END'
    """

    def __init__(self, name: str) -> None:
        self.name = check_choice("dialect", name, SQL_DIALECTS)
        try:
            from sqlglot import expressions
        except ImportError:
            raise ImportError("sql: needs the package sqlglot; pip install 'histnetq[sql]'.") from None
        self.exp = expressions

    def written(self, expression: Expression) -> str:
        """Return the text of an expression."""
        return expression.sql(dialect=self.name)

    def column(self, name: str) -> Expression:
        return self.exp.column(name, quoted=True)

    def table(self, parts: Sequence[str]) -> Expression:
        return self.exp.Table(**dict(zip(("this", "db", "catalog"), map(self._quoted, reversed(parts)), strict=False)))

    def named(self, expression: Expression, name: str) -> Expression:
        return self.exp.alias_(expression, self._quoted(name))

    def _quoted(self, name: str) -> Any:
        return self.exp.to_identifier(name, quoted=True)

    def whole(self, value: int) -> Expression:
        number = self.exp.Literal.number(abs(value))
        return self.exp.Neg(this=number) if value < 0 else number

    def number(self, value: float) -> Expression:
        """Return a literal of double precision that is exactly this number."""
        if not np.isfinite(value):
            raise InputError("to_sql", "a model of finite numbers", f"{value}", "fit it again")
        digits = np.format_float_scientific(abs(value), unique=True, trim="0")
        by_text = self.name not in _BY_EXPONENT
        number = self.double(self.exp.Literal.string(digits)) if by_text else self.exp.Literal.number(digits)
        return self.exp.Neg(this=number) if value < 0 else number

    def text(self, value: str) -> Expression:
        return self.exp.Literal.string(value)

    def double(self, value: Expression) -> Expression:
        return self.exp.Cast(this=value, to=self.exp.DataType.build("double"))

    def call(self, function: str, *arguments: Expression) -> Expression:
        return self.exp.Anonymous(this=function, expressions=list(arguments))

    def case(self, *cases: tuple[Expression, Expression], default: Expression | None = None) -> Expression:
        # Made directly, as the functions of sqlglot copy all cases each time.
        whens = [self.exp.If(this=condition, true=value) for condition, value in cases]
        return self.exp.Case(ifs=whens, default=default)

    def total(self, terms: Sequence[Expression]) -> Expression:
        """Add terms from left to right."""
        found = terms[0]
        for term in terms[1:]:
            found = self.exp.Add(this=found, expression=term)
        return self.exp.paren(found)

    def difference(self, value: Expression, less: Expression) -> Expression:
        return self.exp.Sub(this=self.exp.paren(value), expression=self.exp.paren(less))

    def product(self, value: Expression, factor: Expression) -> Expression:
        return self.exp.Mul(this=self.exp.paren(value), expression=factor)

    def ratio(self, value: Expression, divisor: Expression) -> Expression:
        """Divide two values of double precision."""
        return self.exp.Div(this=self.exp.paren(value), expression=self.exp.paren(divisor), typed=True, safe=False)

    def array(self, values: Iterable[float]) -> Expression:
        return self.exp.Array(expressions=[self.number(float(value)) for value in values])

    @property
    def can_index(self) -> bool:
        """Return whether the database has arrays of numbers whose elements are found in constant time."""
        return self.name in _ELEMENT or self.name == "bigquery"

    def element(self, array: Expression, place: Expression) -> Expression:
        """Return an element of an array, whose first place is 1."""
        if self.name in _ELEMENT:
            return self.call(_ELEMENT[self.name], array, place)
        return self.exp.Bracket(this=array, expressions=[place], offset=1, safe=False)

    def integer(self, value: Expression) -> Expression:
        return self.exp.Cast(this=value, to=self.exp.DataType.build("int"))

    def single(self, column: Expression) -> Expression:
        """Round a column to single precision; the result is of double precision."""
        if self.name not in _SINGLE:
            long = self.product(column, self.number(_SPLIT))
            return self.difference(long, self.difference(long.copy(), column))
        rounded = self.double(self.exp.cast(column, _SINGLE[self.name], dialect=self.name))
        if self.name != "postgres":
            return rounded
        small = self.exp.LTE(this=self.exp.Abs(this=column), expression=self.number(_UNDERFLOW))
        return self.case((small, self.number(0.0)), default=rounded)

    def nearest(self, value: Expression) -> Expression:
        """Round to the nearest whole number of double precision, and halves to the even one."""
        much = self.number(_WHOLE)
        return self.difference(self.total([value, much]), much.copy())

    def apart(self, select: Expression) -> Expression:
        """Keep a step apart from the steps that use it.

        PostgreSQL would otherwise replace each column by its expression wherever it is used, and expressions that use a
        column twice would double in length with every step.
        """
        return select.offset(0) if self.name == "postgres" else select

    def is_nan(self, column: Expression) -> Expression:
        if self.name in ("postgres", "snowflake"):
            return self.exp.EQ(this=column, expression=self.double(self.text("NaN")))
        return self.exp.IsNan(this=column)

    def within(self, value: Expression, low: float, high: float) -> Expression:
        return self.exp.Between(this=value, low=self.number(low), high=self.number(high))

    def clipped(self, value: Expression, low: float, high: float) -> Expression:
        return self.call("LEAST", self.call("GREATEST", value, self.number(low)), self.number(high))
