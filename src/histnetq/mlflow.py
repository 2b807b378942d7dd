"""Models in MLflow: a `pyfunc` flavour whose data are a model directory of this library, without any pickle.

``mlflow.pyfunc.load_model(uri).predict(frame)`` returns one row per bag and class, as `histnetq.estimate` does. It
imports the module that the file ``MLmodel`` names: this one in files that `save_model` wrote, but perhaps another in
files of unknown origin. `load_model` of this module imports nothing that a file names.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from histnetq.errors import InputError, MissingFileError
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.loading import load
from histnetq.registry import REGISTRY
from histnetq.tables.places import local_path
from histnetq.workflows.estimating import estimate

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_model", "log_model", "save_model"]

_FOLDER = "model"  # the model directory below the data of MLflow
# Options of `estimate` and their defaults; MLflow lets users replace only options that are stored.
_OPTIONS: dict[str, Any] = {
    "bag": None,
    "weight": None,
    "weight_kind": "survey",
    "missing": "refuse",
    "coverage": None,
    "interval": None,
    "wide": False,
}


def save_model(
    model: Quantifier, path: str | os.PathLike[str], *, bag: str | Sequence[str] | None = None, **options: Any
) -> None:
    """Write a fitted quantifier as an MLflow model.

    Parameters
    ----------
    model : Quantifier
        A fitted quantifier of this library.
    path : str or path
        A directory that does not exist.
    bag : str or sequence of str, default=None
        Columns that name the bag of each row that is predicted; None takes all rows as one bag.
    **options : dict
        Further options of `histnetq.estimate`: `weight`, `weight_kind`, `missing`, `coverage` and `interval`;
        ``wide=True`` for one row per bag; and arguments of ``mlflow.pyfunc.save_model``, such as `signature`.

    Examples
    --------
    >>> save_model(q, "flavour", bag="site")  # doctest: +SKIP
    """
    place = local_path(path, "path")
    if os.path.lexists(place):
        raise InputError("path", problem=f"{place} exists", remedy="choose another name")
    try:
        _with_data(
            model, bag, options, lambda mlflow, **given: mlflow.pyfunc.save_model(path=os.fspath(place), **given)
        )
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)  # MLflow makes the directory before it checks its arguments
        raise


def log_model(model: Quantifier, name: str, *, bag: str | Sequence[str] | None = None, **options: Any) -> Any:
    """Log a fitted quantifier to the current MLflow run.

    Parameters
    ----------
    model : Quantifier
        A fitted quantifier of this library.
    name : str
        Name of the model in MLflow.
    bag : str or sequence of str, default=None
        Columns that name the bag of each row that is predicted; None takes all rows as one bag.
    **options : dict
        As in `save_model`, and arguments of ``mlflow.pyfunc.log_model``, such as `registered_model_name`.

    Returns
    -------
    ModelInfo
        What ``mlflow.pyfunc.log_model`` returns; `model_uri` is for `load_model`.

    Examples
    --------
    >>> log_model(q, "fish", bag="site").model_uri  # doctest: +SKIP
    """
    return _with_data(model, bag, options, lambda mlflow, **given: mlflow.pyfunc.log_model(name=name, **given))


def load_model(uri: str) -> Quantifier:
    """Read the quantifier of an MLflow model; only the model directory is read, and no code of it is imported.

    Parameters
    ----------
    uri : str
        A directory that `save_model` wrote, or an address of MLflow such as "models:/fish/1".

    Returns
    -------
    Quantifier
        The fitted quantifier.

    Examples
    --------
    >>> load_model("flavour").predict(X)  # doctest: +SKIP
    """
    here = Path(uri)
    folder = here if here.is_dir() else Path(_import().artifacts.download_artifacts(uri))
    place = folder / "data" / _FOLDER
    if not place.is_dir():
        raise MissingFileError("uri", problem=f"{uri} has no data/{_FOLDER}", remedy="name what save_model wrote")
    return load(place)


class _Estimator:
    """What MLflow calls: estimates of the bags of a data frame."""

    def __init__(self, model: Quantifier, options: dict[str, Any]) -> None:
        self.model, self.wide, self.options = model, options.pop("wide", False), options

    def predict(self, frame: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        return estimate(self.model, frame, **self.options).to_frame(self.wide)


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> _Estimator:
    """Return the estimator of a model directory; MLflow calls this function by its name."""
    options = dict(model_config or {})
    unknown = next((name for name in options if name not in _OPTIONS), None)
    if unknown is not None:
        raise InputError("model_config", f"options among {', '.join(_OPTIONS)}", repr(unknown), "leave it out")
    return _Estimator(load(path), options)


def _with_data(model: Quantifier, bag: str | Sequence[str] | None, options: dict[str, Any], write: Any) -> Any:
    """Call `write` with the arguments of MLflow, while a temporary directory has the model."""
    mlflow = _import()
    config = {name: options.pop(name, default) for name, default in _OPTIONS.items()}
    config["bag"] = bag if bag is None or isinstance(bag, str) else list(bag)
    entry = REGISTRY.get(type(model).__name__)
    extra = "[deep]" if entry is not None and entry.network else ""
    given = {"pip_requirements": [f"histnetq{extra}=={metadata.version('histnetq')}"], **options}
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / _FOLDER)
        data = os.fspath(Path(folder) / _FOLDER)
        return write(mlflow, loader_module=__name__, data_path=data, model_config=config, **given)


def _import() -> Any:
    try:
        import mlflow.pyfunc
    except ModuleNotFoundError:
        raise ImportError("mlflow: needs MLflow; pip install 'histnetq[mlflow]'.") from None
    return mlflow
