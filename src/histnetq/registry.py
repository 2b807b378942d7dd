"""Lists of everything that users choose by name, for Python, the command line, the service and tuning.

A new quantifier is its file, its line here, and its line in ``tests/conftest.py``. A new interval method or table
format is its file and its line here.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass, field
from typing import Any

# Names of interval methods, and where each is below `histnetq.uncertainty`.
INTERVALS: dict[str, str] = {
    "conformal": "conformal.Conformal",
    "bayes": "bayes.Bayes",
    "bootstrap": "bootstrap.Bootstrap",
    "posterior": "posterior.Posterior",
    "standard-errors": "standard_errors.StandardErrors",
}
RESCALINGS = ("ts", "bcts", "shrunk", "ridge", "vs", "nbvs")  # of posteriors; see `histnetq.EMQ`
PRIORS = ("uniform", "training", "bags")  # of the mix of a bag; see `histnetq.EMQ` and `histnetq.Pretrained`
MISSING = ("refuse", "drop", "mean")  # how missing values are treated; see `histnetq.read_bags`
SQL_DIALECTS = ("duckdb", "postgres", "spark", "bigquery", "snowflake")  # see `histnetq.Quantifier.to_sql`
PERIODS = ("min", "h", "D", "W", "M", "Q", "Y")  # chunks of time; see `histnetq.monitor`


@dataclass(frozen=True)
class Classifier:
    """A classifier that users choose by name.

    Attributes
    ----------
    words : str
        Description.
    place : str
        Module and class below `sklearn`.
    params : dict
        Parameters that differ from scikit-learn's defaults.
    space : dict
        The space that a search explores if the classifier is named.
    scaled : bool
        Whether features are standardised first.
    """

    words: str
    place: str
    params: dict[str, Any]
    space: dict[str, Any]
    scaled: bool = False


CLASSIFIERS: dict[str, Classifier] = {  # the first is the default
    "logistic": Classifier(
        "a logistic regression",
        "linear_model.LogisticRegression",
        {"max_iter": 1000},
        {"classifier__C": (1e-3, 10.0, "log")},
        scaled=True,
    ),
    "forest": Classifier(
        "a random forest",
        "ensemble.RandomForestClassifier",
        {"n_estimators": 100},
        {"classifier__min_samples_leaf": [1, 2, 4, 8]},
    ),
    "boosting": Classifier(
        "boosted trees",
        "ensemble.HistGradientBoostingClassifier",
        {},
        {"classifier__learning_rate": (0.03, 0.3, "log"), "classifier__max_leaf_nodes": [7, 15, 31]},
    ),
    "mlp": Classifier(
        "a small network",
        "neural_network.MLPClassifier",
        {"early_stopping": True},
        {"classifier__alpha": (1e-5, 1.0, "log"), "classifier__hidden_layer_sizes": [(50,), (100,), (200,)]},
        scaled=True,
    ),
    "bayes": Classifier("naive Bayes", "naive_bayes.GaussianNB", {}, {"classifier__var_smoothing": (1e-9, 0.1, "log")}),
}


@dataclass(frozen=True)
class TableFormat:
    """A format of table files.

    Attributes
    ----------
    endings : tuple of str
        Endings of file names, the usual one first.
    media_types : tuple of str
        Media types in requests to the service, the usual one first.
    module : str
        Module below `histnetq.tables` with the functions ``open_files(paths)``, which returns a `Table`, and
        ``write_file(frame, path, index, name)``, where `name` is the final name of the file at `path`.
    splits : bool
        Whether the module also has ``split_file(path, n_rows)``, and ``open_files`` opens parts of files.
    """

    endings: tuple[str, ...]
    media_types: tuple[str, ...]
    module: str
    splits: bool = False

    def load(self) -> Any:
        """Import the module."""
        return importlib.import_module(f"histnetq.tables.{self.module}")


FORMATS: dict[str, TableFormat] = {  # of tables that are read and written, also by the service
    "csv": TableFormat(
        (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz"), ("text/csv", "application/csv"), "csv_files"
    ),
    "parquet": TableFormat(
        (".parquet", ".pq"),
        ("application/vnd.apache.parquet", "application/x-parquet", "application/parquet"),
        "parquet_files",
        splits=True,
    ),
    "excel": TableFormat(
        (".xlsx",), ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",), "excel_files"
    ),
    "jsonl": TableFormat(
        (".jsonl", ".ndjson", ".jsonl.gz"), ("application/jsonl", "application/x-ndjson"), "json_lines"
    ),
}
READ: dict[str, TableFormat] = {  # of tables that are read; the service reads only `FORMATS`
    **FORMATS,
    "evaluation": TableFormat((".json", ".eval"), (), "evaluations"),
}
WRITTEN: dict[str, TableFormat] = {  # of tables that are written
    **FORMATS,
    "json": TableFormat((".json",), ("application/json",), "json_files"),
}
_USUAL = [about.endings[0] for about in WRITTEN.values()]
WRITTEN_ENDINGS = f"{', '.join(_USUAL[:-1])} or {_USUAL[-1]}"  # in help texts
STORES: dict[str, str] = {  # schemes of object storage, and the package that each needs beside fsspec
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "oci": "ocifs",
    "oss": "ossfs",
    "memory": "fsspec",  # of this process, for tests and examples
}
PAGES = (".html", ".htm")  # endings of pages that are written
_CLASSIFIER: dict[str, Any] = {"classifier": list(CLASSIFIERS)}
_NETWORK: dict[str, Any] = {"training__lr": (1e-4, 3e-3, "log"), "training__dropout": [0.0, 0.2, 0.5]}
_ENCODERS: dict[str, Any] = {"encoder": [(32,), (64, 32), (128, 64)]}


@dataclass(frozen=True)
class Entry:
    """Facts about a quantifier that are known before its module is imported.

    Attributes
    ----------
    name : str
        Name of the class, which stored models carry.
    module : str
        Module below `histnetq.quantifiers`.
    learns_from : str
        "labels" of rows; "proportions" of bags or labels; or "anything", for the training mean.
    space : dict
        Search space; empty if there is nothing to tune. If a classifier is named, its space in `CLASSIFIERS`
        replaces the choice of a classifier.
    network : bool
        Whether it is a network, which needs torch.
    """

    name: str
    module: str
    learns_from: str
    space: dict[str, Any] = field(default_factory=dict)
    network: bool = False

    def load(self) -> Any:
        """Import the module and return the class."""
        try:
            module = importlib.import_module(f"histnetq.quantifiers.{self.module}")
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError(f"{self.name} needs torch; pip install 'histnetq[deep]'.") from None
        return getattr(module, self.name)

    def is_installed(self) -> bool:
        """Return whether the required packages are installed, without importing them."""
        return not self.network or importlib.util.find_spec("torch") is not None


REGISTRY: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("HistNetQ", "networks.histnetq", "proportions",
              {**_NETWORK, **_ENCODERS, "n_bins": [8, 16, 32]}, network=True),
        Entry("DeepSets", "networks.set_networks", "proportions",
              {**_NETWORK, **_ENCODERS, "pooling": ["mean", "median", "max"]}, network=True),
        Entry("SetTransformer", "networks.set_networks", "proportions",
              {**_NETWORK, "encoder": [(32,), (64, 32)], "width": [32, 64]}, network=True),
        Entry("GMNet", "networks.gmnet", "proportions",
              {**_NETWORK, **_ENCODERS, "n_blocks": [4, 9], "n_gaussians": [10, 30, 100]}, network=True),
        Entry("EMNetQ", "networks.emnetq", "proportions",
              {**_NETWORK, "encoder": [None, (32,), (64,)], "training__input_dropout": [0.0, 0.3]}, network=True),
        Entry("QuaNet", "networks.quanet", "labels", {**_NETWORK, **_CLASSIFIER, "hidden": [32, 64]}, network=True),
        Entry("CC", "classical.counting", "labels", _CLASSIFIER),
        Entry("PCC", "classical.counting", "labels", _CLASSIFIER),
        Entry("ACC", "classical.counting", "labels", _CLASSIFIER),
        Entry("PACC", "classical.counting", "labels", _CLASSIFIER),
        Entry("BBSE", "classical.label_shift", "labels", _CLASSIFIER),
        Entry("RLLS", "classical.label_shift", "labels", {**_CLASSIFIER, "alpha": (1e-3, 1.0, "log")}),
        Entry("Friedman", "classical.friedman", "labels", _CLASSIFIER),
        Entry("MS", "classical.thresholds", "labels",
              {**_CLASSIFIER, "policy": ["median", "median2", "max", "t50", "x"]}),
        Entry("EMQ", "classical.emq", "labels",
              {**_CLASSIFIER, "rescaling": [None, *RESCALINGS[:4]], "estimate": ["ml", "median", "mean"]}),
        Entry("Pretrained", "classical.pretrained", "labels", _CLASSIFIER),
        Entry("HDy", "classical.matching", "labels", _CLASSIFIER),
        Entry("DyS", "classical.matching", "labels",
              {**_CLASSIFIER, "n_bins": [5, 8, 16, 32], "divergence": ["topsoe", "hellinger"]}),
        Entry("KDEy", "classical.kdey", "labels", {**_CLASSIFIER, "bandwidth": (0.02, 0.3, "log")}),
        Entry("ED", "classical.energy", "labels", _CLASSIFIER),
        Entry("EDx", "classical.energy", "labels"),
        Entry("HDx", "classical.hdx", "labels", {"n_bins": [5, 10, 20, 40]}),
        Entry("ReadMe", "classical.readme", "labels", {"subset_size": [4, 6, 8, 10]}),
        Entry("Corrected", "composed.corrected", "labels"),
        Entry("Ensemble", "composed.ensemble", "labels", {"how": ["mean", "median"]}),
        Entry("LinearQ", "classical.linear", "proportions", {"penalty": (1e-6, 100.0, "log")}),
        Entry("MLPE", "classical.baseline", "anything"),
    )
}  # fmt: skip
METHODS: dict[str, Entry] = {name.lower(): entry for name, entry in REGISTRY.items()}
