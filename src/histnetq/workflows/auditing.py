"""Audits: drawing rows of a table for labelling, and estimating its bags from the labels."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import nearest_name, shown
from histnetq.bags.indexing import natural_keys
from histnetq.bags.shared_rows import row_hashes
from histnetq.errors import Command, InputError, Option
from histnetq.quantifiers.base import Quantifier
from histnetq.simplex import Floats, Ints
from histnetq.tables.columns import OTHER, counted
from histnetq.tables.long_tables import read_bags_and_unseen
from histnetq.tables.names import name_of, of_one_type
from histnetq.tables.table_files import Table, is_number, open_table
from histnetq.uncertainty.audit import extend_labels
from histnetq.uncertainty.row_samples import RowSample
from histnetq.workflows.bag_audits import sample_rows
from histnetq.workflows.estimating import COVERAGE, Estimates, Place, as_model, judge, name_columns, sort_estimates
from histnetq.workflows.reading import columns_of

_SAMPLE = Command("sample", "sample_table")
_OR_RANDOM = ("or pass ", Option("random", True), " if the rows are a simple random sample of each bag")
LABEL = "label"  # column that a person fills in
_OWN = ("audit_row", "audit_stratum", "audit_stratum_rows", "audit_share", "audit_probability", "audit_check")
_ALIKE = 0.75  # smallest similarity of a label to the class that it may be a typo of
_DIGITS = 9  # decimals of shares and probabilities
_PREDICTED = re.compile(  # names of columns with predictions
    r"(?<![a-z])(y_?hat|pred(s|icted|ictions?)?|prob(s|as?|abilit(y|ies))?|scores?|logits?|confidences?)(?![a-z])", re.I
)


def sample_table(
    model: Quantifier | Place,
    table: Any,
    *,
    n: int = 200,
    bag: str | Sequence[str] | None = None,
    weight: str | None = None,
    missing: str = "refuse",
    random_state: int = 0,
) -> pd.DataFrame:
    """Draw rows of each bag of a table for labelling, more of them where the model is in doubt.

    This is what ``histnetq sample`` does. Fill in the column ``label``, then pass the table to `estimate_audited`.

    Parameters
    ----------
    model : Quantifier or path
        A fitted quantifier that gives row probabilities, or the directory of a stored one.
    table : path, glob, list of paths, or data frame
        The rows.
    n : int, default=200
        Number of rows drawn from each bag; smaller bags give all their rows.
    bag : str or sequence of str, default=None
        Columns that name the bag of each row; None takes all rows as one bag.
    weight : str, default=None
        Column of survey weights.
    missing : {"refuse", "mean"}, default="refuse"
        Refuse rows with missing values, or fill them with the training mean.
    random_state : int, default=0
        Seed of the draw.

    Returns
    -------
    DataFrame
        The drawn rows: an empty column ``label``, the columns of the table, and columns ``audit_…``, which
        `estimate_audited` needs to find the rows again. Columns that show predictions are left out, with a warning, so
        that labels do not depend on them: the scores that the model reads, and columns that are not features and have
        the name of a class or a name such as ``y_pred`` or ``score``.

    Examples
    --------
    >>> import histnetq as hq
    >>> rows = pd.DataFrame({"x": [0.0, 1.0] * 20})
    >>> q = hq.PACC(random_state=0).fit(rows, ["a", "b"] * 20)
    >>> len(hq.sample_table(q, rows, n=10))
    10
    """
    opened = open_table(table, "source")
    for name in (LABEL, *_OWN):
        if name in opened.types:
            raise ValueError(f"{opened.name}: has a column {name!r}, which the drawn rows get; rename or drop it.")
    model = as_model(model)
    bags, _ = _read(model, table, columns_of(bag), weight, missing)
    drawn = sample_rows(model, bags, n, random_state=random_state)
    facts = pd.DataFrame(
        {
            "audit_row": drawn.rows + 1,
            "audit_stratum": drawn.strata + 1,
            "audit_stratum_rows": drawn.stratum_rows,
            "audit_share": drawn.shares.round(_DIGITS),
            "audit_probability": drawn.probabilities.round(_DIGITS),
        }
    )
    facts["audit_check"] = _checks(bags, drawn.entries, facts)
    rows = _take_rows(opened, drawn.rows).drop(columns=_predictions(model, opened, [*columns_of(bag), weight]))
    return pd.concat([pd.Series("", rows.index, name=LABEL), rows, facts], axis=1)


def estimate_audited(
    model: Quantifier | Place,
    table: Any,
    labelled: Any,
    *,
    random: bool = False,
    bag: str | Sequence[str] | None = None,
    weight: str | None = None,
    missing: str = "refuse",
    coverage: float | None = None,
) -> Estimates:
    """Estimate the bags of a table from labels of some of their rows.

    The estimates and intervals are valid even if the bags differ from the training data in any way. This is what
    ``histnetq predict --audited`` does. The model's predictions reduce the variance; a wrong model widens the intervals
    but does not bias the estimates.

    Parameters
    ----------
    model : Quantifier or path
        A fitted quantifier that gives row probabilities, or the directory of a stored one.
    table : path, glob, list of paths, or data frame
        The rows.
    labelled : path or data frame
        The result of `sample_table` with labels filled in; or, with `random`, a simple random sample of the rows of
        each bag with a column ``label``.
    random : bool, default=False
        Whether the labelled rows are a simple random sample of each bag.
    bag : str or sequence of str, default=None
        Columns that name the bag of each row; None takes all rows as one bag.
    weight : str, default=None
        Column of survey weights.
    missing : {"refuse", "mean"}, default="refuse"
        Refuse rows with missing values, or fill them with the training mean.
    coverage : float, default=None
        Probability that an interval contains the truth; None means 0.9.

    Returns
    -------
    Estimates
        Estimates with intervals by bag, and the number of labels of each bag; see `estimate`.

    Examples
    --------
    >>> import histnetq as hq
    >>> rows = pd.DataFrame({"x": [0.0, 1.0] * 20})
    >>> q = hq.PACC(random_state=0).fit(rows, ["a", "b"] * 20)
    >>> drawn = hq.sample_table(q, rows, n=20).assign(label=lambda drawn: drawn["x"].map({0.0: "a", 1.0: "b"}))
    >>> hq.estimate_audited(q, rows, drawn).to_frame()[["class", "estimate", "labels"]]
      class  estimate  labels
    0     a       0.5      20
    1     b       0.5      20
    """
    model, bag = as_model(model), columns_of(bag)
    bags, unseen = _read(model, table, bag, weight, missing)
    table = open_table(labelled, "audited")
    if LABEL not in table.types:
        raise ValueError(f"{table.name}: has no column {LABEL!r}; add one with the class of each row.")
    labels = _read_labels(table)
    if random and "audit_probability" in table.types:
        problem = ("has the column 'audit_probability', so ", _SAMPLE, " drew its rows with different probabilities")
        raise InputError(table.name, problem=problem, remedy=("leave out ", Option("random", True)))
    if random:
        given, _ = _read(model, labelled, bag, None, missing)
        sample = RowSample.simple(bags, bags.index[_find_rows(bags, given, labels, table.name)])
    else:
        sample, labels = _find_drawn(bags, table, labels)
    with_labels = np.unique(sample.bags)
    if len(with_labels) < len(bags):
        left_out = shown(np.delete(np.asarray(bags.ids), with_labels))
        warnings.warn(f"{table.name}: bags without labels are left out: {left_out}.", UserWarning, stacklevel=2)
    classes, codes = _classes_of(model.classes_, labels)
    bags, sample = _selected(bags, sample, with_labels)
    if ((np.bincount(sample.bags) == 1) & (np.diff(bags.offsets) > 1)).any():
        raise InputError("audited", "at least 2 labels of each bag", "only one", "label more rows")
    posteriors = model.predict_rows(bags)
    found = extend_labels(posteriors, bags, sample, codes, len(classes), COVERAGE if coverage is None else coverage)
    values = {"estimate": found.estimates, "lower": found.lower, "upper": found.upper}
    trust = judge(model, bags, unseen[with_labels])["trust"].to_numpy()
    kind = "simple random sample" if random else "stratified sample"
    about = {"labels": np.bincount(sample.bags), "method": f"audited: prediction-powered, {kind}"}
    names = name_columns(np.asarray(bags.ids), list(bag) or ["bag"])
    names = names.rename(columns={column: f"bag_{column}" for column in about})
    return sort_estimates(names, np.asarray(bags.sizes), trust, classes, values, **about)


def _read(model: Any, source: Any, bag: Sequence[str], weight: str | None, missing: str) -> tuple[Bags, Floats]:
    """Read the bags of a table, with the rows in their order, and the fraction of rows with unseen texts per bag."""
    if missing == "drop":
        expected = "refuse or mean for labelled rows, which are found again by their numbers"
        raise InputError("missing", expected, "drop", "remove the rows with missing values from the table first")
    return read_bags_and_unseen(source, bag=bag, features=model.reading(), weight=weight, missing=missing)


def _predictions(model: Quantifier, table: Table, special: Sequence[str | None]) -> list[str]:
    """Return the columns of a table, except special ones, that would show predictions to the person who labels."""
    spec = model.reading()
    own = {part for name in spec.names for part in (name, name.partition("=")[0], name.removeprefix(OTHER))}
    classes = set(map(str, model.classes_))
    telling = {name for name in table.columns if name not in own and (name in classes or _PREDICTED.search(name))}
    found = [name for name in table.columns if name in (telling | own if spec.scores else telling) - set(special)]
    if found:
        left_out = f"left out of the drawn rows, so that labels do not depend on predictions: {shown(np.array(found))}"
        warnings.warn(f"{table.name}: columns {left_out}.", UserWarning, stacklevel=3)
    return found


def _take_rows(table: Table, rows: Ints) -> pd.DataFrame:
    """Return the rows of a table with these numbers; cells of CSV files stay as they are written."""
    names = list(table.columns)
    batches = table.batches([], names) if table.written else table.batches(names)
    order, parts = np.argsort(rows, kind="stable"), []
    for first, batch in batches:
        inside = rows[order[np.searchsorted(rows[order], first) : np.searchsorted(rows[order], first + batch.num_rows)]]
        parts.append(batch.take(inside - first).to_pandas())
    found = pd.concat(parts, ignore_index=True)
    return found.iloc[np.argsort(order)].reset_index(drop=True)


def _read_labels(table: Table) -> NDArray:
    """(n_rows,): label of each row as a text; empty for rows without a label."""
    values = [batch.column(LABEL).to_pylist() for _, batch in table.batches([], [LABEL])]
    codes, found = pd.factorize(pd.Series([value for part in values for value in part], dtype=object))
    named = [value.strip() if isinstance(value, str) else name_of(value) for value in found]
    texts = [str(name) for name in of_one_type(named, table.written)]
    return np.array([*texts, ""], object)[codes]


def _find_drawn(bags: Bags, table: Table, labels: NDArray) -> tuple[RowSample, NDArray]:
    """Return the drawn rows of bags that have labels, and their labels."""
    facts, entries = _read_facts(bags, table)
    bag, has_label = bags.bag_of_entry[entries], labels != ""
    kept = (np.bincount(bag, has_label, len(bags)) > 0)[bag]
    if not kept.any():
        raise ValueError(f"{table.name}: no row has a label in column {LABEL!r}; fill it in.")
    if (kept & ~has_label).any():
        place = counted(int(np.argmax(kept & ~has_label)))
        raise ValueError(
            f"{table.name}: {place} has nothing in column {LABEL!r}, but other rows of its bag have a label; label all "
            "rows that were drawn from a bag, or sample fewer rows."
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
            "them; add the missing rows with their labels."
        )
    return sample, labels[kept]


def _read_facts(bags: Bags, table: Table) -> tuple[pd.DataFrame, Ints]:
    """Return the columns `audit_…` of drawn rows, and their entries; refuse rows that `sample_table` did not draw."""
    for name in _OWN:
        if name not in table.types:
            problem = (f"has no column {name!r}, which ", _SAMPLE, " adds to the rows that it draws")
            raise InputError(table.name, problem=problem, remedy=("keep its columns, ", *_OR_RANDOM))
    numbers = [name for name in _OWN[:-1] if is_number(table.types[name])]  # one typing error turns a column into texts
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
        place = counted(int(np.argmin(known)))
        problem = (f"{place} is not one that ", _SAMPLE, " drew from this table, as this model reads it")
        remedy = ("give the same table and leave the columns audit_... as they were, ", *_OR_RANDOM)
        raise InputError(table.name, problem=problem, remedy=remedy)
    twice = row.duplicated().to_numpy()
    if twice.any():
        raise ValueError(f"{table.name}: {counted(int(np.argmax(twice)))} occurs twice; remove one of them.")
    return facts, entries


def _find_rows(bags: Bags, given: Bags, labels: NDArray, name: str) -> Ints:
    """Return the entry of each labelled row, found by the values of the row; refuse rows that the bags lack."""
    if (labels == "").any():
        place = counted(int(np.argmax(labels == "")))
        raise ValueError(f"{name}: {place} has nothing in column {LABEL!r}; fill it in.")
    keys = [_content(some) for some in (bags, given)]
    places = pd.Series(np.arange(len(keys[0])), keys[0]).reindex(keys[1])
    found = np.empty(len(places))
    found[given.index] = places
    if np.isnan(found).any():
        raise ValueError(
            f"{name}: {counted(int(np.argmax(np.isnan(found))))} is not a row of its bag, or occurs more often than "
            "there; give rows of the same table."
        )
    return found.astype(np.int64)


def _content(bags: Bags) -> pd.MultiIndex:
    """Return a checksum of the bag and row of each entry, and the number of equal entries before it."""
    from pandas.util import hash_pandas_object

    names = np.asarray(bags.ids).astype(str)[bags.bag_of_entry]
    same = hash_pandas_object(pd.DataFrame({"bag": names, "row": row_hashes(bags.rows, bags.index)}), index=False)
    return pd.MultiIndex.from_arrays([same, same.groupby(same).cumcount()])


def _classes_of(known: NDArray, labels: NDArray) -> tuple[NDArray, Ints]:
    """Return the classes of a model followed by classes that only labels have, and the class code of each label."""
    texts = [str(name) for name in known.tolist()]
    _refuse_other_spellings(texts, labels)
    others = sorted(set(labels.tolist()) - set(texts), key=lambda name: str(natural_keys([name])[0]))
    if others:
        warning = f"labels name classes that the model has not learned: {shown(np.array(others))}; they are estimated "
        near = [(other, nearest_name(other, texts, _ALIKE)) for other in others]
        typos = ", ".join(f"{other!r} to {name!r}" for other, name in near if name is not None)
        warning += f"only from the labels{f'; correct {typos} if this is a typo' if typos else ''}."
        warnings.warn(warning, UserWarning, stacklevel=3)
    codes = pd.Index([*texts, *others]).get_indexer(labels)
    return (np.array([*known.tolist(), *others], object) if others else known), codes.astype(np.int64)


def _refuse_other_spellings(known: list[str], labels: NDArray) -> None:
    """Refuse labels that differ from a class of the model only in case, and labels without any class of the model."""
    folded = {name.casefold(): name for name in known}
    for label in dict.fromkeys(labels.tolist()):
        if label not in known and label.casefold() in folded:
            meant = folded[label.casefold()]
            raise ValueError(f"audited: expected {meant!r}, a class of the model, got {label!r}; use the same letters.")
    if not set(labels.tolist()) & set(known):
        got = shown(np.unique(labels.astype(str)))
        raise ValueError(
            f"audited: expected labels such as {shown(np.array(known))}, got {got}; name classes as the model does."
        )


def _selected(bags: Bags, sample: RowSample, chosen: Ints) -> tuple[Bags, RowSample]:
    """Return the chosen bags, which contain all drawn rows, and the sample with the numbers of these bags."""
    kept = bags[chosen]
    number = np.searchsorted(chosen, sample.bags)
    entries = sample.entries - bags.offsets[sample.bags] + kept.offsets[number]
    return kept, replace(sample, entries=entries, bags=number)


def _checks(bags: Bags, entries: Ints, facts: pd.DataFrame) -> pd.Series:
    """Return checksums of drawn rows, their bags and their draw; they begin with a letter, so they stay texts."""
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
