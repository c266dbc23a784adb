"""The builder of typed plans of operations, from the steps that a search has found.

Steps that name no dimension come from layouts without order. Most such programs gather last what
they scattered first, and then one dimension is enough. Otherwise, or where no dimension divides,
the value is viewed with a dimension for every sub-axis that shards it. Views cost nothing, though
packing may.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from collir.dialects.coll import OPERATIONS
from collir.dialects.operation import DistOp, properties_of
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.steps import is_free
from collir.layout import DistType, LayoutError, Mesh
from collir.layout.coll import MASK, STEPS
from collir.layout.sizes import same_size
from collir.layout.steps import ASYNC, Argument
from collir.layout.types import with_sizes
from collir.synthesis.programs.steps import ChunkPipeline, CollectiveStep, scattered

Axes = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ProgramPlan:
    """A program on a placeholder value, to be built on real ones.

    Attributes:
        source: the value that the program starts from.
        steps: the steps, each behind those that make its operands; they are in no block.
        result: the value that the program ends with.
    """

    source: SSAValue
    steps: tuple[DistOp, ...]
    result: SSAValue

    def ends_in_larger_buffer(self, mesh: Mesh) -> bool:
        """Return whether the result is a view of a part of a value, to be copied if returned."""
        value = self.result
        while isinstance(maker := value.owner, DistOp) and is_free(maker, mesh):
            value = maker.operands[0]
        x, y = dist_type(value), dist_type(self.result)
        return x.local_bytes(mesh) != y.local_bytes(mesh) or x.place != y.place

    def built_on(self, value: SSAValue) -> tuple[list[DistOp], SSAValue]:
        """Return operations that carry out the plan on a value of its type, and their result."""
        values = {self.source: value}
        return [step.clone(values) for step in self.steps], values[self.result]

    def as_function(self) -> FuncOp:
        """Return a function that carries out the plan; it is in no module."""
        block = Block(arg_types=[self.source.type])
        ops, result = self.built_on(block.args[0])
        block.add_ops([*ops, ReturnOp(result)])
        return FuncOp("plan", ([self.source.type], [result.type]), Region(block))


def stand_in(x: DistType) -> SSAValue:
    """Return a value of a type that nothing makes, as a placeholder for a value of a program."""
    return Block(arg_types=[DistTensorType(x)]).args[0]


@dataclass
class Chain:
    """A chain of steps on one value, typed as it grows; they are in no block."""

    mesh: Mesh
    value: SSAValue
    steps: list[DistOp] = field(default_factory=list[DistOp])

    def then(self, kind: str, **arguments: Argument) -> None:
        """Add a step on the value.

        Raises:
            LayoutError: the step is not well typed.
        """
        self.then_of([self.value], kind, **arguments)

    def then_of(self, values: Sequence[SSAValue], kind: str, **arguments: Argument) -> None:
        """Add a step on several values; the chain goes on with its result.

        Raises:
            LayoutError: the step is not well typed.
        """
        row = STEPS[kind]
        x = row.result_type(self.mesh, list(map(dist_type, values)), arguments)
        op = OPERATIONS[kind].create(
            operands=values,
            properties=properties_of(row, arguments),
            result_types=[DistTensorType(x)],
        )
        self.value = op.result
        self.steps.append(op)

    @property
    def type(self) -> DistType:
        """The type of the value now."""
        return dist_type(self.value)


def planned(
    mesh: Mesh,
    source: DistType,
    steps: Sequence[CollectiveStep],
    target: DistType,
    pipeline: ChunkPipeline | None = None,
) -> ProgramPlan:
    """Return the plan that carries out steps from a layout to another.

    Raises:
        LayoutError: the steps do not lead to ``target``; or a tensor is so large that no padding
            fits.
    """
    value = stand_in(source)
    for dim in _dims_to_try(mesh, source, target, steps) if pipeline is None else ():
        chain = Chain(mesh, value)
        with suppress(LayoutError):
            _plain(chain, steps, target, dim)
            if chain.type.agrees(target):
                return ProgramPlan(value, tuple(chain.steps), chain.value)
    chain = Chain(mesh, value)
    try:
        _viewed(chain, steps, target, pipeline, apart=False)
    except LayoutError:  # it gathers other sub-axes than were scattered last
        chain = Chain(mesh, value)
        _viewed(chain, steps, target, pipeline, apart=True)
    if not chain.type.agrees(target):
        raise LayoutError(f"the steps lead to {chain.type}, not to {target}")
    return ProgramPlan(value, tuple(chain.steps), chain.value)


# ---------------------------------------------------------------------------------------------
# On dimensions as they are
# ---------------------------------------------------------------------------------------------


def dims_of(
    mesh: Mesh, source: DistType, target: DistType, steps: Sequence[CollectiveStep]
) -> list[int | None]:
    """Return for every step the dimension that it works on.

    A step may name its dimension. Otherwise its sub-axes name it, if they shard it at one end of
    the program. Otherwise it is the first dimension that divides among all sub-axes scattered on
    the way; None if there is none.
    """
    between = next(iter(_dims_to_try(mesh, source, target, steps)), -1)
    dims: list[int | None] = []
    for step in steps:
        dim = step.dim
        if dim is None and (step.does.shards or step.does.gathers):
            ends = [x.dim_of(step.axes[0]) for x in (source, target)]
            dim = next((end for end in ends if end is not None), between if between >= 0 else None)
        dims.append(dim)
    return dims


def _dims_to_try(
    mesh: Mesh, source: DistType, target: DistType, steps: Sequence[CollectiveStep]
) -> list[int]:
    """Return the dimensions that divide among the sub-axes that shard only on the way.

    [-1] if there are no such sub-axes.
    """
    ends = {axis for x in (source, target) for dim in x.dims for axis in dim.axes}
    between = mesh.group_size(axis for axis in scattered(steps) if axis not in ends)
    if between == 1:
        return [-1]
    local = source.local_shape(mesh)
    return [dim for dim, size in enumerate(local) if size % between == 0]


def _plain(chain: Chain, steps: Sequence[CollectiveStep], target: DistType, between: int) -> None:
    """Add the steps as they are; ``between`` is the dimension of axes that shard neither end."""
    for step in steps:
        arguments: dict[str, Argument] = {"axes": step.axes}
        if step.does.exchanges:
            before, after = step.dim, step.target
            if before is None or after is None:
                before, after = (x.dim_of(step.axes[0]) for x in (chain.type, target))
            arguments |= {"source": before or 0, "target": after or 0}
        elif step.to is not None:
            arguments = {"to": with_sizes(step.to, chain.type.shape)}
        elif step.does is MASK:
            arguments["reduction"] = str(target.reduction)
        else:
            dim = step.dim
            if dim is None and (step.does.shards or step.does.gathers):
                x = target if step.does.shards else chain.type
                own = x.dim_of(step.axes[0])
                dim = between if own is None else own
            if dim is not None:
                arguments["dim"] = dim
        chain.then(step.kind, **arguments)


# ---------------------------------------------------------------------------------------------
# On a dimension for every sub-axis
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A part of a dimension (-1: of several), and the sub-axes that shard it at some time."""

    dim: int
    size: int
    axes: Axes = ()


def _viewed(
    chain: Chain,
    steps: Sequence[CollectiveStep],
    target: DistType,
    pipeline: ChunkPipeline | None,
    apart: bool,
) -> None:
    """Add the steps on a view of the value.

    Args:
        apart: whether each sub-axis that shards the value on the way only has a dimension of its
            own; otherwise all of them have one together.
    """
    parts = _split_ends(chain, target)
    ends = {axis for part in parts for axis in part.axes}
    between = [axis for axis in scattered(steps) if axis not in ends]
    view = _View(chain, parts)
    place, undo = view.split_between(between, apart, pipeline.chunks if pipeline else 1)
    if pipeline is None:
        for step in steps:
            view.carry_out(step, target)
    else:
        views = view.cut(place, pipeline.chunks)
        for chunk, step in pipeline.order:
            views[chunk].carry_out(steps[step], target)
        view.put_together(place, views)
    undo()
    _merge_ends(chain, view.parts)


def _split_ends(chain: Chain, target: DistType) -> list[_Part]:
    """Split every dimension into a part per sub-axis that shards it at an end, and the rest."""
    parts: list[_Part] = []
    for dim, (have, want) in enumerate(zip(chain.type.dims, target.dims, strict=True)):
        axes = max(have.axes, want.axes, key=len)
        left = have.size
        for axis in axes:
            size = chain.mesh.by_name[axis].size
            left //= size
            chain.then("split", dim=len(parts), sizes=(size, left))
            parts.append(_Part(dim, size, (axis,)))
        parts.append(_Part(dim, left))
    return parts


def _merge_ends(chain: Chain, parts: Sequence[_Part]) -> None:
    """Undo ``_split_ends``."""
    for dim in sorted({part.dim for part in parts}):
        for _ in range(sum(part.dim == dim for part in parts) - 1):
            chain.then("merge", dim=dim)


@dataclass
class _View:
    """A value, and the parts that make up its dimensions. Steps on a chunk are ``async``."""

    chain: Chain
    parts: list[_Part]
    is_chunk: bool = False

    def split_between(
        self, axes: Sequence[str], apart: bool, chunks: int = 1
    ) -> tuple[int, Callable[[], None]]:
        """Make parts for sub-axes that shard no dimension at either end.

        The parts come out of the rest of a dimension that divides, into chunks too, or out of the
        rests of all dimensions, padded.

        Returns: the place of the part that can be cut into chunks then, and a function that undoes
        all of this.
        """
        mesh = self.chain.mesh
        if not axes and chunks == 1:
            return 0, lambda: None
        sizes = [mesh.by_name[axis].size for axis in axes]
        total = math.prod(sizes) * chunks
        rests = [place for place, part in enumerate(self.parts) if not part.axes]
        before = list(self.parts)
        # Chunks are in one piece; other parts leave alone the first dimension, such as of layers.
        inner_first = sorted(rests, key=lambda place: self.parts[place].dim == 0)
        candidates = inner_first if chunks == 1 else rests[:1]
        fits = next((place for place in candidates if self.parts[place].size % total == 0), None)
        missing = 0
        if fits is None:
            self._order([*(p for p in range(len(before)) if p not in rests), *rests])
            fits = len(before) - len(rests)
            left = math.prod(before[place].size for place in rests)
            del self.parts[fits:]
            self.parts.append(_Part(-1, left))
            self._reshape()
            missing = -left % total
            self._pad(fits, missing)
        rest = self.parts[fits]
        own = [_Part(rest.dim, rest.size, tuple(axes))]
        if apart and axes:
            own = [_Part(rest.dim, size, (axis,)) for size, axis in zip(sizes, axes, strict=True)]
            own.append(_Part(rest.dim, rest.size // math.prod(sizes)))
        self.parts[fits : fits + 1] = own
        self._reshape()

        def undo() -> None:
            place = self.parts.index(own[0])
            self.parts[place : place + len(own)] = [rest]
            self._reshape()
            if rest.dim >= 0:
                return
            self._pad(place, -missing)
            self.parts[place:] = [before[old] for old in rests]
            self._reshape()
            self._order([self.parts.index(part) for part in before])

        return fits + len(own) - 1, undo

    def cut(self, place: int, chunks: int) -> list["_View"]:
        """Return views of equal chunks of a part."""
        part = self.parts[place]
        size = part.size // chunks
        views: list[_View] = []
        for chunk in range(chunks):
            chain = Chain(self.chain.mesh, self.chain.value, self.chain.steps)
            start = chunk * size  # with its formula
            high = start + size - part.size
            chain.then("pad", dim=place, low=-start, high=high, value=0.0)
            parts = list(self.parts)
            parts[place] = replace(part, size=size)
            views.append(_View(chain, parts, is_chunk=True))
        return views

    def put_together(self, place: int, views: Sequence["_View"]) -> None:
        """Concatenate the values of the chunks."""
        chunks = [view.chain.value for view in views]
        self.chain.then_of(chunks, "concat", dim=place)

    def carry_out(self, step: CollectiveStep, target: DistType) -> None:
        """Add a step; sub-axes with parts of their own become one dimension for it."""
        chain = self.chain
        axes: dict[str, Argument] = {"axes": step.axes}
        if self.is_chunk and step.does.may_be_async:
            axes[ASYNC.name] = True
        if step.does is MASK:
            chain.then(step.kind, **axes, reduction=str(target.reduction))
            return
        # The places of the parts; sub-axes that are only reduced over have none.
        held = [self._place(axis, target, held=True) for axis in step.axes]
        free = [self._place(axis, target, held=False) for axis in step.axes]
        if step.does.exchanges:
            (before, after), undo = self._together([held, free])
            chain.then(step.kind, **axes, source=before, target=after)
            undo()
        elif step.does.shards or step.does.gathers:
            (dim,), undo = self._together([held if step.does.gathers else free])
            chain.then(step.kind, **axes, dim=dim)
            undo()
        else:
            chain.then(step.kind, **axes)

    def _place(self, axis: str, target: DistType, held: bool) -> int:
        """Return the place of the part that a sub-axis shards (``held``) or will shard, or -1."""
        places = [place for place, part in enumerate(self.parts) if axis in part.axes]
        dims, dim = self.chain.type.dims, target.dim_of(axis)
        for place in places if len(places) > 1 else ():
            if held == (axis in dims[place].axes) and (held or self.parts[place].dim == dim):
                return place
        return places[0] if places else -1

    def _together(self, blocks: Sequence[Sequence[int]]) -> tuple[list[int], Callable[[], None]]:
        """Merge the parts of each block into one dimension.

        Returns: the dimensions, and a function that undoes the merges.

        Raises:
            LayoutError: a block has several parts, one of them of several sub-axes.
        """
        distinct = [list(dict.fromkeys(block)) for block in blocks]
        if any(len(self.parts[p].axes) > 1 for block in distinct if len(block) > 1 for p in block):
            raise LayoutError("sub-axes that are together shard a dimension with others")
        block_of = {place: block for block in distinct for place in block}
        order: list[int] = []
        for place in range(len(self.parts)):
            if place not in order:
                order += block_of.get(place, [place])
        own = {block[0]: [self.parts[place] for place in block] for block in distinct}
        self._order(order)
        at: dict[int, int] = {}
        dim = 0
        for place in order:
            if place in own:
                at[place] = dim
                for _ in own[place][1:]:
                    self.chain.then("merge", dim=dim)
            dim += place in own or place not in block_of

        def undo() -> None:
            for place in sorted(own, key=lambda place: -at[place]):
                left = math.prod(part.size for part in own[place])
                for index, part in enumerate(own[place][:-1]):
                    left //= part.size
                    sizes = (part.size, left)
                    self.chain.then("split", dim=at[place] + index, sizes=sizes)
            self._order([order.index(place) for place in range(len(order))])

        return [at[block[0]] for block in distinct], undo

    def _order(self, order: Sequence[int]) -> None:
        if list(order) != sorted(order):
            self.chain.then("transpose", order=tuple(order))
            self.parts = [self.parts[place] for place in order]

    def _reshape(self) -> None:
        shape = tuple(part.size for part in self.parts)
        if not same_size(shape, self.chain.type.shape):
            self.chain.then("reshape", shape=shape)

    def _pad(self, place: int, high: int) -> None:
        if high:
            self.chain.then("pad", dim=place, low=0, high=high, value=0.0)
            part = self.parts[place]
            self.parts[place] = _Part(part.dim, part.size + high, part.axes)
