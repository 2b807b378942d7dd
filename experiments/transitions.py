"""Transition tables of New Zealand's elections: which candidates the voters of each party chose.

The published tables of split votes are the truth. Every method sees the party votes and the candidate votes of the
voting units of one election alone; intervals are calibrated on the published tables of earlier elections.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

import histnetq as hq
from histnetq.quantifiers.classical.transitions import Transitions
from histnetq.simplex import project

__all__ = ["COVERAGE", "METHODS", "Election", "coverage_table", "errors_table", "read_elections", "with_kept"]

Floats = NDArray[np.float64]
_LEAST = 1e-12
_AGREE = 0.02  # largest difference of an electorate's table and the sum of its units
_STRAIGHT = 10.0  # seed of a party's own candidate, beside 1 for the others; the best of 5, 10, 20 and 40 before 2014
_LOCAL = 10  # iterations of nslphom
_DRAWS = 50  # bootstrap samples of the units
COVERAGE = 0.9


@dataclass(frozen=True)
class Election:
    """The voting units of an election, and the published table of each electorate.

    Parameters
    ----------
    year : int
    parties, candidates : (n_units, 8)
        Votes of each unit.
    electorate : (n_units,)
        Numbers of electorates, from 0.
    tables : (n_electorates, 8, 8)
        Votes by party and candidate.
    names : (n_electorates,)
    groups : (8,)
        Names of parties, and of their candidates.
    """

    year: int
    parties: Floats
    candidates: Floats
    electorate: NDArray[np.int64]
    tables: Floats
    names: NDArray
    groups: NDArray

    def units(self, number: int) -> tuple[Floats, Floats]:
        """The party votes and the candidate votes of the units of an electorate."""
        own = self.electorate == number
        return self.parties[own], self.candidates[own]

    def margins(self) -> tuple[Floats, Floats]:
        """The party votes and the candidate votes of each electorate."""
        units = [self.units(number) for number in range(len(self.tables))]
        return np.stack([x.sum(0) for x, _ in units]), np.stack([y.sum(0) for _, y in units])

    def bags(self) -> hq.Bags:
        """The units as bags: rows are parties, weights votes, and prevalences the candidates' shares."""
        unit, party = np.nonzero(self.parties)
        return hq.Bags(
            np.eye(len(self.groups), dtype=np.float32), party, np.searchsorted(unit, np.arange(len(self.parties) + 1)),
            weights=self.parties[unit, party].astype(np.int64), prevalences=self.candidates, classes=self.groups,
            normalize=True,
        )  # fmt: skip


def read_elections(path: Path) -> list[Election]:
    """Read all elections, without the few (Maori) electorates whose published table differs from their units."""
    with np.load(path, allow_pickle=False) as file:
        parties, candidates, electorate, tables, names, groups = (
            file[name] for name in (
                "instance_counts", "label_counts", "electorate", "cross_votes", "electorate_names", "group_names",
            )
        )  # fmt: skip
    year = np.array([int(name[:4]) for name in names])
    sums = np.zeros((len(names), len(groups)))
    np.add.at(sums, electorate, candidates)
    agree = np.abs(tables.sum(1) - sums).sum(1) <= _AGREE * tables.sum((1, 2))
    found = []
    for one in np.unique(year):
        kept = np.flatnonzero(agree & (year == one))
        own = np.isin(electorate, kept) & (parties.sum(1) > 0) & (candidates.sum(1) > 0)
        number = np.searchsorted(kept, electorate[own])
        found.append(Election(
            int(one), parties[own].astype(float), candidates[own].astype(float), number, tables[kept].astype(float),
            names[kept], groups,
        ))  # fmt: skip
    return found


def _fit(seed: Floats, rows: Floats, columns: Floats) -> Floats:
    """Fit a table to the margins of each electorate by iterative proportional fitting."""
    tables = np.broadcast_to(seed, (len(rows), *seed.shape[-2:])).copy()
    for _ in range(50):
        tables *= (rows / np.maximum(tables.sum(2), _LEAST))[:, :, None]
        tables *= (columns / np.maximum(tables.sum(1), _LEAST))[:, None, :]
    return tables


def independence(election: Election) -> Floats:
    """The voters of all parties choose alike."""
    return _fit(np.ones((8, 8)), *election.margins())


def straight_tickets(election: Election) -> Floats:
    """Iterative proportional fitting of a seed in which most voters choose the candidate of their party."""
    return _fit(np.ones((8, 8)) + _STRAIGHT * np.eye(8), *election.margins())


def goodman(election: Election) -> Floats:
    """Goodman's regression of each electorate, with shares that are not negative and sum to 1."""
    found = []
    for number in range(len(election.tables)):
        x, y = election.units(number)
        size = x.sum(1, keepdims=True)
        x, y, root = x / size, y / y.sum(1, keepdims=True), np.sqrt(size)
        p, gram, cross = np.full((8, 8), 1 / 8), (root * x).T @ (root * x), (root * x).T @ (root * y)
        step = 1 / np.linalg.eigvalsh(gram)[-1]
        for _ in range(1_000):
            p = project(p - step * (gram @ p - cross))
        found.append((x * size).sum(0)[:, None] * p)
    return np.stack(found)


def goodman_fitted(election: Election) -> Floats:
    """Goodman's regression, fitted to the votes of the candidates by iterative proportional fitting."""
    return _fit(goodman(election) + _LEAST, *election.margins())


def linear_program(election: Election) -> Floats:
    """The linear programs of nslphom: one table for all units, then tables of units close to it, in ten iterations."""
    found = []
    for number in range(len(election.tables)):
        x, y = election.units(number)
        y = y * (x.sum(1) / y.sum(1))[:, None]
        p = _one_table(x, y)
        for _ in range(_LOCAL):
            table = _unit_tables(p, x, y).sum(0)
            rows = table.sum(1, keepdims=True)
            p = np.where(rows > 0, table / np.maximum(rows, _LEAST), p)
        found.append(table)
    return np.stack(found)


def _one_table(x: Floats, y: Floats) -> Floats:
    """The shares p with the least Σ|y - x p| whose rows sum to 1 and that give all votes of each candidate."""
    (n, r), c = x.shape, y.shape[1]
    errors = sparse.hstack([sparse.kron(x, sparse.eye(c)), sparse.eye(n * c), -sparse.eye(n * c)])
    sums = sparse.hstack([sparse.kron(sparse.eye(r), np.ones((1, c))), sparse.csr_matrix((r, 2 * n * c))])
    votes = sparse.hstack([sparse.kron(x.sum(0)[None], sparse.eye(c)), sparse.csr_matrix((c, 2 * n * c))])
    cost = np.r_[np.zeros(r * c), np.ones(2 * n * c)]
    wanted = np.r_[y.ravel(), np.ones(r), y.sum(0)[:-1]]  # the last follows from the others
    left = sparse.vstack([errors, sums, votes.tocsr()[:-1]]).tocsc()
    return _solve(cost, left, wanted, None)[: r * c].reshape(r, c)


def _unit_tables(p: Floats, x: Floats, y: Floats) -> Floats:
    """Tables with the totals of each unit and the least sum of absolute differences from x p: (n_units, 8, 8)."""
    (n, r), c = x.shape, y.shape[1]
    rows = sparse.kron(sparse.eye(n * r), np.ones((1, c)))
    columns = sparse.kron(sparse.eye(n), sparse.kron(np.ones((1, r)), sparse.eye(c)))
    expected = (x[:, :, None] * p).ravel()
    sums = sparse.vstack([rows, columns]).tocsr()
    wanted = np.r_[x.ravel(), y.ravel()] - sums @ expected
    most = np.r_[np.full(len(expected), np.inf), expected]  # a cell is not negative
    change = _solve(np.ones(len(most)), sparse.hstack([sums, -sums]).tocsc(), wanted, most)
    more, less = np.split(change, 2)
    return (expected + more - less).reshape(n, r, c)


def _solve(cost: Floats, left: sparse.csc_matrix, wanted: Floats, most: Floats | None) -> Floats:
    bounds = (0, None) if most is None else np.stack([np.zeros(len(most)), most], axis=1)
    found = linprog(cost, A_eq=left, b_eq=wanted, bounds=bounds, method="highs")
    if found.x is None:
        raise ValueError(f"linear program: {found.message}")
    return np.asarray(found.x, dtype=np.float64)


def _histnetq(election: Election) -> Transitions:
    bags = election.bags()
    return hq.LinearQ().fit(bags).transitions(bags, groups=election.electorate)


def _published(election: Election, counts: Floats) -> Transitions:
    return Transitions(counts, election.names, election.groups, election.groups)


METHODS: dict[str, Callable[[Election], Floats]] = {
    "independence": independence,
    "straight tickets, fitted": straight_tickets,
    "Goodman's regression": goodman,
    "Goodman's regression, fitted": goodman_fitted,
    "linear program (nslphom)": linear_program,
    "LinearQ.transitions": lambda election: _histnetq(election).counts,
}


def errors_table(elections: list[Election]) -> pd.DataFrame:
    """Return ½ Σ|n̂ - n| / N of each method, with its standard error over electorates, by election."""
    rows = []
    for election in elections:
        for name, method in METHODS.items():
            began = time.process_time()
            errors = _published(election, method(election)).errors(election.tables)
            rows.append({
                "election": election.year, "method": name, "electorates": len(errors), "error": errors.mean(),
                "standard_error": errors.std(ddof=1) / len(errors) ** 0.5,
                "worst": errors.max(), "cpu_seconds": time.process_time() - began,
            })  # fmt: skip
    return pd.DataFrame(rows)


def coverage_table(elections: list[Election], tested: list[Election]) -> pd.DataFrame:
    """Return the coverage of intervals of the shares in each tested election, calibrated on all earlier ones.

    Cells of candidates who did not stand and of parties without voters do not count. Beside: quantiles of a bootstrap
    of the units, which knows nothing of other elections.
    """
    rows = []
    estimates = {election.year: _histnetq(election) for election in elections}
    for election in tested:
        earlier = [other for other in elections if other.year < election.year]
        found = estimates[election.year]
        known = _published(election, np.concatenate([estimates[other.year].counts for other in earlier]))
        truth = np.concatenate([other.tables for other in earlier])
        occasions = np.repeat([other.year for other in earlier], [len(other.tables) for other in earlier])
        fitted = found.with_intervals(known, truth, COVERAGE, occasions)
        kinds = {"conformal": (fitted.lower, fitted.upper), "bootstrap": _bootstrap(election)}
        sizes = election.tables.sum(2, keepdims=True)
        shares = election.tables / np.maximum(sizes, _LEAST)
        counts = (sizes > 0) & (election.tables.sum(1, keepdims=True) > 0)
        for kind, (lower, upper) in kinds.items():
            assert lower is not None
            assert upper is not None
            inside = (lower - 1e-9 <= shares) & (shares <= upper + 1e-9)
            by_party = [inside[:, row][counts[:, row]].mean() for row in range(8)]
            rows.append({
                "election": election.year, "intervals": kind, "electorates": len(shares),
                "known_electorates": len(truth) if kind == "conformal" else 0, "coverage": inside[counts].mean(),
                "lowest_party": min(by_party), "highest_party": max(by_party), "width": (upper - lower)[counts].mean(),
            })  # fmt: skip
    return pd.DataFrame(rows)


def with_kept(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the table with the rows of other elections that the file has."""
    if not path.exists():
        return table
    kept = pd.read_csv(path)
    kept = kept[~kept["election"].isin(table["election"])]
    return pd.concat([kept, table]).sort_values("election", kind="stable", ignore_index=True)


def _bootstrap(election: Election) -> tuple[Floats, Floats]:
    """Return quantiles of the shares over samples of the units of each electorate."""
    rng, shares, tail = np.random.default_rng(0), [], (1 - COVERAGE) / 2
    bags = election.bags()
    places = [np.flatnonzero(election.electorate == number) for number in range(len(election.tables))]
    for _ in range(_DRAWS):
        drawn = np.concatenate([rng.choice(own, len(own)) for own in places])
        some = bags[drawn]
        shares.append(hq.LinearQ().fit(some).transitions(some, groups=election.electorate[drawn]).shares)
    lower, upper = np.quantile(shares, [tail, 1 - tail], axis=0)
    return lower, upper
