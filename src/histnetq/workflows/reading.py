"""The bags of tables or of images, read as stored models need them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from histnetq.bags.bags import Bags
from histnetq.quantifiers.base import Quantifier
from histnetq.simplex import Floats
from histnetq.tables.columns import Reading
from histnetq.tables.images import read_images
from histnetq.tables.long_tables import read_bags_and_unseen

Reader = Callable[[Quantifier], tuple[Bags, Floats]]


def reader(source: Any, *, images: bool = False, **options: Any) -> Reader:
    """Return what reads bags for a model, and which part of a bag's rows has texts that are new to it.

    The source is read once for all models that have it read alike.

    Parameters
    ----------
    source : paths
        Of tables, or of images.
    images : bool
        Whether these are images.
    **options
        Those of `read_bags`, or of `read_images`; `bag` is a list of columns for both.
    """
    return _image_reader(source, **options) if images else _table_reader(source, **options)


def _table_reader(source: Any, **options: Any) -> Reader:
    @functools.cache
    def read(features: Reading) -> tuple[Bags, Floats]:
        return read_bags_and_unseen(source, features=features, **options)

    def read_for(model: Quantifier) -> tuple[Bags, Floats]:
        wanted = model.reading()
        return read(wanted if options.get("missing") == "mean" else replace(wanted, means=None))

    return read_for


def _image_reader(source: Any, *, bag: Sequence[str] = (), **options: Any) -> Reader:
    @functools.cache
    def read(size: int, color: bool) -> tuple[Bags, Floats]:
        bags = read_images(source, bag=next(iter(bag), None), size=size, color=color, **options)
        return bags, np.zeros(len(bags))

    def read_for(model: Quantifier) -> tuple[Bags, Floats]:
        shape = model.input_shape_
        if len(shape) not in (2, 3) or shape[-1] != shape[-2] or (len(shape) == 3 and shape[0] != 3):
            raise ValueError(
                f"model: expected one of square images, grey or of three colours, got one of rows of shape {shape}; "
                "fit it with --images."
            )
        return read(shape[-1], len(shape) == 3)

    return read_for
