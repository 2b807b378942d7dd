"""Checkpoints of a run: its tensors and its progress, in one file that is replaced as a whole."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from histnetq.tables.files import whole_file

_CHECKPOINT = "checkpoint.safetensors"
_OPTIMIZER = ("step", "exp_avg", "exp_avg_sq")


def has_checkpoint(directory: str | None) -> bool:
    """Return whether the directory has a checkpoint, which a run would resume."""
    return directory is not None and (Path(directory) / _CHECKPOINT).exists()


def make_directory(directory: str) -> None:
    """Create the directory of a checkpoint before any training."""
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"checkpoint: {directory} cannot be made a directory ({error.strerror}); name another."
        raise ValueError(message) from None


def write_checkpoint(
    directory: str, identity: str, progress: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Write groups of tensors, the progress of the run and its identity."""
    flat = {f"{group}/{k}": v.detach().cpu().clone() for group, named in tensors.items() for k, v in named.items()}
    with whole_file(Path(directory) / _CHECKPOINT) as partial:
        save_file(flat, partial, {"identity": identity, "progress": json.dumps(progress)})


def read_checkpoint(
    directory: str,
    identity: str,
    start: Mapping[str, Any],
    layers: Mapping[str, Tensor],
    parameters: Sequence[Tensor],
) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """Read the progress and the tensors of a checkpoint; refuse the checkpoint of a different run.

    The progress must have entries of `start`, with the same types. The tensors must be the weights of these layers, and
    the optimiser's state of these parameters.
    """
    path = Path(directory) / _CHECKPOINT
    try:
        with safe_open(path, framework="pt") as file:
            metadata, flat = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"checkpoint: {path} cannot be read ({error}); remove it to start anew.") from None
    if metadata.get("identity") != identity:
        raise ValueError(
            f"checkpoint: {directory} holds a run with other data, parameters or random_state; "
            "choose another directory or remove it."
        )
    tensors: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in flat.items():
        group, _, rest = name.partition("/")
        tensors[group][rest] = tensor
    try:
        progress = json.loads(metadata["progress"])
    except (KeyError, ValueError, RecursionError):
        progress = None
    if not _fit_run(tensors, layers, parameters) or not _fits_start(progress, start):
        raise ValueError(f"checkpoint: {path} does not hold the tensors of this run; remove it to start anew.")
    return progress, tensors


def _fit_run(
    tensors: Mapping[str, Mapping[str, Tensor]], layers: Mapping[str, Tensor], parameters: Sequence[Tensor]
) -> bool:
    """Return whether tensors are weights of these layers, and the optimiser's state of these parameters."""
    shapes = {name: tensor.shape for name, tensor in layers.items()}
    weights = [tensors["network"], tensors["best"], *([tensors["mean"]] if tensors["mean"] else [])]
    fits = all({name: tensor.shape for name, tensor in group.items()} == shapes for group in weights)
    for name, tensor in tensors["optimizer"].items():
        place, _, key = name.partition("/")
        known = place.isdecimal() and int(place) < len(parameters) and key in _OPTIMIZER
        fits &= known and tensor.shape == (() if key == "step" else parameters[int(place)].shape)
    return fits


def _fits_start(progress: Any, start: Mapping[str, Any]) -> bool:
    """Return whether the entries of the progress, and their types, are those at the start of a run."""
    fits = isinstance(progress, dict) and progress.keys() <= start.keys()
    return fits and all(_kind(value) is _kind(start[name]) for name, value in progress.items())


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)
