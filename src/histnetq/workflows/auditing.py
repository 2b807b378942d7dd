"""Rows of a table that are drawn to be labelled, and estimates of its bags from these labels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import shown, wrong
from histnetq.bags.indexing import natural_keys
from histnetq.bags.shared_rows import row_hashes
from histnetq.persistence.saving import load
from histnetq.simplex import Floats, Ints
from histnetq.tables.columns import counted
from histnetq.tables.long_tables import read_bags_and_unseen
from histnetq.tables.names import name_of, of_one_type
from histnetq.tables.table_files import Table, is_number, open_table
from histnetq.uncertainty.audit import extend_labels
from histnetq.uncertainty.row_samples import RowSample, sample_rows
from histnetq.workflows.estimating import Estimates, judge, name_columns

Place = str | os.PathLike[str]
LABEL = "label"  # the column that a person fills in
_OWN = ("audit_row", "audit_stratum", "audit_stratum_rows", "audit_share", "audit_probability", "audit_check")
_DIGITS = 9  # decimals of shares and probabilities


def draw(
    path: Place, source: Any, *, n: int, seed: int, bag: Sequence[str], weight: str | None, missing: str
) -> tuple[pd.DataFrame, int]:
    """Draw rows of each bag of a table to be labelled, by a stored model.

    Returns
    -------
    rows : DataFrame
        The drawn rows as they stand in the table, with an empty column ``label`` before them, and columns ``audit_…``
        after them by which `estimate_audited` finds them again.
    n_bags : int
        How many bags they were drawn from.
    """
    table = open_table(source, "source")
    for name in (LABEL, *_OWN):
        if name in table.types:
            raise ValueError(f"{table.name}: has a column {name!r}, which the drawn rows get; rename or leave it out.")
    model = load(path)
    bags, _ = _read(model, source, bag, weight, missing)
    drawn = sample_rows(model, bags, n, random_state=seed)
    facts = pd.DataFrame({
        "audit_row": drawn.rows + 1, "audit_stratum": drawn.strata + 1, "audit_stratum_rows": drawn.stratum_rows,
        "audit_share": drawn.shares.round(_DIGITS), "audit_probability": drawn.probabilities.round(_DIGITS),
    })  # fmt: skip
    facts["audit_check"] = _checks(bags, drawn.entries, facts)
    rows = _take_rows(table, drawn.rows)
    return pd.concat([pd.Series("", rows.index, name=LABEL), rows, facts], axis=1), len(bags)


def estimate_audited(
    path: Place, source: Any, labelled: Place, *, random: bool = False, coverage: float | None = None,
    bag: Sequence[str], weight: str | None = None, missing: str = "refuse",
) -> Estimates:  # fmt: skip
    """Estimate the bags of a table from the labels of some of their rows.

    Parameters
    ----------
    labelled : path
        The table that `draw` gave, with labels; or, if `random`, rows of the table that are a simple random sample of
        each bag, with a column ``label``.
    """
    model = load(path)
    bags, unseen = _read(model, source, bag, weight, missing)
    table = open_table([labelled], "audited")
    if LABEL not in table.types:
        raise ValueError(f"{table.name}: has no column {LABEL!r}; add one with the class of each row.")
    labels = _read_labels(table)
    if random and "audit_probability" in table.types:
        raise ValueError(
            f"{table.name}: has the column 'audit_probability', so histnetq sample drew its rows, not all with the "
            "same probability; leave out --random."
        )
    if random:
        sample = RowSample.simple(bags, bags.index[_find_rows(model, bags, labelled, labels, bag, missing)])
    else:
        sample, labels = _find_drawn(bags, table, labels)
    with_labels = np.unique(sample.bags)
    if len(with_labels) < len(bags):
        left_out = shown(np.delete(np.asarray(bags.ids), with_labels))
        warnings.warn(f"{table.name}: bags without labels are left out: {left_out}.", UserWarning, stacklevel=2)
    classes, codes = _classes_of(model.classes_, labels)
    bags, sample = _selected(bags, sample, with_labels)
    if ((np.bincount(sample.bags) == 1) & (np.diff(bags.offsets) > 1)).any():
        raise wrong("audited", "at least 2 labels of each bag", "one alone", "label more rows")
    posteriors = model.predict_rows(bags)
    found = extend_labels(posteriors, bags, sample, codes, len(classes), 0.9 if coverage is None else coverage)
    values = {"estimate": found.estimates, "lower": found.lower, "upper": found.upper}
    trust = judge(model, bags, unseen[with_labels])["trust"].to_numpy()
    kind = "simple random sample" if random else "stratified sample"
    about = {"labels": np.bincount(sample.bags), "method": f"audited: prediction-powered, {kind}"}
    names = name_columns(np.asarray(bags.ids), list(bag) or ["bag"])
    names = names.rename(columns={column: f"bag_{column}" for column in about})
    return Estimates.of(names, np.asarray(bags.sizes), trust, classes, values, **about)


def _read(model: Any, source: Any, bag: Sequence[str], weight: str | None, missing: str) -> tuple[Bags, Floats]:
    """The bags of a table, whose pool has the rows of the table in its order, and their parts of unseen texts."""
    if missing == "drop":
        expected = "refuse or mean beside labels, whose rows are found again by their numbers"
        raise wrong("missing", expected, "drop", "leave such rows out of the table")
    return read_bags_and_unseen(source, bag=bag, features=model.reading(), weight=weight, missing=missing)


def _take_rows(table: Table, rows: Ints) -> pd.DataFrame:
    """Some rows of a table, by their numbers; those of CSV files as they are written."""
    names = list(table.columns)
    batches = table.batches([], names) if table.written else table.batches(names)
    order, parts = np.argsort(rows, kind="stable"), []
    for first, batch in batches:
        inside = rows[order[np.searchsorted(rows[order], first) : np.searchsorted(rows[order], first + batch.num_rows)]]
        parts.append(batch.take(inside - first).to_pandas())
    found = pd.concat(parts, ignore_index=True)
    return found.iloc[np.argsort(order)].reset_index(drop=True)


def _read_labels(table: Table) -> NDArray:
    """(n_rows,): the label of each row as a text, empty where there is none."""
    values = [batch.column(LABEL).to_pylist() for _, batch in table.batches([], [LABEL])]
    codes, found = pd.factorize(pd.Series([value for part in values for value in part], dtype=object))
    named = [value.strip() if isinstance(value, str) else name_of(value) for value in found]
    texts = [str(name) for name in of_one_type(named, table.written)]
    return np.array([*texts, ""], object)[codes]


def _find_drawn(bags: Bags, table: Table, labels: NDArray) -> tuple[RowSample, NDArray]:
    """The rows that `draw` drew of bags that have labels, and their labels."""
    facts, entries = _read_facts(bags, table)
    bag, has_label = bags.bag_of_entry[entries], labels != ""
    kept = (np.bincount(bag, has_label, len(bags)) > 0)[bag]
    if not kept.any():
        raise ValueError(f"{table.name}: no row has a label in column {LABEL!r}; fill it in.")
    if (kept & ~has_label).any():
        place = counted(int(np.argmax(kept & ~has_label)))
        raise ValueError(
            f"{table.name}: {place} has nothing in column {LABEL!r}, though others of its bag have; label all rows "
            "that were drawn from a bag, or sample fewer by --n."
        )
    facts, entries = facts[kept], entries[kept]
    strata, n_rows = (facts[name].to_numpy(np.int64) for name in ("audit_stratum", "audit_stratum_rows"))
    shares, chances = (facts[name].to_numpy(np.float64) for name in ("audit_share", "audit_probability"))
    sample = RowSample(entries, bags.index[entries], bag[kept], strata - 1, n_rows, shares)
    first = sample.groups[0]
    lacks_rows = np.bincount(sample.bags[first], (chances * n_rows).round()[first]) != np.bincount(sample.bags)
    lacks_strata = np.abs(np.bincount(sample.bags[first], shares[first]) - 1) > 1e-6
    lacking = (lacks_rows | lacks_strata) & (np.bincount(sample.bags) > 0)
    if lacking.any():
        raise ValueError(
            f"{table.name}: lacks rows that were drawn from bag {str(bags.ids[np.argmax(lacking)])!r}, expected all of "
            "them; add the others with their labels."
        )
    return sample, labels[kept]


def _read_facts(bags: Bags, table: Table) -> tuple[pd.DataFrame, Ints]:
    """What a table says of its drawn rows, and the entries that these are; refuse rows that `draw` did not draw."""
    for name in _OWN:
        if name not in table.types:
            raise ValueError(
                f"{table.name}: has no column {name!r}, which histnetq sample gives the rows that it draws; keep its "
                "columns, or pass --random if these rows are a simple random sample of each bag."
            )
    numbers = [name for name in _OWN[:-1] if is_number(table.types[name])]  # a column with a slip of the pen is a text
    batches = [batch.to_pandas() for _, batch in table.batches(numbers, [n for n in _OWN if n not in numbers])]
    read = pd.concat(batches, ignore_index=True)
    facts = read[list(_OWN[:-1])].apply(pd.to_numeric, errors="coerce")
    facts = facts.where(np.isfinite(facts), 0)
    entry_of = np.full(bags.rows.shape[0] + 1, -1)
    entry_of[bags.index + 1] = np.arange(len(bags.index))
    row = facts["audit_row"].where(facts["audit_row"].between(1, len(entry_of) - 1), 0).astype(np.int64)
    entries = entry_of[row]
    known = (entries >= 0) & (_checks(bags, entries, facts) == read["audit_check"]).to_numpy()
    if not known.all():
        raise ValueError(
            f"{table.name}: {counted(int(np.argmin(known)))} is not one that histnetq sample drew from this table, as "
            "this model reads it; give the same table and leave the columns audit_... as they were, or pass --random "
            "if the rows are a simple random sample of each bag."
        )
    twice = row.duplicated().to_numpy()
    if twice.any():
        raise ValueError(f"{table.name}: {counted(int(np.argmax(twice)))} is there twice; leave one out.")
    return facts, entries


def _find_rows(
    model: Any, bags: Bags, labelled: Place, labels: NDArray, bag: Sequence[str], missing: str
) -> Ints:  # fmt: skip
    """The entry of each labelled row, found by what the row holds; refuse rows that the bags lack."""
    given, _ = _read(model, [labelled], bag, None, missing)
    name = os.fspath(labelled)
    if (labels == "").any():
        place = counted(int(np.argmax(labels == "")))
        raise ValueError(f"{name}: {place} has nothing in column {LABEL!r}; fill it in.")
    keys = [_content(some) for some in (bags, given)]
    places = pd.Series(np.arange(len(keys[0])), keys[0]).reindex(keys[1])
    found = np.empty(len(places))
    found[given.index] = places
    if np.isnan(found).any():
        raise ValueError(
            f"{name}: {counted(int(np.argmax(np.isnan(found))))} is no row of its bag, or is there more often than in "
            "it; give rows of the same table."
        )
    return found.astype(np.int64)


def _content(bags: Bags) -> pd.MultiIndex:
    """For each entry, a checksum of its bag and row, and how many entries before are the same."""
    from pandas.util import hash_pandas_object

    names = np.asarray(bags.ids).astype(str)[bags.bag_of_entry]
    same = hash_pandas_object(pd.DataFrame({"bag": names, "row": row_hashes(bags.rows, bags.index)}), index=False)
    return pd.MultiIndex.from_arrays([same, same.groupby(same).cumcount()])


def _classes_of(known: NDArray, labels: NDArray) -> tuple[NDArray, Ints]:
    """The classes of a model and those that only labels have, and the class code of each label."""
    texts = [str(name) for name in known.tolist()]
    _refuse_slips(texts, labels)
    others = sorted(set(labels.tolist()) - set(texts), key=lambda name: str(natural_keys([name])[0]))
    if others:
        warnings.warn(
            f"labels name classes that the model has not learned: {shown(np.array(others))}; they are estimated from "
            "labels alone.", UserWarning, stacklevel=3,
        )  # fmt: skip
    codes = pd.Index([*texts, *others]).get_indexer(labels)
    return (np.array([*known.tolist(), *others], object) if others else known), codes.astype(np.int64)


def _refuse_slips(known: list[str], labels: NDArray) -> None:
    """Refuse labels that write a class of the model in other letters, or of which none is a class of the model."""
    alike = {name.casefold(): name for name in known}
    for label in dict.fromkeys(labels.tolist()):
        if label not in known and label.casefold() in alike:
            meant = alike[label.casefold()]
            raise ValueError(f"audited: expected {meant!r}, a class of the model, got {label!r}; write them alike.")
    if not set(labels.tolist()) & set(known):
        got = shown(np.unique(labels.astype(str)))
        raise ValueError(
            f"audited: expected labels such as {shown(np.array(known))}, got {got}; name classes as the model does."
        )


def _selected(bags: Bags, sample: RowSample, chosen: Ints) -> tuple[Bags, RowSample]:
    """Some of the bags, which have all drawn rows, and the sample as one of these."""
    kept = bags[chosen]
    number = np.searchsorted(chosen, sample.bags)
    entries = sample.entries - bags.offsets[sample.bags] + kept.offsets[number]
    return kept, replace(sample, entries=entries, bags=number)


def _checks(bags: Bags, entries: Ints, facts: pd.DataFrame) -> pd.Series:
    """Checksums of drawn rows, their bags and what is known of the draw; a letter keeps them from being numbers."""
    from pandas.util import hash_pandas_object

    known = pd.DataFrame({
        "row": row_hashes(bags.rows, bags.index[entries]),
        "bag": np.asarray(bags.ids)[bags.bag_of_entry[entries]].astype(str),
        "number": facts["audit_row"].to_numpy(np.int64),
        "stratum": facts["audit_stratum"].to_numpy(np.int64),
        "stratum_rows": facts["audit_stratum_rows"].to_numpy(np.int64),
        "share": facts["audit_share"].to_numpy(np.float64).round(_DIGITS),
        "probability": facts["audit_probability"].to_numpy(np.float64).round(_DIGITS),
    })  # fmt: skip
    return hash_pandas_object(known, index=False).map("c{:016x}".format)
