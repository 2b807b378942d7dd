"""The one list of quantifiers: what the public names, loading, the command line, tuning and the laws know of them.

A new quantifier is its file, its line here, and its line in ``tests/conftest.py``.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from typing import Any

_CLASSIFIER: dict[str, Any] = {"classifier": ["logistic", "forest", "boosting", "mlp", "bayes"]}
_NETWORK: dict[str, Any] = {"training__lr": (1e-4, 3e-3, "log"), "training__dropout": [0.0, 0.2, 0.5]}
_ENCODERS: dict[str, Any] = {"encoder": [(32,), (64, 32), (128, 64)]}


@dataclass(frozen=True)
class Entry:
    """What is known of a quantifier before its module is imported.

    Attributes
    ----------
    name : str
        Name of the class, which stored models carry.
    module : str
        File in this room.
    learns_from : str
        "labels" of rows; "proportions" of bags, and labels as well; or "anything", for the mean of training.
    space : dict
        What `histnetq tune` searches; empty if there is nothing to tune. Where a classifier is named, its own space in
        `histnetq.quantifiers.classical.classifiers` takes the place of the choice among classifiers.
    network : bool
        Whether it is a network, which needs torch.
    """

    name: str
    module: str
    learns_from: str
    space: dict[str, Any] = field(default_factory=dict)
    network: bool = False

    def load(self) -> Any:
        """Import the module and give the class."""
        try:
            module = importlib.import_module(f"histnetq.quantifiers.{self.module}")
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError(f"{self.name} needs torch; pip install 'histnetq[deep]'.") from None
        return getattr(module, self.name)

    def is_installed(self) -> bool:
        """Tell whether what the method needs is installed, without importing it."""
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
        Entry("EMQ", "classical.emq", "labels", {**_CLASSIFIER, "rescaling": [None, "ts", "bcts", "shrunk", "vs"]}),
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
        Entry("MLPE", "classical.baseline", "anything"),
    )
}  # fmt: skip
METHODS: dict[str, Entry] = {name.lower(): entry for name, entry in REGISTRY.items()}
