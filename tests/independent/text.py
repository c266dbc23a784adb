"""Read the text of a program into plain values."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
  | (?P<value>%[A-Za-z0-9_]+)
  | (?P<symbol>@[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*)
  | (?P<arrow>->)
  | (?P<dots>\.\.\.)
  | (?P<number>\d+(\.\d+)?([eE][+-]?\d+)?)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*)
  | (?P<string>"[^"]*")
  | (?P<mark>[-+*/(){}\[\]=,:@;])""",
    re.VERBOSE,
)

ROLES = {"parameter", "gradient", "state", "activation"}
LISTS = {"into", "order", "dims", "stride", "padding", "window"}
FLAGS = {"async", "ahead", "keepdims", "reverse", "transposed", "open", "recompute", "fused"}
NAMES = {"using", "op"}
TO_NUMBER = {"all_to_all", "send"}


class Unreadable(Exception):
    """The text is no program."""


Formula: TypeAlias = "Fraction | float | str | Binary"
"""An integer, a number with a point, a parameter, or an operation on two formulas."""


@dataclass(frozen=True)
class Binary:
    """An operation on two formulas."""

    sign: str
    left: Formula
    right: Formula


def evaluate(formula: Formula, sizes: dict[str, int]) -> Fraction | float:
    """Return the number that a formula has at the given sizes."""
    if isinstance(formula, str):
        if formula not in sizes:
            raise Unreadable(f"no parameter {formula}")
        return Fraction(sizes[formula])
    if not isinstance(formula, Binary):
        return formula
    a, b = evaluate(formula.left, sizes), evaluate(formula.right, sizes)
    if formula.sign == "/":
        return a / b
    return {"+": a + b, "-": a - b, "*": a * b}[formula.sign]


def integer(formula: Formula, sizes: dict[str, int]) -> int:
    """Return the integer that a formula has at the given sizes."""
    number = evaluate(formula, sizes)
    if number != int(number):
        raise Unreadable(f"{number} is no integer")
    return int(number)


@dataclass(frozen=True)
class TypeText:
    """A type as it is written: formulas for sizes, names for axes; no dims for ``f32[...]``."""

    dtype: str
    dims: tuple[tuple[Formula, tuple[str, ...]], ...] | None
    partial: tuple[str, ...] = ()
    reduction: str = ""
    root: tuple[str, ...] = ()
    at: tuple[tuple[str, Formula], ...] = ()


@dataclass
class Step:
    """``%results = operation %operands clauses``; calls name a callee and sizes, loops a body."""

    results: list[str]
    op: str
    operands: list[str] = field(default_factory=list)
    clauses: dict[str, Any] = field(default_factory=dict)
    written: TypeText | None = None
    callee: str = ""
    sizes: dict[str, Formula] = field(default_factory=dict)
    body: list["Step"] = field(default_factory=list)


@dataclass
class Function:
    """A function; its last step is ``return``."""

    name: str
    mesh: str
    sizes: dict[str, int]
    arguments: list[tuple[str, TypeText]]
    results: list[TypeText]
    body: list[Step]
    auto: bool = False


AxisText: TypeAlias = tuple[str, list[tuple[str, int]], list[int]]
"""An axis, its factors by level, and its weights."""


@dataclass
class Program:
    """Meshes and functions by name."""

    meshes: dict[str, list[AxisText]]
    functions: dict[str, Function]


def tokens(source: str) -> list[tuple[str, str]]:
    """Cut a text into (kind, text)."""
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(source):
        match = TOKEN.match(source, position)
        if match is None:
            raise Unreadable(f"at {source[position : position + 20]!r}")
        if match.lastgroup != "space":
            found.append((match.lastgroup or "", match.group()))
        position = match.end()
    return [*found, ("end", "")]


class Reader:
    """A recursive descent over tokens."""

    def __init__(self, source: str) -> None:
        self.tokens = tokens(source)
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)][1]

    def kind(self, ahead: int = 0) -> str:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)][0]

    def take(self, *texts: str) -> bool:
        """Step over these tokens if they are next."""
        if all(self.peek(i) == text for i, text in enumerate(texts)):
            self.at += len(texts)
            return True
        return False

    def need(self, text: str) -> None:
        if not self.take(text):
            raise Unreadable(f"{text!r} expected, not {self.peek()!r}")

    def word(self, kind: str) -> str:
        if self.kind() != kind:
            raise Unreadable(f"a {kind} expected, not {self.peek()!r}")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def several(self, item: Callable[[], T], close: str = "") -> list[T]:
        """Read items with commas between them, up to a closing mark if one is given."""
        if close and self.take(close):
            return []
        items = [item()]
        while self.take(","):
            items.append(item())
        if close:
            self.need(close)
        return items

    # Formulas and types

    def formula(self) -> Formula:
        left = self.product()
        while self.peek() in "+-" and self.peek():
            sign = self.word("mark")
            left = Binary(sign, left, self.product())
        return left

    def product(self) -> Formula:
        left = self.atom()
        while self.peek() in ("*", "/"):
            sign = self.word("mark")
            left = Binary(sign, left, self.atom())
        return left

    def atom(self) -> Formula:
        if self.take("-"):
            return Binary("-", Fraction(0), self.atom())
        if self.take("("):
            inner = self.formula()
            self.need(")")
            return inner
        if self.kind() == "number":
            text = self.word("number")
            return Fraction(int(text)) if text.isdigit() else float(text)
        name = self.word("name")
        return float(name) if name in ("inf", "nan") else name

    def axes(self) -> tuple[str, ...]:
        return tuple(self.several(lambda: self.word("name")))

    def dim(self) -> tuple[Formula, tuple[str, ...]]:
        size = self.formula()
        if self.take("@", "("):
            axes = self.axes()
            self.need(")")
            return size, axes
        return size, ((self.word("symbol")[1:],) if self.kind() == "symbol" else ())

    def place(self) -> tuple[str, Formula]:
        axis = self.word("name")
        self.need("=")
        return axis, self.formula()

    def type(self) -> TypeText:
        dtype = self.word("name")
        self.need("[")
        dims = None if self.take("...", "]") else tuple(self.several(self.dim, "]"))
        states: dict[str, Any] = {}
        while self.peek() in ("partial", "root", "at") and self.peek(1) == "(":
            state = self.word("name")
            self.need("(")
            if state == "partial":
                states["reduction"] = self.word("name")
                self.need(":")
            if state == "at":
                states["at"] = states.get("at", ()) + tuple(self.several(self.place))
            else:
                states[state] = states.get(state, ()) + self.axes()
            self.need(")")
        return TypeText(dtype, dims, **states)

    def role(self) -> None:
        if self.peek() in ROLES:
            self.at += 1

    # Steps

    def argument(self) -> tuple[str, TypeText]:
        name = self.word("value")
        self.need(":")
        read = self.type()
        self.role()
        return name, read

    def target(self) -> str:
        name = self.word("value")
        if self.peek() == ":" and self.peek(1) in ROLES:
            self.at += 2
        return name

    def setting(self) -> tuple[str, Formula]:
        name = self.word("name")
        self.need("=")
        return name, self.formula()

    def binding(self) -> tuple[str, str]:
        name = self.word("value")
        self.need("=")
        return name, self.word("value")

    def body(self) -> list[Step]:
        self.need("{")
        steps: list[Step] = []
        while not self.take("}"):
            steps.append(self.step())
        return steps

    def step(self) -> Step:
        if self.peek() in ("return", "yield"):
            op = self.word("name")
            more = self.kind() == "value" and self.peek(1) not in ("=", ":")
            return Step([], op, self.several(lambda: self.word("value")) if more else [])
        results = self.several(self.target)
        self.need("=")
        op = self.word("name")
        if op in ("call", "gradient"):
            return self.call(results, op)
        if op == "repeat":
            return self.repeat(results)
        step = Step(results, op)
        if op == "einsum":
            step.clauses["text"] = self.word("string")[1:-1]
        if self.kind() == "value" and self.peek(1) not in ("=", ":"):
            step.operands = self.several(lambda: self.word("value"))
        self.clauses(step)
        if self.take(":"):
            step.written = self.type()
        return step

    def call(self, results: list[str], op: str) -> Step:
        step = Step(results, op, callee=self.word("symbol"))
        if self.peek() == "(" and self.kind(1) == "name":
            self.need("(")
            step.sizes = dict(self.several(self.setting, ")"))
        self.need("(")
        step.operands = self.several(lambda: self.word("value"), ")")
        while self.peek() in ("wrt", "recompute", "fused"):
            flag = self.word("name")
            step.clauses[flag] = self.several(lambda: self.word("value")) if flag == "wrt" else True
        return step

    def repeat(self, results: list[str]) -> Step:
        step = Step(results, "repeat")
        step.clauses["count"] = self.atom()
        while self.peek() != "{":
            clause = self.word("name")
            if clause in step.clauses:
                raise Unreadable(f"{clause} twice")
            if clause in ("carry", "slice", "with"):
                self.need("(")
                step.clauses[clause] = self.several(self.binding, ")")
            elif clause in ("reverse", "recompute", "fused"):
                step.clauses[clause] = True
            else:
                raise Unreadable(f"repeat has no {clause}")
        step.body = self.body()
        return step

    def clauses(self, step: Step) -> None:
        while self.kind() == "name" and self.peek() not in ("return", "yield"):
            word = self.word("name")
            if word in step.clauses:
                raise Unreadable(f"{word} twice")
            step.clauses[word] = self.clause(step.op, word)

    def clause(self, op: str, word: str) -> Any:
        if word in FLAGS:
            return True
        if word in NAMES:
            return self.word("name")
        if word == "over":
            return self.axes()
        if word in LISTS or (word, op) == ("to", "reshape"):
            self.need("[")
            return None if self.take("...", "]") else self.several(self.formula, "]")
        if word == "to" and op not in TO_NUMBER:
            if self.kind() == "value":
                return self.word("value")
            return self.word("name") if op == "cast" else self.type()
        if (word, op) == ("at", "keep"):
            return self.several(self.place)
        if word not in (
            "dim",
            "by",
            "to",
            "from",
            "at",
            "low",
            "high",
            "value",
            "flops",
            "k",
            "eps",
        ):
            raise Unreadable(f"no clause {word}")
        return self.formula()

    # Declarations

    def skip(self) -> None:
        """Step over a machine."""
        self.word("symbol")
        if self.take("="):
            self.word("symbol")
            if self.take("("):
                self.several(self.setting, ")")
            if self.take("from"):
                self.word("string")
            return
        if self.take("("):
            self.several(self.setting, ")")
        self.need("{")
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self.peek(), 0)
            if self.kind() == "end":
                raise Unreadable("} expected")
            self.at += 1

    def factors(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        while True:
            level = self.word("name") if self.kind() == "name" else ""
            if level:
                self.need(":")
            found.append((level, int(self.word("number"))))
            if not self.take("*"):
                return found

    def axis(self) -> AxisText:
        name = self.word("name")
        self.need("=")
        factors = self.factors()
        weights: list[int] = []
        if self.take("weights"):
            self.need("[")
            weights = self.several(lambda: int(self.word("number")), "]")
        return name, factors, weights

    def function(self) -> Function:
        name = self.word("symbol")
        self.need("(")
        sizes: dict[str, int] = {}
        if self.kind() == "name":
            sizes = {name: integer(value, {}) for name, value in self.several(self.setting, ")")}
            self.need("(")
        arguments = self.several(self.argument, ")")
        self.need("->")
        results: list[TypeText] = []

        def result() -> None:
            if self.kind() == "value":  # the name of a result
                self.at += 1
                self.need(":")
            results.append(self.type())
            self.role()

        if self.take("("):
            self.several(result, ")")
        else:
            result()
        self.need("on")
        mesh = self.word("symbol") if self.kind() == "symbol" else self.word("name")
        auto = self.take("auto")
        if self.take("for"):
            self.word("symbol")
            self.need("from")
            self.word("number")
        return Function(name, mesh, sizes, arguments, results, self.body(), auto)

    def program(self) -> Program:
        read = Program({}, {})
        while self.kind() != "end":
            word = self.word("name")
            if word == "machine":
                self.skip()
            elif word == "mesh":
                name = self.word("symbol")
                self.need("on")
                self.word("symbol")
                self.need("{")
                read.meshes[name] = self.several(self.axis, "}")
            elif word == "func":
                function = self.function()
                read.functions[function.name] = function
            else:
                raise Unreadable(f"a declaration expected, not {word}")
        return read


def program(source: str) -> Program:
    """Read a file."""
    return Reader(source).program()
