"""The page of `-t html`: what stands in it, that nothing of a program is run, and in a browser."""

import re
from pathlib import Path

import pytest
from browser import data_of, needs_browser, used

import collir
from collir.targets.reports.page import rendered as rendered_page
from collir.targets.reports.page.data import exposed_spans
from collir.targets.reports.page.target import page
from collir.targets.reports.summary import sentences, waits_of

jinja2 = pytest.importorskip("jinja2")

MACHINE = """
machine @box {
  device { compute f32 = 10 TFLOP/s; memory = 40 GB @ 1 TB/s }
  level node[2] { port = 25 GB/s, latency = 10 us }
  level gpu[4]  { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { data = node:2, model = gpu:4 }
"""
STEP = f"""{MACHINE}
func @f(%x: f32[512@data, 1024], %v: f32[1024, 4096@model], %w: f32[4096@model, 1024])
    -> f32[] on @m {{
  %y = repeat 3 carry(%h = %x) with(%v = %v, %w = %w) {{
    %a = einsum "b h, h f -> b f" %h, %v
    %p = einsum "b f, f h -> b h" %a, %w
    %r = all_reduce %p over model
    yield %r
  }}
  %s = sum %y dims [0, 1]
  %l = all_reduce %s over data
  return %l
}}
"""


def page_of(text: str, file: str = "") -> str:
    return page(collir.simulate(collir.parse(text)), file)


def test_a_summary_says_what_is_waited_for() -> None:
    [simulation] = collir.simulate(collir.parse(STEP))
    time, waited, memory = sentences(simulation)
    assert time.startswith("@f takes ") and "8 devices of @box" in time
    assert "all_reduce over model" in waited and "all_reduce over data" in waited
    assert memory.startswith("Memory of a device: at most ")
    waits = waits_of(simulation)
    [loop] = [step.loop for step in simulation.steps if step.loop]
    inside = sum(step.task.time for step in loop.body.steps if step.sent)
    assert waits["all_reduce", "model"] == pytest.approx(3 * inside)


def test_what_is_sent_beside_nothing_is_exposed() -> None:
    [simulation] = collir.simulate(collir.parse(STEP))
    [(start, end)] = exposed_spans(simulation)
    sent = [n for n, step in enumerate(simulation.steps) if step.sent]
    assert (start, end) == pytest.approx(simulation.spans[sent[0]])


def test_a_page_has_all_steps_and_those_of_loops(tmp_path: Path) -> None:
    path = tmp_path / "own.coll"
    path.write_text(STEP, encoding="utf-8")
    text = page(collir.simulate(collir.parse(STEP, str(path))), str(path))
    [function] = data_of(text)["functions"]
    names = [step[0] for step in function["steps"]]
    assert names == ["%y", "%s", "%l"]
    [body] = function["bodies"]
    assert body["times"] == 3 and [x[1] for x in body["steps"]] == [
        "einsum",
        "einsum",
        "all_reduce",
    ]
    assert [x[12] for x in body["steps"]] == [[], [0], [1]]
    assert data_of(text)["source"] == STEP.splitlines()
    assert f'<span id="line{body["steps"][2][9]}" class="line">' in text


def test_nothing_of_a_program_is_run_or_fetched(tmp_path: Path) -> None:
    evil = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}'
    path = tmp_path / "a' onload='x<b>.coll"
    path.write_text(f"// {evil}\n// </script><script>alert(3)</script>\n{STEP}", encoding="utf-8")
    text = page(
        collir.simulate(collir.parse(path.read_text(encoding="utf-8"), str(path))), str(path)
    )
    assert "<script>alert" not in text and "<img" not in text
    assert data_of(text)["source"][0] == f"// {evil}"
    assert data_of(text)["file"] == str(path)
    tags = re.findall(r"<(?:script|link|img|iframe|object)\b[^>]*>", text)
    assert {tag for tag in tags if tag != "<script>"} == {
        '<script type="application/json" id="data">'
    }
    assert not re.search(r"@import|url\((?!#)|\bfetch\(|XMLHttpRequest|WebSocket", text)


def test_ten_thousand_steps_are_a_megabyte_and_a_half() -> None:
    def long(count: int) -> str:
        lines = "\n".join(f"  %y{n + 1} = add %y{n}, %y{n}" for n in range(count))
        return (
            f"{MACHINE}\nfunc @f(%y0: f32[64]) -> f32[64] on @m {{\n"
            f"{lines}\n  return %y{count}\n}}\n"
        )

    small, large = (len(page_of(long(count))) for count in (300, 1300))
    assert small + (large - small) / 1000 * 9700 < 1.5e6


USE = """
  const key = (x) => document.querySelector(".timeline")
    .dispatchEvent(new KeyboardEvent("keydown", { key: x }));
  for (const x of "ArrowDown + ArrowLeft ArrowRight - 0 Enter ArrowDown Escape".split(" ")) key(x);
  for (const x of document.querySelectorAll("button, input[type=checkbox]")) x.click();
  for (const x of document.querySelectorAll("canvas")) {
    const { left, top } = x.getBoundingClientRect();
    for (const kind of ["pointermove", "dblclick"])
      x.dispatchEvent(new MouseEvent(kind, { clientX: left + 200, clientY: top + 40 }));
    x.focus();
    x.dispatchEvent(new WheelEvent("wheel", { deltaY: 1, cancelable: true }));
  }
  document.querySelector("tbody tr[data-step]").click();
  const search = document.querySelector(".search");
  search.value = "ALL_reduce data";
  search.dispatchEvent(new Event("input"));
"""


@needs_browser
def test_every_control_works_in_a_browser(tmp_path: Path) -> None:
    document = used(page_of(STEP), USE, tmp_path)
    assert len(re.findall(r"<tr data-step", document)) == 1
    assert "on the critical path" in document
    assert document.count("uplot") >= 2


def test_a_page_without_jinja2_or_functions_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(collir.DiagnosticError, match="there is no function to show"):
        _ = page([], "")
    monkeypatch.setattr(rendered_page, "find_spec", lambda name: None)  # pyright: ignore
    with pytest.raises(collir.DiagnosticError, match=r"a page needs jinja2: .*'collir\[html\]'"):
        _ = page_of(STEP)
