"""Calls of collectives in C and C++: their forms, and what fills these."""

from typing import NamedTuple

from collir.dialects.local import StartOp
from collir.dialects.local_types import buffer_of
from collir.dialects.tables import OPERATIONS
from collir.ir.diagnostics import DiagnosticError
from collir.layout import place_at
from collir.layout.mesh import digits_over
from collir.targets.code.c_mesh import CMesh


class CallArguments(NamedTuple):
    """The arguments of the call of a collective, with the words of ``sizes_sent``.

    Attributes:
        blocks: the arguments for blocks that differ in size; empty if there is no such call.
        in_place: whether the result may lie in the memory of what is sent.
    """

    equal: str
    blocks: str = ""
    in_place: bool = False

    def of(self, op: StartOp) -> str:
        """Return the form for a collective.

        Raises:
            DiagnosticError: its blocks differ in size, and there is no such call.
        """
        if not any(op.counts):
            return self.equal
        if not self.blocks:
            raise DiagnosticError.at(
                op,
                f"{op.called} has no form here for blocks that differ in size: use other steps, or "
                "leave out the weights",
            )
        return self.blocks


def sizes_sent(op: StartOp, names: CMesh) -> dict[str, str]:
    """Return the numbers in the call of a collective: ``n``, the elements of a block that a rank
    sends or gets; ``leaves``, the elements that a permute sends; and ``root``."""
    x, y, kind = buffer_of(op.source), buffer_of(op.target), OPERATIONS[op.called].KIND
    count = x.elements if kind.gathers else y.elements
    if kind.exchanges and not any(op.counts):
        count = x.elements // names.mesh.group_size(op.axes.data)
    return {
        "n": names.spelled(count),
        "leaves": names.spelled(x.elements),
        "root": str(op.number("root")),
    }


def is_rank(op: StartOp, end: str, names: CMesh) -> str:
    """Return the condition that this rank is the ``root``, the ``sender`` or the ``receiver``."""
    return names.at_place(place_at(digits_over(names.mesh, op.axes.data, op.number(end))))


def partners(op: StartOp, names: CMesh, nobody: str) -> list[str]:
    """Return the variables ``to`` and ``from``: the ranks that get this rank's block, and that send
    theirs to it.

    Args:
        nobody: the rank that stands for none, at the ends of a line.
    """
    if op.peers is not None:
        lines = list[str]()
        sides = zip(("to", "from"), op.partners, (op.receivers, op.senders), strict=True)
        for end, number, ranks in sides:
            lines.append(f"int {end} = (int)({names.spelled(number)});")
            if any(rank == own for own, rank in enumerate(ranks)):
                lines.append(f"if ({end} == {len(ranks)}) {end} = {nobody};")
        return lines
    if op.before is not None and op.after is not None:
        x, y = op.before.data, op.after.data
        return [f"int {names.partner('to', x, y)};", f"int {names.partner('from', y, x)};"]
    axes, by = op.axes.data, op.number("distance")
    lines: list[str] = []
    for end, distance in (("to", by), ("from", -by)):
        if op.open is None:
            lines.append(f"int {end} = {names.next_index(axes, distance)};")
            continue
        lines.append(f"int {end} = {names.index_on_line(axes, distance)};")
        lines.append(f"if ({names.beyond_line(axes, distance, end)}) {end} = {nobody};")
    return lines
