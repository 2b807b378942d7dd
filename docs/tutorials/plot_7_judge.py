"""
The evaluation team: how many answers are really bad?
=====================================================

After this tutorial you can say how common bad answers of a system are, and whether another system is better, from the
verdicts of a language model and a few human labels. You need a table with one row per answer: the verdict, and a human
label in some rows.
"""

# %%
# Two systems and a lenient judge
# -------------------------------
# Two systems answer the same 2,500 prompts. This page simulates them, so that the truth is known. The judge misses 40 %
# of the bad answers of system A, and only 15 % of the bad answers of system B, whose style it does not share. People
# label 300 answers of each system, drawn at random.

# sphinx_gallery_thumbnail_number = 1
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import histnetq as hq

rng = np.random.default_rng(1)
n = 2500
hard = rng.random(n)  # prompts that are hard for both systems


def answer(system, share_bad, missed):
    bad = 0.7 * hard + 0.3 * rng.random(n) > 1 - share_bad
    says_bad = np.where(
        bad, rng.random(n) > missed, rng.random(n) < 0.06
    )
    rows = pd.DataFrame({"prompt": np.arange(n), "model": system})
    rows["verdict"] = np.where(says_bad, "bad", "good")
    rows["truth"] = np.where(bad, "bad", "good")
    drawn = rng.choice(n, 300, replace=False)
    rows["label"] = rows["truth"].where(rows.index.isin(drawn))
    return rows


answers = pd.concat(
    [answer("A", 0.40, 0.40), answer("B", 0.35, 0.15)]
)
truth = (answers["truth"] == "bad").groupby(answers["model"]).mean()
answers = answers.drop(columns="truth")
answers.head()

# %%
# Counting verdicts
# -----------------
# Most teams report the share of bad verdicts. It says that A is better than B. The truth is the opposite, because the
# judge overlooks errors of A.

raw = (answers["verdict"] == "bad").groupby(answers["model"]).mean()
pd.DataFrame({"bad verdicts": raw, "truth": truth}).round(3)

# %%
# Verdicts and labels together
# ----------------------------
# ``judge`` estimates the judge's errors from the labels, for each system, and corrects the shares. Which rows
# have a label must be said: here they were drawn at random.

found = hq.judge(
    answers,
    judge="verdict",
    human="label",
    labels="random",
    by="model",
    pair="prompt",
)
shares = found.to_frame()
bad = shares[shares["class"] == "bad"].set_index("model")
bad[["raw", "estimate", "lower", "upper", "n_labels"]].round(3)

# %%
# The intervals contain the truth; the raw shares are far away.

figure, axes = plt.subplots(figsize=(6, 2.2), layout="constrained")
ends = [
    bad["estimate"] - bad["lower"],
    bad["upper"] - bad["estimate"],
]
axes.errorbar(
    bad["estimate"], bad.index, xerr=ends, fmt="o", capsize=4
)
axes.plot(bad["raw"], bad.index, "D", mfc="none", color="C3")
axes.plot(truth, truth.index, "k|", markersize=18)
axes.set(xlabel="share of bad answers", ylim=(-0.6, 1.6))
axes.legend(["the judge", "truth", "corrected"], loc="upper right")
plt.show()

# %%
# Which system is better?
# -----------------------
# The difference has an interval of its own. Both systems answered the same prompts, and ``pair="prompt"`` uses this.

found.comparisons.round(3)

# %%
# What the judge confuses
# -----------------------
# Of 100 answers with each verdict, so many are bad or good for people.

confusion = found.confusion.assign(
    share=100 * found.confusion["share"]
)
confusion.pivot_table(
    index=["model", "verdict"], columns="label", values="share"
).round(0)

# %%
# Which answers to label
# ----------------------
# On the command line, ``histnetq sample`` draws rows, hides the verdict and the system, and writes a file to fill in:
#
# .. code-block:: sh
#
#    histnetq sample answers.csv --judge verdict --by model --n 300 -o to_label.csv
#    histnetq judge answers.csv --judge verdict --labelled to_label.csv --labels random --by model -o report.html
#
# The report explains the result to readers who know no statistics. More is in `An imperfect judge and a few human
# labels <../judge.html>`_.
