"""The named rules: their schedules are right for every size, or the size is refused in words."""

import pytest

from collir.layout.pipelines.rules import RULES
from collir.layout.pipelines.schedule import problems


@pytest.mark.parametrize("name", RULES)
def test_schedules_are_right_for_every_size(name: str) -> None:
    rule = RULES[name]
    for places in range(1, 8):
        for microbatches in range(1, 20):
            for splits in rule.splits:
                for chunks in (rule.chunks,) if rule.chunks else (1, 2, 3):
                    if rule.problems(places, microbatches, chunks, splits):
                        continue
                    schedule = rule.schedule(places, microbatches, chunks, splits)
                    graph = rule.graph(places, chunks, splits)
                    assert not problems(schedule, graph), (places, microbatches, chunks)


@pytest.mark.parametrize(
    ("name", "size", "said"),
    [
        (
            "gpipe",
            (4, 0, None, None),
            ["gpipe needs a microbatch; there are 4 places and 0 microbatches"],
        ),
        ("1f1b", (4, 8, 2, None), ["1f1b has 1 chunk at each place, not 2"]),
        (
            "interleaved",
            (4, 6, 2, None),
            [
                "interleaved needs a multiple of the places as microbatches; there are 4 places "
                "and 6 microbatches"
            ],
        ),
        (
            "zb-h1",
            (4, 8, 1, False),
            ["zb-h1 needs the gradients of weights as tasks of their own (W)"],
        ),
        (
            "dualpipe",
            (3, 5, None, None),
            [
                "dualpipe needs an even number of places; there are 3 places and 5 microbatches",
                "dualpipe needs an even number of microbatches; there are 3 places and 5 "
                "microbatches",
                "dualpipe needs at least twice as many microbatches as places; there are 3 places "
                "and 5 microbatches",
            ],
        ),
    ],
)
def test_sizes_are_refused(
    name: str, size: tuple[int, int, int | None, bool | None], said: list[str]
) -> None:
    assert RULES[name].problems(*size) == said
    with pytest.raises(ValueError, match=name):
        RULES[name].schedule(*size)


def test_chunks_have_places() -> None:
    assert RULES["interleaved"].chunk_places(3, 2) == (0, 1, 2, 0, 1, 2)
    assert RULES["zb-v"].chunk_places(3) == (0, 1, 2, 2, 1, 0)
    assert RULES["dualpipe"].chains(4) == (range(4), range(4, 8))
    assert RULES["dualpipe"].schedule(4, 10).microbatches == 5
