"""Measure the gain of passes on models: ``python benchmarks/passes.py``, a part of ``make bench``.

Programs of examples/models/ are simulated at their true sizes: as they are written, after their
pipeline, and as other systems issue them. Other systems see all layers one after another, so their
programs are unrolled, and pack collectives of one kind in the order of the program. They issue each
buffer as soon as all its operands are available, and do not wait for it:

- alone: every tensor by itself.
- DDP: PyTorch's DistributedDataParallel: a buffer ends with the tensor that makes it 25 MiB or
  more, the first one 1 MiB (kDefaultBucketBytesCap, kDefaultFirstBucketBytes in
  torch/csrc/distributed/c10d/reducer.hpp); all_reduces only.
- XLA: a buffer has at most 30 MiB + 7 B and 256 tensors (kDefaultAllReduceCombineThreshold and the
  others in xla/service/collective_utils.h, combine_threshold_count in its GPU compiler).

The training step of a model (resnet50) is differentiated first, and its loops are unrolled, as in
PyTorch; each gradient is reduced where it has been computed.

Times are predicted. Packing and unpacking take the time of the device memory.
"""

import argparse
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, UnitAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation

import collir
from collir.dialects import coll
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import NumberAttr, mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import SizesAttr, dist_type
from collir.ir.functions import functions_of
from collir.ir.verification import verify
from collir.layout import Mesh
from collir.targets.reports.text import ratio_text, seconds_text, table

PAGES = Path(__file__).parents[1] / "examples" / "models"


@dataclass(frozen=True)
class Model:
    """A program that is measured.

    Attributes:
        functions: The pipeline of each function that is measured.
        mesh: A machine and the axes of a mesh, in the place of those of the page.
        batch: The size of the batch on that mesh.
    """

    functions: dict[str, str]
    mesh: tuple[str, str] | None = None
    batch: int = 0


MODELS = {
    "resnet50": Model({"step": "ddp"}),
    "gpt": Model(
        {"step": "ddp"}, ("@dgx_a100(nodes = 4)", "data = node:4 * gpu:8, model = gpu:1"), 128
    ),
    "mixtral": Model({"step": "default"}),
    "zero": Model({"data_parallel": "zero", "zero_1": "zero", "zero_2": "zero", "zero_3": "fsdp"}),
    "styles": Model(
        {
            "data_parallel": "ddp",
            "zero_1": "zero",
            "fully_sharded": "fsdp",
            "tensor_parallel": "megatron",
            "sequence_parallel": "megatron",
            "context_parallel": "megatron",
            "mixed": "fsdp",
        }
    ),
    "llama": Model({"step": "megatron"}),
}
"""The programs by the names of their pages."""

STEPS = ("resnet50",)
"""The models in whose straight programs collectives are moved behind their operands."""

MIB = 2**20

# --- how other systems pack ---------------------------------------------------------------------


@dataclass
class Bucket:
    """Collectives that share a buffer, in the order of the program.

    Attributes:
        size: Bytes of all their buffers.
        behind: The position in the program after which all operands are available.
    """

    ops: list[DistOp] = field(default_factory=list[DistOp])
    size: int = 0
    behind: int = -1


class Packing(ABC):
    """A rule that says when a buffer ends."""

    kinds: tuple[str, ...]

    @abstractmethod
    def before(self, bucket: Bucket, size: int) -> bool:
        """Return whether a buffer ends before a tensor of ``size`` bytes."""

    @abstractmethod
    def full(self, bucket: Bucket, number: int) -> bool:
        """Return whether the buffer with this number takes no more tensors."""


class Alone(Packing):
    """Packing of every tensor by itself."""

    kinds = ("all_reduce", "reduce_scatter", "all_gather")

    def before(self, bucket: Bucket, size: int) -> bool:
        return False

    def full(self, bucket: Bucket, number: int) -> bool:
        return True


class DDP(Packing):
    """Packing by PyTorch's DistributedDataParallel."""

    kinds = ("all_reduce",)

    def before(self, bucket: Bucket, size: int) -> bool:
        return False

    def full(self, bucket: Bucket, number: int) -> bool:
        return bucket.size >= (25 if number else 1) * MIB


class XLA(Packing):
    """Packing by XLA's combiners."""

    kinds = ("all_reduce", "reduce_scatter", "all_gather")

    def before(self, bucket: Bucket, size: int) -> bool:
        return bucket.size + size > 30 * MIB + 7

    def full(self, bucket: Bucket, number: int) -> bool:
        return len(bucket.ops) == 256


Kind = tuple[object, ...]


def awaited(function: FuncOp) -> set[Operation]:
    """Return the operations on whose results a collective depends.

    None depends on a gradient that is reduced, but some do on the averages of a normalisation.
    """
    found: set[Operation] = set()
    for op in reversed(function.body.ops):
        users = [use.operation for result in op.results for use in result.uses]
        if any(user in found or isinstance(user, coll.COLLECTIVES) for user in users):
            found.add(op)
    return found


def kind_of(op: DistOp, mesh: Mesh, is_awaited: bool) -> Kind | None:
    """Return a key that collectives must share to share a buffer.

    It is None if the collective cannot share a buffer.

    Args:
        is_awaited: whether another collective depends on the result.
    """
    x, y = dist_type(op.operands[0]), dist_type(op.result)
    if any(dim.axes for z in (x, y) for dim in z.dims[1:]):
        return None  # blocks of a later dimension are not contiguous
    sharded = tuple(dim.axes for z in (x, y) for dim in z.dims[:1])
    rest = x.dtype, x.partial, x.reduction, is_awaited
    return op.mnemonic, op.properties["axes"], sharded, *rest


class Issue:
    """Rewriter of a function: its collectives become async, packed as another system does."""

    def __init__(self, function: FuncOp, packing: Packing):
        self.mesh = mesh_of(function)
        self.packing = packing
        self.ops = list(function.body.ops)
        self.awaited = awaited(function)
        self.order = {op: number for number, op in enumerate(self.ops)}
        self.there = dict(self.order)  # position at which each result is available
        self.open: dict[Kind, Bucket] = {}
        self.done: list[Bucket] = []
        self.numbers: dict[Kind, int] = {}
        for op in self.ops:
            if isinstance(op, coll.COLLECTIVES):
                self._take(op)
        for kind in list(self.open):
            self._close(kind)
        last: dict[int, Operation] = {}
        for bucket in self.done:
            self._write(bucket, last)
        for bucket in self.done:
            for op in bucket.ops if len(bucket.ops) > 1 else ():
                op.detach()
                op.erase()

    def _take(self, op: DistOp) -> None:
        for kind, bucket in list(self.open.items()):
            if op.operands[0].owner in bucket.ops:  # its operand is not issued yet
                self._close(kind)
        kind = (
            kind_of(op, self.mesh, op in self.awaited)
            if op.mnemonic in self.packing.kinds
            else None
        )
        if kind is None:
            self.done.append(Bucket([op], behind=self.order[op] - 1))
            return
        size = max(dist_type(value).local_bytes(self.mesh) for value in (op.operands[0], op.result))
        bucket = self.open.setdefault(kind, Bucket())
        if bucket.ops and (self.packing.before(bucket, size) or not self._fits(bucket, op)):
            self._close(kind)
            bucket = self.open[kind] = Bucket()
        bucket.ops.append(op)
        bucket.size += size
        bucket.behind = self._behind(bucket.ops)
        if self.packing.full(bucket, self.numbers.get(kind, 0)):
            self._close(kind)

    def _behind(self, ops: Sequence[DistOp]) -> int:
        """Return the position after which all operands are available.

        It is not before the position of the first collective.
        """
        owners = [op.operands[0].owner for op in ops]
        positions = [self.there[owner] for owner in owners if isinstance(owner, Operation)]
        return max([*positions, self.order[ops[0]] - 1])

    def _fits(self, bucket: Bucket, op: DistOp) -> bool:
        """Return whether a bucket with ``op`` can be issued before the first use of a result."""
        ops = [*bucket.ops, op]
        uses = [self.order[use.operation] for collective in ops for use in collective.result.uses]
        return self._behind(ops) < min(uses)

    def _close(self, kind: Kind) -> None:
        bucket = self.open.pop(kind)
        self.done.append(bucket)
        self.numbers[kind] = self.numbers.get(kind, 0) + 1
        for op in bucket.ops if len(bucket.ops) > 1 else ():
            self.there[op] = bucket.behind

    def _write(self, bucket: Bucket, last: dict[int, Operation]) -> None:
        if len(bucket.ops) == 1:
            if not isinstance(bucket.ops[0], OPERATIONS["permute"]):
                bucket.ops[0].properties["async"] = UnitAttr()
            return
        new = packed(bucket.ops, self.mesh)
        block = self.ops[0].parent
        assert block is not None
        behind = last.get(bucket.behind) or (
            self.ops[bucket.behind] if bucket.behind >= 0 else None
        )
        if behind is None:
            block.insert_ops_before(new, self.ops[0])
        else:
            block.insert_ops_after(new, behind)
        last[bucket.behind] = new[-1]


def packed(ops: Sequence[DistOp], mesh: Mesh) -> list[Operation]:
    """Return one collective that replaces several; uses of their results are rewritten."""
    first = ops[0]
    ends = [dist_type(first.operands[0]), dist_type(first.result)]
    rows = max(mesh.group_size(z.dims[0].axes) for z in ends)  # one for every shard
    dim = _int(1 if rows > 1 else 0)
    views: list[DistOp] = []
    columns: list[int] = []
    for op in ops:
        columns.append(math.prod(dist_type(op.result).shape) // rows)
        shape = (rows, columns[-1]) if rows > 1 else (columns[-1],)
        views.append(OPERATIONS["reshape"].make(mesh, op.operands[0], shape=SizesAttr(shape)))
    joined = OPERATIONS["concat"].make(mesh, *(flat.result for flat in views), dim=dim)
    sent = type(first).make(mesh, joined.result, **{**first.properties, "async": UnitAttr()})
    new: list[Operation] = [*views, joined, sent]
    low, whole = 0, sum(columns)
    for op, size in zip(ops, columns, strict=True):
        cuts = {"low": _int(-low), "high": _int(low + size - whole), "value": NumberAttr(0.0)}
        cut = OPERATIONS["pad"].make(mesh, sent.result, dim=dim, **cuts)
        shape = SizesAttr(dist_type(op.result).shape)
        view = OPERATIONS["reshape"].make(mesh, cut.result, shape=shape)
        op.result.replace_all_uses_with(view.result)
        new += [cut, view]
        low += size
    return new


def _int(value: int) -> Attribute:
    return IntegerAttr(value, i64)


# --- the table ---------------------------------------------------------------------------

BASELINES: dict[str, type[Packing]] = {"alone": Alone, "DDP": DDP, "XLA": XLA}


def program(name: str) -> ModuleOp:
    """Return a program on the mesh and at the sizes that are measured, with its collectives."""
    model, path = MODELS[name], PAGES / f"{name}.coll"
    if model.mesh is None:
        return collir.run_passes(collir.parse(path), "propagate")
    machine, axes = model.mesh
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^machine @(\w+) = .*$", rf"machine @\1 = {machine}", text, flags=re.MULTILINE)
    text = re.sub(r"^mesh (.*) \{.*$", rf"mesh \1 {{ {axes} }}", text, flags=re.MULTILINE)
    return collir.parse(re.sub(r"batch = \d+", f"batch = {model.batch}", text), str(path))


def arrange(function: FuncOp) -> None:
    """Move collectives behind their operands, and what needs gradients to the end."""
    block, kept = function.body.block, awaited(function)
    late: list[Operation] = []
    for op in list(block.ops):
        owners = [operand.owner for operand in op.operands]
        if isinstance(op, coll.COLLECTIVES) and isinstance(owners[0], Operation):
            op.detach()
            block.insert_op_after(op, owners[0])
        elif any(
            owner in late or (isinstance(owner, coll.COLLECTIVES) and owner not in kept)
            for owner in owners
        ):
            late.append(op)
    for op in late:
        op.detach()
        block.add_op(op)


def straight(module: ModuleOp, name: str) -> ModuleOp:
    """Return the functions of a program that are measured, without calls and loops."""
    module = collir.run_passes(module.clone(), "inline")
    for function in list(functions_of(module)):
        if function.sym_name.data not in MODELS[name].functions:
            function.detach()
            function.erase()
    module = collir.run_passes(module, "unroll,canonicalize")
    for function in functions_of(module) if name in STEPS else ():
        arrange(function)
    return module


def baseline(module: ModuleOp, packing: Packing) -> ModuleOp:
    """Return a straight program as another system would issue it."""
    module = module.clone()
    for function in functions_of(module):
        Issue(function, packing)
    verify(module)
    return module


def times_of(module: ModuleOp, name: str) -> list[float]:
    """Return the predicted seconds of each function that is measured."""
    simulations = {simulation.name: simulation for simulation in collir.simulate(module)}
    return [simulations[function].time for function in MODELS[name].functions]


def rows_of(name: str) -> Iterator[tuple[str, list[float]]]:
    """Yield the seconds of every function: as written, by each baseline, by its pipeline."""
    functions, module = MODELS[name].functions, program(name)
    unrolled = straight(module, name)
    columns = [times_of(module, name)]
    columns += [times_of(baseline(unrolled, packing()), name) for packing in BASELINES.values()]
    after = {
        pipeline: dict(
            zip(functions, times_of(collir.run_passes(module.clone(), pipeline), name), strict=True)
        )
        for pipeline in dict.fromkeys(functions.values())
    }
    columns.append([after[pipeline][function] for function, pipeline in functions.items()])
    for function, *times in zip(functions, *columns, strict=True):
        yield f"{name} @{function}", list(times)


def main() -> None:
    """Simulate the models, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    given = parser.parse_args()
    head = ["model", "pipeline", "as written", *BASELINES, "after", "of the best"]
    rows: list[list[str]] = []
    for name in given.models:
        pipelines = MODELS[name].functions.values()
        for (what, times), pipeline in zip(rows_of(name), pipelines, strict=True):
            *others, ours = times
            shown = [seconds_text(seconds) for seconds in times]
            rows.append([what, pipeline, *shown, ratio_text(min(others), ours)])
    print("\n".join(table(head, rows, left=2)))


if __name__ == "__main__":
    main()
