"""Text that identifies a parameter: the same in another process, and different for what would give other results."""

from __future__ import annotations

import functools
import hashlib
import re
from types import CodeType
from typing import Any

import joblib
import numpy as np
from sklearn.base import BaseEstimator

_PLAIN = (bool, int, float, complex, str, bytes, tuple, type(None), np.ndarray)


def describe(value: Any) -> str:
    """Describe a parameter without addresses, and in full.

    Arrays are described by all their bytes; functions by their code, defaults, closure and the plain globals they name;
    modules by their weights; estimators by their fitted state; other objects by their type and attributes.

    Examples
    --------
    >>> describe(lambda p, q: p - q) == describe(lambda p, q: p + q)
    False
    >>> describe(np.zeros(2000)) == describe(np.append(np.zeros(1999), 1))
    False
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(describe, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {describe(v)}' for k, v in value.items())}}}"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(describe, value)))}}}"
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"array {value.dtype} {value.shape} {_hash(np.ascontiguousarray(value).tobytes())}"
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {describe(value.tolist())}"
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        return f"tensor {describe(value.detach().cpu().numpy())}"
    if hasattr(value, "state_dict"):
        weights = b"".join(t.detach().cpu().numpy().tobytes() for t in value.state_dict().values())
        return _without_addresses(str(value)) + _hash(weights)
    if isinstance(value, functools.partial):
        return f"partial {describe([value.func, value.args, value.keywords])}"
    if hasattr(value, "__self__") and hasattr(value, "__func__"):
        return f"method {describe([value.__self__, value.__func__])}"
    if hasattr(value, "__code__"):
        return f"function {value.__qualname__} {_describe_function(value)}"
    if isinstance(value, BaseEstimator):
        return _without_addresses(str(value)) + str(joblib.hash(value))
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return f"{type(value).__qualname__} {describe(dict(sorted(vars(value).items())))}"
    return _without_addresses(repr(value))


def _describe_function(function: Any) -> str:
    code = function.__code__
    inside = [cell.cell_contents for cell in function.__closure__ or ()]
    known = function.__globals__
    named = {n: known[n] for n in _names(code) if n in known and isinstance(known[n], _PLAIN)}
    return _describe_code(code) + describe([function.__defaults__, function.__kwdefaults__, inside, named])


def _names(code: CodeType) -> list[str]:
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return sorted({*code.co_names, *(name for names in inner for name in names)})


def _describe_code(code: CodeType) -> str:
    constants = [_describe_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return repr((_hash(code.co_code), code.co_names, code.co_varnames, constants))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)
