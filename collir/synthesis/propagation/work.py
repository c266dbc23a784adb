"""The time of the steps of a function on a device, as simulations have it.

Maps in one kernel are launched once, and only read and write values from and for outside. Kernels
are found in the whole function before its layouts are known. If a value inside of a kernel changes
its layout later, the kernel becomes two, and takes longer than it costs here.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from collir.cost.programs.kernels import FusedKernels, kernels_of
from collir.cost.programs.local_steps import LocalStep, local_times
from collir.cost.programs.masks import Masked, part_of
from collir.cost.programs.operations import computed
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.layout import DistType, Mesh
from collir.synthesis.propagation.devices import places_of


class StepTimes(NamedTuple):
    """The seconds of a step at each place, the sub-axes over which it is divided, and the type of
    its result."""

    places: tuple[float, ...]
    axes: frozenset[str]
    result: DistType


class KernelRole(NamedTuple):
    """The role of a step in the kernel that runs it.

    Attributes:
        is_made_again: whether it is made again where it is used.
        is_launched: whether it ends a kernel, or is one.
        writes: whether it writes its result to memory.
        reads: for each operand, whether it is the first in the kernel to read it from memory.
    """

    is_made_again: bool
    is_launched: bool
    writes: bool
    reads: tuple[bool, ...]

    @property
    def is_alone(self) -> bool:
        """True if it shares nothing with other steps."""
        return self.is_launched and self.writes and all(self.reads)


class SharedWork(NamedTuple):
    """Sub-axes whose devices have their best shares of a step that is divided over them.

    Attributes:
        axes: the sub-axes.
        places: the place of each coordinate along them.
    """

    axes: frozenset[str]
    places: Sequence[int]


class DeviceWork:
    """The times of steps on the devices of a mesh.

    Attributes:
        places: the devices that differ.
        shared: the sub-axes along which each device has its best share; None: all have equal
            ones.
    """

    def __init__(self, function: FuncOp, mesh: Mesh):
        self.mesh = mesh
        self.places = places_of(mesh)
        self._kernels: dict[Block, FusedKernels] = {}
        self._read: set[tuple[DistOp, int]] = set()
        self.shared: SharedWork | None = None
        self._known = _known_on(mesh)
        self.add(function.body.block)

    def add(self, block: Block) -> None:
        """Find the kernels of a block, and of the loops in it."""
        kernels = self._kernels[block] = kernels_of(block, mesh=self.mesh)
        for parts in kernels.parts.values():  # each reads a value once
            seen = set[SSAValue]()
            for part in parts:
                for number, value in enumerate(part.operands):
                    if value in seen:
                        self._read.add((part, number))
                    seen.add(value)
        for op in block.ops:
            if isinstance(op, RepeatOp):
                self.add(op.body.block)

    def is_inside(self, value: SSAValue) -> bool:
        """Return whether a value is made and used within a kernel."""
        owner = value.owner
        block = owner.parent if isinstance(owner, Operation) else None
        return block is not None and self._kernels[block].is_inside(value)

    def role(self, op: DistOp) -> KernelRole:
        """Return the role of a step in its kernel."""
        kernels = self._kernels[op.parent] if op.parent else FusedKernels()
        reads = tuple(
            not kernels.is_inside(value) and (op, number) not in self._read
            for number, value in enumerate(op.operands)
        )
        writes = not kernels.is_inside(op.result)
        return KernelRole(op in kernels.made, op not in kernels.last, writes, reads)

    def masked(self, op: DistOp) -> Masked | None:
        """Return the part of its kernel's elements that a step computes; None: all."""
        return self._kernels[op.parent].masked.get(op) if op.parent else None

    def key(self, op: DistOp) -> tuple[object, ...]:
        """Return all that times depend on, beside types and properties."""
        return self.role(op), self.masked(op)

    def times(
        self, op: DistOp, types: Sequence[DistType], properties: dict[str, Attribute]
    ) -> StepTimes:
        """Return the times of a step on operands of some types.

        Raises:
            LayoutError: the step is not well typed.
            DiagnosticError: it computes, and a device has no rate.
        """
        role, mask = self.role(op), self.masked(op)
        key = (op.name, tuple(properties.items()), tuple(types), role, mask)
        if key not in self._known:
            self._known[key] = self._times(op, types, properties, role, mask)
        return self._known[key]

    def seconds(self, times: StepTimes) -> float:
        """Return the time of a step on the slowest device."""
        if self.shared is not None and not self.shared.axes.isdisjoint(times.axes):
            listed = [times.places[place] for place in self.shared.places]
            return len(listed) / sum(1 / time for time in listed) if all(listed) else 0.0
        return max(times.places)

    def _times(
        self,
        op: DistOp,
        types: Sequence[DistType],
        properties: dict[str, Attribute],
        role: KernelRole,
        mask: Masked | None,
    ) -> StepTimes:
        block = Block(arg_types=[DistTensorType(x) for x in types])
        made = type(op).make(self.mesh, *block.args, **properties)
        if op.kind.is_view or role.is_made_again:
            return StepTimes((0.0,) * len(self.places), frozenset(), dist_type(made.result))
        made.location = op.location
        read = [x for x, is_read in zip(made.operands, role.reads, strict=True) if is_read]
        written = int(dist_type(made.result).local_bytes(self.mesh)) if role.writes else 0
        sizes = [int(dist_type(x).local_bytes(self.mesh)) for x in read]
        moved = sum(sizes) + written if not role.is_alone else made.kind.moved(sizes, written)
        if made.structure is not None:
            share = part_of(made, mask, self.mesh).share
            local = computed(made, made.structure, float(moved), share, self.mesh)
            if local.product is not None and not role.is_alone:  # it runs with others
                inner = tuple((*pair, local.product) for pair in local.work)
                local = replace(local, inner=inner, product=None)
        else:
            local = LocalStep(made.mnemonic, float(moved))
        local = replace(local, launched=role.is_launched)
        values = [dist_type(x) for x in (*made.operands, made.result)]
        dims = {dim.axes for x in values for dim in x.dims if dim.axes}
        axes = frozenset(axis for own in dims for axis in own)
        times: list[float] = []
        for place in self.places:
            own = local.scaled(math.prod(place.share(self.mesh, over) for over in dims))
            parts = zip(sizes, read, strict=True)
            less = sum(n * (1 - place.part(self.mesh, dist_type(x))) for n, x in parts)
            less += written * (1 - place.part(self.mesh, values[-1]))
            own = replace(own, size=max(0.0, local.size - less))
            times.append(local_times(own, place.device).seconds)
        return StepTimes(tuple(times), axes, values[-1])


@lru_cache(maxsize=8)
def _known_on(mesh: Mesh) -> dict[object, StepTimes]:
    """Return the times on a mesh that are known: functions share them."""
    return {}
