"""The struct of a mesh in C and C++: its members, and the names of meshes."""

from collections.abc import Callable, Iterable, Sequence

from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.operation import is_collective
from collir.dialects.tensor import dist_type
from collir.ir.blocks import cuts_in, shares_in
from collir.layout import DistType, Mesh
from collir.layout.cuts import GroupShares
from collir.targets.code.c_text import C, Comment, CustomOperator, MeshNames, Words, comment
from collir.targets.code.ranks import OverList, axes_text

LINKAGE = 'extern "C" '
"""The words of C++ before functions that C may call."""


def struct_text(names: MeshNames, storage: str, kind: str, note: str = "") -> list[str]:
    """Return the struct of a mesh without its end; ``kind`` is the C type of a communicator."""
    mesh = names.mesh
    lines = [
        Comment(
            f"/* mesh @{mesh.name} on @{comment(mesh.machine.name)}: {mesh.devices} ranks, "
            f"{comment(axes_text(mesh))}. */"
        ),
        f"{storage} struct {{",
        f"  {kind} comm;{note}",
        "  int rank;",
    ]
    if mesh.sub_axes:
        coordinates = ", ".join(names.members[sub.name] for sub in mesh.sub_axes)
        lines.append(f"  int {coordinates}; /* this rank's coordinates */")
    lines += [
        f"  {kind} {name}; /* ranks that differ in {comment(', '.join(over))} only */"
        for over, name in names.communicators.items()
    ]
    lines += [
        f"  size_t {name}; /* this rank's units of what {comment(', '.join(over))} cuts */"
        for over, name in names.shares.items()
    ]
    return lines + [
        f"  const int *{name}; /* the units of those that differ in {comment(', '.join(over))} */"
        for (over, _), name in names.parts.items()
    ]


def coordinates_text(names: MeshNames) -> list[str]:
    """Return the statements that set this rank's coordinates."""
    values = names.definitions(f"{names.variable}.rank")
    lines = [f"  {coordinate} = {value};" for coordinate, value in values]
    for over, name in names.shares.items():
        table = _int_table([names.mesh.uneven[over[0]].shares(over)])
        lines.append(f"  {{ static const int shares[] = {table};")
        lines.append(f"    {names.variable}.{name} = (size_t)shares[{names.index_over(over)}]; }}")
    for (_, shares), name in names.parts.items():
        ranks = len(shares.rows[0])
        table = _int_table(shares.rows)
        row = f" + {names.factor_over(shares.rest)} * {ranks}" if shares.rest else ""
        lines.append(f"  {{ static const int parts[] = {table};")
        lines.append(f"    {names.variable}.{name} = parts{row}; }}")
    return lines


def _int_table(rows: Sequence[Sequence[int]]) -> str:
    """Return the initialiser of an array of integers, a line for each row."""
    texts = [", ".join(map(str, row)) for row in rows]
    return "{" + ",\n     ".join(texts) + "}"


def mesh_names(
    functions: Iterable[FuncOp],
    words: Words = C,
    operator: Callable[[DistType], CustomOperator | None] = lambda x: None,
) -> dict[str, MeshNames]:
    """Return for every mesh that functions are on its names, with a communicator for every list of
    sub-axes that they send over, and the operators that their reductions need."""
    meshes: dict[str, Mesh] = {}
    lists: dict[str, dict[OverList, None]] = {}
    operators: dict[str, dict[CustomOperator, None]] = {}
    cuts: dict[str, dict[OverList, None]] = {}
    parts: dict[str, dict[tuple[OverList, GroupShares], None]] = {}
    for function in functions:
        mesh = mesh_of(function)
        meshes[mesh.name] = mesh
        over = lists.setdefault(mesh.name, {})
        custom = operators.setdefault(mesh.name, {})
        cuts.setdefault(mesh.name, {}).update(dict.fromkeys(cuts_in(function, mesh)))
        parts.setdefault(mesh.name, {}).update(dict.fromkeys(shares_in(function, mesh)))
        for op in filter(is_collective, function.body.ops):
            if op.over:
                over[op.over] = None
            if op.kind.reduces and (needed := operator(dist_type(op.input))):
                custom[needed] = None
    return {
        name: MeshNames.of(mesh, lists[name], operators[name], words, cuts[name], parts[name])
        for name, mesh in meshes.items()
    }
