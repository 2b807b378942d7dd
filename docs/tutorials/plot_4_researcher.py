"""
The researcher: the paper in short sections
===========================================

At the end you can use the histogram layer in a network of your own, train with a loss of your own, replace the layer by
one that you have written, and compare methods with the paper's test. You will also know how to repeat its tables.

The paper is *Quantification using permutation-invariant networks based on histograms* by Pérez-Mon, Moreo, del Coz and
González. This library is an independent implementation. You should know some PyTorch.
"""

# %%
# 1. The task
# -----------
# A **bag** is a set of rows. Its **prevalences** *p* are the shares of the classes among them. A quantifier estimates
# *p* from the rows. Its answer must not depend on the order of the rows, and bags may have any size.
#
# We use scikit-learn's handwritten digits: half of the images to learn from, and bags of 100 drawn from the other half,
# with prevalences drawn uniformly from all possible ones (the protocol ``APP``).

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
import torch

import histnetq as hq

data = hq.datasets.digits(n_bags=300)
images, labels = data.train.rows, data.train.labels
print(data.train)
print(data.test)

# %%
# 2. Histograms as a layer
# ------------------------
# The layer gets the rows of all bags in one tensor, and ``offsets``, which say where each bag begins. It gives one
# histogram per feature and bag. Values are first squashed to (0, 1) by a sigmoid. Bins have learned places and widths.

torch.manual_seed(0)
layer = hq.nn.HardHistogram(n_features=1, n_bins=8)
rows = torch.randn(300, 1, requires_grad=True)
offsets = torch.tensor(
    [0, 100, 300]
)  # a bag of 100 rows and one of 200
histograms = layer(rows, offsets)
print(histograms.shape, histograms.sum(dim=1))

# %%
# A row falls into one bin, which is a step and has no useful slope. The paper's layer gives a gradient all the same,
# that of a smooth stand-in, so that everything before it can learn. Four kinds of bins differ in the stand-in:
# ``"hard"``, ``"soft"``, ``"rbf"`` and ``"sigmoid"``. Here is how much a row counts in the fourth of eight bins.

grid = torch.linspace(0, 1, 401)[:, None]
one_row_per_bag = torch.arange(402)
figure, ax = plt.subplots(figsize=(6.4, 3), layout="constrained")
kinds = [
    hq.nn.HardHistogram,
    hq.nn.SoftHistogram,
    hq.nn.RBFHistogram,
    hq.nn.SigmoidHistogram,
]
for kind, color in zip(
    kinds, ["black", "#0072B2", "#D55E00", "#009E73"], strict=True
):
    with torch.no_grad():
        counts = kind(1, n_bins=8, squash=None)(
            grid, one_row_per_bag
        )[:, 3]
    ax.plot(grid, counts, label=kind.__name__, color=color)
ax.set(xlabel="value of the row", ylabel="how much it counts")
ax.legend(frameon=False, fontsize=8)

# %%
# 3. Why histograms: a bag is a mixture
# -------------------------------------
# If rows of class *c* have the histogram :math:`M_c`, then a bag with prevalences *p* has, on average, the histogram
# :math:`h = \sum_c p_c M_c`. So *h* tells *p*, if the histograms of the classes differ. Here: the ink in the middle of
# an image, for ones, for zeros, and for a bag with 30 ones in 100 images of both.

ink = torch.tensor(
    images.reshape(-1, 8, 8)[:, 2:6, 3:5].mean(axis=(1, 2)) / 16,
    dtype=torch.float32,
)[:, None]
rng = np.random.default_rng(0)
ones, zeros = (np.flatnonzero(labels == digit) for digit in (1, 0))
bag = np.concatenate([rng.choice(ones, 30), rng.choice(zeros, 70)])
counts = hq.nn.HardHistogram(1, n_bins=8, squash=None)
with torch.no_grad():
    of_ones, of_zeros, of_bag = (
        counts(ink[rows], torch.tensor([0, len(rows)]))[0]
        for rows in (ones, zeros, bag)
    )

figure, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
middles = (np.arange(8) + 0.5) / 8
ax.bar(
    middles,
    of_bag,
    width=0.11,
    color="#8a939c55",
    edgecolor="#8a939c",
    label="the bag",
)
ax.plot(middles, of_zeros, "o--", color="#0072B2", label="zeros")
ax.plot(middles, of_ones, "s--", color="#D55E00", label="ones")
ax.plot(
    middles,
    0.3 * of_ones + 0.7 * of_zeros,
    "k-",
    label="0.3 · ones + 0.7 · zeros",
)
ax.set(xlabel="ink in the middle", ylabel="share of the images")
ax.legend(frameon=False)

# %%
# ``HistNetQ()`` is built on this: its head knows that it has to unmix, and the layers before it learn features whose
# histograms differ. ``HistNetQ(head=(512,))`` is the paper's network: hidden layers and a softmax, from random weights.
#
# 4. The Bag Mixer
# ----------------
# Bags of known prevalences are few. The Mixer makes new ones: half of one bag and half of another, labelled with the
# mean of their prevalences. That is a guess, as the halves are drawn at random, but a good one. Training draws some
# bags as they are and mixes the others. For three classes one sees where they come from.

three = hq.Bags.from_labels(images[labels < 3], labels[labels < 3])
few = hq.Dirichlet(0.4, bag_size=100).draw(three, 12, random_state=1)
mixed = hq.Mixer(real_proportion=0).draw(few, 200, random_state=0)


def on_triangle(p):
    return p[:, 1] + p[:, 2] / 2, p[:, 2] * np.sqrt(3) / 2


figure, ax = plt.subplots(figsize=(4.6, 4))
ax.plot(
    [0, 1, 0.5, 0],
    [0, 0, np.sqrt(3) / 2, 0],
    color="black",
    linewidth=0.8,
)
ax.scatter(
    *on_triangle(mixed.prevalences),
    s=8,
    color="#56B4E9",
    label="200 mixed bags",
)
ax.scatter(
    *on_triangle(few.prevalences),
    s=45,
    color="#D55E00",
    label="12 bags",
)
ax.set_axis_off()
ax.set_aspect("equal")
ax.legend(frameon=False, loc="upper left")

# %%
# 5. Losses
# ---------
# A network is trained for the error that you will be judged by. Each is a function of the true and the estimated
# prevalences. AE is the mean absolute error, RAE the error relative to the true share, which rare classes dominate.
# Names from ``histnetq.metrics`` work, and so does any function of your own. Here: the digit 0 counts five times.
#
# Networks on this page train for seconds, to keep it quick to build: ``few_epochs`` says so.


def zeros_count(p_true, p_pred):
    weights = torch.ones(10)
    weights[0] = 5.0
    return ((p_true - p_pred).abs() * weights).sum(1)


few_epochs = hq.Training(
    epochs=25, lr=3e-3, patience=3, validation_bags=100
)
paper = hq.HistNetQ(
    n_bins=16,
    encoder=(64,),
    head=(128,),
    sampler=hq.APP(100),
    training=few_epochs,
    random_state=0,
)
paper.fit(images, labels)
own_loss = hq.HistNetQ(
    n_bins=16,
    encoder=(64,),
    head=(128,),
    sampler=hq.APP(100),
    training=few_epochs,
    random_state=0,
    loss=zeros_count,
).fit(images, labels)

figure, axes = plt.subplots(
    1, 2, figsize=(8, 3), layout="constrained"
)
for ax, network, title in zip(
    axes,
    (paper, own_loss),
    ("loss: AE", "loss of our own"),
    strict=True,
):
    hq.plots.training(network.history_, ax)
    ax.set_title(title)

# %%
# 6. A layer of your own
# ----------------------
# A **pooling** turns the rows of each bag into one vector; a histogram is one. To write your own, say how wide the
# vector is, and give the method ``pool``. Rows come flat: ``rows[index]`` are those of all bags, one after the other,
# and ``weights`` are theirs, or None. This layer has the mean and the standard deviation of each feature, and leaves
# the adding up to a layer that is there, ``Mean``.

from histnetq.nn import Mean, Pooling


class Moments(Pooling):
    """Mean and standard deviation of each feature."""

    def __init__(self, n_features):
        super().__init__(n_features, width=2 * n_features)
        self.mean = Mean(n_features)

    def pool(self, rows, index, offsets, weights):
        mean = self.mean.pool(rows, index, offsets, weights)
        mean_of_squares = self.mean.pool(
            rows**2, index, offsets, weights
        )
        return torch.cat(
            [
                mean,
                (mean_of_squares - mean**2).clamp_min(1e-6).sqrt(),
            ],
            dim=1,
        )


# %%
# A quantifier around it is a subclass that makes the layer. The rest is there: training, prediction, intervals, trust,
# comparison. A model that was saved is read by ``hq.load("directory", estimator=MomentsQ)``. (If parts of a bag are to
# be added up, as in :ref:`sphx_glr_auto_tutorials_plot_6_big_data.py`, let the layer be a ``MergeablePooling``.)


class MomentsQ(hq.DeepSets):
    """A network on means and standard deviations."""

    def _pooling(self, n_features):
        return Moments(n_features)


own = MomentsQ(
    encoder=(64,),
    head=(128,),
    sampler=hq.APP(100),
    training=few_epochs,
    random_state=0,
)
own = own.fit(images, labels)

# %%
# 7. Compare
# ----------
# As in the paper's tables: the mean error over all test bags, and Wilcoxon's signed-rank test against the best method.
# ‡ marks methods that are *not* significantly worse, † those with a p-value from 0.001 to 0.05.

emq = hq.EMQ(calibration="bcts", random_state=0).fit(images, labels)
fewer = hq.Training(
    epochs=10, bags_per_epoch=200, patience=3, validation_bags=100
)
unmixing = hq.HistNetQ(
    encoder=(64,),
    n_bins=8,
    sampler=hq.APP(100),
    training=fewer,
    random_state=0,
)
unmixing.fit(images, labels)
methods = {
    "EMQ": emq,
    "HistNetQ": unmixing,
    "HistNetQ, paper's head": paper,
    "MomentsQ": own,
}
comparison = hq.compare(methods, data.test)
print(comparison)

# %%
# (``to_latex()`` gives the same for a paper.) The networks would need hundreds of epochs to show what they can do, so
# do not judge them by this table; the real ones are in :doc:`/results`. The picture has the same errors by shift, the
# distance between the prevalences of a bag and those of training:

hq.plots.error_by_shift(comparison, bins=6)

# %%
# 8. Repeat a table
# -----------------
# Every table and figure of the paper has a command. In a clone of the repository:
#
# .. code-block:: sh
#
#     make reproduce RUN="toy"                                      # section 4, without data to download
#     make reproduce RUN="lequa-t1a --data DIRECTORY --budget quick --methods EMQ,HistNetQ-hard --seeds 1"
#     make reproduce RUN="lequa-t1a --data DIRECTORY --budget full" # all methods, as the tables have them
#
# Runs that are finished are kept in ``runs/`` and never repeated, so that a run that was stopped goes on where it was.
#
# Where to go next
# ----------------
# - How ``HistNetQ`` learns today, and what each part is worth: :doc:`/histnetq`.
# - Maximum likelihood as a layer: :doc:`/emnetq`.
# - All results beside the paper's: :doc:`/results`.
# - Training on several processes: :doc:`/training-on-many-processes`.
