"""
The researcher: the paper in short sections
===========================================

After this tutorial you can use the histogram layer in your own network, train with a custom loss, replace the layer by
a custom one, and compare methods with the paper's test. You will also know how to reproduce its tables.

The paper is *Quantification using permutation-invariant networks based on histograms* by Pérez-Mon, Moreo, del Coz and
González. This library is an independent implementation. You should know some PyTorch.
"""

# %%
# 1. The task
# -----------
# A **bag** is a set of rows. Its **prevalences** *p* are the shares of the classes among them. A quantifier estimates
# *p* from the rows. Its answer must not depend on the order of the rows, and bags may have any size.
#
# We use scikit-learn's handwritten digits. Half of the images are for training. From the second half we draw bags of
# 100, with prevalences drawn uniformly from all possible ones (the protocol ``APP``).

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
# The layer gets the rows of all bags in one tensor, and ``offsets`` with the start of each bag. It returns one
# histogram per feature and bag. A sigmoid first squashes the values to (0, 1). The positions and widths of the bins are
# learned.

torch.manual_seed(0)
layer = hq.nn.HardHistogram(n_features=1, n_bins=8)
rows = torch.randn(300, 1, requires_grad=True)
offsets = torch.tensor(
    [0, 100, 300]
)  # a bag of 100 rows and one of 200
histograms = layer(rows, offsets)
print(histograms.shape, histograms.sum(dim=1))

# %%
# A row falls into one bin, which is a step function without a useful slope. The paper's layer uses the gradient of a
# smooth approximation instead, so everything before it can learn. Four kinds of bins differ in this approximation:
# ``"hard"``, ``"soft"``, ``"rbf"`` and ``"sigmoid"``. The picture shows how much a row counts in the fourth of eight
# bins.

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
# 3. A bag is a mixture of histograms
# -----------------------------------
# If rows of class *c* have the histogram :math:`M_c`, then a bag with prevalences *p* has, on average, the histogram
# :math:`h = \sum_c p_c M_c`. So *h* determines *p*, if the histograms of the classes differ. The example is the ink in
# the middle of an image, for ones, for zeros, and for a bag with 30 ones in 100 images of both.

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
# ``HistNetQ()`` is built on this: its head unmixes the histograms, and the layers before it learn features whose
# histograms differ. ``HistNetQ(head=(512,))`` is the paper's network: hidden layers and a softmax, from random weights.
#
# 4. The Bag Mixer
# ----------------
# Bags of known prevalences are rare. The Mixer makes new ones: half of one bag and half of another, labelled with the
# mean of their prevalences. This label is approximate, because the halves are drawn at random, but it is a good
# approximation. Training uses some real bags and some mixed bags. With three classes we can see where they are.

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
# A network should minimise the error that you will be judged by. An error is a function of the true and the estimated
# prevalences. AE is the mean absolute error. RAE is the error relative to the true share, so rare classes dominate it.
# You can use the names from ``histnetq.metrics``, or any function. In this example the digit 0 counts five times.
#
# To keep this page quick to build, its networks train for seconds; see ``few_epochs``.


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
    ("loss: AE", "custom loss"),
    strict=True,
):
    hq.plots.training(network.history_, ax)
    ax.set_title(title)

# %%
# 6. A custom layer
# -----------------
# A **pooling** turns the rows of each bag into one vector; a histogram is one example. To write your own, set the width
# of the vector and write the method ``pool``. Rows come flat: ``rows[index]`` has the rows of all bags in order, and
# ``weights`` has their weights, or is None. This layer computes the mean and the standard deviation of each feature,
# and uses the existing layer ``Mean`` for the sums.

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
# A quantifier with this layer is a subclass that builds the layer. It inherits everything else: training, prediction,
# intervals, trust, comparison. ``hq.load("directory", estimator=MomentsQ)`` reads a saved model. (To add up parts of a
# bag, as in :ref:`sphx_glr_auto_tutorials_plot_6_big_data.py`, derive the layer from ``MergeablePooling``.)


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
# As in the paper's tables, we report the mean error over all test bags, and Wilcoxon's signed-rank test against the
# best method. ‡ marks methods that are *not* significantly worse, † marks methods with a p-value from 0.001 to 0.05.

emq = hq.EMQ(rescaling="bcts", random_state=0).fit(images, labels)
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
# (``to_latex()`` returns the same table for a paper.) The networks would need hundreds of epochs to reach their full
# accuracy, so do not judge them by this table; the full results are in :doc:`/results`. The picture shows the same
# errors by shift, the distance between the prevalences of a bag and the training prevalences:

hq.plots.error_by_shift(comparison, bins=6)

# %%
# 8. Reproduce a table
# --------------------
# Every table and figure of the paper has a command. In a clone of the repository:
#
# .. code-block:: sh
#
#     make reproduce RUN="toy"                                      # section 4, without data to download
#     make reproduce RUN="lequa-t1a --data DIRECTORY --budget quick --methods EMQ,HistNetQ-hard --seeds 1"
#     make reproduce RUN="lequa-t1a --data DIRECTORY --budget full" # all methods, as in the tables
#
# Finished runs are stored in ``runs/`` and never repeated, and a stopped run continues from its last checkpoint.
#
# Next steps
# ----------
# - Training stages of ``HistNetQ``, and the contribution of each part: :doc:`/histnetq`.
# - Maximum likelihood as a layer: :doc:`/emnetq`.
# - All results next to the paper's results: :doc:`/results`.
# - Training on several processes: :doc:`/training-on-many-processes`.
