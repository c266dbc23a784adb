# pyright: basic
"""Machines of ``.coll`` as IR: with levels of their own, or those of a template in some file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from lark import Token, Tree
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation

from collir.dialects.machine import (
    DeviceAttr,
    KindAttr,
    LevelAttr,
    MachineOp,
    ReferenceAttr,
    parameter_list,
)
from collir.ir.diagnostics import Sources, note
from collir.machine import (
    Device,
    Efficiency,
    Execution,
    Fabric,
    Level,
    LinkKind,
    MachineError,
    Parents,
    PartLinks,
)
from collir.machine.level import Kinds
from collir.syntax.lowering import Lowering, bare
from collir.syntax.parsing import SyntaxTree, parse
from collir.syntax.units import Quantity

PRESETS = Path(__file__).parent.parent / "machine" / "presets"
"""The folder of the machines that ship with collir."""

MachinesByName = dict[str, tuple[MachineOp, Token]]

_QUANTITIES = {
    "port": Quantity.BANDWIDTH,
    "latency": Quantity.TIME,
    "part": Quantity.BANDWIDTH,
    "nvls": Quantity.BANDWIDTH,
}
_PART = "`part[4] = 16 GB/s bus`"
_WORDS: dict[str, type[LinkKind] | type[Fabric]] = {"kind": LinkKind, "fabric": Fabric}
_NUMBERS = ("taper", "rails")
_LISTS = {
    "shape": "its dimensions, as in `shape = 4 x 4`",
    "links": "a matrix such as `links = [[0, 2], [2, 0]]`",
}
_SETTINGS = (
    "port",
    "latency",
    "kind",
    "shape",
    "links",
    "taper",
    "rails",
    "fabric",
    "nvls",
    "part",
    "devices",
)


_OF_KERNELS = {
    "launch": "a time, as in `launch = 5 us`",
    "tile": "the rows and columns of a tile, as in `tile = 128 x 128`",
    "units": "the number of processors, as in `units = 108`",
    "depth": "a length of a sum, as in `depth = 64`",
    "call": "a time, as in `call = 5 us`",
    "array": "a time, as in `array = 800 ns`",
    "start": "a time, as in `start = 2 us`",
    "packing": "a bandwidth, as in `packing = 10 GB/s`",
    "copies": "how operands are read that products cannot: `copies = made`",
    "maps": "how maps run: `maps = apart`",
}
"""The settings of the kernels of a device, each with an example."""

_TIMES = {
    "launch": "a launch",
    "call": "a call",
    "array": "an array of a call",
    "start": "the start of a product",
}
_WORDS_OF_EXECUTION = {"copies": "made", "maps": "apart"}
_OF_EXECUTION = ("call", "array", "streams", "elements", "start", "packing", "copies", "maps")
"""The clauses of a device about its software."""


def _below(kinds: Kinds, counts: Sequence[int]) -> Kinds:
    """Return the kinds of children whose parents have these kinds and numbers of children."""
    of_parents = [kind for kind, parents in kinds for _ in range(parents)]
    pairs = groupby(zip(of_parents, counts, strict=True), key=lambda pair: pair[0])
    return tuple((kind, sum(count for _, count in group)) for kind, group in pairs)


def _is_token(value: object) -> bool:
    return isinstance(value, Token)


def _is_tree(value: object, rule: str = "") -> bool:
    return isinstance(value, Tree) and rule in ("", value.data)


@cache
def shipped() -> tuple[str, ...]:
    """Return the names of the machines that ship with collir."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.coll")))


class MachineLowering(Lowering):
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
        items = list(enumerate(tree.children))
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
                start = next(tree.scan_values(_is_token))
                self.error(
                    start,
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
        said = [setting for level in levels for setting in level.find_data("kinds")]
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

    def levels(
        self, trees: Sequence[SyntaxTree], parameters: dict[str, tuple[int, Token]]
    ) -> list[LevelAttr]:
        """Return the levels without errors, outermost first; one with a list of sizes takes the
        level above as its parents."""
        levels: list[LevelAttr | None] = []
        for tree in trees:
            name, *rest = tree.children
            sizes = [token for token in rest if _is_token(token)]
            level = self.level(name, sizes, rest[len(sizes) :], parameters)
            if len(sizes) > 1:
                first = not levels
                above = None if first else levels.pop()
                if level is not None and (first or above is not None):
                    level = self.ragged(name, sizes, level, above)
            levels.append(level)
        return [level for level in levels if level is not None]

    def ragged(
        self, name: Token, sizes: Sequence[Token], level: LevelAttr, outer: LevelAttr | None
    ) -> LevelAttr | None:
        """Return the level with the level above as its parents, or None after an error."""
        if outer is None:
            self.error(
                sizes[1],
                f"level '{name}' has {len(sizes)} sizes, one for each child of the level above, "
                "and there is none above it",
            )
            return None
        if parameter := outer.size_from.data:
            self.error(
                sizes[0],
                f"level '{outer.level_name.data}' has as many children as the parameter "
                f"'{parameter}' says: a list of sizes below it needs a number there",
            )
            return None
        counts = tuple(int(size) for size in sizes)
        plain, parents = level.value(), outer.value()
        kinds = plain.kinds
        if parents.kinds and len(counts) == parents.size:
            kinds = _below(parents.kinds, counts)
        try:
            joined = Parents(replace(parents, kinds=()), counts)
            return LevelAttr.of(replace(plain, kinds=kinds, parents=joined))
        except MachineError as error:
            self.error(sizes[0], str(error))
            return None

    def size(self, tokens: Sequence[Token], parameters: Mapping[str, Any]) -> int | None:
        """Return the number of children, of all parents if it is a list; None after an error."""
        sizes: list[int | None] = []
        for token in tokens:
            if token.type == "NUMBER":
                sizes.append(self.integer(token))
            elif len(tokens) > 1:
                self.error(token, f"a list of sizes has numbers only, as in [8, 8, 4]: not {token}")
                sizes.append(None)
            elif str(token) in parameters:
                sizes.append(parameters[str(token)][0])
            else:
                hint = self.suggest(token, parameters) or (
                    f": declare it behind the machine's name, as in `({token} = 4)`"
                )
                self.error(token, f"the machine has no parameter '{token}'{hint}")
                sizes.append(None)
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            return None
        # What is wrong with the numbers of a list is said with the level above.
        return known[0] if len(known) == 1 else max(sum(known), 1)

    def level(
        self,
        name: Token,
        sizes: Sequence[Token],
        settings: Sequence[SyntaxTree],
        parameters: dict[str, tuple[int, Token]],
    ) -> LevelAttr | None:
        """Return a level without parents, or None after an error."""
        size = self.size(sizes, parameters)
        values: dict[str, Any] = {}
        parts: list[PartLinks | None] = []
        for setting in settings:
            if setting.data == "part":
                parts.append(self.part(*setting.children))
                continue
            if setting.data == "kinds":
                values["kinds"] = self.kinds_of_children(setting)
                continue
            key, value = setting.children
            if str(key) in values:
                self.error(key, f"'{key}' is set twice")
            values[str(key)] = self.setting(key, value)
        if size is None or None in values.values() or None in parts:
            return None
        for needed, example in (("port", "port = 8 GB/s"), ("latency", "latency = 20 us")):
            if needed not in values:
                self.error(name, f"level '{name}' has no {needed}: add `{example}`")
                return None
        if "links" in values:
            if "kind" in values:
                key = next(s.children[0] for s in settings if s.children[0] == "kind")
                self.error(key, f"level '{name}' has `links`, which say all: leave out `kind`")
                return None
            values["kind"] = LinkKind.LINKS
        if isinstance(values["port"], tuple):
            values["ports"] = values["port"]
            values["port"] = max(values["ports"])
        try:
            level = Level(str(name), size, **values, parts=tuple(filter(None, parts)))
        except MachineError as error:
            self.error(sizes[0] if size < 1 else name, str(error))
            return None
        return LevelAttr.of(level, "" if sizes[0].type == "NUMBER" else str(sizes[0]))

    def kinds_of_children(self, tree: SyntaxTree) -> tuple[tuple[str, int], ...] | None:
        """Return the kinds of the devices below the children, or None after an error."""
        kinds: list[tuple[str, int]] = []
        for count, name in (kind.children for kind in tree.children[1:]):
            children = 1 if count is None else self.integer(count)
            if children is None:
                return None
            if children < 1 and count is not None:
                self.error(
                    count,
                    f"{children} children with devices of kind '{name}': leave "
                    "the kind out, or give it one child or more",
                )
                return None
            kinds.append((str(name), children))
        return tuple(kinds)

    def part(
        self, key: Token, count: Token, port: SyntaxTree, word: Token | None
    ) -> PartLinks | None:
        """Return the links of a part of a level, or None after an error."""
        if str(key) != "part":
            self.error(key, f"only `part` takes a number in brackets, as in {_PART}, not '{key}'")
            return None
        children, bandwidth = self.integer(count), self.needed_quantity(key, port)
        if word is not None and str(word) not in (LinkKind.SWITCH, LinkKind.BUS):
            self.error(word, f"'{word}' is not how a part is linked: use switch or bus")
            return None
        if children is None or bandwidth is None:
            return None
        try:
            return PartLinks(children, bandwidth, LinkKind(word or LinkKind.SWITCH))
        except MachineError as error:
            self.error(count, str(error))
            return None

    def setting(self, key: Token, value: SyntaxTree) -> object:
        """Return the value of a setting of a level, or None after an error."""
        token = next(value.scan_values(_is_token), key) if _is_tree(value) else value
        if words := _WORDS.get(key):
            # A matrix of links is a kind that is not written as a word.
            known = [word for word in words if word is not LinkKind.LINKS]
            if token is value and str(token) in known:
                return words(str(token))
            hint = self.suggest(token, known)
            if str(token) == LinkKind.LINKS:
                hint = f"; for links of all kinds say {_LISTS['links']}"
            shown = "a list" if token is key else f"'{token}'"
            self.error(token, f"{shown} is not a {key}: use {', '.join(known)}{hint}")
        elif key in _NUMBERS:
            return self.plain_number(key, value)
        elif key == "shape" and _is_tree(value, "shape"):
            sizes = [self.integer(size) for size in value.children]
            return None if None in sizes else tuple(sizes)
        elif key == "links" and _is_tree(value, "list"):
            return self.matrix(key, value)
        elif key in _LISTS:
            self.error(token, f"{key} needs {_LISTS[key]}")
        elif key not in _QUANTITIES:
            hint = self.suggest(key, _SETTINGS)
            self.error(key, f"a level has no '{key}': it has {', '.join(_SETTINGS)}{hint}")
        elif key == "part":
            self.error(key, f"part needs the most children of such a group, as in {_PART}")
        elif key == "port" and _is_tree(value, "list") and value.children:
            ports = [self.needed_quantity(key, port) for port in value.children]
            return None if None in ports else tuple(ports)
        else:
            return self.needed_quantity(key, value)
        return None

    def needed_quantity(self, key: Token, value: SyntaxTree) -> float | None:
        """Return a bandwidth or a time, or None after an error."""
        kind = _QUANTITIES[key]
        if _is_tree(value, "quantity"):
            return self.quantity(value, kind, str(key))
        token = next(value.scan_values(_is_token), key) if _is_tree(value) else value
        shown = "a list" if _is_tree(value, "list") else f"'{token}'"
        self.error(token, f"{key} needs {kind.example}, not {shown}")
        return None

    def matrix(self, key: Token, value: SyntaxTree) -> tuple[tuple[int, ...], ...] | None:
        """Return rows of integers, or None after an error; their values are checked later."""
        rows: list[tuple[int, ...]] = []
        for row in value.children:
            numbers: list[SyntaxTree] = row.children if _is_tree(row, "list") else []
            wrong = next(filter(_is_tree, numbers), None) if _is_tree(row, "list") else row
            if wrong is not None:
                token = next(wrong.scan_values(_is_token), key) if _is_tree(wrong) else wrong
                self.error(token, f"{key} needs {_LISTS[key]}: a row of numbers for each child")
                return None
            counts = [self.integer(number) for number in numbers]
            rows.append(tuple(count for count in counts if count is not None))
            if None in counts:
                return None
        if not rows:
            self.error(key, f"{key} needs {_LISTS[key]}")
        return tuple(rows) or None

    def plain_number(self, key: Token, value: SyntaxTree) -> float | None:
        """Return the value of a taper or of rails, or None after an error."""
        if not isinstance(value, Token):
            last = [*value.scan_values(_is_token), key]
            token = value.children[1] if value.data == "quantity" else last[0]
            self.error(token, f"{key} is a number without a unit, as in `{key} = 2`")
            return None
        if value.type != "NUMBER":
            self.error(value, f"{key} needs a number, as in `{key} = 2`, not '{value}'")
            return None
        number = self.integer(value) if key == "rails" else self.number(value)
        if number is not None and number < 1:
            self.error(value, f"{key} must be at least 1, not {value}")
            return None
        return number

    def device(self, clauses: Sequence[SyntaxTree | None]) -> DeviceAttr | None:
        rates: dict[str, float] = {}
        memory = bandwidth = reduction = None
        kernels: dict[str, Any] = {}
        start: Token | None = None
        seen: set[str] = set()
        for item in clauses:
            if item is None:
                continue
            token = next(item.scan_values(lambda v: isinstance(v, Token)))
            start = start or token
            what = str(token) if item.data == "setting" else item.data
            if what in seen:
                self.error(token, f"{what} is given twice")
            seen.add(what)
            if item.data == "setting":
                kernels[what] = self.kernel_setting(*item.children)
            elif item.data == "efficiency":
                kernels |= self.efficiency(item)
            elif item.data == "streams":
                kernels["streams"] = self.streams(item)
            elif item.data == "elements":
                kernels["elements"] = self.elements(item)
            elif item.data == "compute":
                for rate in item.children:
                    dtype, quantity = rate.children
                    value = self.quantity(quantity, Quantity.COMPUTE, "a compute rate")
                    if str(dtype) in rates:
                        self.error(dtype, f"the compute rate of {dtype} is given twice")
                    elif value is not None:
                        rates[str(dtype)] = value
            elif item.data == "reduction":
                reduction = self.quantity(
                    item.children[1], Quantity.BANDWIDTH, "the reduction rate"
                )
            else:
                _, size, speed = item.children
                memory = self.quantity(size, Quantity.BYTES, "the memory size")
                if speed:
                    bandwidth = self.quantity(speed, Quantity.BANDWIDTH, "the memory bandwidth")
        assert start is not None
        if None in kernels.values():
            return None
        try:
            execution = Execution(**{k: kernels.pop(k) for k in _OF_EXECUTION if k in kernels})
            efficiency = Efficiency(**kernels)
            numbers = memory, bandwidth, reduction
            device = Device(tuple(rates.items()), *numbers, efficiency, execution)
            return DeviceAttr.of(device)
        except MachineError as error:
            self.error(start, str(error))
            return None

    def efficiency(self, tree: SyntaxTree) -> dict[str, float | None]:
        """Return the fractions of the rates of a device, None where there is an error."""
        shares: dict[str, float | None] = {}
        for name, number in (share.children for share in tree.children[1:]):
            if str(name) not in ("compute", "memory"):
                hint = self.suggest(name, ("compute", "memory"))
                self.error(name, f"an efficiency is that of compute or of memory{hint}")
            elif str(name) in shares:
                self.error(name, f"the efficiency of {name} is given twice")
            else:
                shares[str(name)] = self.number(number)
        return shares

    def streams(self, tree: SyntaxTree) -> tuple[tuple[float, float], ...] | None:
        """Return the bytes and bandwidths of streams, or None after an error."""
        streams: list[tuple[float, float]] = []
        for size, rate in (stream.children for stream in tree.children[1:]):
            bytes_ = self.quantity(size, Quantity.BYTES, "the size of a stream")
            bandwidth = self.quantity(rate, Quantity.BANDWIDTH, "the bandwidth of a stream")
            if bytes_ is None or bandwidth is None:
                return None
            streams.append((bytes_, bandwidth))
        return tuple(streams)

    def elements(self, tree: SyntaxTree) -> tuple[tuple[str, str, float], ...] | None:
        """Return the times of elements by operation and type, or None after an error."""
        elements: list[tuple[str, str, float]] = []
        for operation, dtype, time in (element.children for element in tree.children[1:]):
            seconds = self.quantity(time, Quantity.TIME, "the time of an element")
            if seconds is None:
                return None
            elements.append((str(operation), str(dtype), seconds))
        return tuple(elements)

    def kernel_setting(self, key: Token, value: SyntaxTree) -> object:
        """Return the value of a setting of a device's kernels, or None after an error."""
        if (example := _OF_KERNELS.get(str(key))) is None:
            clauses = ("compute", "memory", "reduction", "efficiency", "streams", "elements")
            known = (*clauses, *_OF_KERNELS)
            hint = self.suggest(key, known)
            self.error(key, f"a device has no '{key}': it has {', '.join(known)}{hint}")
        elif key in _TIMES and _is_tree(value, "quantity"):
            return self.quantity(value, Quantity.TIME, f"the time of {_TIMES[str(key)]}")
        elif key == "packing" and _is_tree(value, "quantity"):
            return self.quantity(value, Quantity.BANDWIDTH, "the bandwidth of packing")
        elif str(value) == _WORDS_OF_EXECUTION.get(str(key)):
            return True
        elif key == "tile" and _is_tree(value, "shape") and len(value.children) == 2:
            sides = tuple(self.integer(side) for side in value.children)
            return None if None in sides else sides
        elif key in ("units", "depth") and _is_token(value) and value.type == "NUMBER":
            return self.integer(value)
        else:
            self.error(key, f"{key} is {example}")
        return None

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
