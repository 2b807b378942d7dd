"""Real tables for developing defaults: scikit-learn's, those of R's mlbench, kernlab and MASS, and the shared data.

``python -m experiments`` commands that take ``--r-library`` expect a directory with the folders ``mlbench``,
``kernlab`` and ``MASS`` of R packages. R itself is not needed: ``apt-get download r-cran-mlbench r-cran-kernlab
r-cran-mass`` fetches the packages, ``dpkg-deb -x FILE.deb TARGET`` unpacks each, and the folders lie below
``TARGET/usr/lib/R``. Their files are read by the package ``rdata`` (``pip install rdata``). A table that two of the
packages share is read once.
"""

from __future__ import annotations

import importlib
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import datasets

_FEWEST = 20  # rows of a class; smaller classes are left out
_MOST_ROWS = 20_000
_R_TABLES: dict[str, tuple[str, str | list[str]]] = {  # name of the table: package, and column or columns of the class
    "BreastCancer": ("mlbench", "Class"), "HouseVotes84": ("mlbench", "Class"), "Ionosphere": ("mlbench", "Class"),
    "PimaIndiansDiabetes": ("mlbench", "diabetes"), "Sonar": ("mlbench", "Class"), "spam": ("kernlab", "type"),
    "musk": ("kernlab", "Class"), "ticdata": ("kernlab", "CARAVAN"), "income": ("kernlab", "INCOME"),
    "DNA": ("mlbench", "Class"), "Glass": ("mlbench", "Type"), "LetterRecognition": ("mlbench", "lettr"),
    "Satellite": ("mlbench", "classes"), "Shuttle": ("mlbench", "Class"), "Soybean": ("mlbench", "Class"),
    "Vehicle": ("mlbench", "Class"), "Vowel": ("mlbench", "Class"), "Zoo": ("mlbench", "type"),
    "promotergene": ("kernlab", "Class"), "Aids2": ("MASS", "status"), "Melanoma": ("MASS", "status"),
    "birthwt": ("MASS", "low"), "cats": ("MASS", "Sex"), "crabs": ("MASS", ["sp", "sex"]), "survey": ("MASS", "Sex"),
    "synth.te": ("MASS", "yc"),
}  # fmt: skip
_ONE_AGAINST_REST = {"Satellite": 0, "Vehicle": 1, "Vowel": 3, "LetterRecognition": 0, "digits": 8, "DNA": 0}
_LEFT_OUT = {"Id", "animal", "index", "death", "time", "bwt"}  # row numbers, and columns that tell the class


@dataclass(frozen=True)
class DevelopmentTable:
    """A table of numbers with classes.

    Attributes
    ----------
    name : str
    rows : (n_rows, n_features), float32
    labels : (n_rows,)
        Class codes from 0.
    """

    name: str
    rows: NDArray[np.float32]
    labels: NDArray[np.int64]

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.labels.max()) + 1

    def first(self, n_rows: int) -> DevelopmentTable:
        """Return the table with its first rows only, which are in random order; classes that get too rare leave."""
        return _plain(self.name, self.rows[:n_rows], self.labels[:n_rows])


def read_tables(r_library: Path, data: Path | None = None) -> Iterator[DevelopmentTable]:
    """Yield all tables, those with two classes first; `data` has the shared files, which are optional."""
    tables = [_plain(name, *found) for name, found in _sources(r_library, data)]
    rest = [_against_rest(table, _ONE_AGAINST_REST[table.name]) for table in tables if table.name in _ONE_AGAINST_REST]
    yield from sorted([*tables, *rest], key=lambda table: (table.n_classes > 2, table.name))


def _sources(r_library: Path, data: Path | None) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name in ("breast_cancer", "iris", "wine", "digits"):
        found = getattr(datasets, f"load_{name}")()
        yield name, (found.data, found.target)
    for name, (package, column) in _R_TABLES.items():
        frame = _read_r(r_library / package / "data", name)
        labels = frame[column] if isinstance(column, str) else frame[column].astype(str).agg(" ".join, axis=1)
        yield name, (frame.drop(columns=column), labels)
    if data is not None:
        found = np.load(data / "zooplankton_marine_scotland.npz", allow_pickle=False)
        yield "zooplankton", (found["X"], found["y"])
        for name in ("binary_imdb", "multi20_newsgroups"):
            found = np.load(data / f"{name}_w2v300.npz", allow_pickle=False)
            rows = np.flatnonzero(found["split"] == 0)
            yield name.partition("_")[2], (found["X"][rows].astype(np.float32), found["y"][rows])


def _read_r(folder: Path, name: str) -> pd.DataFrame:
    """Read a table of its own file, or of the compressed database that R makes of all tables of a package."""
    try:
        rdata = importlib.import_module("rdata")
    except ModuleNotFoundError:
        raise ModuleNotFoundError("development tables of R packages need rdata; pip install rdata.") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: pd.DataFrame
        if (folder / f"{name}.rda").exists():
            found = rdata.read_rda(folder / f"{name}.rda")[name]
        else:
            start, length = map(int, rdata.read_rds(folder / "Rdata.rdx")["variables"][name])
            packed = (folder / "Rdata.rdb").read_bytes()[start + 4 : start + length]  # 4 bytes: the size when unpacked
            found = rdata.conversion.convert(rdata.parser.parse_data(zlib.decompress(packed)))
    return found


def _plain(name: str, X: Any, y: Any) -> DevelopmentTable:
    """Encode categories as 0 and 1, replace missing values by the mean, and leave small classes out."""
    if isinstance(X, pd.DataFrame):
        X = X.drop(columns=[column for column in X.columns if column in _LEFT_OUT])
        X = pd.get_dummies(X, dtype=float).to_numpy(np.float64, na_value=np.nan)
    X = np.asarray(X, np.float64).reshape(len(X), -1)
    means = np.nanmean(X, axis=0)
    X = np.where(np.isnan(X), means, X)
    labels = pd.factorize(pd.Series(np.asarray(y)), sort=True)[0]
    kept = (labels >= 0) & (np.bincount(labels[labels >= 0])[labels] >= _FEWEST)
    chosen = np.random.default_rng(0).permutation(np.flatnonzero(kept))[:_MOST_ROWS]
    codes = np.unique(labels[chosen], return_inverse=True)[1]
    return DevelopmentTable(name, X[chosen].astype(np.float32), codes.astype(np.int64))


def _against_rest(table: DevelopmentTable, code: int) -> DevelopmentTable:
    return DevelopmentTable(f"{table.name}-{code}", table.rows, (table.labels == code).astype(np.int64))
