"""Files of NCCL's tuner plugin: what is written is read as the plugin reads it; faults are told."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collir.cost.collectives.tuning import KINDS, own_prices
from collir.importing.tuner import ALGORITHMS, COLLECTIVES, PROTOCOLS, read_tuner
from collir.importing.values import ReadError
from collir.tools.export_tuner import LAST, group_of, text_of
from collir.tools.machine import preset
from collir.tools.tuner_check import TunedCollective, problems

MACHINE = preset("dgx_h100").op.value()
TUNED = [
    TunedCollective(kind, group_of(MACHINE, ranks), 0, LAST) for ranks in (4, 16) for kind in KINDS
]
TEXT = text_of(MACHINE, TUNED)


def as_the_plugin(text: str, collective: str, size: int, nodes: int, ranks: int) -> str:
    """Return the choice of the first line that matches, read as simply as the plugin reads it."""
    for line in text.splitlines():
        if line and line[0] != "#":
            fields = [field.strip() for field in line.split(",")]
            least, most, own_nodes, own_ranks = (int(fields[at]) for at in (1, 2, 6, 7))
            fits = own_nodes in (-1, nodes) and own_ranks in (-1, ranks)
            if fields[0] == collective and least <= size <= most and fits:
                return f"{ALGORITHMS[fields[3]]}/{PROTOCOLS[fields[4]]}"
    raise AssertionError("no line matches")


@settings(max_examples=60)
@given(st.sampled_from(TUNED), st.floats(0, 62))
def test_the_plugin_takes_the_fastest_choice(tuned: TunedCollective, power: float) -> None:
    size = int(2**power)
    [name] = [name for name, kind in COLLECTIVES.items() if kind == tuned.kind]
    choice = as_the_plugin(TEXT, name, size, tuned.nodes, tuned.group.size)
    prices = own_prices(tuned.kind, tuned.group, size)
    assert prices[choice] <= min(prices.values()) * (1 + 1e-12)


def test_a_file_has_no_problems_of_its_own() -> None:
    assert not list(problems(read_tuner(TEXT), TUNED))
    windows = TEXT.replace(",ring,", " ,\tring , ").replace(",-1,-1\n", "\n")
    assert not list(problems(read_tuner(windows), TUNED))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_every_shifted_end_and_other_choice_is_told(seed: int) -> None:
    rng = random.Random(seed)
    lines = TEXT.splitlines()
    at = rng.choice([number for number, line in enumerate(lines) if not line.startswith("#")])
    fields = lines[at].split(",")
    match rng.randrange(3):
        case 0:
            fields[2] = str(int(fields[2]) - 1)
        case 1:
            fields[1] = str(int(fields[1]) + 1)
        case _:
            other = rng.choice([name for name in PROTOCOLS if name != fields[4]])
            fields[3:5] = "ring", other
    lines[at] = ",".join(fields)
    assert list(problems(read_tuner("\n".join(lines)), TUNED))


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_damaged_files_are_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    text = list("\n".join(rng.sample(TEXT.splitlines(), 6)))
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(text))
        text[at : at + rng.randint(0, 2)] = rng.choice(
            ["", ",", "\n", "#", "-", "é", "\0", "9" * 40, "x" * 300, " ", "\t", "\r"]
        )
    damaged = "".join(text)
    try:
        lines = read_tuner(damaged)
    except ReadError as error:
        rows = damaged.split("\n")
        assert 1 <= error.place.line <= len(rows)
        assert 1 <= error.place.column <= len(rows[error.place.line - 1]) + 1
        return
    for line in lines:
        assert 0 <= line.first <= line.last < 2**64


@pytest.mark.parametrize(
    ("line", "message", "column"),
    [
        ("alltoall,0,1,ring,ll,0,1,8", "no collective 'alltoall'", 1),
        ("allreduce,0,1,ring,LL,0,1,8", "no protocol 'LL'", 20),
        ("allreduce,-1,1,ring,ll,0,1,8", "min_bytes must be from 0", 11),
        ("allreduce,0,18446744073709551616,ring,ll,0,1,8", "max_bytes must be from 0", 13),
        ("allreduce,0,1,ring,ll,0,0,8", "nNodes is -1", 25),
        ("allreduce,0,1,ring,ll,0,1,8,-1,2", "regBuff is 0", 32),
        ("allreduce,0,1,ring,ll,0,1,8,-1,1,", "8 to 10 fields, not 11", 1),
        ("allreduce,0,1,ring,ll,0,1," + "8" * 250, "at most 254 characters", 255),
    ],
)
def test_a_line_is_refused(line: str, message: str, column: int) -> None:
    with pytest.raises(ReadError, match=message) as caught:
        read_tuner(f"# head\n{line}\n")
    assert (caught.value.place.line, caught.value.place.column) == (2, column)
