"""The process that learns a model for the service and sends events as lines of JSON."""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

from histnetq.errors import InputWarning, in_request
from histnetq.training.progress import listening, report_event
from histnetq.web.children import end_with


def main(parent: int, source: str, output: str, reading: dict[str, Any], **how: Any) -> int:
    """Learn a model from a table and save it; return the exit code. The arguments `how` are those of `_learn`."""
    end_with(parent)
    pipe = os.dup(1)
    os.dup2(2, 1)  # printed text must not mix with the events

    def send(event: dict[str, Any]) -> None:
        try:
            os.write(pipe, json.dumps(event).encode() + b"\n")
        except BrokenPipeError:  # the server no longer reads the events
            raise KeyboardInterrupt from None

    def warn(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UserWarning):
            text = in_request(message) if isinstance(message, InputWarning) else str(message)
            send({"kind": "note", "text": f"Warning: {text}"})

    warnings.filterwarnings("always", category=UserWarning, module="histnetq")
    warnings.showwarning = warn
    try:
        with listening(send):
            _learn([source], output, reading, **how)
    except (MemoryError, SystemError):  # a failed allocation in compiled code may raise the latter
        send({"kind": "error", "text": "memory: expected enough for the rows, got less; use fewer rows."})
        return 2
    except (ValueError, TypeError, LookupError, OSError, ImportError, RuntimeError) as error:
        send({"kind": "error", "text": str(error)})
        return 2
    return 0


def _learn(
    source: list[str],
    output: str,
    reading: dict[str, Any],
    method: str,
    about: dict[str, Any],
    bag_size: list[int] | None,
) -> None:
    from histnetq.workflows.fitting import Workbench, check_method
    from histnetq.workflows.reading import read_training

    check_method(method)
    model, _ = Workbench(read_training(source, **reading), bag_size=bag_size, about=about).fit(method)
    report_event("saving")
    model.save(output)
    known = model.provenance_
    if "why" in known:
        report_event("note", text=known["why"])
    calibrated = (
        f"Calibrated {known['calibrated']}." if known["calibration_bags"] else known["uncalibrated"].capitalize()
    )
    report_event("note", text=calibrated)


if __name__ == "__main__":
    sys.exit(main(**json.loads(sys.argv[1])))
