"""Attention in a program: products of queries and keys, maps, a softmax, and products with values.

The module finds the steps and the operands from outside, by the dimensions of the scores. The maps
may scale, cast and mask, by positions that ``iota`` counts and by operands with one of the two
dimensions that scores have for positions.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from collir.dialects.operation import DistOp, value_text
from collir.dialects.tensor import dist_type
from collir.layout import DistType
from collir.layout.coll import CAST
from collir.layout.nn import EINSUM, IOTA, SOFTMAX
from collir.layout.sizes import same_size
from collir.layout.steps import DIM, TO, ArgumentKind
from collir.layout.types import Dim, with_axes


class AttentionRole(Enum):
    """The role of a value in attention."""

    QUERY = "query"
    KEY = "key"
    OTHER = "other"


class NotOneByOne(Exception):
    """Attention that cannot be computed block by block; the text says why."""


@dataclass
class Attention:
    """The steps of one attention, and its operands from outside.

    Attributes:
        scores: the products of queries and keys.
        maps: the maps between these and the softmax, in order.
        softmax: the shares of keys, for each query.
        casts: the casts between the softmax and the products with values, in order.
        values: the products of shares and values.
        query: the number of the operand of ``scores`` that has queries; the other one has keys.
        share: the number of the operand of ``values`` that has the shares.
        key_dim: the dimension of the scores that counts keys.
        query_dim: the dimension of the scores that counts the queries that are divided.
        leaves: the operands of maps from outside that have a dimension of queries or keys, or none.
    """

    scores: DistOp
    maps: list[DistOp]
    softmax: DistOp
    casts: list[DistOp]
    values: DistOp
    query: int
    share: int
    key_dim: int
    query_dim: int = -1
    leaves: dict[SSAValue, AttentionRole] = field(default_factory=dict[SSAValue, AttentionRole])

    # --- operands -----------------------------------------------------------------------------

    @property
    def queries(self) -> SSAValue:
        return self.scores.operands[self.query]

    @property
    def keys(self) -> SSAValue:
        return self.scores.operands[1 - self.query]

    @property
    def contents(self) -> SSAValue:
        """Return the operand that the shares are multiplied by."""
        return self.values.operands[1 - self.share]

    @property
    def steps(self) -> list[DistOp]:
        """All steps, in order."""
        return [self.scores, *self.maps, self.softmax, *self.casts, self.values]

    # --- indices ------------------------------------------------------------------------------

    @property
    def indices(self) -> tuple[str, ...]:
        """The index of each dimension of the scores."""
        return indices_of(self.scores)[1]

    @property
    def of_values(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The indices of the values and of the result, named as in the scores where these have
        them."""
        operands, result = indices_of(self.values)
        names = dict(zip(operands[self.share], self.indices, strict=True))
        for name in {*operands[1 - self.share], *result} - names.keys():
            names[name] = f"{name}_" if name in self.indices else name
        rest = operands[1 - self.share]
        return tuple(names[i] for i in rest), tuple(names[i] for i in result)

    @property
    def key_index(self) -> str:
        return self.indices[self.key_dim]

    @property
    def query_index(self) -> str:
        return self.indices[self.query_dim]


def indices_of(op: DistOp) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """Return the index of each dimension of the operands and of the result of a step."""
    structure = op.structure
    assert structure is not None
    return structure.operands, structure.result


def attentions_in(function: FuncOp) -> Iterator[Attention]:
    """Yield the attention in a function and its loops, without its leaves."""
    for op in _softmaxes(function):
        with suppress(NotOneByOne):
            yield _attention(op)


def others_in(function: FuncOp) -> Iterator[tuple[DistOp, NotOneByOne]]:
    """Yield every softmax between products of gathered values that is not found as attention, and
    why."""
    for op in _softmaxes(function):
        try:
            _attention(op)
        except NotOneByOne as error:
            if _is_between_gathers(op):
                yield op, error


def _softmaxes(function: FuncOp) -> Iterator[DistOp]:
    return (op for op in function.walk() if isinstance(op, DistOp) and op.kind is SOFTMAX)


def _is_between_gathers(softmax: DistOp) -> bool:
    """Return whether a softmax lies between products that both take gathered values."""
    ends = (_products(softmax, ahead) for ahead in (False, True))
    return all(any(map(_takes_gathered, products)) for products in ends)


def _products(softmax: DistOp, ahead: bool) -> list[DistOp]:
    """Return the nearest products of two operands in front of a step or behind it."""
    products: list[DistOp] = []
    pending, seen = [softmax], set[DistOp]()
    while pending:
        op = pending.pop()
        if ahead:
            near = [use.operation for result in op.results for use in result.uses]
        else:
            near = [operand.owner for operand in op.operands]
        for operation in near:
            if isinstance(operation, DistOp) and operation not in seen:
                seen.add(operation)
                product = operation.kind is EINSUM and len(operation.operands) == 2
                (products if product else pending).append(operation)
    return products


def _takes_gathered(product: DistOp) -> bool:
    """Return whether an operand or the result of a product was gathered along a dimension."""
    values = [
        *product.operands,
        *(use.operation.results[0] for use in product.result.uses if use.operation.results),
    ]
    return any(
        gathered_from(value, dim) is not None
        for value in values
        for dim in range(len(dist_type(value).dims))
    )


def behind_layouts(value: SSAValue) -> SSAValue:
    """Return a value in the layout in which it was computed."""
    while isinstance(op := value.owner, DistOp) and op.kind.layout_only:
        value = op.input
    return value


def _attention(softmax: DistOp) -> Attention:
    """Return the attention to which a softmax belongs.

    Raises:
        NotOneByOne: it belongs to none, or to one with other steps.
    """
    dims = softmax.sizes("dims")
    casts: list[DistOp] = []
    value = softmax.result
    while (user := _user(value)) is not None and user.kind is CAST:
        casts.append(user)
        value = user.result
    if len(dims) != 1:
        raise NotOneByOne("it is over several dimensions")
    if user is None or user.kind is not EINSUM or len(user.operands) != 2:
        step = user.mnemonic if user is not None else "no step"
        raise NotOneByOne(
            f"{value_text(value, 'what it computes')} goes to {step}, and only casts may stand in "
            "front of the product with values"
        )
    share = list(user.operands).index(value)
    maps: list[DistOp] = []
    scores = _scores(softmax.input, len(dist_type(softmax.input).dims), maps)
    if scores is None:
        raise NotOneByOne(
            f"{value_text(softmax.input, 'its operand')} is not a product of queries and keys that "
            "maps of its dimensions, such as scale, cast and where, lead from"
        )
    key = indices_of(scores)[1][dims[0]]
    operands, (of_shares, result) = indices_of(scores)[0], _of_shares(user, share)
    with_key = [number for number, indices in enumerate(operands) if key in indices]
    contracted = of_shares[dims[0]]
    others = {*of_shares} - {contracted}
    if len(with_key) != 1 or contracted in result or not others <= {*result}:
        raise NotOneByOne("its dimension is not that of keys and of values alone")
    return Attention(scores, maps, softmax, casts, user, 1 - with_key[0], share, dims[0])


def _of_shares(values: DistOp, share: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    operands, result = indices_of(values)
    return operands[share], result


def _user(value: SSAValue) -> DistOp | None:
    """Return the first step of the same block that computes with a value."""
    users = {use.operation for use in value.uses}
    op = value.owner.next_op if isinstance(value.owner, Operation) else None
    while op is not None and op not in users:
        op = op.next_op
    return op if isinstance(op, DistOp) else None


def _scores(value: SSAValue, rank: int, maps: list[DistOp]) -> DistOp | None:
    """Return the products that lead to a value by maps of all dimensions, and collect these
    maps."""
    op = value.owner
    if not isinstance(op, DistOp) or len(dist_type(value).dims) != rank:
        return None
    if op.kind is EINSUM:
        return op if len(op.operands) == 2 else None
    if not is_map(op):
        return None
    for operand in op.operands:
        if same_size(dist_type(operand).shape, dist_type(value).shape):
            scores = _scores(operand, rank, maps)
            if scores is not None:
                maps.append(op)
                return scores
    return None


def is_map(op: Operation) -> bool:
    """Return whether a step computes each element from those of its operands at the same place,
    with numpy's broadcasting, and names no shape."""
    if not isinstance(op, DistOp) or not op.operands or op.kind.layout_only:
        return False
    if any(p.kind not in (ArgumentKind.NAME, ArgumentKind.NUMBER) for p in op.kind.parameters):
        return False
    if op.kind.elementwise:
        return True
    structure = op.structure
    return structure is not None and not structure.blocked and not structure.reduced


# ---------------------------------------------------------------------------------------------
# Operands from outside
# ---------------------------------------------------------------------------------------------


def extents(attention: Attention, value: SSAValue) -> tuple[bool, bool]:
    """Return whether an operand of the maps has dimensions of the queries, and of the keys."""
    shape = dist_type(value).shape
    offset = len(attention.indices) - len(shape)
    here = [d - offset for d in (attention.query_dim, attention.key_dim)]
    return here[0] >= 0 and shape[here[0]] != 1, here[1] >= 0 and shape[here[1]] != 1


def collect_leaves(attention: Attention) -> None:
    """Find the operands of the maps of attention from outside.

    Raises:
        NotOneByOne: an operand has the dimensions of both, and is not computed from positions.
    """
    inside: set[SSAValue] = {attention.scores.result, *(op.result for op in attention.maps)}
    for op in attention.maps:
        for operand in op.operands:
            if operand not in inside:
                _collect(attention, operand)


def _collect(attention: Attention, value: SSAValue) -> None:
    query, key = extents(attention, value)
    op = behind_layouts(value).owner
    if isinstance(op, DistOp) and not op.operands:
        return  # is made where it is needed
    if not (query or key):
        attention.leaves[value] = AttentionRole.OTHER
    elif isinstance(op, DistOp) and is_map(op):
        for operand in op.operands:
            _collect(attention, operand)
    elif query and key:
        raise NotOneByOne(
            f"{value_text(value, 'an operand')} has a number for each query and key, so no device "
            "could have the block that it needs"
        )
    else:
        attention.leaves[value] = AttentionRole.QUERY if query else AttentionRole.KEY


def other_use(attention: Attention) -> SSAValue | None:
    """Return a value within attention with a user outside, or None."""
    inside = set[Operation](attention.steps)
    for op in attention.steps[:-1]:
        if any(use.operation not in inside for use in op.result.uses):
            return op.result
    return None


def counts(op: DistOp) -> int | None:
    """Return the dimension along which a step counts positions, or None if it does not."""
    return op.integer(DIM.name) if op.kind is IOTA else None


def made_type(op: DistOp) -> DistType:
    """Return the type that a step without operands names."""
    return op.layout(TO.name)


# ---------------------------------------------------------------------------------------------
# Layouts
# ---------------------------------------------------------------------------------------------

Layout = tuple[tuple[str, ...], ...]
"""The sub-axes over which each dimension of a value is sharded."""


@dataclass(frozen=True)
class Blocks:
    """The blocks of the operands of attention on devices.

    Attributes:
        axes: the sub-axes over which queries and keys are divided.
        query_dim: the dimension of the scores that counts queries.
        layouts: the layouts of queries, keys, values, and of the leaves.
    """

    axes: tuple[str, ...]
    query_dim: int
    layouts: tuple[Layout, ...]


def layout_of(x: DistType) -> Layout:
    """Return the sub-axes of the dimensions of a type."""
    return tuple(dim.axes for dim in x.dims)


def with_layout(x: DistType, layout: Layout) -> DistType:
    """Return a type whose dimensions are sharded as a layout says."""
    dims = (Dim(dim.size, axes) for dim, axes in zip(x.dims, layout, strict=True))
    return replace(x, dims=tuple(dims))


def gathered_from(value: SSAValue, dim: int) -> SSAValue | None:
    """Return the value from which only this dimension was gathered, or None."""
    x = dist_type(value)
    while isinstance(op := value.owner, DistOp) and op.kind.layout_only:
        value = op.input
        own = dist_type(value)
        if own.dims[dim].axes and with_axes(own, dim, x.dims[dim].axes) == x:
            return value
    return None


def blocks_of(attention: Attention) -> Blocks | None:
    """Find the leaves of attention, and return the blocks of its operands before its keys and
    values are gathered; None if its keys are not.

    Raises:
        NotOneByOne: they are gathered, and it cannot be computed block by block.
    """
    over_scores = indices_of(attention.scores)[0]
    of_keys = over_scores[1 - attention.query].index(attention.key_index)
    keys = gathered_from(attention.keys, of_keys)
    if keys is None:
        return None
    axes = dist_type(keys).dims[of_keys].axes
    of_values = attention.of_values[0].index(attention.key_index)
    contents = gathered_from(attention.contents, of_values)
    if contents is None or dist_type(contents).dims[of_values].axes != axes:
        raise NotOneByOne(
            f"{value_text(attention.contents, 'what the shares are multiplied with')} was not "
            "gathered over the same axes as the keys"
        )
    of_queries = zip(over_scores[attention.query], dist_type(attention.queries).dims, strict=True)
    divided = [index for index, dim in of_queries if dim.axes == axes]
    if not divided:
        raise NotOneByOne(
            f"no dimension of {value_text(attention.queries, 'the queries')} is sharded over the "
            "axes over which the keys were gathered, and over no others"
        )
    if any(dist_type(op.result).partial for op in attention.steps):
        raise NotOneByOne("its scores are partial, and are reduced first")
    attention.query_dim = attention.indices.index(divided[0])
    collect_leaves(attention)
    layouts = [layout_of(dist_type(x)) for x in (attention.queries, keys, contents)]
    layouts += [_layout_of_leaf(attention, x, axes) for x in attention.leaves]
    return Blocks(axes, attention.query_dim, tuple(layouts))


def _layout_of_leaf(attention: Attention, value: SSAValue, axes: tuple[str, ...]) -> Layout:
    """Return the layout of a leaf: divided as the queries, or as the keys before they were
    gathered."""
    layout = list(layout_of(dist_type(value)))
    offset = len(attention.indices) - len(layout)
    for role, dim in (
        (AttentionRole.QUERY, attention.query_dim),
        (AttentionRole.KEY, attention.key_dim),
    ):
        if attention.leaves[value] is role:
            layout[dim - offset] = axes
    return tuple(layout)
