"""Run the functions of a program: steps, loops, calls and gradients, on values of any kind."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from .devices import Devices
from .indices import typed
from .mesh import FLOATS, Mesh, Refused, Type, need
from .rules import Case
from .text import Function, Program, Step, TypeText, evaluate, integer
from .whole import Whole


class Values(Protocol):
    """A way to represent the values on a mesh: ``Devices``, or ``Whole``."""

    def step(self, c: Case, y: Type, values: list[Any], /) -> Any:
        """Return the result of a step, whose type is ``y``."""
        ...

    def row(self, value: Any, i: int, /) -> Any:
        """Return row ``i`` of dimension 0."""
        ...

    def stack(self, rows: list[Any], /) -> Any:
        """Return values along a new dimension 0."""
        ...


Bound = tuple[Type, Any]
"""A value and its type."""


class Run:
    """A program on one kind of values: ``Devices`` or ``Whole``."""

    def __init__(self, program: Program, kind: Callable[[Mesh], Values]) -> None:
        self.program = program
        self.kind = kind
        self.meshes = {name: Mesh.read(axes) for name, axes in program.meshes.items()}

    def signature(
        self, function: Function, sizes: dict[str, int] | None = None
    ) -> tuple[list[Type], list[Type]]:
        """Return the types of the arguments and of the results."""
        mesh, sizes = self.meshes[function.mesh], {**function.sizes, **(sizes or {})}
        arguments = [mesh.type(t, sizes) for _, t in function.arguments]
        return arguments, [mesh.type(t, sizes) for t in function.results]

    def function(
        self, name: str, values: list[Any], sizes: dict[str, int] | None = None
    ) -> list[Any]:
        """Return the results of a function on the values of its arguments."""
        function = self.program.functions[name]
        sizes = {**function.sizes, **(sizes or {})}
        arguments, results = self.signature(function, sizes)
        names = [argument for argument, _ in function.arguments]
        need(len(set(names)) == len(names), "an argument is twice")
        scope = dict(zip(names, zip(arguments, values, strict=True), strict=True))
        made = self.body(function, sizes, function.body, scope)
        need([t for t, _ in made] == results, f"returns {[str(t) for t, _ in made]}")
        return [value for _, value in made]

    def body(
        self, function: Function, sizes: dict[str, int], steps: list[Step], scope: dict[str, Bound]
    ) -> list[Bound]:
        """Return what the last step of a body returns or yields."""
        for step in steps[:-1]:
            operands = self.named(scope, step.operands)
            if step.op == "repeat":
                made = self.repeat(function, sizes, step, scope)
            elif step.op in ("call", "gradient"):
                made = self.call(function, sizes, step, operands, scope)
            else:
                made = [self.step(function, sizes, step, operands, scope)]
            need(len(made) == len(step.results), "another number of results")
            for name, value in zip(step.results, made, strict=True):
                need(name not in scope, f"{name} is defined twice")
                scope[name] = value
        return self.named(scope, steps[-1].operands)

    def named(self, scope: dict[str, Bound], names: list[str]) -> list[Bound]:
        need(all(name in scope for name in names), f"not defined: {set(names) - set(scope)}")
        return [scope[name] for name in names]

    def step(
        self,
        function: Function,
        sizes: dict[str, int],
        step: Step,
        operands: list[Bound],
        scope: dict[str, Bound],
    ) -> Bound:
        mesh = self.meshes[function.mesh]
        types = [t for t, _ in operands]
        y = typed(mesh, step, types, sizes)
        if step.written is not None:
            need(mesh.type(step.written, sizes) == y, f"the type is {y}")
        if "over" in step.clauses and not mesh.named(step.clauses["over"]):
            return y, operands[0][1]
        return y, self.kind(mesh).step(Case(mesh, step, types, sizes), y, [v for _, v in operands])

    def repeat(
        self, function: Function, sizes: dict[str, int], step: Step, scope: dict[str, Bound]
    ) -> list[Bound]:
        """Return the last carries of a loop, then its stacks."""
        kind = self.kind(self.meshes[function.mesh])
        count = integer(step.clauses["count"], sizes)
        need(count >= 1, "no iteration")
        carries = step.clauses.get("carry", [])
        slices = step.clauses.get("slice", [])
        outside = {name: scope_of(scope, name) for row in (carries, slices) for _, name in row}
        constant = {n: scope_of(scope, v) for n, v in step.clauses.get("with", [])}
        state = [outside[value] for _, value in carries]
        types = [t for t, _ in state]
        rows: list[list[Bound]] = []
        order = range(count)
        for i in reversed(order) if "reverse" in step.clauses else order:
            inner = dict(constant)
            inner |= {name: value for (name, _), value in zip(carries, state, strict=True)}
            for name, value in slices:
                inner[name] = row_type(outside[value][0], count), kind.row(outside[value][1], i)
            need(len(inner) == len(carries) + len(slices) + len(constant), "a name is twice")
            made = self.body(function, sizes, step.body, inner)
            state = made[: len(carries)]
            need([t for t, _ in state] == types, "a carry has one type in all iterations")
            rows.append(made[len(carries) :])
        if "reverse" in step.clauses:
            rows.reverse()
        stacks = [
            (stacked(column[0][0], count), kind.stack([value for _, value in column]))
            for column in zip(*rows, strict=True)
        ]
        return state + stacks

    def call(
        self,
        function: Function,
        sizes: dict[str, int],
        step: Step,
        operands: list[Bound],
        scope: dict[str, Bound],
    ) -> list[Bound]:
        """Return the results of a call, and behind them the gradients that it asks for."""
        callee = self.program.functions[step.callee]
        need(callee.mesh == function.mesh, "another mesh")
        values = {name: integer(formula, sizes) for name, formula in step.sizes.items()}
        arguments, results = self.signature(callee, values)
        need(arguments == [t for t, _ in operands], "operands of other types")
        inputs = [value for _, value in operands]
        made = list(zip(results, self.function(step.callee, inputs, values), strict=True))
        if step.op == "call":
            return made
        wrt = [step.operands.index(name) for name in step.clauses["wrt"]]
        whole = self.as_whole(function, operands)
        gradients = gradient(self.program, step.callee, whole, wrt, values)
        devices = self.kind(self.meshes[function.mesh])
        for i, g in zip(wrt, gradients, strict=True):
            need(arguments[i].dtype in FLOATS, "integers have no gradient")
            value = devices.distribute(g, arguments[i]) if isinstance(devices, Devices) else g
            made.append((arguments[i], value))
        return made

    def as_whole(self, function: Function, operands: list[Bound]) -> list[Any]:
        devices = self.kind(self.meshes[function.mesh])
        if not isinstance(devices, Devices):
            return [value for _, value in operands]
        return [devices.whole(value, t, tolerance=np.inf) for t, value in operands]


def scope_of(scope: dict[str, Bound], name: str) -> Bound:
    need(name in scope, f"{name} is not defined")
    return scope[name]


def row_type(x: Type, count: int) -> Type:
    """Return the type of a slice along dimension 0."""
    need(x.shape and not x.shards[0] and x.shape[0] == count, "a row for each iteration")
    return replace(x, shape=x.shape[1:], shards=x.shards[1:])


def stacked(x: Type, count: int) -> Type:
    """Return the type of values along a new dimension 0."""
    return replace(x, shape=(count, *x.shape), shards=((), *x.shards))


def gradient(
    program: Program, name: str, values: list[Any], wrt: list[int], sizes: dict[str, int]
) -> list[Any]:
    """Return the derivatives of the first result, by complex steps along each element."""
    step, run, found = np.longdouble(1e-200), Run(program, Whole), list[Any]()
    for i in wrt:
        base = values[i]
        made = np.zeros(base.shape, np.longdouble)
        for place in np.ndindex(base.shape):
            moved = np.array(base, np.clongdouble)
            moved[place] += 1j * step
            first = run.function(name, [*values[:i], moved, *values[i + 1 :]], sizes)[0]
            made[place] = first.imag / step
        found.append(made)
    return found


__all__ = ["Refused", "Run", "TypeText", "evaluate", "gradient"]
