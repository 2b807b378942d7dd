"""What commands read: bags of tables, or of images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.group import OF_IMAGES, OF_TABLES, refuse_unknown

if TYPE_CHECKING:
    from histnetq.bags.bags import Bags


def read_training(train: list[str], given: dict[str, Any]) -> Bags:
    """Read what methods learn from: examples of known classes, or bags of known proportions."""
    from histnetq.tables.images import read_images
    from histnetq.tables.long_tables import read_bags

    how = how_to_read(given) | {"label": require_known(train, given)}
    if not how.pop("images"):
        if how["prevalences"] is not None and not how["bag"]:
            raise click.UsageError("expected --bag beside --prevalences, which are of bags.")
        return read_bags(train, **how)
    return read_images(train, **how | {"bag": next(iter(how["bag"]), None), "size": how.pop("image_size")})


def how_to_read(given: dict[str, Any]) -> dict[str, Any]:
    """Leave out the options about tables where images are read, and those about images where tables are."""
    others = OF_TABLES if given["images"] else OF_IMAGES
    return {name: value for name, value in given.items() if name not in others}


def require_known(source: list[str], given: dict[str, Any]) -> str | None:
    """Give the column of the classes, which a table of EcoTaxa has by itself; refuse bags of which nothing is known."""
    from histnetq.tables.images import ECOTAXA_LABEL, is_image_table

    prevalences, label = given["prevalences"], given["label"]
    if given["images"] and prevalences is None and label is None and is_image_table(source):
        return ECOTAXA_LABEL
    refuse_unknown(prevalences, label)
    return label
