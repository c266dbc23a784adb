"""Distributed tensors and lists of sub-axes as types and attributes of the IR."""

from collections.abc import Callable
from typing import Any, cast

from xdsl.ir import Attribute, Data, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.mlir_lexer import PunctuationSpelling

from collir.layout import Dim, DistType, DType, Reduction, place_at
from collir.layout.formulas import Formula, FormulaError, read_formula
from collir.layout.sizes import Size, same_key, sized
from collir.layout.types import Place, place_words


def _parse_axis_set(parser: AttrParser) -> frozenset[str]:
    names = [parser.parse_identifier()]
    while parser.parse_optional_punctuation(","):
        names.append(parser.parse_identifier())
    if len(set(names)) != len(names):
        parser.raise_error("a sub-axis is named twice")
    return frozenset(names)


def _parse_place(parser: AttrParser, place: dict[str, int]) -> dict[str, int]:
    """Return a place with the coordinates that are listed: ``pipe.node = 1, pipe.gpu = 0``."""
    place = dict(place)
    while True:
        axis = parser.parse_identifier()
        parser.parse_punctuation("=")
        if axis in place:
            parser.raise_error("a sub-axis is named twice")
        place[axis] = parser.parse_integer(allow_boolean=False, allow_negative=False)
        if not parser.parse_optional_punctuation(","):
            return place


def size_text(size: int) -> str:
    """Return an integer as it is written in MLIR: ``12``, or ``{3 * batch = 12}``."""
    return f"{{{size.formula} = {size}}}" if isinstance(size, Size) else str(size)


def parse_size(parser: AttrParser, *, allow_negative: bool = True) -> int:
    """Return the integer, with its formula if it has one, that is next."""
    if (size := parse_optional_formula(parser)) is not None:
        return size
    return parser.parse_integer(allow_boolean=False, allow_negative=allow_negative)


def parse_optional_formula(parser: AttrParser) -> int | None:
    """Return the integer that is next with a formula in braces, or None."""
    if parser.parse_optional_punctuation("{") is None:
        return None

    def operand() -> Formula:
        number = parser.parse_optional_integer(allow_boolean=False, allow_negative=False)
        if number is not None:
            return Formula.constant(number)
        return Formula.parameter(parser.parse_identifier("a number or a parameter"))

    formula = parse_formula(parser, operand)
    parser.parse_punctuation("=")
    size = sized(parser.parse_integer(allow_boolean=False, allow_negative=True), formula)
    parser.parse_punctuation("}")
    return size


def parse_formula(parser: AttrParser, operand: Callable[[], Formula]) -> Formula:
    """Return the next formula, with operands parsed by a function."""

    def accept(token: str) -> bool:
        assert token in _PUNCTUATION
        return parser.parse_optional_punctuation(_PUNCTUATION[token]) is not None

    try:
        return read_formula(accept, operand)
    except FormulaError as error:
        parser.raise_error(str(error))


_PUNCTUATION: dict[str, PunctuationSpelling] = {
    "+": "+",
    "-": "-",
    "*": "*",
    "/": "/",
    "(": "(",
    ")": ")",
}


@irdl_attr_definition
class DistTensorType(Data[DistType], TypeAttribute):
    """A distributed tensor: ``!coll.dist<f32[64@data.gpu, 8] partial(sum: data.node)>``.

    A dimension that is sharded over several sub-axes lists them major to minor:
    ``64@data.node@data.gpu``.
    """

    name = "coll.dist"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> DistType:
        with parser.in_angle_brackets():
            dtype = DType(parser.parse_keyword_in(list(DType)))
            dims = parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, lambda: cls._parse_dim(parser)
            )
            partial = frozenset[str]()
            reduction, place = None, dict[str, int]()
            if parser.parse_optional_keyword("partial"):
                parser.parse_punctuation("(")
                reduction = Reduction(parser.parse_keyword_in(list(Reduction)))
                parser.parse_punctuation(":")
                partial = _parse_axis_set(parser)
                parser.parse_punctuation(")")
            if parser.parse_optional_keyword("root"):
                parser.parse_punctuation("(")
                place = dict.fromkeys(_parse_axis_set(parser), 0)
                parser.parse_punctuation(")")
            if parser.parse_optional_keyword("at"):
                parser.parse_punctuation("(")
                place = _parse_place(parser, place)
                parser.parse_punctuation(")")
            return DistType(dtype, tuple(dims), partial, reduction, place_at(place))

    @staticmethod
    def _parse_dim(parser: AttrParser) -> Dim:
        size = parse_size(parser, allow_negative=False)
        axes: list[str] = []
        while (axis := parser.parse_optional_symbol_name()) is not None:
            axes.append(axis.data)
        return Dim(size, tuple(axes))

    def print_parameter(self, printer: Printer) -> None:
        x = self.data
        dims = ", ".join("@".join((size_text(dim.size), *dim.axes)) for dim in x.dims)
        text = f"{x.dtype}[{dims}]"
        if x.partial:
            text += f" partial({x.reduction}: {', '.join(sorted(x.partial))})"
        text = " ".join([text, *place_words(x.place)])
        with printer.in_angle_brackets():
            printer.print_string(text)


@irdl_attr_definition
class AxesAttr(Data[tuple[str, ...]]):
    """An ordered list of sub-axes: ``<data.node, data.gpu>``."""

    name = "coll.axes"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[str, ...]:
        return tuple(
            parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parser.parse_identifier)
        )

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(", ".join(self.data))


@irdl_attr_definition
class PlaceAttr(Data[Place]):
    """A coordinate on each of some sub-axes: ``<pipe.gpu = 0, pipe.node = 1>``; maybe of none."""

    name = "coll.place"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Place:
        parser.parse_punctuation("<")
        if parser.parse_optional_punctuation(">"):
            return ()
        place = place_at(_parse_place(parser, {}))
        parser.parse_punctuation(">")
        return place

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(", ".join(f"{axis} = {n}" for axis, n in self.data))


def _same_data(self: Data[Any], other: object) -> bool:
    """Return whether attributes with sizes are equal, formulas included."""
    return type(other) is type(self) and same_key(self.data, other.data)


def _hash_of_data(self: Data[Any]) -> int:
    return hash(self.data)


@irdl_attr_definition
class SizesAttr(Data[tuple[int, ...]]):
    """A list of integers, such as a shape or a permutation."""

    name = "coll.sizes"

    __eq__, __hash__ = _same_data, _hash_of_data

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[int, ...]:
        return tuple(
            parser.parse_comma_separated_list(parser.Delimiter.ANGLE, lambda: parse_size(parser))
        )

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(", ".join(map(size_text, self.data)))


@irdl_attr_definition
class SizeAttr(Data[int]):
    """An integer argument with a formula: ``<{batch = 8}>``."""

    name = "coll.size"

    __eq__, __hash__ = _same_data, _hash_of_data

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> int:
        with parser.in_angle_brackets():
            return parse_size(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(size_text(self.data))


@irdl_attr_definition
class BindingsAttr(Data[tuple[tuple[str, int], ...]]):
    """The values of parameters, by name: ``<batch = {2 * n = 16}, hidden = 64>``."""

    name = "coll.bindings"

    __eq__, __hash__ = _same_data, _hash_of_data

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[tuple[str, int], ...]:
        def binding() -> tuple[str, int]:
            name = parser.parse_identifier("the name of a parameter")
            parser.parse_punctuation("=")
            return name, parse_size(parser)

        bindings = parser.parse_comma_separated_list(parser.Delimiter.ANGLE, binding)
        if len(dict(bindings)) != len(bindings):
            parser.raise_error("a parameter is named twice")
        return tuple(bindings)

    def print_parameter(self, printer: Printer) -> None:
        listed = ", ".join(f"{name} = {size_text(size)}" for name, size in self.data)
        with printer.in_angle_brackets():
            printer.print_string(listed)


def same_type(a: SSAValue, b: SSAValue) -> bool:
    """Return whether the types of two values agree."""
    return agree(a.type, b.type)


def agree(x: Attribute, y: Attribute) -> bool:
    """Return whether types are equal, or are types of tensors that agree."""
    return x == y or (
        isinstance(x, DistTensorType) and isinstance(y, DistTensorType) and x.data.agrees(y.data)
    )


def dist_type(value: SSAValue) -> DistType:
    """Return the distributed type of a value.

    Raises:
        VerifyException: the value is not a distributed tensor.
    """
    attribute = value.type
    if attribute.__class__ is DistTensorType:  # as fast as can be: isinstance is slow here
        return cast("DistTensorType", attribute).data
    raise VerifyException(f"expected a distributed tensor (!coll.dist), not {attribute}")
