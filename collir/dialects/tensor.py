"""Distributed tensors and lists of sub-axes as types and attributes of the IR."""

from xdsl.ir import Data, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from collir.layout import Dim, DistType, DType, Reduction


def _parse_axis_set(parser: AttrParser) -> frozenset[str]:
    names = [parser.parse_identifier()]
    while parser.parse_optional_punctuation(","):
        names.append(parser.parse_identifier())
    if len(set(names)) != len(names):
        parser.raise_error("a sub-axis is named twice")
    return frozenset(names)


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
            partial = root = frozenset[str]()
            reduction = None
            if parser.parse_optional_keyword("partial"):
                parser.parse_punctuation("(")
                reduction = Reduction(parser.parse_keyword_in(list(Reduction)))
                parser.parse_punctuation(":")
                partial = _parse_axis_set(parser)
                parser.parse_punctuation(")")
            if parser.parse_optional_keyword("root"):
                parser.parse_punctuation("(")
                root = _parse_axis_set(parser)
                parser.parse_punctuation(")")
            return DistType(dtype, tuple(dims), partial, reduction, root)

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
        if x.root:
            text += f" root({', '.join(sorted(x.root))})"
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
