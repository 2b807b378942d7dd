"""The report: it says what it was given, escaped; it is written as a whole or not at all; and it works in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
import pytest

import histnetq as hq
from histnetq.evaluation import plots
from histnetq.report import figures
from histnetq.report.page import write_report
from histnetq.report.table_report import report_table
from histnetq.uncertainty.trust import DOUBT
from histnetq.workflows import estimating, reading
from tests.conftest import QUICK, exactly, known_bags, labelled

AWKWARD = ["<b>cod</b>", "a&b", "_$x$"]
BROWSERS = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
BROWSER = next((found for found in BROWSERS if found), None)
QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-extensions", "--disable-default-apps", "--no-first-run", "--enable-logging=stderr",
    "--window-size=1280,900",
]  # fmt: skip


@pytest.fixture(scope="module")
def model():
    q = hq.PACC(cv=3).fit(*labelled()).calibrate(known_bags(40, seed=1))
    q.provenance_ = {
        "command": "histnetq fit <rows>.csv", "sources": ["rows.csv"], "bags": 75, "rows": 900, "calibration_bags": 40,
        "seconds": 1.25, "date": "2024-05-06", "versions": {"numpy": "1.2.3"}, "why": "lowest error & fast",
    }  # fmt: skip
    return q


def doubts(n_bags, doubted=(1,)):
    table = pd.DataFrame({"p_value": np.linspace(0.2, 0.9, n_bags), "small": False, "unseen": 0.0, "trust": "ok"})
    table.loc[list(doubted), ["p_value", "trust"]] = [np.nan, "unusual; <small>"]
    return table


def read(path):
    return path.read_text(encoding="utf-8")


def titles(text):
    return re.findall("<h[23]>(.*?)</h[23]>", text)


def test_everything_known(model, tmp_path):
    bags = known_bags(30, seed=2)
    found = model.predict_interval(bags, 0.8)
    rivals = {"PACC": found.estimates, "EMQ <2>": np.full((30, 3), 1 / 3)}
    path = tmp_path / "deep" / "report.html"
    write_report(
        path, model=model, bags=bags, intervals=found, trust=doubts(30, [4, 7]), rivals=rivals,
        command="histnetq report 'a&b'", sources=["new.csv"],
    )  # fmt: skip
    text = read(path)
    assert titles(text) == [
        "Model and training data", "Errors", "Plots", "Estimates against the truth", "Bias", "Coverage",
        "Error by shift", "Estimates by bag", "Bags", "Trust", "How to repeat this",
    ]  # fmt: skip
    compared = hq.compare(
        {"PACC (reported)": found.estimates, **rivals, "training mean": np.tile(model.train_prevalences_, (30, 1))},
        bags,
    )
    assert compared._repr_html_() in text
    ours, mean = 100 * compared.table["ae", "mean"].iloc[[0, -1]]
    assert f"<b>{ours:.2f} percentage points</b> away from the truth" in text
    assert f"would be {mean:.2f} points away" in text
    assert f"Of its 80% intervals, {found.contains(bags.prevalences).mean():.1%} hold the truth; 2 bags carry a" in text
    for fact in ("75 bags, 900 rows", "by 40 bags", "1.2 s, 2024-05-06", "lowest error &amp; fast", "numpy 1.2.3"):
        assert fact in text
    assert "<pre>histnetq fit &lt;rows&gt;.csv\nhistnetq report &#x27;a&amp;b&#x27;</pre>" in text
    assert "new.csv" in text
    assert f"numpy {np.__version__}" in text
    assert len(re.findall('<tr class="warn" title="unusual; &lt;small&gt;">', text)) == 2
    assert list(tmp_path.rglob("*.*")) == [path]


def test_cells_of_a_bag(model, tmp_path):
    bags = known_bags(2, seed=3)
    found = model.predict_interval(bags, 0.5)
    write_report(tmp_path / "r.html", model=model, bags=bags, intervals=found, trust=doubts(2))
    row = re.findall("<tr[^>]*>(<th scope=.row.>.*)</tr>", read(tmp_path / "r.html"))[1]
    numbers = 100 * np.stack([found.estimates, found.lower, found.upper, bags.prevalences])[:, 1]
    cells = [f"<td>{p:.1f}<small>{a:.1f}–{b:.1f}</small><small>true {t:.1f}</small></td>" for p, a, b, t in numbers.T]
    error = np.abs(found.estimates[1] - bags.prevalences[1]).mean()
    ends = [f"<td>{error:.4f}</td>", "<td>–</td>", '<td class="text">unusual; &lt;small&gt;</td>']
    assert row == "".join(['<th scope="row">1</th>', f"<td>{bags.sizes[1]}</td>", *cells, *ends])


def test_intervals_without_calibration_are_named(tmp_path):
    bags = known_bags(3)
    own = "of the model's own posterior"
    for q, kind, name in ((hq.CC(), "bayes", "Bayesian"), (hq.Pretrained(), "posterior", own)):
        found = q.fit(*labelled()).predict_interval(bags, method=kind)
        write_report(tmp_path / "r.html", model=q, bags=bags, intervals=found, overwrite=True)
        assert f"not calibrated, so they are {name}<" in html.unescape(read(tmp_path / "r.html")).replace("\n<", "<")


def test_truth_unknown_and_no_intervals(tmp_path):
    q = hq.CC(cv=3).fit(*labelled())
    write_report(tmp_path / "r.html", model=q, bags=hq.Bags(labelled(seed=5)[0], offsets=[0, 50, 120]))
    text = read(tmp_path / "r.html")
    assert titles(text) == ["Model and training data", "Plots", "Estimates by bag", "Bags", "How to repeat this"]
    assert "The true shares are not known" in text
    assert "not calibrated" in text
    assert "No command was given" in text
    assert "<small>true" not in text
    assert " interval" not in text


def test_one_bag_and_many_classes(tmp_path):
    X, y = np.zeros((130, 2)), np.arange(130) % 13
    q = hq.MLPE().fit(X, y)
    for name, offsets in {"one": [0, 130], "several": [0, 20, 130]}.items():
        write_report(tmp_path / name, model=q, bags=hq.Bags(X, offsets=offsets))
    assert "A bar for each class." in read(tmp_path / "one")
    text = read(tmp_path / "several")
    assert "The estimated share of each class in the bags, sorted by name. All plots have the same scale." in text
    assert text.count("<img") == 13


@pytest.fixture
def drawn(monkeypatch):
    """The axes that were drawn into for estimates by bag."""
    axes, draw = [], plots.prevalences
    monkeypatch.setattr(plots, "prevalences", lambda *args, **kw: axes.append(draw(*args, **kw)) or axes[-1])
    return axes


def test_many_classes_and_bags_can_be_read(tmp_path, drawn):
    rng = np.random.default_rng(0)
    names, p = [f"c{j:02}" for j in range(26)], rng.dirichlet(np.full(26, 2.0), size=150)
    bags = hq.Bags(
        np.zeros((150, 1)), offsets=range(151), prevalences=p, classes=names,
        ids=rng.permutation([f"sample{i}" for i in range(150)]),
    )  # fmt: skip
    q = hq.MLPE().fit(np.zeros((52, 1)), names * 2)
    write_report(tmp_path / "r.html", model=q, bags=bags)
    assert [ax.get_title(loc="left") for ax in drawn] == names
    order = np.argsort([int(name[6:]) for name in bags.ids])
    for j, ax in enumerate(drawn):
        dots, truth = ax.get_lines()
        np.testing.assert_allclose(truth.get_ydata(), p[order, j])
        assert dots.get_linestyle() == "None"
        assert ax.get_ylim() == pytest.approx((0, 1.08 * p.max()))
        assert ax.get_xticklabels()[0].get_text() == "sample0"
    text = read(tmp_path / "r.html")
    assert re.findall('<th scope="row">(.*?)</th>', text) == [f"sample{i}" for i in range(150)]
    assert "Black dashes are the true shares. Dots are not joined, because the names of the bags have no order." in text
    assert "The classes with the largest errors are coloured." in text


def test_bags_with_dates_are_lines_in_their_order(model, tmp_path, drawn):
    bags = known_bags(12, seed=2)
    bags.ids = np.array([f"2024-05-{i:02} 10:00:00" for i in np.random.default_rng(0).permutation(12) + 1])
    found = model.predict_interval(bags, 0.8)
    write_report(tmp_path / "r.html", model=model, bags=bags, intervals=found)
    line = drawn[0].get_lines()[0]
    assert line.get_linestyle() == "-"
    np.testing.assert_array_equal(line.get_ydata(), found.estimates[np.argsort(bags.ids), 0])
    assert "sorted by name, with its 80% interval as a band. Black dashes" in read(tmp_path / "r.html")


def test_the_threshold_of_trust_is_the_one_in_use(model, tmp_path):
    bags = known_bags(3)
    write_report(tmp_path / "r.html", model=model, bags=bags, trust=model.trust(bags))
    assert f"0.5 is ordinary, {DOUBT:.2g} or less is doubtful" in " ".join(read(tmp_path / "r.html").split())


def test_a_class_that_training_lacks_counts_as_estimated_0(model, tmp_path):
    known = known_bags(30, seed=2)
    p = np.pad(0.9 * known.prevalences, ((0, 0), (0, 1)), constant_values=0.1)
    bags = hq.Bags(known.rows, known.index, known.offsets, prevalences=p, classes=["a", "b", "c", "d"])
    found = model.predict_interval(bags, 0.8)
    rivals = {"array": found.estimates, "frame": pd.DataFrame(found.estimates, columns=list("abc"))}
    write_report(tmp_path / "r.html", model=model, bags=bags, intervals=found, trust=model.trust(bags), rivals=rivals)
    text = html.unescape(read(tmp_path / "r.html"))
    assert "PACC has no class 'd', which the truth has; its estimate counts as 0." in text
    assert "<td>0.0<small>true 10.0</small></td>" in text
    error = np.abs(np.pad(found.estimates, ((0, 0), (0, 1))) - p).mean()
    assert f"<b>{100 * error:.2f} percentage points</b>" in text
    assert f"Of its 80% intervals, {found.contains(p[:, :3]).mean():.1%} hold the truth" in text


def test_unchecked_is_no_warning(model, tmp_path):
    trust = doubts(3).assign(trust="unchecked", p_value=np.nan)
    write_report(tmp_path / "r.html", model=model, bags=hq.Bags(labelled()[0], offsets=[0, 9, 20, 120]), trust=trust)
    text = read(tmp_path / "r.html")
    assert text.count('<td>–</td><td class="text">unchecked</td>') == 3
    assert "trust warning" not in text
    assert 'class="warn"' not in text


def test_names_are_escaped(tmp_path):
    X, y = labelled()
    names = ["<i>w</i>", "b", "c", "d&e"]
    frame = pd.DataFrame(X, columns=names)
    q = hq.CC(cv=3).fit(frame, np.array(AWKWARD)[np.arange(len(y)) % 3])
    bags = hq.Bags(
        frame, offsets=[0, 60, 120], prevalences=[[0.2, 0.3, 0.5]] * 2, classes=AWKWARD, ids=["<script>1", '">2']
    )
    write_report(
        tmp_path / "r.html", model=q, bags=bags, rivals={"<u>": q.predict(bags)}, sources=["<s>.csv"],
        trust=doubts(2).assign(trust='"<img src=x>"'),
    )  # fmt: skip
    text = read(tmp_path / "r.html")
    for name in [*AWKWARD, *names, *bags.ids, "<u>", "<s>.csv"]:
        assert html.escape(str(name)) in text
    assert not re.search("<(b>cod|i>w|script>1|u>|s>|img src=x)", text)
    assert 'title="&quot;&lt;img src=x&gt;&quot;"' in text


def test_a_network_shows_training_and_histograms(tmp_path):
    q = hq.HistNetQ(n_bins=4, encoder=(4,), head=(8,), training=QUICK, random_state=0).fit(known_bags())
    write_report(tmp_path / "r.html", model=q, bags=hq.Bags(labelled()[0]))
    assert {"Training", "Learned histograms"} <= set(titles(read(tmp_path / "r.html")))


def test_self_contained(model, tmp_path):
    write_report(tmp_path / "r.html", model=model, bags=known_bags(3))
    text = read(tmp_path / "r.html")
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\';' in text
    assert not re.search(r"(src|href)=.(?!data:|#)", text)
    assert not re.search(r"url\(|@import|https?:", text)
    assert all(re.findall('<img src="data:image/png;base64,[^"]+" alt="([^"]+)">', text))


def test_existing_files_are_kept(model, tmp_path):
    path, bags = tmp_path / "r.html", known_bags(3)
    path.write_text("mine")
    message = f"output: {path} exists; choose another name or pass overwrite=True to replace it."
    with pytest.raises(FileExistsError, match=exactly(message)):
        write_report(path, model=model, bags=bags)
    assert path.read_text() == "mine"
    write_report(path, model=model, bags=bags, overwrite=True)
    assert "<!DOCTYPE html>" in read(path)


def test_nothing_half_written(model, tmp_path, monkeypatch):
    path, bags = tmp_path / "r.html", known_bags(3)
    path.write_text("mine")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("histnetq.tables.files.os.replace", fail)
    with pytest.raises(OSError, match=re.escape(f"{path} cannot be written (No space left on device)")):
        write_report(path, model=model, bags=bags, overwrite=True)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "mine"


def test_wrong_arguments(model, tmp_path, monkeypatch):
    path, bags = tmp_path / "r.html", known_bags(3)
    message = "trust: expected 3 rows with p_value and trust, got 2 with p_value, small, unseen, trust."
    with pytest.raises(ValueError, match=exactly(message)):
        write_report(path, model=model, bags=bags, trust=doubts(2))
    message = "intervals: expected shape (n_bags, n_classes) = (3, 3), got (2, 3); make them of these bags."
    with pytest.raises(ValueError, match=exactly(message)):
        write_report(path, model=model, bags=bags, intervals=model.predict_interval(bags[:2], 0.5))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        ImportError, match=exactly("plots need matplotlib; install it by pip install 'histnetq[report]'.")
    ):
        write_report(path, model=model, bags=bags)
    assert not path.exists()


def browse(text, script, folder):
    """Open a page with a script at its end: what the script returns, console lines, addresses that the page asked."""
    page, log = folder / "page.html", folder / "net.json"
    told = f"document.documentElement.dataset.found = JSON.stringify((() => {{{script}}})())"
    page.write_text(f"{text}<script>addEventListener('load', () => {{{told}}});</script>", encoding="utf-8")
    options = [f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}", "--dump-dom"]
    run = subprocess.run(
        [BROWSER, *QUIET, *options, page.as_uri()], capture_output=True, text=True, timeout=60, check=False
    )
    found = re.search('data-found="(.*?)"', run.stdout)
    assert found is not None, run.stderr
    started = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    own = [
        p["url"] for p in started if p.get("initiator", "not an origin") != "not an origin"
    ]  # others: Chromium's own
    asked = [url for url in own if not url.startswith(("file:", "data:"))]
    return json.loads(html.unescape(found[1])), re.findall("CONSOLE.*", run.stderr), asked


@pytest.fixture(scope="module")
def shown(model, tmp_path_factory):
    """The text of a report, and the table in it."""
    if BROWSER is None:
        pytest.skip("no Chromium to open the report with")
    bags = known_bags(12, seed=4)
    bags.ids = np.array([f"tow{i}" for i in range(12)])
    found, trust = model.predict_interval(bags, 0.8), doubts(12, [0, 2, 5, 7, 9])
    path = tmp_path_factory.mktemp("report") / "r.html"
    write_report(path, model=model, bags=bags, intervals=found, trust=trust)
    columns = {"bag": range(12), "n": bags.sizes}
    columns |= {name: (100 * found.estimates[:, j]).round(1) for j, name in enumerate("abc")}
    columns |= {"AE": np.abs(found.estimates - bags.prevalences).mean(1).round(4)}
    columns |= {"p-value": trust["p_value"].round(3), "trust": trust["trust"]}
    return read(path), pd.DataFrame(columns).set_index(bags.ids)


def test_headers_sort_in_a_browser(shown, tmp_path):
    text, table = shown
    script = """
        const heads = Array.from(document.querySelectorAll(".bags thead th"));
        return heads.map(head => ["ascending", "descending"].map(() => {
            head.querySelector("button").click();
            const rows = Array.from(document.querySelectorAll(".bags tbody tr"));
            return [rows.map(row => row.cells[0].textContent), heads.map(h => h.getAttribute("aria-sort"))];
        }));"""
    clicks, console, asked = browse(text, script, tmp_path)
    for column, (name, found) in enumerate(zip(table, clicks, strict=True)):
        for rising, (order, states) in zip((True, False), found, strict=True):
            expected = table[name].sort_values(ascending=rising, na_position="last")
            pd.testing.assert_series_equal(table.loc[order, name], expected, check_index=False)
            assert states == [("ascending" if rising else "descending") if i == column else None for i in range(8)]
    assert sorted(order) == sorted(table.index)
    assert (console, asked) == ([], [])


def test_the_page_may_not_use_the_network(shown, tmp_path):
    script = "new Image().src = 'http://127.0.0.1:9/a'; fetch('http://127.0.0.1:9/b').catch(() => null); return 1;"
    for name, text, reached in (("report", shown[0], []), ("other", "<!DOCTYPE html>", ["a", "b"])):
        (tmp_path / name).mkdir()
        _, console, asked = browse(text, script, tmp_path / name)
        assert sorted({url[-1] for url in asked}) == reached
        assert any("Content Security Policy" in line for line in console) == (name == "report")


def test_a_phone_scrolls_nothing_but_the_table(shown, tmp_path):
    text = (
        f'<!DOCTYPE html><iframe style="width:390px;height:800px;border:0" srcdoc="{html.escape(shown[0])}"></iframe>'
    )
    script = """
        const inside = document.querySelector("iframe").contentDocument;
        return [inside.documentElement, inside.querySelector(".bags")].map(e => [e.clientWidth, e.scrollWidth]);"""
    (page, table), console, _ = browse(text, script, tmp_path)
    assert page[1] <= page[0] <= 390
    assert table[1] > table[0]
    assert console == []


def test_p_values_stay_visible_beside_trust(shown, tmp_path):
    wide = shown[0].replace("--numbers:5", "--numbers:20")  # as with many classes: the table scrolls
    assert wide != shown[0]
    text = f'<!DOCTYPE html><iframe style="width:1300px;height:800px;border:0" srcdoc="{html.escape(wide)}"></iframe>'
    script = """
        const table = document.querySelector("iframe").contentDocument.querySelector(".bags");
        const row = table.querySelector("tbody tr");
        return [table.scrollWidth > table.clientWidth, ...[row.cells[6], row.cells[7]].map(cell => {
            const { left, right } = cell.getBoundingClientRect();
            return [left, right];
        })];"""
    (scrolls, p_value, trust), console, _ = browse(text, script, tmp_path)
    assert scrolls
    assert p_value[1] == pytest.approx(trust[0])
    assert p_value[0] < p_value[1] < trust[1] <= 1300
    assert console == []


def test_no_interval_is_cut_off_and_bars_of_shares_end_at_100_percent(model, tmp_path, monkeypatch):
    bags = known_bags(60, seed=2)
    found = model.predict_interval(bags, 0.8)
    found = replace(found, estimates=found.estimates / 2 + 1 / 6, upper=np.full_like(found.upper, 0.7))
    found.upper[7, 1] = 0.97  # one interval of 180 is much wider than the others
    tops = []
    real = figures.image

    def image(draw, *size):
        def seen(figure):
            draw(figure)
            tops.append(figure.axes[0].get_ylim()[1])

        return real(seen, *size)

    monkeypatch.setattr(figures, "image", image)
    write_report(tmp_path / "r.html", model=model, bags=bags, intervals=found)
    panels = tops[-3:]
    assert min(panels) == max(panels) >= 0.97
    shares = re.findall("--share:(.*?)%", read(tmp_path / "r.html"))
    np.testing.assert_allclose([float(share) for share in shares], 100 * model.train_prevalences_, atol=0.051)


def test_a_table_is_read_once_for_models_with_the_same_columns(tmp_path, monkeypatch):
    X, y = labelled()
    table = pd.DataFrame(X, columns=list("wxyz")).assign(label=y, bag=np.arange(len(X)) // 12)
    table.to_csv(tmp_path / "rows.csv", index=False)
    columns = {"cc": list("wxyz"), "pacc": list("wxyz"), "other": list("xw"), "turned": list("wx")}
    for name, own in columns.items():
        (hq.PACC() if name == "pacc" else hq.CC()).fit(table[own], y).save(tmp_path / name)
    reads = []
    read = reading.read_bags_and_unseen
    monkeypatch.setattr(
        reading,
        "read_bags_and_unseen",
        lambda *args, **kw: reads.append(list(kw["features"].names)) or read(*args, **kw),
    )
    known = {"bag": ["bag"], "label": "label"}
    paths = [tmp_path / name for name in columns]
    found = estimating.compare_models(paths, tmp_path / "rows.csv", **known)
    assert reads == [list("wxyz"), list("xw"), list("wx")]
    for path, own in zip(paths, columns.values(), strict=True):
        bags = hq.read_bags(tmp_path / "rows.csv", features=own, **known)
        error = hq.evaluate(hq.load(path), bags)["ae"]
        np.testing.assert_array_equal(found.errors[str(path), "ae"], error)
    reads.clear()
    with pytest.warns(UserWarning, match="^The model is not calibrated, so its intervals are Bayesian"):
        report_table(tmp_path / "page.html", paths[0], tmp_path / "rows.csv", against=paths[1:], **known)
    assert reads == [list("wxyz"), list("xw"), list("wx")]
