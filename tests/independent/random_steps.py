"""Make random meshes, types and single steps, about half of which are well typed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from .indices import RULES, typed
from .mesh import DTYPES, Axis, Mesh, Refused, Type
from .text import Reader, Step

NAMES = ("data", "model", "pipe")
LEVELS = ("node", "gpu", "chip")


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
        axes: list[tuple[str, list[tuple[str, int]], list[int]]] = []
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


def mesh_text(axes: list[tuple[str, list[tuple[str, int]], list[int]]], levels: int) -> str:
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
    return f"machine @c {{ {machine} }}\nmesh @m on @c {{ {written} }}\n"


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
            shape = [mesh.units(row) * rng.choice([1, 1, 2, 3, 4]) for row in shards]
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
        pieces: list[Type] = []
        for i in range(self.mesh.count(subs)):
            place = dict(x.place) | self.mesh.coordinates(subs, i)
            pieces.append(
                Type(x.dtype, x.shape, x.shards, x.partial, x.reduction, frozenset(place.items()))
            )
        if self.rng.random() < 0.1:
            self.rng.shuffle(pieces)
        return pieces, f"over {over} dim {self.dim(x)}"

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
        return [self.kind(states="rsppp")], f"by {self.rng.choice(['2', '-1', '0.5', '0', '-0.25', '1', '300'])}"

    def cast(self) -> tuple[list[Type], str]:
        return [self.kind(self.rng.choice(list(DTYPES)), "rsppp")], f"to {self.rng.choice(list(DTYPES))}"

    def pad(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrsppo")
        low, high = (self.rng.choice([-2, -1, 0, 0, 1, 2]) for _ in range(2))
        value = self.rng.choice(["", "", " value 0", " value 1", " value -1", " value 0.5"])
        return [x], f"dim {self.dim(x)} low {low} high {high}{value}"

    def concat(self) -> tuple[list[Type], str]:
        x = self.kind(states="rrsppo")
        return [x, *(self.other(x) for _ in range(self.rng.choice([0, 1, 1, 2])))], f"dim {self.dim(x)}"

    def compute(self) -> tuple[list[Type], str]:
        return [self.kind() for _ in range(self.rng.choice([1, 2]))], f"flops {self.rng.choice([0, 1, 1e6, -1])}"

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
        }
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
        text, _, rest = self.clauses.partition("|") if self.op == "einsum" else ("", "", self.clauses)
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
    """Return a step; half of the time the first well typed one of several."""
    op = rng.choice(ops)
    tries = 30 if rng.random() < 0.5 else 1
    made = None
    for _ in range(tries):
        text = random_mesh(rng)
        maker = Maker(rng, text.mesh)
        types, clauses = maker.arguments(op)
        try:
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
