# pyright: basic
"""The lowering of functions in ``.coll`` to IR; typing rules infer the result types of steps."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from lark import Token, Tree
from xdsl.dialects.builtin import IntegerAttr, SymbolRefAttr, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Region, SSAValue

from collir.dialects.machine import MESH_ATTRIBUTE
from collir.dialects.nested import (
    CallOp,
    NestedOp,
    RepeatOp,
    Signature,
    YieldOp,
    argument_types,
    yield_problem,
)
from collir.dialects.operation import DistOp, arguments_of, attribute_of
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.alternatives import FOR, FROM
from collir.ir.diagnostics import Diagnostic, note
from collir.ir.names import set_name
from collir.ir.origins import origin_notes, return_mismatch
from collir.ir.parameters import set_parameters
from collir.layout import Dim, DistType, DType, LayoutError, Mesh, Reduction, check_type, place_at
from collir.layout.loops import stack_type
from collir.layout.mesh import digits_over
from collir.layout.sizes import default_error
from collir.layout.steps import Argument, ArgumentKind, StepKind
from collir.layout.types import check_coordinate, unknown_axis_message
from collir.syntax.formulas import FormulaLowering, first_token
from collir.syntax.lowering import bare
from collir.syntax.operations import SHOWN, usage
from collir.syntax.parsing import SyntaxTree

Operation = type[DistOp]

BINDINGS = ("carry", "slice", "with")
"""The words in front of what the body of a loop sees: carries, slices and invariants."""


class FunctionLowering(FormulaLowering):
    """The lowering of a function.

    A value whose definition failed is kept as None, so that its uses are not reported too.

    Args:
        overridden: values of parameters to take in place of the function's defaults.
        signatures: the functions that may be called, by name; None for one with errors.

    Attributes:
        outside: the names of values outside of the loops whose bodies are lowered.
    """

    def __init__(
        self,
        file: str,
        errors: list[Diagnostic],
        mesh: Mesh,
        overridden: Mapping[str, int] | None = None,
        signatures: Mapping[str, Signature | None] | None = None,
    ):
        super().__init__(file, errors)
        self.mesh = mesh
        self.overridden = overridden or {}
        self.signatures = signatures or {}
        self.sizes: dict[str, int] = {}
        self.values: dict[str, SSAValue | None] = {}
        self.tokens: dict[str, Token] = {}
        self.outside: list[set[str]] = []

    def lower(self, tree: SyntaxTree, function_name: str) -> FuncOp | None:
        """Return a function under a name, or None after errors."""
        errors_before = len(self.errors)
        symbol = tree.children[0]
        arguments: list[tuple[Token, DistType | None]] = []
        results: list[DistType | None] = []
        result_tree: SyntaxTree = None
        steps: list[SyntaxTree] = []
        return_tree: SyntaxTree = None
        instead: SyntaxTree = None
        for child in tree.children[1:]:
            match getattr(child, "data", None):
                case None:  # the mesh, or an optional part that is missing
                    pass
                case "parameters":
                    self.sizes = self.defaults(child) | dict(self.overridden)
                case "argument":
                    arguments.append((child.children[0], self.type(child.children[1])))
                case "results":
                    result_tree = child
                    results = [self.type(t) for t in child.children if t is not None]
                case "step" | "call" | "repeat":
                    steps.append(child)
                case "instead":
                    instead = child
                case _:
                    return_tree = child
        types = [DistTensorType(x) for _, x in arguments if x is not None]
        block = Block(arg_types=types)
        values = iter(block.args)
        for token, x in arguments:
            self.define(token, next(values) if x is not None else None)
        for step in steps:
            self.statement(step, block)
        self.finish(symbol, return_tree, results, result_tree, block)
        if len(self.errors) > errors_before:
            return None
        outputs = [DistTensorType(x) for x in results if x is not None]
        function = FuncOp(function_name, (types, outputs), Region(block))
        function.attributes[MESH_ATTRIBUTE] = SymbolRefAttr(self.mesh.name)
        set_parameters(function, self.sizes)
        if instead is not None:
            replaced, least = instead.children
            function.attributes[FOR] = SymbolRefAttr(bare(replaced))
            number = self.integer(least) or 0
            if number >= 2**63:
                self.error(least, "the number is too large: values have less than 2^63 elements")
                return None
            function.attributes[FROM] = _integer_attr(number)
        self.forget_numbers()
        return function

    def signature(self, tree: SyntaxTree, function_name: str) -> Signature | None:
        """Return the types of a function under a name, or None after an error."""
        errors_before = len(self.errors)
        inputs: list[DistType | None] = []
        outputs: list[DistType | None] = []
        for child in tree.children[1:]:
            match getattr(child, "data", None):
                case "parameters":
                    self.sizes = self.defaults(child) | dict(self.overridden)
                case "argument":
                    inputs.append(self.type(child.children[1]))
                case "results":
                    outputs = [self.type(t) for t in child.children if t is not None]
                case _:
                    pass
        if len(self.errors) > errors_before:
            return None
        return Signature(
            name=function_name,
            mesh=self.mesh.name,
            inputs=tuple(filter(None, inputs)),
            outputs=tuple(filter(None, outputs)),
            parameters=tuple(self.sizes.items()),
        )

    def forget_numbers(self) -> None:
        """Take their names from the values of a scope that are only numbered."""
        for value in self.values.values():
            if value is not None and value.name_hint and value.name_hint.isdigit():
                set_name(value, None)  # the printers number values anew

    def define(self, token: Token, value: SSAValue | None) -> None:
        name = bare(token)
        if name in self.tokens:
            first = note(f"{token} is first defined here", self.position(self.tokens[name]))
            self.error(token, f"{token} is defined twice", first)
            return
        self.values[name] = value
        self.tokens[name] = token
        if value is not None and (value.name_hint is None or value.name_hint.isdigit()):
            set_name(value, name)  # a value that has a name keeps it behind a step over nothing
            if isinstance(value, BlockArgument):
                value.location = self.position(token).location()

    def use(self, token: Token) -> SSAValue | None:
        name = bare(token)
        if name not in self.values:
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

    # --- types ------------------------------------------------------------------------------

    def sub_axes(self, token: Token) -> tuple[str, ...]:
        """Return the sub-axes that a token names: a sub-axis, or all of an axis, major to minor."""
        return self.mesh.named(str(token)) or ()

    def axes(self, tokens: Sequence[Token]) -> tuple[str, ...]:
        """Return the sub-axes that tokens name, in order.

        An axis stands for all of its sub-axes, major to minor, and for none if its size is 1.
        """
        axes: list[str] = []
        for token in tokens:
            named = self.mesh.named(str(token))
            if named is None:
                self.error(token, unknown_axis_message(self.mesh, str(token)))
            axes.extend(named or ())
        return tuple(axes)

    def trivial_parts_once(self, tokens: Sequence[Token], problem: str) -> None:
        """Report a part of size 1 that tokens name twice; of others the typing rules know."""
        trivial = self.mesh.trivial_parts
        seen: set[str] = set()
        for token in tokens if trivial else ():
            parts = trivial.get(str(token), frozenset[str]())
            if twice := seen.intersection(parts):
                self.error(token, problem.format(min(twice)))
            seen |= parts

    def naming(self, tokens: Sequence[Token], axis: str) -> Token:
        """Return the last token that names the sub-axis, or the last token if none does."""
        return next((t for t in reversed(tokens) if axis in self.sub_axes(t)), tokens[-1])

    def type(self, tree: SyntaxTree) -> DistType | None:
        """Return the type as written, or None after an error."""
        name, *rest = tree.children
        errors_before = len(self.errors)
        if str(name) not in list(DType):
            hint = self.suggest(name, list(DType))
            self.error(name, f"'{name}' is not a dtype: use {', '.join(DType)}{hint}")
        dims: list[Dim] = []
        sizes: list[Token] = []
        axes: list[Token] = []
        partial = frozenset[str]()
        coordinates: dict[str, int] = {}
        reduction: Reduction | None = None
        for part in rest:
            if part is None:
                continue
            if part.data == "dim":
                token, *names = part.children
                names = [t for t in names if t is not None]
                size = self.size(token)
                dims.append(Dim(0 if size is None else size, self.axes(names)))
                sizes.append(first_token(token))
                axes += names
            elif part.data == "partial":
                op, names = part.children
                partial = self.axis_set(names)
                axes += names.children
                if str(op) in list(Reduction):
                    reduction = Reduction(str(op))
                else:
                    hint = self.suggest(op, list(Reduction))
                    self.error(op, f"'{op}' is not a reduction: use {', '.join(Reduction)}{hint}")
            elif part.data == "root":
                coordinates = dict.fromkeys(self.axis_set(part.children[0]), 0)
                axes += part.children[0].children
            else:
                self.place(part.children[0], coordinates)
                axes += [entry.children[0] for entry in part.children[0].children]
        twice = "sub-axis {} is used twice: a value has one state on each sub-axis"
        if len(self.errors) == errors_before:
            self.trivial_parts_once(axes, twice)
        if len(self.errors) > errors_before:
            return None
        at = place_at(coordinates)
        written = DistType(DType(str(name)), tuple(dims), partial, reduction, at)
        x = replace(written, reduction=None) if reduction and not partial else written
        try:
            check_type(self.mesh, written)  # the reduction fits the dtype, even if over nothing
        except LayoutError as error:
            place = name
            if error.dim is not None:
                place = sizes[error.dim]
            elif error.axes:
                place = self.naming(axes, error.axes[0])
            self.error(place, error.text(()))
            return None
        return x

    def place(self, tree: SyntaxTree, coordinates: dict[str, int]) -> None:
        """Add the coordinates that a tree names; those on a whole axis become its digits."""
        for entry in tree.children:
            token, number = entry.children
            axes, index = self.axes([token]), self.integer(number)
            if twice := next((axis for axis in axes if axis in coordinates), None):
                self.error(token, f"sub-axis {twice} is named twice")
            if self.mesh.named(str(token)) is None or index is None:
                continue
            try:
                check_coordinate(self.mesh, axes, index)
            except LayoutError as error:
                self.error(number, error.text(()))
                continue
            coordinates.update(digits_over(self.mesh, axes, index))

    def axis_set(self, names: SyntaxTree) -> frozenset[str]:
        axes: set[str] = set()
        for token in names.children:
            named = self.axes([token])
            if twice := axes.intersection(named):
                axis = next(axis for axis in named if axis in twice)
                self.error(token, f"sub-axis {axis} is named twice")
            axes.update(named)
        self.trivial_parts_once(names.children, "sub-axis {} is named twice")
        return frozenset(axes)

    # --- operations that run others -----------------------------------------------------------

    def statement(self, tree: SyntaxTree, block: Block) -> None:
        """Lower a step, a call or a loop."""
        match tree.data:
            case "call":
                self.call(tree, block)
            case "repeat":
                self.repeat(tree, block)
            case _:
                self.step(tree, block)

    def define_results(self, tokens: Sequence[Token], op: NestedOp | None, what: str) -> None:
        """Define the results of an operation, or values that failed; ``what`` has the results."""
        results: list[SSAValue | None] = [None] * len(tokens) if op is None else [*op.results]
        if len(results) != len(tokens):
            count = len(results)
            self.error(
                tokens[0],
                f"{what} has {count} result{'s' * (count != 1)}, and {len(tokens)} "
                f"{'are' if len(tokens) > 1 else 'is'} named here",
            )
            results = [None] * len(tokens)
        for token, result in zip(tokens, results, strict=True):
            self.define(token, result)

    def call(self, tree: SyntaxTree, block: Block) -> None:
        *targets, keyword, symbol, given_tree, operand_tree = tree.children
        tokens: list[Token] = operand_tree.children if operand_tree else []
        operands = [self.use(token) for token in tokens]
        given = self.given(given_tree)
        op = None
        signature = self.signatures.get(bare(symbol))
        if bare(symbol) not in self.signatures:
            hint = self.suggest(bare(symbol), self.signatures, "@")
            self.error(symbol, f"there is no function {symbol}{hint}")
        elif signature is not None and given is not None and None not in operands:
            defined = [operand for operand in operands if operand is not None]
            try:
                sizes = {str(name): size for name, size in given.items()}
                op = CallOp.of(self.mesh, signature, defined, sizes)
                op.location = self.position(keyword).location()
                block.add_op(op)
            except LayoutError as error:
                place = symbol if error.operand is None else tokens[error.operand]
                place = next((name for name in given if name == error.parameter), place)
                self.error(place, error.text([str(token) for token in tokens]))
        self.define_results(targets, op, str(symbol))

    def given(self, tree: SyntaxTree | None) -> dict[Token, int] | None:
        """Return the values of parameters that a call gives, by their names; None after errors."""
        given: dict[Token, int] = {}
        errors_before = len(self.errors)
        for name, formula in (binding.children for binding in (tree.children if tree else ())):
            if name in given:
                self.error(name, f"parameter '{name}' is given twice")
            size = self.size(formula)
            given[name] = 1 if size is None else size
        return given if len(self.errors) == errors_before else None

    def repeat(self, tree: SyntaxTree, block: Block) -> None:
        children = tree.children
        place = next(i for i, x in enumerate(children) if getattr(x, "type", "") == "REPEAT")
        targets, keyword, number = children[:place], children[place], children[place + 1]
        parts = children[place + 2 :]
        errors_before = len(self.errors)
        bindings = self.bindings([x for x in parts if getattr(x, "data", "") == "binding"])
        count = self.size(number)
        tokens = [token for bound in bindings for _, token in bound]
        operands = [self.use(token) for token in tokens]
        types: list[DistType] | None = None
        defined = [operand for operand in operands if operand is not None]
        if count is not None and len(self.errors) == errors_before and None not in operands:
            types = self.argument_types(first_token(number), count, bindings, defined, tokens)
        body = self.body(parts, bindings, types, count if types else None)
        op = None
        if len(self.errors) == errors_before and body is not None and count is not None:
            groups: list[list[SSAValue]] = []
            for bound in bindings:
                groups.append(defined[: len(bound)])
                defined = defined[len(bound) :]
            reverse = any(getattr(x, "type", "") == "REVERSE" for x in parts)
            op = self.loop(keyword, count, groups, body, reverse)
        if op is not None:
            block.add_op(op)
        self.define_results(targets, op, "this repeat")

    def bindings(self, trees: Sequence[SyntaxTree]) -> list[list[tuple[Token, Token]]]:
        """Return the pairs of names inside and outside for carries, slices and invariants."""
        bindings: dict[str, list[tuple[Token, Token]]] = {word: [] for word in BINDINGS}
        for tree in trees:
            word, *names = tree.children
            if str(word) not in bindings:
                hint = self.suggest(word, bindings)
                self.error(word, f"repeat has no `{word}`: use {', '.join(BINDINGS)}{hint}")
            known = str(word) if str(word) in bindings else BINDINGS[-1]
            bindings[known] += zip(names[::2], names[1::2], strict=True)
        return list(bindings.values())

    def argument_types(
        self,
        number: Token,
        count: int,
        bindings: Sequence[Sequence[tuple[Token, Token]]],
        operands: Sequence[SSAValue],
        tokens: Sequence[Token],
    ) -> list[DistType] | None:
        """Return the types of the arguments of a body, or None after an error."""
        types = [dist_type(operand) for operand in operands]
        try:
            return argument_types(self.mesh, count, types, len(bindings[0]), len(bindings[1]))
        except LayoutError as error:
            place, notes = number, ()
            if error.operand is not None:
                place = tokens[error.operand]
                notes = origin_notes(operands[error.operand], error.axes, str(place), self.mesh)
            self.error(place, error.text([str(token) for token in tokens]), *notes)
            return None

    def body(
        self,
        parts: Sequence[SyntaxTree],
        bindings: Sequence[Sequence[tuple[Token, Token]]],
        types: Sequence[DistType] | None,
        count: int | None,
    ) -> Block | None:
        """Return the body of a loop with its yield, or None after an error."""
        names = [name for bound in bindings for name, _ in bound]
        block = Block(arg_types=[DistTensorType(x) for x in types or ()])
        outer = self.values, self.tokens
        self.outside.append(set(self.values))
        self.values, self.tokens = {}, {}
        arguments: list[BlockArgument | None] = [*block.args] if types else [None] * len(names)
        for token, argument in zip(names, arguments, strict=True):
            self.define(token, argument)
        whole = types is not None
        for part in parts:
            match getattr(part, "data", None):
                case "step" | "call" | "repeat":
                    self.statement(part, block)
                case "yield":
                    whole &= self.end_body(part, block, bindings[0], count)
                case _:
                    pass
        self.forget_numbers()
        self.values, self.tokens = outer
        self.outside.pop()
        return block if whole else None

    def end_body(
        self,
        tree: SyntaxTree,
        block: Block,
        carries: Sequence[tuple[Token, Token]],
        count: int | None,
    ) -> bool:
        """Add the yield to the body of a loop; return False after an error."""
        keyword, returned = tree.children
        tokens: list[Token] = returned.children if returned else []
        values = [self.use(token) for token in tokens]
        defined = [value for value in values if value is not None]
        if len(defined) < len(values) or count is None:
            return False
        op = YieldOp.create(operands=defined)
        op.location = self.position(keyword).location()
        arguments = list(block.args[: len(carries)])
        if (problem := yield_problem(self.mesh, arguments, defined)) is not None:
            message, carry = problem
            if carry is None:
                self.error(keyword, message)
            else:
                here = self.position(carries[carry][0])
                name = carries[carry][0]
                self.error(tokens[carry], message, note(f"{name} is carried from here", here))
            return False
        for token, value in zip(tokens[len(carries) :], defined[len(carries) :], strict=True):
            try:
                stack_type(self.mesh, dist_type(value), count)
            except LayoutError as error:
                self.error(token, f"{token} cannot be stacked: {error.text(())}")
                return False
        block.add_op(op)
        return True

    def loop(
        self,
        keyword: Token,
        count: int,
        groups: Sequence[Sequence[SSAValue]],
        body: Block,
        reverse: bool,
    ) -> RepeatOp:
        op = RepeatOp.of(self.mesh, count, groups, body, reverse)
        op.location = self.position(keyword).location()
        return op

    # --- steps ------------------------------------------------------------------------------

    def step(self, tree: SyntaxTree, block: Block) -> None:
        target, name, operand_tree, *clauses, type_tree = tree.children
        operation = OPERATIONS.get(str(name))
        if operation is None:
            hint = self.suggest(name, OPERATIONS) or f"; there are {', '.join(OPERATIONS)}"
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
                f"`{usage(kind)}`",
            )
        places: dict[str, list[Token]] = {}
        properties = self.clauses(name, kind, clauses, places)
        expected = self.type(type_tree) if type_tree is not None else None
        defined = [operand for operand in operands if operand is not None]
        result = None
        if len(self.errors) == errors_before and len(defined) == len(operands):
            result = self.build(name, operation, defined, tokens, properties, places, block)
        if result is not None and expected is not None and dist_type(result) != expected:
            place: Token = tree.children[-1].children[0]
            self.error(
                place,
                f"{target} is {dist_type(result).text(self.mesh)}, not {expected.text(self.mesh)}",
            )
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
        trees: Sequence[SyntaxTree],
        places: dict[str, list[Token]],
    ) -> dict[str, Attribute]:
        """Return the properties of an operation from its clauses, which come in any order.

        Also fill ``places``: for each parameter that is written, the tokens of its argument.
        """
        written: dict[str, tuple[Token, SyntaxTree]] = {}
        for clause in trees:
            keyword, argument = clause.children[0], clause.children[-1]  # a flag is both
            if str(keyword) in written:
                self.error(keyword, f"`{keyword}` is given twice")
            written[str(keyword)] = (keyword, argument)
        properties: dict[str, Attribute] = {}
        missing: list[str] = []
        for parameter in kind.parameters:
            value: Argument | None = parameter.default
            if parameter.keyword in written:
                keyword, argument = written.pop(parameter.keyword)
                places[parameter.name] = _tokens(argument) or [keyword]
                value = self.argument(keyword, argument, parameter.kind, kind)
            elif parameter.required:
                missing.append(f"`{parameter.keyword}`")
            if value is not None:
                properties[parameter.name] = attribute_of(parameter.kind, value)
        if missing:
            needed = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
            self.error(name, f"{name} needs {needed}: `{usage(kind)}`")
        for keyword, _ in written.values():
            self.error(keyword, f"{name} has no `{keyword}`: `{usage(kind)}`")
        return properties

    def argument(
        self, keyword: Token, argument: SyntaxTree, argument_kind: ArgumentKind, kind: StepKind
    ) -> Argument | None:
        """Return the value of an argument, or None after an error."""
        errors_before = len(self.errors)
        children = getattr(argument, "children", ())
        match argument_kind, argument:
            case ArgumentKind.AXES, Tree(data="names"):
                axes = self.axes(children)
                self.trivial_parts_once(children, f"{kind.name} names sub-axis {{}} twice")
                return axes if len(self.errors) == errors_before else None
            case ArgumentKind.PLACE, Tree(data="place"):
                coordinates: dict[str, int] = {}
                self.place(argument, coordinates)
                return place_at(coordinates) if len(self.errors) == errors_before else None
            case ArgumentKind.COORDINATE, Token(type="NUMBER"):
                return self.integer(argument)
            case ArgumentKind.NUMBER, Token(type="NUMBER"):
                return self.number(argument)
            case ArgumentKind.INTEGER | ArgumentKind.NUMBER, _ if self.is_formula(argument):
                return self.size(argument)
            case ArgumentKind.NAME, Token(type="NAME"):
                return str(argument)
            case ArgumentKind.SIZES, Tree(data="sizes"):
                sizes = [self.size(t) for t in children if t is not None]
                return tuple(s or 0 for s in sizes) if None not in sizes else None
            case ArgumentKind.FLAG, Token(type="FLAG"):
                return True
            case ArgumentKind.TYPE, Tree(data="type"):
                return self.type(argument)
            case _:
                place = next(iter(_tokens(argument)), keyword)
                shown = SHOWN[argument_kind][1]
                self.error(place, f"`{keyword}` takes {shown} here: `{usage(kind)}`")
                return None

    def is_formula(self, argument: SyntaxTree) -> bool:
        """Return whether an argument is a formula; a name is one if the function has parameters."""
        if isinstance(argument, Token):
            return argument.type == "NUMBER" or (argument.type == "NAME" and bool(self.sizes))
        return argument.data not in ("names", "sizes", "type")

    def defaults(self, tree: SyntaxTree) -> dict[str, int]:
        """Return the parameters with their defaults; a wrong default is an error, and 1."""
        values = {str(parameter.children[0]): 1 for parameter in tree.children}
        for name, (value, token) in self.parameters(tree).items():
            if problem := default_error(name, value):
                self.error(token, problem)
            values[name] = 1 if problem else value
        return values

    # --- the end ----------------------------------------------------------------------------

    def finish(
        self,
        symbol: Token,
        return_tree: SyntaxTree,
        results: Sequence[DistType | None],
        result_tree: SyntaxTree,
        block: Block,
    ) -> None:
        keyword, returned = return_tree.children
        tokens: list[Token] = returned.children if returned else []
        values = [self.use(token) for token in tokens]
        declared_at = self.position(result_tree.children[0].children[0]) if results else None
        if len(values) != len(results):
            notes = (note("the results are declared here", declared_at),) if declared_at else ()
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
            notes = [note(f"{symbol} promises {expected.text(self.mesh)} here", declared_at)]
            notes += origin_notes(value, axes, str(token), self.mesh)
            self.error(token, message, *notes)
        if None not in values:
            op = ReturnOp(*(value for value in values if value is not None))
            op.location = self.position(keyword).location()
            block.add_op(op)


def _tokens(argument: SyntaxTree) -> list[Token]:
    """Return the tokens of an argument, in order."""
    if isinstance(argument, Token):
        return [argument]
    return list(argument.scan_values(lambda value: isinstance(value, Token)))


@cache
def _integer_attr(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)
