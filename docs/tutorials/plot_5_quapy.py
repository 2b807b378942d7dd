"""
From QuaPy: side by side
========================

After this tutorial you can translate QuaPy code to histnetq, use quantifiers of both libraries together, and check that
both give the same numbers. You can then add features that QuaPy does not have: learning from totals, intervals and
trust.

You need some experience with QuaPy, and ``pip install quapy``.
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
#    * - a protocol such as ``protocol.UPP(test)``, which draws again on each call
#      - ``Bags``, drawn once: ``APP(bag_size).draw(test, n_bags)``
#    * - ``protocol.UPP``; ``protocol.APP``, a grid; ``protocol.NPP``
#      - ``APP``; no grid, draw more bags; ``NPP``
#    * - ``qp.environ["SAMPLE_SIZE"]``
#      - none: each bag knows its size
#    * - ``aggregative.EMQ(cls, calib="bcts")``, ``aggregative.KDEyML(cls)``, ``aggregative.PACC(cls)``
#      - ``EMQ(cls, rescaling="bcts")``, ``KDEy(cls)``, ``PACC(cls)``
#    * - ``q.predict(X)`` for one sample
#      - ``q.predict(X)`` for one bag, ``q.predict(bags)`` for all at once
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

plt.style.use("default")  # QuaPy enlarges all text in plots
ours = hq.EMQ(LogisticRegression(), random_state=0).fit(X, y)
bags = hq.APP(bag_size=100).draw(
    hq.Bags.from_labels(X_test, y_test), 200, random_state=0
)
print(hq.evaluate(ours, bags)["ae"].mean())

# %%
# These samples are different, so the numbers differ a little. With the samples of the protocol, the estimates are the
# same. ``bags_from_quapy`` makes bags from a protocol or a collection, without copying a row. (QuaPy stops its
# iterations at steps of 0.0001, which leaves differences of 0.002; here we let it continue.)

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
# QuaPy's quantifiers in histnetq
# -------------------------------
# ``evaluate`` and ``compare`` accept quantifiers of both libraries. ``from_quapy`` adds everything else to a quantifier
# of QuaPy: prediction of many bags, and intervals after ``calibrate``.

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
# rows into random folds, so the two libraries differ by chance there. A difference in the fourth digit may still be
# significant, as with EMQ here: the test asks whether a method is better in most samples, not by how much.
#
# histnetq's quantifiers in QuaPy
# -------------------------------
# ``to_quapy`` makes a quantifier that works in QuaPy's evaluation and in ``GridSearchQ``.

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
# In histnetq alone it is (``pip install 'histnetq[tune]'``):

found = hq.tune(
    hq.PACC(LogisticRegression(), random_state=0),
    {"classifier__C": [0.001, 1.0]},
    X,
    y,
    validation=same,
)
print(found.best_params)

# %%
# Additional features
# -------------------
# **Intervals** work for any quantifier, including QuaPy's. Half of the samples calibrate the intervals; the second half
# shows how often the intervals contain the truth.

wrapped = hq.interop.from_quapy(theirs).calibrate(same[:100])
intervals = wrapped.predict_interval(same[100:], coverage=0.9)
print(
    f"{intervals.contains(same[100:].prevalences).mean():.0%} of the 90 % intervals contain the truth"
)

twelve = same[100:112]
ax = hq.plots.prevalences(
    wrapped.predict_interval(twelve),
    wrapped.classes_,
    truth=twelve.prevalences,
)

# %%
# **Trust** flags samples whose cells look different, for example from a microscope that magnifies too much.

print(
    wrapped.trust([X_test[:100], X_test[:100] + 1])["trust"].tolist()
)

# %%
# **Learning from totals** needs no labels of rows, only the proportions of bags.

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
# Next steps
# ----------
# - Choosing a method for your data: :doc:`/methods`.
# - Learning from totals in detail: :ref:`sphx_glr_auto_tutorials_plot_2_pollster.py`.
# - Custom networks, layers and losses: :ref:`sphx_glr_auto_tutorials_plot_4_researcher.py`.
