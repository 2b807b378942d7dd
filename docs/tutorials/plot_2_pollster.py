"""
The pollster: only totals are known
===================================

After this tutorial you can learn from districts with known results, and estimate the results of districts that have not
been counted yet, with an interval for each candidate. You never need the vote of a single person.

You need a survey with some voters of each district, and a table with the results of the counted districts. The ballot
is secret, so no row of the survey says which candidate the person chose.

A district is a **bag** here: a group of rows with one answer. The answer is the share of each candidate, and the shares
of a bag are called its **proportions**.
"""

# %%
# Two tables
# ----------
# As in New Zealand, voters have two votes: one for a party, one for the candidate of their district. In the survey,
# people give their party, their age and their income, but not their candidate. This page simulates 230 such districts
# with about 80 people each.
#
# Some districts were called by phone, where few young people answer. Other districts were asked online, where few old
# people answer. The column ``weight`` corrects this: it is the number of voters that a person represents.

# sphinx_gallery_thumbnail_number = 2
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
candidates = ["Aroha", "Brian", "Chloe"]
parties = np.array(["Labour", "National", "Green", "other"])
party_of = np.array(
    [
        [0.70, 0.05, 0.20, 0.05],
        [0.06, 0.75, 0.03, 0.16],
        [0.15, 0.02, 0.78, 0.05],
    ]
)
age_of, income_of = np.array([48, 58, 36]), np.array([45, 66, 52])


def draw_district(name):
    vote = rng.choice(3, size=1500, p=rng.dirichlet([5, 5, 3]))
    party = (
        rng.random(1500)[:, None] > party_of.cumsum(axis=1)[vote]
    ).sum(axis=1)
    age, income = (
        rng.normal(age_of[vote], 14),
        rng.normal(income_of[vote], 18),
    )
    older = 1 / (1 + np.exp(-(age - 48) / 8))
    answers = (
        np.clip(older if rng.random() < 0.5 else 1 - older, 0.2, None)
        / 10
    )
    people = {
        "district": name,
        "party": parties[party],
        "age": age.round(),
        "income": income.round(),
    }
    survey = pd.DataFrame(people | {"weight": (1 / answers).round(2)})
    return survey[rng.random(1500) < answers].reset_index(
        drop=True
    ), pd.crosstab(parties[party], vote).reindex(
        parties, fill_value=0
    ).to_numpy()


names = [f"district-{i + 1:03d}" for i in range(230)]
surveys, both_votes = zip(
    *[draw_district(name) for name in names], strict=True
)
both_votes = np.array(both_votes)  # districts, parties, candidates
results = pd.DataFrame(
    both_votes.sum(axis=1),
    columns=candidates,
    index=pd.Index(names, name="district"),
)

folder = Path(tempfile.mkdtemp())
pd.concat(surveys[:200]).to_csv(folder / "survey.csv", index=False)
results[:200].to_csv(folder / "results.csv")
pd.concat(surveys[200:]).to_csv(
    folder / "not_counted.csv", index=False
)
surveys[0].head()

# %%
# The second table has one row per district and one column per candidate. These totals are public.

results.head()

# %%
# Read them together
# ------------------
# ``bag`` names the column that both tables share. ``features`` are the columns to learn from; a text column, such as
# the party, becomes one column per value. ``counts=True`` says that the results are votes and not shares.

import histnetq as hq

counted = hq.read_bags(
    folder / "survey.csv",
    bag="district",
    features=["party", "age", "income"],
    weight="weight",
    prevalences=folder / "results.csv",
    counts=True,
)
counted

# %%
# We hold out 60 districts, to measure the errors of the estimates and to calibrate the intervals.

learn, held_out = counted.split(140 / 200, random_state=0)
print(
    len(learn), "districts to learn from,", len(held_out), "held out"
)

# %%
# Learn from totals
# -----------------
# Two methods learn from bags and their proportions. ``EMNetQ`` learns a score of each row for each candidate, such that
# the most likely mix of the rows is the result of the district. ``HistNetQ`` also uses the distribution of such scores
# in a district, and learns to read the result from it. Try both. Here each trains for a few seconds; leave out
# ``training=`` for your own data.

quick = hq.Training(epochs=10, patience=3)
emnetq = hq.EMNetQ(training=quick, random_state=0).fit(learn)
histnetq = hq.HistNetQ(
    encoder=(), training=quick, random_state=0
).fit(learn)

# %%
# The held-out districts show the errors. The baseline, the training mean, gives the same answer for all districts; a
# method that is not better has learned nothing. AE is the mean error of a share, so 0.05 means five percentage points.
# RAE is this error relative to the share. The star marks the best method. † and ‡ mark methods that are not clearly
# worse, as the line below the table explains.

mean = hq.MLPE().fit(learn)
comparison = hq.compare(
    {
        "EMNetQ": emnetq,
        "HistNetQ": histnetq,
        "training mean": mean,
    },
    held_out,
)
print(comparison)

# %%
# The next picture shows one score over all voters (grey), and over the voters of the districts where each candidate is
# strongest (lines). Where the lines differ, the score separates the voters of the candidates. The network never saw the
# candidate of a single voter.

hq.plots.histograms(histnetq, learn)

# %%
# Estimate with intervals
# -----------------------
# ``calibrate`` measures the errors in the held-out districts. From then on each estimate comes with an interval. Nine
# out of ten intervals contain the truth, if the new districts are like these. ``reading()`` gives ``read_bags`` the
# columns of the model.

emnetq.calibrate(held_out)
waiting = hq.read_bags(
    folder / "not_counted.csv",
    bag="district",
    weight="weight",
    features=emnetq.reading(),
)
found = emnetq.predict_interval(waiting, coverage=0.9)
pd.DataFrame(
    found.estimates, index=waiting.ids, columns=emnetq.classes_
).head().round(3)

# %%
# Later on election night, the votes of these thirty districts are counted. The picture shows a dozen of them; black
# dashes are the results.

import matplotlib.pyplot as plt

truth = results.loc[waiting.ids, emnetq.classes_]
truth = truth.div(truth.sum(axis=1), axis=0).to_numpy()
print(
    f"{found.contains(truth).mean():.0%} of the intervals contain the result."
)

dozen = emnetq.predict_interval(waiting[:12], coverage=0.9)
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
hq.plots.prevalences(
    dozen, emnetq.classes_, waiting.ids[:12], ax, truth=truth[:12]
)

# %%
# Which candidate did the voters of each party choose?
# ----------------------------------------------------
# Every district publishes the totals of both votes: one column per party, and one per candidate. The ballots themselves
# are secret. ``transition_table`` estimates from the totals how many voters of each party chose each candidate. It uses
# that districts differ: where a party has more voters, its favourite candidate has more votes.

totals = pd.DataFrame(
    both_votes.sum(axis=2),
    columns=[f"party_{name}" for name in parties],
).join(results.add_prefix("candidate_").reset_index(drop=True))
table = hq.transition_table(
    totals, categories="party_*", classes="candidate_*"
)
estimated = table.pivot(index="from", columns="to", values="share")
estimated.loc[parties].round(2)

# %%
# This page simulated the ballots, so the true table is known here.

true_table = pd.DataFrame(
    both_votes.sum(axis=0), index=parties, columns=candidates
)
true_table = true_table.div(true_table.sum(axis=1), axis=0)
difference = (estimated.loc[parties] - true_table).abs()
print(f"largest difference of a share: {difference.max().max():.2f}")
true_table.round(2)

# %%
# ``group=`` names a column of larger districts, which get tables of their own. With ``known=``, published tables of
# earlier elections calibrate an interval for each share.

# %%
# Why the weights matter
# ----------------------
# Here is the same survey, read without its weights. In some districts old people are overrepresented, in others young
# people. The errors grow.

plain = hq.read_bags(
    folder / "survey.csv",
    bag="district",
    features=["party", "age", "income"],
    prevalences=folder / "results.csv",
    counts=True,
)
plain_learn, plain_held_out = plain.split(140 / 200, random_state=0)
unweighted = hq.EMNetQ(training=quick, random_state=0).fit(
    plain_learn
)
errors = {
    "with weights": -emnetq.score(held_out),
    "without weights": -unweighted.score(plain_held_out),
    "training mean": -mean.score(held_out),
}

figure, ax = plt.subplots(figsize=(6, 2.2), layout="constrained")
bars = ax.barh(
    list(errors),
    list(errors.values()),
    color=["#0072B2", "#D55E00", "#8a939c"],
)
ax.bar_label(bars, fmt="%.3f", padding=3)
ax.set(
    xlabel="mean absolute error of a share",
    xlim=(0, 1.15 * max(errors.values())),
)
ax.invert_yaxis()

# %%
# In a terminal
# -------------
# You can do the same without Python. ``fit`` compares a few methods, keeps the best, and calibrates it:
#
# .. code-block:: sh
#
#     histnetq fit survey.csv --bag district --features party,age,income --weight weight \
#         --prevalences results.csv --counts -o model
#     histnetq predict model not_counted.csv --bag district --weight weight -o estimates.csv
#     histnetq report model not_counted.csv --bag district --weight weight -o report.html
#     histnetq transitions totals.csv --from 'party_*' --to 'candidate_*'
#
# Next steps
# ----------
# - Use hundreds of bags if you can. Dozens teach little if no row has a label.
# - If some rows have labels, such as an exit poll, ``fit(X, y, bags=bags)`` learns from both (:doc:`/python`).
# - Details of ``EMNetQ``, and cases for ``HistNetQ``: :doc:`/emnetq`.
# - Two kinds of weights: :doc:`/weights`.
# - New Zealand's real elections, 30,201 voting units: :doc:`/results`.
