"""Tests that code runs between a start and its wait what a simulation runs beside it."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from xdsl.dialects.builtin import ModuleOp

import collir

EXAMPLES = Path(__file__).parents[2] / "examples"

WAYS = """
machine @c {
  device { compute f32 = 10 TFLOP/s; memory = 16 GB @ 100 GB/s }
  level node[2] { port = 8 GB/s, latency = 3 us }
  level gpu[2] { port = 80 GB/s, latency = 3 us }
}
mesh @m on @c { data = node:2, model = gpu:2 }
func @ways(%g: f32[4096] partial(sum: data), %w: f32[64, 64@model], %x: f32[4096],
           %t: f32[64@data, 64]) -> (f32[4096], f32[64, 64], f32[4096], f32[64, 64@data]) on @m {
  %r = all_reduce %g over data async
  %a = relu %x
  %v = all_gather %w over model dim 1 async
  %b = scale %a by 2
  %z = all_to_all %t over data dim 0 to 1 async
  %c = add %a, %b
  %d = add %c, %r
  %e = relu %v
  return %d, %e, %c, %z
}
func @none(%g: f32[4096] partial(sum: data), %x: f32[4096]) -> (f32[4096], f32[4096]) on @m {
  %r = all_reduce %g over data
  %a = relu %x
  return %r, %a
}
"""


def overlapped(module: ModuleOp, function: str) -> set[str]:
    """Return the results of the collectives beside which a simulation runs later steps."""
    report = json.loads(collir.emit(module, "simulate-json"))
    [steps] = [f["steps"] for f in report["functions"] if f["name"] == function]
    found: set[str] = set()
    for place, step in enumerate(steps):
        if step.get("async"):
            beside = (x for x in steps[place + 1 :] if x["start_s"] < step["end_s"])
            found |= {step["result"]} if any(x["end_s"] > x["start_s"] for x in beside) else set()
    return found


class Forms(NamedTuple):
    """The forms of lines in code: the head of a function and what is behind it, the start of a
    collective, its wait by the number of its request, and other work."""

    head: str
    behind: str
    start: str
    wait: str
    work: str


PYTHON = Forms(
    r"def {}\(", r"\n    def ", r"(\w+)_sent = ", r"{}_sent\.[Ww]ait\(\)$", r"\w+(\[.*\])? = "
)
C = Forms(
    r"^int {}\(", r"^}}$", r".*, &(pending\[\d+\])\)\);$", r".*MPI_Wait\(&{},", r"for |\w+\(|memcpy"
)
FORMS = {"mpi4py": PYTHON, "torch": PYTHON, "mpi": C}


def under_way(code: str, function: str, target: str) -> set[str]:
    """Return the results of the collectives between whose start and wait other statements stand."""
    forms = FORMS[target]
    behind = re.split(forms.head.format(function), code, maxsplit=1, flags=re.MULTILINE)[1]
    body = re.split(forms.behind, behind, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    found: set[str] = set()
    for number, line in enumerate(lines):
        if (started := re.match(forms.start, line)) is None:
            continue
        note = next(x for x in reversed(lines[:number]) if re.match(r"(#|//) %", x))
        wait = re.compile(forms.wait.format(re.escape(started[1])))
        end = next(n for n, x in enumerate(lines) if n > number and wait.match(x))
        between = [x for x in lines[number + 1 : end] if re.match(forms.work, x)]
        found |= {note.partition("%")[2].partition(" ")[0]} if between else set()
    return found


@pytest.mark.parametrize("target", FORMS)
def test_the_code_overlaps_what_the_simulation_does(target: str) -> None:
    module = collir.parse(WAYS)
    code = collir.emit(module, target)
    assert overlapped(module, "ways") == {"r", "v", "z"} == under_way(code, "ways", target)
    assert overlapped(module, "none") == set() == under_way(code, "none", target)


@pytest.mark.parametrize("target", FORMS)
def test_so_does_that_of_an_example_behind_overlap(target: str) -> None:
    module = collir.run_passes(collir.parse(EXAMPLES / "sync_gradients.coll"), "decompose,overlap")
    code = collir.emit(module, target)
    for function in re.findall(r"^func @(\w+)", collir.emit(module, "coll"), re.MULTILINE):
        assert overlapped(module, function) <= under_way(code, function, target)
