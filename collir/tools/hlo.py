"""A program of XLA as a program in ``.coll``, and what is said of it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from collir.importing.hlo.devices import machine_of
from collir.importing.hlo.groups import GroupsError
from collir.importing.hlo.inference import digits_of, is_collective, shardings
from collir.importing.hlo.mesh import mesh_of
from collir.importing.hlo.text import HloInstruction, HloModule, read
from collir.importing.hlo.written import HloWriter
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.syntax.reader import read as read_program


@dataclass(frozen=True, repr=False)
class ImportedHlo:
    """A program of XLA.

    Attributes:
        text: the program, in ``.coll``.
        sent: the number of its collectives.
        typed: those whose types follow from the shardings of the parameters.
        problems: why others are not typed, and which results are no blocks of arrays.
        remarks: what is costed by its operations alone.
        sources: the line of the user's Python of each collective, by its name in the program.
    """

    text: str
    sent: int
    typed: int
    problems: tuple[str, ...]
    remarks: tuple[str, ...]
    sources: Mapping[str, str]

    def __repr__(self) -> str:
        return (
            f"<ImportedHlo: {len(self.text.splitlines())} lines, {self.typed} of {self.sent} "
            f"collectives typed, {len(self.problems)} problems>"
        )

    @property
    def is_typed(self) -> bool:
        """True if all collectives make the blocks that they should, as far as types show."""
        return not self.problems


def import_hlo(
    text: str,
    file: str = "<hlo>",
    *,
    mesh: Mapping[str, int] | None = None,
    machine: str = "",
    comment: str = "",
) -> ImportedHlo:
    """Return a program that XLA printed after its partitioner, before or after optimisation.

    Args:
        mesh: the axes of the mesh of JAX, in order, with their sizes; by default the coarsest ones
            that explain all groups, called a, b, c and so on.
        machine: the machine, as a reference in ``.coll``; by default hosts of 8 H100.

    Raises:
        DiagnosticError: the text is no HLO, or it ends too early; the machine or the mesh has
            another number of devices, or groups are of several meshes; a loop has no known length.
    """
    module = read(text, file)
    at = Position(file, module.entry.line, 1)
    count = module.devices
    if count < 2:
        message = (
            "the program is for one device: XLA divided nothing (num_partitions is not above 1)"
        )
        raise DiagnosticError(Diagnostic(message, Position(file, 1, 1)))
    declared_machine = machine_of(machine, count, at)
    digits = [d for own in shardings(module) for d in own]
    for _, own in digits_of(module):
        if not isinstance(own, GroupsError):
            digits += own
    try:
        pieces = mesh_of(digits, count, mesh or {}, declared_machine.levels)
    except GroupsError as error:
        raise DiagnosticError(Diagnostic(str(error), at)) from error
    head = [*(f"// {line}".rstrip() for line in comment.splitlines())]
    declared = [declared_machine.text, f"mesh @m on @cluster {{ {pieces.text} }}", ""]
    remarks: list[str] = []
    writer = HloWriter(module, pieces, file)
    function = writer.function()
    try:
        _ = read_program("\n".join([*declared, function]), "<imported>")
    except DiagnosticError as error:
        message = error.diagnostics[0].message
        remarks.append(f"written as blocks that all devices have, as collir's rules say: {message}")
        writer = HloWriter(module, pieces, file, has_blocks=True)
        function = writer.function()
    sent = writer.typer.made.sent.values()
    typed = sum(not x.reason and x.instruction not in writer.typer.made.by_hand for x in sent)
    problems = [f"{_called(x.instruction)} is not typed: {x.reason}" for x in sent if x.reason]
    problems += writer.problems
    if by_hand := writer.typer.made.by_hand:
        count = sum(is_collective(x) for x in by_hand)
        problems.append(f"{len(by_hand)} operations of a shard_map, {count} of them collectives, "
                        "are taken as they are written: types do not check them")  # fmt: skip
    if hidden := writer.typer.made.hidden:
        remarks.append(f"{len(hidden)} tables of the devices are left out of the text: parts begin "
                       "where they fit (--xla_dump_large_constants=true writes them)")  # fmt: skip
    if writer.opaque:
        listed = ", ".join(f"{n} {name}" for name, n in Counter(writer.opaque).most_common())
        remarks.append(f"costed by their operations alone: {listed}")
    if unknown := _unknown_types(module):
        remarks.append(f"{', '.join(unknown)} have the bytes of i8, f64 or of signed integers")
    head.append(f"// {typed} of {len(sent)} collectives are typed.")
    whole = "\n".join([*head, *declared, function])
    return ImportedHlo(whole, len(sent), typed, tuple(problems), tuple(remarks), writer.sources)


def _called(x: HloInstruction) -> str:
    return f"{x.name} (line {x.line}{f', {x.source}' if x.source else ''})"


def _unknown_types(module: HloModule) -> list[str]:
    found = {shape.dtype for c in module.computations.values() for x in c.instructions
             for shape in x.shape.arrays}  # fmt: skip
    return sorted(x for x in found if x.startswith(("f8", "f4", "c", "u4", "s4", "u2", "s2")))
