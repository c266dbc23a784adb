"""What a notebook shows of results."""

import copy
import html
import json
import pickle
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.tools.swept import PERCEPTRON
from xdsl.dialects.builtin import ModuleOp, UnregisteredOp

import collir
from collir.cost.calibration.device.calibration import calibrate_device
from collir.cost.calibration.device.times import parse_times
from collir.problems.knapsack import Knapsack
from collir.search import decide, enumerate_tree, k_best, optimise
from collir.targets.reports.page import rendered
from collir.tools import notebook
from collir.tools.sweep_result import SweepResult

pytest.importorskip("jinja2")

TEXT = """
machine @pair { level gpu[2] { port = 8 GB/s, latency = 3 us } }
mesh @m on @pair { data = gpu:2 }
func @sync(%g: f32[2000000] partial(sum: data)) -> f32[2000000] on @m {
  %r = all_reduce %g over data using recursive_doubling
  return %r
}
"""


EVIL = '"><script>alert(1)</script>'
ITEMS = Knapsack([60, 100, 120], [10, 20, 30], 50)
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Register in a notebook that runs, and return the functions by the names of their types."""
    functions: dict[str, Any] = {}
    formatter = SimpleNamespace(
        for_type_by_name=lambda module, name, function: functions.update(  # pyright: ignore
            {f"{module}.{name}": function}
        )
    )
    running = SimpleNamespace(
        display_formatter=SimpleNamespace(formatters={"text/html": formatter})
    )
    fake = ModuleType("IPython")
    fake.get_ipython = lambda: running  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "IPython", fake)
    notebook.register()
    return functions


def html_of(functions: dict[str, Any], value: object) -> str:
    return functions[f"{type(value).__module__}.{type(value).__name__}"](value)


def page_in(frame: str) -> str:
    [inside] = re.findall(r'srcdoc="([^"]*)"', frame)
    return html.unescape(inside)


def test_a_simulation_is_a_line_or_its_page(shown: dict[str, Any]) -> None:
    [simulation] = collir.simulate(collir.parse(TEXT))
    assert repr(simulation) == "<Simulation of @sync: 0.001003 s on 2 devices of @pair>"
    assert '<h2 id="t0">@sync</h2>' in page_in(html_of(shown, simulation))


def test_a_module_is_its_text_below_its_functions(shown: dict[str, Any]) -> None:
    text = html_of(shown, collir.parse(TEXT))
    assert text.startswith(
        "<ul><li><code>@sync(%g: f32[2000000] partial(sum: data)) -&gt; f32[2000000] on @m</code>"
    )
    assert "%r = all_reduce %g over data using recursive_doubling" in text.split("<pre", 1)[1]
    other = ModuleOp([UnregisteredOp.with_name("other.op").create()])
    assert "other.op" in html_of(shown, other)
    unknown = ModuleOp([UnregisteredOp.with_name(EVIL).create()])
    assert "<script>" not in html_of(shown, unknown)
    assert "&lt;script&gt;" in notebook.program_html(f"func {EVIL}\n")


def test_an_imported_program_is_a_line_or_its_text(shown: dict[str, Any]) -> None:
    imported = collir.Imported(TEXT, (), {}, None, False, ("a remark",))
    assert repr(imported) == "<Imported: 7 lines, 0 arguments, 1 remarks>"
    assert "<code>@sync(" in html_of(shown, imported)
    text = (EXAMPLES / "models" / "fsdp.hlo.txt").read_text(encoding="utf-8")
    hlo = collir.import_hlo(text, mesh={"data": 2, "fsdp": 4})
    assert re.fullmatch(
        r"<ImportedHlo: \d+ lines, 7 of 7 collectives typed, 0 problems>", repr(hlo)
    )
    assert "<code>@jit_step(%ws_0: f32[32@fsdp, 32], " in html_of(shown, hlo)


def test_costs_are_a_line_or_their_report(shown: dict[str, Any]) -> None:
    module = collir.parse(TEXT)
    costs = collir.pass_costs(module, "decompose")
    assert repr(costs) == "<PassCosts of decompose: 0 saved>"
    assert "@sync on @m (@pair, 2 devices)" in html_of(shown, costs)
    pytest.importorskip("sympy")
    [formulas], function = collir.cost_formulas(module), collir.cost_function(module)
    assert repr(formulas) == "<CostFormulas of @sync in data, 2 constants of @pair>"
    assert repr(function) == "<CostFunction of @sync in data, 2 constants of @pair>"
    assert "bytes sent over data" in html_of(shown, formulas)
    assert html_of(shown, function) == html_of(shown, formulas)


def test_searches_are_a_line_or_their_page(shown: dict[str, Any]) -> None:
    best, total = optimise(ITEMS, profile=True), enumerate_tree(ITEMS)
    for outcome, line in (
        (best, r"<Optimum: optimal, value 220, \d+ nodes in \d\.\d\d s>"),
        (k_best(ITEMS, 2), r"<Optimum: optimal, value 220, the best of 2 solutions, .*>"),
        (decide(ITEMS, target=900), r"<Decision: infeasible, \d+ nodes in .*>"),
        (decide(ITEMS, target=220), r"<Decision: feasible, value 220, \d+ nodes in .*>"),
        (total, r"<Enumeration: complete, total \d+, \d+ nodes in .*>"),
    ):
        assert re.fullmatch(line, repr(outcome))
        assert "nodes were visited" in page_in(html_of(shown, outcome))
    assert "By depth" in page_in(html_of(shown, best))


def test_calibrations_are_a_line() -> None:
    times = EXAMPLES / "calibration" / "device.txt"
    device = calibrate_device(parse_times(times.read_text(encoding="utf-8"), "times"))
    assert re.fullmatch(
        r"<DeviceCalibration: \d+ numbers fitted to 162 times, 41 held back>", repr(device)
    )


def test_a_sweep_is_a_dictionary_with_a_line_and_a_page() -> None:
    options: dict[str, Any] = {"machine": "@dgx_a100_80gb", "devices": 4, "workers": 1,
                               "degree": {"pipe": 1, "model": 1}, "microbatch": 2, "zero": 0,
                               "recompute": "none"}  # fmt: skip
    found = collir.sweep(PERCEPTRON.path, **options)
    line = r"<SweepResult: [\d.]+ [mu]s on 4 devices is the fastest of \d+ listed>"
    assert re.fullmatch(line, repr(found))
    assert "4 devices of @dgx_a100_80gb" in page_in(str(found._repr_html_()))  # pyright: ignore
    for same in (dict(found), json.loads(json.dumps(found)), pickle.loads(pickle.dumps(found)),
                 copy.deepcopy(found)):  # fmt: skip
        assert same == found
    assert pickle.loads(pickle.dumps(found))._repr_html_() is None
    assert repr(SweepResult({})) == "<SweepResult: no configuration>"
    machines: dict[str, Any] = {
        "machines": [{"best": []}, {"best": [{"seconds": 1e-3, "devices": 8}]}]
    }
    assert repr(SweepResult(machines)) == (
        "<SweepResult: 1.00 ms on 8 devices is the fastest of 1 listed>"
    )


def test_a_title_and_a_page_are_escaped() -> None:
    frame = str(notebook.framed(lambda: EVIL, EVIL))
    assert "<script>" not in frame and page_in(frame) == EVIL


def test_without_jinja2_there_is_the_line_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendered, "find_spec", lambda name: None)  # pyright: ignore
    assert notebook.search_html(optimise(ITEMS)) is None
    [simulation] = collir.simulate(collir.parse(TEXT))
    assert notebook.html_of(simulation) is None
    assert SweepResult({}, lambda: "x")._repr_html_() is None  # pyright: ignore[reportPrivateUsage]
