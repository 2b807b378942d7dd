"""The known data sets: what they are, which files they consist of and which public record these come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from histnetq.datasets.places import data_home

__all__ = ["FASHION_PACKAGE", "SOURCES", "Source"]

# Where Debian's package dataset-fashion-mnist puts the files.
FASHION_PACKAGE = Path("/usr/share/datasets/fashion-mnist")


@dataclass(frozen=True)
class Source:
    """A data set by name.

    Attributes
    ----------
    name, about, origin : str
        `origin` names the public record.
    files : tuple of str
        The files of the record.
    folder : str
        Where they are looked for below the default data directory.
    needed : int
        How many of the files, from the first, it takes to learn; the others are for the final score.
    zenodo : int, optional
        The number of the record, which lists addresses and checksums of its files.
    url : str, optional
        Address of the folder of the files, where there is no such record.
    md5 : dict
        Checksums that the publisher states.
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
    def home(self) -> Path:
        """The directory it is fetched to and looked for in unless told otherwise."""
        return data_home() / self.folder

    def state(self, directory: Path | None = None) -> str:
        """Where the data are, or that they are missing."""
        if not self.files:
            return "present"
        places = [self.home if directory is None else directory]
        if directory is None and self.name == "fashion-mnist":
            places.append(FASHION_PACKAGE)
        for place in places:
            found = [self._has(place, file) for file in self.files]
            if all(found[: self.needed]):
                return f"present in {place}" + ("" if all(found) else ", without test files")
        return "missing"

    def _has(self, place: Path, file: str) -> bool:
        if (place / file).is_file() or (place / file.removesuffix(".gz")).is_file():
            return True
        task, _, part = file.removesuffix(".zip").partition(".")
        unpacked = {"train_dev": "dev_samples", "test": "test_samples", "test_prevalences": "test_prevalences.txt"}
        return part in unpacked and (place / task / "public" / unpacked[part]).exists()

    def explain_missing(self, argument: str, place: Path, lacking: str) -> str:
        """The one message for data that are not there."""
        test = f" (for the final score also {' and '.join(self.files[self.needed :])})" * (
            len(self.files) > self.needed
        )
        return (
            f"{argument}: {place} lacks {lacking} of {self.name}, expected {', '.join(self.files[: self.needed])}"
            f"{test} of {self.origin}, packed or unpacked; put them there, or run "
            f"histnetq data fetch {self.name} --to '{place.parent if place.is_file() else place}'."
        )


def _lequa(year: int, record: int, task: str, about: str) -> Source:
    files = tuple(f"{task}.{part}.zip" for part in ("train_dev", "test", "test_prevalences"))
    name = f"lequa{year}-{task}"
    return Source(name, about, f"Zenodo record {record}", files, f"lequa{year}", needed=1, zenodo=record)


_FASHION_MD5 = {  # as the publisher states them; Debian packed the same content again
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
