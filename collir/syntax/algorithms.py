"""The reader of declared algorithms: from trees to formulas of ranks, with proofs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import lru_cache, reduce

import numpy as np
from lark import Token
from xdsl.dialects.builtin import ModuleOp

from collir.algorithms.checking import check
from collir.algorithms.chunks import program_of
from collir.algorithms.collectives import COLLECTIVES, TWO_BUFFERS
from collir.algorithms.moves import Algorithm
from collir.algorithms.own import (
    DeclaredAlgorithm,
    Formula,
    OwnAlgorithmError,
    Send,
    SendLoop,
    Together,
    Value,
)
from collir.algorithms.table import names_of
from collir.dialects.algorithms import AlgorithmAttr, AlgorithmOp
from collir.dialects.local import StartOp
from collir.dialects.local_program import mesh_at
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, note
from collir.layout import Mesh
from collir.layout.algorithm_names import AlgorithmName
from collir.layout.steps import USING
from collir.syntax.lowering import Lowering
from collir.syntax.parsing import parse
from collir.syntax.trees import SyntaxNode, SyntaxTree, first_token

MOST_RANKS = 256
"""The largest group for which a declared algorithm is proven."""


_MOST_BITS = 40
_DEEPEST = 64
"""The most operators in each other."""


def _most(a: Value) -> int:
    return int(np.max(np.abs(a), initial=0))


def _bounded(a: Value) -> Value:
    """Return a number that is not too large to count with.

    Raises:
        OwnAlgorithmError: it is.
    """
    if _most(a) >> _MOST_BITS:
        raise OwnAlgorithmError(f"a number has more than {_MOST_BITS} bits")
    return a


def _times(a: Value, b: Value) -> Value:
    _ = _bounded(_most(a) * _most(b))
    return a * b


def _not_zero(b: Value) -> Value:
    if np.any(np.asarray(b) == 0):
        raise OwnAlgorithmError("a formula divides by 0")
    return b


def _shifted(a: Value, b: Value) -> Value:
    if np.any(np.asarray(b) < 0) or _most(b) > _MOST_BITS:
        raise OwnAlgorithmError(
            f"a formula shifts by less than 0 bits, or by more than {_MOST_BITS}"
        )
    _ = _bounded(_most(a) << _most(b))
    return a << b


def _negative(a: Value) -> Value:
    return -a


def _log2(a: Value) -> Value:
    return np.ceil(np.log2(np.maximum(a, 1))).astype(np.int64)


_BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "plus": lambda a, b: _bounded(a + b),
    "minus": lambda a, b: _bounded(a - b),
    "times": _times,
    "over": lambda a, b: a // _not_zero(b),
    "modulo": lambda a, b: a % _not_zero(b),
    "shifted": _shifted,
    "differing": lambda a, b: a ^ b,
}
_OPERATORS: dict[str, Callable[..., Value]] = {**_BINARY, "negative": _negative}
"""The meaning of the rules of the grammar."""

_FUNCTIONS: dict[str, tuple[int, Callable[..., Value]]] = {
    "min": (2, np.minimum),
    "max": (2, np.maximum),
    "log2": (1, _log2),
}
"""The functions, with the number of their arguments; ``log2`` is rounded up."""

_COMPARISONS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


class AlgorithmLowering(Lowering):
    """The lowering of a declaration."""

    def declared(self, tree: SyntaxTree) -> DeclaredAlgorithm | None:
        """Return a declared algorithm, or None after errors."""
        before = len(self.errors)
        symbol, collective, rank, ranks, cut, *acts, _ = tree.children
        name = str(collective)
        if name in TWO_BUFFERS:
            known = ", ".join(names_of(name))
            self.error(collective, f"blocks of an {name} lie in two buffers, which a declared "
                       f"algorithm has not: use {known}")  # fmt: skip
        elif name not in COLLECTIVES:
            hint = self.suggest(collective, COLLECTIVES) or f": use {', '.join(COLLECTIVES)}"
            self.error(collective, f"there are no algorithms of {collective}{hint}")
        if rank == ranks:
            self.error(ranks, f"'{ranks}' is the number of a rank already: name another one")
        blocks = self.formula(ranks if cut is None else cut, {str(ranks)})
        body = tuple(self.body(acts, frozenset({str(rank), str(ranks)}), str(rank)))
        if len(self.errors) > before:
            return None
        return DeclaredAlgorithm(str(symbol), str(collective), str(rank), str(ranks), blocks, body)

    def body(
        self, trees: list[SyntaxTree], names: frozenset[str], rank: str
    ) -> Iterator[Together | SendLoop]:
        """Yield statements in which names are known."""
        for tree in trees:
            if tree.data == "counted":
                name, first, last, step, *inner = tree.children
                if str(name) in names:
                    self.error(name, f"'{name}' is named already: use another name")
                around = names - {rank}
                bounds = [self.formula(x, around) for x in (first, last)]
                by = _one if step is None else self.formula(step, around)
                inside = tuple(self.body(inner, names | {str(name)}, rank))
                yield SendLoop(str(name), bounds[0], bounds[1], by, inside)
                continue
            trees_of_sends = tree.children if tree.data == "together" else [tree]
            sends = [self.send(x, names) for x in trees_of_sends]
            for send_tree, send in zip(trees_of_sends, sends, strict=True):
                if send.reduces is not sends[0].reduces:
                    self.error(
                        first_token(send_tree), "sends at the same time all `reduce`, or none does"
                    )
            yield Together(tuple(sends))

    def send(self, tree: SyntaxTree, names: frozenset[str]) -> Send:
        """Return a send in which names are known."""
        block, count, to, into, adds, only = tree.children
        return Send(
            self.formula(block, names),
            _one if count is None else self.formula(count, names),
            self.formula(to, names),
            None if into is None else self.formula(into, names),
            adds is not None,
            None if only is None else self.condition(only, names),
            first_token(tree).line or 0,
        )

    def condition(self, tree: SyntaxTree, names: frozenset[str]) -> Formula:
        """Return a condition as a formula that is not 0 where it holds."""
        if tree.data == "comparison":
            left, sign, right = tree.children
            compare = _COMPARISONS[str(sign)]
            a, b = self.formula(left, names), self.formula(right, names)
            return lambda values: compare(a(values), b(values))
        parts = [self.condition(x, names) for x in tree.children]
        return lambda values: reduce(np.logical_and, [part(values) for part in parts])

    def formula(self, tree: SyntaxNode, names: Set[str], depth: int = 0) -> Formula:
        """Return a formula; what is not known in it is an error."""
        if isinstance(tree, Token):
            if tree.type == "NUMBER":
                number = self.integer(tree) or 0
                if abs(number) >> _MOST_BITS:
                    self.error(tree, f"numbers have {_MOST_BITS} bits at most")
                return lambda _: number
            name = str(tree)
            if name not in names:
                hint = self.suggest(tree, names) or f": known are {', '.join(sorted(names))}"
                self.error(tree, f"nothing is called '{name}' here{hint}")
            return lambda values: values[name]
        if depth > _DEEPEST:
            self.error(first_token(tree), "the formula is too long")
            return lambda _: 0
        if tree.data == "applied":
            name, *arguments = tree.children
            parts = [self.formula(x, names, depth + 1) for x in arguments]
            if str(name) not in _FUNCTIONS:
                self.error(name, f"there is no function '{name}': use {', '.join(_FUNCTIONS)}")
                return lambda _: 0
            count, function = _FUNCTIONS[str(name)]
            if count != len(parts):
                self.error(name, f"{name} takes {count} number{'s' * (count > 1)}")
        else:
            function = _OPERATORS[tree.data]
            parts = [self.formula(x, names, depth + 1) for x in tree.children]
        return lambda values: function(*(part(values) for part in parts))


def _one(_: Mapping[str, Value]) -> Value:
    return 1


@lru_cache(maxsize=256)
def own_algorithm(name: AlgorithmName) -> Algorithm:
    """Return the algorithm that a program declares under a name."""
    tree, errors, _ = parse(name.text, "<algorithm>")
    lowering = AlgorithmLowering("<algorithm>", errors)
    is_algorithm = not errors and [x.data for x in tree.children] == ["algorithm"]
    declared = lowering.declared(tree.children[0]) if is_algorithm else None
    if lowering.errors:
        raise DiagnosticError(lowering.errors)
    if declared is None or (declared.name, declared.collective) != (str(name), name.collective):
        raise DiagnosticError(
            Diagnostic(f"the text of {name} declares no algorithm {name} of {name.collective}")
        )
    return declared.algorithm()


@lru_cache(maxsize=1024)
def prove(algorithm: Algorithm, ranks: int) -> None:
    """Prove that a declared algorithm implements its collective for a number of ranks.

    Raises:
        OwnAlgorithmError: it does not, or there are more than ``MOST_RANKS``.
    """
    if ranks > MOST_RANKS:
        raise OwnAlgorithmError(f"it is proven for {MOST_RANKS} ranks at most")
    problems = check(program_of(algorithm, ranks)).problems
    if problems:
        more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        raise OwnAlgorithmError(f"{problems[0].message}{more}", problems[0].line)


def errors_of_declarations(module: ModuleOp) -> list[Diagnostic]:
    """Return the errors of declared algorithms of a module that was not read from ``.coll``: texts
    that declare something else, and steps with another declaration than the module."""
    declared = {op.declared.data: op for op in module.ops if isinstance(op, AlgorithmOp)}
    errors: list[Diagnostic] = []
    for name, op in declared.items():
        try:
            _ = own_algorithm(name)
        except DiagnosticError as error:
            message = f"{name} is no algorithm: {error.diagnostics[0].message}"
            errors.append(Diagnostic(message, Position.of(op)))
    uses = list(_uses(module))
    for op, name in uses:
        if name not in declared:
            message = f"the module does not declare {name} as this step has it"
            errors.append(Diagnostic(message, Position.of(op)))
    return errors or unproven(module, uses)


Uses = Iterable[tuple[DistOp | StartOp, AlgorithmName]]
"""Steps that name declared algorithms."""


def _uses(module: ModuleOp) -> Uses:
    for op in module.walk():
        if isinstance(op, DistOp | StartOp):
            name = op.properties.get(USING.name)
            if isinstance(name, AlgorithmAttr):
                yield op, name.data


def unproven(module: ModuleOp, uses: Uses | None = None) -> list[Diagnostic]:
    """Return an error for each use of a declared algorithm that does not implement its collective.

    Args:
        uses: the steps of the module that name declared algorithms, if these are known.
    """
    places = {x.sym_name.data: Position.of(x) for x in module.ops if isinstance(x, AlgorithmOp)}
    errors: list[Diagnostic] = []
    for op, name in _uses(module) if uses is None else uses:
        count = _mesh(op).group_size(op.over if isinstance(op, DistOp) else op.axes.data)
        try:
            prove(own_algorithm(name), count)
        except OwnAlgorithmError as error:
            errors.append(refusal(name, count, error, Position.of(op), places.get(str(name)[1:])))
    return errors


def refusal(
    name: AlgorithmName, ranks: int, error: OwnAlgorithmError, position: Position | None,
    declared: Position | None,
) -> Diagnostic:  # fmt: skip
    """Return the error that a declared algorithm is none for a number of ranks."""
    what = "not proven for" if ranks > MOST_RANKS else f"no {name.collective} of"
    message = f"{name} is {what} {ranks} ranks: {error}"
    return Diagnostic(message, position, notes=(_place(name, declared, error.line),))


def _place(name: AlgorithmName, declared: Position | None, line: int) -> Diagnostic:
    """Return a note at a line of a declaration, or at its beginning."""
    if not line or declared is None:
        return note(f"{name} is declared here", declared)
    text = name.text.split("\n")[line - 1]
    column = len(text) - len(text.lstrip()) + 1 if line > 1 else declared.column
    return note("it is this send", Position(declared.file, declared.line + line - 1, column))


def _mesh(op: DistOp | StartOp) -> Mesh:
    return mesh_at(op) if isinstance(op, StartOp) else mesh_of(op)
