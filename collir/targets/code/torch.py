"""Python for torch.distributed: a class per mesh, with a method per ``func`` on tensors."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import IO, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.dialects.operation import DistOp
from collir.layout import DType, Reduction
from collir.layout.local import LocalBuffer
from collir.layout.mesh import by_rank, digits_over
from collir.layout.operation_table import OperationTable
from collir.localize.writer import GroupRules
from collir.targets.code.python_file import PrintedClass, classes, example, header, helpers
from collir.targets.code.python_text import call, comment, postfix, tuple_text
from collir.targets.code.rank_forms import DTYPES
from collir.targets.code.rank_mesh import MeshText
from collir.targets.code.rank_method import (
    CollectiveCall,
    RankMethod,
    Sender,
    Transfer,
    inside,
    only_if,
)
from collir.targets.code.ranks import needed_ranks
from collir.targets.code.torch_methods import METHODS as MODEL_METHODS
from collir.targets.code.torch_methods import USES
from collir.targets.code.torch_ops import EXPRESSIONS, NATIVE, OUT_OF_ORDER, TorchStep

RULES = GroupRules(ascending=True, padded=True)
"""Groups have ranks in ascending order, on which all versions and backends agree; backends have no
collectives of blocks that differ in size, but all_to_all."""

_OPS = {
    Reduction.SUM: "SUM",
    Reduction.AVG: "SUM",
    Reduction.PROD: "PRODUCT",
    Reduction.MAX: "MAX",
    Reduction.MIN: "MIN",
}


@dataclass
class TorchMethod(RankMethod):
    """The method of one function on torch."""

    array: ClassVar[str] = "a tensor"
    REST: ClassVar[str] = ""
    STEP = TorchStep
    EXPRESSIONS = EXPRESSIONS
    NATIVE = NATIVE
    USES = USES

    def dtype(self, dtype: DType) -> str:
        return f"torch.{DTYPES[dtype]}"

    def empty(self, x: LocalBuffer) -> str:
        options = f"dtype={self.dtype(x.dtype)}, device=self.device"
        return f"torch.empty({self.shape(x.shape)}, {options})"

    def copied(self, text: str, *, in_order: bool | None = True) -> str:
        if in_order is None:
            return f"{postfix(text)}.clone(memory_format=torch.contiguous_format)"
        return f"{postfix(text)}.clone()" if in_order else f"{postfix(text)}.contiguous()"

    def cast(self, text: str, dtype: DType) -> str:
        return f"{postfix(text)}.to({self.dtype(dtype)})"

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        return f"{postfix(x)}.reshape({self.shape(shape)})"

    def permuted(self, x: str, order: Sequence[int]) -> str:
        return f"{x}.permute({tuple_text(order)})"

    def repeated(self, x: str, shape: Sequence[int]) -> str:
        return f"{x}.expand({self.shape(shape)})"

    def strided(self, x: str, view: LocalBuffer, start: int) -> str:
        shape, strides = self.shape(view.shape), self.shape(view.steps)
        flat = f"{x}.reshape(-1)"
        flat += f"[{self.spelled(start)} :]" if start != 0 else ""
        return f"{flat}.as_strided({shape}, {strides})"

    def in_order(self, op: DistOp, text: str) -> str:
        if op.mnemonic not in OUT_OF_ORDER:
            return text
        # The result of one operand may share its memory.
        return self.copied(text, in_order=None if len(op.operands) == 1 else False)

    # --- calls --------------------------------------------------------------------------------

    def called(self, s: CollectiveCall, name: str, *arguments: str) -> str:
        """Return a call of torch.distributed, which does not wait if something is under way
        then."""
        group = f"group=self.{self.names.groups[s.op.axes.data]}"
        ends = [group, "async_op=True"] if s.token else [group]
        return f"dist.{name}({', '.join([*arguments, *ends])})"

    def operator(self, s: CollectiveCall) -> str:
        """Return the reduction of a collective as an argument."""
        assert s.op.operation is not None
        return f"op=dist.ReduceOp.{_OPS[s.op.operation]}"

    def blocks(self, s: CollectiveCall, whole: LocalBuffer, block: LocalBuffer) -> list[str]:
        """Return the result and the operand of a collective of blocks: as they are if one has the
        blocks of the other joined in its first dimension, else with one dimension."""
        pairs = ((s.out, s.y), (s.source, s.x))
        first = s.group * block.shape[0] if block.shape else 0
        if whole.shape == (first, *block.shape[1:]):
            return [text for text, _ in pairs]
        return [text if len(x.shape) == 1 else f"{text}.reshape(-1)" for text, x in pairs]

    # --- collectives --------------------------------------------------------------------------

    def _all_reduce(self, s: CollectiveCall) -> Transfer:
        made = [self.result_is(s, s.source)]
        return self.transfer(
            s, made, self.called(s, "all_reduce", s.out, self.operator(s)), self.average(s)
        )

    def _reduce(self, s: CollectiveCall) -> Transfer:
        reduced = f"{s.work} = {self.copied(s.source)}"
        call = self.called(s, "reduce", s.work, "group_dst=0", self.operator(s))
        kept = [self.result_is(s, s.work, is_own=True), *self.average(s)]
        return self.transfer(s, [reduced], call, only_if(s.root, kept))

    def _broadcast(self, s: CollectiveCall) -> Transfer:
        lines = only_if(s.root, [self.result_is(s, s.source)])
        lines += ["else:", *inside(s.new)] if s.root and s.new else []
        root = f"group_src={s.op.number('root')}"
        return self.transfer(s, lines, self.called(s, "broadcast", s.out, root))

    def _reduce_scatter(self, s: CollectiveCall) -> Transfer:
        arrays = self.blocks(s, s.x, s.y)
        call = self.called(s, "reduce_scatter_tensor", *arrays, self.operator(s))
        return self.transfer(s, s.new, call, self.average(s))

    def _scatter(self, s: CollectiveCall) -> Transfer:
        blocks = f"{s.work} = list({self.reshaped(s.source, (s.group, *s.y.shape))})"
        lines = [*s.new, f"{s.work} = None", *only_if(s.root, [blocks])]
        root = f"group_src={s.op.number('root')}"
        return self.transfer(s, lines, self.called(s, "scatter", s.out, s.work, root))

    def _all_gather(self, s: CollectiveCall) -> Transfer:
        arrays = self.blocks(s, s.y, s.x)
        return self.transfer(s, s.new, self.called(s, "all_gather_into_tensor", *arrays))

    def _gather(self, s: CollectiveCall) -> Transfer:
        blocks = f"{s.work} = list({self.reshaped(s.out, (s.group, *s.x.shape))})"
        lines = [f"{s.work} = None", *only_if(s.root, [*s.new, blocks])]
        return self.transfer(s, lines, self.called(s, "gather", s.source, s.work, "group_dst=0"))

    def _all_to_all(self, s: CollectiveCall) -> Transfer:
        sends, receives = ([self.spelled(x) for x in side] for side in s.op.counts)
        counts = [f"[{', '.join(side)}]" for side in (receives, sends) if side]
        arrays = [f"{text}.reshape(-1)" for text in (s.out, s.source)]
        if not counts and s.x.shape == s.y.shape and s.x.shape[:1] == (s.group,):
            arrays = [s.out, s.source]
        return self.transfer(s, s.new, self.called(s, "all_to_all_single", *arrays, *counts))

    def _send(self, s: CollectiveCall) -> Transfer:
        if s.op.peers is not None:
            return self._send_to_peers(s)
        sends, receives = self.ends(s.op)
        axes = s.op.axes.data
        places = [digits_over(self.mesh, axes, s.op.number(n)) for n in ("sender", "receiver")]
        ahead = sum((places[1][a] - places[0][a]) * self.mesh.by_name[a].stride for a in axes)
        to, source = (f"self.rank {'+-'[n < 0]} {abs(n)}" for n in (ahead, -ahead))
        verbs = ("isend", "irecv") if s.token else ("send", "recv")
        token = f"{s.token} = " if s.token else ""
        send = f"{token}dist.{verbs[0]}({s.source}, {to})"
        receive = f"{token}dist.{verbs[1]}({s.out}, {source})"
        start = [
            *([f"{s.token} = None"] if s.token else []),
            *only_if(sends, [send]),
            f"elif {receives}:",
            *inside([*s.new, receive]),
        ]
        wait = [f"if {s.token} is not None:", f"    {s.token}.wait()"]
        return Transfer(start, wait if s.token else [])

    def _send_to_peers(self, s: CollectiveCall) -> Transfer:
        works = s.token or "sent"
        lines = [*s.new, f"{works} = []"]
        partner = " + ".join(["self.rank", *self.names.from_index(s.op.axes.data, "to")])
        pairs = zip(("isend", "irecv"), (s.source, s.out), s.op.partners, strict=True)
        for verb, array, number in pairs:
            message = [
                f"to = {partner}",
                f"{works}.append(dist.P2POp(dist.{verb}, {array}, to))",
            ]
            some = f"to < {s.group}" if self.is_partial(s.op) else ""
            lines += [f"to = {self.spelled(number)}", *only_if(some, message)]
        posted = only_if(
            works if self.is_partial(s.op) else "",
            [f"{works} = dist.batch_isend_irecv({works})"],
        )
        return self._waited(s, [*lines, *posted], works)

    def _shift(self, s: CollectiveCall) -> Transfer:
        by, is_open, axes = s.op.number("distance"), s.op.open is not None, s.op.axes.data
        if by % s.group == 0:
            return Transfer([self.result_is(s, s.source)], [])
        works = s.token or "sent"
        lines = [*s.new, *([f"{s.out}[...] = 0"] if is_open else []), f"{works} = []"]
        for verb, array, distance in (("isend", s.source, by), ("irecv", s.out, -by)):
            partner = " + ".join(["self.rank", *self.names.from_index(axes, "to")])
            message = [
                f"to = {self.names.next_index(axes, distance)}",
                f"to = {partner}",
                f"{works}.append(dist.P2POp(dist.{verb}, {array}, to))",
            ]
            there = self.names.has_neighbour(axes, distance) if is_open else ""
            lines += only_if(there, message)
        posted = only_if(works if is_open else "", [f"{works} = dist.batch_isend_irecv({works})"])
        return self._waited(s, [*lines, *posted], works)

    def _permute(self, s: CollectiveCall) -> Transfer:
        assert s.op.before is not None and s.op.after is not None
        x, y, works = s.op.before.data, s.op.after.data, s.token or "sent"
        pair = f"dist.P2POp(dist.isend, {s.source}, to), dist.P2POp(dist.irecv, {s.out}, from_)"
        lines = [
            self.names.partner("to", x, y),
            self.names.partner("from_", y, x),
            f"{works} = []",
            "if to == self.rank:",
            *inside([self.result_is(s, s.source)]),
            "else:",
            *inside([*s.new, f"{works} = dist.batch_isend_irecv([{pair}])"]),
        ]
        return self._waited(s, lines, works)

    def _waited(self, s: CollectiveCall, start: list[str], works: str) -> Transfer:
        """Return what is under way as a list."""
        wait = [f"for work in {works}:", "    work.wait()"]
        return Transfer(start, wait) if s.token else Transfer([*start, *wait], [])

    COLLECTIVES: ClassVar[Sender] = OperationTable(
        "TorchMethod.COLLECTIVES",
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


def _class(printed: PrintedClass[TorchMethod]) -> list[str]:
    names, mesh = printed.names, printed.names.mesh
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
    for method in printed.methods:
        lines += ["", "    @torch.no_grad()", *method]
    return lines + helpers(printed.needs, _HELPERS)


_HELPERS = {
    "argument": _ARGUMENT,
    **MODEL_METHODS,
}
"""The methods that methods of functions call, by what needs them."""


def emit_torch(module: ModuleOp, named: Collection[str] | None = None) -> str:
    """Return the Python module of the functions of a module.

    Args:
        named: the functions to print, if there are operations of models; None: all functions that
            no other function calls.

    Raises:
        DiagnosticError: names that Python cannot have, operations that are not collectives.
    """
    printed = classes(module, TorchMethod, "torch", RULES, named)
    needs = set[str]().union(*(x.needs for x in printed))
    bodies = [line for x in printed for line in ("", "", *_class(x))]
    lines = header("torch.distributed", _USE, example(printed, ""), _HEADER)
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

    The code is that of the local level (`localize{ascending=true padded=true}`), operation by
    operation. An `async` collective is started (`async_op=True`, `isend`), and waited for before
    its result or its memory is used. A `repeat` is a loop, a `call` is its steps. Each task of a
    pipeline is a method, which the ranks of its place call for every microbatch in the order of the
    schedule.

    Operations of models are functions of torch on the blocks of a rank (`torch.einsum`,
    `F.layer_norm`, ...), or calls of methods that are printed where they are used. Gradients are
    in the program, so nothing is left to autograd. Numbers of 16 bits stay in their type: functions
    of torch add in f32 and round once. Functions with operations of models that others call are
    not printed by themselves.
    """

    name = "torch"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write(emit_torch(module))
