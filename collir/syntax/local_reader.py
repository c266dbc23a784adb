"""The lowering of local functions in ``.coll`` to IR: one operation for each statement.

Nothing is inferred: every buffer has its type. The verifier reports errors between operations, at
the positions that are set here.
"""

from collections.abc import Mapping, Sequence

from lark import Token
from xdsl.dialects.builtin import ArrayAttr, StringAttr, SymbolRefAttr, UnitAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from collir.dialects.local import (
    AllocOp,
    AtOp,
    ComputeOp,
    CopyOp,
    FreeOp,
    LocalCallOp,
    LocalFuncOp,
    LocalRepeatOp,
    LocalYieldOp,
    StartOp,
    ViewOp,
    WaitOp,
    number,
)
from collir.dialects.local_types import BufferType, RankNumberAttr, buffer_of
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import PlaceAttr
from collir.ir.diagnostics import Diagnostic
from collir.ir.names import set_name
from collir.ir.parameters import set_parameters
from collir.layout import Mesh, place_at
from collir.layout.local import LocalBuffer
from collir.layout.steps import Argument, ArgumentKind, StepKind
from collir.syntax.functions import DEEPEST_LOOP
from collir.syntax.local_kinds import kernel_kind, start_kind
from collir.syntax.local_types import LocalTypeLowering
from collir.syntax.operations import usage
from collir.syntax.trees import SyntaxNode, SyntaxTree


class LocalLowering(LocalTypeLowering):
    """The lowering of a local function.

    Attributes:
        defined: all values that have a name.
        depth: the number of statements around those that are lowered.
    """

    def __init__(self, file: str, errors: list[Diagnostic], mesh: Mesh):
        super().__init__(file, errors, mesh)
        self.defined: list[SSAValue] = []
        self.depth = 0

    def lower(self, tree: SyntaxTree, name: str) -> LocalFuncOp | None:
        """Return a local function under a name, or None after errors."""
        errors_before = len(self.errors)
        _, named, inputs, outputs, _, arena_tree, *statements = tree.children
        if named is not None:
            self.read_parameters(tree)
            for token in (x.children[0] for x in named.children):
                if self.mesh.named(str(token)) is not None:
                    problem = f"{token} is an axis of @{self.mesh.name} too"
                    self.error(token, f"{problem}: give the parameter another name")
        trees = [[x for x in side.children if x] if side else [] for side in (inputs, outputs)]
        held = [(x.children[0], self.buffer(x.children[1])) for x in (*trees[0], *trees[1])]
        places = [self.at(x.children[2]) for x in (*trees[0], *trees[1])]
        block = Block(arg_types=[BufferType(x) for _, x in held if x is not None])
        values = iter(block.args)
        for token, x in held:
            self.define(token, next(values) if x is not None else None)
        arena = self.rank_number(arena_tree) if arena_tree else None
        self.statements(statements, block)
        if len(self.errors) > errors_before:
            return None
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(name),
            "mesh": SymbolRefAttr(self.mesh.name),
            "places": ArrayAttr(map(PlaceAttr, places)),
            "returned": number(len(trees[1])),
        }
        if arena is not None:
            properties["arena"] = RankNumberAttr(arena)
        for value in self.defined:
            if value.name_hint and value.name_hint.isdigit():
                set_name(value, None)  # the printers number values anew
        function = LocalFuncOp.create(properties=properties, regions=[Region(block)])
        set_parameters(function, self.sizes)
        return function

    # --- values -------------------------------------------------------------------------------

    def define(self, token: Token, value: SSAValue | None) -> None:
        """Let a name stand for a value."""
        super().define(token, value)
        if value is not None:
            self.defined.append(value)

    def memory(self, token: Token) -> SSAValue | None:
        """Return the buffer of a name, or None after an error."""
        value = self.use(token)
        if value is not None and not isinstance(value.type, BufferType):
            self.error(token, f"{token} is what a `start` has begun, and no buffer: wait for it")
            return None
        return value

    def begun(self, token: Token) -> SSAValue | None:
        """Return the token, of what is under way, of a name; None after an error."""
        value = self.use(token)
        if value is not None and isinstance(value.type, BufferType):
            self.error(token, f"{token} is a buffer: wait for what a `start` has begun")
            return None
        return value

    def buffers(self, tokens: Sequence[Token]) -> list[SSAValue] | None:
        """Return the buffers of names, or None after an error."""
        values = [self.memory(token) for token in tokens]
        found = [value for value in values if value is not None]
        return found if len(found) == len(values) else None

    def add(self, token: Token, op: Operation, block: Block) -> None:
        """Add an operation that is written at a token."""
        op.location = self.position(token).location()
        block.add_op(op)

    # --- clauses ---------------------------------------------------------------------------------

    def argument(
        self, keyword: Token, argument: SyntaxNode, argument_kind: ArgumentKind, kind: StepKind
    ) -> Argument | None:
        """Return the value of an argument, or None after an error."""
        if isinstance(argument, Token) and argument.type == "VALUE":  # of no type of a tensor
            self.error(argument, f"`{keyword}` takes no buffer here: `{self.usage(kind)}`")
            return None
        return super().argument(keyword, argument, argument_kind, kind)

    def usage(self, kind: StepKind) -> str:
        """Return how a statement is written."""
        if kind.sends:
            return f"start {usage(kind, '-> %z')}"
        return f"compute {usage(kind, '' if kind.computes else '-> %z')}"

    # --- statements -----------------------------------------------------------------------------

    def statements(self, trees: Sequence[SyntaxTree], block: Block) -> None:
        """Lower statements in order."""
        lowerings = {
            "alloc": self.alloc,
            "free": self.free,
            "view": self.view,
            "copy": self.copy,
            "start_of": self.start,
            "wait": self.wait,
            "work": self.compute,
            "run": self.run,
            "within": self.within,
            "iterate": self.iterate,
        }
        for tree in trees:
            lowerings[tree.data](tree, block)

    def alloc(self, tree: SyntaxTree, block: Block) -> None:
        target, keyword, kind, at, start = tree.children
        x, place = self.buffer(kind), self.at(at)
        begin = None if start is None else self.rank_number(start)
        op = None
        if x is not None:
            op = AllocOp.of(x, place)
            if begin is not None:
                op.properties["start"] = RankNumberAttr(begin)
            self.add(keyword, op, block)
        self.define(target, op and op.result)

    def free(self, tree: SyntaxTree, block: Block) -> None:
        keyword, token = tree.children
        if (memory := self.memory(token)) is not None:
            self.add(keyword, FreeOp.create(operands=[memory]), block)

    def view(self, tree: SyntaxTree, block: Block) -> None:
        target, keyword, token, kind, at, offset = tree.children
        whole, x, start = self.memory(token), self.buffer(kind), self.rank_number(offset)
        op = None
        if whole is not None and x is not None:
            op = ViewOp.of(whole, x, start, self.at(at))
            self.add(keyword, op, block)
        self.define(target, op and op.result)

    def copy(self, tree: SyntaxTree, block: Block) -> None:
        keyword, *tokens = tree.children
        if (ends := self.buffers(tokens)) is not None:
            self.add(keyword, CopyOp.create(operands=ends), block)

    def wait(self, tree: SyntaxTree, block: Block) -> None:
        keyword, token = tree.children
        if (begun := self.begun(token)) is not None:
            self.add(keyword, WaitOp.create(operands=[begun]), block)

    def start(self, tree: SyntaxTree, block: Block) -> None:
        target, name, reduction, source, written, *clauses = tree.children
        ends = self.buffers([source, written])
        op = None
        known = {x: op.KIND for x, op in OPERATIONS.items() if op.KIND.sends}
        if str(name) not in known:
            hint = self.suggest(name, known) or f": use {', '.join(known)}"
            self.error(name, f"there is no collective '{name}'{hint}")
        else:
            properties = self.collective(name, reduction, known[str(name)], clauses)
            if ends is not None and properties is not None:
                op = StartOp.of(str(name), (), ends[0], ends[1], properties)
                self.add(name, op, block)
        self.define(target, op and op.token)

    def collective(
        self, name: Token, reduction: Token | None, kind: StepKind, clauses: Sequence[SyntaxTree]
    ) -> Mapping[str, Attribute] | None:
        """Return the properties of a collective, or None after an error."""
        errors_before = len(self.errors)
        properties: dict[str, Attribute] = {}
        if reduction is not None:
            word = self.reduction(reduction)
            if not kind.reduces:
                self.error(reduction, f"{name} does not reduce: `{self.usage(start_kind(kind))}`")
            elif word is not None:
                properties["reduction"] = StringAttr(word.value)
        elif kind.reduces:
            self.error(name, f"{name} says how it reduces: `start {name} sum %x -> %z over AXES`")
        own = [x for x in clauses if x.data == "clause"]
        has_peers = any(x.data == "peers" for x in clauses)
        properties |= self.clauses(name, start_kind(kind, has_peers), None, own, {})
        for tree in [x for x in clauses if x.data != "clause"]:
            counts = self.rank_numbers(tree.children[0])
            properties[tree.data] = ArrayAttr(map(RankNumberAttr, counts))
        return properties if len(self.errors) == errors_before else None

    def compute(self, tree: SyntaxTree, block: Block) -> None:
        name, text, read, written, *rest = tree.children
        errors_before = len(self.errors)
        inputs = self.buffers(read.children) or []
        outputs = self.buffers(written.children if written else ()) or []
        *clauses, starts, whole = rest
        begins = self.rank_numbers(starts)
        sizes = self.counts(whole.children) if whole else ()
        kinds = {x: kernel_kind(op.KIND) for x, op in OPERATIONS.items()}
        known = {x: kind for x, kind in kinds.items() if kind is not None}
        if name not in known:
            hint = self.suggest(name, known)
            hint = ": collectives have a `start`" if _is_collective(name) else hint
            self.error(name, f"there is no computation '{name}'{hint}")
            return
        self.rank = len(buffer_of(inputs[0]).shape) if inputs else None
        properties = self.clauses(name, known[str(name)], text, clauses, {})
        if len(self.errors) == errors_before:
            op = ComputeOp.of(str(name), properties, inputs, outputs, begins, sizes)
            self.add(name, op, block)

    # --- control --------------------------------------------------------------------------------

    def run(self, tree: SyntaxTree, block: Block) -> None:
        keyword, symbol, read, written, start = tree.children
        inputs = self.buffers(read.children if read else ())
        outputs = self.buffers(written.children if written else ())
        begin = None if start is None else self.rank_number(start)
        if inputs is None or outputs is None:
            return
        op = LocalCallOp.of(str(symbol)[1:], inputs, outputs)
        if begin is not None:
            op.properties["start"] = RankNumberAttr(begin)
        self.add(keyword, op, block)

    def inside(self, keyword: Token, trees: Sequence[SyntaxTree], block: Block) -> None:
        """Lower the statements inside of another."""
        if self.depth == DEEPEST_LOOP:
            self.error(keyword, f"statements are nested more than {DEEPEST_LOOP} deep")
            return
        self.depth += 1
        self.statements(trees, block)
        self.depth -= 1

    def within(self, tree: SyntaxTree, block: Block) -> None:
        *children, end = tree.children
        word = next(n for n, x in enumerate(children) if getattr(x, "type", "") == "WITHIN")
        targets = [x for x in children[:word] if x is not None]
        keyword, place_tree, *statements = children[word:]
        errors_before = len(self.errors)
        coordinates: dict[str, int] = {}
        self.place(place_tree, coordinates)
        outer = dict(self.values), dict(self.tokens)
        inner = Block()
        self.inside(keyword, statements, inner)
        last, values = end.children if end else (keyword, None)
        yielded = [self.begun(token) for token in (values.children if values else ())]
        self.values, self.tokens = outer
        if len(yielded) != len(targets):
            self.error(
                last,
                f"this `at` yields {len(yielded)} of what is under way, and {len(targets)} "
                "are named in front of it",
            )
        op = None
        if len(self.errors) == errors_before:
            self.add(last, LocalYieldOp.create(operands=[x for x in yielded if x]), inner)
            op = AtOp.of(place_at(coordinates), inner, len(yielded))
            self.add(keyword, op, block)
        for index, target in enumerate(targets):
            self.define(target, op and op.tokens[index])

    def iterate(self, tree: SyntaxTree, block: Block) -> None:
        keyword, times, *parts = tree.children
        errors_before = len(self.errors)
        carries = [x.children for x in tree.parts("turns")]
        rows: list[Token] = [token for x in tree.parts("rows") for token in x.children]
        groups = [self.buffers([x[n] for x in carries]) for n in (2, 3, 4)]
        groups.append(self.buffers(rows[1::2]))
        names = [token for x in carries for token in x[:2]] + rows[::2]
        operands = [group or [] for group in groups]
        inner = Block()
        if None not in groups:
            kinds = [buffer_of(x) for x in operands[0] for _ in range(2)]
            stacks = map(buffer_of, operands[3])
            kinds += [LocalBuffer(x.dtype, x.shape[1:]) for x in stacks]
            inner = Block(arg_types=[BufferType(x) for x in kinds])
        outer = dict(self.values), dict(self.tokens)
        for token, argument in zip(names, inner.args or [None] * len(names), strict=True):
            self.define(token, argument)
        statements = [x for x in parts if getattr(x, "data", "turns") not in ("turns", "rows")]
        self.inside(keyword, statements, inner)
        self.values, self.tokens = outer
        properties: dict[str, Attribute] = {"times": RankNumberAttr(self.rank_number(times))}
        if tree.token("REVERSE"):
            properties["reverse"] = UnitAttr()
        if len(self.errors) == errors_before:
            op = LocalRepeatOp.build(
                operands=operands, properties=properties, regions=[Region(inner)]
            )
            self.add(keyword, op, block)


def _is_collective(name: str) -> bool:
    return name in OPERATIONS and OPERATIONS[name].KIND.sends
