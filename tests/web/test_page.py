"""The page in a real browser, with the real server behind it."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from histnetq.cli import main
from tests.conftest import hard_unless
from tests.serving import serving

api = pytest.importorskip("playwright.sync_api", reason="The page is tested by playwright: pip install '.[dev]'.")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is needed: pip install '.[dev]'.")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="The page is tested in chromium, which is not installed.")

FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
SIZES = pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["1280", "390"])
EVIL = "<img src=x onerror=\"document.title='broken'\">"
TOKEN = "0123456789abcdef-right"
WAIT = 120_000  # milliseconds: the machine may be busy


def run(*arguments: Any) -> None:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output


def draw_rows(n_bags: int, size: int, seed: int = 0, **more: Any) -> pd.DataFrame:
    """Rows of cod, eel and herring, told apart by two columns, in bags of many mixes."""
    rng = np.random.default_rng(seed)
    mixes = rng.dirichlet(np.ones(3), n_bags)
    code = (rng.random(n_bags * size)[:, None] > np.repeat(mixes.cumsum(1), size, axis=0)[:, :2]).sum(1)
    tow = np.repeat([f"tow {i + 1}" for i in range(n_bags)], size)
    length, width = rng.normal(size=(2, len(code))) + np.array([[0, 3, 0], [0, 0, 3]])[:, code]
    species = np.array(["cod", "eel", "herring"])[code]
    return pd.DataFrame({"tow": tow, "length": length.round(4), "width": width.round(4), "species": species, **more})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with tables, and with two models in `models`."""
    folder = tmp_path_factory.mktemp("page")
    rows = draw_rows(60, 40)
    rows.to_csv(folder / "rows.csv", index=False)
    rows.drop(columns="species").to_csv(folder / "bare.csv", index=False)
    shares = rows.groupby("tow")["species"].value_counts(normalize=True).unstack(fill_value=0.0).reset_index()
    shares.to_csv(folder / "tows.csv", index=False)
    rows.assign(species=rows["species"].replace("eel", f"eel {EVIL}")).to_csv(folder / "evil.csv", index=False)
    (folder / "models").mkdir()
    known = ("--bag", "tow", "--label", "species", "--method", "pacc", "-o")
    run("fit", folder / "rows.csv", *known, folder / "models" / "fish")
    run("fit", folder / "evil.csv", *known, folder / "models" / "odd")
    return folder


@pytest.fixture(scope="module")
def address(place: Path) -> Iterator[str]:
    """The server's address; it asks for a token, which tabs have unless a test takes it away."""
    (place / "token").write_text(TOKEN)
    (place / "token").chmod(0o600)
    with serving(place / "models", "--token-file", str(place / "token")) as served:
        yield served.address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Any]:
    """Open tabs in a browser of their own; afterwards nothing has left the server's address, and no script failed."""
    with contextlib.ExitStack() as stack:
        asked, broken, contexts = [], [], []

        def open_tab(path: str = "/", viewport: dict[str, int] = WIDE, signed: bool = True, **options: Any) -> Any:
            if not contexts:
                contexts.append(stack.enter_context(browser.new_context(viewport=viewport, **options)))
                contexts[0].set_default_timeout(WAIT)
                if signed:
                    contexts[0].add_init_script(f"sessionStorage.setItem('histnetq-token', '{TOKEN}')")
            tab = contexts[0].new_page()
            tab.on("request", lambda request: asked.append(request.url))
            tab.on("pageerror", lambda error: broken.append(str(error)))
            tab.on("console", lambda said: "Content Security" in said.text and broken.append(said.text))
            tab.goto(address + path)
            return tab

        yield open_tab
    assert asked
    assert [url for url in asked if not url.startswith((f"{address}/", f"blob:{address}/"))] == []
    assert broken == []


def give(tab: Any, file: Any, after: int = 0) -> None:
    """Choose a file, after so many others, and wait until it has arrived."""
    tab.locator("input[type=file]").set_input_files(file)
    tab.locator(".file.done").nth(after).wait_for()


def estimate(tab: Any, file: Any, model: str = "fish") -> None:
    tab.get_by_role("radio", name=re.compile(model)).check()
    give(tab, file)
    tab.get_by_role("button", name="Estimate", exact=True).click()
    tab.locator(".tiles").wait_for()


def read_pages(tab: Any) -> pd.DataFrame:
    """Read all pages of the table of bags."""
    rows = []
    while True:
        rows += tab.locator("table.bags").last.evaluate(
            """table => [...table.tBodies[0].rows].map(row => [
                row.cells[0].textContent, row.cells[1].textContent, row.cells[row.cells.length - 1].textContent,
                ...[...row.querySelectorAll("data")].map(cell => Number(cell.value)),
            ])"""
        )
        later = tab.get_by_role("button", name=re.compile("Later bags"))
        if not later.is_visible() or later.is_disabled():
            return pd.DataFrame(rows)
        later.click()


def alert(tab: Any) -> str:
    """What the alert says, once there is one."""
    shown = tab.locator("[role=alert] p, p[role=alert]").first
    shown.wait_for()
    return str(shown.text_content())


@SIZES
def test_numbers_are_those_of_the_command_line(opened, place, viewport):
    tab = opened(viewport=viewport)
    estimate(tab, place / "bare.csv")
    assert tab.get_by_role("heading", level=1).text_content() == "The mix of 60 bags"
    out = place / f"estimates-{viewport['width']}.csv"
    run("predict", place / "models" / "fish", place / "bare.csv", "--bag", "tow", "-o", out)
    expected, found = pd.read_csv(out), read_pages(tab)
    wide = expected.pivot(index="tow", columns="class", values="estimate").loc[found[0]]
    np.testing.assert_array_equal(found[[3, 4, 5]].to_numpy(), wide.to_numpy())
    about = expected.drop_duplicates("tow").set_index("tow").loc[found[0]]
    assert found[2].tolist() == about["trust"].tolist()
    assert found[1].astype(int).tolist() == about["n"].tolist()
    with tab.expect_download() as saved:
        tab.get_by_role("button", name="Estimates as CSV").click()
    assert saved.value.path().read_bytes() == out.read_bytes()
    command = tab.locator("pre").text_content()
    assert re.fullmatch(r"histnetq predict \S*fish bare.csv --bag tow -o estimates.csv", command)
    assert tab.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


@pytest.mark.hard
def test_report_is_downloaded(opened, place):
    tab = opened()
    estimate(tab, place / "bare.csv")
    with tab.expect_download() as saved:
        tab.get_by_role("button", name="Report as a page").click()
    assert "Class shares in 60 bags" in saved.value.path().read_text()


def test_bags_are_sorted_found_and_opened_by_keyboard(opened, place):
    tab = opened(permissions=["clipboard-read", "clipboard-write"])
    estimate(tab, place / "bare.csv")
    tab.get_by_role("button", name="eel", exact=True).press("Enter")
    eels = read_pages(tab)[4]
    assert eels.is_monotonic_decreasing
    tab.get_by_role("button", name="eel", exact=True).press("Enter")
    assert read_pages(tab)[4].is_monotonic_increasing
    assert tab.get_by_role("columnheader", name="eel").get_attribute("aria-sort") == "ascending"
    tab.get_by_label("Find a bag").fill("tow 17")
    bag = tab.get_by_role("button", name="tow 17")
    bag.press("Enter")
    sheet = tab.get_by_role("dialog", name="tow 17")
    sheet.wait_for()
    assert sheet.get_by_role("row").count() == 4
    assert sheet.locator("data").first.get_attribute("value") is not None
    tab.keyboard.press("Escape")
    sheet.wait_for(state="hidden")
    assert bag.evaluate("node => node === document.activeElement")
    tab.get_by_role("button", name="Copy").click()
    assert tab.evaluate("navigator.clipboard.readText()") == tab.locator("pre").text_content()


def test_mix_over_time_has_the_alerts_of_monitor(opened, place):
    rows = draw_rows(1, 7200, seed=3)
    week = np.repeat(np.arange(24), 300)
    eel = rows["species"] == "eel"
    # The last weeks have no eel: theirs become cod.
    rows.loc[eel & (week >= 20), "length"] -= 3
    rows["caught"] = (pd.Timestamp("2026-01-05") + pd.to_timedelta(7 * week + 1, unit="D")).strftime("%Y-%m-%d")
    rows.drop(columns=["tow", "species"]).to_csv(place / "weeks.csv", index=False)
    tab = opened()
    tab.get_by_role("radio", name=re.compile("fish")).check()
    give(tab, place / "weeks.csv")
    tab.get_by_label("Bag column").select_option(label="All rows are one bag")
    tab.get_by_label("Time column").select_option("caught")
    tab.get_by_label("Period").select_option("W")
    tab.get_by_label("Reference").fill("2026-01..2026-04")
    tab.get_by_role("button", name="Estimate", exact=True).click()
    tab.locator(".tiles").wait_for()
    out = place / "monitor.csv"
    timed = ("--time", "caught", "--period", "W", "--reference", "2026-01..2026-04")
    run("monitor", place / "models" / "fish", place / "weeks.csv", *timed, "--csv", out)
    expected = pd.read_csv(out)
    moved = expected.groupby("chunk")["alert"].any()
    assert moved.sum() >= 4
    assert tab.get_by_role("heading", level=1).text_content() == f"The mix has moved in {moved.sum()} periods"
    assert tab.locator(".alert-mark").count() == expected["alert"].sum()
    cells = tab.locator("table.bags").first.locator("data").evaluate_all("all => all.map(cell => Number(cell.value))")
    np.testing.assert_array_equal(cells, expected["estimate"])
    tab.set_viewport_size(NARROW)
    assert tab.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    with tab.expect_download() as saved:
        tab.get_by_role("button", name="Periods as CSV").click()
    assert saved.value.path().read_bytes() == out.read_bytes()


def test_learn_and_go_on_to_estimate(opened, place):
    tab = opened("/#/learn", NARROW)
    give(tab, place / "rows.csv")
    assert tab.get_by_label("Label column").input_value() == "species"
    assert tab.get_by_label("Bag column").input_value() == '["tow"]'
    tab.get_by_label("Name of the model").fill("learned")
    tab.get_by_label("Method").select_option("emq")
    tab.get_by_role("button", name="Learn", exact=True).click()
    tab.get_by_role("heading", name="learned is learned").wait_for()
    assert "60 bags of 2,400 rows from rows.csv" in tab.locator(".model-card").text_content()
    assert "Calibrated by cross-validated estimates of 60 bags" in tab.locator(".model-card").text_content()
    tab.get_by_role("link", name="Estimate with it").click()
    chosen = tab.get_by_role("radio", name=re.compile("learned"))
    chosen.wait_for()
    assert chosen.is_checked()
    estimate(tab, place / "bare.csv", "learned")
    assert len(read_pages(tab)) == 60


def test_learning_goes_on_after_a_reload_and_keeps_nothing_when_cancelled(opened, place):
    tab = opened("/#/learn")
    give(tab, place / "rows.csv")
    tab.get_by_role("radio", name=re.compile("Another table")).check()
    tab.get_by_label("Name of the model").fill("halfway")
    tab.get_by_role("button", name="Learn", exact=True).click()
    assert alert(tab) == "The proportions of the bags are not known yet; choose their table."
    give(tab, place / "tows.csv", 1)
    tab.get_by_role("button", name="Learn", exact=True).click()
    tab.get_by_role("heading", name="Learning").wait_for()
    tab.reload()
    tab.locator(".progress-words", has_text="Reading the table").wait_for()
    assert tab.locator(".lead").text_content() == "halfway, from rows.csv."
    tab.get_by_role("button", name="Cancel").click()
    tab.get_by_role("heading", name="Cancelled").wait_for()
    assert sorted(path.name for path in (place / "models").iterdir() if "halfway" in path.name) == []
    tab.get_by_role("link", name="Estimate", exact=True).click()
    tab.get_by_role("radio", name=re.compile("fish")).wait_for()
    assert tab.get_by_role("radio", name=re.compile("halfway")).count() == 0


def test_progress_tells_methods_epochs_and_the_time_left(opened):
    """The answers are made up here: real ones would take minutes to come to this."""
    waiting = {"name": "DeepSets", "state": "waiting", "epoch": None, "epochs": None, "error": None, "seconds": None}
    job = {
        "id": "j_1", "kind": "learn", "asked": {"name": "fish", "table": "t_1", "table_name": "rows.csv"},
        "state": "running", "progress": 0.42, "seconds_left": 200, "stage": "Comparing methods", "error": None,
        "messages": [], "methods": [
            {**waiting, "name": "HistNetQ", "state": "done", "error": 0.0213, "seconds": 30},
            {**waiting, "name": "EMNetQ", "state": "running", "epoch": 3, "epochs": 20}, waiting,
        ],
    }  # fmt: skip
    tab = opened()
    tab.route("**/v1/jobs/j_1", lambda route: route.fulfill(json=job))
    tab.evaluate("location.hash = '#/learn/j_1'")
    tab.locator(".methods").wait_for()
    rows = tab.locator(".methods tbody tr").evaluate_all("rows => rows.map(r => [...r.cells].map(c => c.textContent))")
    assert [[cell.replace("\xa0", " ").strip() for cell in row if cell.strip()] for row in rows] == [
        ["HistNetQ", "done", "2.13", "30 seconds"], ["EMNetQ", "is learning epoch 3 of 20"], ["DeepSets", "waits"],
    ]  # fmt: skip
    assert tab.get_by_text("Comparing methods. About 3 minutes left.").first.is_visible()
    assert tab.get_by_role("progressbar", name="Progress").evaluate("bar => bar.value") == 0.42
    assert tab.get_by_role("status").text_content() == "Comparing methods. About 3 minutes left."
    assert tab.get_by_role("heading", name="Learning").evaluate("node => node === document.activeElement")
    job["state"], job["error"] = "failed", "label: expected two classes at least, got one; choose another column."
    assert alert(tab) == job["error"]
    assert tab.get_by_role("link", name="Back to the form").get_attribute("href") == "#/learn?table=t_1"


def test_a_reload_keeps_the_table_and_the_result(opened, place):
    tab = opened()
    tab.get_by_role("radio", name=re.compile("odd")).check()
    give(tab, place / "bare.csv")
    tab.reload()
    tab.locator(".file.done").wait_for()
    assert tab.get_by_role("radio", name=re.compile("odd")).is_checked()
    tab.get_by_role("button", name="Estimate", exact=True).click()
    tab.locator(".tiles").wait_for()
    before = read_pages(tab)
    tab.reload()
    tab.locator(".tiles").wait_for()
    assert read_pages(tab).equals(before)


def test_wrong_files_are_told_and_the_form_goes_on(opened, place):
    tab = opened(viewport=NARROW)
    file = tab.locator("input[type=file]")
    file.set_input_files({"name": "scan.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.4"})
    endings = ".csv, .tsv, .txt, .parquet, .pq, .xlsx, .jsonl, .ndjson"
    assert alert(tab) == f"scan.pdf: expected a file that ends in {endings}; save the table as one of them."
    file.set_input_files({"name": "rows.parquet", "mimeType": "", "buffer": b"PAR1 and nothing else"})
    tab.locator("#alert p", has_text=re.compile("is not a complete Parquet file|cannot be read as Parquet")).wait_for()
    assert tab.locator(".drop").is_visible()
    other = b"tow,weight\na,1\na,2\n"
    give(tab, {"name": "other.csv", "mimeType": "text/csv", "buffer": other})
    assert "This table lacks 2 columns that the model reads: length, width." in tab.locator("main").text_content()
    assert tab.locator("#alert p").count() == 0
    tab.get_by_role("button", name="Estimate", exact=True).click()
    assert "length" in alert(tab)
    tab.goto(tab.url.split("#")[0] + "#/estimate/j_unknown")
    tab.get_by_role("link", name="Start again").click()
    estimate(tab, place / "bare.csv")


def test_servers_without_models_with_limits_or_without_an_answer(opened, place):
    """The answers are made up here: each would need a server of its own."""
    answer = {"models": [], "can_learn": False, "learns_into": "", "limits": {"upload_bytes": 1000}}
    tab = opened()
    tab.route("**/v1/models", lambda route: route.fulfill(json=answer))
    tab.reload()
    tab.get_by_role("link", name="Learn a model").click()
    tab.get_by_text("This server serves a single model; start histnetq serve with a directory of models.").wait_for()
    broken = {"name": "old", "problem": "old: cannot be read; learn it again."}
    answer.update(can_learn=True, models=[broken])
    tab.reload()
    tab.locator("input[type=file]").set_input_files(place / "rows.csv")
    assert re.fullmatch(r"rows.csv has \d+ kB, and this server accepts at most 1.0 kB; send a part .*", alert(tab))
    tab.get_by_role("link", name="Estimate", exact=True).click()
    tab.get_by_text("old: cannot be read; learn it again.").wait_for()
    assert tab.get_by_role("heading", name="No model yet").is_visible()
    tab.unroute("**/v1/models")
    tab.route("**/v1/models", lambda route: route.abort())
    tab.get_by_role("link", name="Learn", exact=True).click()
    assert alert(tab) == "The server does not answer; check that histnetq serve is still running, then try again."
    tab.get_by_role("link", name="Start again").wait_for()


@pytest.mark.hard
def test_two_tabs_do_not_disturb_each_other(opened, place):
    few = draw_rows(5, 30, seed=1)
    few.to_csv(place / "few.csv", index=False)
    first, second = opened(), opened()
    for tab, model, file in ((first, "fish", "bare.csv"), (second, "odd", "few.csv")):
        tab.get_by_role("radio", name=re.compile(model)).check()
        give(tab, place / file)
    for tab in (first, second):
        tab.get_by_role("button", name="Estimate", exact=True).click()
    for tab, n, file in ((first, 60, "bare.csv"), (second, 5, "few.csv")):
        tab.locator(".tiles").wait_for()
        assert file in tab.locator(".lead").text_content()
        assert len(read_pages(tab)) == n


def test_names_and_cells_are_shown_as_text(opened, place):
    rows = draw_rows(3, 20).assign(note=EVIL)
    rows["tow"] = rows["tow"] + EVIL
    rows[f"column {EVIL}"] = 1
    tab = opened()
    tab.get_by_role("radio", name=re.compile("odd")).check()
    carried = tab.evaluate_handle(
        """([name, text]) => {
            const carried = new DataTransfer();
            carried.items.add(new File([text], name));
            return carried;
        }""",
        [f"rows {EVIL}.csv", rows.to_csv(index=False)],
    )
    tab.dispatch_event(".drop", "drop", {"dataTransfer": carried})
    tab.locator(".file.done").wait_for()
    assert EVIL in tab.locator(".preview").text_content()
    tab.get_by_label("Bag column").select_option('["tow"]')
    tab.get_by_role("button", name="Estimate", exact=True).click()
    tab.locator(".tiles").wait_for()
    assert tab.get_by_role("button", name=f"tow 1{EVIL}", exact=True).is_visible()
    assert f"eel {EVIL}" in tab.locator("table.bags thead").text_content()
    tab.get_by_role("button", name=f"tow 1{EVIL}", exact=True).click()
    assert tab.get_by_role("dialog").get_by_role("heading").text_content() == f"tow 1{EVIL}"
    assert tab.locator("img").count() == 1
    assert tab.title() == "Estimate · histnetq"


def test_ten_thousand_bags(opened, place):
    draw_rows(10_000, 2, seed=2).drop(columns="species").to_parquet(place / "many.parquet")
    tab = opened()
    estimate(tab, place / "many.parquet")
    assert tab.get_by_text("1–50 of 10,000 bags").is_visible()
    assert tab.locator("table.bags tbody tr").count() == 50
    assert tab.locator("svg *").count() < 5000
    tab.get_by_label("Find a bag").fill("tow 9999")
    assert tab.locator("table.bags tbody tr").count() == 1


@pytest.mark.parametrize("megabytes", [20, pytest.param(200, marks=pytest.mark.hard)])
def test_large_files_show_how_far_they_are(opened, place, megabytes):
    block = draw_rows(40, 1000, seed=4).drop(columns="species").to_csv(index=False, header=False).encode()
    n_blocks = megabytes * 10**6 // len(block) + 1
    with open(place / "large.csv", "wb") as file:
        file.write(b"tow,length,width\n")
        for _ in range(n_blocks):
            file.write(block)
    tab = opened()
    tab.get_by_role("radio", name=re.compile("fish")).check()
    tab.locator("input[type=file]").set_input_files(place / "large.csv")
    tab.get_by_role("progressbar", name="Sending large.csv").wait_for()
    tab.locator(".file.done").wait_for()
    tab.get_by_role("button", name="Estimate", exact=True).click()
    tab.get_by_role("progressbar", name="Progress").wait_for()
    if megabytes > 100:  # which takes long enough
        tab.get_by_role("button", name="Cancel").click()
        tab.get_by_role("heading", name="Cancelled").wait_for()
        tab.get_by_role("link", name="Back to the form").click()
        tab.get_by_role("button", name="Estimate", exact=True).click()
        tab.get_by_role("progressbar", name="Progress").wait_for()
        tab.reload()
        tab.get_by_role("progressbar", name="Progress").wait_for()
    tab.locator(".tiles").wait_for()
    assert f"{40_000 * n_blocks:,} rows" in tab.locator(".tiles").text_content()
    (place / "large.csv").unlink()


def test_an_upload_is_cancelled(opened, place):
    tab = opened()
    with open(place / "long.csv", "wb") as file:
        file.write(b"tow,length\n" + b"a,1\n" * 12_000_000)
    tab.locator("input[type=file]").set_input_files(place / "long.csv")
    tab.get_by_role("button", name="Cancel").click()
    tab.locator(".drop").wait_for()
    assert tab.locator("input[type=file]").evaluate("node => node === document.activeElement")
    (place / "long.csv").unlink()


@pytest.mark.parametrize(
    ("viewport", "scheme"),
    hard_unless(lambda viewport, scheme: (viewport is WIDE) == (scheme == "dark"),
                itertools.product([WIDE, NARROW], ["light", "dark"])),
)  # fmt: skip
def test_axe_finds_nothing_serious(opened, place, viewport, scheme):
    tab = opened(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")

    def check(view: str) -> None:
        found = axe.Axe().run(tab).response["violations"]
        grave = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(view, one["id"], one["nodes"][0]["html"]) for one in grave] == []

    give(tab, place / "bare.csv")
    check("form")
    tab.get_by_role("button", name="Estimate", exact=True).click()
    tab.locator(".tiles").wait_for()
    check("result")
    tab.locator(".bag-name").first.click()
    check("detail")
    tab.keyboard.press("Escape")
    tab.get_by_role("link", name="Learn").click()
    give(tab, place / "rows.csv")
    check("learn")
    tab.get_by_role("button", name="Choose another").click()
    tab.locator("input[type=file]").set_input_files({"name": "scan.pdf", "mimeType": "", "buffer": b"%PDF"})
    alert(tab)
    check("alert")


def test_a_token_is_asked_for(opened):
    tab = opened(signed=False)
    tab.get_by_label("Token").fill("0123456789abcdef-wrong")
    tab.get_by_role("button", name="Go on").click()
    tab.wait_for_function("document.querySelector('input[type=password]')?.value === ''")
    tab.get_by_label("Token").fill(TOKEN)
    tab.get_by_role("button", name="Go on").click()
    tab.get_by_role("radio", name=re.compile("fish")).wait_for()
