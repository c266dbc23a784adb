"""Machines of ``.coll`` as IR: with levels of their own, or those of a template in some file."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from lark import Token
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation

from collir.dialects.machine import KindAttr, LevelAttr, MachineOp, ReferenceAttr, parameter_list
from collir.ir.diagnostics import Sources, note
from collir.machine import MachineError
from collir.syntax.devices import DeviceLowering
from collir.syntax.levels import LevelLowering
from collir.syntax.lowering import bare
from collir.syntax.parsing import parse
from collir.syntax.trees import SyntaxTree

PRESETS = Path(__file__).parent.parent / "machine" / "presets"
"""The folder of the machines that ship with collir."""

MachinesByName = dict[str, tuple[MachineOp, Token]]


def shipped() -> tuple[str, ...]:
    """Return the names of the machines that ship with collir."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.coll")))


class MachineLowering(LevelLowering, DeviceLowering):
    """The lowering of the machines of a file.

    Attributes:
        including: the files that this file is read for, and the file itself.
        files: the machines of other files that were read; None after errors.
        machines: the machines by name, with the tokens of their symbols.
        instances: the names of machines taken from a template that are not built yet.
        symbols: the symbols of all kinds, with their tokens.
        failed: the names of declarations with errors.
        ops: the operations by the number of their declaration in the file.
    """

    def __init__(
        self,
        file: str,
        sources: Sources,
        including: tuple[str, ...] = (),
        files: dict[str, MachinesByName | None] | None = None,
    ):
        super().__init__(file, [])
        self.sources = sources
        self.including = (*including, file)
        self.files: dict[str, MachinesByName | None] = {} if files is None else files
        self.machines: MachinesByName = {}
        self.instances: set[str] = set()
        self.symbols: dict[str, Token] = {}
        self.failed: set[str] = set()
        self.ops: dict[int, Operation] = {}

    def declare_machines(self, text: str) -> list[tuple[int, SyntaxTree]]:
        """Parse the file, build its machines, and return its declarations, numbered."""
        tree, self.errors, self.failed = parse(text, self.file)
        items: list[tuple[int, SyntaxTree]] = list(enumerate(tree.children))
        self.instances = {bare(t.children[0]) for t in tree.children if t.data == "instance"}
        self.declare("machine", items, self.machine)
        self.declare("instance", items, self.instance)
        return items

    def declare(
        self,
        kind: str,
        items: list[tuple[int, SyntaxTree]],
        build: Callable[[SyntaxTree], Operation | None],
    ) -> None:
        """Build all declarations of a kind; a symbol that is defined twice is an error."""
        for index, tree in items:
            if tree.data != kind:
                continue
            symbol: Token = tree.children[0]
            op = build(tree) if self.is_new(symbol) else None
            if op is None:
                self.failed.add(bare(symbol))
            else:
                op.location = self.position(symbol).location()
                self.ops[index] = op

    def is_new(self, symbol: Token) -> bool:
        """Return whether a symbol is defined here first, and report it if it is not."""
        first = self.symbols.setdefault(bare(symbol), symbol)
        if first is not symbol:
            here = note(f"{symbol} is first defined here", self.position(first))
            self.error(symbol, f"{symbol} is defined twice", here)
        return first is symbol

    def machine(self, tree: SyntaxTree) -> MachineOp | None:
        symbol, parameters, *parts = tree.children
        devices = [part for part in parts if part.data == "device"]
        levels = [part for part in parts if part.data == "level"]
        before = len(self.errors)
        values = self.parameters(parameters)
        built = self.levels(levels, values)
        self.distinct("level", levels)
        kinds = self.kinds(devices)
        self.check_kinds(devices, levels)
        if len(self.errors) > before:
            return None
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(bare(symbol)),
            "levels": ArrayAttr(built),
        }
        if values:
            properties["parameters"] = parameter_list({k: v for k, (v, _) in values.items()})
        if devices and devices[0].children[0] is None:
            properties["device"] = kinds[0].device
        elif devices:
            properties["kinds"] = ArrayAttr(kinds)
        return self._finish_machine(symbol, MachineOp.create(properties=properties))

    def _finish_machine(self, symbol: Token, op: MachineOp) -> MachineOp | None:
        try:
            op.value()
        except MachineError as error:
            self.error(symbol, str(error))
            return None
        op.location = self.position(symbol).location()
        self.machines[bare(symbol)] = (op, symbol)
        return op

    def distinct(self, what: str, trees: Sequence[SyntaxTree]) -> None:
        known: dict[str, Token] = {}
        for tree in trees:
            name = tree.children[0]
            first = known.setdefault(str(name), name)
            if first is not name:
                here = note(f"{what} '{name}' is first defined here", self.position(first))
                self.error(name, f"{what} '{name}' is defined twice", here)

    def kinds(self, trees: Sequence[SyntaxTree]) -> list[KindAttr]:
        """Return the kinds of devices, of which one alone may have no name."""
        named = [tree for tree in trees if tree.children[0] is not None]
        self.distinct("device", named)
        for tree in trees:
            if tree.children[0] is None and len(trees) > 1:
                self.error(
                    tree.tokens()[0],
                    "a machine with several kinds of devices names each of them: "
                    "say `device NAME { ... }`",
                )
        kinds: list[KindAttr] = []
        for tree in trees:
            name, *clauses = tree.children
            if device := self.device(clauses):
                kinds.append(KindAttr(StringAttr(str(name or "")), device))
        return kinds

    def check_kinds(self, devices: Sequence[SyntaxTree], levels: Sequence[SyntaxTree]) -> None:
        """Check the names of kinds on levels."""
        known = [str(tree.children[0]) for tree in devices if tree.children[0] is not None]
        said = [setting for level in levels for setting in level.parts("kinds")]
        for again in said[1:]:
            here = note("they are named here", self.position(said[0].children[0]))
            self.error(
                again.children[0],
                "the devices are named twice: one level says which of its children have which",
                here,
            )
        for name in (kind.children[1] for setting in said for kind in setting.children[1:]):
            if str(name) not in known:
                example = f"name it above, as in `device {name} {{ memory = 16 GB }}`"
                has = f"it has {', '.join(known)}" if known else example
                hint = self.suggest(name, known)
                self.error(name, f"the machine has no device '{name}': {has}{hint}")

    def instance(self, tree: SyntaxTree) -> MachineOp | None:
        symbol, template_symbol, arguments, file = tree.children
        self.instances.discard(bare(symbol))
        before = len(self.errors)
        overridden = self.parameters(arguments)
        template = self.template(template_symbol, file)
        if template is None or len(self.errors) > before:
            return None
        known = {p.parameter.data: p.value.data for p in template.parameters or ()}
        for name, (_, token) in overridden.items():
            if name not in known:
                has = f"its parameters are {', '.join(known)}" if known else "it has none"
                self.error(token, f"machine {template_symbol} has no parameter '{name}': {has}")
                return None
        sizes = known | {name: value for name, (value, _) in overridden.items()}
        levels: list[LevelAttr] = []
        for level in template.levels:
            size = sizes.get(level.size_from.data, level.size.data)
            if size < 1:
                token = overridden[level.size_from.data][1]
                name = level.level_name.data
                self.error(token, f"level '{name}' needs at least one child, not {size}")
                return None
            try:
                levels.append(LevelAttr.of(replace(level.value(), size=size)))
            except MachineError as error:  # a list or a matrix fits one size only
                self.error(overridden[level.size_from.data][1], str(error))
                return None
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(bare(symbol)),
            "levels": ArrayAttr(levels),
            "reference": ReferenceAttr(
                StringAttr(bare(template_symbol)),
                parameter_list({name: value for name, (value, _) in overridden.items()}),
                StringAttr(file[1:-1] if file else ""),
            ),
        }
        for what in ("device", "kinds"):
            if what in template.properties:
                properties[what] = template.properties[what]
        return self._finish_machine(symbol, MachineOp.create(properties=properties))

    def template(self, symbol: Token, file: Token | None) -> MachineOp | None:
        """Return the machine that a reference names: of this file, of another, or a shipped one."""
        name = bare(symbol)
        if file is None and name in self.machines:
            return self.machines[name][0]
        if file is not None:
            path = self.path_of(file)
        elif name in shipped():
            path = PRESETS / f"{name}.coll"
        elif name in self.failed:
            return None  # the error of its declaration says why
        elif name in self.instances:
            self.error(symbol, f"machine {symbol} is itself taken from another: write it above")
            return None
        else:
            known = [*self.machines, *shipped()]
            self.error(
                symbol,
                f"there is no machine {symbol} in this file, nor one shipped with collir "
                f"(see `collir machine --list`){self.suggest(name, known, '@')}",
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

    def machines_of(self, path: Path, token: Token) -> MachinesByName | None:
        """Return the machines of another file; its errors get a note at the reference."""
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

    def _read_machines(self, path: Path, token: Token) -> MachinesByName | None:
        text = self.text_of(path, token)
        if text is None:
            return None
        self.sources.add(str(path), text)
        lowering = MachineLowering(str(path), self.sources, self.including, self.files)
        lowering.declare_machines(text)
        here = note("the file is needed here", self.position(token))
        self.errors += [replace(error, notes=(*error.notes, here)) for error in lowering.errors]
        return None if lowering.errors else lowering.machines
