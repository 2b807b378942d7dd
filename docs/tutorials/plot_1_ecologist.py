"""
The ecologist: a table of tows
==============================

After this tutorial you can turn a table of particles, measured by a camera, into the share of each species in each tow,
with an interval for every share. You will also know which tows not to trust, and have a report to pass on.

You need a table with one row per particle and a column that names its tow. For some tows, a taxonomist has named every
particle. The remaining tows are unlabelled.

A group of rows with one answer is called a **bag** here. Your tows are the bags.
"""

# %%
# The table
# ---------
# This page simulates its own plankton. Each particle has four measurements from the camera. A taxonomist has checked
# sixty tows; twelve are new. In the last new tow, ``new-12``, the lens was dirty: every particle looks darker and more
# blurred than it is.

# sphinx_gallery_thumbnail_number = 2
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

rng = np.random.default_rng(1)
species = np.array(["copepod", "diatom", "detritus", "larva"])
#                     log area, roundness, darkness, sharpness
typical = np.array(
    [
        [2.6, 0.45, 0.62, 0.70],
        [1.2, 0.25, 0.35, 0.80],
        [1.9, 0.55, 0.50, 0.45],
        [2.3, 0.80, 0.45, 0.72],
    ]
)
spread = np.array([0.45, 0.14, 0.13, 0.12])


def draw_tow(name, size, lens=(0, 0, 0, 0)):
    kind = rng.choice(
        4, size=size, p=rng.dirichlet([1.5, 2.0, 2.0, 0.8])
    )
    measures = rng.normal(typical[kind], spread) + lens
    tow = pd.DataFrame(
        measures.round(4),
        columns=["log_area", "roundness", "darkness", "sharpness"],
    )
    return tow.assign(tow=name, species=species[kind])


sizes = rng.integers(80, 200, size=72)
checked = pd.concat(
    [draw_tow(f"tow-{i + 1:02d}", sizes[i]) for i in range(60)]
)
dirty = (0, 0, 0.15, -0.25)
new = pd.concat(
    [
        draw_tow(
            f"new-{i + 1:02d}",
            sizes[60 + i],
            dirty if i == 11 else (0, 0, 0, 0),
        )
        for i in range(12)
    ]
)

folder = Path(tempfile.mkdtemp())
checked.to_csv(folder / "checked.csv", index=False)
new.drop(columns="species").to_csv(folder / "new.csv", index=False)
checked.head()

# %%
# No single measurement separates the species, and even two together leave many particles ambiguous. So a program that
# names every particle makes mistakes. This is not a problem: we want the *shares*, and we can correct for mistakes that
# we understand.

import matplotlib.pyplot as plt

colors = dict(
    zip(
        species,
        ["#0072B2", "#009E73", "#8a939c", "#D55E00"],
        strict=True,
    )
)
figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
for name, rows in checked.sample(1500, random_state=0).groupby(
    "species"
):
    ax.scatter(
        rows["log_area"],
        rows["roundness"],
        s=9,
        alpha=0.6,
        color=colors[name],
        label=name,
    )
ax.set(
    xlabel="log area",
    ylabel="roundness",
    title="1,500 of the checked particles",
)
ax.legend(frameon=False)

# %%
# Learn from the checked tows
# ---------------------------
# You can do all of this in a terminal. The small function below runs a command for this page and prints the output. You
# type only the text after the ``$``.

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


terminal(
    "histnetq fit checked.csv --bag tow --label species --method emq -o model"
)

# %%
# ``--bag`` names the column of the tows and ``--label`` the column of the species. All remaining numeric columns are
# features. ``--method emq`` is a quick and reliable method. Without it, ``fit`` learns by
# :doc:`Pretrained </pretrained>` on the best of three classifiers. ``--method search`` compares several methods on
# held-out tows, which takes a few minutes.
#
# "Calibrated" means that the errors of the estimates were measured by cross-validation: each checked tow was also
# estimated by a model that had not seen it. The intervals come from these errors. Calibration needs at least 20 tows.
# With fewer, ``predict`` gives intervals that are not calibrated, and says so.

# %%
# Estimate the new tows
# ---------------------

terminal("histnetq predict model new.csv --bag tow -o estimates.csv")
estimates = pd.read_csv(folder / "estimates.csv")
estimates.head(8)

# %%
# There is one row per tow and species. ``estimate`` is the share of the species in the tow. ``lower`` and ``upper`` are
# the ends of its interval: nine out of ten such intervals contain the true share, if the new tows are like the checked
# ones. ``n`` is the number of particles.

figure, ax = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
tows = estimates["tow"].unique()
for j, (name, rows) in enumerate(estimates.groupby("class")):
    place = np.arange(len(tows)) + 0.18 * (j - 1.5)
    reach = [
        rows["estimate"] - rows["lower"],
        rows["upper"] - rows["estimate"],
    ]
    ax.errorbar(
        place,
        rows["estimate"],
        reach,
        fmt="o",
        markersize=4,
        color=colors[name],
        label=name,
    )
ax.set_xticks(range(len(tows)), tows, rotation=45)
ax.set(
    ylabel="share",
    ylim=(0, None),
    title="The new tows, with intervals of 90 %",
)
ax.legend(frameon=False, ncol=4, loc="upper center")

# %%
# Tows that you can trust
# -----------------------
# The column ``trust`` says "ok" if a tow looks like a mix of the known species, whatever the mix. It says "unusual" if
# no mix explains the measurements; then there is no guarantee for the estimate or its interval. "small" would mean that
# the tow has fewer particles than every training tow, so the errors for this size are unknown. Use training tows of the
# sizes that you expect later.

estimates.groupby("tow")["trust"].first()

# %%
# The dirty lens was found, although the program had no information about it. Clean the lens and tow again, or have some
# particles of this tow named by hand (:doc:`/audit` says how many and which).
#
# On this page we know the truth, because we simulated it. How often do the intervals contain it? Over many tows with
# trust "ok", about nine out of ten do; with eleven tows, the number varies by a few percent. In the tow with the dirty
# lens no interval contains the truth, and the error is several times as large.

truth = (
    pd.crosstab(new["tow"], new["species"], normalize="index")
    .stack()
    .rename("truth")
    .reset_index()
)
found = estimates.merge(
    truth, left_on=["tow", "class"], right_on=["tow", "species"]
)
found["held"] = (found["lower"] <= found["truth"]) & (
    found["truth"] <= found["upper"]
)
found["error"] = (found["estimate"] - found["truth"]).abs()
found.groupby("trust").agg(
    tows=("tow", "nunique"),
    intervals_held=("held", "mean"),
    mean_error=("error", "mean"),
)

# %%
# A report to pass on
# -------------------
# ``report`` writes one page that opens in any browser, without a network connection. For tows with known species it
# also shows the errors.

terminal("histnetq report model new.csv --bag tow -o report.html")

# %%
# The same in Python
# ------------------
# ``read_bags`` makes bags from a table. ``cross_calibrate`` learns from all of them, and calibrates the intervals like
# the command. ``reading()`` gives ``read_bags`` the columns of the model. (With fewer than 20 tows, use ``fit`` instead
# of ``cross_calibrate``, and ``predict_interval(new_bags, method="bayes")`` for intervals; trust is then not
# available.)

import histnetq as hq

bags = hq.read_bags(
    folder / "checked.csv", bag="tow", label="species"
)
quantifier = hq.EMQ(random_state=0).cross_calibrate(bags)

new_bags = hq.read_bags(
    folder / "new.csv", bag="tow", features=quantifier.reading()
)
intervals = quantifier.predict_interval(new_bags, coverage=0.9)
figure, ax = plt.subplots(layout="constrained")
hq.plots.prevalences(intervals, quantifier.classes_, new_bags.ids, ax)

# %%
quantifier.trust(new_bags).tail(3)

# %%
# Finally, we measure the overall error. Hold out some checked tows, and compare their estimates with the truth. Dots on
# the line are right. ``ae`` is the mean absolute error of a share: 0.02 means that shares are off by two percentage
# points.

learned, kept = bags.split(0.7, random_state=0)
table = hq.evaluate(hq.EMQ(random_state=0).fit(learned), kept)
hq.plots.estimates(table)
print(f"mean absolute error: {table['ae'].mean():.3f}")

# %%
# Next steps
# ----------
# - For your own data, replace ``checked.csv`` and ``new.csv``, and name your columns after ``--bag`` and ``--label``.
# - If you know the shares of some tows but no species of single particles:
#   :ref:`sphx_glr_auto_tutorials_plot_2_pollster.py`.
# - Missing values, texts, several files, decimal commas: :doc:`/tables`.
# - Guarantees of intervals: :doc:`/intervals`. Strengths and limits of trust: :doc:`/trust`.
# - Labelling a few rows of a tow that is not trusted: :doc:`/audit`.
