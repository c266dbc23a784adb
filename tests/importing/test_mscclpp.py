"""Plans in MSCCL++'s JSON: what is written is read; of the rest comes an error alone."""

import json
import random
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.algorithms.execution_plans import MADE, all_pairs, packets

from collir.algorithms.chunks import program_of
from collir.algorithms.mscclpp.checking import check_plan
from collir.algorithms.mscclpp.text import text_of_plan
from collir.algorithms.mscclpp.writing import plan_of
from collir.algorithms.table import ALGORITHMS
from collir.importing.algorithms.mscclpp import read_mscclpp
from collir.importing.json_values import JsonDocument
from collir.importing.values import ReadError

Json = dict[str, Any]


def data_of(plan: Json) -> bytes:
    return json.dumps(plan).encode()


@pytest.mark.parametrize("kind", ["memory", "port"])
def test_what_is_written_is_read_as_it_was(kind: str) -> None:
    for algorithm in ALGORITHMS.values():
        for ranks in filter(algorithm.fits, (4,)):
            plan = plan_of(program_of(algorithm, ranks), kind)
            read = read_mscclpp(text_of_plan(plan).encode()).plan
            assert read.outline.collective == plan.outline.collective
            for one, other in zip(read.ranks, plan.ranks, strict=True):
                assert (one.sizes, one.semaphores) == (other.sizes, other.semaphores)
                assert [x for x in one.peers.values() if x] == [*other.peers.values()]
                for a, b in zip(one.blocks, other.blocks, strict=True):
                    assert [_plain(x) for x in a.operations] == [_plain(x) for x in b.operations]


def _plain(operation: Any) -> tuple[object, ...]:
    return (
        operation.name, operation.sources, operation.targets, operation.channels,
        operation.semaphores,
    )  # fmt: skip


@given(st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_bytes_that_are_changed_are_an_error_or_a_plan(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(data_of(MADE[seed % len(MADE)](2)))
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(data))
        if rng.random() < 0.3:
            del data[at : at + rng.choice([1, 40, 400])]
        else:
            data[at] = rng.choice(b'0123456789-"{}[],: eaiost\x00\xff')
    try:
        plan = read_mscclpp(bytes(data)).plan
    except ReadError as error:
        assert error.place.line >= 1
        return
    _ = check_plan(plan)


SCALARS: list[Any] = [
    None, True, -1, 0, 1, 2, 7, 2**31, 2**64, 10**24, 1.5, "", "memory", "switch", "s", "\u2028",
    [], {}, [0], [[]], {"id": 0},
]  # fmt: skip
"""Values that may stand where others belong."""


@given(st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_values_that_are_changed_are_an_error_or_a_plan(seed: int) -> None:
    rng = random.Random(seed)
    plan = MADE[seed % len(MADE)](2)
    for _ in range(rng.choice([1, 1, 3])):
        it: Any = plan
        while True:
            keys: list[Any] = [*it.keys()] if hasattr(it, "keys") else [*range(len(it))]
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(it[key], dict | list) and it[key] and rng.random() < 0.9:
                it = it[key]
                continue
            if rng.random() < 0.2:
                del it[key]
            else:
                it[key] = deepcopy(rng.choice(SCALARS))
            break
    try:
        read = read_mscclpp(data_of(plan))
    except ReadError as error:
        assert error.place.line >= 1
        return
    _ = check_plan(read.plan)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is no JSON: it ends too early"),
        ("{", "this is no JSON: it ends too early"),
        ("nan", "this is no JSON: 'nan' is no value"),
        ('{"gpus": [1,]}', "this is no JSON: `]` closes nothing here"),
        ('{"a": 1, "a": 2}', "`a` is there twice"),
        ('{"a" 1}', "this is no JSON: `:` is expected, not '1'"),
        ("{} {}", "this is no JSON: something follows the value"),
        ("[1}", "this is no JSON: `}` closes nothing here"),
        ("[01]", "this is no JSON: '01]' is no value"),
        ('["\\q"]', "this is no JSON: this text has an unknown escape"),
        ("[" * 100_000, "values are nested deeper than 64"),
        ("[" + "9" * 100_000, "a number of more than 25 digits is not read"),
        ("[]", "an object is expected here, not a list"),
        ("{}", "there is no `gpus` here"),
        ('{"gpus": {}}', "`gpus` is a list, not an object"),
        ('{"gpus": []}', "the plan has no ranks"),
        ('{"gpus": [{"id": 1}]}', "the ranks are numbered from 0 on: 1 is 0"),
        ('{"gpus": [{"id": 0, "inputChunks": 1}]}',
         "this is the form that MSCCL++ had before 2025: make the plan anew"),
    ],
)  # fmt: skip
def test_other_texts_are_errors(text: str, message: str) -> None:
    with pytest.raises(ReadError) as caught:
        _ = read_mscclpp(text.encode())
    assert caught.value.message == message


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
))  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_json_is_read_as_python_reads_it(value: Any) -> None:
    def plain(it: Any) -> Any:
        if hasattr(it.value, "keys"):
            return {name: plain(x) for name, x in it.members().items()}
        return [plain(x) for x in it.items()] if type(it.value) is list else it.value

    for indent in (None, 2):
        assert plain(JsonDocument(json.dumps(value, indent=indent).encode()).root) == value


def test_places_are_those_of_values() -> None:
    document = JsonDocument(b'{\n "a": [1,\n   true]}')
    place = document.root.items("a")[1].place
    assert (place.line, place.column) == (3, 4)


def test_what_refers_to_nothing_is_an_error() -> None:
    block = "gpus", 0, "threadblocks", 0
    for path, value, message in (
        ((*block, "ops", 1, "channel_ids"), [3],
         "3 is not among the 1 memory channels of the block"),
        ((*block, "channels", 0, "channel_ids"), [9],
         "9 is not among the 1 memory channels of the rank"),
        (("gpus", 0, "channels", 0, "connected_to"), [0], "a channel of rank 0 leads to itself"),
        (("gpus", 0, "remote_buffers", 0, "rank"), 7, "`rank` is a number from 0 to 1, not 7"),
        (("gpus", 0, "remote_buffers", 0, "access_channel_types"), ["port"],
         "remote buffer 0 is not for memory channels"),
        ((*block, "ops", 0, "name"), "flip", "there is no operation 'flip' in MSCCL++"),
        ((*block, "ops", 0, "name"), "gstore",
         "gstore: the loader knows it, and the kernel has no code for it: it would do nothing"),
        ((*block, "ops", 4, "reduce_op"), "max",
         "the kernel computes sums, whatever `reduce_op` says"),
        ((*block, "ops", 4, "dst_buff", 1, "size"), 2, "rres has ranges of unlike sizes: 1, 2"),
        (("gpus", 1, "input_chunks"), 4,
         "`input_chunks` is 2 in an all_reduce of 2 ranks with 2 chunks, not 4"),
        (("gpus", 0, "input_chunks"), 10**9,
         "`input_chunks` is a number from 0 to 1048576, not 1000000000"),
        (("collective",), "sendrecv",
         "the collective 'sendrecv' is none of allreduce, allgather, reducescatter, "
         "reduce_scatter, alltoall, broadcast, reduce, gather, scatter: say which it is, as in "
         "--collective all_reduce"),
        (("protocol",), "LL128", "`protocol` is 'Simple' or 'LL'"),
    ):  # fmt: skip
        plan = all_pairs(2)
        it: Any = plan
        for key in path[:-1]:
            it = it[key]
        it[path[-1]] = value
        with pytest.raises(ReadError) as caught:
            _ = read_mscclpp(data_of(plan))
        assert caught.value.message == message


def test_the_collective_may_be_said() -> None:
    plan = all_pairs(2) | {"collective": "mine"}
    read = read_mscclpp(data_of(plan), "all_reduce")
    assert check_plan(read.plan).is_right


def test_packets_without_room_are_an_error() -> None:
    plan = packets(2) | {"protocol": "Simple"}
    found = check_plan(read_mscclpp(data_of(plan)).plan)
    assert "for which the scratch has no room: `protocol` is not LL" in found.problems[0].message
