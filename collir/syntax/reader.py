# pyright: basic
"""Reads ``.coll`` into IR: Lark gives a tree, this gives machines, meshes and typed functions.

Result types are inferred by the rules of the layouts; types that are written are checked. All
errors of a text are collected, each at the token it is about, with a note at the place that made
it so. Syntax errors are reported one per declaration.
"""

import difflib
import gc
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from xdsl.dialects.builtin import (
    ArrayAttr,
    IntAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    i64,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from collir.dialects.coll import (
    AxesAttr,
    CollOp,
    DistTensorType,
    SizesAttr,
    dist_type,
)
from collir.dialects.machine import (
    MESH_ATTRIBUTE,
    AxisAttr,
    DeviceAttr,
    LevelAttr,
    MachineOp,
    MeshOp,
    NumberAttr,
    ReferenceAttr,
    parameter_list,
)
from collir.layout import (
    Axis,
    Dim,
    DistType,
    DType,
    Factor,
    LayoutError,
    Mesh,
    MeshError,
    Reduction,
    check_type,
)
from collir.layout.types import unknown_axis
from collir.machine import Device, Level, LinkKind, MachineError
from collir.syntax.diagnostics import (
    MAX_ERRORS,
    Diagnostic,
    DiagnosticError,
    Position,
    Sources,
    note,
)
from collir.syntax.explain import origin_notes, return_mismatch
from collir.syntax.operations import SIGNATURES, Kind, Signature
from collir.syntax.units import Quantity

PRESETS = Path(__file__).parent.parent / "machine" / "presets"
"""Where the machines that ship with collir are."""

_MAX_DIGITS = 19
_DECLARATION = re.compile(r"^(?:machine|mesh|func)[ \t]+@?(\w+)", re.MULTILINE)
Machines = dict[str, tuple[MachineOp, Token]]


def read(text: str, file: str = "<string>", sources: Sources | None = None) -> ModuleOp:
    """The module of a ``.coll`` text.

    ``file`` is the name used in positions; machines ``from`` other files are looked for beside it.

    Raises:
        DiagnosticError: anything wrong with the text, all at once.
    """
    sources = Sources() if sources is None else sources
    sources.add(file, text)
    return _ModuleReader(file, sources).read(text)


@cache
def _parser() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark")
    return Lark.open(
        str(grammar), parser="lalr", lexer="contextual", maybe_placeholders=True, cache=False
    )


@contextmanager
def _no_gc() -> Iterator[None]:
    """A parse makes many objects and no garbage: collecting meanwhile doubles its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# ---------------------------------------------------------------------------------------------
# Syntax errors
# ---------------------------------------------------------------------------------------------

_TERMINALS = {
    "NAME": "a name",
    "AXIS": "an axis",
    "SYMBOL": "a name with @",
    "VALUE": "a value with %",
    "NUMBER": "a number",
    "UNIT": "a unit",
    "STRING": 'a file name in ""',
    "KEYWORD": "a clause (dim, to, into, by, low, high, value, order, op)",
    "OVER": "`over`",
    "RETURN": "`return`",
    "MEMORY": "`memory`",
    "$END": "the end of the file",
}


def _expected(terminals: set[str]) -> str:
    def shown(name: str) -> str:
        if name in _TERMINALS:
            return _TERMINALS[name]
        pattern = _parser().get_terminal(name).pattern.value
        return f"`{pattern}`"

    names = sorted({shown(name) for name in terminals})
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


_HINTS = {
    ("VALUE", "NAME"): "operands come after the operation: `%y = all_reduce %x over data`",
    ("VALUE", "RBRACE"): "nothing may follow `return`",
    ("RBRACE", "RETURN"): "a function ends with `return %y`, or `return` if it has no results",
    ("LBRACE", "ON"): "a function says which mesh it is on: `-> f32[8] on @m {`",
    ("RPAR", "LSQB"): "a type has its shape behind it: `f32[8, 4]`, or `f32[]`",
    ("COMMA", "LSQB"): "a type has its shape behind it: `f32[8, 4]`, or `f32[]`",
    ("OVER", "VALUE"): "operands come before the clauses: `%y = all_reduce %x over data`",
}
"""What to say where a token is found and another would have been possible."""


def _syntax_error(error: UnexpectedInput, file: str) -> Diagnostic:
    assert isinstance(error, UnexpectedToken | UnexpectedCharacters)
    allowed: set[str] = error.interactive_parser.accepts()  # type: ignore
    if isinstance(error, UnexpectedCharacters):
        position = Position(file, error.line, error.column)
        name = error.char if error.char.isprintable() else f"U+{ord(error.char):04X}"
        return Diagnostic(f"`{name}` is not possible here: expected {_expected(allowed)}", position)
    found = error.token
    position = Position(file, found.line or 1, found.column or 1)
    if found.type == "$END":
        return Diagnostic(f"the text ends here, but {_expected(allowed)} is missing", position)
    name = str(found) if len(found) <= 40 else f"{found[:40]}..."
    message = f"`{name}` is not possible here: expected {_expected(allowed)}"
    hint = next((_HINTS[found.type, a] for a in sorted(allowed) if (found.type, a) in _HINTS), "")
    return Diagnostic(message + (f" ({hint})" if hint else ""), position)


def _parse(text: str, file: str) -> tuple[Tree, list[Diagnostic], set[str]]:
    """The tree of a text; with syntax errors, the tree of the declarations that have none.

    Also the syntax errors, one per declaration, and the names of the declarations they are in.
    """
    with _no_gc():
        try:
            return _parser().parse(text), [], set()
        except UnexpectedInput as error:
            first = error
        errors: list[Diagnostic] = []
        failed: set[str] = set()
        children: list[Tree] = []
        found = [
            (0, ""),
            *((m.start(), m[1]) for m in _DECLARATION.finditer(text)),
            (len(text), ""),
        ]
        for (start, name), (end, _) in pairwise(found):
            # Blank out what stands before, so that positions stay right.
            lead = "\n" * text.count("\n", 0, start)
            try:
                if len(errors) < MAX_ERRORS:
                    children += _parser().parse(lead + text[start:end]).children
                    continue
            except UnexpectedInput as error:
                errors.append(_syntax_error(error, file))
            failed.add(name)
    return Tree("start", children), errors or [_syntax_error(first, file)], failed


# ---------------------------------------------------------------------------------------------
# Modules, machines, meshes
# ---------------------------------------------------------------------------------------------


def _suggest(name: str, known: Sequence[str], sigil: str = "") -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {sigil}{close[0]}?" if close else ""


@cache
def _shipped() -> tuple[str, ...]:
    """The names of the machines that ship with collir."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.coll")))


def _bare(token: Token) -> str:
    """A symbol or value without its @ or %."""
    return token[1:]


class _Reader:
    """What all readers share: a file, its errors, and how to read numbers."""

    def __init__(self, file: str, errors: list[Diagnostic]):
        self.file = file
        self.errors = errors

    def position(self, token: Token) -> Position:
        return Position(self.file, token.line or 1, token.column or 1)

    def error(self, token: Token, message: str, *notes: Diagnostic) -> None:
        self.errors.append(Diagnostic(message, self.position(token), notes))

    def integer(self, token: Token) -> int | None:
        """An integer of at most 19 digits."""
        if not token.lstrip("-").isdigit():
            self.error(token, f"`{token}` is not an integer")
        elif len(token.lstrip("-")) > _MAX_DIGITS:
            self.error(token, "the number is too large: sizes have at most 19 digits")
        else:
            return int(token)
        return None

    def number(self, token: Token) -> float | None:
        """A finite number."""
        value = float(token)
        if value in (float("inf"), float("-inf")):
            self.error(token, "the number is too large for a double")
            return None
        return value

    def quantity(self, tree: Tree, kind: Quantity, what: str) -> float | None:
        """What a number and a unit say, in SI; positive, or for a time not negative."""
        number, unit = tree.children
        if unit not in kind.units:
            known = _suggest(unit, list(kind.units))
            self.error(unit, f"`{unit}` is not a unit here: write {kind.example}{known}")
            return None
        value = self.number(number)
        if value is None:
            return None
        if value:  # a zero may have an exponent that no decimal has
            value = kind.parse(number, unit)
        digits = re.split("[eE]", number)[0]
        if value == float("inf"):
            self.error(number, "the number is too large for a double")
        elif value == 0 and digits.strip("-0."):
            self.error(number, "the number is too small for a double")
        elif kind is Quantity.TIME and value < 0:
            self.error(number, f"{what} must not be negative, not {number} {unit}")
        elif kind is not Quantity.TIME and value <= 0:
            self.error(number, f"{what} must be positive, not {number} {unit}")
        else:
            return value
        return None


class _ModuleReader(_Reader):
    """One file. ``including`` are the files it is read for, ``files`` machines of the others."""

    def __init__(
        self,
        file: str,
        sources: Sources,
        including: tuple[str, ...] = (),
        files: "dict[str, Machines | None] | None" = None,
    ):
        super().__init__(file, [])
        self.sources = sources
        self.including = (*including, file)
        self.files = {} if files is None else files
        self.machines: Machines = {}
        self.instances: set[str] = set()  # those that are not built yet
        self.meshes: dict[str, tuple[Mesh, Token]] = {}
        self.functions: dict[str, Token] = {}
        self.failed: set[str] = set()
        self.ops: dict[int, Operation] = {}

    def read(self, text: str) -> ModuleOp:
        items = self.declare_machines(text)
        self._declare("mesh", items, self.mesh)
        with _no_gc():
            self._declare("func", items, self.function)
        if self.errors:
            raise DiagnosticError(self.errors)
        return ModuleOp([self.ops[index] for index in sorted(self.ops)])

    def declare_machines(self, text: str) -> list[tuple[int, Tree]]:
        """Parses the file and builds its machines; its declarations."""
        tree, self.errors, self.failed = _parse(text, self.file)
        items = list(enumerate(tree.children))
        self.instances = {_bare(t.children[0]) for t in tree.children if t.data == "instance"}
        self._declare("machine", items, self.machine)
        self._declare("instance", items, self.instance)
        return items

    def _declare(
        self,
        kind: str,
        items: list[tuple[int, Tree]],
        build: Callable[[Tree], Operation | None],
    ) -> None:
        for index, tree in items:
            if tree.data == kind:
                symbol = tree.children[0]
                op = build(tree)
                if op is None:
                    self.failed.add(_bare(symbol))
                else:
                    op.location = self.position(symbol).location()
                    self.ops[index] = op

    def _is_new(self, symbol: Token, known: Token | None) -> bool:
        if known is None:
            return True
        self.error(
            symbol,
            f"{symbol} is defined twice",
            note(f"{symbol} is first defined here", self.position(known)),
        )
        return False

    def _all_symbols(self, symbol: Token) -> Token | None:
        """The token that defined a symbol of any kind."""
        name = _bare(symbol)
        for table in (self.machines, self.meshes):
            if name in table:
                return table[name][1]
        return self.functions.get(name)

    # --- machines ---------------------------------------------------------------------------

    def machine(self, tree: Tree) -> MachineOp | None:
        symbol, parameters, device, *levels = tree.children
        if not self._is_new(symbol, self._all_symbols(symbol)):
            return None
        before = len(self.errors)
        values = self.parameters(parameters)
        built = [self.level(level, values) for level in levels]
        self.distinct_levels(levels)
        device_attr = self.device(device) if device else None
        if len(self.errors) > before:
            return None
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(_bare(symbol)),
            "levels": ArrayAttr([level for level in built if level is not None]),
        }
        if values:
            properties["parameters"] = parameter_list({k: v for k, (v, _) in values.items()})
        if device_attr:
            properties["device"] = device_attr
        return self._finish_machine(symbol, MachineOp.create(properties=properties))

    def _finish_machine(self, symbol: Token, op: MachineOp) -> MachineOp | None:
        try:
            op.value()
        except MachineError as error:
            self.error(symbol, str(error))
            return None
        op.location = self.position(symbol).location()
        self.machines[_bare(symbol)] = (op, symbol)
        return op

    def parameters(self, tree: Tree | None) -> dict[str, tuple[int, Token]]:
        values: dict[str, tuple[int, Token]] = {}
        for parameter in tree.children if tree else ():
            name, number = parameter.children
            value = self.integer(number)
            if str(name) in values:
                self.error(name, f"parameter '{name}' is given twice")
            elif value is not None:
                values[str(name)] = (value, name)
        return values

    def distinct_levels(self, trees: Sequence[Tree]) -> None:
        known: dict[str, Token] = {}
        for tree in trees:
            name = tree.children[0]
            first = known.setdefault(str(name), name)
            if first is not name:
                here = note(f"level '{name}' is first defined here", self.position(first))
                self.error(name, f"level '{name}' is defined twice", here)

    def level(self, tree: Tree, parameters: dict[str, tuple[int, Token]]) -> LevelAttr | None:
        name, size_token, *settings = tree.children
        size_from = ""
        if size_token.type == "NUMBER":
            size = self.integer(size_token)
        elif str(size_token) in parameters:
            size_from = str(size_token)
            size = parameters[size_from][0]
        else:
            hint = _suggest(size_token, list(parameters)) or (
                f": declare it behind the machine's name, as in `({size_token} = 4)`"
            )
            self.error(size_token, f"the machine has no parameter '{size_token}'{hint}")
            size = None
        found: dict[str, object] = {}
        for setting in settings:
            key, value = setting.children
            if str(key) in found:
                self.error(key, f"'{key}' is set twice")
            found[str(key)] = self.setting(key, value)
        if size is None or None in found.values():
            return None
        for needed, example in (("port", "port = 8 GB/s"), ("latency", "latency = 20 us")):
            if needed not in found:
                self.error(name, f"level '{name}' has no {needed}: add `{example}`")
                return None
        try:
            level = Level(str(name), size, **found)  # type: ignore[arg-type]
        except MachineError as error:
            self.error(size_token if size < 1 else name, str(error))
            return None
        return LevelAttr.of(level, size_from)

    def setting(self, key: Token, value: Tree | Token) -> float | LinkKind | None:
        quantities = {"port": Quantity.BANDWIDTH, "latency": Quantity.TIME}
        if key == "kind":
            token = value if isinstance(value, Token) else value.children[0]
            if str(token) in list(LinkKind):
                return LinkKind(str(token))
            hint = _suggest(token, list(LinkKind))
            self.error(token, f"'{token}' is not a kind: use {', '.join(LinkKind)}{hint}")
        elif key not in quantities:
            known = ["port", "latency", "kind"]
            self.error(
                key, f"a level has no '{key}': it has {', '.join(known)}{_suggest(key, known)}"
            )
        elif isinstance(value, Token):
            self.error(value, f"{key} needs {quantities[key].example}, not '{value}'")
        else:
            return self.quantity(value, quantities[key], str(key))
        return None

    def device(self, tree: Tree) -> DeviceAttr | None:
        rates: dict[str, float] = {}
        memory = bandwidth = None
        start: Token | None = None
        seen: set[str] = set()
        for item in tree.children:
            if item is None:
                continue
            token = next(item.scan_values(lambda v: isinstance(v, Token)))
            start = start or token
            if item.data in seen:
                self.error(token, f"{item.data} is given twice")
            seen.add(item.data)
            if item.data == "compute":
                for rate in item.children:
                    dtype, quantity = rate.children
                    value = self.quantity(quantity, Quantity.COMPUTE, "a compute rate")
                    if str(dtype) in rates:
                        self.error(dtype, f"the compute rate of {dtype} is given twice")
                    elif value is not None:
                        rates[str(dtype)] = value
            else:
                _, size, speed = item.children
                memory = self.quantity(size, Quantity.BYTES, "the memory size")
                if speed:
                    bandwidth = self.quantity(
                        speed, Quantity.BANDWIDTH, "the memory bandwidth"
                    )
        assert start is not None
        try:
            return DeviceAttr.of(Device(tuple(rates.items()), memory, bandwidth))
        except MachineError as error:
            self.error(start, str(error))
            return None

    def instance(self, tree: Tree) -> MachineOp | None:
        symbol, template_symbol, arguments, file = tree.children
        self.instances.discard(_bare(symbol))
        if not self._is_new(symbol, self._all_symbols(symbol)):
            return None
        before = len(self.errors)
        given = self.parameters(arguments)
        template = self.template(template_symbol, file)
        if template is None or len(self.errors) > before:
            return None
        known = {p.parameter.data: p.value.data for p in template.parameters or ()}
        for name, (_, token) in given.items():
            if name not in known:
                has = f"its parameters are {', '.join(known)}" if known else "it has none"
                self.error(token, f"machine {template_symbol} has no parameter '{name}': {has}")
                return None
        sizes = known | {name: value for name, (value, _) in given.items()}
        levels: list[LevelAttr] = []
        for level in template.levels:
            size = sizes.get(level.size_from.data, level.size.data)
            if size < 1:
                token = given[level.size_from.data][1]
                name = level.level_name.data
                self.error(token, f"level '{name}' needs at least one child, not {size}")
                return None
            levels.append(
                LevelAttr(
                    level.level_name,
                    IntAttr(size),
                    StringAttr(""),
                    level.port,
                    level.latency,
                    level.kind,
                )
            )
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(_bare(symbol)),
            "levels": ArrayAttr(levels),
            "reference": ReferenceAttr(
                StringAttr(_bare(template_symbol)),
                parameter_list({name: value for name, (value, _) in given.items()}),
                StringAttr(file[1:-1] if file else ""),
            ),
        }
        if template.device:
            properties["device"] = template.device
        return self._finish_machine(symbol, MachineOp.create(properties=properties))

    def template(self, symbol: Token, file: Token | None) -> MachineOp | None:
        """The machine a reference speaks of: of this file, of another, or a shipped one."""
        name = _bare(symbol)
        if file is None and name in self.machines:
            return self.machines[name][0]
        if file is not None:
            path = Path(self.file).parent / file[1:-1]
        elif name in _shipped():
            path = PRESETS / f"{name}.coll"
        elif name in self.failed:
            return None  # its own error says why
        elif name in self.instances:
            self.error(symbol, f"machine {symbol} is itself taken from another: write it above")
            return None
        else:
            known = [*self.machines, *_shipped()]
            self.error(
                symbol,
                f"there is no machine {symbol} in this file, nor one shipped with collir "
                f"({', '.join(_shipped())}){_suggest(name, known, '@')}",
            )
            return None
        machines = self.machines_of(path, file or symbol)
        if machines is None:
            return None
        if name not in machines:
            has = (
                f"its machines are {', '.join('@' + m for m in machines)}"
                if machines
                else ("it has no machines")
            )
            self.error(symbol, f"{path.name} has no machine {symbol}: {has}")
            return None
        return machines[name][0]

    def machines_of(self, path: Path, token: Token) -> Machines | None:
        """The machines of another file; its errors are reported there, with a note here."""
        name = str(path)
        if name == self.file:
            self.error(token, f"{token} is this file: leave out `from {token}`")
            return None
        if name in self.including:
            self.error(token, f"{token} takes machines from itself, through this file")
            return None
        if name not in self.files:
            self.files[name] = self._read_machines(path, token)
        return self.files[name]

    def _read_machines(self, path: Path, token: Token) -> Machines | None:
        name = str(path)
        try:
            text = decode(path.read_bytes(), name)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            self.error(token, f"cannot read {token}: {(reason or str(error)).lower()}")
            return None
        except DiagnosticError as error:
            errors, machines = error.diagnostics, None
        else:
            self.sources.add(name, text)
            reader = _ModuleReader(name, self.sources, self.including, self.files)
            reader.declare_machines(text)
            errors, machines = reader.errors, reader.machines
        here = note("the file is needed here", self.position(token))
        self.errors += [replace(found, notes=(*found.notes, here)) for found in errors]
        return None if errors else machines

    # --- meshes -----------------------------------------------------------------------------

    def mesh(self, tree: Tree) -> MeshOp | None:
        symbol, machine_symbol, *axis_trees = tree.children
        if not self._is_new(symbol, self._all_symbols(symbol)):
            return None
        machine = self.machine_named(machine_symbol)
        axes: list[Axis] = []
        tokens: dict[tuple[str, str], Token] = {}
        before = len(self.errors)
        for axis in axis_trees:
            name, *parts = axis.children
            tokens[str(name), ""] = name
            if isinstance(parts[0], Token):
                size = self.integer(parts[0])
                if size is not None:
                    axes.append(Axis(str(name), size))
            else:
                factors = [self.factor(part) for part in parts]
                tokens |= {(str(name), str(part.children[0])): part.children[0] for part in parts}
                axes.append(Axis.placed(str(name), (f for f in factors if f)))
        if machine is None or len(self.errors) > before:
            return None
        try:
            mesh = Mesh(_bare(symbol), machine.value(), tuple(axes))
        except MeshError as error:
            here = note(f"machine {machine_symbol} is defined here", Position.of(machine))
            self.error(tokens.get((error.axis, error.level), symbol), str(error), here)
            return None
        self.meshes[_bare(symbol)] = (mesh, symbol)
        return MeshOp.create(
            properties={
                "sym_name": StringAttr(_bare(symbol)),
                "machine": SymbolRefAttr(_bare(machine_symbol)),
                "axes": ArrayAttr([AxisAttr.of(axis) for axis in axes]),
            }
        )

    def factor(self, tree: Tree) -> Factor | None:
        level, number = tree.children
        size = self.integer(number)
        return None if size is None else Factor(str(level), size)

    def machine_named(self, symbol: Token) -> MachineOp | None:
        name = _bare(symbol)
        if name in self.machines:
            return self.machines[name][0]
        if name not in self.failed:
            hint = _suggest(name, list(self.machines), "@")
            if name in _shipped():
                hint = f"; to use the one shipped with collir, write `machine @mine = {symbol}`"
            self.error(symbol, f"there is no machine {symbol}{hint}")
        return None

    # --- functions --------------------------------------------------------------------------

    def function(self, tree: Tree) -> FuncOp | None:
        symbol = tree.children[0]
        if not self._is_new(symbol, self._all_symbols(symbol)):
            return None
        self.functions[_bare(symbol)] = symbol
        mesh_symbol = next(
            child
            for child in tree.children[1:]
            if isinstance(child, Token) and child.type == "SYMBOL"
        )
        name = _bare(mesh_symbol)
        if name not in self.meshes:
            if name not in self.failed:
                hint = _suggest(name, list(self.meshes), "@")
                if name in self.machines:
                    hint = f"; {mesh_symbol} is a machine"
                self.error(mesh_symbol, f"there is no mesh {mesh_symbol}{hint}")
            return None
        return _FunctionReader(self, self.meshes[name][0]).read(tree, mesh_symbol)


# ---------------------------------------------------------------------------------------------
# Functions
# ---------------------------------------------------------------------------------------------


class _FunctionReader(_Reader):
    """One function. A value whose definition failed is kept as None: its uses are not reported."""

    def __init__(self, module: _ModuleReader, mesh: Mesh):
        super().__init__(module.file, module.errors)
        self.mesh = mesh
        self.values: dict[str, SSAValue | None] = {}
        self.tokens: dict[str, Token] = {}

    def read(self, tree: Tree, mesh_symbol: Token) -> FuncOp | None:
        before = len(self.errors)
        symbol = tree.children[0]
        arguments: list[tuple[Token, DistType | None]] = []
        results: list[DistType | None] = []
        result_tree: Tree | None = None
        steps: list[Tree] = []
        end: Tree | None = None
        for child in tree.children[1:]:
            if not isinstance(child, Tree):
                continue
            match child.data:
                case "argument":
                    arguments.append((child.children[0], self.type(child.children[1])))
                case "results":
                    result_tree = child
                    results = [self.type(t) for t in child.children if t is not None]
                case "step":
                    steps.append(child)
                case _:
                    end = child
        assert end is not None
        types = [DistTensorType(x) for _, x in arguments if x is not None]
        block = Block(arg_types=types)
        free = iter(block.args)
        for token, x in arguments:
            self.define(token, next(free) if x is not None else None)
        for step in steps:
            self.step(step, block)
        self.finish(symbol, end, results, result_tree, block)
        if len(self.errors) > before:
            return None
        outputs = [DistTensorType(x) for x in results if x is not None]
        function = FuncOp(_bare(symbol), (types, outputs), Region(block))
        function.attributes[MESH_ATTRIBUTE] = SymbolRefAttr(_bare(mesh_symbol))
        for value in self.values.values():
            if value is not None and value.name_hint and value.name_hint.isdigit():
                value._name = None  # numbers are given anew by the printers
        return function

    def define(self, token: Token, value: SSAValue | None) -> None:
        name = _bare(token)
        if name in self.tokens:
            first = note(f"{token} is first defined here", self.position(self.tokens[name]))
            self.error(token, f"{token} is defined twice", first)
            return
        self.values[name] = value
        self.tokens[name] = token
        if value is not None:
            value._name = name  # the setter of name_hint would cut `_1` off
            if isinstance(value, BlockArgument):
                value.location = self.position(token).location()

    def use(self, token: Token) -> SSAValue | None:
        name = _bare(token)
        if name not in self.values:
            hint = _suggest(name, list(self.values), "%")
            self.error(token, f"{token} is not defined before this use{hint}")
            return None
        return self.values[name]

    # --- types ------------------------------------------------------------------------------

    def sub_axes(self, token: Token) -> tuple[str, ...]:
        """What a token names: a sub-axis, or all those of an axis, major to minor."""
        name = str(token)
        return (name,) if name in self.mesh.by_name else self.mesh.of_axis.get(name, ())

    def axes(self, tokens: Sequence[Token]) -> tuple[str, ...]:
        """Sub-axes in order; an axis without a level is all of its sub-axes, major to minor."""
        found: list[str] = []
        for token in tokens:
            if not (subs := self.sub_axes(token)):
                self.error(token, unknown_axis(self.mesh, str(token)))
            found.extend(subs)
        return tuple(found)

    def naming(self, tokens: Sequence[Token], axis: str) -> Token:
        """The last of the tokens that names a sub-axis."""
        return next((t for t in reversed(tokens) if axis in self.sub_axes(t)), tokens[-1])

    def type(self, tree: Tree) -> DistType | None:
        """The type as written, if it can exist."""
        name, *rest = tree.children
        before = len(self.errors)
        if str(name) not in list(DType):
            hint = _suggest(name, list(DType))
            self.error(name, f"'{name}' is not a dtype: use {', '.join(DType)}{hint}")
        dims: list[Dim] = []
        sizes: list[Token] = []
        axes: list[Token] = []
        partial = root = frozenset[str]()
        reduction: Reduction | None = None
        for part in rest:
            if part is None:
                continue
            if part.data == "dim":
                token, *names = part.children
                names = [t for t in names if t is not None]
                dims.append(Dim(self.integer(token) or 0, self.axes(names)))
                sizes.append(token)
                axes += names
            elif part.data == "partial":
                op, names = part.children
                partial = self.axis_set(names)
                axes += names.children
                if str(op) in list(Reduction):
                    reduction = Reduction(str(op))
                else:
                    hint = _suggest(op, list(Reduction))
                    self.error(op, f"'{op}' is not a reduction: use {', '.join(Reduction)}{hint}")
            else:
                root = self.axis_set(part.children[0])
                axes += part.children[0].children
        if len(self.errors) > before:
            return None
        x = DistType(DType(str(name)), tuple(dims), partial, reduction, root)
        try:
            check_type(self.mesh, x)
        except LayoutError as error:
            place = name
            if error.dim is not None:
                place = sizes[error.dim]
            elif error.axes:
                place = self.naming(axes, error.axes[0])
            self.error(place, error.text(()))
            return None
        return x

    def axis_set(self, names: Tree) -> frozenset[str]:
        found: set[str] = set()
        for token in names.children:
            subs = self.axes([token])
            if twice := found.intersection(subs):
                axis = next(axis for axis in subs if axis in twice)
                self.error(token, f"sub-axis {axis} is named twice")
            found.update(subs)
        return frozenset(found)

    # --- steps ------------------------------------------------------------------------------

    def step(self, tree: Tree, block: Block) -> None:
        target, name, operand_tree, *clauses, written = tree.children
        signature = SIGNATURES.get(str(name))
        if signature is None:
            hint = _suggest(name, list(SIGNATURES)) or f"; there are {', '.join(SIGNATURES)}"
            self.error(name, f"there is no operation '{name}'{hint}")
            self.define(target, None)
            return
        before = len(self.errors)
        tokens: list[Token] = operand_tree.children
        operands = [self.use(token) for token in tokens]
        if signature.operands not in (None, len(tokens)):
            count = signature.operands
            self.error(
                name,
                f"{name} takes {count} operand{'s' * (count != 1)}, not {len(tokens)}: "
                f"`{signature.usage(name)}`",
            )
        places: dict[str, list[Token]] = {}
        properties = self.clauses(name, signature, clauses, places)
        expected = self.type(written) if written is not None else None
        known = [operand for operand in operands if operand is not None]
        op = None
        if len(self.errors) == before and len(known) == len(operands):
            op = self.build(name, signature, known, tokens, properties, places)
        if op is not None:
            op.location = self.position(name).location()
            block.add_op(op)
            if expected is not None and dist_type(op.result) != expected:
                here = self.position(written.children[0])
                self.errors.append(
                    Diagnostic(
                        f"{target} is {dist_type(op.result).text(self.mesh)}, "
                        f"not {expected.text(self.mesh)}",
                        here,
                    )
                )
        self.define(target, op.result if op is not None else None)

    def build(
        self,
        name: Token,
        signature: Signature,
        operands: Sequence[SSAValue],
        tokens: Sequence[Token],
        properties: dict[str, Attribute],
        places: dict[str, list[Token]],
    ) -> CollOp | None:
        try:
            return signature.op.make(self.mesh, *operands, **properties)
        except LayoutError as error:
            place = name
            notes: tuple[Diagnostic, ...] = ()
            if error.operand is not None:
                place = tokens[error.operand]
                notes = origin_notes(operands[error.operand], error.axes, str(place), self.mesh)
            if error.parameter in places:
                place = places[error.parameter][0]
            elif error.operand is None and error.axes and "axes" in places:
                place = self.naming(places["axes"], error.axes[0])
            self.error(place, error.text([str(token) for token in tokens]), *notes)
            return None

    def clauses(
        self,
        name: Token,
        signature: Signature,
        trees: Sequence[Tree],
        places: dict[str, list[Token]],
    ) -> dict[str, Attribute]:
        """The properties of an operation from its clauses, in any order.

        ``places`` gets the tokens of the argument of every clause that is given.
        """
        given: dict[str, tuple[Token, Tree | Token]] = {}
        for clause in trees:
            keyword, argument = clause.children
            if str(keyword) in given:
                self.error(keyword, f"`{keyword}` is given twice")
            given[str(keyword)] = (keyword, argument)
        properties: dict[str, Attribute] = {}
        missing: list[str] = []
        for clause in signature.clauses:
            if clause.keyword in given:
                keyword, argument = given.pop(clause.keyword)
                places[clause.name] = _tokens(argument) or [keyword]
                value = self.argument(keyword, argument, clause.kind, signature.usage(name))
                if value is not None:
                    properties[clause.name] = value
            elif clause.default is None:
                missing.append(f"`{clause.keyword}`")
            elif clause.kind is Kind.NUMBER:
                properties[clause.name] = NumberAttr(float(clause.default))
            else:
                properties[clause.name] = _integer_attr(clause.default)
        if missing:
            needed = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
            self.error(name, f"{name} needs {needed}: `{signature.usage(name)}`")
        for keyword, _ in given.values():
            self.error(keyword, f"{name} has no `{keyword}`: `{signature.usage(name)}`")
        return properties

    def argument(
        self, keyword: Token, argument: Tree | Token, kind: Kind, usage: str
    ) -> Attribute | None:
        before = len(self.errors)
        match kind, argument:
            case Kind.AXES, Tree(data="names"):
                axes = self.axes(argument.children)
                return AxesAttr(axes) if len(self.errors) == before else None
            case Kind.INTEGER, Token(type="NUMBER"):
                value = self.integer(argument)
                return None if value is None else _integer_attr(value)
            case Kind.NUMBER, Token(type="NUMBER"):
                number = self.number(argument)
                return None if number is None else NumberAttr(number)
            case Kind.NAME, Token(type="NAME"):
                return StringAttr(str(argument))
            case Kind.SIZES, Tree(data="sizes"):
                sizes = [self.integer(t) for t in argument.children if t is not None]
                return SizesAttr(tuple(s or 0 for s in sizes)) if None not in sizes else None
            case Kind.TYPE, Tree(data="type"):
                x = self.type(argument)
                return None if x is None else DistTensorType(x)
            case _:
                place = next(iter(_tokens(argument)), keyword)
                self.error(place, f"`{keyword}` takes {_KINDS[kind]} here: `{usage}`")
                return None

    # --- the end ----------------------------------------------------------------------------

    def finish(
        self,
        symbol: Token,
        end: Tree,
        results: Sequence[DistType | None],
        result_tree: Tree | None,
        block: Block,
    ) -> None:
        keyword, listed = end.children
        tokens: list[Token] = listed.children if listed else []
        values = [self.use(token) for token in tokens]
        promised = self.position(result_tree.children[0].children[0]) if results else None
        if len(values) != len(results):
            notes = (note("the results are declared here", promised),) if promised else ()
            self.error(
                keyword,
                f"{symbol} has {len(results)} result{'s' * (len(results) != 1)}, "
                f"but {len(values)} {'are' if len(values) != 1 else 'is'} returned",
                *notes,
            )
            return
        for token, value, expected in zip(tokens, values, results, strict=True):
            if value is None or expected is None or dist_type(value) == expected:
                continue
            message, axes = return_mismatch(dist_type(value), expected, str(token), self.mesh)
            notes = [note(f"{symbol} promises {expected.text(self.mesh)} here", promised)]
            notes += origin_notes(value, axes, str(token), self.mesh)
            self.error(token, message, *notes)
        if None not in values:
            op = ReturnOp(*(value for value in values if value is not None))
            op.location = self.position(keyword).location()
            block.add_op(op)


_KINDS = {
    Kind.AXES: "axes",
    Kind.INTEGER: "an integer",
    Kind.SIZES: "sizes in []",
    Kind.NUMBER: "a number",
    Kind.NAME: "a name",
    Kind.TYPE: "a type",
}


def _tokens(argument: Tree | Token) -> list[Token]:
    """The tokens of an argument, in order."""
    if isinstance(argument, Token):
        return [argument]
    return list(argument.scan_values(lambda value: isinstance(value, Token)))


@cache
def _integer_attr(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)


def decode(data: bytes, file: str) -> str:
    """The text of a file.

    Raises:
        DiagnosticError: it is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = error.start - (before.rfind(b"\n") + 1) + 1
        position = Position(file, before.count(b"\n") + 1, column)
        message = f"the file is not UTF-8 text (byte 0x{data[error.start]:02x})"
        raise DiagnosticError(Diagnostic(message, position)) from None
