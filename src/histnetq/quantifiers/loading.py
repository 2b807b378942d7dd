"""Function `load`, which reads a saved quantifier."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from histnetq.errors import InputError
from histnetq.persistence.model_files import AGAIN, FIT, read_model, require_known_method
from histnetq.persistence.saving import is_own, restored
from histnetq.quantifiers.base import Quantifier
from histnetq.registry import REGISTRY


def load(
    path: str | os.PathLike[str],
    *,
    estimator: type[Quantifier] | None = None,
    trust: Sequence[str] = (),
    **custom: Any,
) -> Quantifier:
    """Read a quantifier that `save` wrote.

    Parameters
    ----------
    path : str or path
        The directory of the model.
    estimator : class, default=None
        The class of the model, if it is a custom class such as a subclass of `EMQ`; None for models of this library.
    trust : sequence of str, default=()
        Full names of the classes that a stored custom classifier may contain, such as "sklearn.svm._classes.SVC".
        Give them only for a file whose origin you trust.
    **custom : dict
        Parameters that cannot be stored, such as a custom ``encoder=`` (a module of the same architecture) or
        ``loss=``.

    Returns
    -------
    Quantifier
        The fitted quantifier.

    Examples
    --------
    >>> import tempfile, histnetq as hq
    >>> place = tempfile.mkdtemp()
    >>> hq.MLPE().fit([[0.0], [1.0]], ["a", "b"]).save(place)
    >>> hq.load(place).predict([[0.0]])
    array([0.5, 0.5])
    """
    if isinstance(trust, str) or not all(isinstance(name, str) for name in trust):
        raise TypeError(f"trust: expected a list of full names of classes, got {trust!r}.")
    config, arrays = read_model(path)
    name = config["estimator"]
    if estimator is None:
        require_known_method(path, config)
        estimator = REGISTRY[name].load()
    elif estimator.__name__ != name:
        raise ValueError(f"estimator: {path} holds a {name}, got {estimator.__name__}; pass the class that was saved.")
    for own in custom:
        if not is_own(config["params"].get(own)):
            raise TypeError(f"load: {own!r} was stored with the model and cannot be replaced; leave it out.")
    try:
        return restored(estimator, config, arrays, trust, custom)
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        problem = (f"{path} has a configuration that ", FIT, f" did not write ({reason})")
        raise InputError("path", problem=problem, remedy=AGAIN) from error
