"""The time of an iteration: the parts of a step, put together as a pipeline runs them."""

from collections.abc import Sequence
from functools import lru_cache

from measured.programs import Cost, Layout, Sizes, parts_of, send_seconds, update_seconds
from measured.rows import Row

from collir.cost.programs.pipelines import run_pipeline
from collir.layout.pipelines.rules import RULES
from collir.machine import Machine


def predicted_seconds(row: Row, on: Machine) -> float:
    """Return the seconds of an iteration."""
    sizes, layout = Sizes.of(row), Layout.of(row)
    parts = parts_of(sizes, on)
    layers = row.layers // row.pipeline
    back = parts.layer_back + parts.layer if row.recompute == "full" else parts.layer_back
    last = row.pipeline - 1
    forward: list[float] = []
    backward: list[float] = []
    for stage in range(row.pipeline):
        ahead = [parts.embedding] * (stage == 0)
        behind = [parts.head] * (stage == last)
        forward.append(elapsed([*ahead, parts.layer * layers, *behind]))
        ahead = [parts.head_back] * (stage == last)
        behind = [parts.embedding_back] * (stage == 0) + [parts.words] * (stage in (0, last))
        backward.append(elapsed([*ahead, back * layers, *behind]))
    send = send_seconds(layout, row.micro * row.seq * row.hidden, on)
    times = [tuple(time + send for time in stages) for stages in (forward, backward)]
    microbatches = pipeline_seconds(*times, row.microbatches, row.chunks)
    weights = weights_of_stage(row, sizes.vocab)
    return microbatches + update_seconds(layout, weights, on)


def elapsed(parts: Sequence[Cost]) -> float:
    """Return the seconds of parts in order. The device waits for the host, which issues the kernels
    of each part at a constant rate, and runs ahead of it in parts where the device is slower."""
    device = host = 0.0
    for part in parts:
        device = max(max(device, host) + part.device, host + part.host)
        host += part.host
    return device


def weights_of_stage(row: Row, vocab: int) -> float:
    """Return the weights of a device of the first stage."""
    hidden, layers = row.hidden, row.layers // row.pipeline
    divided = layers * (12 * hidden**2 + 7 * hidden) + vocab * hidden
    return divided / row.tensor + layers * 6 * hidden + row.seq * hidden


@lru_cache(maxsize=1 << 14)
def pipeline_seconds(
    forward: Sequence[float], backward: Sequence[float], count: int, chunks: int
) -> float:
    """Return the seconds of microbatches in the schedule 1F1B, interleaved if stages have chunks.

    Args:
        forward, backward: the seconds of a microbatch in each stage.
        count: the number of microbatches.
        chunks: the chunks of layers of each stage, which take equally long.
    """
    rule = RULES["1f1b" if chunks == 1 else "interleaved"]
    stages = len(forward)
    graph = rule.graph(stages, chunks)
    seconds = {"F": forward, "B": backward}
    durations = {
        (kind, chunk): seconds[kind][stage] / chunks
        for (kind, chunk), stage in graph.places.items()
    }
    return run_pipeline(rule.schedule(stages, count, chunks), graph, durations).time
