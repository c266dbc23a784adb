"""A function in C for MPI in two parts: what it does up to its first wait, and the rest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from collir.dialects.local import LocalCallOp, StartOp, WaitOp, started_by
from collir.targets.code.c_mesh import HANDLE
from collir.targets.code.c_method import CMethod, indented
from collir.targets.code.mpi_mesh import MpiMesh
from collir.targets.code.mpi_method import MpiMethod
from collir.targets.code.rank_leaves import leaves

_PART = "part"


@dataclass
class MpiPartsMethod(MpiMethod):
    """The function of a local program, with others that start it and wait for it.

    The handle keeps what the second part needs: the arguments, the requests, and the counts of
    collectives that are under way.
    """

    inner: ClassVar[str] = ": part 0 up to the first wait, and part 1 from there on."

    def extra(self) -> list[tuple[str, str]]:
        return [("int ", _PART)]

    def declarations(self) -> list[str]:
        lines: list[str] = []
        if self.requests:
            lines.append(f"MPI_Request *const pending = {self.names.member('pending')};")
        offset = 0
        for name, size in self.integers.items():
            counts = self.names.member("counts")
            lines.append(f"int *const {name} = {counts} + {offset};")
            offset += size
        return lines

    def preparation(self) -> list[str]:
        return []  # by the first part only

    def steps(self) -> list[str]:
        block = self.function.body.block
        ops = [leaf.op for leaf in leaves(block, ())]
        cut = next((n for n, op in enumerate(ops) if _waits(op)), len(ops))
        if cut < len(ops) and isinstance(wait := ops[cut], WaitOp):
            self.apart |= {op for op in [started_by(wait.token)] if op}
        pieces = self.pieces(block, ())
        size = len(pieces) // max(len(ops), 1)
        first = list(self.placed(pieces[: size * cut], ()))
        rest = list(self.placed(pieces[size * cut :], ()))
        first = [*super().preparation(), *first, "goto done;"]
        return [f"if ({_PART} == 0) {{", *map(indented, first), "}", *rest]

    def chosen(self, other: CMethod, arguments: str) -> str:
        if other.extra() != self.extra():
            return f"{_PART} ? {super().chosen(other, arguments)} : {self.success}"
        return f"{other.called()}({arguments}, {_PART})"

    def declarations_of_parts(self) -> list[str]:
        return [
            f"int {self.symbol}_start({', '.join(self.parameters())})",
            f"int {self.symbol}_wait({self.names.kind} *{HANDLE})",
        ]

    def entries(self) -> list[str]:
        inputs, outputs, sizes = self._kept()
        passed = self.passed([*inputs, *outputs], *sizes)
        kept = [*inputs.values(), *outputs.values(), *sizes.values()]
        stored = [f"{place} = {x};" for x, place in (inputs | outputs | sizes).items()]
        start, wait = self.declarations_of_parts()
        return [
            self.comment(),
            f"{start}",
            "{",
            *map(indented, stored),
            f"  return {self.called()}({passed}, 0);",
            "}",
            "",
            wait,
            "{",
            f"  return {self.called()}({', '.join([HANDLE, *kept])}, 1);",
            "}",
            "",
            self.declaration(),
            "{",
            f"  int err = {self.called()}({passed}, 0);",
            f"  return err == {self.success} ? {self.called()}({passed}, 1) : err;",
            "}",
            "",
        ]

    def _kept(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """Return the member for each input, output and size."""

        def members(names: Iterable[str], member: str) -> dict[str, str]:
            return {name: f"{self.names.member(member)}[{n}]" for n, name in enumerate(names)}

        return (
            members(map(self.name_of, self.function.inputs), "inputs"),
            members(map(self.name_of, self.function.outputs), "outputs"),
            members(self.signature.sizes, "sizes"),
        )


def members_for_parts(texts: Iterable[MpiMethod], names: MpiMesh) -> list[str]:
    """Return the members of a mesh for what its functions in parts keep."""
    parts = [text for text in texts if isinstance(text, MpiPartsMethod) and text.names is names]
    most = {
        "const void *inputs": max((len(x.function.inputs) for x in parts), default=0),
        "void *outputs": max((len(x.function.outputs) for x in parts), default=0),
        "size_t sizes": max((len(x.signature.sizes) for x in parts), default=0),
        "MPI_Request pending": max((x.requests for x in parts), default=0),
        "int counts": max((sum(x.integers.values()) for x in parts), default=0),
    }
    return [f"  {name}[{count}];" for name, count in most.items() if count]


def _waits(op: Operation) -> bool:
    """Return whether an operation waits for another rank."""
    if isinstance(op, WaitOp):
        return True
    inside: Sequence[Operation] = [x for r in op.regions for b in r.blocks for x in b.walk()]
    if isinstance(op, LocalCallOp):
        inside = list(op.function().walk())
    return any(isinstance(x, StartOp) or (isinstance(x, LocalCallOp) and _waits(x)) for x in inside)
