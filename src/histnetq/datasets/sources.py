"""The known data sets: descriptions, public records, and the directories that are searched for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from histnetq.errors import Command, MissingFileError, Option

MaybePath = str | os.PathLike[str] | None
_UNPACKED = {"train_dev": "dev_samples", "test": "test_samples", "test_prevalences": "test_prevalences.txt"}


def user_directory(variable: str, default: str) -> Path:
    """Return the directory ``histnetq`` below the directory in an XDG variable, or below its default."""
    return Path(os.environ.get(variable) or Path.home() / default) / "histnetq"


@dataclass(frozen=True)
class Source:
    """A known data set.

    Attributes
    ----------
    name, about, origin : str
        The name, a one-line description, and the public record.
    files : tuple of str
        The files of the record.
    folder : str
        Name of the directory of the files below each usual place.
    needed : int
        Number of files, from the first, that training needs; the remaining files are for the final score.
    zenodo : int, optional
        Number of the Zenodo record, which lists the addresses and checksums of its files.
    url : str, optional
        Address of the folder of the files, if there is no Zenodo record.
    md5 : dict
        Checksums stated by the publisher.
    """

    name: str
    about: str
    origin: str
    files: tuple[str, ...] = ()
    folder: str = ""
    needed: int = 0
    zenodo: int | None = None
    url: str | None = None
    md5: Mapping[str, str] = field(default_factory=dict)

    @property
    def places(self) -> list[Path]:
        """The usual places: the directory that data are fetched to, then the directories of Debian packages.

        The environment variables XDG_DATA_HOME and XDG_DATA_DIRS change them.
        """
        shared = os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"
        packages = [Path(place, "datasets", self.folder) for place in shared.split(":") if place]
        return [user_directory("XDG_DATA_HOME", ".local/share") / self.folder, *packages]

    def find(self, directory: Path | None = None) -> Path | None:
        """Return the directory, or without one the first usual place, if it has the needed files; else None."""
        places = self.places if directory is None else [directory]
        return next((place for place in places if not self.lacking(place)), None)

    def lacking(self, place: Path) -> list[str]:
        """Return the needed files that are missing, both packed and unpacked."""
        return [file for file in self.files[: self.needed] if not _has(place, file)]

    def state(self, directory: Path | None = None) -> str:
        """Describe where the data are, or that they are missing."""
        if not self.files:
            return "present"
        place = self.find(directory)
        if place is None:
            return "missing"
        complete = all(_has(place, file) for file in self.files)
        return f"present in {place}" if complete else f"present in {place}, without test files"

    def missing(self, argument: str, place: Path, lacking: str) -> MissingFileError:
        """Return the error for missing data."""
        needed, others = self.files[: self.needed], self.files[self.needed :]
        test = f" (for the final score also {' and '.join(others)})" if others else ""
        expected = f"expected {', '.join(needed)}{test} of {self.origin}, packed or unpacked"
        folder = str(place.parent if place.is_file() else place)
        fetch = Command("data fetch", "histnetq.datasets.fetch", (self.name,), (Option("to", folder),))
        problem = f"{place} lacks {lacking} of {self.name}, {expected}"
        return MissingFileError(argument, problem=problem, remedy=("put them there, or run ", fetch))


def _has(place: Path, file: str) -> bool:
    if (place / file).is_file() or (place / file.removesuffix(".gz")).is_file():
        return True
    task, _, part = file.removesuffix(".zip").partition(".")
    return part in _UNPACKED and (place / task / "public" / _UNPACKED[part]).exists()


def _lequa(year: int, record: int, task: str, about: str) -> Source:
    files = tuple(f"{task}.{part}.zip" for part in ("train_dev", "test", "test_prevalences"))
    name = f"lequa{year}-{task}"
    return Source(name, about, f"Zenodo record {record}", files, f"lequa{year}", needed=1, zenodo=record)


_FASHION_MD5 = {  # checksums of the publisher's files; Debian compressed the same content again
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}

SOURCES = {
    source.name: source
    for source in (
        _lequa(2022, 6546188, "T1A", "LeQua 2022: product reviews, 2 classes, bags of 250"),
        _lequa(2022, 6546188, "T1B", "LeQua 2022: product reviews, 28 classes, bags of 1,000"),
        _lequa(2024, 11661820, "T1", "LeQua 2024: product reviews, 2 classes, bags of 250"),
        _lequa(2024, 11661820, "T2", "LeQua 2024: product reviews, 28 classes, bags of 1,000"),
        _lequa(2024, 11661820, "T3", "LeQua 2024: product reviews, ordered classes, bags of 200"),
        _lequa(2024, 11661820, "T4", "LeQua 2024: product reviews, 2 classes, covariate shift, bags of 250"),
        Source(
            "fashion-mnist",
            "70,000 images of clothes, 10 classes",
            "Debian's package dataset-fashion-mnist or the GitHub repository zalandoresearch/fashion-mnist",
            tuple(_FASHION_MD5),
            "fashion-mnist",
            needed=4,
            url="https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
            md5=_FASHION_MD5,
        ),
        Source("digits", "1,797 handwritten digits, 10 classes", "scikit-learn, which brings them along"),
    )
}
