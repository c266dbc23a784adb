"""The type of the result of each step of the dialect coll, or the reason why there is none."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .mesh import DTYPES, FLOATS, Mesh, Type, need
from .text import Formula, Step, TypeText, evaluate, integer

INVERSE = {"max": "min", "min": "max"}
EXACT_BITS = {"bool": 1, "i8": 7, "i32": 31, "i64": 63, "bf16": 8, "f16": 11, "f32": 24, "f64": 53}
"""The bits of the integers that a type holds without a gap."""


@dataclass(frozen=True)
class Case:
    """A step on operands of given types, and the sizes of the function that it is in."""

    mesh: Mesh
    step: Step
    types: list[Type]
    sizes: dict[str, int]

    @property
    def x(self) -> Type:
        """The first operand."""
        return self.types[0]

    @property
    def axes(self) -> tuple[str, ...]:
        """The sub-axes behind ``over``."""
        return self.mesh.named(self.step.clauses["over"])

    def integer(self, word: str, default: int | None = None) -> int:
        """Return the integer behind a word."""
        if default is not None and word not in self.step.clauses:
            return default
        return integer(self.step.clauses[word], self.sizes)

    def number(self, word: str, default: float | None = None) -> float:
        """Return the number behind a word."""
        if default is not None and word not in self.step.clauses:
            return default
        return float(evaluate(self.step.clauses[word], self.sizes))

    def dim(self, word: str = "dim", rank: int | None = None) -> int:
        """Return the dimension behind a word."""
        n = self.integer(word)
        need(0 <= n < (len(self.x.shape) if rank is None else rank), f"no dimension {n}")
        return n

    def integers(self, word: str) -> list[int]:
        """Return the list behind a word."""
        formulas: list[Formula] | None = self.step.clauses[word]
        if formulas is None:
            return list(range(len(self.x.shape)))
        return [integer(formula, self.sizes) for formula in formulas]

    @property
    def target(self) -> Type:
        """The type behind ``to``."""
        written: TypeText = self.step.clauses["to"]
        return self.mesh.type(written, self.sizes)


def at_one_place(types: Sequence[Type]) -> None:
    """Refuse operands that are not at one place."""
    need(len({t.place for t in types}) <= 1, "operands at several places")


def with_dim(x: Type, dim: int, size: int, subs: tuple[str, ...]) -> Type:
    """Return a type with another dimension in the place of one."""
    shape, shards = list(x.shape), list(x.shards)
    shape[dim], shards[dim] = size, subs
    return replace(x, shape=tuple(shape), shards=tuple(shards))


def without_partial(c: Case) -> Type:
    need(set(c.axes) <= c.x.partial, "not partial")
    return replace(c.x, partial=c.x.partial - set(c.axes))


def without_place(c: Case) -> Type:
    need(set(c.axes) <= set(c.x.held), "not at a root")
    return replace(c.x, place=frozenset(p for p in c.x.place if p[0] not in c.axes))


def without_shards(c: Case, word: str = "dim") -> Type:
    """Return the operand with the minor-most sub-axes of a dimension gathered."""
    dim, axes = c.dim(word), c.axes
    subs = c.x.shards[dim]
    need(subs[len(subs) - len(axes) :] == axes, "not the minor-most sub-axes")
    return with_dim(c.x, dim, c.x.shape[dim], subs[: len(subs) - len(axes)])


def sharded(c: Case, x: Type, word: str = "dim") -> Type:
    dim = c.dim(word)
    return with_dim(x, dim, x.shape[dim], x.shards[dim] + c.axes)


def placed(x: Type, place: dict[str, int]) -> Type:
    return replace(x, place=x.place | frozenset(place.items()))


def at_root(c: Case, x: Type) -> Type:
    return placed(x, dict.fromkeys(c.axes, 0))


def replicated(c: Case) -> Type:
    need(all(c.x.replicated(sub) for sub in c.axes), "not replicated")
    return c.x


# Collectives


def all_to_all(c: Case) -> Type:
    need(c.dim() != c.dim("to"), "one dimension")
    return sharded(c, without_shards(c), "to")


def send(c: Case) -> Type:
    source = c.mesh.coordinates(c.axes, c.integer("from"))
    target = c.mesh.coordinates(c.axes, c.integer("to"))
    need(source != target, "to itself")
    need(source.items() <= c.x.place, "not there")
    return placed(replace(c.x, place=c.x.place.difference(source.items())), target)


def shift(c: Case) -> Type:
    axes, n = c.axes, len(c.axes)
    dims = [d for d, subs in enumerate(c.x.shards) if subs[len(subs) - n :] == axes]
    need(len(dims) == 1, "no dimension ends in these sub-axes")
    need(c.mesh.even(c.x.shards[dims[0]]), "blocks of several sizes")
    return c.x


def blocks(mesh: Mesh, size: int, subs: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return where the blocks of a dimension begin and end, in order."""
    count = mesh.count(subs)
    return [mesh.block(size, subs, mesh.coordinates(subs, i)) for i in range(count)]


def permute(c: Case) -> Type:
    x, y = c.x, c.target
    need((x.dtype, x.shape) == (y.dtype, y.shape), "another shape")
    need((x.partial, x.reduction, x.place) == (y.partial, y.reduction, y.place), "another state")
    for n, old, new in zip(x.shape, x.shards, y.shards, strict=True):
        need(c.mesh.count(old) == c.mesh.count(new), "another number of shards")
        need(blocks(c.mesh, n, old) == blocks(c.mesh, n, new), "other blocks")
    return y


def redistribute(c: Case) -> Type:
    x, y = c.x, c.target
    need((x.dtype, x.shape) == (y.dtype, y.shape), "another shape")
    if y.partial - x.partial:
        need(y.reduction in ("sum", "prod"), "no mask makes it")
    if y.partial & x.partial:
        need(y.reduction == x.reduction, "another reduction")
    need(all(x.held.get(sub, 0) == n for sub, n in y.place), "held elsewhere")
    return y


def scatter(c: Case) -> Type:
    dim, x = c.dim(), sharded(c, without_place(c))
    from_root = all(n == 0 for sub, n in c.x.place if sub in c.axes)
    need(from_root or c.mesh.even(x.shards[dim]), "blocks of several sizes start at root")
    return x


# Local changes of state


def keep(c: Case) -> Type:
    place: dict[str, int] = {}
    for axis, coordinate in c.step.clauses["at"]:
        subs = c.mesh.named([axis])
        need(not set(subs) & set(place), "named twice")
        place |= c.mesh.coordinates(subs, integer(coordinate, c.sizes))
    need(all(c.x.replicated(sub) for sub in place), "not replicated")
    return placed(c.x, place)


def part(c: Case) -> Type:
    dim, x = c.dim(), without_shards(c)
    at = c.mesh.coordinates(c.axes, c.integer("at"))
    size = piece_size(c.mesh, c.x.shape[dim], c.x.shards[dim], at)
    return placed(with_dim(x, dim, size, x.shards[dim]), at)


def piece_size(mesh: Mesh, size: int, subs: tuple[str, ...], at: dict[str, int]) -> int:
    """Return how much a coordinate holds of a dimension over all other sub-axes, which have to cut
    that into the same blocks."""
    others = tuple(sub for sub in subs if sub not in at)
    rows = [{**at, **mesh.coordinates(others, i)} for i in range(mesh.count(others))]
    blocks = [high - low for low, high in (mesh.block(size, subs, row) for row in rows)]
    total = sum(blocks)
    mesh.units(others)
    for row, block in zip(rows, blocks, strict=True):
        low, high = mesh.block(total, others, row)
        need(high - low == block, "other blocks")
    return total


def assemble(c: Case) -> Type:
    dim, axes = c.dim(), c.axes
    need(len(c.types) == c.mesh.count(axes), "a piece for each coordinate")
    for i, piece in enumerate(c.types):
        place = c.mesh.coordinates(axes, i)
        need(place.items() <= piece.place, "a piece elsewhere")
        x = replace(piece, place=piece.place.difference(place.items()))
        need(len(x.shape) == len(c.x.shape), "other layout")
        need(with_dim(x, dim, c.x.shape[dim], x.shards[dim]) == without_place(c), "other layout")
    x = without_place(c)
    subs, size = x.shards[dim] + axes, sum(piece.shape[dim] for piece in c.types)
    need(size % c.mesh.units(subs) == 0, "blocks that are no integers")
    for i, piece in enumerate(c.types):
        own = piece_size(c.mesh, size, subs, c.mesh.coordinates(axes, i))
        need(own == piece.shape[dim], "a piece of another size")
    return with_dim(x, dim, size, subs)


def terms(c: Case) -> Type:
    dim, axes = c.dim(rank=len(c.x.shape) + 1), c.axes
    need(c.x.reduction in ("sum", "avg"), "no terms")
    need(c.mesh.even(axes), "blocks of several sizes")
    x = without_partial(c)
    return replace(
        x,
        shape=(*x.shape[:dim], c.mesh.count(axes), *x.shape[dim:]),
        shards=(*x.shards[:dim], axes, *x.shards[dim:]),
    )


def mask(c: Case) -> Type:
    op = c.step.clauses["op"]
    need(op in ("sum", "prod"), "no mask for this reduction")
    need(not c.x.partial or c.x.reduction == op, "another reduction")
    x = replicated(c)
    return replace(x, partial=x.partial | set(c.axes), reduction=op)


# Views


@dataclass(frozen=True)
class Digit:
    """A digit of the place of an element in a tensor, in row-major order.

    subs: the sub-axes that it is the coordinate of; none: it is a position in a block.
    last: positions have to follow in the same dimension.
    """

    size: int
    subs: tuple[str, ...] = ()
    last: bool = False


def digits(mesh: Mesh, size: int, subs: tuple[str, ...]) -> list[Digit]:
    """Return the digits of a dimension: its sub-axes, then the position in a block."""
    found: list[Digit] = []
    for i, sub in enumerate(subs):
        if not mesh.even((sub,)):
            rest = subs[i:]
            units = mesh.units(subs) // math.prod(digit.size for digit in found)
            found.append(Digit(units, rest, last=True))
            break
        found.append(Digit(mesh.size[sub], (sub,)))
    local = size // math.prod(digit.size for digit in found)
    return found + [Digit(local)] * (local > 1)


def regrouped(mesh: Mesh, x: Type, shape: Sequence[int]) -> Type:
    """Return a type with another shape, into whose dimensions the digits go in order."""
    need(math.prod(shape) == math.prod(x.shape), "another number of elements")
    pairs = zip(x.shape, x.shards, strict=True)
    left: list[Digit] = []
    for digit in (digit for n, subs in pairs for digit in digits(mesh, n, subs)):
        if left and not left[-1].subs and not digit.subs:  # positions in a row are one number
            digit = Digit(left.pop().size * digit.size)
        left.append(digit)
    shards: list[tuple[str, ...]] = []
    for size in shape:
        subs: tuple[str, ...] = ()
        closed = False
        while size > 1:
            digit = left.pop(0)
            if digit.subs:
                need(not closed and size % digit.size == 0, "shards do not divide")
                subs, closed = subs + digit.subs, digit.last
                size //= digit.size
                continue
            closed = True
            taken = math.gcd(size, digit.size)
            need(taken in (size, digit.size), "sizes that cut across each other")
            size //= taken
            if digit.size > taken:
                left.insert(0, Digit(digit.size // taken))
        shards.append(subs)
    return replace(x, shape=tuple(shape), shards=tuple(shards))


def split(c: Case) -> Type:
    dim, sizes = c.dim(), c.integers("into")
    need(len(sizes) == 2 and math.prod(sizes) == c.x.shape[dim], "sizes")
    return regrouped(c.mesh, c.x, [*c.x.shape[:dim], *sizes, *c.x.shape[dim + 1 :]])


def merge(c: Case) -> Type:
    dim, shape = c.dim(), c.x.shape
    need(dim + 1 < len(shape), "no next dimension")
    return regrouped(c.mesh, c.x, [*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]])


def reshape(c: Case) -> Type:
    shape = c.integers("to")
    need(min(shape, default=1) >= 1, "a size below 1")
    return regrouped(c.mesh, c.x, shape)


def transpose(c: Case) -> Type:
    order = c.integers("order")
    need(sorted(order) == list(range(len(c.x.shape))), "each dimension once")
    x = c.x
    return replace(
        x, shape=tuple(x.shape[d] for d in order), shards=tuple(x.shards[d] for d in order)
    )


# Arithmetic


def is_constant(number: float, dtype: str) -> None:
    """Refuse a number that is no value of an element type."""
    if dtype in FLOATS:
        return
    need(number == int(number), "no integer")
    if dtype == "bool":
        need(number in (0, 1), "no bool")
    else:
        bits = 8 * DTYPES[dtype] - 1
        need(-(2**bits) <= number < 2**bits, "out of range")


def broadcast(types: Sequence[Type]) -> tuple[tuple[int, ...], tuple[tuple[str, ...], ...]]:
    """Return the shape of an elementwise result, and its shards: those of every operand."""
    rank = max(len(t.shape) for t in types)
    shape: list[int] = []
    shards: list[tuple[str, ...]] = []
    for d in range(-rank, 0):
        there = [(t.shape[d], t.shards[d]) for t in types if len(t.shape) >= -d]
        size = max(n for n, _ in there)
        need(all(n in (1, size) for n, _ in there), "shapes that do not align")
        found = {subs for n, subs in there if n == size}
        need(len(found) == 1, "operands sharded apart")
        shape.append(size)
        shards += found
    return tuple(shape), tuple(shards)


def add(c: Case) -> Type:
    x, y = c.types
    need(x.dtype == y.dtype != "bool", "element types")
    at_one_place(c.types)
    shape, shards = broadcast(c.types)
    whole = next((t for t in (x, y) if t.partial), x)
    made = replace(whole, shape=shape, shards=shards)
    if not x.partial and not y.partial:
        return made
    need(whole.reduction != "prod", "a product")
    if x.partial and y.partial:
        same = (x.partial, x.reduction) == (y.partial, y.reduction)
        need(same and x.reduction in ("sum", "avg"), "two partial values")
    else:
        need(whole.reduction != "sum", "mask it first")
    return made


def scale(c: Case) -> Type:
    need(c.x.dtype != "bool", "bool")
    factor = c.number("by")
    is_constant(factor, c.x.dtype)
    need(c.x.reduction != "prod" or not c.x.partial, "a product")
    if factor < 0:
        return replace(c.x, reduction=INVERSE.get(c.x.reduction, c.x.reduction))
    return c.x


def holds_every(new: str, old: str) -> bool:
    """Return whether an element type has all values of another."""
    if old in FLOATS and new in FLOATS:
        return new == old or FLOATS[new] > FLOATS[old]
    if new == "bool" or old in FLOATS:
        return new == old
    return EXACT_BITS[new] >= EXACT_BITS[old]


def cast(c: Case) -> Type:
    new, old = c.step.clauses["to"], c.x.dtype
    need(new in DTYPES, "no element type")
    if c.x.partial and not holds_every(new, old):
        need(c.x.reduction in INVERSE, "rounds every term")
        need(new != "bool", "a truth value of every term")
        need(new in FLOATS or old in FLOATS, "wraps every term")
    return replace(c.x, dtype=new)


def pad(c: Case) -> Type:
    dim, x = c.dim(), c.x
    low, high, value = c.integer("low", 0), c.integer("high", 0), c.number("value", 0.0)
    need(not x.shards[dim], "a sharded dimension")
    need(x.shape[dim] + min(low, 0) + min(high, 0) >= 1, "nothing is left")
    if low > 0 or high > 0:
        is_constant(value, x.dtype)
    if x.partial and (low > 0 or high > 0):
        need(x.reduction != "sum" or value == 0, "added on each device")
        need(x.reduction != "prod" or value in (0, 1), "multiplied on each device")
    return with_dim(x, dim, x.shape[dim] + low + high, ())


def concat(c: Case) -> Type:
    dim, x = c.dim(), c.x
    need(not x.shards[dim], "a sharded dimension")
    for t in c.types:
        need(len(t.shape) == len(x.shape), "another rank")
        need(with_dim(t, dim, x.shape[dim], t.shards[dim]) == x, "another layout")
    return with_dim(x, dim, sum(t.shape[dim] for t in c.types), ())


# Computation


def compute(c: Case) -> Type:
    need(c.number("flops") >= 0, "less than nothing")
    for t in c.types:
        for sub, n in t.place:
            need(c.x.held.get(sub, n) == n, "operands at several places")
    return c.x


COLL: dict[str, Callable[[Case], Type]] = {
    "all_reduce": without_partial,
    "reduce": lambda c: at_root(c, without_partial(c)),
    "broadcast": without_place,
    "reduce_scatter": lambda c: sharded(c, without_partial(c)),
    "all_gather": without_shards,
    "scatter": scatter,
    "gather": lambda c: at_root(c, without_shards(c)),
    "all_to_all": all_to_all,
    "send": send,
    "shift": shift,
    "permute": permute,
    "redistribute": redistribute,
    "slice": lambda c: sharded(c, replicated(c)),
    "keep_root": lambda c: at_root(c, replicated(c)),
    "keep": keep,
    "part": part,
    "assemble": assemble,
    "terms": terms,
    "mask": mask,
    "split": split,
    "merge": merge,
    "reshape": reshape,
    "transpose": transpose,
    "add": add,
    "scale": scale,
    "cast": cast,
    "pad": pad,
    "concat": concat,
    "compute": compute,
    "barrier": lambda c: c.x,
}
