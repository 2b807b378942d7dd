"""
The ML engineer: has the label mix changed?
===========================================

After this tutorial you can monitor a classifier in production without labels: how common each class is in each week,
which weeks differ from the usual mix, and how accurate the classifier still is. You can run this every week as one
command, or as a service.

You need the scores of your classifier (a probability for each class) on some labelled rows that it was not trained on,
and its scores on the production rows with a time.
"""

# %%
# A classifier in production
# --------------------------
# Support tickets come in three kinds. A classifier was trained long ago and gives each ticket a probability of each
# kind. This page simulates tickets and trains such a classifier; you already have one.

# sphinx_gallery_thumbnail_number = 1
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

rng = np.random.default_rng(0)
kinds = np.array(["billing", "bug", "question"])
middle = rng.normal(size=(3, 10)) * 0.62


def draw_tickets(size, mix):
    kind = rng.choice(3, size=size, p=mix)
    return rng.normal(middle[kind], 1.0), kinds[kind]


usual = [0.2, 0.3, 0.5]
model = LogisticRegression().fit(*draw_tickets(2000, usual))


def score(rows):
    return pd.DataFrame(
        model.predict_proba(rows).round(5),
        columns=[f"p_{kind}" for kind in kinds],
    )


# %%
# The rest of this page uses only files of scores. ``scored.csv`` and ``checked.csv`` have labelled tickets that the
# classifier was *not* trained on; scores of training tickets are overconfident. ``log.csv`` has 40 weeks of production.
# From week 30 on there are more tickets about billing. In the last three weeks four features are missing because
# another team renamed them, and this distorts the scores.

folder = Path(tempfile.mkdtemp())
for name, size in (("scored", 1500), ("checked", 1000)):
    rows, labels = draw_tickets(size, usual)
    score(rows).assign(kind=labels).to_csv(
        folder / f"{name}.csv", index=False
    )

weeks, truth, right = [], [], []
for week, monday in enumerate(
    pd.date_range("2026-01-05", periods=40, freq="W-MON")
):
    mix = usual if week < 30 else [0.32, 0.26, 0.42]
    rows, labels = draw_tickets(400, mix)
    rows[:, :4] *= week < 37
    times = monday + pd.to_timedelta(
        np.sort(rng.random(400)) * 7, unit="D"
    )
    weeks.append(score(rows).assign(time=times.round("s")))
    truth.append((labels == "billing").mean())
    right.append((model.predict(rows) == labels).mean())
log = pd.concat(weeks)
log.to_csv(folder / "log.csv", index=False)
log.head()

# %%
# Do not count predictions
# ------------------------
# The obvious way is to count the predictions of the classifier. It is wrong whenever the mix has changed, because a
# classifier expects the mix of its training data. ``EMQ`` learns the errors of the classifier from the labelled scores,
# and finds the mix that explains the scores of a week. Each week is a **bag**: a group of rows with one answer.

import histnetq as hq

train = hq.read_bags(folder / "scored.csv", label="kind", proba="p_*")
quantifier = hq.EMQ(rescaling="bcts", random_state=0).fit_posteriors(
    train
)

scores = log[quantifier.feature_names_].to_numpy()
by_week = hq.Bags(scores, offsets=np.arange(0, len(log) + 1, 400))
estimates = quantifier.predict(by_week)[:, 0]
counted = (scores.argmax(axis=1) == 0).reshape(40, 400).mean(axis=1)

# %%
# (``proba="p_*"`` says that these columns are scores, and that the star matches the class. ``"bcts"`` rescales
# overconfident scores. ``Bags`` contains the rows of all bags in order, and ``offsets`` gives the start of each bag:
# here every 400 rows.)

import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
ax.plot(
    truth,
    color="black",
    linewidth=1,
    label="truth, which nobody knows in production",
)
ax.plot(counted, color="#D55E00", label="counted predictions")
ax.plot(estimates, color="#0072B2", label="estimate")
ax.axvspan(36.5, 39.5, color="#E69F00", alpha=0.15, linewidth=0)
ax.text(36.7, 0.02, "features\nmissing", fontsize=8)
ax.set(xlabel="week", ylabel="share of billing", ylim=(0, None))
ax.legend(frameon=False, loc="upper left")
sound = slice(30, 37)
print(
    f"mean error after the change: {np.abs(estimates - truth)[sound].mean():.3f} estimated, "
    f"{np.abs(counted - truth)[sound].mean():.3f} counted"
)

# %%
# Alerts
# ------
# An estimate from 400 tickets is never exact, so weeks differ by chance. ``monitor`` compares each week with a
# reference, a period that was fine, and raises an alert if chance does not explain the difference. In a year without
# any change, the probability of any alert is five percent.
#
# First we call ``calibrate`` with bags of known mix, drawn from ``checked.csv``: 200 bags of 400 tickets each, drawn
# uniformly over all mixes. From them the model learns the size of its errors, and the usual look of a week of tickets.
# It can then separate weeks with a changed mix from weeks with different *rows*, where the estimate is not reliable.

checked = hq.read_bags(
    folder / "checked.csv", label="kind", proba="p_*"
)
quantifier.calibrate(
    hq.APP(bag_size=400).draw(checked, 200, random_state=0)
)
found = hq.monitor(
    quantifier,
    folder / "log.csv",
    time="time",
    period="W",
    reference="2026-01..2026-06",
)
picture = found.plot()

# sphinx_gallery_start_ignore
plt.figure(picture)
# sphinx_gallery_end_ignore

# %%
# The upper panel shows the mix over time. Below, each class has its estimate with an interval, dashed thresholds, and
# marks for alerts. ``found`` is a data frame with the same information. The column *verdict* summarises it in words:

found[found["class"] == "billing"].groupby("verdict")["chunk"].agg(
    ["min", "max", "count"]
)

# %%
# A week is *unchanged*, it has *moved*, or its *rows look different*. The first is good news. The second matters to
# everybody who planned for the old mix, and the third to the team that renamed the features.
#
# Accuracy without labels
# -----------------------
# The accuracy can also be estimated without labels, if the rows of each class look the same as before. ``scored.csv``
# shows how often the classifier confuses the classes, and the estimate shows how common they are. If rows look
# different, the expected accuracy is as wrong as the estimate. (True accuracies on 400 tickets vary by about two
# percent by chance.)

accuracy = quantifier.estimate_performance(by_week)[
    "accuracy"
].to_numpy()
figure, ax = plt.subplots(figsize=(7.5, 2.8), layout="constrained")
ax.plot(
    right,
    color="black",
    linewidth=1,
    label="true accuracy, which nobody knows in production",
)
ax.plot(accuracy, color="#0072B2", label="expected accuracy")
ax.axvspan(36.5, 39.5, color="#E69F00", alpha=0.15, linewidth=0)
ax.set(xlabel="week", ylabel="accuracy")
ax.legend(frameon=False)

# %%
# Every week, as a command
# ------------------------
# .. code-block:: sh
#
#     histnetq fit scored.csv --label kind --proba 'p_*' --method emq -o model
#     histnetq monitor model log.csv --time time --period W --reference 2026-01..2026-06 \
#         -o monitor.html --csv monitor.csv --prometheus mix.prom --force --fail-on-alert
#
# ``--fail-on-alert`` exits with code 3 if there is an alert, so a scheduler can send a message. ``--state
# state.parquet`` keeps the results of earlier runs, so the next run reads only new files.
#
# As a service
# ------------
# .. code-block:: sh
#
#     pip install 'histnetq[serve]'
#     histnetq serve models                # a directory with the models, here models/tickets
#
# Then any program can send requests over HTTP, and gets the same numbers as on the command line:
#
# .. code-block:: sh
#
#     curl -H 'Content-Type: text/csv' --data-binary @week.csv \
#         'http://127.0.0.1:8765/v1/models/tickets/predict?coverage=0.9'
#
# The response has a row for each bag and class. It equals the output of ``predict --json``, so this page uses the
# command line instead:

import json
import shlex
import subprocess
import sys


def terminal(command):
    words = [sys.executable, "-m", *shlex.split(command)]
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=True
    ).stdout


quantifier.save(folder / "models" / "tickets")
weeks[-8].drop(columns="time").to_csv(
    folder / "week.csv", index=False
)
answer = terminal("histnetq predict models/tickets week.csv --json")
print(json.dumps(json.loads(answer), indent=1))

# %%
# Next steps
# ----------
# - To use features instead of scores, fit with ``read_bags(…, label=…)``; ``EMQ`` then trains its own classifier.
# - False alarm rates, segments, state between runs: :doc:`/monitoring`.
# - The service, its limits and its security: :doc:`/serving`.
# - All options for scores of your own model: :doc:`/scores`.
