"""The records of a module, where the signatures of its functions name them."""

from collections.abc import Container, Mapping, Sequence

from lark import Token

from collir.ir.fields import Fields, groups, parted
from collir.ir.roles import Role
from collir.layout import Dim, DistType, Mesh
from collir.layout.sizes import written
from collir.syntax.parsing import parse
from collir.syntax.records import RecordField, RecordLowering, named_group
from collir.syntax.trees import SyntaxTree
from collir.syntax.types import FLOAT, TypeLowering

Value = tuple[str, DistType, Role | None]
"""An argument or a result of a function: its name, type and role."""


class Records:
    """The records of a module, as signatures name them.

    Attributes:
        failed: the names of records whose texts cannot be read.
    """

    def __init__(self, texts: Mapping[str, str]):
        """Read records.

        Args:
            texts: their declarations in ``.coll``, by name.
        """
        trees: list[SyntaxTree] = []
        self.failed: set[str] = set()
        if texts:  # few modules have records, and the first parse loads the grammar
            tree, _, self.failed = parse("\n".join(texts.values()), "")
            trees = tree.children
        self.lowering = RecordLowering("", [], trees, lambda _: None)
        self.names = list(texts)

    def entries(
        self, values: Sequence[Value], mesh: Mesh, sizes: Mapping[str, int]
    ) -> list[tuple[str, Fields | None, str]]:
        """Return what a signature lists for values: the name of each entry, its fields or None if
        it is a single value, and the type and the role as they are written."""
        entries: list[tuple[str, Fields | None, str]] = []
        names = [name for name, *_ in values]
        expected = groups(names, names)
        for fields, mine in zip(expected, parted(values, expected), strict=True):
            text = self._record(fields, mine, mesh, sizes) if fields else None
            if text is not None:
                entries.append((mine[0][0].partition(".")[0], fields, text))
                continue
            for name, x, role in mine:
                shown = x.text(mesh, formulas=True)
                entries.append((name, None, f"{shown} {role}" if role else shown))
        return entries

    def _record(
        self, fields: Fields, values: Sequence[Value], mesh: Mesh, sizes: Mapping[str, int]
    ) -> str | None:
        """Return the record that some values form in a function; None if they form none."""
        for name in self.names:
            declared = self._fields(name, {}, ())
            if tuple(field.name for field in declared) != fields:
                continue
            first = values[0][1].dims
            front = first[: len(first) - len(declared[0].type.parts("dim"))]
            stacked = [written(dim.size) for dim in front]
            if any(dim.axes for dim in front) or not all(map(str.isalnum, stacked)):
                continue
            given = _numbers(declared, [x.dims[len(front) :] for _, x, _ in values], sizes)
            declared = self._fields(name, given, stacked)
            pairs = list(zip(declared, values, strict=True))
            floats = [x.dtype for field, (_, x, _) in pairs if field.type.children[0] == FLOAT]
            lowering = TypeLowering("", [], mesh)
            lowering.sizes = dict(sizes)
            lowering.float_dtype = floats[0] if floats else None
            types = [lowering.type(field.type) for field in declared]
            if lowering.errors or not all(
                x is not None and x == y for x, (_, y, _) in zip(types, values, strict=True)
            ):
                continue
            roles = {role for *_, role in values}
            if all(field.role == role for field, (*_, role) in pairs):
                roles = set[Role | None]()
            if len(roles) > 1 or None in roles:
                continue
            numbers = ", ".join(f"{size} = {number}" for size, number in given.items())
            named = f"@{name}{f'({numbers})' if numbers else ''}"
            named += f"[{', '.join(stacked)}]" if stacked else ""
            return " ".join([*map(str, floats[:1]), named, *map(str, roles)])
        return None

    def _fields(
        self, name: str, given: Mapping[str, int], stacked: Sequence[str]
    ) -> list[RecordField]:
        """Return the fields of a record where sizes are given to it, and dimensions in front."""
        return self.lowering.fields(named_group(name, given, stacked), None)


def _numbers(
    fields: Sequence[RecordField], types: Sequence[Sequence[Dim]], known: Container[str]
) -> dict[str, int]:
    """Return the sizes named by fields alone, and by no parameters, with what types have in their
    place."""
    given: dict[str, int] = {}
    for field, dims in zip(fields, types, strict=True):
        for dim, actual in zip(field.type.parts("dim"), dims, strict=False):
            size = dim.children[0]
            if isinstance(size, Token) and size.type == "NAME" and size not in known:
                given.setdefault(str(size), int(actual.size))
    return given
