"""The command that describes a stored model: info."""

from __future__ import annotations

from pathlib import Path

from histnetq.cli.columns import list_left_out
from histnetq.cli.group import main, say
from histnetq.cli.options import options


@main.command()
@options("MODEL", "json")
def info(model: Path, as_json: bool) -> None:
    """Describe a stored model.

    Print the method, classes, features, parameters and calibration of MODEL. The weights are not read.

    Example: histnetq info model
    """
    from histnetq.persistence.model_files import array_shapes, read_manifest, require_known_method
    from histnetq.persistence.parameter_text import describe_call

    about = read_manifest(model)
    if not about.get("own_class", False):
        require_known_method(model, about)
    provenance = about["provenance"] or {}
    n_scores = sum(array_shapes(model, about).get("calibration/joint_scores", []))
    bags = provenance.get("calibration_bags") or n_scores
    learned = about["learned"]
    interrupted = str(provenance.get("interrupted") or learned.get("interrupted", ""))
    facts = {
        "method": about["estimator"], "classes": about["classes"], "features": about["feature_names"],
        "train_prevalences": about["train_prevalences"], "calibration_bags": bags,
        "parameters": describe_call(about["estimator"], about["params"]), "split": str(learned.get("split", "")),
        "interrupted": interrupted, "learned_nothing": str(learned.get("learned_nothing", "")),
        "scores": bool(about.get("scores")), "provenance": provenance,
    }  # fmt: skip
    shares = zip(facts["classes"], facts["train_prevalences"], strict=True)
    lines = [
        f"method       {facts['method']}",
        f"classes      {', '.join(f'{name} ({share:.1%} in training)' for name, share in shares)}",
        f"features     {', '.join(facts['features'] or ['not named'])}"
        + (" (scores of a model, in the order of the classes)" if facts["scores"] else ""),
        *([f"left out     {list_left_out(provenance['left_out'])}"] if provenance.get("left_out") else []),
        f"intervals    {f'calibrated by {bags} bags' if bags else 'not calibrated'}",
        *([f"validation   {facts['split']}"] if facts["split"] else []),
        *([f"interrupted  {interrupted}"] if interrupted else []),
        *([f"warning      {facts['learned_nothing']}"] if facts["learned_nothing"] else []),
        f"parameters   {facts['parameters']}",
        *(f"{name:<13}{provenance[name]}" for name in ("calibrated", "command", "date", "why") if name in provenance),
    ]
    say(as_json, facts, lines)
