"""Messages of Chakra's traces are those of protobuf, and what is written is read back."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collir.syntax.chakra import wire
from collir.syntax.chakra.messages import (
    ChakraNode,
    NodeType,
    read_node,
    read_version,
    written_node,
    written_trace,
)
from collir.syntax.chakra.wire import WireError

BY_PROTOC = bytes.fromhex(
    "08ac021217723a20616c6c5f726564756365206f76657220646174611807220301ac022a010238b9"
    "60520e0a0969735f6370755f6f70d80100520d0a09636f6d6d5f74797065480052120a09636f6d6d"
    "5f73697a6548808080808020520d0a0770675f6e616d65ea01013352150a0c696e766f6c7665645f"
    "64696de201040a02010052150a08636f6d6d5f73726338ffffffffffffffffff01520f0a0b74656e"
    "736f725f73697a656807520c0a017819000000000000f83f520d0a0179f201070a01610a02626352"
    "170a017a22120a10000000000000e03f0000000000000040"
)
"""A node with the attributes of ASTRA-sim, serialized by protobuf 6 from ``et_def.proto``."""

NODE = ChakraNode(
    300,
    "r: all_reduce over data",
    NodeType.COMM_COLL,
    (1, 300),
    (2,),
    0,
    12345,
    {
        "is_cpu_op": False,
        "comm_type": 0,
        "comm_size": 1 << 40,
        "pg_name": "3",
        "involved_dim": (True, False),
        "comm_src": -1,
        "tensor_size": 7,
        "x": 1.5,
        "y": ("a", "bc"),
        "z": (0.5, 2.0),
    },
)

OTHER_KINDS = bytes.fromhex(
    "0805180442030a017652080a01612d0000c03f52050a01627805520d0a0163a90109000000000000"
    "0052090a0164bd01feffffff520a0a016562050a0301ac0252080a0166fa01020001520a0a016792"
    "01040a02010252120a0168420d0a0bffffffffffffffffff0105520d0a0169c901f9ffffffffffff"
    "ff52100a016aa2010a0a08010000000200000052030a016b"
)
"""Attributes of kinds that are not written here, by protobuf, and inputs, which are not read."""


def test_a_node_is_that_of_protobuf() -> None:
    assert written_node(NODE) == BY_PROTOC
    assert read_node(BY_PROTOC) == NODE


def test_all_kinds_of_attributes_are_read() -> None:
    assert read_node(OTHER_KINDS) == ChakraNode(5, "", NodeType.COMP, attributes={
        "a": 1.5, "b": -3, "c": 9, "d": -2, "e": (1, 300), "f": b"\0\1", "g": (-1, 1),
        "h": (-1, 5), "i": -7, "j": (1, 2), "k": False,
    })  # fmt: skip


def test_a_trace_begins_with_its_metadata() -> None:
    first, second = wire.messages(b"".join(written_trace([NODE])))
    assert first == bytes.fromhex("0a05312e302e30")
    assert read_version(first) == "1.0.0"
    assert second == BY_PROTOC


NUMBERS = st.integers(0, 2**64 - 1)
TEXTS = st.text(max_size=8)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    TEXTS,
    st.binary(max_size=8),
    *(
        st.lists(x, min_size=1, max_size=3).map(tuple)
        for x in (st.booleans(), st.integers(-(2**63), 2**63 - 1), TEXTS, st.binary(max_size=3))
    ),
)
NODES = st.builds(
    ChakraNode,
    NUMBERS,
    TEXTS,
    st.sampled_from(NodeType),
    st.lists(NUMBERS, max_size=3).map(tuple),
    st.lists(NUMBERS, max_size=3).map(tuple),
    NUMBERS,
    NUMBERS,
    st.dictionaries(TEXTS, VALUES, max_size=4),
)


@given(node=NODES)
def test_what_is_written_is_read_back(node: ChakraNode) -> None:
    assert read_node(written_node(node)) == node


@given(node=NODES, rng=st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_broken_messages_are_errors(node: ChakraNode, rng: random.Random) -> None:
    """Nothing but a ``WireError`` comes of bytes that are cut off, changed or random."""
    data = bytearray(written_node(node))
    for _ in range(rng.randint(1, 3)):
        if data and rng.random() < 0.7:
            data[rng.randrange(len(data))] = rng.randrange(256)
    cut = bytes(data[: rng.randint(0, len(data))])
    for bytes_ in (cut, bytes(data), rng.randbytes(20)):
        try:
            read_node(bytes_)
            for _ in wire.messages(bytes_):
                pass
        except WireError:
            pass


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("08", "it ends within a number"),
        ("08ffffffffffffffffff7f", "a number has more than 64 bits"),
        ("08ffffffffffffffffffff01", "a number has more than 64 bits"),
        ("12ffffffff0f61", "4294967295 bytes are announced, and 1 follow"),
        ("0b", "field 1 has wire type 3, which proto3 does not have"),
        ("0000", "there is no field 0"),
        ("0a0161", "field 1 has wire type 2, not 0"),
        ("1001", "field 2 has wire type 0, not 2"),
        ("1201ff", "a text is not UTF-8"),
        ("1863", "there is no node of type 99"),
        ("5203180161", "field 3 has wire type 0, not 1"),
    ],
)
def test_a_broken_message_says_why(text: str, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        read_node(bytes.fromhex(text))
