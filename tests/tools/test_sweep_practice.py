"""A sweep rediscovers what people do: on GPT-3 175B, and on a GPT of 1.3B parameters."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from support.tools.swept import GPT, all_of, estimates_of, space_of

from collir.synthesis.sweeping.configuration import Configuration
from collir.synthesis.sweeping.groups import ConfigurationEstimate

GPT3 = GPT._replace(sizes={"seq": 2048, "hidden": 12288, "heads": 96, "layers": 96})
GPT_1B = GPT._replace(sizes={"seq": 2048, "hidden": 2048, "heads": 16, "layers": 24, "batch": 64})
NODE, GPU = range(2)


def _fastest(
    estimates: Iterable[tuple[Configuration, ConfigurationEstimate]], memory: float
) -> Configuration:
    fits = ((estimate.time, c) for c, estimate in estimates if estimate.memory <= memory)
    return min(fits, key=lambda each: each[0])[1]


@pytest.mark.parametrize(
    ("degrees", "zero"),
    [
        pytest.param({"data": (2, 4, 8, 16, 32, 64, 128)}, (1,), id="divided"),
        pytest.param({}, (0, 1), id="all"),
    ],
)
@pytest.mark.slow
def test_tensor_parallelism_is_inside_the_node_and_stages_are_across(
    degrees: dict[str, tuple[int, ...]], zero: tuple[int, ...]
) -> None:
    model = GPT3.model
    space = replace(space_of(model, 128), schedules=("1f1b",), recompute=(True,))
    space = replace(space, degrees=degrees, zero=zero)
    batches = 128, 1536
    configurations = all_of(*(replace(space, batch=batch) for batch in batches))
    estimates = estimates_of(model, configurations, workers=2)
    data: list[int] = []
    for batch in batches:
        best = _fastest((each for each in estimates if each[0].batch == batch), 80e9)
        factors = dict(best.axes)
        assert factors["model"][NODE] == 1 < factors["model"][GPU]
        assert factors["pipe"][NODE] > 1
        data.append(best.degrees["data"])
    few, many = data
    assert many > few or (many == few and 1 in zero), "a larger batch has more data parallelism"


@pytest.mark.slow
def test_memory_is_paid_for_with_time_only_where_it_is_short() -> None:
    model = GPT_1B.model
    space = replace(space_of(model, 8), degrees={"pipe": (1,), "model": (1,)})
    estimates = estimates_of(model, all_of(space), workers=2)
    assert not _fastest(estimates, 80e9).recompute
    assert _fastest(estimates, 8e9).recompute
    whole = [(c, e) for c, e in estimates if c.zero < 3]
    assert _fastest(whole, 15e9).recompute
    assert min(e.memory for _, e in whole) > 12e9
    assert _fastest(estimates, 12e9).zero == 3


@pytest.mark.slow
def test_gathers_that_computations_hide_cost_nothing() -> None:
    """FSDP inside of a node is as fast as copies of all weights, and needs half of the memory."""
    model = GPT_1B.model
    space = replace(space_of(model, 8), degrees={"pipe": (1,), "model": (1,)}, recompute=(False,))
    estimates = {
        c.zero: (c, e) for c, e in estimates_of(model, all_of(replace(space, microbatch=(4,))))
    }
    divided, whole = (model.simulated(estimates[zero][0]) for zero in (3, 0))
    assert divided.time < whole.time
    assert divided.peak < whole.peak / 2
