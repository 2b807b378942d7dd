"""Checkpoints of a run: its tensors and where it stands, in one file that is replaced as a whole."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from histnetq.data.files import whole_file

_CHECKPOINT = "checkpoint.safetensors"


def has_checkpoint(directory: str | None) -> bool:
    """Tell whether a run with this directory goes on from where one has stopped."""
    return directory is not None and (Path(directory) / _CHECKPOINT).exists()


def make_directory(directory: str) -> None:
    """Make the directory of a checkpoint before work is done."""
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        told = f"checkpoint: {directory} cannot be made a directory ({error.strerror}); name another."
        raise ValueError(told) from None


def write_checkpoint(
    directory: str, identity: str, progress: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Write groups of tensors and the progress of the run of this identity."""
    flat = {f"{group}/{k}": v.detach().cpu().clone() for group, named in tensors.items() for k, v in named.items()}
    with whole_file(Path(directory) / _CHECKPOINT) as partial:
        save_file(flat, partial, {"identity": identity, "progress": json.dumps(progress)})


def read_checkpoint(directory: str, identity: str) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """Read what `write_checkpoint` wrote; refuse the checkpoint of another run."""
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
    return json.loads(metadata["progress"]), tensors
