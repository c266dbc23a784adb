"""The types and attributes of the local dialect: buffers, tokens, and numbers of each rank."""

from xdsl.ir import Data, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from collir.layout import Dim, DistType, DType
from collir.layout.local import Affine, LocalBuffer


@irdl_attr_definition
class BufferType(Data[LocalBuffer], TypeAttribute):
    """Memory of a rank: ``!local.buffer<f32[4, 8]>``, or ``<f32[4, 8] strides [16, 1]>``."""

    name = "local.buffer"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> LocalBuffer:
        with parser.in_angle_brackets():
            dtype = DType(parser.parse_keyword_in(list(DType)))
            shape = _parse_integers(parser)
            if parser.parse_optional_keyword("strides") is None:
                return LocalBuffer(dtype, shape)
            strides = _parse_integers(parser)
            if len(strides) != len(shape):
                parser.raise_error("every dimension has a stride")
            return LocalBuffer.strided(dtype, shape, strides)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.data))


@irdl_attr_definition
class TokenType(ParametrizedAttribute, TypeAttribute):
    """Something that is under way."""

    name = "local.token"


@irdl_attr_definition
class AffineAttr(Data[Affine]):
    """A number of each rank: ``<8 * data.gpu + 3>``."""

    name = "local.affine"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Affine:
        with parser.in_angle_brackets():
            return _parse_affine(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.data))


def _parse_integers(parser: AttrParser) -> tuple[int, ...]:
    return tuple(
        parser.parse_comma_separated_list(
            parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_boolean=False)
        )
    )


def _parse_affine(parser: AttrParser) -> Affine:
    number, sign = Affine(), 1
    while True:
        factor = parser.parse_optional_integer(allow_boolean=False, allow_negative=True)
        if factor is None:
            term = Affine.of(0, {parser.parse_identifier("a sub-axis"): 1})
        elif parser.parse_optional_punctuation("*"):
            term = Affine.of(0, {parser.parse_identifier("a sub-axis"): factor})
        else:
            term = Affine(factor)
        number += term * sign
        if parser.parse_optional_punctuation("+"):
            sign = 1
        elif parser.parse_optional_punctuation("-"):
            sign = -1
        else:
            return number


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
