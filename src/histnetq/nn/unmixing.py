"""A head that unmixes: it expresses the histograms of a bag as a mixture of the class histograms.

A histogram layer returns the histograms h of each bag, one per feature. If rows of class c have the histograms ``M_c``,
the templates of the class, a bag with prevalences p has the histograms ``h = Σ_c p_c M_c`` on average. If the features
are treated as independent, the most likely prevalences maximise

    n Σ_f v_f Σ_b h_fb log Σ_c p_c M_cfb + a Σ_c log p_c

where n is the size of a usual bag, v are the weights of the features, which sum to one, and a is the pseudo-count of
each class. This is the problem of `histnetq.nn.likelihood` with bins instead of rows, so it is solved in the same way.
Gradients reach the templates and the histograms, so that an encoder can be trained through them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from histnetq.nn.encoders import MLP
from histnetq.nn.histograms import Cumulative
from histnetq.nn.likelihood import maximise, shrink

_PRIOR = 0.01  # pseudo-count of each class
_FIRST_THRESHOLD = -0.9  # exp(−9) ≈ (a hundredth)²
_PER_LOG = 10.0  # log prevalences are divided by this before they enter the factor
_LEAST = 1e-9  # added to prevalences before the logarithm
_SPREADS, _LEAST_SPREAD = 3.0, 1e-3  # inputs of the factor are divided by 3 standard deviations of at least this
_LEAST_USUAL = 1e-6  # smallest usual prevalence of a class
_TILT = 2.0  # how much the templates of the classes differ before training


class LogOdds(nn.Module):
    """A layer that maps class scores to the log-odds of each class against all other classes, shifted and scaled.

    Scores are log-likelihoods up to a constant per row. With two classes, it returns the log-odds of the second only.

    Parameters
    ----------
    n_classes : int
        Number of classes.

    Attributes
    ----------
    n_features : int
        Number of log-odds: 1 for two classes, else one per class.

    Examples
    --------
    >>> LogOdds(3)(torch.tensor([[0.0, 0.0, 1.0]]))
    tensor([[-1.3133, -1.3133,  0.3069]])
    """

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.n_features = 1 if n_classes == 2 else n_classes
        self.register_buffer("center", torch.zeros(self.n_features))
        self.register_buffer("scale", torch.ones(self.n_features))

    def forward(self, scores: Tensor) -> Tensor:
        """Compute the log-odds.

        Parameters
        ----------
        scores : Tensor of shape (n_rows, n_classes)
            Scores of the classes.

        Returns
        -------
        Tensor of shape (n_rows, n_features)
            Log-odds minus their centre, divided by their scale.
        """
        if self.n_features == 1 and scores.shape[1] == 2:
            odds = scores[:, 1:] - scores[:, :1]
        else:
            shares = scores.log_softmax(1)
            # Two forms of log(1 − exp(x)), which keep the digits of small and of large shares.
            near, far = shares.clamp(-0.5, -1e-7), shares.clamp(max=-0.5)
            others = torch.where(shares > -0.5, (-torch.expm1(near)).log(), (-far.exp()).log1p())
            odds = shares - others
        return (odds - self.get_buffer("center")) / self.get_buffer("scale")

    def extra_repr(self) -> str:
        """Describe the layer's parameters.

        Returns
        -------
        str
            Text between the parentheses when the layer is printed.
        """
        return f"n_features={self.n_features}"


class Unmixing(nn.Module):
    """A head that maps histograms of bags to the logarithms of their most likely prevalences, times a learned factor.

    Small prevalences are shrunk as in `ShrunkLikelihood`. An MLP computes the factor of each class, which starts at 1.

    Parameters
    ----------
    n_features : int
        Number of features, that is, of histograms of a bag.
    n_bins : int
        Number of bins of each histogram.
    n_classes : int
        Number of classes.
    size : float, default 100
        Number of rows of a usual bag, which weights the histograms against the pseudo-counts.
    hidden : sequence of int, default (128,)
        Hidden layers of the factor; without any, there is no factor.

    Examples
    --------
    >>> head = Unmixing(n_features=1, n_bins=2, n_classes=2, hidden=())
    >>> head.set_templates(torch.tensor([[[0.9, 0.2], [0.1, 0.8]]]))
    >>> head(torch.tensor([[0.55, 0.45]])).exp().detach()
    tensor([[0.5000, 0.5000]])
    """

    def __init__(
        self, n_features: int, n_bins: int, n_classes: int, size: float = 100.0, hidden: tuple[int, ...] = (128,)
    ) -> None:
        super().__init__()
        self.n_features, self.n_bins, self.n_classes = n_features, n_bins, n_classes
        # The first templates say that feature c is high for class c, and a random encoder then learns such features.
        ramp = torch.linspace(-_TILT / 2, _TILT / 2, n_bins)
        own = torch.eye(n_classes)[-n_features:] if n_features <= n_classes else torch.rand(n_features, n_classes)
        self.templates = nn.Parameter(ramp[None, :, None] * (2 * own[:, None, :] - 1))
        self.feature_weights = nn.Parameter(torch.zeros(n_features))
        self.threshold = nn.Parameter(torch.tensor(_FIRST_THRESHOLD))
        self.register_buffer("size", torch.tensor(float(size)))
        self.factor = None
        if hidden:
            self.cumulative = Cumulative(n_bins)
            self.register_buffer("mean", torch.zeros(n_features * n_bins))
            self.register_buffer("spread", torch.ones(n_features * n_bins))
            self.factor = MLP(n_features * n_bins + n_classes, (*hidden, n_classes))
            for parameter in self.factor[-1].parameters():
                nn.init.zeros_(parameter)

    @torch.no_grad()
    def set_templates(self, templates: Tensor) -> None:
        """Set the histograms of the classes.

        Parameters
        ----------
        templates : Tensor of shape (n_features, n_bins, n_classes)
            Positive histograms; the bins of each feature and class sum to one.

        Examples
        --------
        >>> head = Unmixing(1, 2, 2)
        >>> head.set_templates(torch.full((1, 2, 2), 0.5))
        """
        self.templates.copy_(templates.log())

    @torch.no_grad()
    def set_usual(self, histograms: Tensor, size: float) -> None:
        """Set the usual size of bags and the usual histograms, which standardise the inputs of the factor.

        Parameters
        ----------
        histograms : Tensor of shape (n_bags, n_features * n_bins)
            Histograms of usual bags.
        size : float
            Number of rows of a usual bag.

        Examples
        --------
        >>> head = Unmixing(1, 2, 2)
        >>> head.set_usual(torch.tensor([[0.5, 0.5], [0.4, 0.6]]), 200.0)
        """
        self.get_buffer("size").fill_(size)
        if self.factor is not None:
            sums = self.cumulative(histograms)
            self.get_buffer("mean").copy_(sums.mean(0))
            # An input that hardly varies is noise and must not be scaled up.
            self.get_buffer("spread").copy_(_SPREADS * sums.std(0).clamp(min=_LEAST_SPREAD))

    @torch.no_grad()
    def restart_factor(self, usual: Tensor) -> None:
        """Give the hidden layers of the factor random weights, and its last layer usual prevalences.

        Parameters
        ----------
        usual : Tensor of shape (n_classes,)
            Prevalences of a usual bag.

        Examples
        --------
        >>> head = Unmixing(1, 2, 2)
        >>> head.restart_factor(torch.tensor([0.2, 0.8]))
        >>> head(torch.tensor([[0.5, 0.5]])).softmax(1).detach().round(decimals=2)
        tensor([[0.2000, 0.8000]])
        """
        if self.factor is None:
            return
        layers = [layer for layer in self.factor.modules() if isinstance(layer, nn.Linear)]
        for layer in layers:
            layer.reset_parameters()
        nn.init.zeros_(layers[-1].weight)
        layers[-1].bias.copy_(usual.clamp(min=_LEAST_USUAL).log())

    def forward(self, histograms: Tensor) -> Tensor:
        """Unmix histograms.

        Parameters
        ----------
        histograms : Tensor of shape (n_bags, n_features * n_bins)
            Densities, the bins of a feature side by side.

        Returns
        -------
        Tensor of shape (n_bags, n_classes)
            Logarithms of prevalences.
        """
        n_bags, n_cells = histograms.shape
        size = self.get_buffer("size")
        shares = (self.feature_weights.softmax(0) * size).repeat_interleave(self.n_bins)
        offsets = torch.arange(n_bags + 1, device=histograms.device) * n_cells
        index = torch.arange(n_cells, device=histograms.device).repeat(n_bags)
        likelihoods = self.templates.log_softmax(1).flatten(0, 1)
        p = maximise(likelihoods, offsets, (histograms * shares).flatten(), index, _PRIOR)
        logs = (shrink(p, self.threshold, size) + _LEAST).log().log_softmax(1)
        if self.factor is not None:
            sums = (self.cumulative(histograms) - self.get_buffer("mean")) / self.get_buffer("spread")
            logs = logs + self.factor(torch.cat([sums, logs / _PER_LOG], 1))
        return logs

    def extra_repr(self) -> str:
        """Describe the layer's parameters.

        Returns
        -------
        str
            Text between the parentheses when the layer is printed.
        """
        return f"n_features={self.n_features}, n_bins={self.n_bins}, n_classes={self.n_classes}"
