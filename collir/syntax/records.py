"""Records as written: trees of functions with an argument, or result, for each field.

A record has no sizes of its own: the types of its fields use the sizes of the function that names
it, or the given ones, ``@layer(heads = 8)``. ``bf16 @layer`` says which dtype ``float`` stands for,
and ``@layer[layers]`` puts a dimension in front of each field.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from lark import Token

from collir.dialects.records import RecordOp
from collir.ir.diagnostics import Diagnostic, note
from collir.ir.fields import Fields
from collir.layout import DType
from collir.syntax.formulas import FormulaLowering
from collir.syntax.lowering import FIELD, bare, groups_of, results_of
from collir.syntax.trees import SyntaxNode, SyntaxTree, is_tree
from collir.syntax.types import FLOAT, FLOATS

TAKEN = "taken_record"
"""The grammar's rule of a record that is taken from another file."""

RECORDS = ("record", TAKEN)
"""The rules of declarations of records."""


@dataclass(frozen=True)
class RecordField:
    """A field of a record where a function names the record.

    Attributes:
        name: its name in the record; one of a record inside has both names, with a dot between.
        type: the tree of its type.
        role: the word for its role, or None.
    """

    name: str
    type: SyntaxTree
    role: Token | None


class RecordLowering(FormulaLowering):
    """The records of a file.

    Attributes:
        records: their declarations by name.
        others: function from the file that a token names to its records; None after errors.
        around: the records whose fields are being read, each a field of the one before.
    """

    def __init__(
        self,
        file: str,
        errors: list[Diagnostic],
        trees: Sequence[SyntaxTree],
        others: "Callable[[Token], RecordLowering | None]",
    ):
        super().__init__(file, errors)
        self.records: dict[str, SyntaxTree] = {}
        for tree in trees:
            if tree.data in RECORDS:
                self.records.setdefault(bare(tree.children[0]), tree)
        self.others = others
        self.around: list[str] = []

    def record(self, tree: SyntaxTree) -> RecordOp | None:
        """Return a record, or None after errors."""
        symbol, *fields = tree.children
        errors_before = len(self.errors)
        texts: dict[str, str] = {}
        tokens: dict[str, Token] = {}
        self.around.append(bare(symbol))
        for name, x, role in (field.children for field in fields):
            clash = next((t for t in tokens.values() if _overlap(t, name)), None)
            if clash is not None:
                here = note(f"'{clash}' is here", self.position(clash))
                what = "is defined twice" if clash == name else f"is another field than '{clash}'"
                self.error(name, f"field '{name}' {what}", here)
            tokens[str(name)] = name
            self._each(x, role)
            if is_tree(x, "type") and x.children[0] not in (*DType, *FLOATS):
                hint = self.suggest(x.children[0], list(DType))
                known = ", ".join([*DType, FLOAT])
                self.error(x.children[0], f"'{x.children[0]}' is not a dtype: use {known}{hint}")
            texts[str(name)] = self._text(x, role)
        self.around.pop()
        return None if len(self.errors) > errors_before else RecordOp.of(bare(symbol), texts)

    def taken(self, tree: SyntaxTree) -> RecordOp | None:
        """Return a record with the fields of a record of another file, or None after errors."""
        symbol = tree.children[0]
        fields = self._own_fields(symbol)
        texts = {field.name: self._text(field.type, field.role) for field in fields}
        return RecordOp.of(bare(symbol), texts) if texts else None

    def _text(self, tree: SyntaxTree, role: Token | None) -> str:
        """Return the type and the role of a field as they are written."""
        return " ".join([self._type_text(tree), *([str(role)] if role else [])])

    def _type_text(self, tree: SyntaxTree) -> str:
        if tree.data == "group":
            dtype, symbol, given, sizes = tree.children
            text = f"{f'{dtype} ' if dtype else ''}{symbol}"
            if given:
                pairs = (pair.children for pair in given.children)
                text += f"({', '.join(f'{name} = {self._formula_text(x)}' for name, x in pairs)})"
            stacked = [self._formula_text(x) for x in (sizes.children if sizes else ()) if x]
            return f"{text}[{', '.join(stacked)}]" if stacked else text
        dtype, *parts = tree.children
        dims: list[str] = []
        rest = ""
        for part in filter(None, parts):
            if part.data == "dim":
                size, *axes = part.children
                axes = [str(axis) for axis in axes if axis]
                over = axes[0] if len(axes) == 1 else f"({', '.join(axes)})"
                dims.append(f"{self._formula_text(size)}{f'@{over}' if axes else ''}")
            elif part.data == "partial":
                reduction, names = part.children
                rest += f" partial({reduction}: {', '.join(names.children)})"
            elif part.data == "root":
                rest += f" root({', '.join(part.children[0].children)})"
            else:
                pairs = (pair.children for pair in part.children[0].children)
                rest += f" at({', '.join(f'{axis} = {number}' for axis, number in pairs)})"
        return f"{dtype}[{', '.join(dims)}]{rest}"

    def _formula_text(self, tree: SyntaxNode) -> str:
        self.sizes = dict.fromkeys(self.named(tree), 1)
        if isinstance(tree, Token):
            return str(tree)
        return str(self.formula(tree))

    # --- records in functions -----------------------------------------------------------------

    def expanded(self, tree: SyntaxTree) -> SyntaxTree | None:
        """Return a function with an argument and a result for each field of the records that its
        signature names; None after errors."""
        if not any(is_tree(x, "group") for x in _written_types(tree)):
            return tree
        errors_before = len(self.errors)
        children: list[SyntaxNode | None] = []
        for child in tree.children:
            if is_tree(child, "argument"):
                name, x, role = child.children
                for field in self._each(x, role):
                    named = declared_field(name, field.name)
                    children.append(SyntaxTree("argument", [named, field.type, field.role]))
            elif is_tree(child, "results"):
                children.append(SyntaxTree("results", list(self._results(tree))))
            else:
                children.append(child)
        return None if len(self.errors) > errors_before else SyntaxTree(tree.data, children)

    def _results(self, function: SyntaxTree) -> Iterator[SyntaxNode]:
        """Yield the names and types of results.

        A field of an unnamed record gets a name from the number of the result, which no user can
        write.
        """
        for number, (name, x, role) in enumerate(results_of(function)):
            if name is None and is_tree(x, "group"):
                name = numbered(number, x.children[1])
            for field in self._each(x, Token("ROLE", str(role)) if role else None):
                if name is not None:
                    yield declared_field(name, field.name)
                typed = field.type
                yield SyntaxTree("with_role", [typed, field.role]) if field.role else typed

    def _each(self, tree: SyntaxTree, role: Token | None) -> list[RecordField]:
        """Return the fields of a type that is written in a signature; one without a name for the
        type of a single value."""
        return self.fields(tree, role) if is_tree(tree, "group") else [RecordField("", tree, role)]

    def fields(self, group: SyntaxTree, role: Token | None) -> list[RecordField]:
        """Return the fields of a record at a use by a function or another record; none after
        errors.

        Args:
            role: the role of all fields; None for the one that each has.
        """
        _, symbol, given, _ = group.children
        own = self._own_fields(symbol)
        dims = (dim for field in own for dim in field.type.parts("dim"))
        sizes = {name for dim in dims for name in self.named(dim.children[0])}
        for size in (pair.children[0] for pair in (given.children if given else ())):
            if own and size not in sizes:
                self.error(size, f"no field of {symbol} has the size '{size}'")
        return [RecordField(x.name, _typed(x.type, group), role or x.role) for x in own]

    def _own_fields(self, symbol: Token) -> list[RecordField]:
        """Return the fields of a record as they are declared; none after errors."""
        name = bare(symbol)
        if name not in self.records or name in self.around:
            problem = f"{symbol} is made of itself"
            if name not in self.records:
                problem = f"there is no record {symbol}{self.suggest(name, self.records, '@')}"
            self.error(symbol, problem)
            return []
        tree = self.records[name]
        self.around.append(name)
        fields: list[RecordField] = []
        if tree.data == TAKEN:
            _, other_name, path = tree.children
            fields = self._fields_elsewhere(other_name, path)
        for field_name, x, role in (field.children for field in tree.parts("field")):
            for field in self._each(x, role):
                full = f"{field_name}.{field.name}" if field.name else str(field_name)
                fields.append(RecordField(full, field.type, field.role))
        self.around.pop()
        return fields

    def _fields_elsewhere(self, symbol: Token, path: Token) -> list[RecordField]:
        """Return the fields of a record of another file; none after errors."""
        file = self.others(path)
        if file is None:
            return []
        if bare(symbol) not in file.records:
            hint = self.suggest(bare(symbol), file.records, "@")
            self.error(symbol, f"{path[1:-1]} has no record {symbol}{hint}")
            return []
        if bare(symbol) in file.around:
            self.error(symbol, f"{symbol} is made of itself")
            return []
        errors_before = len(file.errors)
        fields = file._own_fields(symbol)
        here = note(f"{symbol} is taken here", self.position(symbol))
        for error in file.errors[errors_before:]:
            self.errors.append(replace(error, notes=(*error.notes, here)))
        return fields


def named_group(name: str, sizes: Mapping[str, int], stacked: Sequence[str]) -> SyntaxTree:
    """Return the tree of a record with given sizes and dimensions, numbers or parameters:
    ``@layer(hidden = 8)[layers]``."""
    given = [
        SyntaxTree("given_size", [Token("NAME", size), Token("NUMBER", str(number))])
        for size, number in sizes.items()
    ]
    given_tree = SyntaxTree("given", given) if given else None
    front = [Token("NUMBER" if n.isdigit() else "NAME", n) for n in stacked]
    sizes_of_front = SyntaxTree("sizes", front) if front else None
    return SyntaxTree("group", [None, Token("SYMBOL", f"@{name}"), given_tree, sizes_of_front])


def _overlap(first: str, second: str) -> bool:
    """Return whether one of two fields is the other, or a field of it."""
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")


def field_of(token: Token, name: str) -> Token:
    """Return a field of a record that a token names; the token itself if it has no name."""
    return token.update(value=f"{token}.{name}") if name else token


def declared_field(token: Token, name: str) -> Token:
    """Return a field of a record that a signature names by a token, or the token itself."""
    return field_of(token, name).update(FIELD if name else None)


def numbered(number: int, place: Token) -> Token:
    """Return the name of a record that is a result without a name; no value can have it."""
    return Token.new_borrow_pos("VALUE", f"%{number}", place)


def _typed(tree: SyntaxTree, group: SyntaxTree) -> SyntaxTree:
    """Return the type of a field where a record is named: with its dtype, sizes and dimensions."""
    chosen, symbol, given, stacked = group.children
    sizes = {str(x.children[0]): x.children[1] for x in (given.children if given else ())}

    def there(part: SyntaxNode, formulas: Mapping[str, SyntaxNode]) -> SyntaxNode:
        if isinstance(part, Token):
            return formulas.get(part) or Token.new_borrow_pos(part.type, str(part), symbol)
        if part.data == "dim":
            size, *axes = part.children
            return SyntaxTree("dim", [there(size, sizes), *(there(x, {}) for x in axes if x)])
        return SyntaxTree(part.data, [there(child, formulas) for child in part.children if child])

    dtype, *parts = (there(part, {}) for part in tree.children if part)
    front = [SyntaxTree("dim", [size]) for size in (stacked.children if stacked else ()) if size]
    return SyntaxTree("type", [chosen if chosen and dtype == FLOAT else dtype, *front, *parts])


def _written_types(function: SyntaxTree) -> Iterator[SyntaxTree]:
    """Yield the types of the arguments and results of a function."""
    yield from (argument.children[1] for argument in function.parts("argument"))
    yield from (x for _, x, _ in results_of(function))


# --- records in statements ------------------------------------------------------------------------


def at_field(tree: SyntaxTree, tokens: Set[int], field: str) -> SyntaxTree:
    """Return a statement with a field in the place of records.

    Args:
        tokens: the identities of the tokens that name the records.
    """
    parts = (
        at_field(part, tokens, field)
        if isinstance(part, SyntaxTree)
        else field_of(part, field)
        if id(part) in tokens
        else part
        for part in tree.children
    )
    return SyntaxTree(tree.data, list(parts))


def opened(function: SyntaxTree, fields: Sequence[Fields | None]) -> SyntaxTree:
    """Return a generic function whose arguments `float{...}` are replaced by the fields of records.

    Args:
        fields: for each of these arguments the fields of the record, or None for a single value.
            Those that a call leaves out are single values.
    """
    children: list[SyntaxNode | None] = []
    remaining = iter(fields)
    for child in function.children:
        if not (is_tree(child, "argument") and is_tree(child.children[1], "opened")):
            children.append(child)
            continue
        name, x, role = child.children
        for field in next(remaining, None) or ("",):
            children.append(SyntaxTree("argument", [declared_field(name, field), x, role]))
    return SyntaxTree(function.data, children)


ArgumentGroup = Fields | SyntaxTree | None
"""The operand that a call takes: a record with some fields, a single value (None), or either one
(the tree of its type)."""


def argument_groups(function: SyntaxTree) -> list[ArgumentGroup]:
    """Return the operands that a call of a function takes."""
    groups: list[ArgumentGroup] = []
    names: list[Token] = []
    for name, x, _ in (argument.children for argument in function.parts("argument")):
        if is_tree(x, "opened"):
            groups += [*groups_of(names), x]
            names = []
        else:
            names.append(name)
    return [*groups, *groups_of(names)]
