"""The lowering of functions in ``.coll`` to IR: their steps, calls and loops in order."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lark import Token
from xdsl.dialects.builtin import IntegerAttr, SymbolRefAttr, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, OpResult, Region, SSAValue

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
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.alternatives import FOR, FROM
from collir.ir.auto import laid_out, set_auto, whole_value
from collir.ir.diagnostics import Diagnostic, note
from collir.ir.fields import Fields, Scope
from collir.ir.names import name_signature, named_values, set_name
from collir.ir.origins import origin_notes, return_mismatch
from collir.ir.parameters import set_parameters
from collir.ir.roles import Role, set_argument_roles, set_result_roles, set_role
from collir.layout import DistType, DType, LayoutError, Mesh
from collir.layout.formulas import FormulaError
from collir.layout.loops import stack_type
from collir.layout.sizes import size_with
from collir.layout.steps import TO, ArgumentKind
from collir.layout.types import unsharded
from collir.syntax.generic import OPEN, Call, GenericFunction, Misfit, OperandBinding
from collir.syntax.imports import shipped_functions
from collir.syntax.lowering import (
    WrittenResult,
    bare,
    name_of,
    result_groups,
    results_of,
    target_of,
)
from collir.syntax.records import (
    ArgumentGroup,
    argument_groups,
    declared_field,
    field_of,
    numbered,
    opened,
)
from collir.syntax.steps import Callee, Operation, StepLowering
from collir.syntax.trees import SyntaxNode, SyntaxTree, first_token, is_tree
from collir.syntax.types import FLOATS

BINDINGS = ("carry", "slice", "with")
"""The words in front of the arguments of a loop's body: carries, slices and invariants."""

STATEMENTS = ("step", "fold", "call", "repeat", "return")
"""The grammar rules of statements in the body of a function."""

DEEPEST_LOOP = 64
"""The most loops around a step; tools that walk through regions are recursive."""

_TYPES = (ArgumentKind.TYPE, ArgumentKind.NAME, ArgumentKind.SIZES)
"""The kinds of arguments that say the type of a result, or a part of it."""

Target = tuple[Token, Role | None]
"""A value that a statement defines: its name, and the role that is written with it."""


class FunctionLowering(StepLowering):
    """The lowering of a function.

    Args:
        bound: what a generic function means for the operands of a call.

    Attributes:
        results: the fields of each record among the results, and None for a single value.
    """

    def __init__(
        self,
        file: str,
        errors: list[Diagnostic],
        mesh: Mesh,
        overridden: Mapping[str, int] | None = None,
        signatures: Mapping[str, Callee] | None = None,
        bound: OperandBinding | None = None,
    ):
        super().__init__(file, errors, mesh, overridden, signatures)
        self.bound = bound
        self.results: tuple[Fields | None, ...] = ()
        self.float_dtype = bound.dtype if bound else None
        self.auto = False

    @property
    def parameters_there(self) -> Mapping[str, int]:
        """The parameters that sizes in the function depend on, with their values."""
        return self.bound.parameters if self.bound else self.sizes

    def size(self, tree: SyntaxNode, decimals: bool = False) -> int | None:
        """Return an integer with its formula, in a generic function over the parameters of the
        caller; None after an error."""
        size = super().size(tree, decimals)
        if size is None or self.bound is None:
            return size
        try:
            return size_with(size, self.bound.sizes)
        except FormulaError as error:
            self.error(first_token(tree), str(error))
            return None

    def dtype(self, name: Token) -> DType:
        """Return a dtype by its name, or any after an error."""
        if name in FLOATS and self.bound is not None and self.bound.dtype is None:
            self.error(
                name,
                f"`{name}` stands for the dtype of the operands `float[...]` of a function, and "
                f"this one has none: use {', '.join(DType)}",
            )
            return DType.F32
        return super().dtype(name)

    def define(self, token: Token, value: SSAValue | None) -> None:
        """Let a name stand for a value; in an ``auto`` function, for the whole value."""
        if self.auto and value is not None and dist_type(value).axes:
            name = bare(token)
            if isinstance(value, BlockArgument) or (value.name_hint is None and not name.isdigit()):
                set_name(value, name)
            value = whole_value(self.mesh, value)
            assert isinstance(value, OpResult)
            value.op.location = self.position(token).location()
        super().define(token, value)

    def laid_out(self, values: Sequence[SSAValue], types: Sequence[DistType]) -> list[SSAValue]:
        """Return values as they are called with or returned: in the layouts of some types, if they
        are whole values of an ``auto`` function."""
        if not self.auto or len(values) != len(types):
            return list(values)
        return [
            laid_out(self.mesh, value, to) if dist_type(value).agrees(unsharded(to)) else value
            for value, to in zip(values, types, strict=True)
        ]

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

        In a generic function, a change to the type that a value has already is not added.
        """
        result = super().build(name, operation, operands, tokens, properties, places, block)
        if self.bound is None or not isinstance(result, OpResult) or len(operands) != 1:
            return result
        changes = any(
            x.keyword == TO.keyword and x.kind in _TYPES for x in operation.KIND.parameters
        )
        if changes and dist_type(result) == dist_type(operands[0]):
            block.erase_op(result.op)
            return operands[0]
        return result

    def argument_type(self, tree: SyntaxTree, number: int) -> DistType | None:
        """Return the type of an argument, or None after an error."""
        if tree.data not in OPEN:
            return self.type(tree)
        assert self.bound is not None
        return self.bound.inputs[number]

    def lower(self, tree: SyntaxTree, function_name: str) -> FuncOp | None:
        """Return a function under a name, or None after errors."""
        errors_before = len(self.errors)
        if self.bound is not None:
            tree = opened(tree, self.bound.fields)
        symbol: Token = tree.children[0]
        *steps, return_tree = (x for x in tree.children if getattr(x, "data", "") in STATEMENTS)
        self.auto |= tree.token("AUTO") is not None
        self.read_parameters(tree)
        written = [x.children for x in tree.parts("argument")]
        arguments = [(x, self.argument_type(t, n)) for n, (x, t, _) in enumerate(written)]
        roles = [Role(str(word)) if word else None for _, _, word in written]
        promised = results_of(tree)
        types = [DistTensorType(x) for _, x in arguments if x is not None]
        block = Block(arg_types=types)
        values = iter(block.args)
        for token, x in arguments:
            self.define(token, next(values) if x is not None else None)
        for step in steps:
            self.statement(step, block)
        promised = self.opened_results(promised, return_tree)
        self.results = result_groups([name for name, *_ in promised], tree)
        trees = [t for _, t, _ in promised]
        results = [None if t.data in OPEN else self.type(t) for t in trees]
        returned = self.finish(symbol, return_tree, results, trees, block)
        if len(self.errors) > errors_before or len(returned) < len(results):
            return None
        outputs = [
            value.type if x is None else DistTensorType(x)
            for value, x in zip(returned, results, strict=True)
        ]
        function = FuncOp(function_name, (types, outputs), Region(block))
        function.attributes[MESH_ATTRIBUTE] = SymbolRefAttr(self.mesh.name)
        set_parameters(function, self.parameters_there)
        set_argument_roles(function, roles)
        set_result_roles(function, [role for *_, role in promised])
        named = self.result_names([name for name, *_ in promised], return_tree)
        if self.auto:
            set_auto(function)
        for instead in tree.parts("instead"):
            if not self.set_alternative(function, instead):
                return None
        self.forget_numbers()
        if named != [value.name_hint for value in named_values(function)]:
            name_signature(function, [name_of(name) for name, *_ in written], named)
        return function

    def result_names(
        self, written: Sequence[Token | None], return_tree: SyntaxTree
    ) -> list[str | None]:
        """Return the names of results, from the signature or from the returned values."""
        for number, name in enumerate(written):
            if name is not None and name in written[:number]:
                self.error(name, f"two results are named {name}")
        _, values = return_tree.children
        tokens = self.flat(values.children if values else ())
        return [
            name_of(name) or name_of(token) for name, token in zip(written, tokens, strict=True)
        ]

    def opened_results(
        self, promised: Sequence[WrittenResult], return_tree: SyntaxTree
    ) -> list[WrittenResult]:
        """Return the results of a function, with one for each field of a record that it returns
        where `float{...}` is promised."""
        _, values = return_tree.children
        tokens: list[Token] = values.children if values else []
        if len(tokens) != len(promised) or all(x.data != "opened" for _, x, _ in promised):
            return list(promised)
        results: list[WrittenResult] = []
        for number, (token, (name, x, role)) in enumerate(zip(tokens, promised, strict=True)):
            fields = self.fields(token) if x.data == "opened" else None
            name = name or (numbered(number, token) if fields else None)
            results += ((name and declared_field(name, f), x, role) for f in fields or ("",))
        return results

    def set_alternative(self, function: FuncOp, tree: SyntaxTree) -> bool:
        """Note which function a function takes the place of; return False after an error."""
        replaced, least = tree.children
        function.attributes[FOR] = SymbolRefAttr(bare(replaced))
        number = self.integer(least) or 0
        if number >= 2**63:
            self.error(least, "the number is too large: values have less than 2^63 elements")
            return False
        function.attributes[FROM] = IntegerAttr(number, i64)
        return True

    # --- operations that run others -----------------------------------------------------------

    def statement(self, tree: SyntaxTree, block: Block) -> None:
        """Lower a step, a call or a loop."""
        match tree.data:
            case "call":
                self.call(tree, block)
            case "fold":
                self.fold(tree, block)
            case "repeat":
                self.repeat(tree, block)
            case _:
                self.step(tree, block)

    def define_results(self, targets: Sequence[Target], op: NestedOp | None, what: str) -> None:
        """Define the results of an operation, or values that failed; ``what`` has the results."""
        results: list[SSAValue | None] = [None] * len(targets) if op is None else [*op.results]
        if len(results) != len(targets):
            count = len(results)
            self.error(
                targets[0][0],
                f"{what} has {count} result{'s' * (count != 1)}, and {len(targets)} "
                f"{'are' if len(targets) > 1 else 'is'} named here",
            )
            results = [None] * len(targets)
        for (token, role), result in zip(targets, results, strict=True):
            if result is not None and role:
                set_role(result, role)
            self.define(token, result)

    def record_targets(
        self, targets: Sequence[Target], groups: Sequence[Fields | None]
    ) -> list[Target]:
        """Return the names of results, one for each field where a result is a record.

        Args:
            groups: the fields of each result, or None for a single value.
        """
        if len(targets) != len(groups):
            return list(targets)
        named: list[Target] = []
        for (token, role), fields in zip(targets, groups, strict=True):
            for field in fields or ("",):
                own = token.endswith(f".{field}") and len(fields or ()) == 1
                named.append((field_of(token, "" if own else field), role))
        return named

    def fold(self, tree: SyntaxTree, block: Block) -> None:
        """Lower an operation over all fields of a record: on the first two, then on what comes out
        and the next, to the last."""
        target_tree, name, token = tree.children
        target, role = target_of(target_tree)
        tokens = self.flat([token])
        values = [
            value for operand_token in tokens if (value := self.use(operand_token)) is not None
        ]
        operation = OPERATIONS.get(str(name))
        result = None
        if operation is None or operation.KIND.operands != 2 or not operation.KIND.elementwise:
            hint = self.suggest(name, (n for n, op in OPERATIONS.items() if op.KIND.operands == 2))
            self.error(name, f"fold takes an operation on two values, such as add{hint}")
        elif self.fields(token) is None and values:
            self.error(token, f"{token} is no record, and fold is over the fields of one")
        elif len(values) == len(tokens):
            properties = self.clauses(name, operation.KIND, None, (), {})
            result = values[0]
            for operand_token, value in zip(tokens[1:], values[1:], strict=True):
                operands, named = [result, value], [tokens[0], operand_token]
                result = self.build(name, operation, operands, named, dict(properties), {}, block)
                if result is None:
                    break
        if result is not None and role:
            set_role(result, role)
        self.define(target, result)

    def call(self, tree: SyntaxTree, block: Block) -> None:
        """Lower a call; of a function of single values on records it is one on each field."""
        *parts, _, _, _ = tree.children
        *targets, _, symbol, _, operand_tree, wrt_tree = parts
        tokens: list[Token] = operand_tree.children if operand_tree else []
        expected = self.expected(bare(symbol))
        alone = [t for t, x in zip(tokens, expected, strict=False) if x is None]
        records = [t for t in alone if len(tokens) == len(expected) and self.fields(t) is not None]
        wrt = [t for t in (wrt_tree.children if wrt_tree else ()) if t in records]
        named = [target_of(target)[0] for target in targets]
        for named_call in self.each(tree, [*records, *wrt], named):
            self.call_on_values(named_call, block, expected)

    def expected(self, name: str) -> list[ArgumentGroup]:
        """Return what the operands of a call of a function are; none, if it is not known."""
        callee = self.signatures.get(name)
        if isinstance(callee, GenericFunction):
            return argument_groups(callee.template.tree)
        return list(callee.argument_groups) if callee else []

    def call_on_values(
        self, tree: SyntaxTree, block: Block, expected: Sequence[ArgumentGroup]
    ) -> None:
        *parts, again, fused, task = tree.children
        *targets, keyword, symbol, given_tree, operand_tree, wrt_tree = parts
        written: list[Token] = operand_tree.children if operand_tree else []
        tokens = self.flat(written)
        operands = [self.use(token) for token in tokens]
        given = self.given(given_tree)
        wrt = self.wrt(keyword, tokens, wrt_tree)
        returned: list[Fields | None] = []
        op = None
        callee = self.signatures.get(bare(symbol))
        if bare(symbol) not in self.signatures:
            hint = self.suggest(bare(symbol), self.signatures, "@")
            if bare(symbol) in shipped_functions():
                taken = f"`func {symbol} = {symbol} on any`"
                hint = f"; to use the one shipped with collir, write {taken}"
            self.error(symbol, f"there is no function {symbol}{hint}")
        elif not self.takes_fields(symbol, written, expected):
            pass
        elif callee and given is not None and wrt is not None and None not in operands:
            defined = [operand for operand in operands if operand is not None]
            try:
                sizes: Mapping[str, int] = {str(name): size for name, size in given.items()}
                if isinstance(callee, GenericFunction):
                    pairs = zip(written, expected, strict=False)
                    fields = [self.fields(t) for t, x in pairs if is_tree(x, "opened")]
                    signature, sizes = self.instance(callee, keyword, defined, sizes, wrt, fields)
                else:
                    signature = callee
                    if self.auto:
                        callee.check_names(sizes)
                        defined = self.laid_out(defined, callee.inputs_at(self.mesh, sizes))
                if signature is not None:
                    flags = again is not None, fused is not None
                    name = str(task.children[0]) if task else None
                    op = CallOp.of(self.mesh, signature, defined, sizes, wrt, *flags, name)
                    op.location = self.position(keyword).location()
                    block.add_op(op)
                    returned = [*signature.result_groups]
                    returned += [self.fields(t) for t in (wrt_tree.children if wrt_tree else ())]
            except LayoutError as error:
                place = symbol if error.operand is None else tokens[error.operand]
                place = next((name for name in given if name == error.parameter), place)
                self.error(place, error.text([str(token) for token in tokens]))
        defined_targets = self.record_targets([*map(target_of, targets)], returned)
        self.define_results(defined_targets, op, str(symbol))

    def takes_fields(
        self, symbol: Token, operands: Sequence[Token], expected: Sequence[ArgumentGroup]
    ) -> bool:
        """Return whether record operands have the fields that a function takes, in order; report
        the first that does not."""
        if len(operands) != len(expected):
            return True  # the fields are written one by one, or their number is wrong
        for token, fields in zip(operands, expected, strict=True):
            own = self.fields(token)
            if own is not None and isinstance(fields, tuple) and own != fields:
                listed, has = ", ".join(fields), ", ".join(own)
                self.error(
                    token, f"{symbol} takes a record of {listed} here, and {token} has {has}"
                )
                return False
        return True

    def instance(
        self,
        callee: GenericFunction,
        keyword: Token,
        operands: Sequence[SSAValue],
        given: Mapping[str, int],
        wrt: Sequence[int],
        fields: Sequence[Fields | None],
    ) -> tuple[Signature | None, Mapping[str, int]]:
        """Return the signature of a generic function for operands, and the values of parameters
        that its call gives; None in the place of the signature after an error.

        Args:
            fields: the fields of the operands that may be records.

        Raises:
            LayoutError: the function does not take these operands.
        """
        types = tuple(dist_type(operand) for operand in operands)
        call = Call(self.mesh, types, given, self.parameters_there, tuple(fields))
        bound = callee.bound(call)
        instance = callee.instantiate(callee, self.mesh, bound)
        if instance.error is not None:
            position = self.position(keyword)
            self.errors.append(Misfit.of(callee.name, given, instance.error, position))
        if instance.function is None:
            return None, {}
        signature = replace(Signature.of(instance.function), result_groups=instance.results)
        for number, (x, expected) in enumerate(zip(types, signature.inputs, strict=True)):
            if not x.agrees(expected):
                text = f"{expected.text(self.mesh)} here, and {{{number}}} is {x.text(self.mesh)}"
                raise LayoutError(f"@{callee.name} takes {text}", operand=number)
        _ = replace(signature, name=callee.name).gradients(self.mesh, types, wrt)
        return signature, bound.bindings

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
        wanted = self.flat(wanted)
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
        place = next(i for i, x in enumerate(tree.children) if getattr(x, "type", "") == "REPEAT")
        targets = [target_of(x) for x in tree.children[:place]]
        keyword, number, *parts = tree.children[place:]
        errors_before = len(self.errors)
        if len(self.outside) == DEEPEST_LOOP:
            self.error(keyword, f"loops are nested more than {DEEPEST_LOOP} deep: call a function")
            self.define_results(targets, None, "this repeat")
            return
        bindings = self.bindings(tree.parts("binding"))
        count = self.size(number)
        tokens = [token for bound in bindings for _, token in bound]
        operands = [self.use(token) for token in tokens]
        types: list[DistType] | None = None
        defined = [operand for operand in operands if operand is not None]
        if count is not None and len(self.errors) == errors_before and None not in operands:
            types = self.argument_types(first_token(number), count, bindings, defined, tokens)
        body = self.body(parts, bindings, types, None if types is None else count)
        op = None
        if len(self.errors) == errors_before and body is not None and count is not None:
            outside: list[list[SSAValue]] = []
            for bound in bindings:
                outside.append(defined[: len(bound)])
                defined = defined[len(bound) :]
            flags = tree.token("REVERSE") is not None, tree.token("RECOMPUTE") is not None
            schedule = next((str(x.children[0])[1:-1] for x in tree.parts("schedule")), None)
            op = RepeatOp.of(self.mesh, count, outside, body, *flags, schedule)
            targets = self.record_targets(targets, self.yielded)
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
            for inside, outside in zip(names[::2], names[1::2], strict=True):
                fields = self.fields(outside) or ("",)
                bindings[known] += ((field_of(inside, f), field_of(outside, f)) for f in fields)
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
        outer = self.values, self.tokens, self.scope
        self.outside.append({*self.values, *self.scope.records})
        self.values, self.tokens, self.scope = {}, {}, Scope()
        arguments: list[BlockArgument | None] = [*(block.args or [None] * len(names))]
        for token, argument in zip(names, arguments, strict=True):
            self.define(token, argument)
        whole = types is not None
        for part in parts:
            match getattr(part, "data", None):
                case "step" | "fold" | "call" | "repeat":
                    self.statement(part, block)
                case "yield":
                    whole &= self.end_body(part, block, bindings[0], count)
                case _:
                    pass
        self.forget_numbers()
        self.values, self.tokens, self.scope = outer
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
        written: list[Token] = returned.children if returned else []
        self.yielded = [self.fields(token) for token in written]
        tokens = self.flat(written)
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
        result_trees: Sequence[SyntaxTree],
        block: Block,
    ) -> list[SSAValue]:
        """Add the return to a function, and return the values that it returns.

        Args:
            results: the types of the results; None for one with errors, or that is inferred.
        """
        keyword, returned = return_tree.children
        tokens = self.flat(returned.children if returned else ())
        values = [self.use(token) for token in tokens]
        places = (token for tree in result_trees for token in tree.tokens())
        declared_at = next(map(self.position, places), None)
        if self.auto and len(values) == len(results):
            values = [
                v and self.laid_out([v], [x or dist_type(v)])[0]
                for v, x in zip(values, results, strict=True)
            ]
        if len(values) != len(results):
            if None in values:
                return []  # it may be a record, and is reported where it fails
            notes = (note("the results are declared here", declared_at),) if declared_at else ()
            self.error(
                keyword,
                f"{symbol} has {len(results)} result{'s' * (len(results) != 1)}, "
                f"but {len(values)} {'are' if len(values) != 1 else 'is'} returned",
                *notes,
            )
            return []
        for token, value, expected, tree in zip(tokens, values, results, result_trees, strict=True):
            if value is not None and tree.data in OPEN and tree.children[0] is not None:
                self.check_dtype(token, dist_type(value), tree.children[0])
            if value is None or expected is None or dist_type(value).agrees(expected):
                continue
            message, axes = return_mismatch(dist_type(value), expected, str(token), self.mesh)
            notes = [note(f"{symbol} promises {expected.text(self.mesh)} here", declared_at)]
            notes += origin_notes(value, axes, str(token), self.mesh)
            self.error(token, message, *notes)
        defined = [value for value in values if value is not None]
        if len(defined) == len(values):
            op = ReturnOp(*defined)
            op.location = self.position(keyword).location()
            block.add_op(op)
        return defined

    def check_dtype(self, token: Token, x: DistType, name: Token) -> None:
        """Report a value that is returned where another dtype is promised."""
        dtype = self.dtype(name)
        if x.dtype is not dtype:
            promised = note(f"{dtype}[...] is promised here", self.position(name))
            self.error(token, f"{token} is {x.text(self.mesh)}, not {dtype}[...]", promised)
