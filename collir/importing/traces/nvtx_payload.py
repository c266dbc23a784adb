"""Values that ranges of NVTX carry: NCCL says the bytes of a message, and its communicator.

They are bytes behind a header of 32, laid out by a schema that the database has too. Exports of
some versions have them as JSON.
"""

import json
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from collir.importing.traces.loose import integer, mapped

MESSAGE = "Message size [bytes]"
COMMUNICATOR = "NCCL communicator ID"
RANKS = "No. of ranks"

_HEADER = struct.Struct("<IIIIQQ")
"""Domain, reserved, schema, reserved, bytes of the payload, bytes of all."""

_FORMATS = {
    5: "<i", 6: "<I", 7: "<q", 8: "<Q", 9: "<q", 10: "<Q", 15: "<i", 16: "<I", 17: "<q", 18: "<Q",
    22: "<Q", 23: "<Q",
}  # fmt: skip
"""The formats of numbers, by NVTX's numbers of types."""


class SchemaField(NamedTuple):
    """A value of a schema."""

    name: str
    offset: int
    form: str


Schemas = Mapping[int, Sequence[SchemaField]]


def schemas_of(rows: Iterable[Sequence[object]]) -> Schemas:
    """Return schemas of rows of their numbers, and of types, names and offsets of fields."""
    found: dict[int, list[SchemaField]] = defaultdict(list)
    for schema, kind, name, offset in rows:
        form = _FORMATS.get(integer(kind, -1))
        if form and isinstance(name, str) and isinstance(schema, int):
            found[schema].append(SchemaField(name, integer(offset, 0), form))
    return found


def payload_of(data: object, written: object, schemas: Schemas) -> Mapping[str, int]:
    """Return the numbers that a range carries, in bytes or in JSON."""
    if isinstance(data, bytes) and len(data) >= _HEADER.size:
        fields = schemas.get(_HEADER.unpack_from(data)[2], ())
        numbers: dict[str, int] = {}
        for field in fields:
            at = _HEADER.size + field.offset
            if at + struct.calcsize(field.form) <= len(data):
                [numbers[field.name]] = struct.unpack_from(field.form, data, at)
        return numbers
    if isinstance(written, str):
        try:
            values = mapped(json.loads(written))
        except (ValueError, RecursionError):
            return {}
        return {key: value for key, value in values.items() if isinstance(value, int)}
    return {}
