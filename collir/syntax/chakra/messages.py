"""The messages of an execution trace of Chakra (``et_def.proto`` of mlcommons/chakra 1.0.0)."""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from collir.syntax.chakra import wire
from collir.syntax.chakra.wire import BYTES, FIXED32, FIXED64, VARINT, WireError

VERSION = "1.0.0"
"""The version that the metadata of written traces has."""


class NodeType(IntEnum):
    """The type of a node."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7
    STORAGE = 8
    BATCH = 9
    CHECKPOINT = 10

    @property
    def title(self) -> str:
        """Its name in Chakra, such as ``COMP_NODE``."""
        return f"{self.name}_NODE"


class CommType(IntEnum):
    """The kind of a collective, the attribute ``comm_type`` of a node."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


Scalar = int | float | bool | str | bytes
Value = Scalar | tuple[Scalar, ...]
"""The value of an attribute."""


@dataclass(frozen=True)
class ChakraNode:
    """A node of the trace of a rank.

    Attributes:
        control: the ids of the nodes that it waits for, ``ctrl_deps``.
        data: the ids of the nodes whose results it takes, ``data_deps``.
        start, duration: microseconds.
        attributes: the other attributes by their names.
    """

    id: int
    name: str
    type: NodeType
    control: tuple[int, ...] = ()
    data: tuple[int, ...] = ()
    start: int = 0
    duration: int = 0
    attributes: Mapping[str, Value] = field(default_factory=dict[str, Value])

    @property
    def needed(self) -> tuple[int, ...]:
        """The ids of all nodes that end before it starts."""
        return self.control + self.data


# --- kinds of values ----------------------------------------------------------------------------

_LAST = 32
"""The number of the last kind of value."""

Convert = Callable[[Any], Scalar]


def _signed(bits: int) -> Callable[[int], int]:
    def convert(number: int) -> int:
        number &= (1 << bits) - 1
        return number - (1 << bits) if number >> bits - 1 else number

    return convert


def _zigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _unpacked(form: str) -> Convert:
    return lambda data: struct.unpack(form, data)[0]


def text(data: bytes) -> str:
    """Return the text of a field.

    Raises:
        WireError: it is not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise WireError("a text is not UTF-8") from None


_SCALARS: dict[int, tuple[int, Convert]] = {
    3: (FIXED64, _unpacked("<d")),
    5: (FIXED32, _unpacked("<f")),
    7: (VARINT, _signed(32)),
    9: (VARINT, _signed(64)),
    11: (VARINT, lambda number: number & 0xFFFFFFFF),
    13: (VARINT, int),
    15: (VARINT, _zigzag),
    17: (VARINT, _zigzag),
    19: (FIXED32, _unpacked("<I")),
    21: (FIXED64, _unpacked("<Q")),
    23: (FIXED32, _unpacked("<i")),
    25: (FIXED64, _unpacked("<q")),
    27: (VARINT, bool),
    29: (BYTES, text),
    31: (BYTES, bytes),
}
"""The wire types of the values of attributes, and their converters, by the numbers of the fields; a
list has the next number."""

_WRITTEN = {
    "num_ops": 9,
    "tensor_size": 13,
    "comm_type": 9,
    "comm_size": 9,
    "comm_src": 7,
    "comm_dst": 7,
    "comm_tag": 7,
}
"""The fields of the integers that ASTRA-sim reads; others are int64."""


def _field_of(name: str, value: Scalar) -> int:
    if isinstance(value, bool):
        return 27
    if isinstance(value, int):
        return _WRITTEN.get(name, 9)
    return 3 if isinstance(value, float) else 29 if isinstance(value, str) else 31


# --- writing ------------------------------------------------------------------------------------


def written_attribute(name: str, value: Value) -> bytes:
    """Return an attribute as a message; the values of a list are of one type."""
    head = wire.field(1, name)
    if not isinstance(value, tuple):
        return head + wire.field(_field_of(name, value), value)
    number = _field_of(name, value[0]) if value else 9
    if number in (29, 31):
        inside = b"".join(wire.field(1, x) for x in value)
    elif number == 3:
        inside = wire.field(1, b"".join(struct.pack("<d", x) for x in value))
    else:
        inside = wire.packed(1, tuple(map(int, value)))
    return head + wire.field(number + 1, inside)


def written_node(node: ChakraNode) -> bytes:
    """Return a node as a message, without the fields that have their default."""
    made = [wire.field(1, node.id)] if node.id else []
    made += [wire.field(2, node.name)] if node.name else []
    made += [wire.field(3, int(node.type))] if node.type else []
    made += [wire.packed(4, node.control), wire.packed(5, node.data)]
    made += [wire.field(6, node.start)] if node.start else []
    made += [wire.field(7, node.duration)] if node.duration else []
    made += [wire.field(10, written_attribute(*item)) for item in node.attributes.items()]
    return b"".join(made)


def written_trace(nodes: Iterable[ChakraNode]) -> Iterator[bytes]:
    """Yield the bytes of a trace: its metadata, and its nodes."""
    for message in (wire.field(1, VERSION), *map(written_node, nodes)):
        yield wire.varint(len(message)) + message


# --- reading ------------------------------------------------------------------------------------


def _checked(number: int, wire_type: int, expected: int) -> None:
    if wire_type != expected:
        raise WireError(f"field {number} has wire type {wire_type}, not {expected}")


def _listed(data: bytes, expected: int, convert: Convert) -> Iterator[Scalar]:
    """Yield the values of a list: one behind the other in one field, or in a field each."""
    for number, wire_type, value in wire.fields(data):
        if number != 1:
            continue
        if wire_type == BYTES != expected:
            assert isinstance(value, bytes)
            yield from map(convert, _apart(value, expected))
            continue
        _checked(number, wire_type, expected)
        yield convert(value)


def _apart(data: bytes, wire_type: int) -> Iterator[int | bytes]:
    place = 0
    while place < len(data):
        if wire_type == VARINT:
            number, place = wire.read_varint(data, place)
            yield number
        else:
            value, place = wire.read_bytes(data, place, 8 if wire_type == FIXED64 else 4)
            yield value


def read_attribute(data: bytes) -> tuple[str, Value]:
    """Return the name and the value of an attribute; without a value, False.

    Raises:
        WireError: the bytes are none.
    """
    name, converted = "", None
    for number, wire_type, value in wire.fields(data):
        if number == 1:
            _checked(number, wire_type, BYTES)
            assert isinstance(value, bytes)
            name = text(value)
        elif number in _SCALARS:
            expected, convert = _SCALARS[number]
            _checked(number, wire_type, expected)
            converted = convert(value)
        elif 3 < number <= _LAST:
            _checked(number, wire_type, BYTES)
            assert isinstance(value, bytes)
            converted = tuple(_listed(value, *_SCALARS[number - 1]))
    return name, False if converted is None else converted


_NUMBERS = {1: "id", 3: "type", 6: "start", 7: "duration"}
_LISTS = {4: "control", 5: "data"}


def read_node(data: bytes) -> ChakraNode:
    """Return a node.

    Raises:
        WireError: the bytes are none, or it has a type that Chakra does not have.
    """
    numbers = dict.fromkeys(_NUMBERS.values(), 0)
    lists: dict[str, list[int]] = {"control": [], "data": []}
    name, attributes = "", dict[str, Value]()
    for number, wire_type, value in wire.fields(data):
        if number in _NUMBERS:
            _checked(number, wire_type, VARINT)
            assert isinstance(value, int)
            numbers[_NUMBERS[number]] = value
        elif number in _LISTS:
            if isinstance(value, int):
                lists[_LISTS[number]].append(value)
                continue
            _checked(number, wire_type, BYTES)
            lists[_LISTS[number]] += (x for x in _apart(value, VARINT) if isinstance(x, int))
        elif number in (2, 10):
            _checked(number, wire_type, BYTES)
            assert isinstance(value, bytes)
            if number == 2:
                name = text(value)
                continue
            key, attribute = read_attribute(value)
            attributes[key] = attribute
    kind = numbers.pop("type")
    if kind not in set(NodeType):
        raise WireError(f"there is no node of type {kind}")
    control, needed = (tuple(lists[key]) for key in ("control", "data"))
    return ChakraNode(
        numbers["id"],
        name,
        NodeType(kind),
        control,
        needed,
        numbers["start"],
        numbers["duration"],
        attributes,
    )


def read_version(data: bytes) -> str:
    """Return the version in the metadata of a trace.

    Raises:
        WireError: the bytes are no metadata.
    """
    version = ""
    for number, wire_type, value in wire.fields(data):
        if number in (1, 2):
            _checked(number, wire_type, BYTES)
        if number == 1 and isinstance(value, bytes):
            version = text(value)
    return version
