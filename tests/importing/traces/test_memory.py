"""Tests of memory: a large trace is read with little of it."""

import io
import tracemalloc

import pytest
from support.importing.large_traces import Pieces, large_json

from collir.importing.traces.chrome import ChromeTrace
from collir.importing.traces.kineto import read_kineto

SIZE = 200 * 10**6


@pytest.mark.turns
def test_memory_of_a_large_trace() -> None:
    """The trace of a GPU with its stacks takes a fraction of its size."""
    stream = Pieces(large_json("kineto", SIZE, with_stacks=True))
    tracemalloc.start()
    try:
        read = read_kineto(io.BufferedReader(stream, 2**16), "large")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stream.read_bytes >= SIZE and not read.cut_off
    assert len(read.made.work) + len(read.made.collectives) > SIZE / 6000
    assert peak < SIZE / 4


def test_events_are_forgotten() -> None:
    """Reading events keeps none of them."""
    stream = Pieces(large_json("xla", SIZE // 10))
    tracemalloc.start()
    try:
        count = sum(1 for _ in ChromeTrace(io.BufferedReader(stream, 2**16)).events())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stream.read_bytes >= SIZE // 10 and count > SIZE / 10 / 1000
    assert peak < 16 * 2**20
