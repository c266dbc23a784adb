"""Functions whose layouts were chosen by amounts of data compute what they did, on any mesh."""

import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh
from support.programs.auto_functions import random_auto, random_layout
from support.programs.collectives import RANDOM
from support.programs.model_pages import LIMITS, SMALL, inputs_of, page
from support.programs.training_steps import random_step
from support.semantics.checks import functions_of
from support.semantics.differentiated import on_all_devices, on_one_device
from support.semantics.laid_out import check_meaning
from support.semantics.single_device import sent, single_device
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.auto import lay_out_argument
from collir.ir.verification import verify
from collir.semantics.reference.double import in_double
from collir.tools import collrun

METHOD = "shard{method=symbolic}"
MODELS = tuple(SMALL)
QUICK = ("mlp", "switch")


@pytest.mark.turns
@settings(max_examples=40)
@given(RANDOM)
def test_the_meaning_stays(rng: random.Random) -> None:
    module = random_auto(rng, weights=0.0)
    if module is not None:
        check_meaning(module, _shard)


def _shard(module: ModuleOp) -> None:
    """Choose the layouts of a module, in place."""
    _ = collir.run_passes(module, METHOD)


# --- training steps -------------------------------------------------------------------------------


def _machine(rng: random.Random) -> str:
    """Return a machine that says nothing of its devices, and a mesh of one to three axes."""
    sizes = [rng.choice([2, 2, 3, 4]) for _ in range(rng.choice([1, 2, 2, 3]))]
    if np.prod(sizes) > 12:
        sizes = sizes[:2]
    links = "port = 1 GB/s, latency = 1 us"
    levels = " ".join(f"level l{n}[{size}] {{ {links} }}" for n, size in enumerate(sizes))
    axes = ", ".join(f"{'xyz'[n]} = l{n}:{size}" for n, size in enumerate(sizes))
    return f"machine @box {{ {levels} }}\nmesh @m on @box {{ {axes} }}\n"


@cache
def _alone(name: str) -> str:
    """Return the text of the training step of a small example, of a single device."""
    text = str(collir.emit(single_device(page(name, **SMALL[name])), "coll"))
    return text[text.index("func @") :]


def _pin(rng: random.Random, function: FuncOp) -> None:
    """Give random layouts to some arguments, in place."""
    for argument in function.args:
        whole = dist_type(argument)
        to = random_layout(rng, mesh_of(function), whole) if rng.random() < 0.4 else whole
        if to != whole:
            lay_out_argument(argument, DistTensorType(to))
    inputs = [argument.type for argument in function.args]
    outputs = list(function.function_type.outputs)
    function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)


def _check(module: ModuleOp, limit: int, name: str = "step") -> FuncOp:
    """Check that a training step computes the same on all devices when its layouts are chosen, that
    types stay, and return it."""
    whole = next(f for f in functions_of(module) if f.sym_name.data == name)
    written = [dist_type(argument) for argument in whole.args]
    tensors = inputs_of(whole, limit)
    expected = on_one_device(in_double(whole)[1], tensors)
    verify(divided := collir.run_passes(module, METHOD))
    step = next(f for f in functions_of(divided) if f.sym_name.data == name)
    for x, argument in zip(written, step.args, strict=True):
        assert not x.axes or dist_type(argument).dims == x.dims
    for x, y in zip(on_all_devices(*in_double(step), tensors), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-10)
    return step


@pytest.mark.turns
@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[] if x in QUICK else [pytest.mark.slow]) for x in MODELS]
)
def test_examples_keep_their_meaning(name: str) -> None:
    rng = fresh("symbolic", name)
    for pinned in (False, True):
        module = collir.parse(_machine(rng) + _alone(name))
        if pinned:
            (step,) = functions_of(module)
            _pin(rng, step)
        _check(module, LIMITS.get(name, 2))


@pytest.mark.turns
def test_more_axes_than_are_taken_together_keep_the_meaning() -> None:
    box = "machine @box { level l[16] { port = 1 GB/s, latency = 1 us } }\n"
    mesh = "mesh @m on @box { x = l:2, y = l:2, z = l:2, w = l:2 }\n"
    step = _check(collir.parse(box + mesh + _alone("mlp")), 2)
    axes = {axis for argument in step.args for d in dist_type(argument).dims for axis in d.axes}
    assert len(axes) == 4, "all are used"


@pytest.mark.turns
@settings(max_examples=2)
@given(RANDOM)
def test_random_training_steps_keep_their_meaning(rng: random.Random) -> None:
    _check(collir.parse(_random_step(rng)), 2)


@pytest.mark.slow
def test_more_random_training_steps_keep_their_meaning() -> None:
    rng = fresh("symbolic steps")
    for _ in range(30):
        _check(collir.parse(_random_step(rng)), 2)


def _random_step(rng: random.Random) -> str:
    """Return a training step with loops, calls and gradients whose layouts are chosen."""
    while "on @m auto {" not in (text := random_step(rng).text):
        pass
    return text


# --- machines and ranks ---------------------------------------------------------------------------

BOX = """machine @box {{ {device} level l[8] {{ port = 1 GB/s, latency = 1 us }} }}
mesh @m on @box {{ x = {level}2, y = {level}4 }}
"""

DEVICES = {
    "nothing": "",
    "memory": "device { memory = 1 GB @ 1 TB/s }",
    "rates": "device { compute f32 = 1 GFLOP/s; memory = 1 GB @ 1 TB/s }",
}


@pytest.mark.turns
@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("level", ["l:", ""], ids=["placed", "unplaced"])
def test_what_devices_do_and_where_they_are_changes_nothing(device: str, level: str) -> None:
    layouts: list[dict[str, object]] = []
    for text in (BOX.format(device="", level="l:"), BOX.format(device=device, level=level)):
        module = collir.run_passes(collir.parse(text + _alone("mlp")), METHOD)
        (step,) = functions_of(module)
        axes = {argument.name_hint or "": dist_type(argument) for argument in step.args}
        short = {n: [mesh_of(step).short(d.axes) for d in x.dims] for n, x in axes.items()}
        layouts.append({**short, "sent": sent(step)})
    assert layouts[0] == layouts[1]
    assert layouts[0]["sent"], "it is divided"


@pytest.mark.turns
@pytest.mark.parametrize("engine", ["mpi4py", pytest.param("mpi", marks=pytest.mark.slow)])
def test_ranks_compute_what_numpy_does(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = collir.run_passes(
        collir.parse(BOX.format(device="", level="l:") + _alone("mlp")), METHOD
    )
    (step,) = functions_of(module)
    assert {axis for one in sent(step) for axis in one.over} == {"x", "y"}
    path = tmp_path / "mlp.coll"
    path.write_text(str(collir.emit(module, "coll")), "utf-8")
    status = collrun.main(["--engine", engine, "--function", "step", str(path)])
    printed = capsys.readouterr()
    assert status == 0, printed.out + printed.err
    assert "buffers are equal" in printed.out
