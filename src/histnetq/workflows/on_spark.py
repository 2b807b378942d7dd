"""Estimates of the bags of a Spark data frame: only packed sketches or the needed columns are shuffled, by bag.

Sketches of parts of bags are made where the rows are (`mapInArrow`), shuffled by bag, and merged and estimated in each
partition. The driver sees neither rows nor sketches. A partition that is lost with its executor is computed again.
"""

from __future__ import annotations

import functools
import io
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from histnetq.bags.checks import check_choice
from histnetq.errors import InputError
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.loading import load
from histnetq.sketches.shuffled import BLOCK_ROWS, PACKED, Blocks, Shuffle
from histnetq.tables.table_files import Table
from histnetq.workflows.estimating import Place, as_model

if TYPE_CHECKING:
    import pyarrow as pa

_SIZE = "n"  # column of the number of rows of each bag
_PROBED_ROWS = 1 << 15  # rows whose sketches are compared with them


def predict_spark(
    model: Quantifier | Place, frame: Any, *, bag: str | Sequence[str], weight: str | None = None,
    missing: str = "refuse", weight_kind: str = "survey", shuffle: str = "auto",
) -> Any:  # fmt: skip
    """Estimate the bags of a Spark data frame, on its executors; the rows of a bag may be in any partitions.

    The executors need histnetq. They get the model as the bytes of its directory.

    Parameters
    ----------
    model : Quantifier or path
        A fitted quantifier that supports sketches, or the directory of a stored one.
    frame : pyspark.sql.DataFrame
        Rows with the features by name.
    bag : str or sequence of str
        Columns that name the bags.
    weight : str, default=None
        Column of weights, as in `read_bags`.
    missing : {"refuse", "drop", "mean"}, default="refuse"
        Treatment of missing values, as in `read_bags`.
    weight_kind : {"survey", "count"}, default="survey"
        Meaning of the weights, as in `read_bags`.
    shuffle : {"auto", "sketches", "rows"}, default="auto"
        The records that the shuffle brings together: a sketch of each part of a bag, or the rows. "auto" chooses the
        smaller of the two; to find out, the columns of `bag` are read once more, and an executor
        sketches a few rows.

    Returns
    -------
    pyspark.sql.DataFrame
        One row per bag, in no particular order: the columns of `bag`, the number of rows `n`, and a column for each
        class with its prevalence. Nothing is computed before an action, such as writing the frame.

    Examples
    --------
    >>> predict_spark("model", spark.read.parquet("rows"), bag="site").write.parquet("estimates")  # doctest: +SKIP
    """
    try:
        from pyspark.sql.types import BinaryType, DoubleType, LongType, StructField, StructType
    except ImportError:
        raise ImportError("spark: needs the package pyspark; pip install 'histnetq[spark]'.") from None
    model, keys = as_model(model), (bag,) if isinstance(bag, str) else tuple(bag)
    model.sketch_maker()  # a model without sketches raises its error here instead of on every executor
    check_choice("shuffle", shuffle, ("auto", "sketches", "rows"))
    if not keys:
        raise InputError("bag", "a column that names the bags", "none", "name one")
    classes = [str(name) for name in model.classes_.tolist()]
    if clash := {*keys} & {_SIZE, *classes}:
        problem = f"column {min(clash)!r} has the name of a column of the result"
        raise InputError("bag", problem=problem, remedy="rename it in the data frame")
    how: dict[str, Any] = {"keys": keys, "weight": weight, "weight_kind": weight_kind, "missing": missing}
    how["name"] = "frame"
    way = Shuffle(model, **how)
    numbers, names = way.columns(Table("frame", frame.limit(0).toArrow().schema, iter))
    columns = list(dict.fromkeys([*names, *numbers]))
    # `mapInArrow` parses the names of columns, so they are numbered on the way; those that name the bag come first.
    rows = frame.select(*map(_quoted, columns)).toDF(*_numbered(len(columns)))
    by_bag, sent = _numbered(len(keys)), (_packed(model), how)
    named = [StructField(name, frame.schema[key].dataType) for name, key in zip(by_bag, keys, strict=True)]
    if shuffle == "auto":
        shuffle = "rows" if _prefers_rows(rows, by_bag, (*sent, columns)) else "sketches"
    if shuffle == "sketches":
        schema = StructType([*named, StructField(PACKED, BinaryType())])
        rows, columns = rows.mapInArrow(functools.partial(_pack, *sent, columns), schema), [*keys, PACKED]
    sizes = [StructField(_SIZE, LongType()), *(StructField(f"p{i}", DoubleType()) for i in range(len(classes)))]
    arranged = rows.repartition(*by_bag).sortWithinPartitions(*by_bag)
    found = arranged.mapInArrow(functools.partial(_estimate, *sent, columns), StructType([*named, *sizes]))
    return found.toDF(*keys, _SIZE, *classes)


def _quoted(name: str) -> str:
    """Return a name that Spark does not parse."""
    return "`" + name.replace("`", "``") + "`"


def _numbered(n: int) -> list[str]:
    return [f"c{i}" for i in range(n)]


def _prefers_rows(rows: Any, by_bag: list[str], sent: tuple[bytes, dict[str, Any], list[str]]) -> bool:
    """Return whether the rows of a bag in a partition are smaller than their sketch."""
    from pyspark.sql import functions as F

    counts = rows.groupBy(F.spark_partition_id()).agg(
        F.count("*").alias("rows"), F.approx_count_distinct(F.xxhash64(*by_bag)).alias("bags")
    )
    n_parts, n_rows, n_bags = counts.agg(F.count("*"), F.sum("rows"), F.sum("bags")).first()
    if not n_parts:
        return True
    blocks = max(1.0, n_rows / n_parts / BLOCK_ROWS)  # of a partition; each makes sketches of its own
    compare: Any = functools.partial(_compare, *sent, n_rows / n_bags / blocks)
    return bool(rows.limit(_PROBED_ROWS).mapInArrow(compare, "rows boolean").first()[0])


def _packed(model: Quantifier) -> bytes:
    """Return the model's directory as one archive."""
    file = io.BytesIO()
    with tempfile.TemporaryDirectory() as directory, zipfile.ZipFile(file, "w") as archive:
        place = Path(directory) / "model"
        model.save(place)
        for path in sorted(place.rglob("*")):
            archive.write(path, path.relative_to(place))
    return file.getvalue()


@functools.lru_cache(maxsize=2)
def _unpacked(data: bytes) -> Quantifier:
    with tempfile.TemporaryDirectory() as directory:
        zipfile.ZipFile(io.BytesIO(data)).extractall(directory)
        return load(directory)


def _compare(
    data: bytes, how: dict[str, Any], columns: list[str], rows_per_bag: float, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Compare the sizes of rows and of their sketches."""
    import pyarrow as pa

    for rows in Blocks((batch.rename_columns(columns) for batch in batches), BLOCK_ROWS):
        yield pa.record_batch({"rows": [Shuffle(_unpacked(data), **how).prefers_rows(rows, rows_per_bag)]})


def _pack(
    data: bytes, how: dict[str, Any], columns: list[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Turn the rows of a partition into packed sketches of its bags."""
    way = Shuffle(_unpacked(data), **how)
    for block in Blocks((batch.rename_columns(columns) for batch in batches), BLOCK_ROWS):
        packed = way.pack(block)
        yield from packed.rename_columns([*_numbered(len(how["keys"])), PACKED]).to_batches()


def _estimate(
    data: bytes, how: dict[str, Any], columns: list[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Estimate the bags of a partition, whose records are sorted by bag."""
    import pyarrow as pa

    model = _unpacked(data)
    for names, found in Shuffle(model, **how).merge(batch.rename_columns(columns) for batch in batches):
        estimates = np.ascontiguousarray(model.predict(found).T)
        arrays = [
            *(column.combine_chunks() for column in names.columns),
            pa.array(found.n_rows),
            *map(pa.array, estimates),
        ]
        labels = [*_numbered(len(names.column_names)), _SIZE, *(f"p{i}" for i in range(len(estimates)))]
        yield pa.RecordBatch.from_arrays(arrays, labels)
