"""Make random programs: steps, loops, calls and gradients on what earlier steps made."""

import random
from dataclasses import replace

import numpy as np

from .indices import RULES, typed
from .mesh import FLOATS, Mesh, Refused, Type, need
from .random_steps import Maker, random_mesh
from .text import Reader

APART = {"terms"}
"""Operations whose results depend on how a partial value was made."""

UNKNOWN = {"compute", "part", "assemble", "uniform", "iota", "constant"}
"""Operations without a gradient, or without an operand to differentiate by."""

COMMON = [
    "all_reduce", "reduce_scatter", "all_gather", "slice", "add", "scale", "mask", "all_to_all",
    "split", "merge", "pad", "concat", "transpose", "mul", "einsum", "redistribute",
]  # fmt: skip


class Growing(Maker):
    """A program that grows by steps, which mostly take values that there are."""

    def __init__(self, rng: random.Random, mesh: Mesh) -> None:
        super().__init__(rng, mesh)
        self.arguments_: list[Type] = []
        self.values: list[tuple[str, Type]] = []
        self.used: set[str] = set()
        self.lines: list[str] = []
        self.closed = False
        self.floats = False

    def kind(self, dtype: str = "", states: str = "rrrrsssppo", rank: int = -1) -> Type:
        fitting = [
            t
            for _, t in self.values[-6:]
            if dtype in ("", t.dtype) and (rank < 0 or len(t.shape) == rank)
        ]
        if fitting and (self.closed or self.rng.random() < 0.85):
            return self.rng.choice(fitting)
        if self.floats and not dtype and self.rng.random() < 0.9:
            dtype = "f32"
        return super().kind(dtype, states, rank)

    def operand(self, t: Type) -> str:
        """Return a value of a type: one that there is, or a new argument."""
        there = [name for name, other in self.values if other == t]
        if there and (self.closed or self.rng.random() < 0.9):
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
        if self.closed and not set(types) <= {t for _, t in self.values}:
            return False
        operands = [self.operand(t) for t in types]
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {op} {text} {', '.join(operands)} {rest}")
        self.used |= set(operands)
        self.values.append((name, y))
        return True

    def unused(self) -> list[tuple[str, Type]]:
        """Return the values of steps that no step uses, at most four."""
        made = [row for row in self.values if row[0] not in self.used and row[0].startswith("%v")]
        return made[-4:]

    def grow_several(self, ops: list[str], length: int) -> None:
        """Add steps until there are as many as wanted, or it does not get on."""
        few = self.rng.sample(ops, min(12, len(ops)))
        few += [op for op in self.rng.choices(COMMON, k=8) if op in ops]
        for _ in range(40 * length):
            if len(self.lines) >= length:
                break
            self.grow(self.rng.choice(few))

    def grow_call(self, name: str, arguments: list[Type], results: list[Type]) -> None:
        """Add a call of another function, with operands of its types."""
        operands = [self.operand(t) for t in arguments]
        made = self.new_names(results)
        flag = self.rng.choice(["", "", " recompute"])
        self.lines.append(f"  {', '.join(made)} = call {name}({', '.join(operands)}){flag}")
        self.used |= set(operands)

    def new_names(self, kinds: list[Type]) -> list[str]:
        """Return names for new values of these types."""
        names = [f"%v{len(self.lines)}x{i}" for i in range(len(kinds))]
        self.values += zip(names, kinds, strict=True)
        return names

    def grow_loop(self, ops: list[str]) -> None:
        """Add a loop over a value that there is, with a slice of another one."""
        rng, count = self.rng, self.rng.choice([1, 2, 2, 3, 4])
        carried = self.kind()
        row = carried if rng.random() < 0.7 else self.kind()
        stack = replace(row, shape=(count, *row.shape), shards=((), *row.shards))
        inner = Growing(rng, self.mesh)
        constant = self.kind()
        for name, t in (("%h", carried), ("%w", row), ("%k", constant)):
            inner.values.append((name, t))
        inner.closed = True
        inner.grow_several(ops, rng.randint(1, 5))
        same = [n for n, t in inner.values if t == carried and n.startswith("%v")]
        next_ = rng.choice(same) if same else "%h"
        kept = [row for row in inner.unused() if row[0] != next_][:2]
        outer = [self.operand(t) for t in (carried, stack, constant)]
        stacked = [replace(t, shape=(count, *t.shape), shards=((), *t.shards)) for _, t in kept]
        made = self.new_names([carried, *stacked])
        self.used |= set(outer)
        clauses = f"carry(%h = {outer[0]}) slice(%w = {outer[1]}) with(%k = {outer[2]})"
        clauses += rng.choice(["", " reverse"]) + rng.choice(["", "", " recompute"])
        body = "\n".join("  " + line for line in inner.lines)
        yields = ", ".join([next_, *(name for name, _ in kept)])
        self.lines.append(
            f"  {', '.join(made)} = repeat {count} {clauses} {{\n{body}\n    yield {yields}\n  }}"
        )

    def text(self, name: str, returned: list[tuple[str, Type]]) -> str:
        """Return the function with the given results."""
        arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(self.arguments_))
        results = ", ".join(str(t) for _, t in returned)
        names = ", ".join(name for name, _ in returned)
        body = "\n".join(self.lines)
        return f"func {name}({arguments}) -> ({results}) on @m {{\n{body}\n  return {names}\n}}\n"


def random_program(rng: random.Random, kinds: str = "sslcgga") -> str:
    """Return the text of a program with a function @f.

    kinds: a letter for each ticket of steps, a loop, a call, a gradient, an auto function.
    """
    kind = rng.choice(kinds)
    if kind == "a":
        return random_auto(rng)
    drawn = random_mesh(rng, uneven=rng.choice([0, 0, 0.3]))
    ops = [op for op in sorted(RULES) if op not in APART]
    main = Growing(rng, drawn.mesh)
    if kind == "g":
        made = random_gradient(rng, drawn.mesh, main, [op for op in ops if op not in UNKNOWN])
        return drawn.text + made if made else random_program(rng, kinds)
    main.grow_several(ops, rng.randint(1, 8))
    before = ""
    if kind == "c":
        callee = Growing(rng, drawn.mesh)
        callee.grow_several(ops, rng.randint(1, 5))
        if callee.unused() and callee.arguments_:
            before = callee.text("@g", callee.unused())
            results = [t for _, t in callee.unused()]
            for _ in range(rng.choice([1, 2])):
                main.grow_call("@g", callee.arguments_, results)
    if kind == "l":
        main.grow_loop(ops)
    main.grow_several(ops, len(main.lines) + rng.randint(0, 3))
    if not main.unused():
        return random_program(rng, kinds)
    return drawn.text + before + main.text("@f", main.unused())


def random_gradient(rng: random.Random, mesh: Mesh, loss: "Growing", ops: list[str]) -> str:
    """Return a function of a random loss, and one of its gradients; empty if there is no such."""
    loss.floats = True
    loss.grow_several(ops, rng.randint(1, 5))
    if rng.random() < 0.3 and loss.lines:
        loss.grow_loop(ops)
        loss.grow_several(ops, len(loss.lines) + rng.randint(0, 2))
    last = [row for row in loss.unused() if row[1].dtype in FLOATS]
    wrt = [i for i, t in enumerate(loss.arguments_) if t.dtype in FLOATS and not t.partial]
    if not last or not wrt:
        return ""
    name, t = last[-1]
    if t.partial and (t.reduction != "sum" or rng.random() < 0.5):
        t = Type(t.dtype, t.shape, t.shards)
        loss.lines.append(f"  %r = redistribute {name} to {t}")
        name = "%r"
    if t.shape:
        loss.lines.append(
            f"  %t = mul {name}, {name}" if not t.partial else f"  %t = barrier {name}"
        )
        loss.lines.append(f"  %s = sum %t dims {list(range(len(t.shape)))}")
        name = "%s"
    scalar = Type(t.dtype, (), ())
    loss.lines.append(f"  %l = redistribute {name} to {scalar}")
    chosen = rng.sample(wrt, rng.randint(1, min(2, len(wrt))))
    kinds = loss.arguments_
    arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(kinds))
    names = ", ".join(f"%a{i}" for i in range(len(kinds)))
    results = ", ".join(str(x) for x in [scalar, *(kinds[i] for i in chosen)])
    made = ", ".join(["%l", *(f"%d{i}" for i in chosen)])
    return (
        loss.text("@loss", [("%l", scalar)])
        + f"func @f({arguments}) -> ({results}) on @m {{\n"
        + f"  {made} = gradient @loss({names}) wrt {', '.join(f'%a{i}' for i in chosen)}\n"
        + f"  return {made}\n}}\n"
    )


class OnOne(Growing):
    """A program for one device, whose sizes divide."""

    def kind(self, dtype: str = "", states: str = "", rank: int = -1) -> Type:
        t = super().kind(dtype, states, rank)
        if any(t == other for _, other in self.values):
            return t
        shape = tuple(self.rng.choice([2, 4, 4, 6, 8, 12]) for _ in t.shape)
        return replace(t, shape=shape)


def random_auto(rng: random.Random) -> str:
    """Return a program of an auto function: types of arguments and results are sharded."""
    drawn = random_mesh(rng, uneven=0)
    program = OnOne(rng, Mesh([]))
    program.floats = True
    moving = {"over", "to", "at"}
    ops = [op for op in sorted(RULES) if op not in APART | UNKNOWN | MOVING and op not in moving]
    program.grow_several(ops, rng.randint(2, 7))
    if rng.random() < 0.3 and program.lines:
        program.grow_loop(ops)
    returned = program.unused()
    if not returned:
        return random_auto(rng)
    program.arguments_ = [sharded(rng, drawn.mesh, t) for t in program.arguments_]
    returned = [(name, sharded(rng, drawn.mesh, t)) for name, t in returned]
    return drawn.text + program.text("@f", returned).replace(" on @m {", " on @m auto {", 1)


MOVING = {
    "all_reduce", "reduce", "broadcast", "reduce_scatter", "all_gather", "scatter", "gather",
    "all_to_all", "send", "shift", "permute", "redistribute", "slice", "keep_root", "keep", "part",
    "assemble", "terms", "mask", "take_transpose", "one_hot", "conv_transpose", "conv_filter",
    "avg_pool_transpose", "broadcast_to",
}  # fmt: skip
"""Steps that say what devices do, and those whose text has a type."""


def sharded(rng: random.Random, mesh: Mesh, t: Type) -> Type:
    """Return a type with some of its dimensions sharded."""
    shards = [list[str]() for _ in t.shape]
    for axis in mesh.axes:
        if t.shape and rng.random() < 0.4:
            d = rng.randrange(len(t.shape))
            row = [*shards[d], *(name for name, _ in axis.parts)]
            if t.shape[d] % mesh.units(row) == 0:
                shards[d] = row
    made = replace(t, shards=tuple(map(tuple, shards)))
    need(mesh.checked(made) == made, "a type")
    return made
