"""Make random meshes, types and single steps, about half of which are well typed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from .indices import RULES, typed
from .mesh import DTYPES, Axis, Mesh, Refused, Type, need
from .rules import piece_size
from .text import AxisText, Reader, Step

NAMES = ("data", "model", "pipe")
ELEMENTWISE = (
    "neg", "relu", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "sin", "cos", "silu", "gelu",
    "erf", "stop_gradient",
)  # fmt: skip
PAIRS = (
    "mul", "sub", "div", "maximum", "minimum",
    "greater", "greater_equal", "less", "less_equal", "equal", "not_equal",
)  # fmt: skip
LEVELS: tuple[str, ...] = ("node", "gpu", "chip")


@dataclass(frozen=True)
class MeshText:
    """A mesh and the text that declares it."""

    mesh: Mesh
    text: str


def random_mesh(rng: random.Random, uneven: float = 0.25) -> MeshText:
    """Return a mesh of up to 24 devices, placed on levels or not, some with weights."""
    while True:
        levels = rng.choice([0, 1, 2, 2, 3])
        names = NAMES[: rng.choice([1, 2, 2, 3])]
        axes: list[AxisText] = []
        for name in names:
            factors = [(level, rng.choice([1, 2, 2, 2, 3, 4])) for level in LEVELS[:levels]]
            factors = [factor for factor in factors if rng.random() < 0.8]
            if not levels:
                factors = [("", rng.choice([1, 2, 2, 3, 4, 6]))]
            axes.append((name, factors, []))
        if not all(factors for _, factors, _ in axes):
            continue
        for _, factors, weights in axes:
            size = 1
            for _, n in factors:
                size *= n
            if rng.random() < uneven and size > 1:
                weights += random_weights(rng, [n for _, n in factors])
        mesh = Mesh.read(axes)
        if 2 <= len(mesh.devices) <= 24:
            return MeshText(mesh, mesh_text(axes, levels))


def random_weights(rng: random.Random, factors: list[int]) -> list[int]:
    """Return weights of an axis: any, or a product of weights of its factors."""
    rows = [[rng.choice([1, 1, 2, 3]) for _ in range(n)] for n in factors]
    product = [1]
    for row in rows:
        product = [a * b for a in product for b in row]
    if rng.random() < 0.5:
        return product
    return [rng.choice([1, 1, 2, 3]) for _ in product]


def mesh_text(axes: list[AxisText], levels: int) -> str:
    sizes = dict.fromkeys(LEVELS[:levels], 1)
    total = 1
    for _, factors, _ in axes:
        for level, n in factors:
            total *= n
            if level:
                sizes[level] *= n
    rows = sizes or {"gpu": total}
    machine = " ".join(
        f"level {level}[{n}] {{ port = 8 GB/s, latency = 20 us }}" for level, n in rows.items()
    )
    written = ", ".join(
        f"{name} = "
        + " * ".join(f"{level}:{n}" if level else f"{n}" for level, n in factors)
        + (f" weights {weights}" if weights else "")
        for name, factors, weights in axes
    )
    device = "device { compute " + ", ".join(f"{name} = 1 TFLOP/s" for name in DTYPES) + " }"
    return f"machine @c {{ {device} {machine} }}\nmesh @m on @c {{ {written} }}\n"


def random_type(
    rng: random.Random, mesh: Mesh, dtype: str = "", states: str = "rrrrsssppo", rank: int = -1
) -> Type:
    """Return a type; ``states`` has a letter for each ticket of a state of a sub-axis."""
    dtype = dtype or rng.choice(["f32"] * 6 + list(DTYPES))
    while True:
        n = rng.choice([0, 1, 1, 2, 2, 3]) if rank < 0 else rank
        shards: list[list[str]] = [[] for _ in range(n)]
        partial: set[str] = set()
        place: dict[str, int] = {}
        subs = list(mesh.size)
        if rng.random() < 0.5:
            rng.shuffle(subs)
        whole = rng.random() < 0.4  # all sub-axes of an axis in one state
        chosen: dict[str, tuple[str, int]] = {}
        for sub in subs:
            key = mesh.axis_of[sub].name if whole else sub
            state, d = chosen.setdefault(key, (rng.choice(states), rng.randrange(max(n, 1))))
            if state == "s" and n:
                shards[d].append(sub)
            elif state == "p":
                partial.add(sub)
            elif state == "o":
                place[sub] = rng.choice([0, rng.randrange(mesh.size[sub])])
        reduction = rng.choice(["sum", "sum", "sum", "prod", "max", "min", "avg"])
        try:
            shape = [mesh.units(row) * rng.choice([1, 2, 2, 3, 4]) for row in shards]
            if rng.random() < 0.3:
                shape = [2 * size if size % 2 else size for size in shape]
            kind = mesh.checked(
                Type(
                    dtype,
                    tuple(shape),
                    tuple(map(tuple, shards)),
                    frozenset(partial),
                    reduction,
                    frozenset(place.items()),
                )
            )
        except Refused:
            continue
        if max(shape, default=1) <= 400:
            return kind


def axes_text(axes: Sequence[str]) -> str:
    return ", ".join(axes)


class Maker:
    """Random arguments for each operation, on one mesh."""

    def __init__(self, rng: random.Random, mesh: Mesh) -> None:
        self.rng = rng
        self.mesh = mesh

    def kind(self, dtype: str = "", states: str = "rrrrsssppo", rank: int = -1) -> Type:
        return random_type(self.rng, self.mesh, dtype, states, rank)

    def over(self, pool: Sequence[str]) -> str:
        """Return axes: some of a pool, or an axis, or anything."""
        rng = self.rng
        roll = rng.random()
        if roll < 0.55 and pool:
            count = rng.randint(1, len(pool))
            row = list(pool[len(pool) - count :])
            if rng.random() < 0.2:
                rng.shuffle(row)
            return axes_text(row)
        if roll < 0.85:
            return rng.choice([axis.name for axis in self.mesh.axes])
        names = [*self.mesh.size, *(axis.name for axis in self.mesh.axes)]
        return axes_text(rng.choices(names, k=rng.choice([1, 1, 2])))

    def dim(self, x: Type) -> int:
        return self.rng.randrange(len(x.shape)) if x.shape else 0

    def sharded_dim(self, x: Type) -> tuple[int, tuple[str, ...]]:
        dims = [d for d, subs in enumerate(x.shards) if subs] or [self.dim(x)]
        d = self.rng.choice(dims)
        return d, x.shards[d] if x.shape else ()

    def other(self, x: Type) -> Type:
        """Return a type like another one, or not quite."""
        roll = self.rng.random()
        if roll < 0.6:
            return x
        if roll < 0.75:
            return self.kind(x.dtype)
        shape, shards = list(x.shape), list(x.shards)
        partial, place = x.partial, x.place
        if shape and roll < 0.85:
            d = self.dim(x)
            shape[d], shards[d] = 1, ()
        elif shape and roll < 0.9:
            del shape[0], shards[0]
        elif roll < 0.95:
            partial = frozenset[str]()
        elif roll < 0.97:
            place = frozenset[tuple[str, int]]()
        else:
            shards = [()] * len(shards)
        return Type(x.dtype, tuple(shape), tuple(shards), partial, x.reduction, place)

    # One method for each kind of arguments: it returns operands and the text of the clauses.

    def reduction(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrssppppo")
        return [x], f"over {self.over(sorted(x.partial))}"

    def from_root(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrsspoooo")
        return [x], f"over {self.over([sub for sub, _ in sorted(x.place)])}"

    def with_dim(self, made: tuple[list[Type], str]) -> tuple[list[Type], str]:
        return made[0], f"{made[1]} dim {self.dim(made[0][0])}"

    def gathered(self) -> tuple[list[Type], str]:
        x = self.kind(states="rsssspo")
        d, subs = self.sharded_dim(x)
        return [x], f"over {self.over(subs)} dim {d}"

    def replicated(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrrrspo")
        return [x], f"over {self.over([sub for sub in self.mesh.size if x.replicated(sub)])}"

    def all_to_all(self) -> tuple[list[Type], str]:
        operands, clauses = self.gathered()
        return operands, f"{clauses} to {self.dim(operands[0])}"

    def send(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrspoooo")
        pool = [sub for sub, _ in sorted(x.place)]
        over = self.over(pool)
        try:
            subs = self.mesh.named(over.split(", "))
        except Refused:
            subs = ()
        held = {sub: x.held.get(sub, 0) for sub in subs}
        source = self.mesh.index(held, subs)
        return [x], f"over {over} from {source} to {self.rng.randrange(self.mesh.count(subs) + 1)}"

    def shift(self) -> tuple[list[Type], str]:
        operands, clauses = self.gathered()
        clauses = clauses.partition(" dim")[0]
        return operands, f"{clauses} by {self.rng.choice([-5, -1, 0, 1, 2, 3])}" + self.rng.choice(
            ["", " open"]
        )

    def permute(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrssssspo")
        shards = [list(subs) for subs in x.shards]
        spare = [sub for sub in self.mesh.size if x.replicated(sub)]
        for subs in shards:
            if self.rng.random() < 0.5:
                self.rng.shuffle(subs)
            for i, sub in enumerate(subs):
                same = [s for s in spare if self.mesh.size[s] == self.mesh.size[sub]]
                if same and self.rng.random() < 0.5:
                    subs[i] = same[0]
                    spare.remove(same[0])
        if len(shards) > 1 and self.rng.random() < 0.3:
            shards[0], shards[1] = shards[1], shards[0]
        y = Type(x.dtype, x.shape, tuple(map(tuple, shards)), x.partial, x.reduction, x.place)
        return [x], f"to {y}"

    def redistribute(self) -> tuple[list[Type], str]:
        x = self.kind()
        for _ in range(50):
            y = self.kind(x.dtype, rank=len(x.shape))
            y = Type(x.dtype, x.shape, y.shards, y.partial, y.reduction, y.place)
            try:
                return [x], f"to {self.mesh.checked(y)}"
            except Refused:
                continue
        return [x], f"to {x}"

    def keep(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrrrspo")
        pool = [sub for sub in self.mesh.size if x.replicated(sub)]
        names = [axis.name for axis in self.mesh.axes]
        chosen = self.rng.sample(pool, self.rng.randint(1, len(pool))) if pool else names[:1]
        if self.rng.random() < 0.4:
            chosen = [self.rng.choice(names)]
        rows: list[str] = []
        for name in chosen:
            count = self.mesh.count(self.mesh.named([name]))
            rows.append(f"{name} = {self.rng.randrange(count + (self.rng.random() < 0.1))}")
        return [x], f"at {', '.join(rows)}"

    def part(self) -> tuple[list[Type], str]:
        operands, clauses = self.gathered()
        over, _, rest = clauses.partition(" dim")
        return operands, f"{over} at {self.rng.choice([0, 0, 1, 2])} dim{rest}"

    def assemble(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrrrspo")
        pool = [sub for sub in self.mesh.size if x.replicated(sub)]
        over = self.over(pool)
        try:
            subs = self.mesh.named(over.split(", "))
        except Refused:
            subs = ()
        dim, pieces = self.dim(x), list[Type]()
        for i, shape in enumerate(self.piece_shapes(x, dim, subs)):
            place = dict(x.place) | self.mesh.coordinates(subs, i)
            pieces.append(
                Type(x.dtype, shape, x.shards, x.partial, x.reduction, frozenset(place.items()))
            )
        if self.rng.random() < 0.1:
            self.rng.shuffle(pieces)
        return pieces, f"over {over} dim {dim}"

    def piece_shapes(self, x: Type, dim: int, subs: tuple[str, ...]) -> list[tuple[int, ...]]:
        """Return the shapes of pieces: those of blocks of a dimension, mostly."""
        count = self.mesh.count(subs)
        if self.rng.random() < 0.2 or dim >= len(x.shape):
            return [x.shape] * count
        try:
            both = x.shards[dim] + subs
            size = self.mesh.units(both) * self.rng.choice([1, 2])
            at = [self.mesh.coordinates(subs, i) for i in range(count)]
            sizes = [piece_size(self.mesh, size, both, own) for own in at]
        except Refused:
            return [x.shape] * count
        return [(*x.shape[:dim], n, *x.shape[dim + 1 :]) for n in sizes]

    def terms(self) -> tuple[list[Type], str]:
        x = self.kind(states="rspppo")
        return [x], f"over {self.over(sorted(x.partial))} dim {self.rng.randint(0, len(x.shape))}"

    def mask(self) -> tuple[list[Type], str]:
        operands, clauses = self.replicated()
        op = operands[0].reduction if operands[0].partial and self.rng.random() < 0.7 else "sum"
        return operands, f"{clauses} op {op if self.rng.random() < 0.8 else 'prod'}"

    def factor(self, size: int) -> int:
        return self.rng.choice([n for n in range(1, size + 1) if size % n == 0])

    def split(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrsssspo")
        d = self.dim(x)
        size = x.shape[d] if x.shape else 1
        first = self.factor(size)
        second = size // first if self.rng.random() < 0.95 else size // first + 1
        return [x], f"dim {d} into [{first}, {second}]"

    def merge(self) -> tuple[list[Type], str]:
        x = self.kind(states="rsssspo", rank=self.rng.choice([2, 2, 3]))
        return [x], f"dim {self.rng.choice([0, 0, 1])}"

    def reshape(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrsssspo")
        shape = list(x.shape)
        for _ in range(self.rng.randint(1, 3)):
            i = self.rng.randrange(max(len(shape), 1))
            if len(shape) > 1 and self.rng.random() < 0.5:
                i = min(i, len(shape) - 2)
                shape[i : i + 2] = [shape[i] * shape[i + 1]]
            elif shape:
                first = self.factor(shape[i])
                shape[i : i + 1] = [first, shape[i] // first]
        return [x], f"to {shape}"

    def transpose(self) -> tuple[list[Type], str]:
        x = self.kind()
        order = list(range(len(x.shape)))
        self.rng.shuffle(order)
        if self.rng.random() < 0.1:
            order = [0] * len(order)
        return [x], f"order {order}"

    def two(self, states: str = "rrrssspo", dtype: str = "") -> tuple[list[Type], str]:
        x = self.kind(dtype, states)
        operands = [x, self.other(x)]
        if self.rng.random() < 0.3:
            operands.reverse()
        return operands, ""

    def scale(self) -> tuple[list[Type], str]:
        return [
            self.kind(states="rsppp")
        ], f"by {self.rng.choice(['2', '-1', '0.5', '0', '-0.25', '1', '300'])}"

    def cast(self) -> tuple[list[Type], str]:
        return [
            self.kind(self.rng.choice(list(DTYPES)), "rsppp")
        ], f"to {self.rng.choice(list(DTYPES))}"

    def pad(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrsppo")
        low, high = (self.rng.choice([-2, -1, 0, 0, 1, 2]) for _ in range(2))
        value = self.rng.choice(["", "", " value 0", " value 1", " value -1", " value 0.5"])
        return [x], f"dim {self.dim(x)} low {low} high {high}{value}"

    def concat(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrsppo")
        return [
            x,
            *(self.other(x) for _ in range(self.rng.choice([0, 1, 1, 2]))),
        ], f"dim {self.dim(x)}"

    def compute(self) -> tuple[list[Type], str]:
        return [
            self.kind() for _ in range(self.rng.choice([1, 2]))
        ], f"flops {self.rng.choice([0, 1, 1e6, -1])}"

    # Operations of models

    def einsum(self) -> tuple[list[Type], str]:
        """Return operands whose dimensions agree in their indices, mostly."""
        rng = self.rng
        names = ["a", "b", "c", "d"][: rng.choice([2, 3, 4])]
        whole = self.kind(states="rrsssso", rank=len(names))
        dtype = whole.dtype
        rows = [
            rng.sample(names, rng.randint(0, len(names))) for _ in range(rng.choice([1, 2, 2, 3]))
        ]
        rows[0] = rows[0] or names[:1]
        seen = [name for name in names if any(name in row for row in rows)]
        result = rng.sample(seen, rng.randint(0, len(seen)))
        operands: list[Type] = []
        for row in rows:
            picked = [names.index(name) for name in row]
            shards = [whole.shards[d] if rng.random() < 0.97 else () for d in picked]
            shape = [whole.shape[d] for d in picked]
            operands.append(Type(dtype, tuple(shape), tuple(shards), place=whole.place))
        self.make_partial(operands)
        text = ", ".join(" ".join(row) for row in rows) + " -> " + " ".join(result)
        return operands, f'"{text.strip()}"|'

    def make_partial(self, operands: list[Type]) -> None:
        """Make one of the operands, or all, partial over a sub-axis, sometimes."""
        rng = self.rng
        if rng.random() < 0.6 or not operands:
            return
        subs = rng.sample(list(self.mesh.size), min(len(self.mesh.size), rng.choice([1, 1, 2])))
        reduction = rng.choice(["sum", "sum", "avg", "max", "min"])
        picked = range(len(operands)) if rng.random() < 0.4 else [rng.randrange(len(operands))]
        for i in picked:
            x = operands[i]
            free = frozenset(sub for sub in subs if x.replicated(sub))
            if free:
                operands[i] = Type(x.dtype, x.shape, x.shards, free, reduction, x.place)

    def pair(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrrsso")
        operands = [x, self.other(x)]
        if self.rng.random() < 0.3:
            operands.reverse()
        self.make_partial(operands)
        return operands, ""

    def where(self) -> tuple[list[Type], str]:
        operands, _ = self.pair()
        x = self.kind("bool", "rrsso") if self.rng.random() < 0.1 else self.other(operands[0])
        chosen = Type("bool", x.shape, x.shards, place=x.place)
        return [chosen, *operands], ""

    def dims(self, x: Type) -> str:
        rank = len(x.shape)
        count = self.rng.randint(0, rank) if self.rng.random() < 0.3 else min(1, rank)
        row = self.rng.sample(range(rank), count)
        return f"dims {row}"

    def reduced(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrssspo")
        return [x], self.dims(x) + self.rng.choice(["", " keepdims"])

    def softmax(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrrsspo")
        return [x], self.dims(x)

    def argmax(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrrsspo")
        return [x], f"dim {self.dim(x)}"

    def top(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrrsspo")
        d = self.dim(x)
        return [x], f"k {self.rng.randint(1, (x.shape[d] if x.shape else 1) + 1)} dim {d}"

    def cumsum(self) -> tuple[list[Type], str]:
        operands, clauses = self.argmax()
        return operands, clauses + self.rng.choice(["", " reverse"])

    def norm(self, count: int) -> tuple[list[Type], str]:
        x = self.kind(states="rrrrsspo")
        clauses = self.dims(x)
        row = [int(d) for d in clauses[6:-1].split(", ") if d]
        gain = Type(
            x.dtype, tuple(x.shape[d] for d in row), tuple(x.shards[d] for d in row), place=x.place
        )
        others = [gain if self.rng.random() < 0.95 else self.other(x) for _ in range(count - 1)]
        return [x, *others], f"{clauses} eps {self.rng.choice(['1e-5', '0', '-1', '0.1'])}"

    def integers(self, x: Type, shards: bool = True) -> Type:
        """Return positions: of some shape that lies apart from a table, mostly."""
        free = [sub for sub in self.mesh.size if x.replicated(sub)]
        rank = self.rng.choice([0, 1, 1, 2])
        rows: list[list[str]] = [[] for _ in range(rank)]
        for sub in free:
            if rank and self.rng.random() < 0.4:
                self.rng.choice(rows).append(sub)
        try:
            shape = tuple(self.mesh.units(row) * self.rng.choice([1, 2, 3]) for row in rows)
        except Refused:
            rows, shape = [list[str]() for _ in rows], (2,) * rank
        dtype = self.rng.choice(["i32", "i32", "i64", "i8", "f32"])
        return Type(dtype, shape, tuple(map(tuple, rows)), place=x.place)

    def take(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrrsspo")
        return [x, self.integers(x)], f"dim {self.dim(x)}"

    def to(self, y: Type) -> str:
        return f"to {y}"

    def spread(self, y: Type, dims: Sequence[int]) -> Type:
        """Return a type with sub-axes that it does not use on some of its dimensions."""
        shards = [list(subs) for subs in y.shards]
        for sub in self.mesh.size:
            if dims and y.replicated(sub) and self.rng.random() < 0.3:
                shards[self.rng.choice(dims)].append(sub)
        made = Type(y.dtype, y.shape, tuple(map(tuple, shards)), y.partial, y.reduction, y.place)
        try:
            return self.mesh.checked(made)
        except Refused:
            return y

    def take_transpose(self) -> tuple[list[Type], str]:
        operands, clauses = self.take()
        table, y = operands
        need(table.shape, "no dimension to add at")
        d = int(clauses[4:])
        shape = (*table.shape[:d], *y.shape, *table.shape[d + 1 :])
        shards = (*table.shards[:d], *y.shards, *table.shards[d + 1 :])
        x = Type(table.dtype, shape, shards, table.partial, table.reduction, table.place)
        lost = [sub for subs in y.shards for sub in subs]
        partial = table.partial | set(lost)
        reduction = table.reduction if table.partial else "sum"
        bare = (*table.shards[:d], (), *table.shards[d + 1 :])
        new = Type(table.dtype, table.shape, bare, partial, reduction, table.place)
        return [x, y], f"{clauses} {self.to(self.spread(new, [d]))}"

    def linear_scan(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrrsspo")
        factor = self.other(Type(x.dtype, x.shape, x.shards, place=x.place))
        return [x, factor], f"dim {self.dim(x)}{' reverse' * (self.rng.random() < 0.5)}"

    def take_along_dim(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrrsspo")
        y, d = self.along(x), self.dim(x)
        return [x, y if x.shape else self.integers(x)], f"dim {d}"

    def along(self, x: Type) -> Type:
        """Return positions for each row of a dimension, mostly."""
        d, free = self.dim(x), [sub for sub in self.mesh.size if x.replicated(sub)]
        shape, shards = list(x.shape), list(x.shards)
        if shape:
            subs = [sub for sub in free if self.rng.random() < 0.3]
            try:
                shape[d] = self.mesh.units(subs) * self.rng.choice([1, 2])
                shards[d] = tuple(subs)
            except Refused:
                shape[d], shards[d] = 2, ()
        dtype = self.rng.choice(["i32", "i32", "i64", "i8", "f32"])
        return Type(dtype, tuple(shape), tuple(shards), place=x.place)

    def take_along_dim_transpose(self) -> tuple[list[Type], str]:
        y = self.kind(states="rrrsspo")
        need(y.shape, "no dimension to add at")
        at, d = Type("i32", y.shape, y.shards, place=y.place), self.dim(y)
        lost = y.shards[d]
        shape = (*y.shape[:d], self.rng.choice([y.shape[d], 2, 6]), *y.shape[d + 1 :])
        bare = (*y.shards[:d], (), *y.shards[d + 1 :])
        partial = y.partial | set(lost)
        new = Type(y.dtype, shape, bare, partial, y.reduction if y.partial else "sum", y.place)
        return [y, at], f"dim {d} {self.to(self.spread(new, [d]))}"

    def grouped_matmul(self) -> tuple[list[Type], str]:
        x, w, groups, turned = self.rows_and_matrices()
        return [x, w, groups], "transposed" if turned else ""

    def rows_and_matrices(self) -> tuple[Type, Type, Type, bool]:
        """Return rows, a matrix for each group, and the group of each row, mostly."""
        x = self.kind(states="rrrsspo", rank=self.rng.choice([1, 2, 2, 3]))
        w, turned = self.kind(x.dtype, states="rrsso", rank=3), self.rng.random() < 0.5
        shape, shards = list(w.shape), list(w.shards)
        own = 2 if turned else 1
        shape[own], shards[own] = x.shape[-1], x.shards[-1]
        used = {sub for subs in x.shards for sub in subs}
        shards = [subs if d == own or not used & set(subs) else () for d, subs in enumerate(shards)]
        w = Type(w.dtype, tuple(shape), tuple(shards), place=x.place)
        groups = Type(
            self.rng.choice(["i32", "i32", "i64", "i8", "f32"]),
            x.shape[:-1],
            x.shards[:-1],
            place=x.place,
        )
        operands = [x, w]
        self.make_partial(operands)
        return operands[0], operands[1], groups, turned

    def grouped_matmul_transpose(self) -> tuple[list[Type], str]:
        x, w, groups, _ = self.rows_and_matrices()
        y = Type(x.dtype, (*x.shape[:-1], w.shape[2]), (*x.shards[:-1], ()), place=x.place)
        lost = {sub for subs in x.shards[:-1] for sub in subs}
        partial = frozenset(x.partial | lost)
        shape, bare = (w.shape[0], x.shape[-1], y.shape[-1]), ((), x.shards[-1], ())
        new = Type(x.dtype, shape, bare, partial, x.reduction if x.partial else "sum", x.place)
        return [x, y, groups], self.to(self.spread(new, [0]))

    def one_hot(self) -> tuple[list[Type], str]:
        x = self.kind(self.rng.choice(["i32", "i32", "i8", "i64"]), "rrrsso")
        dtype = self.rng.choice(["f32", "f32", "f64", "i32", "bool"])
        size = self.rng.choice([2, 4, 6, 12])
        y = Type(dtype, (*x.shape, size), (*x.shards, ()), place=x.place)
        return [x], self.to(self.spread(y, [len(x.shape)]))

    def cross_entropy(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrrrsso")
        d = self.dim(x)
        rest = (*x.shape[:d], *x.shape[d + 1 :])
        shards = (*x.shards[:d], *x.shards[d + 1 :])
        labels = Type(self.rng.choice(["i32", "i64", "i8", "f32"]), rest, shards, place=x.place)
        return [x, labels if self.rng.random() < 0.9 else self.other(labels)], f"dim {d}"

    def windowed(self) -> tuple[dict[str, Type], list[int], list[int], list[int]]:
        """Return an image, a filter and a result that fit, with window, stride and padding."""
        rng = self.rng
        base = self.kind(self.rng.choice(["f32", "f32", "f64", "i32"]), "rrrsso", rank=3)
        count = rng.choice([1, 1, 2])
        inner = [rng.randint(2, 6) for _ in range(count)]
        window = [rng.randint(1, 3) for _ in range(count)]
        stride = [rng.randint(1, 3) for _ in range(count)]
        padding = [rng.randint(0, 1) for _ in range(count)]
        rows = zip(inner, window, stride, padding, strict=True)
        outer = [(n + 2 * p - w) // s + 1 for n, w, s, p in rows]
        none: tuple[tuple[str, ...], ...] = ((),) * count

        def shape(first: int | None, middle: list[int], *last: int) -> Type:
            picked = [first] if first is not None else []
            front = tuple(base.shape[d] for d in picked)
            ends = [base.shards[d] for d in picked], [base.shards[d] for d in last]
            return Type(
                base.dtype,
                (*front, *middle, *(base.shape[d] for d in last)),
                (*ends[0], *none, *ends[1]),
                place=base.place,
            )

        kinds = {
            "image": shape(0, inner, 1),
            "filter": shape(None, window, 1, 2),
            "result": shape(0, outer, 2),
            "pooled": shape(0, outer, 1),
        }
        return kinds, window, stride, padding

    def reducing(self, y: Type, lost: tuple[str, ...], operands: list[Type]) -> Type:
        """Return the type of a result that is partial over what is lost, or what operands are."""
        partial, reduction = frozenset(lost), "sum"
        for x in operands:
            if x.partial:
                partial, reduction = partial | x.partial, x.reduction
        return Type(y.dtype, y.shape, y.shards, partial, reduction, y.place)

    def conv_like(self, op: str) -> tuple[list[Type], str]:
        kinds, window, stride, padding = self.windowed()
        clauses = f"stride {stride} padding {padding}"
        image, kernel, result, pooled = kinds.values()
        if self.rng.random() < 0.05:
            window = [w + 1 for w in window]
        if op == "conv":
            operands = [image, kernel]
        elif op == "conv_transpose":
            operands = [result, kernel]
        elif op == "conv_filter":
            operands = [image, result]
        elif op == "max_pool_transpose":
            operands = [pooled, image]
        else:
            operands = [pooled if op == "avg_pool_transpose" else image]
        self.make_partial(operands)
        if "pool" in op:
            clauses = f"window {window} {clauses}"
        if op == "conv_transpose":
            clauses += " " + self.to(self.reducing(image, kernel.shards[-1], operands))
        if op == "conv_filter":
            clauses += " " + self.to(self.reducing(kernel, image.shards[0], operands))
        if op == "avg_pool_transpose":
            clauses += " " + self.to(self.reducing(image, (), operands))
        return operands, clauses

    def constant(self) -> tuple[list[Type], str]:
        value = self.rng.choice(["0", "1", "0.5", "-1", "300"])
        return [], f"value {value} {self.to(self.kind(states='rrrsssoop'))}"

    def iota(self) -> tuple[list[Type], str]:
        y = self.kind(states="rrrrsssoo" + "p" * (self.rng.random() < 0.1))
        return [], f"dim {self.dim(y)} {self.to(y)}"

    def uniform(self) -> tuple[list[Type], str]:
        y = self.kind(states="rrrrsssoo" + "p" * (self.rng.random() < 0.1))
        seed = Type(self.rng.choice(["i32", "i32", "i32", "i64", "f32"]), (), (), place=y.place)
        return [seed], self.to(y)

    def broadcast_to(self) -> tuple[list[Type], str]:
        y = self.kind(states="rrrrsssoop")
        first = self.rng.randint(0, len(y.shape))
        shape, shards = list(y.shape[first:]), list(y.shards[first:])
        for d in range(len(shape)):
            if self.rng.random() < 0.3:
                shape[d], shards[d] = 1, ()
        x = Type(y.dtype, tuple(shape), tuple(shards), y.partial, y.reduction, y.place)
        return [x], self.to(y)

    def elementwise(self) -> tuple[list[Type], str]:
        operands = [self.kind(states="rrsspo")]
        return operands, ""

    def one(self) -> tuple[list[Type], str]:
        return [self.kind()], ""

    def arguments(self, op: str) -> tuple[list[Type], str]:
        """Return operands and clauses for an operation."""
        simple = {
            "all_reduce": self.reduction,
            "reduce": self.reduction,
            "broadcast": self.from_root,
            "reduce_scatter": lambda: self.with_dim(self.reduction()),
            "all_gather": self.gathered,
            "gather": self.gathered,
            "scatter": lambda: self.with_dim(self.from_root()),
            "slice": lambda: self.with_dim(self.replicated()),
            "keep_root": self.replicated,
            "add": self.two,
            "barrier": self.one,
            **dict.fromkeys(("sum", "max", "min", "mean"), self.reduced),
            **dict.fromkeys(("top_k", "top_k_indices"), self.top),
            "log_softmax": self.softmax,
            "layer_norm": lambda: self.norm(3),
            "rms_norm": lambda: self.norm(2),
            **dict.fromkeys(ELEMENTWISE, self.elementwise),
            **dict.fromkeys(PAIRS, self.pair),
        }
        if "conv" in op or "pool" in op:
            return self.conv_like(op)
        return simple[op]() if op in simple else getattr(self, op)()


@dataclass(frozen=True)
class StepText:
    """A step on operands of given types, in the text of a function on a mesh."""

    mesh: Mesh
    mesh_text: str
    op: str
    types: tuple[Type, ...]
    clauses: str

    @property
    def line(self) -> str:
        operands = ", ".join(f"%x{i}" for i in range(len(self.types)))
        text, _, rest = (
            self.clauses.partition("|") if self.op == "einsum" else ("", "", self.clauses)
        )
        return " ".join(part for part in (self.op, text, operands, rest) if part)

    def function(self, written: Type | None = None) -> str:
        """Return the program of the step, with the type of its result written or not."""
        arguments = ", ".join(f"%x{i}: {t}" for i, t in enumerate(self.types)) or "%x0: f32[]"
        returned = self.types[0] if self.types else "f32[]"
        suffix = f" : {written}" if written else ""
        return (
            f"{self.mesh_text}func @f({arguments}) -> {returned} on @m {{\n"
            f"  %y = {self.line}{suffix}\n  return %x0\n}}\n"
        )

    def step(self) -> Step:
        return Reader(f"%y = {self.line}").step()

    def result(self) -> Type:
        """Return the type of the result, or raise Refused."""
        for t in self.types:
            self.mesh.checked(t)
        return typed(self.mesh, self.step(), list(self.types), {})


def random_step(rng: random.Random, ops: Sequence[str]) -> StepText:
    """Return a step; sometimes the first well typed one of several."""
    op = rng.choice(ops)
    tries = 30 if rng.random() < 0.1 else 1
    made = None
    for _ in range(tries):
        text = random_mesh(rng)
        maker = Maker(rng, text.mesh)
        try:
            types, clauses = maker.arguments(op)
            for t in types:
                text.mesh.checked(t)
        except Refused:
            continue
        made = StepText(text.mesh, text.text, op, tuple(types), clauses)
        try:
            made.result()
            return made
        except Refused:
            continue
    return made or random_step(rng, ops)


__all__ = ["RULES", "Axis", "StepText", "random_mesh", "random_step", "random_type"]
