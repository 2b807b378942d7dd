"""Reading tables or images as bags: for training, or as a model expects them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from histnetq.bags.bags import Bags
from histnetq.errors import InputError
from histnetq.quantifiers.base import Quantifier
from histnetq.simplex import Floats
from histnetq.tables.columns import FeatureSpec
from histnetq.tables.images import ECOTAXA_LABEL, is_image_table, read_images
from histnetq.tables.long_tables import read_bags, read_bags_and_unseen
from histnetq.tables.suspicious_columns import warn_of_columns

Reader = Callable[[Quantifier], tuple[Bags, Floats]]


def read_training(train: Any, y: Any = None, *, images: bool = False, **reading: Any) -> Bags:
    """Read training data: bags, an array of rows with labels, a table, or images.

    Options of tables are those of `read_bags`; options of images are those of `read_images`, with `image_size`.
    """
    if isinstance(train, Bags):
        if y is not None or reading:
            name = "y" if y is not None else next(iter(reading))
            raise TypeError(f"{name}: expected none with Bags, which are complete, got some; leave it out.")
        return train
    if y is not None:
        bags = Bags.from_labels(train, y, **reading)
        _warn_of_columns(bags)
        return bags
    if images:
        bag, size = next(iter(columns_of(reading.pop("bag", None))), None), reading.pop("image_size", None)
        label = require_known(train, reading.pop("label", None), reading.get("prevalences"), images)
        return read_images(train, bag=bag, label=label, **reading, **({} if size is None else {"size": size}))
    if isinstance(train, np.ndarray):
        raise TypeError("y: expected a label for each row of an array, got none; pass the labels, Bags or a table.")
    require_known(train, reading.get("label"), reading.get("prevalences"))
    if reading.get("prevalences") is not None and not columns_of(reading.get("bag")):
        raise InputError("bag", "the columns that name the bags of prevalences", "none", "name them")
    return read_bags(train, **reading)


def _warn_of_columns(bags: Bags) -> None:
    """Warn of the columns of a data frame that are likely to spoil estimates."""
    if bags.feature_names is None or not isinstance(bags.rows, np.ndarray) or bags.rows.ndim != 2:
        return
    columns, ends = dict(enumerate(bags.feature_names)), (bags.rows.min(0), bags.rows.max(0))
    warn_of_columns("X", columns, bags.rows, ends, bags.labels, label="y", places=len(bags) == 1)


def require_known(source: Any, label: str | None, prevalences: Any, images: bool = False) -> str | None:
    """Return the label column, which EcoTaxa tables have by default; raise if nothing is known about the bags."""
    if label is not None or prevalences is not None:
        return label
    if images and is_image_table(source):
        return ECOTAXA_LABEL
    raise InputError("label, prevalences", "one of them", "none", "name the label column or give a table")


def columns_of(names: str | Sequence[str] | None) -> list[str]:
    """Return names of columns as a list.

    Examples
    --------
    >>> columns_of("tow"), columns_of(None)
    (['tow'], [])
    """
    return [names] if isinstance(names, str) else list(names or ())


def reader(source: Any, *, images: bool = False, **options: Any) -> Reader:
    """Return a function that reads bags for a model, with the fraction of each bag's rows that have unseen texts.

    The source is read once for all models that read it the same way. Options are those of `read_bags`, or of
    `read_images`; `bag` is a list of columns for both.
    """
    return _image_reader(source, **options) if images else _table_reader(source, **options)


def _table_reader(source: Any, **options: Any) -> Reader:
    @functools.cache
    def read(features: FeatureSpec) -> tuple[Bags, Floats]:
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
                f"model: expected a model of square images, grey or with three colours, got a model for rows of shape "
                f"{shape}; fit it to images."
            )
        return read(shape[-1], len(shape) == 3)

    return read_for
