"""Words of 28 languages: 1.5 million different rows for bags at the paper's scale.

The rows are made once from Debian's word lists, kept on disk and memory-mapped. The words of a language fall into three
parts that share none: labelled rows, rows of development bags and rows of test bags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import click
import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.utils.extmath import randomized_svd

import histnetq as hq
from experiments import word_lists
from experiments.runs import digest
from histnetq.datasets import Dataset
from histnetq.datasets.cache import choose_place, keep
from histnetq.simplex import apportion, draw_uniform

__all__ = ["BINARY", "MANY", "ROWS", "BagPlan", "RowPlan", "deal", "draw_bags", "load_words", "make_rows"]

LABELLED, DEVELOPMENT, TEST = range(3)  # the parts


@dataclass(frozen=True)
class RowPlan:
    """The numbers of words of a language in each part, and their conversion to rows.

    Parameters
    ----------
    labelled, development, test : int
        Words of a language in each part; where its list is too short, development has fewer.
    sample : int
        Words that the weights and the singular vectors are learned from.
    n_features : int
        Numbers in a row.
    seed : int
        Seed of the parts and the sample.
    languages : tuple of str, optional
        By default all.
    """

    labelled: int = 2_500
    development: int = 37_000
    test: int = 15_000
    sample: int = 80_000
    n_features: int = 256
    seed: int = 1
    languages: tuple[str, ...] | None = None


@dataclass(frozen=True)
class BagPlan:
    """The number of bags and their languages.

    Parameters
    ----------
    labelled : int
        Labelled rows, drawn from all of that part.
    training, validation, test : int
        Numbers of bags.
    bag_size : int
        Rows in each bag.
    languages : sequence of str, optional
        By default all.
    seed : int
        Seed of the labelled rows and of the development bags.
    test_seed : int
        Seed of the test bags.
    """

    labelled: int
    bag_size: int
    languages: Sequence[str] | None = None
    training: int = 700
    validation: int = 300
    test: int = 1_000
    seed: int = 7
    test_seed: int = 11


ROWS = RowPlan()
MANY = BagPlan(20_000, 1_000)
BINARY = BagPlan(5_000, 250, ("portuguese", "spanish"))
_CHUNK = 100_000  # words that are made rows of at a time
_HASHED = 2**16  # columns of n-grams before the singular value decomposition


def load_words(folder: Path, plan: BagPlan, rows: RowPlan = ROWS) -> Dataset:
    """Labelled rows and bags of words; the rows are made on first use and kept with the data in the folder.

    Where the folder cannot be written to, they are kept in the user's cache directory.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist; make the directory, which will hold 1.5 GB of rows.")
    lists = word_lists.require_lists()
    place = choose_place("words" if rows == ROWS else f"words-{digest(asdict(rows))}", folder, None)
    pool, arrays = keep(place, word_lists.ROOT, lists, rows.n_features, lambda file: make_rows(rows, file))
    return draw_bags(pool, arrays["language"], arrays["part"], plan)


def make_rows(plan: RowPlan, file: BinaryIO) -> dict[str, NDArray]:
    """Write the rows of all languages, and return the `language` and the `part` of each row.

    A row is the word's character n-grams (1 to 4, with its borders), weighed by tf-idf, on the first singular vectors,
    each scaled to unit variance.
    """
    click.echo("making rows of the word lists, once; this takes some minutes", err=True)
    rng = np.random.default_rng(plan.seed)
    words, language, part = _divide(plan, rng)
    n_grams = HashingVectorizer(
        analyzer="char_wb", ngram_range=(1, 4), n_features=_HASHED, alternate_sign=False, norm=None, dtype=np.float32
    )
    sample = rng.choice(len(words), min(plan.sample, len(words)), replace=False)
    counts = n_grams.transform(words[sample])
    weights = TfidfTransformer(sublinear_tf=True).fit(counts)
    vectors = randomized_svd(weights.transform(counts), plan.n_features, n_iter=3, random_state=0)[2]

    def project(some: NDArray) -> NDArray[np.float32]:
        projected: NDArray[np.float32] = np.asarray(weights.transform(n_grams.transform(some)) @ vectors.T, np.float32)
        return projected

    scale = project(words[np.sort(sample)]).std(0)
    for start in range(0, len(words), _CHUNK):
        file.write((project(words[start : start + _CHUNK]) / scale).tobytes())
    return {"language": language, "part": part}


def _divide(plan: RowPlan, rng: np.random.Generator) -> tuple[NDArray, NDArray[np.int16], NDArray[np.int8]]:
    """The words of all languages in random order, at most as many of each as the parts have, and their parts."""
    parts = np.repeat(np.array([TEST, LABELLED, DEVELOPMENT], np.int8), [plan.test, plan.labelled, plan.development])
    found, fewest = [], plan.test + plan.labelled + 2  # development words are divided in two
    codes = []
    for code, (name, own) in enumerate(word_lists.LISTS.items()):
        if plan.languages is not None and name not in plan.languages:
            continue
        words = rng.permutation(word_lists.read_words(own))[: len(parts)]
        if len(words) < fewest:
            raise click.UsageError(
                f"words: expected at least {fewest:,} words of 4 to 20 letters in the {name} list, got {len(words):,}; "
                f"reinstall the Debian package {own.package}."
            )
        found.append(words)
        codes.append(code)
    lengths = [len(words) for words in found]
    language = np.repeat(np.array(codes, dtype=np.int16), lengths)
    return np.concatenate(found), language, np.concatenate([parts[:length] for length in lengths])


def draw_bags(pool: Any, language: NDArray, part: NDArray, plan: BagPlan) -> Dataset:
    """The labelled rows and all bags, on one pool; training, validation and test bags share no rows."""
    every = list(word_lists.LISTS)
    classes = list(plan.languages or every)
    code = np.full(len(every), -1)
    code[[every.index(name) for name in classes]] = np.arange(len(classes))
    labels = code[language]
    rng = np.random.default_rng(plan.seed)
    labelled = np.flatnonzero((part == LABELLED) & (labels >= 0))
    labelled = np.sort(rng.choice(labelled, plan.labelled, replace=False))
    share = plan.training / (plan.training + plan.validation)
    piles = [rng.permutation(np.flatnonzero((part == DEVELOPMENT) & (labels == c))) for c in range(len(classes))]
    ends = [round(share * len(pile)) for pile in piles]
    known = np.full(len(labels), -1)
    known[labelled] = labels[labelled]
    on_pool = partial(hq.Bags.trusted, pool, classes=np.array(classes))
    train = on_pool(labelled, np.array([0, len(labelled)]), labels=known).with_known_prevalences()

    def dealt(piles: list[NDArray[np.int64]], n_bags: int) -> hq.Bags:
        index, prevalences = deal(piles, n_bags, plan.bag_size, rng)
        return on_pool(index.ravel(), plan.bag_size * np.arange(n_bags + 1), prevalences=prevalences)

    training = dealt([pile[:end] for pile, end in zip(piles, ends, strict=True)], plan.training)
    validation = dealt([pile[end:] for pile, end in zip(piles, ends, strict=True)], plan.validation)
    tested = np.flatnonzero((part == TEST) & (labels >= 0))
    source = on_pool(tested, np.array([0, len(tested)]), labels=labels)
    test = hq.APP(plan.bag_size).draw(source, plan.test, random_state=plan.test_seed)
    test.labels = None  # of bags, proportions alone are known
    return Dataset("words", train, training, validation, test_bags=test)


def deal(
    piles: Sequence[NDArray[np.int64]], n_bags: int, bag_size: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Bags of proportions uniform on the simplex, dealt from one pile of rows per class: none twice before all once.

    A pile that is dealt out begins anew in the same order, so that a bag repeats a row only if it takes more rows of a
    class than there are.

    Returns
    -------
    index : (n_bags, bag_size)
    prevalences : (n_bags, n_classes)
    """
    sizes = np.full(n_bags, bag_size)
    counts = apportion(draw_uniform(n_bags, len(piles), rng), sizes)
    label = np.repeat(np.tile(np.arange(len(piles)), n_bags), counts.ravel())
    lengths, taken = np.array([len(pile) for pile in piles]), counts.sum(0)
    by_label = np.argsort(label, kind="stable")
    turn = np.empty(len(label), np.int64)  # how many of its class were dealt before
    turn[by_label] = np.arange(len(label)) - np.repeat(np.cumsum(taken) - taken, taken)
    place = (np.cumsum(lengths) - lengths)[label] + turn % lengths[label]
    return np.concatenate(piles)[place].reshape(n_bags, bag_size), counts / bag_size
