"""A sweep rediscovers what people do: on GPT-3 175B, and on a GPT of 1.3B parameters."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from collir.synthesis.sweeping.configuration import Configuration
from collir.synthesis.sweeping.groups import Estimate
from collir.synthesis.sweeping.space import Space
from collir.tools.machine import preset
from collir.tools.sweep_model import Model

EXAMPLE = Path(__file__).parents[2] / "examples" / "models" / "sweep.coll"
GPT3 = {"seq": 2048, "hidden": 12288, "heads": 96, "layers": 96}
GPT_1B = {"seq": 2048, "hidden": 2048, "heads": 16, "layers": 24}
NODE, GPU = range(2)


def _space(sizes: dict[str, int], devices: int) -> tuple[Model, Space]:
    machine = preset("dgx_a100_80gb").op.value()
    text = EXAMPLE.read_text(encoding="utf-8")
    model = Model(str(EXAMPLE), text, "", tuple(sizes.items()), machine, "pipe")
    step = model.step
    batch, layers = step.parameters[step.batch], step.parameters[step.layers]
    axes = step.axes, step.data, step.pipeline
    return model, Space(machine, *axes, (devices,), batch, layers, chunks=(2,), schedules=("1f1b",))


def _estimates(model: Model, space: Space) -> list[tuple[Configuration, Estimate]]:
    found = model.estimator(2).estimates(space.configurations(Counter()))
    return [(c, estimate) for c, estimate in found if isinstance(estimate, Estimate)]


def _fastest(estimates: Iterable[tuple[Configuration, Estimate]], memory: float) -> Configuration:
    fits = ((estimate.time, c) for c, estimate in estimates if estimate.memory <= memory)
    return min(fits, key=lambda each: each[0])[1]


def test_tensor_parallelism_is_inside_the_node_and_stages_are_across() -> None:
    data: dict[int, int] = {}
    for batch in (128, 1536):
        model, space = _space({**GPT3, "batch": batch}, 128)
        space = replace(space, recompute=(True,), zero=(0, 1))
        best = _fastest(_estimates(model, space), 80e9)
        factors = dict(best.axes)
        assert factors["model"][NODE] == 1 < factors["model"][GPU]
        assert factors["pipe"][NODE] > 1
        data[batch] = best.degrees["data"]
    assert data[1536] > data[128], "a larger batch has more data parallelism"


def test_memory_is_paid_for_with_time_only_where_it_is_short() -> None:
    model, space = _space({**GPT_1B, "batch": 64}, 8)
    space = replace(space, degrees={"pipe": (1,), "model": (1,)})
    estimates = _estimates(model, space)
    assert not _fastest(estimates, 80e9).recompute
    short = _fastest(estimates, 20e9)
    assert short.recompute
    assert short.zero == 1
    assert min(e.memory for c, e in estimates if c.zero < 3) > 8e9
    assert _fastest(estimates, 8e9).zero == 3
