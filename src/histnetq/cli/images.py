"""Bags of images for commands that learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.group import refuse_unknown

if TYPE_CHECKING:
    from histnetq.data.bags import Bags

_OF_TABLES = ("features", "ignore", "proba", "prediction", "text", "weight", "scratch")


def read_training_images(
    train: list[str], *, bag: list[str], label: str | None, prevalences: str | None, counts: bool, image_size: int,
    color: bool, skip_unreadable: bool, missing: str, **others: Any,
) -> Bags:  # fmt: skip
    """Read images of known classes or proportions; a table of EcoTaxa has its usual columns by default."""
    from histnetq.data.images import ECOTAXA_LABEL, read_images

    given = [name for name in _OF_TABLES if others.get(name)] + (["missing"] if missing != "refuse" else [])
    if given:
        raise click.UsageError(f"expected no --{given[0]} beside --images: it is about columns of tables.")
    if label is None and prevalences is None and train[0].lower().endswith(".tsv"):
        label = ECOTAXA_LABEL
    refuse_unknown(prevalences, label)
    return read_images(
        train, bag=one_column(bag), label=label, prevalences=prevalences, counts=counts, size=image_size, color=color,
        skip_unreadable=skip_unreadable,
    )  # fmt: skip


def one_column(bag: list[str]) -> str | None:
    """Give the column that names the bags of images, if there is one."""
    if len(bag) > 1:
        raise click.UsageError("expected --bag once beside --images.")
    return bag[0] if bag else None
