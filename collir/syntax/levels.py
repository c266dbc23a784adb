"""Levels of machines of ``.coll``: sizes, ports, links, and kinds of devices below."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from lark import Token

from collir.dialects.machine import LevelAttr
from collir.machine import Fabric, Level, LinkKind, MachineError, Parents, PartLinks
from collir.machine.level import Kinds
from collir.syntax.lowering import Lowering
from collir.syntax.trees import SyntaxNode, SyntaxTree, is_tree, tokens_of
from collir.syntax.units import Quantity

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


def _below(kinds: Kinds, counts: Sequence[int]) -> Kinds:
    """Return the kinds of children whose parents have these kinds and numbers of children."""
    of_parents = [kind for kind, parents in kinds for _ in range(parents)]
    pairs = groupby(zip(of_parents, counts, strict=True), key=lambda pair: pair[0])
    return tuple((kind, sum(count for _, count in group)) for kind, group in pairs)


class LevelLowering(Lowering):
    """The lowering of the levels of machines."""

    def levels(
        self, trees: Sequence[SyntaxTree], parameters: dict[str, tuple[int, Token]]
    ) -> list[LevelAttr]:
        """Return the levels without errors, outermost first; one with a list of sizes takes the
        level above as its parents."""
        levels: list[LevelAttr | None] = []
        for tree in trees:
            name, *rest = tree.children
            sizes = [token for token in rest if isinstance(token, Token)]
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
                kind = next(s for s in settings if s.children[0] == "kind")
                problem = f"level '{name}' has `links`, which say all: leave out `kind`"
                self.error(kind.children[0], problem)
                return None
            values["kind"] = LinkKind.LINKS
        ports: float | tuple[float, ...] = values["port"]
        if isinstance(ports, tuple):
            values |= {"ports": ports, "port": max(ports)}
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

    def setting(self, key: Token, value: SyntaxNode) -> object:
        """Return the value of a setting of a level, or None after an error."""
        token = next(iter(tokens_of(value)), key)
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
        elif key == "shape" and is_tree(value, "shape"):
            sizes = [self.integer(size) for size in value.children]
            return None if None in sizes else tuple(sizes)
        elif key == "links" and is_tree(value, "list"):
            return self.matrix(key, value)
        elif key in _LISTS:
            self.error(token, f"{key} needs {_LISTS[key]}")
        elif key not in _QUANTITIES:
            hint = self.suggest(key, _SETTINGS)
            self.error(key, f"a level has no '{key}': it has {', '.join(_SETTINGS)}{hint}")
        elif key == "part":
            self.error(key, f"part needs the most children of such a group, as in {_PART}")
        elif key == "port" and is_tree(value, "list") and value.children:
            ports = [self.needed_quantity(key, port) for port in value.children]
            return None if None in ports else tuple(ports)
        else:
            return self.needed_quantity(key, value)
        return None

    def needed_quantity(self, key: Token, value: SyntaxNode) -> float | None:
        """Return a bandwidth or a time, or None after an error."""
        kind = _QUANTITIES[key]
        if is_tree(value, "quantity"):
            return self.quantity(value, kind, str(key))
        token = next(iter(tokens_of(value)), key)
        shown = "a list" if is_tree(value, "list") else f"'{token}'"
        self.error(token, f"{key} needs {kind.example}, not {shown}")
        return None

    def matrix(self, key: Token, value: SyntaxTree) -> tuple[tuple[int, ...], ...] | None:
        """Return rows of integers, or None after an error; their values are checked later."""
        rows: list[tuple[int, ...]] = []
        for row in value.children:
            numbers = row.children if is_tree(row, "list") else [row]
            wrong = next((x for x in numbers if x is row or isinstance(x, SyntaxTree)), None)
            if wrong is not None:
                token = next(iter(tokens_of(wrong)), key)
                self.error(token, f"{key} needs {_LISTS[key]}: a row of numbers for each child")
                return None
            counts = [self.integer(number) for number in numbers]
            rows.append(tuple(count for count in counts if count is not None))
            if None in counts:
                return None
        if not rows:
            self.error(key, f"{key} needs {_LISTS[key]}")
        return tuple(rows) or None

    def plain_number(self, key: Token, value: SyntaxNode) -> float | None:
        """Return the value of a taper or of rails, or None after an error."""
        if not isinstance(value, Token):
            token = value.children[1] if value.data == "quantity" else [*value.tokens(), key][0]
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
