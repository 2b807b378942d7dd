"""
From QuaPy: side by side
========================

At the end you can say in histnetq what you say in QuaPy, use quantifiers of either library in the other, and check that
both give the same numbers. You can then add what QuaPy does not have: learning from totals, intervals and trust.

What you need: some experience with QuaPy, and ``pip install quapy``.
"""

# %%
# Names
# -----
# .. list-table::
#    :header-rows: 1
#
#    * - QuaPy
#      - histnetq
#    * - ``data.LabelledCollection(X, y)``
#      - ``Bags.from_labels(X, y)``: one bag with labels
#    * - a protocol such as ``protocol.UPP(test)``, drawn anew on each call
#      - ``Bags`` that are drawn once: ``APP(bag_size).draw(test, n_bags)``
#    * - ``protocol.UPP``; ``protocol.APP``, a grid; ``protocol.NPP``
#      - ``APP``; no grid, draw more bags; ``NPP``
#    * - ``qp.environ["SAMPLE_SIZE"]``
#      - none: each bag knows its size
#    * - ``aggregative.EMQ(cls, calib="bcts")``, ``aggregative.KDEyML(cls)``, ``aggregative.PACC(cls)``
#      - ``EMQ(cls, calibration="bcts")``, ``KDEy(cls)``, ``PACC(cls)``
#    * - ``q.predict(X)``, of one sample
#      - ``q.predict(X)`` of one bag, ``q.predict(bags)`` of all at once
#    * - ``q.aggregate(posteriors)``
#      - ``q.predict_posteriors(posteriors)``
#    * - ``qp.evaluation.evaluate(q, protocol, "mae")``
#      - ``hq.evaluate(q, bags)["ae"].mean()``
#    * - ``qp.model_selection.GridSearchQ(q, grid, protocol)``
#      - ``hq.tune(q, grid, X, y, validation=bags)``
#    * - columns sorted by class
#      - columns in the order of ``q.classes_``
#
# Fit and predict
# ---------------
# The data are scikit-learn's breast cancer cells, benign and malignant. In QuaPy:

# sphinx_gallery_thumbnail_number = 1
import matplotlib.pyplot as plt
import numpy as np
import quapy as qp
from quapy.method.aggregative import EMQ, PACC, KDEyML
from quapy.protocol import UPP
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

X, y = load_breast_cancer(return_X_y=True)
X, X_test, y, y_test = train_test_split(
    X[:, :4], y, test_size=0.5, random_state=0, stratify=y
)
scale = StandardScaler().fit(X)
X, X_test = scale.transform(X), scale.transform(X_test)

qp.environ["SAMPLE_SIZE"] = 100
theirs = EMQ(LogisticRegression()).fit(X, y)
protocol = UPP(
    qp.data.LabelledCollection(X_test, y_test),
    sample_size=100,
    repeats=200,
    random_state=0,
)
print(qp.evaluation.evaluate(theirs, protocol, error_metric="mae"))

# %%
# In histnetq:

import histnetq as hq

plt.style.use("default")  # QuaPy makes all letters in pictures larger
ours = hq.EMQ(LogisticRegression(), random_state=0).fit(X, y)
bags = hq.APP(bag_size=100).draw(
    hq.Bags.from_labels(X_test, y_test), 200, random_state=0
)
print(hq.evaluate(ours, bags)["ae"].mean())

# %%
# These are other samples, so the numbers differ a little. Take the very samples of the protocol, and the estimates are
# the same. ``bags_from_quapy`` makes bags of a protocol or a collection, without copying a row. (QuaPy stops its
# iterations at steps of 0.0001, which leaves differences of 0.002; here we let it go on.)

same = hq.interop.bags_from_quapy(protocol)
of_theirs = np.array(
    [
        theirs.aggregate(theirs.classify(sample), epsilon=1e-12)
        for sample, _ in protocol()
    ]
)
of_ours = ours.predict(same)
print(f"largest difference: {np.abs(of_theirs - of_ours).max():.5f}")

figure, ax = plt.subplots(figsize=(4.4, 4.2), layout="constrained")
ax.set(
    xlabel="EMQ of QuaPy", ylabel="EMQ of histnetq", aspect="equal"
)
ax.set_title("Share of benign cells in 200 samples")
ax.plot([0, 1], [0, 1], color="black", linewidth=0.8)
ax.scatter(
    of_theirs[:, 1], of_ours[:, 1], s=14, alpha=0.6, color="#0072B2"
)

# %%
# Theirs in ours
# --------------
# ``evaluate`` and ``compare`` take quantifiers of both libraries. With ``from_quapy`` a quantifier of QuaPy also gets
# the rest: prediction of many bags, and intervals after ``calibrate``.

methods = {
    "EMQ, QuaPy": theirs,
    "EMQ, histnetq": ours,
    "PACC, QuaPy": PACC(LogisticRegression()).fit(X, y),
    "PACC, histnetq": hq.PACC(
        LogisticRegression(), random_state=0
    ).fit(X, y),
    "KDEy, QuaPy": KDEyML(LogisticRegression(), random_state=0).fit(
        X, y
    ),
    "KDEy, histnetq": hq.KDEy(
        LogisticRegression(), random_state=0
    ).fit(X, y),
}
print(hq.compare(methods, same))

# %%
# The lowest mean has a star, and ‡ marks methods that are not significantly worse. PACC and KDEy divide the training
# rows into folds at random, so the two libraries differ by chance there. A difference in the fourth digit may still be
# significant, as it is with EMQ here: the test asks whether a method is better in most samples, not by how much.
#
# Ours in theirs
# --------------
# ``to_quapy`` makes a quantifier that QuaPy takes for its own, in its evaluation and in ``GridSearchQ``.

inside = hq.interop.to_quapy(
    hq.PACC(LogisticRegression(), random_state=0)
)
search = qp.model_selection.GridSearchQ(
    inside,
    {"classifier__C": [0.001, 1.0]},
    protocol,
    error="mae",
    refit=False,
)
search.fit(X, y)
print(search.best_params_)

# %%
# Ours alone would be (``pip install 'histnetq[tune]'``):

found = hq.tune(
    hq.PACC(LogisticRegression(), random_state=0),
    {"classifier__C": [0.001, 1.0]},
    X,
    y,
    validation=same,
)
print(found.best_params)

# %%
# What comes on top
# -----------------
# **Intervals** for any quantifier, also for one of QuaPy. Half of the samples calibrate; the others show how often the
# intervals hold the truth.

wrapped = hq.interop.from_quapy(theirs).calibrate(same[:100])
intervals = wrapped.predict_interval(same[100:], coverage=0.9)
print(
    f"{intervals.contains(same[100:].prevalences).mean():.0%} of the intervals of 90 % hold the truth"
)

twelve = same[100:112]
ax = hq.plots.prevalences(
    wrapped.predict_interval(twelve),
    wrapped.classes_,
    truth=twelve.prevalences,
)

# %%
# **Trust**: a sample whose cells look otherwise is told, such as one from a microscope that magnifies too much.

print(
    wrapped.trust([X_test[:100], X_test[:100] + 1])["trust"].tolist()
)

# %%
# **Learning from totals**: the labels of rows are not needed if the proportions of bags are known.

train = hq.APP(bag_size=50).draw(
    hq.Bags.from_labels(X, y), 100, random_state=1
)
no_labels = hq.Bags(
    train.rows,
    train.index,
    train.offsets,
    prevalences=train.prevalences,
    classes=train.classes,
)
emnetq = hq.EMNetQ(
    training=hq.Training(epochs=10, patience=3), random_state=0
).fit(no_labels)
print(
    hq.compare(
        {"EMQ, from labels": ours, "EMNetQ, from totals": emnetq},
        same,
    )
)

# %%
# Where to go next
# ----------------
# - Which data need which method: :doc:`/methods`.
# - Learning from totals in full: :ref:`sphx_glr_auto_tutorials_plot_2_pollster.py`.
# - Networks, layers and losses of your own: :ref:`sphx_glr_auto_tutorials_plot_4_researcher.py`.
