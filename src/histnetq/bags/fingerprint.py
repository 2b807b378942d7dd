"""Checksums of bags and arrays, to recognise whether a run or a file was made from the same data."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import take_dense

if TYPE_CHECKING:
    from histnetq.bags.bags import Bags

_HASH_CHUNK = 1 << 22  # numbers hashed at a time


def fingerprint(bags: Bags) -> str:
    """Compute a checksum of everything that a method learns from.

    It covers the type, shape and every byte of the entries, weights, prevalences and labels, the names of the classes,
    and the rows that the bags refer to. Rows on disk and the same rows in memory have the same checksum.

    Parameters
    ----------
    bags : Bags
        The bags.

    Returns
    -------
    str
        A SHA-256 checksum as 64 hexadecimal digits.

    Examples
    --------
    >>> from histnetq import Bags
    >>> one, other = Bags(np.zeros((2, 1))), Bags(np.ones((2, 1)))
    >>> one.fingerprint() == other.fingerprint()
    False
    """
    kind = None if bags.weights is None else bags.weight_kind
    classes = None if bags.classes is None else bags.classes.tolist()
    digest = hashlib.sha256(repr((kind, classes, tuple(bags.rows.shape), str(bags.rows.dtype))).encode())
    for name in ("index", "offsets", "weights", "prevalences", "labels"):
        array = getattr(bags, name)
        if array is not None:
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    rows = np.unique(bags.index)
    step = max(1, _HASH_CHUNK // bags.n_features)
    for start in range(0, len(rows), step):
        taken = take_dense(bags.rows, rows[start : start + step])
        digest.update(repr(taken.tolist()).encode() if taken.dtype == object else taken.tobytes())
    return digest.hexdigest()


def digest_arrays(*arrays: NDArray) -> str:
    """Compute a checksum of the concatenated bytes of arrays; types and shapes are not included.

    Examples
    --------
    >>> digest_arrays(np.zeros(2)) == digest_arrays(np.zeros(1), np.zeros(1)) != digest_arrays(np.ones(2))
    True
    """
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()
