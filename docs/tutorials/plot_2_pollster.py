"""
The pollster: only totals are known
===================================

At the end you can learn from districts of which only the result is known, and estimate the result of districts that
have not been counted yet, with an interval for each party. Nobody's own vote is needed at any step.

What you need: a survey with some voters of each district, and a table with the results of the districts that have been
counted. The ballot is secret, so no row of the survey says how that person voted.

A district is a **bag** here: a group of rows for which you want one answer. The answer is the share of each party, and
the shares of a bag are called its **proportions**.
"""

# %%
# Two tables
# ----------
# This page draws 250 districts with about 120 voters each. We know four things about each voter. In half of the
# districts people were called by phone, where few young people answer; in the others they were asked online, where few
# old people do. The column ``weight`` makes up for that: it is how many voters a person stands for.

# sphinx_gallery_thumbnail_number = 2
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
parties = np.array(["Labour", "National", "Green"])
#                      age, income, town, years in the district
typical = np.array([[48, 46, 0.2, 14], [58, 66, -0.6, 20], [36, 52, 0.9, 7]])
spread = np.array([15, 20, 0.8, 8])


def draw_district(name):
    shares = rng.dirichlet([5, 5, 2])
    vote = rng.choice(3, size=2000, p=shares)
    voters = rng.normal(typical[vote], spread)
    older = 1 / (1 + np.exp(-(voters[:, 0] - 50) / 8))
    answers = np.clip(older if rng.random() < 0.5 else 1 - older, 0.1, None) / 9
    asked = rng.random(2000) < answers
    table = pd.DataFrame(voters[asked].round(2), columns=["age", "income", "town", "years"])
    return table.assign(district=name, weight=(1 / answers[asked]).round(2)), np.bincount(vote, minlength=3)


names = [f"district-{i + 1:03d}" for i in range(250)]
surveys, votes = zip(*[draw_district(name) for name in names], strict=True)
results = pd.DataFrame(votes, columns=parties).assign(district=names)

folder = Path(tempfile.mkdtemp())
pd.concat(surveys[:220]).to_csv(folder / "counted.csv", index=False)
pd.concat(surveys[220:]).to_csv(folder / "not_counted.csv", index=False)
results[:220].to_csv(folder / "results.csv", index=False)
surveys[0].head()

# %%
# The second table has one row per district and one column per party. These are the totals that everybody knows.

results.head()

# %%
# Read them together
# ------------------
# ``bag`` names the column that both tables share. ``counts=True`` says that the results are votes and not shares.

import histnetq as hq

counted = hq.read_bags(
    folder / "counted.csv", bag="district", weight="weight", prevalences=folder / "results.csv", counts=True
)
counted

# %%
# We keep 60 districts apart. They will tell how far estimates are off, and give the intervals.

learn, calibrate = counted.split(160 / 220, random_state=0)
print(len(learn), "districts to learn from,", len(calibrate), "to calibrate")

# %%
# Learn from totals
# -----------------
# Two methods learn from bags and their proportions. ``EMNetQ`` learns a score of each row for each party, such that the
# most likely mix of the rows is the result of the district. ``HistNetQ`` learns what the *distribution* of such scores
# over a district looks like, and reads the result from it. Try both where you have a few hundred bags. Here each trains
# for a few seconds; leave out ``training=`` for your own data.

quick = hq.Training(epochs=15, patience=3)
emnetq = hq.EMNetQ(training=quick, random_state=0).fit(learn)
histnetq = hq.HistNetQ(encoder=(32,), training=quick, random_state=0).fit(learn)

# %%
# How far off are they? The districts that we kept apart can tell. "Mean of training" gives the same answer for all
# districts, the mean of those learned from: what is no better than that has learned nothing. AE is the mean error of a
# share, so 0.05 are five percentage points. RAE is that error relative to the share.

mean = hq.MLPE().fit(learn)
comparison = hq.compare({"EMNetQ": emnetq, "HistNetQ": histnetq, "mean of training": mean}, calibrate)
print(comparison)

# %%
# What has it seen? The picture shows one score over the voters of all districts (grey), and over those districts that
# have the most of each party (lines). Where the lines part, the score tells the parties apart. Nobody told the network
# which voter chose which party.

hq.plots.histograms(histnetq, learn)

# %%
# Estimate with intervals
# -----------------------
# ``calibrate`` looks at the errors on the districts kept apart. From then on each estimate comes with an interval. Nine
# of ten intervals hold the truth, if the new districts come about like these.

emnetq.calibrate(calibrate)
waiting = hq.read_bags(folder / "not_counted.csv", bag="district", weight="weight", features=emnetq.feature_names_)
found = emnetq.predict_interval(waiting, coverage=0.9)
table = pd.DataFrame(found.estimates, index=waiting.ids, columns=emnetq.classes_)
table.head().round(3)

# %%
# Election night goes on, and the votes of these thirty districts are counted. Black dashes are the results.

truth = results.set_index("district").loc[waiting.ids, emnetq.classes_]
truth = truth.div(truth.sum(axis=1), axis=0).to_numpy()
ax = hq.plots.prevalences(found, emnetq.classes_, waiting.ids, truth=truth)
ax.figure.set_size_inches(9, 4)
print(f"{found.contains(truth).mean():.0%} of the intervals hold the result.")

# %%
# Why the weights matter
# ----------------------
# The same survey without its weights: in some districts the old speak, in others the young. Errors grow.


def without_weights(bags):
    return hq.Bags(
        bags.rows, bags.index, bags.offsets, prevalences=bags.prevalences, classes=bags.classes, ids=bags.ids
    )


plain = hq.EMNetQ(training=quick, random_state=0).fit(without_weights(learn))
errors = {
    "with weights": hq.evaluate(emnetq, calibrate)["ae"].mean(),
    "without": hq.evaluate(plain, without_weights(calibrate))["ae"].mean(),
    "mean of training": hq.evaluate(mean, calibrate)["ae"].mean(),
}

import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(6, 2.2))
ax.barh(list(errors), list(errors.values()), color=["#0072B2", "#D55E00", "#8a939c"])
ax.set(xlabel="mean absolute error of a share")
ax.invert_yaxis()
figure.tight_layout()

# %%
# In a terminal
# -------------
# The same without Python. ``fit`` compares a few methods, keeps the best, and calibrates it:
#
# .. code-block:: sh
#
#     histnetq fit counted.csv --bag district --prevalences results.csv --counts --weight weight -o model
#     histnetq predict model not_counted.csv --bag district --weight weight -o estimates.csv
#     histnetq report model not_counted.csv --bag district --weight weight -o report.html
#
# Where to go next
# ----------------
# - Have hundreds of bags if you can. Dozens teach little where no row has a label.
# - Some rows have labels, such as an exit poll? ``fit(X, y, bags=bags)`` learns from both.
# - How ``EMNetQ`` learns, and when it is better than ``HistNetQ``: :doc:`/emnetq`.
# - The same on real elections, New Zealand's 30,000 voting units: :doc:`/results`.
