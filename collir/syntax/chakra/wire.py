"""The wire format of protobuf: fields of numbers and bytes, and messages behind their lengths."""

import struct
from collections.abc import Iterator

Field = tuple[int, int, int | bytes]
"""The number of a field, its wire type, and its value."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""The wire types; groups, 3 and 4, have no use in proto3."""

_LONGEST = 10
"""The most bytes of a number."""


class WireError(ValueError):
    """Bytes that are no message, with the reason."""


def varint(number: int) -> bytes:
    """Return a number in groups of 7 bits, a negative one as its 64 bits."""
    rest = number & (1 << 64) - 1
    written = bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)


def field(number: int, value: int | float | bytes | str) -> bytes:
    """Return a field: of an integer or a truth value a number, of a float its 64 bits, else bytes
    behind their length."""
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | FIXED64) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def packed(number: int, values: tuple[int, ...]) -> bytes:
    """Return the field of a list of numbers; nothing for an empty list."""
    return field(number, b"".join(map(varint, values))) if values else b""


def read_varint(data: bytes, start: int) -> tuple[int, int]:
    """Return the number at a place, as 64 bits without a sign, and the place behind it.

    Raises:
        WireError: the bytes end within it, or it has more than 64 bits.
    """
    number = 0
    for index in range(_LONGEST):
        if start + index >= len(data):
            raise WireError("it ends within a number")
        byte = data[start + index]
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if number >> 64:
                break
            return number, start + index + 1
    raise WireError("a number has more than 64 bits")


def read_bytes(data: bytes, start: int, size: int) -> tuple[bytes, int]:
    """Return some bytes at a place, and the place behind them.

    Raises:
        WireError: there are fewer.
    """
    if size > len(data) - start:
        raise WireError(f"{size} bytes are announced, and {len(data) - start} follow")
    return data[start : start + size], start + size


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message.

    Raises:
        WireError: the bytes are no message.
    """
    place = 0
    while place < len(data):
        tag, place = read_varint(data, place)
        number, wire_type = tag >> 3, tag & 7
        value: int | bytes
        if not 0 < number < 1 << 29:
            raise WireError(f"there is no field {number}")
        if wire_type == VARINT:
            value, place = read_varint(data, place)
        elif wire_type == BYTES:
            size, place = read_varint(data, place)
            value, place = read_bytes(data, place, size)
        elif wire_type in (FIXED64, FIXED32):
            value, place = read_bytes(data, place, 8 if wire_type == FIXED64 else 4)
        else:
            raise WireError(f"field {number} has wire type {wire_type}, which proto3 does not have")
        yield number, wire_type, value


def messages(data: bytes) -> Iterator[bytes]:
    """Yield messages, each preceded by its length.

    Raises:
        WireError: the bytes end within a message.
    """
    place = 0
    while place < len(data):
        size, place = read_varint(data, place)
        message, place = read_bytes(data, place, size)
        yield message
