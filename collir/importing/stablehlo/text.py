"""The text of StableHLO: functions of operations, in the pretty and in the generic form.

Both are read without a table of operations. In the generic form an operation says all of its parts;
in the pretty one its operands are the values in front of its type, and what is named there, as in
``dims = [0, 1]``, are its attributes.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from collir.importing.stablehlo.locations import Locations
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position

MOST_BYTES = 2**28
"""The largest text that is read."""

_DEEPEST = 64
"""The most brackets and regions that are open at once."""

_MOST_ELEMENTS = 2**26
"""The most elements of a constant."""


@dataclass(frozen=True)
class StableHloTensor:
    """The type of an array; None stands for sizes that depend on data.

    Attributes:
        dtype: as MLIR names it, such as ``f32`` or ``i1``.
    """

    sizes: tuple[int | None, ...]
    dtype: str


@dataclass(frozen=True)
class StableHloValue:
    """A value that a region or a function takes.

    Attributes:
        of: what the user calls it, such as ``params['up']``.
    """

    name: str
    type: StableHloTensor
    of: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Region:
    """Operations, and the values that they take from whoever runs them."""

    takes: tuple[StableHloValue, ...]
    operations: tuple["StableHloOperation", ...]


@dataclass(frozen=True, eq=False)
class StableHloOperation:
    """An operation.

    Attributes:
        op: its name with its dialect, such as ``stablehlo.add``.
        results: the names of its results: of several, ``%3#0`` and so on.
        attributes: numbers, names, lists, arrays; those of other dialects as their text. In the
            pretty form, words without a name are under ``words``, a list without one is under
            ``list``, and names of functions are under ``callee``.
        types: those of its results.
        at: where it stands.
        source: the line of the user's Python; empty if it is not known.
        path: the scopes of JAX that it is in.
    """

    op: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    attributes: Mapping[str, Any]
    types: tuple[Any, ...]
    regions: tuple[Region, ...]
    at: Position
    source: str = ""
    path: str = ""


@dataclass(frozen=True)
class StableHloFunction:
    """A function.

    Attributes:
        results: the attributes of each result.
    """

    name: str
    body: Region
    results: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class StableHloModule:
    """A module.

    Attributes:
        meshes: the axes of each mesh, with their sizes, in order.
        partitions: the devices that it is for; 1 if it does not say.
    """

    functions: Mapping[str, StableHloFunction]
    meshes: Mapping[str, Mapping[str, int]]
    partitions: int


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


_TOKENS = re.compile(
    r"""\s+|//[^\n]*
    |(?P<string>"(?>[^"\\\n]|\\.)*")
    |(?P<type>tensor<(?>[^<>]|<[^<>]*>)*>|![\w.]+(?:<[^<>]*>)?)
    |(?P<dense>(?:dense|array|dense_resource)<(?>"[^"\n]*"|[^<>"])*>)
    |(?P<attribute>\#[\w.]+(?:<(?>->|[^<>]|<(?>[^<>]|<[^<>]*>)*>)*>)?)
    |(?P<value>%[\w$.\-]+(?:\#\d+)?)
    |(?P<symbol>@(?:[\w$.\-]+|"(?>[^"\n])*"))
    |(?P<block>\^[\w$.\-]+)
    |(?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*(?:[eE][+\-]?\d+)?)?))
    |(?P<word>[A-Za-z_][\w$.]*)
    |(?P<sign>->|[()\[\]{}<>:=,?*+])""",
    re.VERBOSE,
)

_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


def read(text: str, file: str) -> StableHloModule:
    """Return the module of a text.

    Raises:
        DiagnosticError: it is no StableHLO, or it ends too early.
    """
    return _Reader(text, file).module()


class _Reader:
    def __init__(self, text: str, file: str):
        self.text, self.file = text, file
        self.lines = [0, *(match.end() for match in re.finditer("\n", text))]
        if len(text) > MOST_BYTES:
            raise self.fault(f"the file has {len(text)} characters, more than {MOST_BYTES}", 0)
        self.locations = Locations(text)
        self.tokens = self._tokens()
        self.place, self.depth = 0, 0
        self.value_type: Any = None
        self.functions: dict[str, StableHloFunction] = {}
        self.meshes: dict[str, dict[str, int]] = {}

    def _tokens(self) -> list[_Token]:
        made: list[_Token] = []
        at, text, match_at = 0, self.text, _TOKENS.match
        while at < len(text):
            match = match_at(text, at)
            if match is None:
                raise self.fault(f"{text[at]!r} cannot stand here", at)
            if match.lastgroup is not None:
                made.append(_Token(match.lastgroup, match[0], at))
            at = match.end()
        return [*made, *[_Token("end", "the end of the file", len(text))] * 3]

    # --- tokens ---------------------------------------------------------------------------------

    def position(self, at: int) -> Position:
        line = bisect_right(self.lines, at)
        return Position(self.file, line, at - self.lines[line - 1] + 1)

    def fault(self, message: str, at: int | None = None) -> DiagnosticError:
        at = self.tokens[self.place].at if at is None else at
        return DiagnosticError(Diagnostic(message, self.position(at)))

    @property
    def token(self) -> _Token:
        return self.tokens[self.place]

    def next(self) -> _Token:
        token = self.tokens[self.place]
        if token.kind == "end":
            raise self.fault("the file ends too early")
        self.place += 1
        return token

    def found(self, *texts: str) -> bool:
        """Take the next token if it is one of these."""
        if self.token.text in texts and self.token.kind != "string":
            self.place += 1
            return True
        return False

    def expect(self, text: str) -> _Token:
        if self.token.text != text and self.token.kind != "end":
            raise self.fault(f"{text!r} is expected, not {self.token.text[:40]!r}")
        return self.next()

    def kind(self, kind: str, what: str) -> str:
        if self.token.kind not in (kind, "end"):
            raise self.fault(f"{what} is expected, not {self.token.text[:40]!r}")
        return self.next().text

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.fault(f"more than {_DEEPEST} brackets are open")

    def skip(self, opened: str) -> str:
        """Skip what is open until it closes; return its text."""
        start, stack = self.token.at, [_CLOSING[opened]]
        while stack:
            token = self.next()
            if token.kind == "sign" and token.text in _CLOSING:
                stack.append(_CLOSING[token.text])
            elif token.kind == "sign" and token.text == stack[-1]:
                stack.pop()
        return self.text[start : self.tokens[self.place - 1].at]

    # --- attributes and types -------------------------------------------------------------------

    def type(self) -> Any:
        """Read a type: an array, or another one as its text."""
        self.deeper()
        token = self.next()
        if token.text == "(":  # of a function
            self.place -= 1
            made: Any = self.signature()
        elif token.kind == "word" and self.token.text == "<":
            self.place += 1
            made = f"{token.text}<{self.skip('<')}>"
        elif token.text.startswith("tensor<"):
            made = self.tensor(token)
        elif token.kind in ("type", "word"):
            made = token.text
        else:
            raise self.fault(f"a type is expected, not {token.text[:40]!r}", token.at)
        self.depth -= 1
        return made

    def tensor(self, token: _Token) -> StableHloTensor:
        inside = re.sub(r",\s*#.*", "", token.text[7:-1], flags=re.DOTALL).strip()
        *sizes, dtype = re.split(r"(?<=[\d?])x", inside)
        if not all(size == "?" or (size.isdigit() and len(size) < _DIGITS) for size in sizes):
            raise self.fault(f"{token.text[:60]} is no type of an array", token.at)
        return StableHloTensor(tuple(None if size == "?" else int(size) for size in sizes), dtype)

    def types(self) -> list[Any]:
        """Read types in parentheses, or one without."""
        if not self.found("("):
            return [self.type()]
        made: list[Any] = []
        while not self.found(")"):
            made.append(self.type())
            if self.token.text != ")":
                _ = self.expect(",")
        return made

    def signature(self) -> tuple[list[Any], list[Any]]:
        given = self.types()
        _ = self.expect("->")
        return given, self.types()

    def dictionary(self) -> dict[str, Any]:
        """Read attributes behind their opening brace."""
        self.deeper()
        made: dict[str, Any] = {}
        while not self.found("}"):
            token = self.next()
            if token.kind not in ("word", "string"):
                raise self.fault(f"a name is expected, not {token.text[:40]!r}", token.at)
            name = token.text.strip('"')
            made[name] = self.value() if self.found("=") else True
            if self.token.text != "}":
                _ = self.expect(",")
        self.depth -= 1
        return made

    def value(self) -> Any:
        """Read the value of an attribute."""
        self.deeper()
        token = self.next()
        if token.kind == "dense":
            made: Any = self.dense(token)
        elif token.kind == "number":
            made = _scalar(token.text)
            if self.tokens[self.place + 1].kind == "word" and self.found(":"):
                _ = self.type()
        elif token.kind == "string":
            made = token.text[1:-1]
        elif token.text == "[":
            made = self.listed("]")
            while self.token.text in ("x", "->") and self.tokens[self.place + 1].text == "[":
                self.place += 2
                made = made if made and isinstance(made[0], tuple) else [tuple(made)]
                made.append(tuple(self.listed("]")))
        elif token.text == "{":
            made = self.braces()
        elif token.text == "<":
            made = f"<{self.skip('<')}>"
        elif token.text in ("true", "false"):
            made = token.text == "true"
        elif token.text == "(" or token.kind == "type":
            self.place -= 1
            made = self.type()
        else:
            made = token.text
        self.depth -= 1
        return made

    def braces(self) -> Any:
        """Read a set of values, or attributes, behind an opening brace."""
        ahead = self.tokens[self.place : self.place + 2]
        if len(ahead) == 2 and ahead[0].kind == "string" and ahead[1].text in (",", "}"):
            return self.listed("}")
        return self.dictionary()

    def listed(self, end: str) -> list[Any]:
        made: list[Any] = []
        while not self.found(end):
            if self.found(":") and made:  # a range
                made[-1] = (
                    *(made[-1] if isinstance(made[-1], tuple) else (made[-1],)),
                    self.value(),
                )
            else:
                made.append(self.value())
            if self.token.text not in (end, ":"):
                _ = self.expect(",")
        return made

    def dense(self, token: _Token) -> Any:
        kind, _, inside = token.text[:-1].partition("<")
        if kind == "array":
            _, _, numbers = inside.partition(":")
            try:
                return [_number(n) for n in numbers.replace(",", " ").split()]
            except ValueError as error:
                raise self.fault("these are no numbers", token.at) from error
        if kind == "dense_resource" or not self.found(":"):
            raise self.fault("the elements of this constant are not in the text", token.at)
        type = self.value_type = self.type()
        if not isinstance(type, StableHloTensor) or None in type.sizes:
            raise self.fault("this is no constant of a known size", token.at)
        made = _array(inside, type)
        if made is None:
            raise self.fault(f"these are no elements of an array of {type.dtype}", token.at)
        return made

    # --- operations -----------------------------------------------------------------------------

    def module(self) -> StableHloModule:
        """Read all of the text."""
        while self.token.kind == "attribute":  # aliases, which were read
            self.alias()
        if self.token.kind == "end":
            raise self.fault("the file is empty: it begins with `module`")
        is_generic = self.token.text in ('"builtin.module"', '"module"')
        if not is_generic and self.token.text not in ("module", "builtin.module"):
            raise self.fault("this is no StableHLO: it begins with `module`")
        attributes: dict[str, Any] = {}
        if is_generic:
            operation = self.operation()
            attributes = dict(operation.attributes)
        else:
            self.place += 1
            if self.token.kind == "symbol":
                self.place += 1
            if self.found("attributes"):
                _ = self.expect("{")
                attributes = self.dictionary()
            _ = self.expect("{")
            _ = self.region()
            self.location()
        while self.token.kind == "attribute":
            self.alias()
        if self.token.kind != "end":
            raise self.fault("nothing stands behind the module")
        if not self.functions:
            raise self.fault("the module has no functions", 0)
        count = attributes.get("mhlo.num_partitions", 1)
        return StableHloModule(self.functions, self.meshes, count if isinstance(count, int) else 1)

    def alias(self) -> None:
        self.place += 1
        _ = self.expect("=")
        if self.found("loc"):
            _ = self.expect("(")
            _ = self.skip("(")
        else:
            _ = self.value()

    def location(self) -> tuple[str, str]:
        """Read the location behind an operation: the line of the user, and the name there."""
        if self.token.text != "loc" or self.tokens[self.place + 1].text != "(":
            return "", ""
        self.place += 2
        return self.locations.of(self.skip("("))

    def region(self) -> Region:
        """Read operations until a brace closes."""
        self.deeper()
        takes: list[StableHloValue] = []
        if self.token.kind == "block":
            self.place += 1
            takes = self.parameters() if self.token.text == "(" else []
            _ = self.expect(":")
        made: list[StableHloOperation] = []
        while not self.found("}"):
            if self.token.kind == "block":
                raise self.fault("a region has one block")
            if self.token.text in ("func.func", "sdy.mesh"):
                self.function() if self.token.text == "func.func" else self.mesh()
            else:
                made.append(self.operation())
        self.depth -= 1
        return Region(tuple(takes), tuple(made))

    def parameters(self) -> list[StableHloValue]:
        _ = self.expect("(")
        made: list[StableHloValue] = []
        while not self.found(")"):
            name = self.kind("value", "a value")
            _ = self.expect(":")
            type = self.type()
            attributes = self.dictionary() if self.found("{") else {}
            _, of = self.location()
            made.append(StableHloValue(name, type, of, attributes))
            if self.token.text != ")":
                _ = self.expect(",")
        return made

    def function(self) -> None:
        """Read a function in its pretty form."""
        at = self.next().at
        while self.token.kind == "word":  # its visibility
            self.place += 1
        name = self.kind("symbol", "the name of a function")[1:].strip('"')
        takes = self.parameters()
        results: list[Mapping[str, Any]] = []
        if self.found("->"):
            if not self.found("("):
                _ = self.type()
                results.append({})
            else:
                while not self.found(")"):
                    _ = self.type()
                    results.append(self.dictionary() if self.found("{") else {})
                    if self.token.text != ")":
                        _ = self.expect(",")
        if self.found("attributes"):
            _ = self.expect("{")
            _ = self.dictionary()
        _ = self.expect("{")
        body = self.region()
        _ = self.location()
        self.add(StableHloFunction(name, Region(tuple(takes), body.operations), tuple(results)), at)

    def add(self, function: StableHloFunction, at: int) -> None:
        if function.name in self.functions:
            raise self.fault(f"there are two functions @{function.name}", at)
        self.functions[function.name] = function

    def mesh(self) -> None:
        """Read `sdy.mesh @mesh = <["data"=2, "model"=4]>`."""
        at = self.next().at
        name = self.kind("symbol", "the name of a mesh")
        _ = self.expect("=")
        _ = self.expect("<")
        self.add_mesh(name, self.skip("<"), at)
        if self.found("{"):
            _ = self.dictionary()
        _ = self.location()

    def add_mesh(self, name: str, text: str, at: int) -> None:
        if "device_ids" in text:
            raise self.fault("a mesh of listed devices is not read: list them in order", at)
        self.meshes[name] = {axis: int(size) for axis, size in
                             re.findall(r'"([^"]+)"\s*=\s*(\d{1,14})', text)}  # fmt: skip

    def operation(self) -> StableHloOperation:
        """Read an operation with its results."""
        at = self.token.at
        results: list[str] = []
        while self.token.kind == "value":
            name = self.next().text
            if self.found(":"):
                count = self.kind("number", "the number of results")
                if not count.isdigit() or int(count) > _MOST_RESULTS:
                    raise self.fault(f"there are not {count} results", at)
                results += [f"{name}#{n}" for n in range(int(count))]
            else:
                results.append(name)
            _ = self.expect(",") if self.token.text == "," else self.expect("=")
        if self.token.kind == "string":
            return self.generic(tuple(results), at)
        op = self.kind("word", "an operation")
        if op in ("call", "return"):
            op = f"func.{op}"
        return self.pretty(op, tuple(results), at)

    def generic(self, results: tuple[str, ...], at: int) -> StableHloOperation:
        op = self.next().text[1:-1]
        _ = self.expect("(")
        operands: list[str] = []
        while not self.found(")"):
            operands.append(self.kind("value", "a value"))
            if self.token.text != ")":
                _ = self.expect(",")
        attributes: dict[str, Any] = {}
        if self.found("<"):
            _ = self.expect("{")
            attributes |= self.dictionary()
            _ = self.expect(">")
        regions: list[Region] = []
        if [x.text for x in self.tokens[self.place : self.place + 2]] == ["(", "{"]:
            self.place += 1
            while not self.found(")"):
                _ = self.expect("{")
                regions.append(self.region())
                if self.token.text != ")":
                    _ = self.expect(",")
        if self.found("{"):
            attributes |= self.dictionary()
        _ = self.expect(":")
        _, types = self.signature()
        source, path = self.location()
        made = StableHloOperation(op, results, tuple(operands), attributes, tuple(types),
            tuple(regions),
                         self.position(at), source, path)  # fmt: skip
        if op in ("func.func", "sdy.mesh", "builtin.module"):
            self.declared(made, at)
        else:
            self.checked(made, at)
        return made

    def declared(self, x: StableHloOperation, at: int) -> None:
        """Keep a function or a mesh in its generic form."""
        name = str(x.attributes.get("sym_name", ""))
        if x.op == "func.func" and x.regions:
            own: list[Any] = x.attributes.get("arg_attrs") or [{}] * len(x.regions[0].takes)
            takes = [StableHloValue(v.name, v.type, v.of, a)
                     for v, a in zip(x.regions[0].takes, own, strict=False)]  # fmt: skip
            results = tuple(x.attributes.get("res_attrs") or ())
            self.add(
                StableHloFunction(name, Region(tuple(takes), x.regions[0].operations), results), at
            )
        elif x.op == "sdy.mesh":
            self.add_mesh(f"@{name}", str(x.attributes.get("mesh", "")), at)

    def checked(self, x: StableHloOperation, at: int) -> None:
        if len(x.results) != len(x.types):
            raise self.fault(f"{x.op} has {len(x.types)} results, not {len(x.results)}", at)

    def pretty(self, op: str, results: tuple[str, ...], at: int) -> StableHloOperation:
        """Read an operation behind its name: the text in front of its type, by its kind."""
        operands: list[str] = []
        attributes: dict[str, Any] = {}
        words: list[str] = []
        regions: list[Region] = []
        takes: list[str] = []
        types: list[Any] = []
        depth = 0
        while self.token.text != ":" or depth:
            token = self.token
            if token.kind == "value":
                self.place += 1
                if op == "stablehlo.while" and self.found("="):
                    takes.append(token.text)
                elif self.token.text == ":" and op == "sdy.manual_computation":
                    self.place += 1
                    _ = self.type()
                else:
                    operands.append(token.text)
            elif token.kind == "symbol":
                attributes["callee"] = self.next().text[1:].strip('"')
            elif token.kind == "word" and self.tokens[self.place + 1].text == "=":
                self.place += 2
                attributes[token.text] = self.value()
            elif token.text in ("(", ")"):
                depth += 1 if token.text == "(" else -1
                self.place += 1
            elif token.text == "{":
                self.place += 1
                if op == "sdy.manual_computation":
                    regions.append(self.region())
                else:
                    attributes |= self.dictionary()
            elif token.text == "[":
                attributes["list"] = self.value()
            elif token.text == "<":
                attributes["sharding"] = self.value()
            elif token.kind == "dense":
                attributes["value"] = self.value()
                types.append(self.value_type)
                break
            elif token.kind == "number":
                words.append(self.next().text)
            elif token.kind in ("word", "string", "attribute"):
                words.append(self.next().text.strip('"'))
            elif token.text in (",", ":"):
                self.place += 1
            else:
                if op.endswith("return") and not operands:
                    break
                raise self.fault(f"{token.text[:40]!r} cannot stand in {op}")
            if op.endswith("return") and not operands and self.token.text != ",":
                break  # nothing is returned
        if self.found(":"):
            types = self.typed()
        given = types
        if self.found("->"):
            types = self.types()
        elif len(types) != len(results):
            types = types[-1:]
        if op.endswith("return"):
            types = []
        if op == "stablehlo.while":
            values = tuple(
                StableHloValue(name, type) for name, type in zip(takes, given, strict=False)
            )
            for word in ("cond", "do"):
                _ = self.expect(word)
                _ = self.expect("{")
                regions.append(Region(values, self.region().operations))
        if op == "stablehlo.reduce":  # each array stands in front of its initial value
            operands = [*operands[::2], *operands[1::2]]
        if op == "stablehlo.reduce" and self.found("reducer"):
            values = tuple(self.reducer())
            _ = self.expect("{")
            regions.append(Region(values, self.region().operations))
        source, path = self.location()
        if words:
            attributes["words"] = words
        made = StableHloOperation(op, results, tuple(operands), attributes, tuple(types),
            tuple(regions),
                         self.position(at), source, path)  # fmt: skip
        self.checked(made, at)
        return made

    def typed(self) -> list[Any]:
        """Read the types behind a colon; types in parentheses are those of operands."""
        if self.token.text == "(":
            return self.types()
        made = [self.type()]
        while self.found(","):
            made.append(self.type())
        return made

    def reducer(self) -> list[StableHloValue]:
        """Read the elements of a reducer: both of each array, but all first ones come first."""
        pairs: list[list[StableHloValue]] = []
        while self.token.text == "(":
            pairs.append(self.parameters())
            _ = self.found(",")
        return [x for part in zip(*pairs, strict=False) for x in part]


_DIGITS = 15
"""One more than the most digits of a size."""

_MOST_RESULTS = 2**16
"""The most results of an operation."""

DTYPES: dict[str, Any] = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "i1": np.bool_,
    "ui64": np.uint64, "ui32": np.uint32, "ui16": np.uint16, "ui8": np.uint8, "index": np.int64,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2,
}  # fmt: skip
"""The dtypes of constants that are read."""


def _scalar(text: str) -> int | float:
    if "x" in text:
        return int(text, 16)
    return int(text) if re.fullmatch(r"-?\d{1,20}", text) else float(text)


def _number(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return _scalar(text)


def _array(text: str, type: StableHloTensor) -> "np.ndarray[Any, Any] | None":
    """Return the elements of a constant; None if they are no such."""
    dtype = DTYPES.get(type.dtype)
    sizes = [n or 0 for n in type.sizes]
    count = 1
    for n in sizes:
        count *= n
    if dtype is None or count > _MOST_ELEMENTS:
        return None
    own: np.dtype[Any] = np.dtype(dtype)
    text = text.strip()
    try:
        if text.startswith('"'):
            data = bytes.fromhex(text.strip('"').removeprefix("0x"))
            if own.kind == "b":
                if len(data) == 1:
                    return np.broadcast_to(np.bool_(data[0] != 0), sizes)
                bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
                return bits[:count].astype(bool).reshape(sizes)
            elements: Any = np.frombuffer(data, own)
        else:
            listed = re.sub(r"[\[\],]", " ", text).split()
            elements = np.array([_element(x, own) for x in listed]).astype(own)
    except (ValueError, OverflowError):
        return None
    if elements.size == 1:
        return np.broadcast_to(elements.reshape(()), sizes)
    return elements.reshape(sizes) if elements.size == count else None


def _element(text: str, dtype: "np.dtype[Any]") -> Any:
    """Return an element, which may be written by its bits."""
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("0x") and dtype.kind not in "iu":
        bits = np.array([int(text, 16)], f"u{dtype.itemsize}")
        return bits.view(dtype)[0]
    return int(text, 0) if dtype.kind in "iu" else float(text)
