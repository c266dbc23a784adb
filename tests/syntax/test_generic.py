"""Generic functions: an instance is the function with its types written, for random programs."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.programs.collectives import (
    RANDOM,
    module_of,
    random_function,
    random_mesh,
    random_module,
)
from support.semantics.checks import (
    agree,
    functions_of,
    results_on_all_devices,
    results_on_one_device,
)
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.ir.diagnostics import DiagnosticError
from collir.syntax import taken
from collir.syntax.generic import DEEPEST
from collir.syntax.writer import write
from collir.transforms.inlining import function_without_calls
from collir.transforms.instantiation import instantiate

_TYPE = re.compile(r"(\w+)\[[^\]]*\](?: (?:partial|root|at)\([^)]*\))*")
_HEAD = re.compile(r"^func @(\w+)(\([^%)]*\))?\((.*)\) -> (.*) on @(\w+) \{$", re.MULTILINE)


def generic(text: str) -> str:
    """Return a program in which functions are generic, with a caller for each of them."""
    callers: list[str] = []

    def opened(match: re.Match[str]) -> str:
        name, parameters, arguments, results, mesh = match.groups()
        names = re.findall(r"%\w+(?=:)", arguments)
        own = re.findall(r"(\w+) = ", parameters or "")
        given = f"({', '.join(f'{p} = {p}' for p in own)})" * bool(own)
        made = ", ".join(f"%result_{n}" for n in range(len(_TYPE.findall(results))))
        callers.append(
            f"func @call_{name}{parameters or ''}({arguments}) -> {results} on @{mesh} {{\n"
            f"  {made} = call @{name}{given}({', '.join(names)})\n  return {made}\n}}\n"
        )
        head = f"func @{name}{parameters or ''}({arguments}) -> {results}"
        return f"{_TYPE.sub(lambda x: f'{x[1]}[...]', head)} on any {{"

    return _HEAD.sub(opened, text) + "".join(callers)


CHANGES = ("cast", "permute", "redistribute", "reshape", "broadcast_to")
"""The steps that say the type of their result, or a part of it."""


def without_identities(module: ModuleOp) -> ModuleOp:
    """Remove the changes to the type that a value has already, as generic functions do."""
    for op in list(module.walk()):
        name = op.name.partition(".")[2]
        if name in CHANGES and str(op.operands[0].type) == str(op.results[0].type):
            op.results[0].replace_all_uses_with(op.operands[0])
            op.detach()
            op.erase()
    return module


def read_twice(text: str) -> ModuleOp:
    """Return a program, which printing and reading does not change."""
    module = collir.parse(text)
    printed = write(module)
    assert write(collir.parse(printed)) == printed
    return module


@settings(max_examples=10, deadline=None)
@given(rng=RANDOM)
def test_an_instance_is_the_function_with_its_types_written(rng: random.Random) -> None:
    mesh = random_mesh(rng)
    text = write(module_of([mesh], [random_function(rng, mesh, 6, f"f{n}") for n in range(2)]))
    module = read_twice(generic(text))
    callers = [f for f in functions_of(module) if f.sym_name.data.startswith("call_")]
    assert len(callers) == 2
    for caller in callers:
        caller.detach()
    assert write(module) == write(without_identities(collir.parse(text)))


@settings(max_examples=10, deadline=None)
@given(rng=RANDOM)
def test_calls_of_generic_functions_in_others_compute_the_same(rng: random.Random) -> None:
    """What a generic function calls is lowered for the types there, on the mesh of the caller."""
    module = random_module(rng, 3, 5)
    made = read_twice(generic(write(module)))
    by_name = {function.sym_name.data: function for function in functions_of(made)}
    for number, function in enumerate(functions_of(module)):
        caller = by_name[f"call_{function.sym_name.data}"]
        expected = results_on_all_devices(module, function, number)
        results = results_on_all_devices(made, caller, number)
        assert all((a == b).all() for a, b in zip(results, expected, strict=True))


CALLER = """
machine @box { level gpu[4] { port = 300 GB/s, latency = 3 us } }
mesh @m on @box { data = gpu:4 }
func @main(%x: f32[4]) -> f32[4] on @m {
"""

LAYERS = """
machine @box { level gpu[4] { port = 300 GB/s, latency = 3 us } }
mesh @m on @box { data = gpu:2, model = gpu:2 }

func @attention = @attention on any

func @layer(batch = 2, seq = 4, width = 8, heads = 4)(%x: f32[batch@data, seq, width],
    %q: f32[width, width@model], %b: f32[width@model], %o: f32[width@model, width],
    %c: f32[width]) -> f32[batch@data, seq, width] on @m {
  %y = call @attention(seq = seq, heads = heads, size = width / heads)
    (%x, %q, %b, %q, %b, %q, %b, %o, %c)
  return %y
}
"""


def test_instances_follow_the_parameters_of_their_callers() -> None:
    """The program at other values is the one that is written with these values."""
    module = collir.parse(LAYERS)
    instantiate(module, {"seq": 6, "width": 32, "heads": 8})
    written = LAYERS.replace("seq = 4, width = 8, heads = 4", "seq = 6, width = 32, heads = 8")
    assert write(module) == write(collir.parse(written))


def test_calls_of_generic_functions_are_not_too_deep() -> None:
    chain = [f"  %y = call @f{n + 1}(%x)" for n in range(DEEPEST + 10)] + ["  %y = add %x, %x"]
    for depth in (DEEPEST, DEEPEST + 1, len(chain)):
        functions = "".join(
            f"func @f{n}(%x: f32[...]) -> f32[...] on any {{\n{step}\n  return %y\n}}\n"
            for n, step in enumerate(chain)
        )
        first = len(chain) - depth
        text = f"{CALLER}  %y = call @f{first}(%x)\n  return %y\n}}\n{functions}"
        if depth == DEEPEST:
            assert len(functions_of(collir.parse(text))) == DEEPEST + 1
            continue
        with pytest.raises(DiagnosticError, match=f"are more than {DEEPEST} deep"):
            collir.parse(text)


def test_generic_functions_are_not_made_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function calls the next one with two types, so that the number of types doubles."""
    monkeypatch.setattr(taken, "MOST", 100)
    functions = "".join(
        f"func @f{n}(%x: f32[...]) -> f32[...] on any {{\n"
        f"  %a = pad %x dim 0 high {2**n}\n  %y = call @f{n + 1}(%x)\n"
        f"  %b = call @f{n + 1}(%a)\n  return %x\n}}\n"
        for n in range(30)
    )
    text = f"{CALLER}  %y = call @f0(%x)\n  return %y\n}}\n{functions}"
    text += "func @f30(%x: f32[...]) -> f32[...] on any {\n  return %x\n}\n"
    with pytest.raises(DiagnosticError, match="with more than 100 lists of types"):
        collir.parse(text)


def test_generic_functions_come_along_from_other_files(tmp_path: Path) -> None:
    """Those that ship with collir too; a generic function of this file keeps its name."""
    (tmp_path / "lib.coll").write_text(
        "func @sgd = @sgd on any\n"
        "func @norm(%x: f32[...]) -> f32[] on any {\n"
        "  %s = sum %x dims [...]\n  %y = redistribute %s to f32[]\n  return %y\n}\n"
        "func @layer(n = 8)(%x: f32[n@data], %r: f32[]) -> f32[] on @unknown {\n"
        "  %y = call @sgd(%x, %x, %r)\n  %z = call @norm(%y)\n  return %z\n}\n",
        encoding="utf-8",
    )
    main = tmp_path / "main.coll"
    head = CALLER.partition("func @main")[0]
    main.write_text(
        f'{head}func @layer = @layer(n = 16) on @m from "lib.coll"\n'
        'func @norm = @norm on @m from "lib.coll"\n'
        "func @main(%x: f32[4@data, 2]) -> f32[] on @m {\n"
        "  %y = call @norm(%x)\n  return %y\n}\n",
        encoding="utf-8",
    )
    module = read_twice(write(collir.parse(main)))
    names = [function.sym_name.data for function in functions_of(module)]
    assert names == ["layer", "sgd", "norm_2", "norm", "main"]
    for function in functions_of(module):
        results = results_on_all_devices(module, function, 1)
        assert agree(results, results_on_one_device(function_without_calls(function), 1), 4)
