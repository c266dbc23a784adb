"""The page of `-t html`: what stands in it, that nothing of a program is run, and in a browser."""

import json
import re
from pathlib import Path

import pytest
from support.harness.browser import data_of, needs_browser, used
from support.programs.two_axes import machine, program

import collir
from collir.cost.model import CostModel
from collir.targets.reports.page import rendered as rendered_page
from collir.targets.reports.page.changes import changes_of
from collir.targets.reports.page.data import exposed_spans
from collir.targets.reports.page.target import Shown, page
from collir.targets.reports.page.topology import Drawing, drawings
from collir.targets.reports.pass_costs import FunctionAt
from collir.targets.reports.summary import sentences, waits_of
from collir.tools.collopt import main as collopt

jinja2 = pytest.importorskip("jinja2")

ROOT = Path(__file__).parents[2]

MACHINE = machine(4)
STEP = program(4, "f")

SYNC = f"""{MACHINE}
func @f(%g: f32[4096] partial(sum: data, model)) -> f32[4096] on @m {{
  %evil = all_reduce %g over data, model
  return %evil
}}
"""


def page_of(text: str, file: str = "") -> str:
    return page([*map(Shown, collir.simulate(collir.parse(text)))], file)


def test_a_page_and_a_trace_of_a_pipeline_have_the_streams_of_its_sends(tmp_path: Path) -> None:
    module = collir.parse(ROOT / "tests" / "filecheck" / "targets" / "pipelines.coll")
    [simulation] = collir.simulate(module)
    [function] = data_of(page([Shown(simulation)], ""))["functions"]
    lanes = [function["lanes"][step[8]] for step in function["steps"] if step[1] == "send"]
    assert lanes and {*lanes} == {"sends, stage = 0"}
    trace = tmp_path / "trace.json"
    assert collopt([str(ROOT / "examples" / "models" / "pipeline.coll"), "-p",
                    "pipeline{microbatches=4}", "-t", "trace", "-o", str(trace)]) == 0  # fmt: skip
    events = json.loads(trace.read_text())["traceEvents"]
    titles = [(x["pid"], x["args"]["name"]) for x in events if x["name"] == "process_name"]
    assert len({pid for pid, _ in titles}) == len(titles)
    assert {x["pid"] for x in events} == {pid for pid, _ in titles}
    assert any(name == "@step sends" for _, name in titles)


def test_a_function_without_steps_has_a_page() -> None:
    machine = re.sub(r"\n  device [^\n]*", "", MACHINE)
    text = f"{machine}\nfunc @f(%x: f32[4]) -> f32[4] on @m {{ return %x }}\n"
    [function] = data_of(page_of(text))["functions"]
    assert function["time"] == 0 and not function["steps"]


def test_the_collectives_of_the_tasks_of_a_pipeline_count() -> None:
    module = collir.parse(ROOT / "examples" / "models" / "pipeline.coll")
    [simulation] = [
        x for x in collir.simulate(collir.run_passes(module, "pipeline{microbatches=4}"))
        if x.name == "step"
    ]  # fmt: skip
    alone = len(simulation.collectives)
    inside = [x.pipelined.body for x in simulation.program if x.pipelined]
    assert inside and FunctionAt.of(simulation).collectives > alone + len(inside)


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
    text = page([*map(Shown, collir.simulate(collir.parse(STEP, str(path))))], str(path))
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
    module = collir.parse(path.read_text(encoding="utf-8"), str(path))
    text = page([*map(Shown, collir.simulate(module))], str(path))
    assert "<script>alert" not in text and "<img" not in text
    assert data_of(text)["source"][0] == f"// {evil}"
    assert data_of(text)["file"] == str(path)
    tags = re.findall(r"<(?:script|link|img|iframe|object)\b[^>]*>", text)
    assert {tag for tag in tags if tag != "<script>"} == {
        '<script type="application/json" id="data">'
    }
    assert not re.search(r"@import|url\((?!#)|\bfetch\(|XMLHttpRequest|WebSocket", text)


def test_a_level_is_drawn_with_its_axes_and_links() -> None:
    [simulation] = collir.simulate(collir.parse(STEP))
    node, gpu = drawings(simulation)
    assert node.title.startswith("node: 2 on a switch, 25 GB/s a port, 10.0 us; busy ")
    assert [box.lines for box in node.boxes] == [["data 0"], ["data 1"]]
    assert [box.lines for box in gpu.boxes] == [[f"model {n}"] for n in range(4)]
    assert [x.most for x in (node, gpu)] == [False, True] and not any(x.most for x in node.wires)


RING = """
machine @r { level gpu[%d] { port = 25 GB/s, latency = 10 us, %s } }
mesh @m on @r { data = gpu:%d }
func @f(%%g: f32[24000000] partial(sum: data)) -> f32[24000000] on @m {
  %%r = all_reduce %%g over data using halving_doubling
  return %%r
}
"""


def test_links_of_children_are_drawn_one_by_one() -> None:
    def drawn(count: int, links: str, model: str = "alpha-beta") -> Drawing:
        text = RING % (count, links, count)
        module = collir.parse(
            text if model == "alpha-beta" else text.replace("halving_doubling", "ring")
        )
        [drawing] = drawings(collir.simulate(module, model)[0])
        return drawing

    ring = drawn(8, "kind = ring")
    assert len(ring.wires) == 8 and len({wire.share for wire in ring.wires}) == 3
    assert sum(wire.most for wire in ring.wires) == 4 and "busy" in ring.wires[0].title
    assert len(drawn(8, "kind = full").wires) == 28
    torus = drawn(8, "kind = torus, shape = 2 x 4")
    assert len(torus.boxes) == 8 and len(torus.wires) == 4 + 2 * 3 + 2 * 2  # which go round
    large = drawn(64, "kind = torus, shape = 4 x 4 x 4")
    assert large.notes == ["3 more planes like this one are not drawn"]
    alike = drawn(8, "kind = ring", "nccl")
    assert len({wire.share for wire in alike.wires}) == 1 and "ports alone" in alike.notes[0]
    row = drawn(64, "kind = ring")
    assert [*row.boxes[-2].lines] == ["... 57 more"] and len(row.boxes) == 8
    for drawing in (ring, torus, large, row):
        assert all(box.y + box.height / 2 <= drawing.height for box in drawing.boxes)
        assert all(0 <= box.x - box.width / 2 < box.x + box.width / 2 <= 760
                   for box in drawing.boxes)  # fmt: skip


def test_what_each_pass_changed_is_shown(tmp_path: Path) -> None:
    path, out = tmp_path / "<i>own.coll", tmp_path / "own.html"
    path.write_text(SYNC, encoding="utf-8")
    run = [str(path), "-p", "cse,decompose{strategy=rs-ar-ag},canonicalize", "-t", "html"]
    assert collopt([*run, "-o", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert "Nothing changed by: cse, canonicalize." in text
    assert '<th scope="row">decompose</th>' in text and "<i>" not in text
    assert re.search(r'class="added">\+.*reduce_scatter %h_1 over', text) is None
    [function] = data_of(text)["functions"]
    assert function["beside"]["time"] > 0 and "before the passes" in text


def test_functions_without_a_cost_or_that_are_new_have_a_reason() -> None:
    module = collir.parse(STEP)
    [simulation] = collir.simulate(module)
    empty = collir.parse(MACHINE)
    changes = changes_of(simulation, [("no pass", empty), ("cse", module)], CostModel())
    first, second = changes.rows
    assert not first.cells and first.said == "there is no @f yet" and second.cells
    assert changes.before is None
    unplaced = collir.parse(STEP.replace("node:2", "2").replace("gpu:4", "4"))
    changes = changes_of(simulation, [("no pass", unplaced), ("place", module)], CostModel())
    assert "no cost" in changes.rows[0].said and changes.rows[1].added == 1
    assert [x.text for x in changes.rows[1].lines if x.sign == "-"] != []


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
  for (const x of document.querySelectorAll("details")) x.open = true;
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
    text = STEP + SYNC.removeprefix(MACHINE).replace("@f", "@g")
    module, later = collir.parse(text), collir.parse(text)
    collir.run_passes(later, "decompose{strategy=rs-ar-ag}")
    stages = [("no pass", module), ("decompose", later)]
    functions = [
        Shown(x, changes=changes_of(x, stages, CostModel())) for x in collir.simulate(later)
    ]
    document = used(page(functions, ""), USE, tmp_path)
    assert len(re.findall(r"<tr data-step", document)) == 1 + 3  # found of @f, all of @g
    assert "on the critical path" in document
    assert document.count("uplot") >= 2 and document.count("<canvas class") == 2 + 1


def test_a_page_without_jinja2_or_functions_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(collir.DiagnosticError, match="there is no function to show"):
        _ = page([], "")
    monkeypatch.setattr(rendered_page, "find_spec", lambda name: None)  # pyright: ignore
    with pytest.raises(collir.DiagnosticError, match=r"a page needs jinja2: .*'collir\[html\]'"):
        _ = page_of(STEP)
