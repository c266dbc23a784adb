"""Algorithms in MSCCL's XML: what is written is read; of the rest comes an error alone."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.algorithms.chunk_programs import PROGRAMS, with_fault

from collir.algorithms.checking import check
from collir.algorithms.program import ChunkBuffer, ChunkProgram, ChunkRange
from collir.importing.algorithms.msccl_xml import read_msccl_xml
from collir.importing.values import ReadError

NAMES = {
    "send": "s", "receive": "r", "receive_copy_send": "rcs", "receive_reduce_send": "rrs",
    "receive_reduce_copy": "rrc", "receive_reduce_copy_send": "rrcs", "copy": "cpy",
    "reduce": "re", "nop": "nop",
}  # fmt: skip
COLLECTIVES = {"all_reduce": "allreduce", "all_gather": "allgather", "all_to_all": "alltoall"}


def xml_of(program: ChunkProgram) -> str:
    """Return a program as its file."""
    n = len(program.ranks)
    loop = program.chunks * (1 if program.collective == "all_reduce" else n)
    lines = [
        f'<algo name="{program.name}" proto="Simple" nchannels="1" nchunksperloop="{loop}" '
        f'ngpus="{n}" coll="{COLLECTIVES[program.collective]}" inplace="{int(program.in_place)}" '
        'outofplace="1" minBytes="0" maxBytes="0">'
    ]
    for rank, own in enumerate(program.ranks):
        sizes = [
            own.sizes.get(x, 0)
            for x in (ChunkBuffer.INPUT, ChunkBuffer.OUTPUT, ChunkBuffer.SCRATCH)
        ]
        lines.append('<gpu id="{}" i_chunks="{}" o_chunks="{}" s_chunks="{}">'.format(rank, *sizes))
        depended = {x for block in own.blocks for step in block.steps for x in step.after}
        for block in own.blocks:
            lines.append(f'<tb id="{block.number}" send="{block.sends_to}" '
                         f'recv="{block.receives_from}" chan="{block.channel}">')  # fmt: skip
            for number, step in enumerate(block.steps):
                [(tb, at)] = step.after or [(-1, -1)]
                has = int((block.number, number) in depended)
                lines.append(
                    f'<step s="{number}" type="{NAMES[step.kind]}" {part("src", step.source)} '
                    f'{part("dst", step.target)} cnt="1" depid="{tb}" deps="{at}" hasdep="{has}"/>'
                )
            lines.append("</tb>")
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


def part(which: str, chunks: ChunkRange | None) -> str:
    letter, offset = (chunks.buffer[0], chunks.offset) if chunks else ("i", 0)
    return f'{which}buf="{letter}" {which}off="{offset}"'


@given(st.sampled_from(PROGRAMS), st.integers(2, 6), st.integers(0, 10_000), st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_and_found_alike(
    make: type[ChunkProgram], ranks: int, seed: int, faulty: bool
) -> None:
    program: ChunkProgram = make(ranks)  # pyright: ignore[reportCallIssue, reportArgumentType, reportAssignmentType]
    if faulty:
        program = with_fault(program, random.Random(seed))
    found = read_msccl_xml(xml_of(program).encode())
    assert (found.program.collective, found.program.chunks) == (program.collective, program.chunks)
    assert found.program.in_place == program.in_place
    assert check(found.program).counts == check(program).counts
    if not faulty:
        assert found.refused == {"msccl": [], "rccl": []}


@given(st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_bytes_that_are_changed_are_an_error_or_a_program(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(xml_of(PROGRAMS[seed % len(PROGRAMS)](3)).encode())
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(data))
        if rng.random() < 0.3:
            del data[at : at + rng.choice([1, 40, 400])]
        else:
            data[at] = rng.choice(b'0123456789-"<>/= aisor\x00\xff')
    try:
        found = read_msccl_xml(bytes(data))
    except ReadError as error:
        assert error.place.line >= 1
        return
    _ = check(found.program)


def test_limits_of_runtimes_are_said() -> None:
    found = read_msccl_xml(xml_of(PROGRAMS[0](40)).encode())
    assert found.refused["msccl"] == []
    steps, *_ = [x for x in found.refused["rccl"] if "thread block has" in x]
    assert steps == "a thread block has 64 steps at most, and one has 79"
    text = xml_of(PROGRAMS[1](3)).replace('hasdep="1"', 'hasdep="0"')
    assert "hasdep=1" in read_msccl_xml(text.encode()).refused["msccl"][0]


@pytest.mark.parametrize("text", [b"", b"\x00" * 100, b"<algo/>", b"<a>" * 5000, b'{"a": 1}'])
def test_other_texts_are_errors(text: bytes) -> None:
    with pytest.raises(ReadError):
        _ = read_msccl_xml(text)
