"""The command that describes a stored model: info."""

from __future__ import annotations

from pathlib import Path

from histnetq.cli.group import main, say
from histnetq.cli.options import options
from histnetq.report.sentences import list_left_out


@main.command()
@options("MODEL", "json")
def info(model: Path, as_json: bool) -> None:
    """Describe a stored model.

    Print the method, classes, features, parameters and calibration of MODEL. This is fast for large models, because
    the learned arrays are not read.

    Example: histnetq info model
    """
    from histnetq.workflows.model_cards import describe_model

    facts = describe_model(model)
    provenance, bags = facts["provenance"], facts["calibration_bags"]
    shares = zip(facts["classes"], facts["train_prevalences"], strict=True)
    lines = [
        f"method       {facts['method']}",
        f"classes      {', '.join(f'{name} ({share:.1%} in training)' for name, share in shares)}",
        f"features     {', '.join(facts['features'] or ['not named'])}"
        + (" (scores of a model, in the order of the classes)" if facts["scores"] else ""),
        *([f"left out     {list_left_out(provenance['left_out'])}"] if provenance.get("left_out") else []),
        f"intervals    {f'calibrated by {bags} bags' if bags else 'not calibrated'}",
        *([f"validation   {facts['split']}"] if facts["split"] else []),
        *([f"interrupted  {facts['interrupted']}"] if facts["interrupted"] else []),
        *([f"warning      {facts['learned_nothing']}"] if facts["learned_nothing"] else []),
        f"parameters   {facts['parameters']}",
        *(f"{name:<13}{provenance[name]}" for name in ("calibrated", "command", "date", "why") if name in provenance),
    ]
    say(as_json, facts, lines)
