# pyright: basic
"""The lowering of functions in ``.coll`` to IR: their steps, calls and loops in order."""

from collections.abc import Sequence
from functools import cache

from lark import Token
from xdsl.dialects.builtin import IntegerAttr, SymbolRefAttr, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Region, SSAValue

from collir.dialects.machine import MESH_ATTRIBUTE
from collir.dialects.nested import (
    CallOp,
    NestedOp,
    RepeatOp,
    YieldOp,
    argument_types,
    yield_problem,
)
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.alternatives import FOR, FROM
from collir.ir.diagnostics import note
from collir.ir.origins import origin_notes, return_mismatch
from collir.ir.parameters import set_parameters
from collir.ir.roles import Role, set_argument_roles, set_result_roles, set_role
from collir.layout import DistType, LayoutError
from collir.layout.loops import stack_type
from collir.syntax.formulas import first_token
from collir.syntax.lowering import bare, with_role
from collir.syntax.parsing import SyntaxTree
from collir.syntax.steps import StepLowering

BINDINGS = ("carry", "slice", "with")
"""The words in front of what the body of a loop sees: carries, slices and invariants."""


class FunctionLowering(StepLowering):
    """The lowering of a function."""

    def lower(self, tree: SyntaxTree, function_name: str) -> FuncOp | None:
        """Return a function under a name, or None after errors."""
        errors_before = len(self.errors)
        symbol = tree.children[0]
        arguments: list[tuple[Token, DistType | None]] = []
        roles: list[Role | None] = []
        result_roles: list[Role | None] = []
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
                    token, written, word = child.children
                    arguments.append((token, self.type(written)))
                    roles.append(Role(str(word)) if word else None)
                case "results":
                    result_tree = child
                    returned = [with_role(t) for t in child.children if t is not None]
                    results = [self.type(written) for written, _ in returned]
                    result_roles = [role for _, role in returned]
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
        set_argument_roles(function, roles)
        set_result_roles(function, result_roles)
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

    def define_results(self, targets: Sequence[SyntaxTree], op: NestedOp | None, what: str) -> None:
        """Define the results of an operation, or values that failed; ``what`` has the results."""
        tokens, roles = zip(*map(with_role, targets), strict=True)
        results: list[SSAValue | None] = [None] * len(tokens) if op is None else [*op.results]
        if len(results) != len(tokens):
            count = len(results)
            self.error(
                tokens[0],
                f"{what} has {count} result{'s' * (count != 1)}, and {len(tokens)} "
                f"{'are' if len(tokens) > 1 else 'is'} named here",
            )
            results = [None] * len(tokens)
        for token, result, role in zip(tokens, results, roles, strict=True):
            if result is not None and role:
                set_role(result, role)
            self.define(token, result)

    def call(self, tree: SyntaxTree, block: Block) -> None:
        *targets, keyword, symbol, given_tree, operand_tree, wrt_tree, recompute = tree.children
        tokens: list[Token] = operand_tree.children if operand_tree else []
        operands = [self.use(token) for token in tokens]
        given = self.given(given_tree)
        wrt = self.wrt(keyword, tokens, wrt_tree)
        op = None
        signature = self.signatures.get(bare(symbol))
        if bare(symbol) not in self.signatures:
            hint = self.suggest(bare(symbol), self.signatures, "@")
            self.error(symbol, f"there is no function {symbol}{hint}")
        elif signature and given is not None and wrt is not None and None not in operands:
            defined = [operand for operand in operands if operand is not None]
            try:
                sizes = {str(name): size for name, size in given.items()}
                op = CallOp.of(self.mesh, signature, defined, sizes, wrt, bool(recompute))
                op.location = self.position(keyword).location()
                block.add_op(op)
            except LayoutError as error:
                place = symbol if error.operand is None else tokens[error.operand]
                place = next((name for name in given if name == error.parameter), place)
                self.error(place, error.text([str(token) for token in tokens]))
        self.define_results(targets, op, str(symbol))

    def wrt(
        self, keyword: Token, operands: Sequence[Token], tree: SyntaxTree | None
    ) -> list[int] | None:
        """Return the numbers of the operands behind `wrt`; None after errors."""
        wanted: list[Token] = tree.children if tree else []
        if (keyword == "gradient") != bool(wanted):
            self.error(
                keyword,
                "gradient needs the operands that it is with respect to: `wrt %w, ...`"
                if not wanted
                else "a call has no `wrt`: `gradient @f(%x, ...) wrt %x` gives gradients",
            )
            return None
        names = [str(token) for token in operands]
        for token in wanted:
            if names.count(str(token)) != 1:
                twice = str(token) in names
                problem = (
                    f"{token} is two operands, and has a gradient for each: give them two names"
                    if twice
                    else f"{token} is no operand of this gradient"
                )
                self.error(token, problem)
                return None
        return [names.index(str(token)) for token in wanted]

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
            words = {getattr(x, "type", "") for x in parts}
            op = RepeatOp.of(
                self.mesh, count, groups, body, "REVERSE" in words, "RECOMPUTE" in words
            )
            op.location = self.position(keyword).location()
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
        declared_at = None
        if results:
            declared_at = self.position(with_role(result_tree.children[0])[0].children[0])
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


@cache
def _integer_attr(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)
