"""The ZeRO of examples/models: each step computes what data parallel training does, and holds and
sends what Rajbhandari et al. (2020) say."""

from collections.abc import Iterator

import numpy as np
import pytest
from support.harness.seeds import chosen, some
from support.programs.model_pages import function_of, inputs_of, page
from support.semantics.differentiated import on_all_devices, on_one_device
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.programs.memory import BufferUse
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.loops import steps_with_times
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.double import in_double
from collir.transforms.gradients.differentiation import gradients_as_calls
from collir.transforms.inlining import function_without_calls

SMALL = {"batch": 64, "width": 64, "layers": 3}

D = 64
"""The devices that share the batch."""

STAGES = {
    "data_parallel": (16.0, 2),
    "zero_1": (4 + 12 / D, 3),
    "zero_2": (2 + 14 / D, 2),
    "zero_3": (16 / D, 3),
}
"""Bytes of weights, gradients and states on a device, per parameter, and how many times the bytes
of the weights a device sends (an all_reduce is two times)."""


QUICK = chosen([*STAGES], 1, "zero")


def results(name: str, inputs: dict[str, Array], everywhere: bool) -> dict[str, Array]:
    """Return the loss, the new weights and the new state of a step, by their names."""
    module = page("zero", **SMALL)
    _ = gradients_as_calls(module)
    double, function = in_double(function_of(module, name))
    given = [inputs[str(arg.name_hint)] for arg in function.args]
    run = on_all_devices(double, function, given) if everywhere else on_one_device(function, given)
    names = [str(value.name_hint) for value in function.get_return_op().operands]  # pyright: ignore
    return dict(zip(names, run, strict=True))


def random_inputs() -> dict[str, Array]:
    """Return random arguments: weights in bf16 are those of f32, and squares are positive."""
    function = function_of(page("zero", **SMALL), "data_parallel")
    drawn = inputs_of(function, 2)
    inputs = {str(arg.name_hint): x for arg, x in zip(function.args, drawn, strict=True)}
    inputs |= {f"short.{w}": inputs[f"w.{w}"] for w in ("up", "down")}
    inputs |= {name: inputs[name] ** 2 for name in ("v.up", "v.down")}
    return inputs | {"time": np.array(3.0)}


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in STAGES],
)
def test_every_stage_computes_the_step_of_data_parallel_training(name: str) -> None:
    """In f64, on 64 devices and on one."""
    inputs = random_inputs()
    expected = results("data_parallel", inputs, False)
    found = results(name, inputs, True)
    assert {"loss", "new_w.up", "new_m.up", "new_v.down"} <= found.keys() <= expected.keys()
    for value, x in found.items():
        largest = np.abs(expected[value]).max()
        assert np.abs(x - expected[value]).max() <= 1e-12 * largest, value
    assert np.abs(inputs["w.up"] - found["new_w.up"]).max() > 1e-3


def sent(function: FuncOp) -> Iterator[int]:
    """Yield the bytes of the collectives of a step, those of an all_reduce twice."""
    function = function_without_calls(function)
    mesh = mesh_of(function)
    for op, times in steps_with_times(function.body.block.ops):
        if op.mnemonic in ("all_reduce", "reduce_scatter", "all_gather"):
            types = dist_type(op.operands[0]), dist_type(op.result)
            size = max(x.local_bytes(mesh) for x in types)
            yield size * times * (2 if op.mnemonic == "all_reduce" else 1)


@pytest.mark.parametrize("passes", some(["", "inline,fuse"], 1))
def test_memory_and_traffic(passes: str) -> None:
    """Table 1 and section 7, at the sizes of the page.

    Stage 1 sends 3 times the weights instead of 2, as gradients are whole before they are cut.
    Where both are fused they become shards in every layer, as those of stage 2: first over the 16
    devices of a node, and a 16th of them over nodes.
    """
    module = collir.run_passes(page("zero"), passes) if passes else page("zero")
    _ = gradients_as_calls(module)
    simulations = {x.name: x for x in collir.simulate(module)}
    parameters = 12 * 2 * 4096 * 4 * 4096
    of_loss = 2 * 4
    stages = {**STAGES, "zero_1": STAGES["zero_2"]} if passes else STAGES
    for name, (memory, times) in stages.items():
        whole = times * 2 * parameters + of_loss
        more = 2 * parameters // 16 if passes and name == "zero_1" else 0
        assert sum(sent(function_of(module, name))) == whole + more, name
        uses = simulations[name].peak_on(0).uses
        held = sum(
            uses[use] for use in (BufferUse.PARAMETERS, BufferUse.GRADIENTS, BufferUse.STATE)
        )
        assert held == memory * parameters, name
