"""Grids of configurations, as DistIR searches them.

Its published search of 3,105 configurations is that of three models (small, medium and large) on 16
devices, with 14 batches: 1,035 configurations of each.
"""

from collections.abc import Iterable, Iterator

from distir.configuration import MODELS, Configuration

BATCHES = tuple(2**exponent for exponent in range(7, 21))
"""The batches of the published search."""

MICROBATCHES = tuple(2**exponent for exponent in range(1, 8))
"""The numbers of microbatches that pipelines are tried with; without a pipeline there is one."""


def grid(
    model: str, devices: int | Iterable[int] = 16, batches: Iterable[int] = BATCHES
) -> list[Configuration]:
    """Return DistIR's configurations of a model on numbers of devices, which are powers of two.

    The degrees are powers of two whose product is the number of devices. Each microbatch has a row
    at least.

    Raises:
        KeyError: there is no such model.
    """
    layers, width = MODELS[model]
    numbers = [devices] if isinstance(devices, int) else list(devices)
    return [
        Configuration(layers, width, batch, data, tensor, pipeline, microbatches)
        for count in numbers
        for batch in batches
        for data, tensor, pipeline in degrees(count)
        for microbatches in (MICROBATCHES if pipeline > 1 else (1,))
        if batch >= data * microbatches
    ]


def degrees(devices: int) -> Iterator[tuple[int, int, int]]:
    """Yield the degrees of data, tensor and pipeline parallelism with a product."""
    powers = [2**exponent for exponent in range(devices.bit_length())]
    for data in powers:
        for tensor in powers:
            if devices % (data * tensor) == 0:
                yield data, tensor, devices // (data * tensor)
