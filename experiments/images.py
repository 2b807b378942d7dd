"""A classifier of Fashion-MNIST on the encoder that all methods share: two convolutions and a dense layer.

Its posteriors are computed once and kept on disk, with the weights of the encoder.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.runs import save_arrays
from histnetq.datasets import Examples
from histnetq.nn import CNN

__all__ = ["encoded_images", "make_encoder", "trained_encoder"]

_EPOCHS, _BATCH, _LR, _DROPOUT = 14, 128, 3e-3, 0.3


class _Pixels(nn.Module):
    """0 … 255 → −1 … 1."""

    def forward(self, images: Tensor) -> Tensor:
        return images.float() / 127.5 - 1


def make_encoder(shape: tuple[int, ...], dropout: float = 0.0) -> nn.Module:
    """The encoder that all methods share: images of bytes → 256 features."""
    return nn.Sequential(_Pixels(), CNN(shape, n_features=256, dropout=dropout))


class _Classifier(nn.Module):
    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.encoder = make_encoder((28, 28), _DROPOUT)
        self.head = nn.Sequential(nn.LeakyReLU(), nn.Dropout(_DROPOUT), nn.Linear(256, n_classes))

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.encoder(images))
        return scores


def encoded_images(data: Examples, path: Path, say: Callable[[str], Any], seed: int = 0) -> dict[str, NDArray]:
    """Posteriors by row of the pool, ``{train,test,mirrored}_posteriors``, and the weights of the ``encoder/``.

    Trained by cross-entropy on the training part alone; the weights of the last epoch are kept. The first weights and
    the order of the images come from the `seed`.
    """
    if not path.exists():
        model = _train(data, say, seed)
        images = {"train": data.train.rows, "test": data.test.rows, "mirrored": data.train.rows[..., ::-1]}
        arrays = {f"{name}_posteriors": _classify(model, pool) for name, pool in images.items()}
        arrays |= {f"encoder/{name}": value.numpy() for name, value in model.encoder.state_dict().items()}
        save_arrays(path, **arrays)
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def trained_encoder(encoded: dict[str, NDArray]) -> nn.Module:
    """The classifier's encoder, from what `encoded_images` gave."""
    encoder = make_encoder((28, 28))
    found = {name.removeprefix("encoder/"): value for name, value in encoded.items() if name.startswith("encoder/")}
    encoder.load_state_dict({name: torch.from_numpy(value) for name, value in found.items()})
    return encoder


def _train(data: Examples, say: Callable[[str], Any], seed: int) -> _Classifier:
    assert data.train.labels is not None
    assert data.validation is not None
    images, labels = torch.tensor(data.train.rows), torch.from_numpy(data.train.labels)
    rows, held = torch.from_numpy(data.train.index), torch.from_numpy(data.validation.index)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = _Classifier(len(data.classes))
        optimizer = torch.optim.AdamW(model.parameters(), lr=_LR, weight_decay=1e-2, fused=True)
        steps = -(-len(rows) // _BATCH)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LR, total_steps=_EPOCHS * steps)
        for epoch in range(1, _EPOCHS + 1):
            began = time.perf_counter()
            model.train()
            for batch in rows[torch.randperm(len(rows), generator=generator)].split(_BATCH):
                batch_images = images[batch]
                flipped = torch.rand(len(batch), generator=generator) < 0.5  # clothes have a left and a right
                batch_images[flipped] = batch_images[flipped].flip(-1)
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(model(batch_images), labels[batch]).backward()
                optimizer.step()
                schedule.step()
            posteriors = _classify(model, data.train.rows[held.numpy()])
            accuracy = float((posteriors.argmax(1) == labels[held].numpy()).mean())
            seconds = time.perf_counter() - began
            say(f"classifier, epoch {epoch}: validation accuracy {accuracy:.4f}, {seconds:.0f} s")
    return model


@torch.inference_mode()
def _classify(model: _Classifier, pool: NDArray) -> NDArray[np.float64]:
    model.eval()
    parts = [torch.from_numpy(pool[start : start + 1000].copy()) for start in range(0, len(pool), 1000)]
    return torch.cat([model(part).double().softmax(1) for part in parts]).numpy()
