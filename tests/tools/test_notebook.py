"""What a notebook shows of results."""

import html
import re
import sys
from types import ModuleType, SimpleNamespace

import pytest

import collir
from collir.tools import notebook

pytest.importorskip("jinja2")

TEXT = """
machine @pair { level gpu[2] { port = 8 GB/s, latency = 3 us } }
mesh @m on @pair { data = gpu:2 }
func @sync(%g: f32[2000000] partial(sum: data)) -> f32[2000000] on @m {
  %r = all_reduce %g over data using recursive_doubling
  return %r
}
"""


def test_a_simulation_is_a_line_or_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: dict[str, object] = {}
    formatter = SimpleNamespace(
        for_type_by_name=lambda module, name, function: shown.update({f"{module}.{name}": function})  # pyright: ignore
    )
    running = SimpleNamespace(
        display_formatter=SimpleNamespace(formatters={"text/html": formatter})
    )
    fake = ModuleType("IPython")
    fake.get_ipython = lambda: running  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "IPython", fake)
    notebook.register()
    [simulation] = collir.simulate(collir.parse(TEXT))
    assert repr(simulation) == "<Simulation of @sync: 0.001003 s on 2 devices of @pair>"
    function = shown[f"{type(simulation).__module__}.{type(simulation).__name__}"]
    assert function is notebook.html_of
    frame = notebook.html_of(simulation)
    [inside] = re.findall(r'srcdoc="([^"]*)"', frame)
    assert '<h2 id="t0">@sync</h2>' in html.unescape(inside)
