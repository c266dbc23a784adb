"""The coordinates and numbers of a rank, by their names in an object or a struct."""

from collections.abc import Callable, Iterable, Iterator

from xdsl.ir import Operation, SSAValue

from collir.dialects.local import ComputeOp, LocalFuncOp, StartOp, ViewOp, place_around
from collir.dialects.local_types import BufferType, buffer_of
from collir.layout import DistType
from collir.layout.formulas import Formula
from collir.layout.local import CoordinateTable, LocalBuffer, atoms_in, rank_text
from collir.layout.sizes import OpenSize
from collir.targets.code.ranks import RankText


class RankNames(RankText):
    """The names of this rank's coordinates, and of its numbers in tables by coordinates."""

    members: dict[str, str]
    """The member for the coordinate on each sub-axis."""
    tables: dict[CoordinateTable, str]
    """The member for the number of this rank in each table."""

    def named(self, x: LocalBuffer) -> LocalBuffer:
        """Return a buffer whose numbers have the members of this rank as their parameters."""
        return x.with_numbers(self.own)

    def own(self, number: int) -> int:
        """Return a number of ranks over the members of this rank."""
        if not isinstance(number, OpenSize):
            return number
        formulas = {
            atom: Formula.parameter(text)
            for atom in number.formula.parameters
            if (text := self.atom(atom))
        }
        return OpenSize(int(number), number.formula.substituted(formulas))

    def atom(self, atom: str) -> str:
        """Return a coordinate or a table as an expression; empty for what is one already."""
        if isinstance(atom, CoordinateTable):
            return self.member(self.tables[atom])
        return self.coordinate(atom) if atom in self.members else ""

    def spelled(self, number: int) -> str:
        """Return a number of this rank as an expression."""
        return rank_text(self.own(number))

    def seconds_of(self, op: ComputeOp, number: Callable[[float], str] = repr) -> str:
        """Return the seconds that a computation takes on this rank as an expression; empty if it
        takes none.

        Args:
            number: a function that returns seconds as text.

        Raises:
            DiagnosticError: see ``seconds_of_children``.
        """
        text = self.seconds(op.step(place=place_around(op)), number)
        size = buffer_of(op.inputs[0]).elements if op.inputs else 1
        if not text or not isinstance(size, OpenSize) or not is_uneven(size):
            return text
        own = self.own(size)
        assert isinstance(own, OpenSize)
        [(powers, factor)] = own.formula.terms
        text = f"({text})" if " " in text else text
        factors = [self.real(str(atom)) for atom, exponent in powers for _ in range(exponent)]
        return f"{' * '.join([text, *factors])} / {int(size) // int(factor)}"

    def real(self, atom: str) -> str:
        """Return a number of this rank as a factor of seconds."""
        return atom

    def coordinate(self, axis: str) -> str:
        return self.member(self.members[axis])

    def partner(self, name: str, x: DistType, y: DistType) -> str:
        """Return the statement of a variable for the rank whose place in layout ``y`` is this
        rank's in layout ``x``."""
        return f"{name} = {' + '.join([self.member('rank'), *self.to_partner(x, y)])}"


def is_uneven(size: OpenSize) -> bool:
    """Return whether a size differs between ranks, and is not only one of any parameters."""
    return any(isinstance(atom, CoordinateTable) for atom in size.formula.parameters)


def tables_in(functions: Iterable[LocalFuncOp]) -> list[CoordinateTable]:
    """Return the tables by coordinates in the numbers of local functions, in order."""
    atoms = atoms_in(number for f in functions for number in numbers_in(f))
    return [atom for atom in atoms if isinstance(atom, CoordinateTable)]


def numbers_in(function: LocalFuncOp) -> Iterator[int]:
    """Yield the numbers of a local function that may differ between ranks."""
    values: list[SSAValue] = list(function.body.block.args)
    ops: list[Operation] = list(function.walk())
    values += [x for op in ops for x in op.results]
    for op in ops:
        match op:
            case ViewOp():
                yield op.offset.data
            case StartOp():
                yield from (x for side in op.counts for x in side)
                yield from op.partners if op.peers else ()
            case ComputeOp():
                yield from (x.data for x in op.starts or ())
            case _:
                pass
    for value in values:
        if isinstance(value.type, BufferType):
            yield from value.type.data.numbers
