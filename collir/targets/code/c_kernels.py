"""Operations of models in C: a static function of loops for each, printed once for equal ones."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, DType, Mesh
from collir.layout.structure import REPEATED, Structure
from collir.syntax.step_writer import step_text
from collir.targets.code.c_mesh import HANDLE, CMesh
from collir.targets.code.c_nest import Array, CLoop, is_one
from collir.targets.code.c_text import (
    AS_BITS,
    C_TYPES,
    Comment,
    comment,
    size_text,
    variables,
)

OUT = "out"
"""The parameter for the result of a kernel."""

LOCALS = ("x", "y", "z", OUT, "sum", "sums", "first", "left", "width")
"""The names in kernels that no index gets."""


@dataclass(frozen=True)
class BlockComputation:
    """An operation of a model on the blocks of a rank.

    Attributes:
        op: the operation on the tensors of one device, with the sizes on a rank.
        starts: where the block that it reads or writes begins in the whole, in each dimension, as
            factors.
        needs: the sections of the runtime, to which it adds.
        products: the element types of multiplied matrices, to which it adds.
    """

    op: DistOp
    mesh: Mesh
    starts: Sequence[str]
    needs: set[str]
    products: set[DType]

    @cached_property
    def operands(self) -> list[DistType]:
        """The types of the operands."""
        return [dist_type(operand) for operand in self.op.operands]

    @property
    def x(self) -> DistType:
        """The type of the first operand."""
        return self.operands[0]

    @property
    def result(self) -> DistType:
        """The type of the result."""
        return dist_type(self.op.result)

    @property
    def after(self) -> tuple[int, ...]:
        """The shape of a block of the result."""
        return self.result.local_shape(self.mesh)

    @property
    def before(self) -> tuple[int, ...]:
        """The shape of a block of the first operand."""
        return self.x.local_shape(self.mesh)

    @cached_property
    def structure(self) -> Structure:
        """The index structure."""
        assert self.op.indices is not None
        return self.op.indices

    @property
    def function(self) -> str:
        """The end of the name of a function of C for the type in which numbers are computed."""
        return "" if self.result.dtype is DType.F64 else "f"

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The size of a rank's block of each index."""
        sizes: dict[str, int] = {}
        every = (*self.structure.operands, self.structure.result)
        for indices, x in zip(every, (*self.operands, self.result), strict=True):
            for index, size in zip(indices, x.local_shape(self.mesh), strict=True):
                if index != REPEATED:
                    sizes.setdefault(index, size)
        return sizes

    @cached_property
    def variables(self) -> dict[str, str]:
        """The loop variable of each index."""
        named = [index for index in self.sizes if index.isidentifier()]
        chosen = variables([*LOCALS, *named])[len(LOCALS) :]
        numbered = {index: _numbered(index) for index in self.sizes if index not in named}
        return {REPEATED: "", **numbered, **dict(zip(named, chosen, strict=True))}

    def use(self, *dtypes: DType) -> None:
        """Record the element types that C does not know."""
        self.needs.update(dtype.value for dtype in dtypes if dtype in AS_BITS)

    def inputs(self) -> list[Array]:
        """Return the operands over the loops of their indices."""
        names = parameter_names(len(self.operands))
        return [
            self.array(name, x, indices)
            for name, x, indices in zip(names, self.operands, self.structure.operands, strict=True)
        ]

    def out(self) -> Array:
        """Return the result over the loops of its indices."""
        return self.array(OUT, self.result, self.structure.result)

    def array(self, name: str, x: DistType, indices: Sequence[str]) -> Array:
        """Return the block of a value over the loops of indices."""
        self.use(x.dtype)
        over = [self.variables[index] for index in indices]
        return Array.of(name, x.dtype, x.local_shape(self.mesh), over)

    def loops(self, indices: Iterable[str]) -> list[CLoop]:
        """Return the loops over indices, without those of size 1."""
        return [
            CLoop(self.variables[index], self.sizes[index])
            for index in indices
            if index != REPEATED and not is_one(self.sizes[index])
        ]


def _numbered(index: str) -> str:
    """Return the variable of an index.

    An index is the number of a dimension, behind the number of an operand if only one has it.
    """
    operand, _, dim = index.rpartition(".")
    return f"{'ijk'[int(operand or 0)]}{dim}"


def parameter_names(count: int) -> list[str]:
    """Return the parameters for the operands of a kernel."""
    return [*"xyz"[:count], *(f"x{n}" for n in range(3, count))]


Body = Callable[[BlockComputation], list[str]]
"""A function from an operation to the statements of its kernel."""


@dataclass
class FileKernels:
    """The kernels of a file.

    Attributes:
        bodies: the statements of the kernel of each operation, by its name.
        needs: the sections of the runtime that kernels call.
        products: the element types of which kernels multiply matrices.
        texts: the lines of each kernel.
    """

    bodies: Mapping[str, Body]
    needs: set[str] = field(default_factory=set[str])
    products: set[DType] = field(default_factory=set[DType])
    texts: list[str] = field(default_factory=list[str])
    _known: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])
    _counts: dict[str, int] = field(default_factory=dict[str, int])

    def call(
        self, op: DistOp, names: CMesh, starts: Sequence[str], operands: Sequence[str], out: str
    ) -> str:
        """Return the statement that calls the kernel of an operation on buffers."""
        c = BlockComputation(op, names.mesh, starts, self.needs, self.products)
        body = self.bodies[op.mnemonic](c)
        listed = parameter_names(len(operands))
        text = "\n".join(body)
        body = [*(f"(void){x};" for x in listed if not re.search(rf"\b{x}\b", text)), *body]
        pointer = "*" if op.kind.elementwise else "*restrict "  # it may be updated in place
        inputs = [
            f"const {C_TYPES[x.dtype]} {pointer}{name}"
            for name, x in zip(listed, c.operands, strict=True)
        ]
        handle = [HANDLE] if f"{HANDLE}->" in text else []
        first = [f"const {names.kind} *{HANDLE}" for _ in handle]
        parameters = ", ".join([*first, *inputs, f"{C_TYPES[c.result.dtype]} {pointer}{OUT}"])
        key = (op.mnemonic, parameters, *body)
        if key not in self._known:
            number = self._counts[op.mnemonic] = self._counts.get(op.mnemonic, 0) + 1
            # The prefix is one that neither functions nor variables of a program have.
            self._known[key] = f"collir_{op.mnemonic}_{number}"
            head = f"static void {self._known[key]}({parameters})"
            self.texts += [_described(c, listed), *_wrapped(head), "{"]
            self.texts += [*(f"  {line}" for line in body), "}", ""]
        return f"{self._known[key]}({', '.join([*handle, *operands, out])});"


def _described(c: BlockComputation, operands: Sequence[str]) -> Comment:
    """Return the comment above a kernel: the operation, and the shapes of blocks."""
    listed = [
        f"{name}[{', '.join(map(size_text, x.local_shape(c.mesh)))}]"
        for name, x in (*zip(operands, c.operands, strict=True), (OUT, c.result))
    ]
    text = comment(step_text(c.op, c.mesh, ", ".join(operands)))
    return Comment(f"/* {text}: {', '.join(listed)} */")


_WIDTH = 100


def _wrapped(head: str) -> list[str]:
    """Return the head of a function in lines."""
    if len(head) <= _WIDTH:
        return [head]
    before, _, listed = head.partition("(")
    lines, indent = [f"{before}("], " " * (len(before) + 1)
    for parameter in listed.removesuffix(")").split(", "):
        if len(lines[-1]) + len(parameter) + 3 > _WIDTH:
            lines[-1] = lines[-1].rstrip()
            lines.append(indent)
        lines[-1] += f"{parameter}, "
    return [*lines[:-1], f"{lines[-1].removesuffix(', ')})"]
