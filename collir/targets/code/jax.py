"""Python for jax: one ``shard_map`` for each function, over a mesh whose axes are the sub-axes."""

import re
from collections.abc import Container, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.target import Target

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.ahead import is_ahead
from collir.ir.calls import calls_in
from collir.ir.functions import check_programs, functions_of
from collir.ir.names import unique_names
from collir.ir.remarks import remark
from collir.ir.retyping import function_at
from collir.layout import DistType, DType, Mesh
from collir.layout.steps import USING
from collir.machine.counts import devices_text
from collir.targets.code.jax_ops import EXPRESSIONS, HELPERS, MAPS, NUMBERS
from collir.targets.code.jax_step import DTYPES, JaxStep, literal, names_text
from collir.targets.code.names import Definition, check_definitions, distinct
from collir.targets.code.python_lines import call_lines, lines_of
from collir.targets.code.python_text import (
    comment,
    identifier_problem,
    shown_results,
    tuple_text,
    variables,
)
from collir.targets.code.ranks import axes_text, by_rank
from collir.transforms.gradients.differentiation import gradients_as_calls
from collir.transforms.loops.rotation import rotate_all

_USED = frozenset(
    """
    Array Mesh P jax jnp lax np time wraps devices mesh main takes carry slices
    layer_norm rms_norm
    RuntimeError TypeError bool enumerate len list print range zip
    """.split()  # noqa: SIM905
)
"""Names of the emitted code, which no function or variable has."""


# ---------------------------------------------------------------------------------------------
# The module
# ---------------------------------------------------------------------------------------------


Place = tuple[FuncOp, tuple[tuple[str, int], ...]]
"""A function, and the values that it is called at."""


@dataclass
class ModuleText:
    """The names and texts that functions of a module share.

    Attributes:
        meshes: the variable of each mesh, by its name.
        taken: the names of the module so far.
        called: the names of the functions on the blocks of a device that others call, by their
            texts without the names.
        at: the same names, by what is called and at which values.
        needs: the helpers that the functions call.
        wide: whether a value has 64 bits.
    """

    meshes: dict[str, str]
    taken: set[str]
    called: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])
    at: dict[Place, str] = field(default_factory=dict[Place, str])
    needs: set[str] = field(default_factory=set[str])
    wide: bool = False

    def name_of(self, call: CallOp) -> str:
        """Return the name of the function that a call runs; a new one is printed."""
        callee = call.function()
        assert callee is not None
        place = callee, tuple(call.values.items())
        if place in self.at:
            return self.at[place]
        with _as_run(callee, call.values) as function:
            key = tuple(JaxFunction(function, self).plain())
        if key not in self.called:
            stem = f"_{re.sub(r'_[0-9]+$', '', callee.sym_name.data)}"
            [name] = distinct([stem], self.taken)
            self.taken.add(name)
            self.called[key] = name
        self.at[place] = self.called[key]
        return self.called[key]


@contextmanager
def _as_run(function: FuncOp, values: Mapping[str, int]) -> Generator[FuncOp]:
    """Insert a copy of a function at values of its parameters, whose loops are as they run, and
    remove it again."""
    with function_at(function, values, {}) as copy:
        if any(is_ahead(op) for op in copy.walk()):
            rotate_all(copy)
        yield copy


def emit_jax(module: ModuleOp, names: Container[str] | None = None) -> str:
    """Return the Python module of the functions of a module.

    Args:
        names: the functions to print for arrays on the whole mesh; None: all functions that no
            other function calls.

    Raises:
        DiagnosticError: names that Python cannot have, values whose blocks differ in size, and
            operations that jax does not have.
    """
    functions = functions_of(module)
    check_programs(functions, "has no form in jax", even=True, nested=True)
    if names is None:
        plain = {call.symbol for f in functions for call in calls_in(f) if not call.sought}
        names = {f.sym_name.data for f in functions} - plain
    for op in (op for f in functions for op in f.walk() if isinstance(op, DistOp)):
        if USING.name in op.properties:
            remark(op, f"XLA chooses the algorithm, not `using {op.arguments[USING.name]}`")
    shown = [f.sym_name.data for f in functions if f.sym_name.data in names]
    own = [mesh_of(f) for f in functions if f.sym_name.data in names]
    meshes = list({mesh.name: mesh for mesh in own}.values())
    variable = {mesh.name: mesh_variable(mesh, len(meshes)) for mesh in meshes}
    _check_names(module, variable, shown)
    module = module.clone()
    _ = gradients_as_calls(module)
    check_programs(functions_of(module), "has no form in jax", nested=True)
    text = ModuleText(variable, {*_USED, *variable.values(), *shown})
    printed: list[list[str]] = []
    for function in functions_of(module):
        if function.sym_name.data in shown:
            with _as_run(function, {}) as copy:
                printed.append(JaxFunction(copy, text).on_mesh())
    sharded = [mesh for mesh in meshes if mesh.sub_axes]
    lines = [line for mesh in sharded for line in ["", *_mesh(mesh, variable[mesh.name])]]
    if shown:
        blocks = [*_helpers(text), *_called(text), *printed, _main(shown, text.wide)]
        lines += [line for block in blocks for line in ["", "", *block]]
    return "\n".join([*_header(meshes, lines), *lines, ""])


def _helpers(text: ModuleText) -> list[list[str]]:
    """Return the lines of the helpers."""
    takes: str = _TAKES.replace(_CHECKS, _WIDE + _CHECKS) if text.wide else _TAKES
    used = [HELPERS[name] for name in HELPERS if name in text.needs]
    return [list(block.rstrip().split("\n")) for block in (takes, *used)]


def _called(text: ModuleText) -> list[list[str]]:
    """Return the lines of the functions that others call, under their names."""
    blocks: list[list[str]] = []
    for (head, *body), name in text.called.items():
        blocks.append([*lines_of(head.replace("def _", f"def {name}", 1), 0), *body])
    return blocks


def _check_names(module: ModuleOp, meshes: dict[str, str], shown: Sequence[str]) -> None:
    """Check that Python can have the names of meshes and functions.

    Raises:
        DiagnosticError: all the names that it cannot have.
    """

    def problem(name: str) -> str | None:
        if name in _USED or name in meshes.values():
            return f"'{name}' is a name of the emitted code"
        if name.startswith("__"):
            return "names that start with '__' are Python's own"
        return identifier_problem(name)

    def of_mesh(name: str) -> list[Definition]:
        known = meshes.get(name, "mesh")
        return [] if known == "mesh" else [Definition(known, identifier_problem(known), None)]

    check_definitions(
        module,
        "Python",
        of_mesh,
        lambda name: [Definition(name, problem(name), None)] if name in shown else [],
        models=True,
    )


def _header(meshes: Sequence[Mesh], body: Sequence[str]) -> list[str]:
    """Return the docstring and the imports."""
    lines = [f'"""Written by collir {collir.__version__}: jax.', ""]
    if not meshes:
        return [*lines[:1], '"""']
    count = max(mesh.devices for mesh in meshes)
    flag = f"XLA_FLAGS=--xla_force_host_platform_device_count={count}"
    lines += [
        "Functions take and return arrays on the whole mesh. Importing this module takes the first",
        "devices, in the order of the hardware. As a program, it runs them on random numbers:",
        "",
        f"    {flag} JAX_PLATFORMS=cpu python FILE",
        '"""',
        "",
        "import time",
        "from functools import wraps",
        "",
        "import jax",
    ]
    return [*lines, *_imports(body, any(mesh.sub_axes for mesh in meshes))]


def _imports(body: Sequence[str], sharded: bool) -> list[str]:
    """Return the imports that statements need."""
    text = "\n".join(body)
    lines = ["import jax.numpy as jnp"] if "jnp." in text else []
    names = [*(["P"] if sharded else []), *(["lax"] if "lax." in text else [])]
    lines += ["import numpy as np"]
    lines += [f"from jax import {', '.join(names)}"] if names else []
    lines += ["from jax import ShapeDtypeStruct as Array"]
    return lines + (["from jax.sharding import Mesh"] if sharded else [])


def _mesh(mesh: Mesh, variable: str) -> list[str]:
    """Return the statements that make a mesh of the first devices."""
    devices = "device" if mesh.devices == 1 else "devices"
    needs = f"mesh @{mesh.name} needs {mesh.devices} {devices}, and jax has {{len(devices)}}"
    about = f"Mesh @{mesh.name} on @{mesh.machine.name}: {devices_text(mesh.devices)}"
    lines = [
        f"# {comment(f'{about}, {axes_text(mesh)}')}.",
        "devices = jax.devices()",
        f"if len(devices) < {mesh.devices}:",
        f'    raise RuntimeError(f"{needs}")',
    ]
    ranks = by_rank(mesh, mesh.by_name)
    order = [ranks.index(sub.name) for sub in mesh.sub_axes]
    sizes = ", ".join(str(mesh.by_name[axis].size) for axis in ranks)
    array = f"np.array(devices[:{mesh.devices}]).reshape({sizes})"
    if order != sorted(order):
        array += f".transpose({', '.join(map(str, order))})"
    names = tuple_text([f'"{name}"' for name in axis_names(mesh).values()])
    return [*lines, *lines_of(f"{variable} = Mesh({array}, {names})", 0)]


def mesh_variable(mesh: Mesh, meshes: int) -> str:
    """Return the variable of a mesh in a module with some meshes."""
    return f"mesh_{mesh.name}" if meshes > 1 else "mesh"


def axis_names(mesh: Mesh) -> dict[str, str]:
    """Return the name of each sub-axis in the mesh of jax: ``data_node`` for ``data.node``, or
    ``data`` if the axis has no other."""
    short = [mesh.short([name])[0] for name in mesh.by_name]
    names = [re.sub(r"\W", "_", name, flags=re.ASCII) for name in short]
    return dict(zip(mesh.by_name, distinct(names), strict=True))


_CHECKS = "            for n, (x, y) in enumerate(zip(arguments, types, strict=True)):\n"

_TAKES = f'''\
def takes(*types):
    """Check the arguments of a function against types, when it is traced."""

    def checked(function):
        @wraps(function)
        def call(*arguments):
{_CHECKS}\
                if (x.shape, x.dtype) != (y.shape, y.dtype):
                    raise TypeError(f"argument {{n}} is {{jax.typeof(x)}}, not {{y}}")
            return function(*arguments)

        call.types = types
        return call

    return checked
'''

_WIDE = """\
            if not jax.config.jax_enable_x64:
                raise RuntimeError("set jax_enable_x64 first, for numbers of 64 bits")
"""
"""The check of a module with values of 64 bits, which jax takes for 32 bits otherwise."""


def _main(shown: Sequence[str], wide: bool) -> list[str]:
    """Return the program that runs every function."""
    functions = tuple_text(shown)
    lines = [
        "def main():",
        '    """Run every function on random numbers, and print the time of its second run."""',
    ]
    lines += ['    jax.config.update("jax_enable_x64", True)'] if wide else []
    lines += [f"    {line}" for line in lines_of(f"functions = {functions}", 4)]
    lines += _MAIN.rstrip().split("\n")
    return lines


_MAIN = """\
    rng = np.random.default_rng(0)
    for function in functions:
        types = function.__wrapped__.types
        run = function.lower(*types).compile()
        arrays = [(2 * rng.random(x.shape)).astype(x.dtype) for x in types]
        inputs = jax.device_put(arrays, list(run.input_shardings[0]))
        for _ in range(2):
            start = time.perf_counter()
            jax.block_until_ready(run(*inputs))
            seconds = time.perf_counter() - start
        print(f"{function.__name__}: {seconds * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
"""


# ---------------------------------------------------------------------------------------------
# One function
# ---------------------------------------------------------------------------------------------


class JaxFunction:
    """The text of one function.

    Attributes:
        names: the name of each value in ``.coll``.
        variable: the variable of each value, or a number that takes the dtype beside it.
    """

    def __init__(self, function: FuncOp, module: ModuleText):
        self.function, self.module = function, module
        self.mesh = mesh_of(function)
        self.axis = axis_names(self.mesh)
        self.returned = list(_last(function.body.block).operands)
        names = self.names = unique_names(function)
        # Called functions have names with _ in front, and _ is an unused value.
        plain = [re.sub("^_", "v_", name) for name in names.values()]
        self.variable = dict(zip(names, variables(plain, _USED), strict=True))
        self.live = _live(function.body.block)
        self.last = self._last_step()
        self.bodies: set[str] = {*_USED, *self.variable.values()}
        wide = (DType.F64, DType.I64)
        module.wide |= any(dist_type(value).dtype in wide for value in names)

    # --- on the blocks of a device, and on the whole mesh -------------------------------------

    def plain(self) -> list[str]:
        """Return the lines of the function on the blocks of a device; its name is ``_``."""
        arguments = ", ".join(self.variable[arg] for arg in self.function.args)
        body = self._block(self.function.body.block, 4)
        body = body[1:] if body[:1] == [""] else body  # no empty line behind a head
        return [f"def _({arguments}):", *body, *self._return([""] * len(self.returned))]

    def on_mesh(self) -> list[str]:
        """Return the lines of the function on arrays on the whole mesh."""
        lines: list[str] = []
        arguments = [self.variable[arg] for arg in self.function.args]
        for value, name in zip(self.function.args, arguments, strict=True):
            if own_axes(self.mesh, dist_type(value)):
                lines += [f"    {name} = {name}[0]"] if value in self.live else []
        if any(own_axes(self.mesh, dist_type(value)) for value in self.returned):
            self.last = None
        lines += self._block(self.function.body.block, 4)
        own = [own_axes(self.mesh, dist_type(value)) for value in self.returned]
        lines += self._return(["[None]" if axes else "" for axes in own])
        head = f"def {self.function.sym_name.data}({', '.join(arguments)}):"
        return [*self._decorators(), *lines_of(head, 0), *self._docstring(), *lines]

    def _decorators(self) -> list[str]:
        args, mesh = list(self.function.args), self.mesh
        types = [f"    {array_text(mesh, dist_type(arg))},  # {self._shown(arg)}" for arg in args]
        lines = ["@jax.jit", *(["@takes(", *types, ")"] if types else ["@takes()"])]
        if not mesh.sub_axes:
            return lines
        inputs, outputs = (
            [self._spec(value) for value in values] for values in (args, self.returned)
        )
        arguments = [
            f"mesh={self.module.meshes[mesh.name]}",
            f"in_specs={_group(inputs)}",
            f"out_specs={outputs[0] if len(outputs) == 1 else _group(outputs)}",
            "check_vma=False",
        ]
        return [*lines, *call_lines("@jax.shard_map", arguments, 0)]

    def _shown(self, value: SSAValue) -> str:
        """Return the name of a field of a record, or the variable of another value."""
        name = self.names[value]
        return name if "." in name else self.variable[value]

    def _spec(self, value: SSAValue) -> str:
        spec = spec_of(self.mesh, dist_type(value))
        return f"P({', '.join(names_text(names) if names else 'None' for names in spec)})"

    def _docstring(self) -> list[str]:
        results = shown_results(self.function, self.returned, self.names, self.variable)
        count = len(results)
        text = _listed(results) if 0 < count <= _MOST_LISTED else f"{count or 'no'} values"
        values = dict.fromkeys((*self.function.args, *self.returned))
        own = [self._own(value) for value in values if own_axes(self.mesh, dist_type(value))]
        if not own:
            return [f'    """Return {text}."""']
        return [f'    """Return {text}.', "", *(f"    {line}" for line in own), '    """']

    def _own(self, value: SSAValue) -> str:
        """Return the sentence about the leading dimension of a value, of which not all devices hold
        the same blocks."""
        x, name = dist_type(value), self.variable[value]
        axes = own_axes(self.mesh, x)
        text = f"{name}[i] is at index i along {_listed(self.mesh.short(axes))}"
        text += f", and {name} is the {x.reduction} of all" if x.partial else ""
        if x.place:
            where = [f"{self.mesh.short([axis])[0]} = {at}" for axis, at in x.place]
            text += f", where only {_listed(where)} counts"
        return comment(f"{text}.")

    def _last_step(self) -> SSAValue | None:
        """Return the only result of the function, if its last step computes it for nothing else."""
        ops = [op for op in self.function.body.block.ops if self.live.intersection(op.results)]
        if len(self.returned) != 1 or not ops or not isinstance(ops[-1], DistOp | CallOp):
            return None
        [value] = self.returned
        own = value in ops[-1].results and len(ops[-1].results) == 1
        return value if own and value.has_one_use() else None

    def _return(self, behind: Sequence[str]) -> list[str]:
        """Return the statement that returns the results, each with a text behind it."""
        if self.last is not None:
            return []
        texts = [
            f"{self.variable[value]}{text}"
            for value, text in zip(self.returned, behind, strict=True)
        ]
        return self._lines(f"return {', '.join(texts) or '()'}", 4)

    # --- statements ---------------------------------------------------------------------------

    def _assigned(self, results: Sequence[SSAValue]) -> str:
        """Return the begin of the statement that computes the results of a step."""
        if self.last in results:
            return "return "
        return f"{', '.join(self._targets(results))} = "

    def _targets(self, values: Sequence[SSAValue]) -> list[str]:
        """Return variables to assign to, ``_`` for unused values."""
        return [self.variable[value] if value in self.live else "_" for value in values]

    def _lines(self, statement: str, indent: int) -> list[str]:
        return [f"{' ' * indent}{line}" for line in lines_of(statement, indent)]

    def _block(self, block: Block, indent: int) -> list[str]:
        """Return the statements of the operations of a block that results need."""
        lines: list[str] = []
        for op in block.ops:
            if not self.live.intersection(op.results):
                continue
            if isinstance(op, DistOp):
                lines += self._step(op, indent)
            elif isinstance(op, RepeatOp):
                lines += self._loop(op, indent)
            elif isinstance(op, CallOp):
                lines += self._call(op, indent)
        return lines

    def _step(self, op: DistOp, indent: int) -> list[str]:
        if (number := self._number(op)) is not None:
            self.variable[op.result] = number
            return []
        inputs = [self.variable[operand] for operand in op.operands]
        step = JaxStep(op, self.mesh, inputs, self.module.needs, self.axis)
        text = EXPRESSIONS[op.mnemonic](step)
        return self._lines(f"{self._assigned(op.results)}{text}", indent)

    def _number(self, op: DistOp) -> str | None:
        """Return the number that a step makes, if it may stand where the step's result is used:
        beside an array of the same element type in maps."""
        if op.operands or op.kind.name not in NUMBERS or dist_type(op.result).dims:
            return None
        x = dist_type(op.result)
        for use in op.result.uses:
            if not isinstance(use.operation, DistOp) or use.operation.mnemonic not in MAPS:
                return None
            beside = [
                operand
                for operand in use.operation.operands
                if operand is not op.result
                and dist_type(operand).dtype is x.dtype
                and not _is_number(operand)
            ]
            if not beside:
                return None
        return literal(op.number("value"), x.dtype)

    def _call(self, op: CallOp, indent: int) -> list[str]:
        name = self.module.name_of(op)
        arguments = ", ".join(self.variable[operand] for operand in op.operands)
        return self._lines(f"{self._assigned(op.results)}{name}({arguments})", indent)

    def _loop(self, op: RepeatOp, indent: int) -> list[str]:
        """Return a ``scan``: the function of an iteration, and its call."""
        carries, args = len(op.carried), list(op.body.block.args)
        slices = args[carries : carries + len(op.sliced)]
        for arg, operand in zip(args[carries + len(slices) :], op.invariant, strict=True):
            self.variable[arg] = self.variable[operand]
        [body] = distinct(["body"], self.bodies)
        self.bodies.add(body)
        groups = [("carry", args[:carries]), ("slices", slices)]
        heads = [self.variable[g[0]] if len(g) == 1 else name for name, g in groups]
        lines = [f"{' ' * indent}def {body}({', '.join(heads)}):"]
        for name, group in groups:
            if len(group) > 1:
                targets = ", ".join(self._targets(group))
                lines += self._lines(f"{targets} = {name}", indent + 4)
        inner = self._block(op.body.block, indent + 4)
        lines += inner[1:] if len(lines) == 1 and inner[:1] == [""] else inner
        yielded = [self.variable[value] for value in op.yielded]
        parts = ", ".join(_scanned(part) for part in (yielded[:carries], yielded[carries:]))
        lines += self._lines(f"return {parts}", indent + 4)
        results = self._targets(op.results)
        targets = ", ".join(_scanned(part, "_") for part in (results[:carries], results[carries:]))
        arguments = [body, _scanned([self.variable[x] for x in op.carried])]
        arguments += [_scanned([self.variable[x] for x in op.sliced])] if slices else []
        arguments += [] if slices else [f"length={int(op.times)}"]
        arguments += ["reverse=True"] if op.is_reverse else []
        return [
            "",
            *lines,
            "",
            *self._lines(f"{targets} = lax.scan({', '.join(arguments)})", indent),
        ]


_MOST_LISTED = 4
"""The most results that a docstring lists."""


def _is_number(value: SSAValue) -> bool:
    op = value.owner
    return isinstance(op, DistOp) and op.kind.name in NUMBERS and not dist_type(value).dims


def _scanned(texts: Sequence[str], empty: str = "None") -> str:
    """Return values as a scan has them: none, one, or a tuple."""
    return tuple_text(texts) if len(texts) > 1 else texts[0] if texts else empty


def _group(texts: Sequence[str]) -> str:
    return tuple_text(texts) if texts else "()"


def _listed(words: Sequence[str]) -> str:
    *first, last = words or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _last(block: Block) -> Operation:
    assert block.last_op is not None
    return block.last_op


def _live(block: Block) -> set[SSAValue]:
    """Return the values of a block, and of the loops in it, that its last operation needs."""
    live: set[SSAValue] = set(_last(block).operands)
    for op in reversed(list(block.ops)):
        if live.intersection(op.results):
            needed = list(op.operands)
            if isinstance(op, RepeatOp):
                live |= _live(op.body.block)
                args = op.body.block.args[len(needed) - len(op.invariant) :]
                pairs = zip(op.invariant, args, strict=True)
                needed = [*op.carried, *op.sliced, *(x for x, arg in pairs if arg in live)]
            live |= set(needed)
    return live


# ---------------------------------------------------------------------------------------------
# Types
# ---------------------------------------------------------------------------------------------


def own_axes(mesh: Mesh, x: DistType) -> tuple[str, ...]:
    """Return the sub-axes along which devices hold different values besides blocks: partial terms,
    or no value. An array on the whole mesh has a leading dimension for these sub-axes."""
    return mesh.ordered(x.partial | x.placed)


def array_text(mesh: Mesh, x: DistType) -> str:
    """Return the type of an array on the whole mesh."""
    shape = tuple(map(int, x.shape))
    if axes := own_axes(mesh, x):
        shape = (mesh.group_size(axes), *shape)
    dtype = DTYPES[x.dtype].removeprefix("jnp.").removesuffix("_")
    return f'Array({tuple_text(shape) if shape else "()"}, "{dtype}")'


def spec_of(mesh: Mesh, x: DistType) -> list[tuple[str, ...] | None]:
    """Return the PartitionSpec of an array on the whole mesh, as its arguments."""
    own, names = own_axes(mesh, x), axis_names(mesh)
    dims = [*([own] if own else []), *(dim.axes for dim in x.dims)]
    while dims and not dims[-1]:
        dims.pop()
    return [tuple(names[axis] for axis in axes) or None for axes in dims]


@dataclass(frozen=True)
class JaxTarget(Target):
    """Python for jax: a `jax.shard_map` for each function, over a mesh whose axes are the sub-axes.

    Functions take and return arrays on the whole mesh, of jax or numpy: `in_specs` and `out_specs`
    are their layouts. Each step is an expression of `jnp` or `lax` on the blocks of a device, so
    the module needs nothing but jax. A `repeat` is a `lax.scan`; in a pipeline, too, where XLA
    chooses the schedule. A `call` calls a Python function on blocks. The steps of a gradient are in
    the program: jax differentiates nothing.

    A value that is partial or held at a place has a leading dimension for the coordinates along
    these sub-axes: `g[i]` is what coordinate `i` holds. All devices run one program; a device that
    holds nothing runs it on unused numbers. A `compute` takes no time.

    The mesh has the first of `jax.devices()`, which are to be in the order of the hardware. As a
    program, the module times each function on random numbers. Numbers of 64 bits need
    `jax_enable_x64`. Axes with weights are refused.
    """

    name = "jax"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write(emit_jax(module))
