"""Make random programs: steps on what earlier steps made, and inputs for them."""

import random

import numpy as np

from .devices import Buffers, Devices
from .indices import RULES, typed
from .mesh import FLOATS, Mesh, Refused, Type
from .numerics import Array, reduced, type_of
from .random_steps import Maker, random_mesh
from .text import Reader

APART = {"terms"}
"""Operations whose results depend on how a partial value was made."""


class Growing(Maker):
    """A program that grows by steps. What an operation asks for is a value that there is, mostly."""

    def __init__(self, rng: random.Random, mesh: Mesh) -> None:
        super().__init__(rng, mesh)
        self.arguments_: list[Type] = []
        self.values: list[tuple[str, Type]] = []
        self.used: set[str] = set()
        self.lines: list[str] = []

    def kind(self, dtype: str = "", states: str = "rrrrsssppo", rank: int = -1) -> Type:
        fitting = [
            t
            for _, t in self.values[-6:]
            if dtype in ("", t.dtype) and (rank < 0 or len(t.shape) == rank)
        ]
        if fitting and self.rng.random() < 0.85:
            return self.rng.choice(fitting)
        return super().kind(dtype, states, rank)

    def operand(self, t: Type) -> str:
        """Return a value of a type: one that there is, or a new argument."""
        there = [name for name, other in self.values if other == t]
        if there and self.rng.random() < 0.9:
            return there[-1] if self.rng.random() < 0.6 else self.rng.choice(there)
        name = f"%a{len(self.arguments_)}"
        self.arguments_.append(t)
        self.values.append((name, t))
        return name

    def grow(self, op: str) -> bool:
        """Add a step if the arguments that are drawn are well typed."""
        try:
            types, clauses = self.arguments(op)
            text, _, rest = clauses.partition("|") if op == "einsum" else ("", "", clauses)
            step = Reader(f"%y = {op} {text} {', '.join('%x' for _ in types)} {rest}").step()
            y = typed(self.mesh, step, [self.mesh.checked(t) for t in types], {})
        except Refused:
            return False
        if np.prod(y.shape, dtype=float) > 4096:
            return False
        operands = [self.operand(t) for t in types]
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {op} {text} {', '.join(operands)} {rest}")
        self.used |= set(operands)
        self.values.append((name, y))
        return True

    def function(self) -> str:
        """Return the text of the function: it returns what no step uses, at most four values."""
        made = [row for row in self.values if row[0] not in self.used and row[0].startswith("%v")]
        made = made[-4:]
        arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(self.arguments_))
        results = ", ".join(str(t) for _, t in made)
        names = ", ".join(name for name, _ in made)
        body = "\n".join(self.lines)
        return f"func @f({arguments}) -> ({results}) on @m {{\n{body}\n  return {names}\n}}\n"


def random_program(rng: random.Random) -> str:
    """Return the text of a program of one function @f."""
    drawn = random_mesh(rng, uneven=rng.choice([0, 0, 0.3]))
    program = Growing(rng, drawn.mesh)
    ops = [op for op in sorted(RULES) if op not in APART]
    few = rng.sample(ops, 12) + rng.choices(COMMON, k=8)
    length = rng.randint(2, 10)
    tries = 0
    while len(program.lines) < length and tries < 400:
        tries += 1
        program.grow(rng.choice(few))
    if not program.lines:
        return random_program(rng)
    return drawn.text + program.function()


COMMON = [
    "all_reduce", "reduce_scatter", "all_gather", "slice", "add", "scale", "mask", "all_to_all",
    "split", "merge", "pad", "concat", "transpose", "mul", "einsum", "redistribute",
]  # fmt: skip


def drawn(kind: Type, rng: np.random.Generator, noise: float) -> Array:
    """Return a random tensor of a type; floats are changed by a relative ``noise``."""
    if kind.dtype in FLOATS:
        x = rng.uniform(0.25, 1.25, kind.shape) * rng.choice([-1, 1, 1], kind.shape)
        change = rng.choice([-1, 1], kind.shape)
        return x.astype(np.longdouble) * (1 + np.longdouble(noise) * change)
    low, high = (0, 2) if kind.dtype == "bool" else (-3, 8)
    if kind.partial and kind.reduction == "prod":
        return rng.choice([-1, 1], kind.shape).astype(type_of[kind.dtype])
    return rng.integers(low, high, kind.shape).astype(type_of[kind.dtype])


def inputs(mesh: Mesh, kinds: list[Type], seed: int, noise: float = 0) -> list[tuple[Array, Buffers]]:
    """Return for each type a whole tensor and its buffers; terms of partial values are random."""
    rng = np.random.default_rng(seed)
    devices = Devices(mesh)
    found: list[tuple[Array, Buffers]] = []
    for kind in kinds:
        count = mesh.count(sorted(kind.partial))
        terms = [drawn(kind, rng, noise) for _ in range(count)]
        whole = reduced(kind.reduction, terms) if kind.partial else terms[0]
        found.append((whole, devices.placed(terms, kind)))
    return found
