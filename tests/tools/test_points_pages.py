"""The pages of `collir compare --html` and `collir calibrate --html`."""

import re
from html import unescape
from pathlib import Path

import pytest
from support.harness.browser import data_of, needs_browser, used

from collir.targets.reports.page import rendered as rendered_page
from collir.targets.reports.page.tables import HtmlCell
from collir.tools import calibrate_page, collir
from collir.tools.calibrate_page import FITTED, HELD_BACK, KIND, Number
from collir.tools.points_page import PredictedPoint, errors_by, groups, scatter, sentences, shown

pytest.importorskip("jinja2")

EXAMPLES = Path(__file__).parents[2] / "examples" / "calibration"
POD = str(EXAMPLES / "pod.coll")
FILES = [f"--from={EXAMPLES / name}" for name in ("one_host.txt", "two_hosts.txt")]
EVIL = '"><script>alert(1)</script>'


def page_of(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    path = folder / "page.html"
    assert collir.main([*words, "--html", str(path)]) == 0
    _ = capsys.readouterr()
    return path.read_text(encoding="utf-8")


def point(name: str, measured: float, predicted: float, kind: str = FITTED) -> PredictedPoint:
    return PredictedPoint(
        name,
        measured,
        predicted,
        {KIND: HtmlCell(kind), "name": HtmlCell(name)},
        {KIND: kind, "name": name},
    )


def rows_of(text: str, kind: str) -> list[list[str]]:
    """Return the texts of the cells of a table, row by row."""
    [table] = re.findall(rf'<table class="sorted {kind}">(.*?)</table>', text, re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [[unescape(x) for x in re.findall(r"<t[dh][^>]*>([^<]*)</t", row)] for row in rows]


def test_a_comparison_has_all_points_and_names_the_worst(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page_of(tmp_path, capsys, "compare", POD, *FILES)
    data = data_of(text)
    assert data["names"] == ["collective", "ranks", "source"]
    assert len(data["points"]) == 48 and sum(x[2] for x in data["points"]) == 10
    assert data["sentences"][0] == "48 predictions have a median error of 23.1%."
    assert "two_hosts.txt:27): measured 125 us, predicted 16.9 us, -86.5%." in data["sentences"][1]
    head, *rows = rows_of(text, "points")
    assert head[:4] == ["collective", "ranks", "bytes", "from"] and len(rows) == 48
    assert sorted(int(row[-1]) for row in rows if row[-1]) == [*range(1, 11)]
    assert f'data-value="{data["points"][0][0]}"' in text  # seconds, not a text that is parsed


def test_a_calibration_has_its_numbers_with_intervals_and_two_kinds_of_points(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "calibrate", POD, *FILES, "--model=alpha-beta", "--algorithm=ring"
    text = page_of(tmp_path, capsys, *words)
    data = data_of(text)
    assert data["numbers"] == ["host.port", "host.latency", "gpu.port", "gpu.latency"]
    assert data["sentences"][0] == "4 of 4 numbers were fitted to 38 times."
    assert [x[3] for x in data["points"]].count(HELD_BACK) == 10
    assert "level gpu[8] { port = 234 GB/s" in text
    assert text.count('<svg class="interval"') == 4
    assert "host.latency: from 0.97 to 1.03 of the value; before, 0.801" in text


def test_a_number_that_is_not_fitted_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "calibrate", POD, FILES[0], "--model=alpha-beta", "--algorithm=ring"
    text = page_of(tmp_path, capsys, *words)
    assert unescape(text).count("no measurement crosses level 'host'") >= 2
    assert "2 of 4 numbers were fitted to 20 times." in text


def test_a_device_has_programs_and_no_numbers_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = tmp_path / "device.txt"
    lines = (EXAMPLES / "device.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    times.write_text("".join(lines[:12] + lines[12::2]), encoding="utf-8")
    words = "calibrate", "--device", f"--from={times}", "--held-back=0"
    text = page_of(tmp_path, capsys, *words)
    data = data_of(text)
    assert data["names"] == [KIND, "program", "type"]
    assert data["sentences"][1].startswith("No times were held back. Of the fitted times, ")
    assert rows_of(text, "numbers")[0][:3] == ["number", "value", "95 % interval"]
    assert ">before<" not in text


def test_errors_are_grouped_and_the_worst_is_that_of_the_ratio() -> None:
    points = [point("half", 2.0, 1.0), point("more", 2.0, 3.2), point("same", 1.0, 1.0, HELD_BACK)]
    first, worst, close = sentences(points)
    assert first == "3 predictions have a median error of 50.0%."
    assert worst == "The furthest off is half: measured 2.00 s, predicted 1.00 s, -50.0%."
    assert close == (
        "1 of them are within 25% of the measured times; 1 are longer than measured, 2 are not."
    )
    assert [x.text for x in errors_by(points, KIND).rows[0]] == [
        "fitted", "2", "55.0%", "-50.0%", "half"
    ]  # fmt: skip
    assert [x.columns[0] for x in groups(points)] == [KIND, "name"]
    assert scatter(points)["points"][2] == [1.0, 1.0, 1, HELD_BACK, "same"]
    assert shown(points).worst[0].startswith("half: ")


def test_intervals_go_on_and_end() -> None:
    number = Number("x", 1.0, 0.5, float("inf"), 40.0, True, "1 s", "at least 0.5 s", "40 s", "y")
    text = calibrate_page.html("x", [], [number], [point("a", 1.0, 1.0)], "machine")
    assert "0.5 to 2 of the value" in text
    assert text.count('<path class="end"') == 1 and text.count('<path class="before"') == 1
    assert "x: from 0.5 to inf of the value; before, 40" in text


def test_nothing_of_a_name_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / EVIL.split("/", maxsplit=1)[0]
    folder.mkdir()
    path = folder / EVIL.split("/", maxsplit=1)[1]
    path.write_bytes((EXAMPLES / "two_hosts.txt").read_bytes())
    over = f"--from={path},over=host:2*gpu:8"
    number = Number(EVIL, 1.0, 0.5, 2.0, 1.5, True, EVIL, EVIL, EVIL, EVIL)
    points = [point(EVIL, 1.0, 2.0), point(EVIL, 1.0, 2.0, HELD_BACK)]
    for text in (
        page_of(tmp_path, capsys, "compare", POD, over),
        page_of(tmp_path, capsys, "calibrate", POD, over),
        calibrate_page.html(EVIL, [EVIL], [number], points, EVIL),
    ):
        assert "<script>alert" not in text and EVIL in unescape(text)
        tags = re.findall(r"<(?:script|link|img|iframe|object)\b[^>]*>", text)
        assert {*tags} == {"<script>", '<script type="application/json" id="data">'}


def test_a_page_that_cannot_be_made_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "none" / "page.html"
    for words in (["compare", POD], ["calibrate", POD]):
        assert collir.main([*words, *FILES, "--html", str(path)]) == 1
        assert "error: cannot write" in capsys.readouterr().err
    monkeypatch.setattr(rendered_page, "find_spec", lambda name: None)  # pyright: ignore
    for words in (["compare", POD], ["calibrate", POD], ["calibrate", "--device"]):
        # The files do not exist: nothing is read before.
        assert collir.main([*words, "--from=no.txt", "--html", str(path)]) == 1
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("error: a page needs jinja2: ")


USE = """
  const root = document.getElementById("points"), box = root.querySelector(".scatter");
  const key = (x) => box.dispatchEvent(new KeyboardEvent("keydown", { key: x }));
  for (const x of "End ArrowLeft Home ArrowRight ArrowRight".split(" ")) key(x);
  const told = [root.querySelector(".chosen").textContent];
  for (const x of document.querySelectorAll("button")) { x.click(); x.click(); }
  const over = root.querySelector(".u-over"), place = over.getBoundingClientRect();
  const at = { clientX: place.left + 20, clientY: place.bottom - 20 };
  for (const kind of ["mouseenter", "mousemove"]) over.dispatchEvent(new MouseEvent(kind, at));
  for (const row of root.querySelector("table.points").tBodies[0].rows) row.click();
  told.push(root.querySelector(".chosen").textContent);
  for (const x of root.querySelectorAll("select")) {
    x.value = x.options[x.options.length - 1].value;
    x.dispatchEvent(new Event("change"));
  }
  const field = root.querySelector("input[type=search]");
  field.value = "nothing has this";
  field.dispatchEvent(new Event("input"));
  told.push(root.querySelector(".shown").textContent, box.textContent);
  field.value = "ALL_reduce 16.4";
  field.dispatchEvent(new Event("input"));
  told.push(root.querySelector(".shown").textContent);
  root.querySelectorAll("table.points th button")[2].click();
  document.body.append(told.join(" | "));
"""


@needs_browser
def test_every_control_works_in_a_browser(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = used(page_of(tmp_path, capsys, "compare", POD, *FILES), USE, tmp_path)
    assert "0 of 48 times | None. | 2 of 48 times" in document
    assert re.search(
        r"collective all_reduce, ranks 8, bytes 1.02 KB, .* measured 40.9 us", document
    )
    table = document.split('<table class="sorted points">')[1]
    sizes = [
        float(x) for x in re.findall(r'<td class="n" data-value="([^"]*)">[\d.]+ [KMG]?B', table)
    ]
    assert len(sizes) == 48 and sizes == sorted(sizes)
    assert 'data-sort="" aria-sort="ascending"><button type="button">bytes' in table


@needs_browser
def test_the_machine_is_copied_or_selected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page_of(tmp_path, capsys, "calibrate", POD, *FILES)
    script = "document.querySelector('[data-copies]').click();"
    document = used(text, script, tmp_path)
    assert re.search(r"Copied\.|Selected: copy it with Ctrl\+C\.</span>", document)
