"""The lowering of steps and of the values that they use; typing rules infer the result types."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from lark import Token
from xdsl.ir import Attribute, Block, BlockArgument, SSAValue

from collir.dialects.nested import Signature
from collir.dialects.operation import DistOp, arguments_of, attribute_of
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import Diagnostic, note
from collir.ir.fields import Fields, Scope, records_of
from collir.ir.names import set_name
from collir.ir.origins import origin_notes
from collir.ir.roles import set_role
from collir.layout import LayoutError, Mesh, place_at
from collir.layout.algorithm_names import AlgorithmName
from collir.layout.nn_rows import DIMS
from collir.layout.steps import TO, USING, Argument, ArgumentKind, StepKind
from collir.syntax.generic import GenericFunction
from collir.syntax.lowering import bare, target_of
from collir.syntax.operations import SHOWN, usage
from collir.syntax.records import at_field, field_of
from collir.syntax.trees import SyntaxNode, SyntaxTree, tokens_of
from collir.syntax.types import FLOATS, TypeLowering

Operation = type[DistOp]

Callee = Signature | GenericFunction | None
"""A function that may be called; None for one with errors."""


class StepLowering(TypeLowering):
    """The base class of lowerings that add steps to a block.

    A value whose definition failed is kept as None, so that its uses are not reported too.

    Args:
        signatures: the functions that may be called, by name; None for one with errors.

    Attributes:
        outside: the names of values outside of the loops whose bodies are lowered.
        rank: the number of dimensions of the first operand of the step that is lowered, if known.
        algorithms: the algorithms that the file declares.
        failed: the names of declarations with errors.
    """

    rank: int | None = None
    algorithms: Mapping[str, AlgorithmName] = MappingProxyType({})
    failed: Collection[str] = ()

    def __init__(
        self,
        file: str,
        errors: list[Diagnostic],
        mesh: Mesh,
        overridden: Mapping[str, int] | None = None,
        signatures: Mapping[str, Callee] | None = None,
    ):
        super().__init__(file, errors, mesh, overridden)
        self.signatures = signatures or {}
        self.values: dict[str, SSAValue | None] = {}
        self.tokens: dict[str, Token] = {}
        self.scope = Scope()
        self.outside: list[set[str]] = []

    def forget_numbers(self) -> None:
        """Take their names from the values of a scope that are only numbered."""
        for value in self.values.values():
            if value is not None and value.name_hint and value.name_hint.isdigit():
                set_name(value, None)  # the printers number values anew

    def define(self, token: Token, value: SSAValue | None) -> None:
        name = bare(token)
        if (taken := self.taken_by(name)) is not None:
            first = note(f"{taken} is first defined here", self.position(taken))
            what = (
                "twice"
                if str(taken) == str(token)
                else f"beside {taken}: one is a field of the other"
            )
            self.error(token, f"{token} is defined {what}", first)
            return
        self.values[name] = value
        self.tokens[name] = token
        self.scope.add(name)
        if value is not None and (value.name_hint is None or value.name_hint.isdigit()):
            set_name(value, name)  # a value that has a name keeps it behind a step over nothing
            if isinstance(value, BlockArgument):
                value.location = self.position(token).location()

    def taken_by(self, name: str) -> Token | None:
        """Return where a name is defined, or a name that cannot be beside it: of a record and of a
        value."""
        if name in self.tokens:
            return self.tokens[name]
        if (fields := self.scope.fields(name)) is not None:
            return self.tokens[f"{name}.{fields[0]}"]
        return next((self.tokens[r] for r, _ in records_of(name) if r in self.tokens), None)

    def fields(self, token: Token) -> Fields | None:
        """Return the fields of a record that a token names; None if it names none."""
        return self.scope.fields(bare(token))

    def flat(self, tokens: Sequence[Token]) -> list[Token]:
        """Return names of values, with all of its fields in the place of a record."""
        return [field_of(token, field) for token in tokens for field in self.fields(token) or ("",)]

    def each(
        self, tree: SyntaxTree, records: Sequence[Token], targets: Sequence[Token]
    ) -> Iterator[SyntaxTree]:
        """Yield a statement on records for each of their fields, up to the first with errors. A
        statement without records is yielded as it is.

        Args:
            records: the names in it that stand for each of their fields.
            targets: the record names that it defines.
        """
        if not records:
            yield tree
            return
        first, fields = records[0], self.fields(records[0]) or ()
        errors_before = len(self.errors)
        for record in records[1:]:
            if (others := self.fields(record)) != fields:
                own, has = ", ".join(fields), ", ".join(others or ())
                self.error(
                    record,
                    f"the fields of {record} are not those of {first}: "
                    f"{has}, in the place of {own}",
                )
        chosen = {id(token) for token in (*records, *targets)}
        for field in fields:
            if len(self.errors) == errors_before:
                yield at_field(tree, chosen, field)
            else:
                for target in (field_of(target, field) for target in targets):
                    if bare(target) not in self.values:
                        self.define(target, None)

    def use(self, token: Token) -> SSAValue | None:
        name = bare(token)
        if name not in self.values:
            if any(self.values.get(record, token) is None for record, _ in records_of(name)):
                return None
            hint = self.suggest(name, self.values, "%")
            if any(name in names for names in self.outside):
                hint = (
                    " in the body of this repeat, which sees only what it is given: "
                    f"add with({token} = {token})"
                )
                self.error(token, f"{token} is not defined{hint}")
                return None
            self.error(token, f"{token} is not defined before this use{hint}")
            return None
        return self.values[name]

    def step(self, tree: SyntaxTree, block: Block) -> None:
        """Lower a step; on records it is one on each of their fields."""
        target, *_ = target_of(tree.children[0])
        tokens = [token for child in tree.children[3:] if child for token in tokens_of(child)]
        records = [x for x in tokens if x.type == "VALUE" and self.fields(x) is not None]
        for each in self.each(tree, records, [target]):
            self.step_on_values(each, block)

    def step_on_values(self, tree: SyntaxTree, block: Block) -> None:
        target_tree, name, text, operand_tree, *clauses, type_tree = tree.children
        target, role = target_of(target_tree)
        operation = OPERATIONS.get(str(name))
        if operation is None:
            known = next((n for n, op in OPERATIONS.items() if name in op.KIND.aliases), "")
            hint = f"; did you mean {known}?" * bool(known)
            hint = hint or self.suggest(name, OPERATIONS) or f"; there are {', '.join(OPERATIONS)}"
            self.error(name, f"there is no operation '{name}'{hint}")
            self.define(target, None)
            return
        kind = operation.KIND
        errors_before = len(self.errors)
        tokens: list[Token] = operand_tree.children
        operands = [self.use(token) for token in tokens]
        if kind.operands not in (None, len(tokens)):
            count = kind.operands
            self.error(
                name,
                f"{name} takes {count} operand{'s' * (count != 1)}, not {len(tokens)}: "
                f"`{self.usage(kind)}`",
            )
        places: dict[str, list[Token]] = {}
        defined = [operand for operand in operands if operand is not None]
        self.rank = len(dist_type(defined[0]).dims) if defined else None
        properties = self.clauses(name, kind, text, clauses, places)
        expected = self.type(type_tree) if type_tree is not None else None
        result = None
        given = all(x.name in properties for x in kind.parameters if x.required)
        if len(self.errors) == errors_before and len(defined) == len(operands) and given:
            result = self.build(name, operation, defined, tokens, properties, places, block)
        if result is not None and expected is not None and not dist_type(result).agrees(expected):
            place: Token = tree.children[-1].children[0]
            self.error(
                place,
                f"{target} is {dist_type(result).text(self.mesh)}, not {expected.text(self.mesh)}",
            )
        if result is not None and role and result not in operands:
            set_role(result, role)
        self.define(target, result)

    def build(
        self,
        name: Token,
        operation: Operation,
        operands: Sequence[SSAValue],
        tokens: Sequence[Token],
        properties: dict[str, Attribute],
        places: dict[str, list[Token]],
        block: Block,
    ) -> SSAValue | None:
        """Add an operation and return its result, or None after an error.

        A step whose axes all have size 1 is not added: its result is its operand.
        """
        try:
            arguments = arguments_of(operation.KIND, properties)
            if operation.KIND.is_over_nothing(arguments):
                types = [dist_type(operand) for operand in operands]
                operation.KIND.check_over_nothing(self.mesh, types, arguments)
                return operands[0]
            op = operation.make(self.mesh, *operands, **properties)
            op.location = self.position(name).location()
            block.add_op(op)
            return op.result
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
        kind: StepKind,
        text: Token | None,
        trees: Sequence[SyntaxTree],
        places: dict[str, list[Token]],
    ) -> dict[str, Attribute]:
        """Return the properties of an operation from its clauses, which come in any order.

        Also fill ``places``: for each parameter that is written, the tokens of its argument.
        """
        written: dict[str, tuple[Token, SyntaxNode]] = {}
        for clause in trees:
            keyword, argument = clause.children[0], clause.children[-1]  # a flag is both
            if str(keyword) in written:
                self.error(keyword, f"`{keyword}` is given twice")
            written[str(keyword)] = (keyword, argument)
        if text is not None:
            written[""] = (text, text)
        properties: dict[str, Attribute] = {}
        missing: list[str] = []
        for parameter in kind.parameters:
            value: Argument | None = parameter.default
            if parameter.keyword in written:
                keyword, argument = written.pop(parameter.keyword)
                places[parameter.name] = tokens_of(argument) or [keyword]
                value = self.argument(keyword, argument, parameter.kind, kind)
            elif parameter.required:
                missing.append(f"`{parameter.keyword or SHOWN[parameter.kind][0]}`")
            if value is not None:
                properties[parameter.name] = attribute_of(parameter.kind, value)
        if missing:
            needed = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
            self.error(name, f"{name} needs {needed}: `{self.usage(kind)}`")
        for word, (keyword, _) in written.items():
            shown = f"`{word}`" if word else "text before its operands"
            self.error(keyword, f"{name} has no {shown}: `{self.usage(kind)}`")
        return properties

    def usage(self, kind: StepKind) -> str:
        """Return how a step is written, for errors."""
        return usage(kind)

    def argument(
        self, keyword: Token, argument: SyntaxNode, argument_kind: ArgumentKind, kind: StepKind
    ) -> Argument | None:
        """Return the value of an argument, or None after an error."""
        errors_before = len(self.errors)
        match argument_kind, argument:
            case ArgumentKind.AXES, SyntaxTree(data="names", children=names):
                axes = self.axes(names)
                self.trivial_parts_once(names, f"{kind.name} names sub-axis {{}} twice")
                return axes if len(self.errors) == errors_before else None
            case ArgumentKind.PLACE, SyntaxTree(data="place"):
                coordinates: dict[str, int] = {}
                self.place(argument, coordinates)
                return place_at(coordinates) if len(self.errors) == errors_before else None
            case ArgumentKind.COORDINATE, Token(type="NUMBER"):
                return self.integer(argument)
            case ArgumentKind.NUMBER, _ if infinite := self.infinity(argument):
                return infinite
            case ArgumentKind.NUMBER, Token(type="NUMBER"):
                return self.number(argument)
            case ArgumentKind.INTEGER | ArgumentKind.NUMBER, _ if self.is_formula(argument):
                return self.size(argument, decimals=argument_kind is ArgumentKind.NUMBER)
            case ArgumentKind.TEXT, Token(type="STRING"):
                return str(argument)[1:-1]
            case ArgumentKind.NAME, Token(type="NAME") as token:
                is_float = keyword == TO.keyword and token in FLOATS
                return str(self.dtype(token) if is_float else token)
            case ArgumentKind.NAME, Token(type="SYMBOL") as token if keyword == USING.keyword:
                return self.own_algorithm(token, kind)
            case ArgumentKind.SIZES, SyntaxTree(data="every") if keyword == DIMS.keyword:
                return tuple(range(self.rank or 0))
            case ArgumentKind.SIZES, SyntaxTree(data="sizes", children=parts):
                sizes = [self.size(x) for x in parts if x is not None]
                return tuple(s or 0 for s in sizes) if None not in sizes else None
            case ArgumentKind.FLAG, Token(type="FLAG"):
                return True
            case ArgumentKind.TYPE, SyntaxTree(data="type") as tree:
                return self.type(tree)
            case ArgumentKind.TYPE, Token(type="VALUE") as token:
                value = self.use(token)
                return value and dist_type(value)
            case _:
                place = next(iter(tokens_of(argument)), keyword)
                shown = SHOWN[argument_kind][1]
                self.error(place, f"`{keyword}` takes {shown} here: `{self.usage(kind)}`")
                return None

    def own_algorithm(self, symbol: Token, kind: StepKind) -> AlgorithmName | None:
        """Return an algorithm that the file declares, or None after an error."""
        if (name := self.algorithms.get(bare(symbol))) is not None:
            return name
        if bare(symbol) not in self.failed:
            known = [f"@{x}" for x, own in self.algorithms.items() if own.collective == kind.name]
            hint = self.suggest(str(symbol), known)
            more = (
                f": the file has {', '.join(known)}"
                if known
                else ": declare it in the file of the program"
            )
            self.error(symbol, f"there is no algorithm {symbol}{hint or more}")
        return None

    def is_formula(self, argument: SyntaxNode) -> bool:
        """Return whether an argument is a formula; a name is one if the function has parameters."""
        if isinstance(argument, Token):
            return argument.type == "NUMBER" or (argument.type == "NAME" and bool(self.sizes))
        return argument.data not in ("names", "sizes", "every", "type")
