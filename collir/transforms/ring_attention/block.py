"""The steps of attention on one block of keys, for the queries of a device.

Three running values go around: for each query the largest score, the sum of its shares, and the sum
of the values weighted by these. A block updates them. No gradient goes through the largest score,
as it cancels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from xdsl.ir import Block, SSAValue

from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.names import set_name
from collir.layout import DistType, DType, Mesh
from collir.layout.types import Dim
from collir.transforms.ring_attention.attention import (
    Attention,
    behind_layouts,
    counts,
    extents,
    is_map,
    made_type,
)
from collir.transforms.terms import BlockSteps

LOWEST = -3.4028234663852886e38
"""The smallest number of f32: the largest of no scores. It is finite, so that no difference of two
such numbers is NaN, as where all scores of a block are masked."""


@dataclass(frozen=True)
class BlockForm:
    """The form of values in blocks: with the number of the block as the leading dimension.

    Attributes:
        axes: the sub-axes that the blocks are divided over.
        count: the number of blocks.
        index: the name of the index that counts blocks.
    """

    axes: tuple[str, ...]
    count: int
    index: str

    @property
    def leading(self) -> Dim:
        """The dimension that counts blocks."""
        return Dim(self.count, self.axes)

    def type(self, x: DistType, dim: int) -> DistType:
        """Return the type in blocks of a value that is divided along a dimension."""
        dims = list(x.dims)
        dims[dim] = Dim(dims[dim].size // self.count)
        return replace(x, dims=(self.leading, *dims))

    def divided(self, steps: BlockSteps, value: SSAValue, dim: int) -> SSAValue:
        """Add the steps that divide a value into blocks."""
        size = dist_type(value).shape[dim]
        sizes = (self.count, size // self.count)
        parts = steps.step("split", (value,), {"dim": dim, "sizes": sizes})
        order = _moved(len(dist_type(parts).dims), dim, 0)
        return steps.step("transpose", (parts,), {"order": order}) if dim else parts

    def joined(self, steps: BlockSteps, value: SSAValue, dim: int) -> SSAValue:
        """Add the steps that join the blocks of a value along a dimension."""
        order = _moved(len(dist_type(value).dims), 0, dim)
        parts = steps.step("transpose", (value,), {"order": order}) if dim else value
        return steps.step("merge", (parts,), {"dim": dim})

    def names(self, indices: Sequence[str]) -> str:
        """Return the indices of a value in blocks, as in the text of an ``einsum``."""
        return " ".join((self.index, *indices))


def _moved(rank: int, source: int, target: int) -> tuple[int, ...]:
    """Return the order of dimensions in which one of them is at another place."""
    order = [d for d in range(rank) if d != source]
    return (*order[:target], source, *order[target:])


@dataclass
class BlockOfRing:
    """The function for one block.

    Attributes: types: the types of queries, keys, values and leaves; divided ones in blocks.
    """

    attention: Attention
    form: BlockForm
    types: Sequence[DistType]
    _known: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    @property
    def sums(self) -> tuple[str, ...]:
        """The indices of the scores without that of keys."""
        return tuple(i for i in self.attention.indices if i != self.attention.key_index)

    @property
    def dtype(self) -> DType:
        """The type in which sums are computed."""
        own = dist_type(self.attention.softmax.input).dtype
        return own if own.bytes >= DType.F32.bytes else DType.F32

    @property
    def counts_keys(self) -> bool:
        """True if the positions of keys are counted, which follow from the number of the block."""
        return any(
            extents(self.attention, value)[1] and self._along(value, op) == self.attention.key_dim
            for value, op in _made(self.attention)
        )

    def initial(self) -> list[tuple[DistType, float]]:
        """Return the types of the running values, and their initial numbers."""
        dims: dict[str, Dim] = {}
        queries, keys, values = self.types[:3]
        over = self.attention.scores.structure
        assert over is not None
        for indices, x in (
            (over.operands[1 - self.attention.query], keys),
            (self.attention.of_values[0], values),
            (over.operands[self.attention.query], queries),
        ):
            dims |= zip(indices, x.dims[1:], strict=True)
        of_sums = DistType(self.dtype, (self.form.leading, *(dims[i] for i in self.sums)))
        result = (dims[i] for i in self.attention.of_values[1])
        of_result = DistType(self.dtype, (self.form.leading, *result))
        return [(of_sums, LOWEST), (of_sums, 0), (of_result, 0)]

    def written(self, mesh: Mesh) -> tuple[Block, list[SSAValue]]:
        """Return the body of the function, and its results."""
        attention, names = self.attention, self.form.names
        types = [*self.types, *(x for x, _ in self.initial())]
        types += [DistType(DType.I32, ())] * self.counts_keys
        block = Block(arg_types=[DistTensorType(x) for x in types])
        steps = BlockSteps(mesh, block)
        steps.location = attention.softmax.location
        inputs = [attention.queries, attention.keys, attention.contents, *attention.leaves]
        for old, new in zip(inputs, block.args, strict=False):
            set_name(new, old.name_hint)
        count = len(inputs)
        largest, total, result = block.args[count : count + 3]
        for arg, name in zip(block.args[count:], ("largest", "total", "sum", "t"), strict=False):
            set_name(arg, name)
        self._known = dict(zip(attention.leaves, block.args[3:], strict=False))
        scores = self._scores(steps, block)
        key = attention.key_dim + 1
        over = {"dims": (key,)}
        highest = steps.step("max", (scores,), over)
        new = steps.step("maximum", (largest, highest), {})
        new = steps.step("stop_gradient", (new,), {})
        before = steps.step("exp", (steps.step("sub", (largest, new), {}),), {})
        shape = list(dist_type(scores).shape)
        shape[key] = 1
        wide = steps.step("reshape", (new,), {"shape": tuple(shape)})
        shares = steps.step("exp", (steps.step("sub", (scores, wide), {}),), {})
        kept = steps.step("mul", (total, before), {})
        total = steps.step("add", (kept, steps.step("sum", (shares,), over)), {})
        of_values, of_result = attention.of_values
        for cast in attention.casts:
            shares = steps.step("cast", (shares,), cast.arguments)
        dtype = dist_type(block.args[2]).dtype
        if dist_type(shares).dtype is not dtype:
            shares = steps.step("cast", (shares,), {"dtype": str(dtype)})
        texts = [names(attention.indices), names(of_values)]
        text = f"{', '.join(texts)} -> {names(of_result)}"
        added = steps.step("einsum", (shares, block.args[2]), {"equation": text})
        added = self._wide(steps, added)
        text = f"{names(of_result)}, {names(self.sums)} -> {names(of_result)}"
        kept = steps.step("einsum", (result, before), {"equation": text})
        return block, [new, total, steps.step("add", (kept, added), {})]

    def _wide(self, steps: BlockSteps, value: SSAValue) -> SSAValue:
        """Return a value in the type in which sums are computed."""
        if dist_type(value).dtype == self.dtype:
            return value
        return steps.step("cast", (value,), {"dtype": str(self.dtype)})

    # --- scores -------------------------------------------------------------------------------

    def _scores(self, steps: BlockSteps, block: Block) -> SSAValue:
        """Add the products of queries and keys, and the maps of them."""
        attention, names = self.attention, self.form.names
        structure = attention.scores.structure
        assert structure is not None
        texts = [names(indices) for indices in structure.operands]
        text = f"{', '.join(texts)} -> {names(attention.indices)}"
        operands = [block.args[0], block.args[1]]
        if attention.query:
            operands.reverse()
        number = block.args[-1] if self.counts_keys else None
        product = steps.step("einsum", operands, {"equation": text})
        set_name(product, attention.scores.result.name_hint)
        self._known[attention.scores.result] = product
        for op in attention.maps:
            _ = self._mapped(steps, op.result, number)
        return self._wide(steps, self._known[attention.softmax.input])

    def _mapped(self, steps: BlockSteps, value: SSAValue, number: SSAValue | None) -> SSAValue:
        """Return the replacement of a value of the maps, and add the steps that compute it."""
        if value not in self._known:
            op = behind_layouts(value).owner
            assert isinstance(op, DistOp)
            if is_map(op):
                operands = [self._mapped(steps, x, number) for x in op.operands]
                made = steps.step(op.kind.name, operands, op.arguments)
            elif counts(op) is None:
                made = steps.step(op.kind.name, (), op.arguments | {"to": self._alone(value, op)})
            else:
                made = self._positions(steps, value, op, number)
            set_name(made, value.name_hint)
            self._known[value] = made
        return self._known[value]

    def _alone(self, value: SSAValue, op: DistOp) -> DistType:
        """Return the type of a constant without the dimensions of queries and keys."""
        attention, x = self.attention, made_type(op)
        offset = len(attention.indices) - len(x.dims)
        gone = {attention.query_dim - offset, attention.key_dim - offset}
        dims = (Dim(1) if d in gone else Dim(dim.size) for d, dim in enumerate(x.dims))
        return replace(x, dims=tuple(dims))

    def _along(self, value: SSAValue, op: DistOp) -> int | None:
        """Return the dimension of the scores along which a value counts, or None."""
        dim = counts(op)
        return None if dim is None else dim + len(self.attention.indices) - len(made_type(op).dims)

    def _positions(
        self, steps: BlockSteps, value: SSAValue, op: DistOp, number: SSAValue | None
    ) -> SSAValue:
        """Add the steps that count positions: those of the queries and the keys of a block begin
        where the block does."""
        attention, x, along = self.attention, made_type(op), self._along(value, op)
        assert along is not None
        if along not in (attention.query_dim, attention.key_dim):
            return steps.step(op.kind.name, (), op.arguments | {"to": self._alone(value, op)})
        size = x.dims[counts(op) or 0].size // self.form.count
        ones = [Dim(1)] * len(attention.indices)
        to = replace(x, dims=(self.form.leading, *ones))
        start = steps.step(op.kind.name, (), {"dim": 0, "to": to})
        if along == attention.key_dim:
            assert number is not None
            start = self._rotated(steps, start, number)
        start = steps.step("mul", (start, steps.constant(replace(x, dims=()), size)), {})
        ones[along] = Dim(size)
        within = replace(x, dims=(self.form.leading, *ones))
        inner = steps.step(op.kind.name, (), {"dim": along + 1, "to": within})
        return steps.step("add", (start, inner), {})

    def _rotated(self, steps: BlockSteps, own: SSAValue, number: SSAValue) -> SSAValue:
        """Return the number of the block that has come round after a number of shifts by one."""
        dtype = dist_type(own).dtype
        if dtype is not DType.I32:
            number = steps.step("cast", (number,), {"dtype": str(dtype)})
        x = DistType(dtype, ())
        source = steps.step("sub", (own, number), {})
        wraps = steps.step("less", (source, steps.constant(x, 0)), {})
        further = steps.step("add", (source, steps.constant(x, self.form.count)), {})
        return steps.step("where", (wraps, further, source), {})


def _made(attention: Attention) -> Iterator[tuple[SSAValue, DistOp]]:
    """Yield the values of the maps without operands, with their steps."""
    inside = {attention.scores.result, *(op.result for op in attention.maps)}
    pending = [x for op in attention.maps for x in op.operands if x not in inside]
    while pending:
        value = pending.pop()
        op = behind_layouts(value).owner
        if value in attention.leaves or not isinstance(op, DistOp):
            continue
        if not op.operands:
            yield value, op
        else:
            pending += op.operands
