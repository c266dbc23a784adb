"""Distributed tensors and lists of sub-axes as types and attributes of the IR."""

from xdsl.ir import Data, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from collir.layout import Dim, DistType, DType, Reduction, place_at
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
        size = parser.parse_integer(allow_boolean=False, allow_negative=False)
        axes: list[str] = []
        while (axis := parser.parse_optional_symbol_name()) is not None:
            axes.append(axis.data)
        return Dim(size, tuple(axes))

    def print_parameter(self, printer: Printer) -> None:
        x = self.data
        dims = ", ".join("@".join((str(dim.size), *dim.axes)) for dim in x.dims)
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
    """A coordinate on each of some sub-axes: ``<pipe.gpu = 0, pipe.node = 1>``."""

    name = "coll.place"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Place:
        with parser.in_angle_brackets():
            return place_at(_parse_place(parser, {}))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(", ".join(f"{axis} = {n}" for axis, n in self.data))


@irdl_attr_definition
class SizesAttr(Data[tuple[int, ...]]):
    """A list of integers, such as a shape or a permutation."""

    name = "coll.sizes"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[int, ...]:
        return tuple(
            parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parser.parse_integer)
        )

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(", ".join(map(str, self.data)))


def dist_type(value: SSAValue) -> DistType:
    """Return the distributed type of a value.

    Raises:
        VerifyException: the value is not a distributed tensor.
    """
    if not isinstance(value.type, DistTensorType):
        raise VerifyException(f"expected a distributed tensor (!coll.dist), not {value.type}")
    return value.type.data
