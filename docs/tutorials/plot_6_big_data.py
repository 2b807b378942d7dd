"""
Big data: sketches, streams and clusters
========================================

After this tutorial you can estimate bags with more rows than fit into memory, add up results from different days or
machines, and spread the work over a cluster. The answer is the same as if all rows had been in one place.

You need a model, and rows in Parquet files with a column that names the bag of each row.
"""

# %%
# A model
# -------
# A shop sorts its customers' photos into four kinds of goods, using ten features of each photo. The model is fitted
# once, to a few thousand labelled photos. The large data come later.

# sphinx_gallery_thumbnail_number = 1
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import histnetq as hq

rng = np.random.default_rng(0)
kinds = np.array(["bag", "coat", "dress", "shoe"])
middle = rng.normal(size=(4, 10))
features = [f"f{i}" for i in range(10)]


def draw_photos(kind):
    return rng.normal(middle[kind], 1.2).astype("float32")


labels = rng.integers(4, size=3000)
quick = hq.Training(epochs=10, patience=2)
model = hq.HistNetQ(
    encoder=(32,), n_bins=16, training=quick, random_state=0
)
model.fit(
    pd.DataFrame(draw_photos(labels), columns=features), kinds[labels]
)

# %%
# We also calibrate the model, so that estimates have intervals and bags that look different are flagged.

labels = rng.integers(4, size=3000)
other = hq.Bags.from_labels(
    pd.DataFrame(draw_photos(labels), columns=features), kinds[labels]
)
model.calibrate(hq.APP(bag_size=500).draw(other, 100, random_state=0))

# %%
# Many rows
# ---------
# There are eight days, one file each, with photos from six shops. To keep this page quick to build, there are only
# 400,000 rows; everything below works the same way with more.

folder = Path(tempfile.mkdtemp())
(folder / "rows").mkdir()
shops = np.array(
    ["Bilbao", "Gijón", "Lugo", "Madrid", "Oviedo", "Vigo"]
)
mixes = rng.dirichlet(np.ones(4), size=6)
for day in range(1, 9):
    shop = rng.integers(6, size=50_000)
    kind = (
        rng.random(50_000)[:, None] > mixes.cumsum(axis=1)[shop]
    ).sum(axis=1)
    table = pd.DataFrame(draw_photos(kind), columns=features).assign(
        shop=shops[shop], day=f"day-{day}"
    )
    table.to_parquet(folder / "rows" / f"day-{day}.parquet")
table[["shop", "day", "f0", "f1", "f2"]].head(3)

# %%
# A sketch instead of the rows
# ----------------------------
# ``HistNetQ`` needs only the histograms of a bag, and a histogram is a set of counts. The counts of the parts add up to
# the counts of the whole. A **sketch** holds these counts for each bag: rows are read once and then discarded.

monday, tuesday = (
    model.sketch(
        hq.read_bags(
            folder / "rows" / f"day-{day}.parquet",
            bag="shop",
            features=model.reading(),
        )
    )
    for day in (1, 2)
)
both = monday + tuesday
both

# %%
# The sum is exactly the sketch of all rows of both days, to the last bit.

together = hq.read_bags(
    [
        folder / "rows" / "day-1.parquet",
        folder / "rows" / "day-2.parquet",
    ],
    bag="shop",
    features=model.reading(),
)
print(
    "the same:",
    np.array_equal(model.predict(both), model.predict(together)),
)

# %%
# The size of a sketch depends on the number of bags, not on the number of rows.

import matplotlib.pyplot as plt

sketch_file = folder / "both.parquet"
both.save(sketch_file)
kilobytes = {
    "rows of two days": sum(
        (folder / "rows" / f"day-{day}.parquet").stat().st_size
        for day in (1, 2)
    )
    / 1000,
    "their sketch": sketch_file.stat().st_size / 1000,
}
figure, ax = plt.subplots(figsize=(6, 1.8), layout="constrained")
bars = ax.barh(
    list(kilobytes),
    list(kilobytes.values()),
    color=["#8a939c", "#0072B2"],
)
ax.bar_label(bars, fmt="%.0f kB", padding=3)
ax.set(xlabel="kilobytes on disk", xscale="log", xlim=(1, 1e5))
ax.invert_yaxis()

# %%
# A sketch can be saved and loaded. It is enough to compute estimates, intervals and trust.

week = hq.BagSketch.load(sketch_file)
found = model.predict_interval(week, coverage=0.9)
truth = mixes[np.searchsorted(shops, week.ids)]
hq.plots.prevalences(found, model.classes_, week.ids, truth=truth)
print(model.trust(week)["trust"].tolist())

# %%
# Black dashes are the mixes that the photos were drawn from.
#
# Streams
# -------
# Rows may also come in pieces of any size and in any order, from files or from a queue. ``predict_stream`` takes pairs
# of bag names and rows. Memory holds the sketches and one piece. Pass exactly the columns of the model,
# ``feature_names_``: columns that were constant in training may have been dropped.

import pyarrow.dataset as ds

columns = model.feature_names_
batches = ds.dataset(folder / "rows").to_batches(
    columns=["shop", *columns], batch_size=20_000
)
pieces = (
    (batch["shop"].to_pylist(), batch.select(columns).to_pandas())
    for batch in batches
)
ids, estimates = model.predict_stream(pieces)
pd.DataFrame(estimates, index=ids, columns=model.classes_).round(3)

# %%
# In a terminal this is one command. For such a model, ``predict`` never holds all rows, so the files may be larger than
# memory. If rows arrive day by day, ``sketch`` saves sketches, here by shop *and* day. ``predict`` then adds them up to
# the requested bags.

import shlex
import subprocess
import sys


def terminal(command):
    print(f"$ {command}")
    words = [sys.executable, "-m", *shlex.split(command)]
    print(
        subprocess.run(
            words,
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )


model.save(folder / "model")
terminal(
    "histnetq sketch model rows/*.parquet --bag shop --bag day -o sketches.parquet"
)
terminal("histnetq predict model sketches.parquet --bag day --wide")

# %%
# A cluster
# ---------
# `Dask <https://www.dask.org>`_ spreads the work over many machines (``pip install 'histnetq[dask]'``). Each worker
# reads some of the files and returns sketches, so very little data is sent. This page starts two workers in its own
# process; on a cluster, pass the address of its scheduler, ``client="tcp://host:8786"``.

from distributed import Client

with Client(
    processes=False,
    n_workers=2,
    threads_per_worker=1,
    dashboard_address=None,
) as client:
    ids_of_dask, by_dask = hq.predict_dask(
        model,
        str(folder / "rows" / "*.parquet"),
        bag="shop",
        client=client,
    )

order = [list(ids_of_dask).index(name) for name in ids]
print(
    "the same to the last bit:",
    np.array_equal(by_dask[order], estimates),
)

# %%
# Methods with sketches
# ---------------------
# These methods have sketches that add up exactly: ``HistNetQ``, ``DeepSets`` with mean or maximum, ``CC``, ``ACC``,
# ``PCC``, ``PACC``, ``HDy`` and ``DyS``. The sketches of ``EMQ`` and ``KDEy`` are close approximations. ``EMNetQ``,
# ``QuaNet`` and ``SetTransformer`` need all rows of a bag at once, and raise an error:

labels = rng.integers(4, size=400)
slow = hq.EMNetQ(training=hq.Training(epochs=1), random_state=0).fit(
    draw_photos(labels), kinds[labels]
)
try:
    slow.sketch(draw_photos(labels))
except TypeError as error:
    print(error)

# %%
# Next steps
# ----------
# - Speed, exactness and estimates for a cluster: :doc:`/scaling`.
# - Training on rows that stay on disk, or on several processes: :doc:`/training-on-many-processes`.
# - Monitoring a stream for changes: :ref:`sphx_glr_auto_tutorials_plot_3_engineer.py`.
