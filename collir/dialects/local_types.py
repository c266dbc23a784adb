"""The types and attributes of the local dialect: buffers, tokens, and numbers of each rank."""

from xdsl.ir import Data, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from collir.dialects.tensor import parse_formula
from collir.layout import Dim, DistType, DType
from collir.layout.formulas import Formula
from collir.layout.local import CoordinateTable, LocalBuffer, number_of, rank_text
from collir.layout.sizes import OpenSize


@irdl_attr_definition
class BufferType(Data[LocalBuffer], TypeAttribute):
    """Memory of a rank: ``!local.buffer<f32[4, 8]>``, or ``<f32[4, 8] strides [16, 1]>``."""

    name = "local.buffer"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> LocalBuffer:
        with parser.in_angle_brackets():
            dtype = DType(parser.parse_keyword_in(list(DType)))
            shape = _parse_numbers(parser)
            if parser.parse_optional_keyword("strides") is None:
                return LocalBuffer(dtype, shape)
            strides = _parse_numbers(parser)
            if len(strides) != len(shape):
                parser.raise_error("every dimension has a stride")
            return LocalBuffer.strided(dtype, shape, strides)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data.text(_number_text))


@irdl_attr_definition
class TokenType(ParametrizedAttribute, TypeAttribute):
    """Something that is under way."""

    name = "local.token"


@irdl_attr_definition
class RankNumberAttr(Data[int]):
    """A number of each rank: ``<8 * data.gpu + 3>``, or ``<16 * [3, 1][data.gpu]>``.

    One of size parameters has its value at their defaults too: ``<{4 * batch = 32}>``.
    """

    name = "local.number"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> int:
        with parser.in_angle_brackets():
            return _parse_number(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(_number_text(self.data))


def _number_text(number: int) -> str:
    """Return a number of each rank as it is written in MLIR."""
    text = rank_text(number)
    if isinstance(number, OpenSize) and int(number) != int(number_of(number.formula)):
        return f"{{{text} = {int(number)}}}"
    return text


def _parse_numbers(parser: AttrParser) -> tuple[int, ...]:
    numbers = parser.parse_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: _parse_number(parser)
    )
    return tuple(numbers)


def _parse_number(parser: AttrParser) -> int:
    has_value = parser.parse_optional_punctuation("{") is not None

    def operand() -> Formula:
        number = parser.parse_optional_integer(allow_boolean=False, allow_negative=False)
        if number is not None:
            return Formula.constant(number)
        square = parser.Delimiter.SQUARE
        values = parser.parse_optional_comma_separated_list(square, parser.parse_integer)
        if values is None:
            return Formula.parameter(parser.parse_identifier("a number or a sub-axis"))
        axes = parser.parse_comma_separated_list(square, parser.parse_identifier)
        return Formula.parameter(CoordinateTable(axes, values))

    number = number_of(parse_formula(parser, operand))
    if not has_value:
        return number
    parser.parse_punctuation("=")
    value = parser.parse_integer(allow_boolean=False, allow_negative=True)
    parser.parse_punctuation("}")
    return OpenSize(value, number.formula) if isinstance(number, OpenSize) else value


def buffer_of(value: SSAValue) -> LocalBuffer:
    """Return the buffer that a value is.

    Raises:
        VerifyException: it is none.
    """
    if isinstance(value.type, BufferType):
        return value.type.data
    raise VerifyException(f"expected a buffer (!local.buffer), not {value.type}")


def on_one_device(x: LocalBuffer) -> DistType:
    """Return a buffer as a tensor of a single device."""
    return DistType(x.dtype, tuple(map(Dim, x.shape)))
