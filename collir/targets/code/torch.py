"""Python for torch.distributed: a class per mesh, with a method per ``func`` on tensors."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import IO, Any, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, DType, Reduction
from collir.layout.coll import CAST, PAD, SLICE, TRANSPOSE
from collir.layout.cuts import places
from collir.layout.mesh import digits_over, index_over
from collir.layout.operation_table import OperationTable
from collir.localize.places import root_place
from collir.targets.code.emitters import Emitters
from collir.targets.code.python_file import classes, example, header, helpers
from collir.targets.code.python_function import PythonFunction, is_first
from collir.targets.code.python_steps import Blocks, CutDim, Sent
from collir.targets.code.python_text import WIDTH, call, comment, number_text, summed, tuple_text
from collir.targets.code.rank_forms import DTYPES
from collir.targets.code.rank_function import ModelFunction
from collir.targets.code.rank_mesh import MeshText
from collir.targets.code.ranks import OverList, by_rank, needed_ranks
from collir.targets.code.torch_methods import METHODS as MODEL_METHODS
from collir.targets.code.torch_methods import USES
from collir.targets.code.torch_ops import EXPRESSIONS, NATIVE, OUT_OF_ORDER, VIEWS, TorchStep

_OPS = {
    Reduction.SUM: "SUM",
    Reduction.AVG: "SUM",
    Reduction.PROD: "PRODUCT",
    Reduction.MAX: "MAX",
    Reduction.MIN: "MIN",
}


@dataclass
class TorchFunction(ModelFunction):
    """The method of one function on torch."""

    array: ClassVar[str] = "a tensor"

    def library(self, name: str) -> str:
        return f"torch.{name}"

    def shares(self, op: DistOp) -> bool:
        cut = op.kind is PAD and max(op.integer("low"), op.integer("high")) <= 0
        same = op.kind is CAST and dist_type(op.input).dtype == op.word("dtype")
        # An array that is in order already is not packed.
        in_place = op.kind in (SLICE, TRANSPOSE) or op.mnemonic in VIEWS
        return super().shares(op) or cut or same or in_place

    def dtype(self, dtype: DType) -> str:
        return self.library(DTYPES[dtype])

    def options(self, dtype: DType) -> str:
        return f"dtype={self.dtype(dtype)}, device=self.device"

    def packed(self, text: str) -> str:
        return f"{text}.contiguous()"

    def copied(self, text: str) -> str:
        return f"{text}.clone()"

    def cast(self, text: str, dtype: DType) -> str:
        return f"{text}.to({self.dtype(dtype)})"

    def reshaped(self, text: str, shape: Sequence[int]) -> str:
        return f"{text}.reshape({tuple_text(shape)})"

    def transposed(self, text: str, order: Sequence[int]) -> str:
        return f"{text}.permute({tuple_text(order)})"

    def joined(self, arrays: Sequence[str], dim: int) -> list[str]:
        return call("torch.cat", [tuple_text(arrays), f"dim={dim}"], 16)

    def constant(self, value: float, dtype: DType) -> str:
        return number_text(value, dtype)

    # --- operations of models ---------------------------------------------------------------

    STEP = TorchStep
    EXPRESSIONS = EXPRESSIONS
    NATIVE = NATIVE
    USES = USES

    def in_order(self, op: DistOp, text: str) -> str:
        return self.packed(text) if op.mnemonic in OUT_OF_ORDER else text

    # --- collectives ------------------------------------------------------------------------

    def _all_reduce(self, s: Sent) -> list[str]:
        sent = self.send(s, "all_reduce", [s.out, self.operator(s.x)])
        return [f"{s.out} = {s.operand}.clone()", *sent, *self.average(s.x, s.group, s.out)]

    def _reduce(self, s: Sent) -> list[str]:
        sent = self.send(s, "reduce", [s.out, "group_dst=0", self.operator(s.x)])
        average = self.average(s.x, s.group, s.out)
        return [
            f"{s.out} = {s.operand}.clone()",
            *sent,
            *(self._where(s.root, [], average) if average else []),
            f"if {self.names.not_at_zero(s.axes)}:",
            f"    {s.out} = None",
        ]

    def _broadcast(self, s: Sent) -> list[str]:
        made = f"{s.out} = {s.operand}.clone()"
        lines = [f"if {s.root}:", f"    {made}", "else:", f"    {s.new}"]
        return [*lines, *self.send(s, "broadcast", [s.out, self._source(s)])]

    def _reduce_scatter(self, s: Sent) -> list[str]:
        cut, blocks = self._cut(s.operand, s.before, s.op.integer("dim"), s.axes, stacked=False)
        arguments = [s.out, blocks, self.operator(s.x)]
        sent = self.send(s, "reduce_scatter_tensor", arguments)
        return [*cut, s.new, *sent, *self.average(s.x, s.group, s.out)]

    def _scatter(self, s: Sent) -> list[str]:
        cut, _ = self._cut(s.operand, s.before, s.op.integer("dim"), s.axes, stacked=True)
        return [
            s.new,
            "sent = None",
            f"if {s.root}:",
            *(f"    {line}" for line in cut),
            "    sent = list(sent)",
            *self.send(s, "scatter", [s.out, "sent", self._source(s)]),
        ]

    def _all_gather(self, s: Sent) -> list[str]:
        join = self._join(s.out, s.before, s.after, s.op.integer("dim"), s.axes, stacked=False)
        joined = (s.group * s.before[0], *s.before[1:])
        made = f"{s.out} = {self.full(joined, s.x.dtype, None)}"
        sent = self.send(s, "all_gather_into_tensor", [s.out, s.operand])
        return [made, *sent, *join]

    def _gather(self, s: Sent) -> list[str]:
        made = self.full((s.group, *s.before), s.x.dtype, None)
        join = self._join(s.out, s.before, s.after, s.op.integer("dim"), s.axes, stacked=True)
        return [
            f"{s.out} = parts = None",
            f"if {s.root}:",
            f"    {s.out} = {made}",
            f"    parts = list({s.out})",
            *self.send(s, "gather", [s.operand, "parts", "group_dst=0"]),
            *self._where(s.root, [], join),
        ]

    def _all_to_all(self, s: Sent) -> list[str]:
        source, target = s.op.integer("source"), s.op.integer("target")
        piece = list(s.before)
        piece[target] //= s.group
        cut, blocks = self._cut(s.operand, s.before, target, s.axes, stacked=True)
        made = f"{s.out} = {self.full((s.group, *piece), s.x.dtype, None)}"
        sent = self.send(s, "all_to_all_single", [s.out, blocks])
        join = self._join(s.out, tuple(piece), s.after, source, s.axes, stacked=True)
        return [*cut, made, *sent, *join]

    def _source(self, s: Sent) -> str:
        """Return the argument that names the root by its rank in the group."""
        return (
            f"group_src={index_over(self.mesh, by_rank(self.mesh, s.axes), dict(root_place(s.op)))}"
        )

    # --- blocks that differ in size -----------------------------------------------------------

    def _by_rank(self, s: Sent, array: str) -> str:
        """Return blocks in the order of the sub-axes as blocks in the order of the ranks."""
        if self._in_order(s.axes):
            return array
        return f"{array}[{[index_over(self.mesh, s.axes, at) for at in self._ranks(s)]}]"

    def _by_axes(self, s: Sent, array: str) -> str:
        """Return blocks in the order of the ranks as blocks in the order of the sub-axes."""
        if self._in_order(s.axes):
            return array
        places = [index_over(self.mesh, s.axes, at) for at in self._ranks(s)]
        return f"{array}[{[places.index(place) for place in range(s.group)]}]"

    def _ranks(self, s: Sent) -> list[dict[str, int]]:
        """Return the coordinates of the ranks of a group, in the order of the ranks."""
        return places(self.mesh, by_rank(self.mesh, s.axes))

    def _cut_blocks(self, s: Sent, part: CutDim) -> str:
        """Return the blocks that leave, padded to one size, in the order of the ranks."""
        self.needs.add("cut_blocks")
        return self._by_rank(s, f"self._cut_blocks({s.operand}, {part.parts}, {part.dim})")

    def _joined_blocks(self, s: Sent, part: CutDim) -> str:
        """Return the statement that joins blocks, padded and in the order of the ranks."""
        self.needs.add("joined_blocks")
        blocks = self._by_axes(s, s.out)
        arguments = ", ".join([blocks, part.parts, str(part.dim), str(part.unit)])
        return f"{s.out} = self._joined_blocks({arguments})"

    def _padded(self, s: Sent, part: CutDim) -> str:
        """Return the statement that pads the own block to the size of the largest."""
        self.needs.add("padded")
        return f"sent = self._padded({s.operand}, {part.dim}, max({part.parts}) * {part.unit})"

    def _without_padding(self, s: Sent, part: CutDim) -> str:
        """Return the statement that cuts the padding off the own block."""
        own = f"{s.out}.narrow({part.dim}, 0, {s.after[part.dim]})"
        return f"{s.out} = {self.packed(own)}"

    def _uneven_all_gather(self, s: Sent, blocks: Blocks) -> list[str]:
        return [
            self._padded(s, blocks.comes),
            f"{s.out} = sent.new_empty(({s.group}, *sent.shape))",
            *self.send(s, "all_gather_into_tensor", [f"{s.out}.view(-1)", "sent.view(-1)"]),
            self._joined_blocks(s, blocks.comes),
        ]

    def _uneven_gather(self, s: Sent, blocks: Blocks) -> list[str]:
        return [
            self._padded(s, blocks.comes),
            f"{s.out} = parts = None",
            f"if {s.root}:",
            f"    {s.out} = sent.new_empty(({s.group}, *sent.shape))",
            f"    parts = list({s.out})",
            *self.send(s, "gather", ["sent", "parts", "group_dst=0"]),
            *self._where(s.root, [], [self._joined_blocks(s, blocks.comes)]),
        ]

    def _uneven_reduce_scatter(self, s: Sent, blocks: Blocks) -> list[str]:
        arguments = [f"{s.out}.view(-1)", "sent.view(-1)", self.operator(s.x)]
        return [
            f"sent = {self._cut_blocks(s, blocks.leaves)}",
            f"{s.out} = torch.empty_like(sent[0])",
            *self.send(s, "reduce_scatter_tensor", arguments),
            self._without_padding(s, blocks.leaves),
            *self.average(s.x, s.group, s.out),
        ]

    def _uneven_scatter(self, s: Sent, blocks: Blocks) -> list[str]:
        part = blocks.leaves
        largest = [str(size) for size in s.after]
        largest[part.dim] = f"max({part.parts}) * {part.unit}"
        size, options = tuple_text(largest), self.options(s.x.dtype)
        made = [f"{s.out} = {self.library('empty')}({size}, {options})"]
        if len(self.names.resolved(made[0])) > WIDTH - 8:
            made = [f"{s.out} = {self.library('empty')}(", f"    {size}, {options}", ")"]
        return [
            *made,
            "sent = None",
            f"if {s.root}:",
            f"    sent = list({self._cut_blocks(s, part)})",
            *self.send(s, "scatter", [s.out, "sent", "group_src=0"]),
            self._without_padding(s, part),
        ]

    def _uneven_all_to_all(self, s: Sent, blocks: Blocks) -> list[str]:
        leaves, comes = blocks.leaves, blocks.comes
        cut = f"{s.operand}.split([part * {leaves.unit} for part in {leaves.parts}], {leaves.dim})"
        shape = [str(size) for size in s.after]
        shape[comes.dim] = "-1"
        counts = [self._counts(s, part) for part in (comes, leaves)]
        order = [index_over(self.mesh, s.axes, at) for at in self._ranks(s)]
        inverse = [order.index(place) for place in range(s.group)]
        in_order = self._in_order(s.axes)
        picked = "parts" if in_order else f"[parts[i] for i in {order}]"
        back = "parts" if in_order else f"[parts[i] for i in {inverse}]"
        return [
            f"parts = {cut}",
            f"sent = torch.cat([part.flatten() for part in {picked}])",
            f"{s.out} = sent.new_empty({math.prod(s.after)})",
            *self.send(s, "all_to_all_single", [s.out, "sent", *counts]),
            f"parts = {s.out}.split({counts[0]})",
            f"parts = [part.view({tuple_text(shape)}) for part in {back}]",
            f"{s.out} = torch.cat(parts, {comes.dim})",
        ]

    def _counts(self, s: Sent, part: CutDim) -> str:
        """Return the elements of the ranks of the group, in the order of the ranks."""
        if self._in_order(s.axes):
            return part.counts
        order = [index_over(self.mesh, s.axes, at) for at in self._ranks(s)]
        return f"[{part.elements} * {part.parts}[i] for i in {order}]"

    UNEVEN: ClassVar[dict[str, Callable[[Any, Sent, Blocks], list[str]]]] = {
        "all_gather": _uneven_all_gather,
        "gather": _uneven_gather,
        "scatter": _uneven_scatter,
        "reduce_scatter": _uneven_reduce_scatter,
        "all_to_all": _uneven_all_to_all,
    }

    # --- calls --------------------------------------------------------------------------------

    def send(self, s: Sent, name: str, arguments: list[str]) -> list[str]:
        """Return a call of torch.distributed."""
        group = f"group=self.{self.names.groups[by_rank(self.mesh, s.axes)]}"
        return call(f"dist.{name}", [*arguments, group])

    def operator(self, x: DistType) -> str:
        """Return the reduction of a value as an argument."""
        assert x.reduction is not None
        return f"op=dist.ReduceOp.{_OPS[x.reduction]}"

    def _in_order(self, axes: OverList) -> bool:
        """Return whether the ranks of a group are in the order of a list of sub-axes."""
        return axes == by_rank(self.mesh, axes)

    def _cut(
        self, operand: str, shape: tuple[int, ...], dim: int, axes: OverList, stacked: bool
    ) -> tuple[list[str], str]:
        """Return the statements that make the blocks of a dimension lie one behind the other in the
        order of the ranks, and the variable with these blocks.

        The blocks are stacked in a dimension of their own, or joined in the first dimension.
        """
        in_order = self._in_order(axes)
        if dim == 0 and in_order and not stacked:
            return [], operand
        block = shape[dim] // self.mesh.group_size(axes)
        sizes = [self.mesh.group_size(axes)] if in_order else self._sizes(axes)
        split = f"{operand}.unflatten({dim}, {tuple_text([*sizes, block])})"
        if in_order:
            moved = f"sent.movedim({dim}, 0)" if dim else "sent"
        else:
            places = tuple_text([dim + axes.index(axis) for axis in by_rank(self.mesh, axes)])
            moved = f"sent.movedim({places}, {tuple_text(range(len(axes)))})"
        merged = len(sizes) - stacked
        moved += f".flatten(0, {merged})" if merged else ""
        return [f"sent = {split}", f"sent = {self.packed(moved)}"], "sent"

    def _join(
        self,
        out: str,
        before: tuple[int, ...],
        after: tuple[int, ...],
        dim: int,
        axes: OverList,
        stacked: bool,
    ) -> list[str]:
        """Return the statements that join blocks of shape ``before``, in the order of the ranks, to
        a dimension.

        The blocks are stacked in a dimension of their own, or joined in the first dimension.
        """
        in_order = self._in_order(axes)
        if in_order and is_first(before, dim):
            same = dim == 0 and not stacked
            return [] if same else [f"{out} = {self.reshaped(out, after)}"]
        ranks = by_rank(self.mesh, axes)
        sizes = [self.mesh.group_size(axes)] if in_order else self._sizes(ranks)
        split = out
        if not stacked:
            split += f".unflatten(0, {tuple_text([*sizes, before[0]])})"
        elif not in_order:
            split += f".unflatten(0, {tuple_text(sizes)})"
        if in_order:
            moved = f"{split}.movedim(0, {dim})"
        else:
            places = tuple_text([dim + axes.index(axis) for axis in ranks])
            moved = f"{split}.movedim({tuple_text(range(len(axes)))}, {places})"
        return [f"{out} = {moved}", f"{out} = {self.packed(self.reshaped(out, after))}"]

    def _sizes(self, axes: OverList) -> list[int]:
        return [self.mesh.by_name[axis].size for axis in axes]

    def _permute(self, s: Sent) -> list[str]:
        x, y, operand, out = s.x, s.y, s.operand, s.out
        indent = 12 if x.place else 8
        pair = [f"dist.P2POp(dist.isend, {operand}, to)", f"dist.P2POp(dist.irecv, {out}, from_)"]
        return [
            *self.names.partner("to", x, y, indent),
            *self.names.partner("from_", y, x, indent),
            "if to == self.rank:",
            f"    {out} = {operand}.clone()",
            "else:",
            f"    {s.new}",
            "    sent = [",
            *(f"        {operation}," for operation in pair),
            "    ]",
            "    for work in dist.batch_isend_irecv(sent):",
            "        work.wait()",
        ]

    def _send(self, s: Sent) -> list[str]:
        places = [digits_over(self.mesh, s.axes, s.op.integer(n)) for n in ("sender", "receiver")]
        ahead = sum((places[1][a] - places[0][a]) * self.mesh.by_name[a].stride for a in s.axes)
        to, source = (f"self.rank {'+-'[n < 0]} {abs(n)}" for n in (ahead, -ahead))
        verbs = ("isend", "irecv") if s.op.is_async else ("send", "recv")
        send, receive = f"dist.{verbs[0]}({s.operand}, {to})", f"dist.{verbs[1]}({s.out}, {source})"
        return self.exchange(s, [send], [receive])

    def _shift(self, s: Sent) -> list[str]:
        by, is_open = s.op.integer("distance"), "open" in s.op.properties
        if by % s.group == 0:
            return [f"{s.out} = {s.operand}.clone()"]
        lines = [
            f"{s.out} = {self.full(s.after, s.y.dtype, 0.0 if is_open else None)}",
            "sent = []",
        ]
        for verb, array, distance in (("isend", s.operand, by), ("irecv", s.out, -by)):
            partner = ["self.rank", *self.names.from_index(s.axes, "to")]
            message = [
                f"to = {self.names.next_index(s.axes, distance)}",
                *summed("to", partner, 16),
                f"sent.append(dist.P2POp(dist.{verb}, {array}, to))",
            ]
            there = self.names.has_neighbour(s.axes, distance) if is_open else ""
            lines += self._where(there, [], message)
        wait = ["for work in dist.batch_isend_irecv(sent):", "    work.wait()"]
        return [*lines, *self._where("sent" if is_open else "", [], wait)]

    COLLECTIVES: ClassVar[Emitters[Sent]] = OperationTable(
        "TorchFunction.COLLECTIVES",
        __name__,
        {
            "all_reduce": _all_reduce,
            "reduce": _reduce,
            "broadcast": _broadcast,
            "reduce_scatter": _reduce_scatter,
            "scatter": _scatter,
            "all_gather": _all_gather,
            "gather": _gather,
            "all_to_all": _all_to_all,
            "send": _send,
            "shift": _shift,
            "permute": _permute,
        },
        row="a method that returns its statements in Python for torch",
    )


# ---------------------------------------------------------------------------------------------
# The file
# ---------------------------------------------------------------------------------------------

_HEADER = """\
Arguments are checked, results are new tensors, outside of autograd. Where a rank holds nothing
of a value, it gives and gets None. Tensors are on the device of the mesh (device="cuda"), which
the backend of the default process group has to serve."""

_USE = """\
Every process, after torch.distributed.init_process_group, makes one object of a mesh, and calls
its methods with its own tensors:"""

_ARGUMENT = '''\
    def _argument(self, name, x, dtype, shape):
        """An argument with its elements in order, if it is what it should be."""
        if getattr(x, "dtype", None) != dtype or tuple(x.shape) != shape:
            found = f"{x.dtype}, {tuple(x.shape)}" if hasattr(x, "dtype") else repr(x)
            raise ValueError(f"{name} is {found}, not {dtype}, {shape}")
        return x.contiguous()
'''


_CUT_BLOCKS = '''\
    def _cut_blocks(self, x, parts, dim):
        """The blocks of a dimension, which is cut by parts, each padded to the largest."""
        unit = x.shape[dim] // sum(parts)
        size = (*x.shape[:dim], max(parts) * unit, *x.shape[dim + 1 :])
        blocks = x.new_zeros((len(parts), *size))
        for block, part in zip(blocks, x.split([part * unit for part in parts], dim)):
            block.narrow(dim, 0, part.shape[dim]).copy_(part)
        return blocks
'''

_JOINED_BLOCKS = '''\
    def _joined_blocks(self, blocks, parts, dim, unit):
        """Padded blocks without their padding, joined along a dimension."""
        cut = [b.narrow(dim, 0, part * unit) for b, part in zip(blocks, parts)]
        return torch.cat(cut, dim)
'''

_PADDED = '''\
    def _padded(self, x, dim, size):
        """A block padded along a dimension to the size of the largest."""
        padded = x.new_zeros((*x.shape[:dim], size, *x.shape[dim + 1 :]))
        padded.narrow(dim, 0, x.shape[dim]).copy_(x)
        return padded
'''


def _groups(names: MeshText) -> list[str]:
    """Return the statements that make the process groups; all ranks make all groups, in the same
    order."""
    mesh = names.mesh
    if not names.groups:
        return []
    order = by_rank(mesh, mesh.by_name)
    sizes = tuple_text([mesh.by_name[axis].size for axis in order])
    lines = [
        f"# All ranks by their coordinates on {comment(', '.join(order))}; a row for every group.",
        f"ranks = torch.arange({mesh.devices}).reshape({sizes})",
    ]
    for group, name in names.groups.items():
        dims = sorted(order.index(axis) for axis in group)
        last = tuple(range(len(order) - len(dims), len(order)))
        rows = "ranks"
        if tuple(dims) != last:
            rows += (
                f".movedim({dims[0]}, -1)" if len(dims) == 1 else f".movedim({tuple(dims)}, {last})"
            )
        size = mesh.group_size(group)
        made = call(
            "dist.new_subgroups_by_enumeration", ["groups"], len(f"        self.{name}, _ = ")
        )
        lines.append(f"groups = {rows}.reshape(-1, {size}).tolist()")
        lines += [f"self.{name}, _ = {made[0]}", *made[1:]]
    return lines


def _class(names: MeshText, texts: Sequence[PythonFunction]) -> list[str]:
    mesh = names.mesh
    lines = [
        f"class {names.class_name}:",
        f'    """{names.description()}."""',
        "",
        '    def __init__(self, device="cpu"):',
        "        size = dist.get_world_size()",
        f"        if size != {mesh.devices}:",
        f'            raise ValueError(f"{needed_ranks(mesh)}, has {{size}}")',
        "        self.device = device",
    ]
    if names.sends:
        lines += [
            "        self.rank = dist.get_rank()",
            "        # The first collective of a group must be for all; a permute is for some.",
            "        dist.barrier()",
        ]
        lines += ["        rank = self.rank"] if mesh.sub_axes else []
    elif mesh.sub_axes:
        lines.append("        rank = dist.get_rank()")
    lines += [f"        {line}" for line in [*names.coordinates(), *_groups(names)]]
    methods = [text.text() for text in texts]
    for method in methods:
        lines += ["", "    @torch.no_grad()", *method]
    return lines + helpers({need for text in texts for need in text.needs}, _HELPERS)


_HELPERS = {
    "argument": _ARGUMENT,
    "cut_blocks": _CUT_BLOCKS,
    "joined_blocks": _JOINED_BLOCKS,
    "padded": _PADDED,
    **MODEL_METHODS,
}
"""The methods that methods of functions call, by what needs them."""


def emit_torch(module: ModuleOp, named: Collection[str] | None = None) -> str:
    """Return the Python module of the functions of a module.

    Args:
        named: those to print of a module with operations of models; None for those that no other
            function calls.

    Raises:
        DiagnosticError: names that Python cannot have, operations that are not collectives.
    """
    needs: set[str] = set()
    bodies: list[str] = []
    shown = ""
    for names, functions in classes(module, "torch", ordered=False, named=named):
        texts = [TorchFunction(function, names) for function in functions]
        shown = shown or example(f"{names.mesh.name} = {names.class_name}()", texts)
        bodies += ["", "", *_class(names, texts)]
        needs |= {need for text in texts for need in text.needs}
    lines = header("torch.distributed", _USE, shown, _HEADER)
    if bodies:
        standard = [f"import {name}" for name in ("itertools", "time") if name in needs]
        lines += ["", *standard] if standard else []
        lines += ["", "import torch", "import torch.distributed as dist"]
        lines += ["import torch.nn.functional as F"] if "F" in needs else []
    return "\n".join([*lines, *bodies, ""])


@dataclass(frozen=True)
class TorchTarget(Target):
    """Python for torch.distributed: a class per mesh, with a method per `func` on tensors.

    The class makes the process groups once, from the ranks of the default group. The ranks of a
    group are in ascending order, on which all versions and backends agree; where a step lists its
    sub-axes in another order, the blocks that it sends or receives are reordered. Arguments are
    checked; results are new tensors, outside of autograd, and None where a rank holds nothing. The
    code works on every backend that has the collectives: an avg is a sum and a division. It is
    tested on gloo. On axes with weights, blocks are padded to the largest, but an all_to_all has
    blocks of different sizes.

    Operations of models are functions of torch on the blocks of a rank (`torch.einsum`,
    `F.layer_norm`, ...), or calls of methods that are printed where they are used. Gradients are
    in the program, so nothing is left to autograd. A `repeat` is a loop that calls the method of
    its body, a `call` is its steps. Each task of a pipeline is a method, which is called for every
    microbatch at the ranks of its place, in the order of the schedule; what a task is the last to
    need is forgotten then. An `async` send is an `isend` and an `irecv`, waited for before its
    result is used; other `async` steps are not started early. Numbers of 16 bits stay in their
    type: functions of torch add in f32 and round once. Functions with operations of models that
    others call are not printed by themselves.
    """

    name = "torch"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write(emit_torch(module))
