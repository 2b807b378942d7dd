"""What a data set is made of."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import NDArray

from histnetq.data.bags import Bags

__all__ = ["Dataset", "Examples"]


@dataclass(frozen=True)
class Dataset:
    """Labelled rows and bags of known proportions, on one pool of rows.

    Attributes
    ----------
    name : str
    train : Bags
        The labelled rows, as one bag, or as several where the data come in labelled bags.
    bags, validation : Bags
        Bags of known proportions without row labels: to learn from, to choose by. They share no rows.
    calibration : Bags or None
        Further such bags to calibrate by, where the data have them.
    test_bags : Bags or None
        The bags of `test`, None where the data were read without them. They have no prevalences where these are
        not yet public.
    """

    name: str
    train: Bags
    bags: Bags
    validation: Bags
    calibration: Bags | None = None
    test_bags: Bags | None = None

    @property
    def test(self) -> Bags:
        """The bags for the final score only; an error where the data were read without them."""
        if self.test_bags is None:
            raise ValueError(
                f"test: {self.name} was read without test bags, expected its test files beside the others; "
                "add them and read it again, or use validation."
            )
        return self.test_bags

    @property
    def classes(self) -> NDArray:
        """The names of the classes."""
        assert self.train.classes is not None
        return self.train.classes


@dataclass(frozen=True)
class Examples:
    """Labelled examples, for which bags are drawn by a protocol.

    Attributes
    ----------
    name : str
    train : Bags
        The labelled rows to learn from, as one bag.
    test : Bags
        For the final score only: labelled rows as one bag to draw from, or bags already drawn from such rows.
    validation : Bags or None
        Labelled rows to choose by, as one bag, where the data have such a part.
    """

    name: str
    train: Bags
    test: Bags
    validation: Bags | None = None

    @property
    def classes(self) -> NDArray:
        """The names of the classes."""
        assert self.train.classes is not None
        return self.train.classes
