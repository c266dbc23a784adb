"""Gathers of the next layer run beside this one where that is faster and fits, and nothing else
changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from support.passes.remarks import remarks_of
from support.programs.model_pages import function_of, inputs_of, page
from support.semantics.differentiated import on_all_devices, on_one_device
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.cost.programs.simulation import Simulation
from collir.dialects.operation import DistOp
from collir.ir.ahead import is_ahead
from collir.ir.selection import erase_other_functions
from collir.semantics.reference.double import in_double
from collir.semantics.validation.validate import compare_modules
from collir.semantics.validation.verdict import Outcome
from collir.transforms.as_run import prepare


def machine(memory: int, port: int) -> str:
    return f"""
machine @quad {{
  device {{ compute f32 = 10 TFLOP/s; memory = {memory} kB @ 1000 GB/s }}
  level gpu[4] {{ port = {port} GB/s, latency = 3 us }}
}}
mesh @m on @quad {{ data = gpu:4 }}
"""


def program(memory: int, port: int, rows: int, widths: tuple[int, int], layers: int) -> ModuleOp:
    """Return layers of two weights, which are gathered in each."""
    width, inner = widths
    return collir.parse(
        machine(memory, port)
        + f"""
func @f(%x: f32[{rows}@data, {width}], %v: f32[{layers}, {width}@data, {inner}],
    %w: f32[{layers}, {inner}@data, {width}]) -> f32[{rows}@data, {width}] on @m {{
  %y = repeat {layers} carry(%h = %x) slice(%v = %v, %w = %w) {{
    %up = all_gather %v over data dim 0
    %a = einsum "b i, i j -> b j" %h, %up
    %down = all_gather %w over data dim 0
    %b = einsum "b i, i j -> b j" %a, %down
    yield %b
  }}
  return %y
}}
"""
    )


def simulated(module: ModuleOp, name: str = "f") -> Simulation:
    copy = module.clone()
    prepare(copy)
    return simulate_function(function_of(copy, name), CostModel())


def count_ahead(module: ModuleOp) -> int:
    return sum(isinstance(op, DistOp) and is_ahead(op) for op in module.walk())


@given(
    st.sampled_from([1, 8, 300]),
    st.sampled_from([64, 1024, 8192]),
    st.sampled_from([(256, 256), (64, 512)]),
    st.sampled_from([2, 3, 6]),
    st.floats(0.5, 1.6),
)
@settings(max_examples=4, deadline=None)
def test_it_is_never_slower_and_never_takes_more_memory_than_there_is(
    port: int, rows: int, widths: tuple[int, int], layers: int, share: float
) -> None:
    before = program(10**6, port, rows, widths, layers)
    memory = int(simulated(before).peak * max(share, 1.0) / 1000) + 1
    module = program(memory, port, rows, widths, layers)
    base = module.clone()
    _ = remarks_of(base, "overlap")
    remarks = remarks_of(module, "prefetch")
    assert any("prefetch" in text for text in remarks)
    assert simulated(module).peak <= memory * 1000
    assert simulated(module).time <= simulated(before).time * (1 + 1e-9)
    _ = remarks_of(module, "rotate,overlap")
    assert simulated(module).time <= simulated(base).time * (1 + 1e-9)
    [verdict] = [x.verdict for x in compare_modules(before, module)]
    assert (verdict.outcome, verdict.how) == (Outcome.SAME, "proof")


@pytest.mark.slow
def test_sharded_training_gathers_the_next_layer_and_is_faster() -> None:
    """The third stage of ZeRO in examples/models/zero.coll, as the pipeline fsdp prefetches it."""
    pipeline = "differentiate,propagate,canonicalize,bucket,decompose,canonicalize"
    before, after = page("zero"), page("zero")
    for module, last in ((before, "overlap"), (after, "prefetch")):
        erase_other_functions(module, ["zero_3"])
        _ = remarks_of(module, f"{pipeline},{last}")
    assert count_ahead(before) == 0
    assert count_ahead(after) > 0
    _ = remarks_of(after, "rotate,overlap")
    one, other = simulated(before, "zero_3"), simulated(after, "zero_3")
    assert other.time < one.time
    assert other.peak > one.peak
    assert collir.emit(page("zero"), "coll")  # the page itself is unchanged


@pytest.mark.slow
def test_what_is_gathered_ahead_computes_the_same() -> None:
    sizes = {"batch": 64, "width": 64, "layers": 3}
    module = page("zero", **sizes)
    erase_other_functions(module, ["zero_3"])
    expected = function_of(page("zero", **sizes), "zero_3")
    _ = remarks_of(module, "differentiate,prefetch,rotate,overlap")
    made, function = in_double(function_of(module, "zero_3"))
    _, alone = in_double(expected)
    tensors = inputs_of(function, 2)
    for x, y in zip(
        on_all_devices(made, function, tensors), on_one_device(alone, tensors), strict=True
    ):
        assert_allclose(x, y, rtol=1e-9, atol=1e-11)


def two_loops(memory: int, inner: int = 512) -> ModuleOp:
    """Return a loop of two weights of unlike sizes, and another one with weights of its own."""
    body = """\
    %up = all_gather %v over data dim 0
    %a = einsum "b i, i j -> b j" %h, %up
    %down = all_gather %w over data dim 0
    %b = einsum "b i, i j -> b j" %a, %down
    yield %b
"""
    types = f"f32[4, 256@data, {inner}]", f"f32[4, {inner}@data, 256]"
    return collir.parse(
        machine(memory, 8)
        + f"""
func @f(%x: f32[4096@data, 256], %v: {types[0]}, %w: {types[1]}, %s: f32[6, 256@data, 256],
    %t: f32[6, 256@data, 256]) -> f32[4096@data, 256] on @m {{
  %y = repeat 4 carry(%h = %x) slice(%v = %v, %w = %w) {{
{body}  }}
  %z = repeat 6 carry(%h = %y) slice(%v = %s, %w = %t) {{
{body}  }}
  return %z
}}
"""
    )


@pytest.mark.turns
def test_of_several_loops_those_are_ahead_for_which_there_is_memory() -> None:
    most, least = two_loops(10**6), two_loops(10**6)
    _ = remarks_of(most, "prefetch")
    peaks = simulated(least).peak, simulated(most).peak
    counts: list[int] = []
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        memory = int(peaks[0] + part * (peaks[1] - peaks[0])) // 1000 + 1
        module = two_loops(memory)
        remarks = remarks_of(module, "prefetch")
        counts.append(count_ahead(module))
        assert len(remarks) == 2
        assert simulated(module).peak <= memory * 1000
        _ = remarks_of(module, "rotate,overlap")
        assert simulated(module).peak <= memory * 1000
    assert 0 < counts[0] < counts[-1] == count_ahead(most)
    assert counts == sorted(counts)
