"""The time of an iteration: the parts of a step, put together as a pipeline runs them."""

from collections.abc import Sequence
from functools import lru_cache

from measured.programs import Cost, Layout, Sizes, parts_of, send_seconds, update_seconds
from measured.rows import Row

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
    if row.chunks == 1:
        microbatches = one_f_one_b(*times, row.microbatches)
    else:
        microbatches = interleaved(*times, row.microbatches, row.chunks)
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


def interleaved(
    forward: Sequence[float], backward: Sequence[float], count: int, chunks: int
) -> float:
    """Return the seconds of microbatches in interleaved 1F1B: those of the slowest stage, and a
    bubble that is as many times shorter as there are chunks (Narayanan et al. 2021)."""
    stages = [f + b for f, b in zip(forward, backward, strict=True)]
    return count * max(stages) + (sum(stages) - max(stages)) / chunks


@lru_cache(maxsize=1 << 14)
def one_f_one_b(forward: Sequence[float], backward: Sequence[float], count: int) -> float:
    """Return the seconds of microbatches in the schedule 1F1B.

    Args:
        forward, backward: the seconds of a microbatch in each stage.
        count: the number of microbatches.
    """
    stages = len(forward)
    orders = [_order(stages - stage, count) for stage in range(stages)]
    done: dict[tuple[int, bool, int], float] = {}
    free, place = [0.0] * stages, [0] * stages
    left = sum(map(len, orders))
    while left:
        for stage in range(stages):
            while place[stage] < 2 * count:
                back, number = orders[stage][place[stage]]
                before = (stage + 1 if back else stage - 1, back, number)
                if 0 <= before[0] < stages and before not in done:
                    break
                start = max(free[stage], done.get(before, 0.0))
                free[stage] = start + (backward if back else forward)[stage]
                done[stage, back, number] = free[stage]
                place[stage] += 1
                left -= 1
    return max(free)


def _order(ahead: int, count: int) -> list[tuple[bool, int]]:
    """Return the tasks of a stage in order: whether backward, and the microbatch."""
    ahead = min(ahead, count)
    order = [(False, number) for number in range(ahead)]
    for number in range(count):
        order.append((True, number))
        if ahead + number < count:
            order.append((False, ahead + number))
    return order
