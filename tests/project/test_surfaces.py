"""Python, the command line, the service and the documentation offer the same choices, which the registry lists once."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import histnetq as hq
from histnetq import registry
from histnetq.cli import main
from histnetq.quantifiers.classical.classifiers import made
from histnetq.tables.files import fill_table
from histnetq.tables.table_files import open_table
from histnetq.uncertainty.methods import INTERVALS
from histnetq.workflows import reading

DOCS = Path(__file__).parents[2] / "docs"


def typed_choices(command, name):
    """What the command line offers for an option."""
    option = next(param for param in main.commands[command].params if param.name == name)
    return list(option.type.choices)


@pytest.fixture(scope="module")
def service():
    """The OpenAPI schema of the service."""
    pytest.importorskip("fastapi")
    from histnetq.web.app import Settings, make_app
    from histnetq.web.security import Door

    return make_app(Settings(Path("."), Door((), False, None))).app.openapi()


def requested_choices(schema, name):
    """All lists of choices that requests may name for an option."""
    if isinstance(schema, list):
        return [found for part in schema for found in requested_choices(part, name)]
    if not isinstance(schema, dict):
        return []
    found = [part for key, part in schema.items() if key == name]
    if schema.get("name") == name:
        found.append(schema.get("schema", {}))
    enums = [option["enum"] for part in found for option in (part, *part.get("anyOf", ())) if "enum" in option]
    return enums + [inner for part in schema.values() for inner in requested_choices(part, name)]


@pytest.fixture(scope="module")
def model():
    rows = pd.DataFrame({"x": [0.0, 1.0] * 20})
    return hq.EMQ(random_state=0).fit(rows, ["a", "b"] * 20)


def refused_choices(call):
    """The choices that the error of a wrong choice lists."""
    with pytest.raises(ValueError) as error:
        call()
    return re.findall(r"'([\w-]+)'", str(error.value).partition(", got ")[0])


def test_interval_methods(service, model):
    names = list(registry.INTERVALS)
    assert list(INTERVALS) == names
    assert [method.name for method in INTERVALS.values()] == names
    assert typed_choices("predict", "interval") == names
    assert requested_choices(service, "interval") == [names]
    rows = pd.DataFrame({"x": [0.0, 1.0]})
    assert refused_choices(lambda: model.predict_interval(rows, method="?")) == names
    assert refused_choices(lambda: hq.estimate(model, rows, interval="?")) == names
    documented = re.findall(r"^\| \*\*([\w-]+)\*\*", (DOCS / "intervals.md").read_text(encoding="utf-8"), flags=re.M)
    assert sorted(set(documented) & {*names}) == sorted(names)
    assert all(f'"{name}"' in hq.Quantifier.predict_interval.__doc__ for name in names)


def test_classifiers():
    names = list(registry.CLASSIFIERS)
    for command in ("fit", "tune", "compare"):
        assert typed_choices(command, "classifier") == names
    assert registry.METHODS["pacc"].space["classifier"] == names
    assert refused_choices(lambda: hq.PACC("?").fit(np.zeros((4, 1)), [0, 1, 0, 1])) == names
    assert all(hasattr(made(name), "fit") for name in names)
    documented = (DOCS / "tables.md").read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in documented] == []


def test_sizes_of_bags(service):
    for command in ("fit", "tune"):
        assert next(param for param in main.commands[command].params if param.name == "bag_size").multiple
    assert "bag_size" in service["components"]["schemas"]["LearnJob"]["properties"]
    assert "bag_size" in inspect.signature(hq.fit_best).parameters


def test_methods():
    names = ["auto", "search", *registry.METHODS]
    assert refused_choices(lambda: hq.fit_best(np.zeros((4, 1)), [0, 1, 0, 1], method="?")) == names
    page = (Path(hq.__file__).parent / "web/assets/learn.js").read_text(encoding="utf-8")
    assert set(re.findall(r'\["([a-z]+)", "', page.partition("];")[0])) <= set(names)
    documented = (DOCS / "tables.md").read_text(encoding="utf-8")
    assert "`--method search`" in documented


def test_rescalings(model):
    names = list(registry.RESCALINGS)
    assert typed_choices("fit", "rescaling") == ["auto", "none", *names]
    wrong = hq.EMQ(rescaling="?")
    assert refused_choices(lambda: wrong.fit(np.zeros((4, 1)), [0, 1, 0, 1])) == ["auto", *names]
    assert set(registry.METHODS["emq"].space["rescaling"]) <= {None, *names}
    assert all(f'"{name}"' in hq.EMQ.__doc__ for name in names)


def test_missing_values(service):
    names = list(registry.MISSING)
    for command in ("fit", "predict", "evaluate", "monitor"):
        assert typed_choices(command, "missing") == names
    assert requested_choices(service, "missing") == [names] * 3
    rows = pd.DataFrame({"x": [0.0, 1.0], "y": ["a", "b"]})
    assert refused_choices(lambda: hq.read_bags(rows, label="y", missing="?")) == names


def test_periods(service, model):
    names = list(registry.PERIODS)
    assert typed_choices("monitor", "period") == names
    assert requested_choices(service, "period") == [names]
    rows = pd.DataFrame({"x": [0.0, 1.0], "t": ["2026-01-01", "2026-01-02"]})
    assert refused_choices(lambda: hq.monitor(model, rows, time="t", period="?")) == names


@pytest.mark.parametrize("name", registry.FORMATS)
def test_table_formats(name, tmp_path, service):
    about = registry.FORMATS[name]
    frame = pd.DataFrame({"x": [0.5, 1.5], "y": ["a", "b"]})
    for ending in about.endings:
        fill_table(frame, tmp_path / f"t{ending}", tmp_path / f"t{ending}")
        _, batch = next(open_table(str(tmp_path / f"t{ending}"), "source").batches(["x"], ["y"]))
        pd.testing.assert_frame_equal(batch.to_pandas().astype(frame.dtypes), frame)  # texts may be categories
    from histnetq.web.app import _body_suffix
    from histnetq.web.tables import clean_name

    for media in about.media_types:
        request = type("Request", (), {"headers": {"content-type": media}})
        assert _body_suffix(request) == about.endings[0]
    assert clean_name(f"rows{about.endings[0]}") == f"rows{about.endings[0]}"
    documented = (DOCS / "tables.md").read_text(encoding="utf-8")
    assert [ending for ending in about.endings if f"`{ending}`" not in documented and ".gz" not in ending] == []
    content = service["paths"]["/v1/models/{name}/predict"]["post"]["requestBody"]["content"]
    assert about.media_types[0] in content


def test_formats_that_are_only_read_are_documented():
    documented = (DOCS / "tables.md").read_text(encoding="utf-8")
    endings = [ending for about in registry.READ.values() for ending in about.endings if ".gz" not in ending]
    assert [ending for ending in endings if f"`{ending}`" not in documented] == []


def test_unknown_endings_are_refused_with_all_formats(tmp_path):
    (tmp_path / "t.ods").write_text("")
    usual = [about.endings[0] for about in registry.READ.values()]
    with pytest.raises(ValueError) as error:
        reading.read_training(str(tmp_path / "t.ods"), label="y")
    assert str(error.value) == (
        f"source: {tmp_path / 't.ods'} ends neither in {' nor '.join(usual)}; convert it to one of them."
    )


def test_every_summary_fits_into_the_list_of_commands():
    from click.testing import CliRunner

    for arguments in ([], ["data"], ["lequa"]):
        listed = CliRunner().invoke(main, [*arguments, "--help"], terminal_width=80).output
        assert "..." not in listed.partition("Commands:")[2]
        assert max(map(len, listed.splitlines())) <= 80


def test_every_option_has_a_help_text():
    groups = [main, main.commands["data"], main.commands["lequa"]]
    commands = [command for group in groups for command in group.commands.values() if not hasattr(command, "commands")]
    options = [param for command in commands for param in command.params if param.param_type_name == "option"]
    assert [option.name for option in options if not option.help or not re.search(r"[.\]]$", option.help)] == []
