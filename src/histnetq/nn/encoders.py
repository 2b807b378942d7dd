"""Encoders: ordinary modules that map each row to a feature vector."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

_LEAST_SCORE = 1e-4
_LEVELS = 1 << 16  # random numbers have 16 bits; four are drawn at once


class Dropout(nn.Dropout):
    """Dropout that takes a quarter of the time of `torch.nn.Dropout` on the CPU.

    It draws 64 random bits for four values instead of one. The probability is rounded to a multiple of 2⁻¹⁶.

    Examples
    --------
    >>> Dropout(0.5).eval()(torch.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop values in training; return the input otherwise.

        Parameters
        ----------
        input : Tensor of any shape
            Values.

        Returns
        -------
        Tensor of the same shape
            Values, with the dropped ones set to zero.
        """
        dropped, n = round(self.p * _LEVELS), input.numel()
        if not self.training or input.device.type != "cpu" or not 0 < dropped < _LEVELS:
            return super().forward(input)
        drawn = torch.empty(-(-n // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        kept = drawn[:n].view(input.shape) >= dropped - _LEVELS // 2
        return input * kept.to(input.dtype).mul_(_LEVELS / (_LEVELS - dropped))


class MLP(nn.Sequential):
    """Fully connected layers with LeakyReLU and dropout between them, but not after the last layer.

    Outputs are never dropped: a dropped feature would become ``sigmoid(0) = ½``, which is a bin edge.

    Parameters
    ----------
    n_inputs : int
        Number of values in one row; rows of any shape are flattened.
    sizes : sequence of int
        Number of outputs of each layer; the last is the number of features.
    dropout : float, default 0
        Fraction of the values between layers that is dropped in training.
    input_dropout : float, default 0
        Fraction of the inputs that is dropped in training, so that rows with many weak features are not memorised.

    Examples
    --------
    >>> MLP(4, (8, 3))(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, n_inputs: int, sizes: Sequence[int], dropout: float = 0.0, input_dropout: float = 0.0) -> None:
        layers: list[nn.Module] = [nn.Flatten(), Dropout(input_dropout)] if input_dropout else [nn.Flatten()]
        for i, (before, after) in enumerate(zip([n_inputs, *sizes[:-1]], sizes, strict=True)):
            if i > 0:
                layers += [nn.LeakyReLU(), Dropout(dropout)] if dropout else [nn.LeakyReLU()]
            layers.append(nn.Linear(before, after))
        super().__init__(*layers)


class CNN(nn.Module):
    """Two convolutions with pooling and a dense layer, for images ``(height, width)`` or ``(channels, height, width)``.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of one image.
    n_features : int, default 256
        Number of outputs of the dense layer.
    channels : (int, int), default (16, 32)
        Filters of the two 5 × 5 convolutions.
    dropout : float, default 0
        Fraction of the values before the dense layer that is dropped in training.

    Examples
    --------
    >>> CNN((28, 28))(torch.zeros(2, 28, 28)).shape
    torch.Size([2, 256])
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        n_features: int = 256,
        channels: tuple[int, int] = (16, 32),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if len(input_shape) not in (2, 3) or min(input_shape[-2:]) < 4:
            raise ValueError(
                f"input_shape: expected images (height, width) or (channels, height, width) of at least 4 × 4, "
                f"got {tuple(input_shape)}; move channels first with np.moveaxis(X, -1, 1), or use an MLP."
            )
        n_channels, height, width = (1, *input_shape)[-3:]
        self.input_shape = (n_channels, height, width)
        self.convolutions = nn.Sequential(
            nn.Conv2d(n_channels, channels[0], 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels[0], channels[1], 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(channels[1] * (height // 4) * (width // 4), n_features)

    def forward(self, rows: Tensor) -> Tensor:
        """Encode images.

        Parameters
        ----------
        rows : Tensor of shape ``(n_rows, *input_shape)``
            One image per row.

        Returns
        -------
        Tensor of shape (n_rows, n_features)
            Features of each image.
        """
        return self.dense(self.dropout(self.convolutions(rows.reshape(len(rows), *self.input_shape))))


class Standardize(nn.Module):
    """Subtract a fixed mean and divide by a fixed scale, per feature or per channel of an image.

    The mean is stored in two parts, so that rows in double precision keep their digits if the mean is far from 0.

    Parameters
    ----------
    mean, scale : Tensor
        Numbers that broadcast against one row.

    Examples
    --------
    >>> Standardize(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))(torch.tensor([[3.0, 6.0]])).tolist()
    [[2.0, 1.0]]
    """

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.float())
        self.register_buffer("rest", (mean.double() - mean.float().double()).float())
        self.register_buffer("scale", scale.float())

    def forward(self, rows: Tensor) -> Tensor:
        """Standardise rows.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, ...)
            Numbers in any precision.

        Returns
        -------
        Tensor of shape (n_rows, ...)
            Standardised rows of float32.
        """
        mean = self.get_buffer("mean")
        return ((rows - mean - self.get_buffer("rest")) / self.get_buffer("scale")).to(mean.dtype)


class StandardizeScores(Standardize):
    """Convert class probabilities to standardised log-odds.

    The log-odds of a class are the logarithm of its probability minus the mean of the logarithms of all classes.
    Probabilities below 1e-4 are raised to 1e-4, so that scores rounded to 0 are not outliers.

    Parameters
    ----------
    mean, scale : Tensor
        Mean and scale of the log-odds of each class.

    Examples
    --------
    >>> StandardizeScores(torch.zeros(1), torch.ones(1))(torch.tensor([[0.5, 0.5], [0.1, 0.9]])).numpy().round(2)
    array([[ 0. ,  0. ],
           [-1.1,  1.1]], dtype=float32)
    """

    def forward(self, rows: Tensor) -> Tensor:
        """Standardise the log-odds of rows.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, n_classes)
            Probabilities in any precision.

        Returns
        -------
        Tensor of shape (n_rows, n_classes)
            Standardised log-odds of float32.
        """
        return super().forward(log_odds_of(rows))


def log_odds_of(scores: Tensor) -> Tensor:
    """Return the logarithms of probabilities minus their mean over the classes: (n_rows, n_classes)."""
    logarithms = scores.clamp(min=_LEAST_SCORE).log()
    return logarithms - logarithms.mean(1, keepdim=True)


def n_outputs(encoder: nn.Module, input_shape: Sequence[int]) -> int:
    """Return the number of features of an encoder for rows of this shape, by encoding one row of zeros."""
    parameter = next(encoder.parameters(), torch.zeros(0))
    training = encoder.training
    encoder.eval()
    try:
        with torch.no_grad():
            out = encoder(torch.zeros((1, *input_shape), dtype=parameter.dtype, device=parameter.device))
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"encoder: cannot take rows of shape {tuple(input_shape)} ({reason}); fit it to the features."
        ) from None
    finally:
        encoder.train(training)
    if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != 1:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(
            f"encoder: expected it to map rows (1, {', '.join(map(str, input_shape))}) to features (1, n), got {got}."
        )
    if not out.is_meta and not math.isfinite(float(out.sum())):
        raise ValueError("encoder: gives NaN or infinity for a row of zeros; check its layers.")
    return int(out.shape[1])
