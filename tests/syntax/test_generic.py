"""Generic functions: an instance is the function with its types written, for random programs."""

import random
import re

from checks import functions_of, results_on_all_devices
from hypothesis import given, settings
from programs import RANDOM, module_of, random_function, random_mesh, random_module
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.ir.instantiation import instantiate
from collir.syntax.writer import write

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


def read_twice(text: str) -> ModuleOp:
    """Return a program, which printing and reading does not change."""
    module = collir.parse(text)
    printed = write(module)
    assert write(collir.parse(printed)) == printed
    return module


@settings(max_examples=15, deadline=None)
@given(rng=RANDOM)
def test_an_instance_is_the_function_with_its_types_written(rng: random.Random) -> None:
    mesh = random_mesh(rng)
    text = write(module_of([mesh], [random_function(rng, mesh, 6, f"f{n}") for n in range(2)]))
    module = read_twice(generic(text))
    callers = [f for f in functions_of(module) if f.sym_name.data.startswith("call_")]
    assert len(callers) == 2
    for caller in callers:
        caller.detach()
    assert write(module) == text


@settings(max_examples=15, deadline=None)
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


LAYERS = """
machine @box { level gpu[4] { port = 300 GB/s, latency = 3 us } }
mesh @m on @box { data = gpu:2, model = gpu:2 }

func @attention = @attention on any

func @layer(batch = 2, seq = 4, width = 8, heads = 4)(%x: f32[batch@data, seq, width],
    %q: f32[width, width@model], %b: f32[width@model], %o: f32[width@model, width],
    %c: f32[width]) -> f32[batch@data, seq, width] on @m {
  %y = call @attention(seq = seq, heads = heads, size = width / heads)(%x, %q, %b, %q, %b, %q, %b, %o, %c)
  return %y
}
"""


def test_instances_follow_the_parameters_of_their_callers() -> None:
    """The program at other values is the one that is written with these values."""
    module = collir.parse(LAYERS)
    instantiate(module, {"seq": 6, "width": 32, "heads": 8})
    written = LAYERS.replace("seq = 4, width = 8, heads = 4", "seq = 6, width = 32, heads = 8")
    assert write(module) == write(collir.parse(written))
