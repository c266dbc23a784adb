"""The coll dialect: distributed tensors, collectives over sub-axes, and what is local.

Operations are typed by the rules of ``collir.layout.rules``: each has a ``rule`` that gives the
type of its result, used by ``make`` to infer it and by the verifier to check it. All are ``Pure``:
in a single SPMD program every device runs the same operations, so removing an unused one or
merging equal ones happens on all of them alike.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self

from xdsl.dialects.builtin import I64, IntegerAttr, StringAttr, UnitAttr
from xdsl.interfaces import HasFolderInterface
from xdsl.ir import Attribute, Data, Dialect, Operation, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from collir.dialects.machine import NumberAttr, mesh_of
from collir.layout import (
    Dim,
    DistType,
    DType,
    LayoutError,
    Mesh,
    MeshError,
    Reduction,
    check_type,
    rules,
)
from collir.layout.algorithms import check_algorithm
from collir.machine import MachineError

# ---------------------------------------------------------------------------------------------
# Attributes and types
# ---------------------------------------------------------------------------------------------


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

    Dimensions sharded over several sub-axes list them major to minor: ``64@data.node@data.gpu``.
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
    """Integers in order: dimensions, a shape, a permutation, an amount of padding."""

    name = "coll.sizes"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[int, ...]:
        return tuple(
            parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parser.parse_integer)
        )

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(", ".join(map(str, self.data)))


# ---------------------------------------------------------------------------------------------
# Operations: what they share
# ---------------------------------------------------------------------------------------------


Operands = Sequence[DistType]
Properties = Mapping[str, Attribute]
Folded = Sequence[SSAValue | Attribute] | None


def dist_type(value: SSAValue) -> DistType:
    """The distributed type of a value.

    Raises:
        VerifyException: the value is not a distributed tensor.
    """
    if not isinstance(value.type, DistTensorType):
        raise VerifyException(f"expected a distributed tensor (!coll.dist), not {value.type}")
    return value.type.data


class CollOp(IRDLOperation, ABC):
    """An operation on distributed tensors, with one result typed by a rule of the layouts."""

    result = result_def(DistTensorType)

    traits = traits_def(Pure())

    @classmethod
    @abstractmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        """The type of the result.

        Raises:
            LayoutError: the step is not well typed.
        """

    @classmethod
    def make(cls, mesh: Mesh, *operands: SSAValue, **properties: Attribute) -> Self:
        """An operation with its result type inferred.

        Raises:
            LayoutError: the step is not well typed.
        """
        result = cls.checked(mesh, [dist_type(operand) for operand in operands], properties)
        return cls.create(
            operands=operands, properties=properties, result_types=[DistTensorType(result)]
        )

    @classmethod
    def checked(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        """The type of the result, once the algorithm that is asked for is known.

        Raises:
            LayoutError: the step is not well typed, or there is no such algorithm.
        """
        result = cls.rule(mesh, operands, properties)
        if (algorithm := properties.get("algorithm")) is not None:
            assert isinstance(algorithm, StringAttr)
            check_algorithm(cls.name.partition(".")[2], algorithm.data)
        return result

    def infer(self) -> DistType:
        """What the rule says of this operation where it stands.

        Raises:
            LayoutError: the step is not well typed.
            VerifyException: no mesh, or an operand that is not a distributed tensor.
        """
        mesh = mesh_of(self)
        types = [dist_type(operand) for operand in self.operands]
        for operand, x in zip(self.operands, types, strict=True):
            if not isinstance(operand.owner, Operation):
                check_type(mesh, x)
        return self.checked(mesh, types, self.properties)

    def verify_(self) -> None:
        try:
            inferred = self.infer()
        except LayoutError as error:
            raise VerifyException(error.text(self.operand_names())) from error
        except (MachineError, MeshError) as error:
            raise VerifyException(str(error)) from error
        if inferred != dist_type(self.result):
            raise VerifyException(f"the result is {inferred}, not {dist_type(self.result)}")

    def operand_names(self) -> list[str]:
        """What a program calls the operands (``the operand`` where one has no name)."""
        return [f"%{o.name_hint}" if o.name_hint else "the operand" for o in self.operands]

    @property
    def mnemonic(self) -> str:
        """The name without the dialect, as it is written in ``.coll``."""
        return self.name.partition(".")[2]


class UnaryOp(CollOp, ABC):
    """One tensor in, one tensor out."""

    input = operand_def(DistTensorType)


class OverOp(UnaryOp, ABC):
    """A step over an ordered list of sub-axes."""

    axes = prop_def(AxesAttr)

    assembly_format = "$input `over` $axes attr-dict `:` type($input) `->` type($result)"


class OverDimOp(UnaryOp, ABC):
    """A step over an ordered list of sub-axes and one dimension."""

    axes = prop_def(AxesAttr)
    dim = prop_def(IntegerAttr[I64])

    assembly_format = "$input `over` $axes `dim` $dim attr-dict `:` type($input) `->` type($result)"


class SendOverOp(UnaryOp, ABC):
    """A collective over an ordered list of sub-axes; ``algorithm`` is what it should run as."""

    axes = prop_def(AxesAttr)
    algorithm = opt_prop_def(StringAttr)
    is_async = opt_prop_def(UnitAttr, prop_name="async")

    assembly_format = (
        "$input `over` $axes (`using` $algorithm^)? (`async` $async^)? attr-dict "
        "`:` type($input) `->` type($result)"
    )


class SendOverDimOp(UnaryOp, ABC):
    """A collective over an ordered list of sub-axes and one dimension."""

    axes = prop_def(AxesAttr)
    dim = prop_def(IntegerAttr[I64])
    algorithm = opt_prop_def(StringAttr)
    is_async = opt_prop_def(UnitAttr, prop_name="async")

    assembly_format = (
        "$input `over` $axes `dim` $dim (`using` $algorithm^)? (`async` $async^)? "
        "attr-dict `:` type($input) `->` type($result)"
    )


def _axes(properties: Properties) -> tuple[str, ...]:
    axes = properties["axes"]
    assert isinstance(axes, AxesAttr)
    return axes.data


def _int(properties: Properties, name: str) -> int:
    value = properties[name]
    assert isinstance(value, IntegerAttr)
    return value.value.data


def _sizes(properties: Properties, name: str) -> tuple[int, ...]:
    value = properties[name]
    assert isinstance(value, SizesAttr)
    return value.data


def _to(properties: Properties) -> DistType:
    value = properties["to"]
    assert isinstance(value, DistTensorType)
    return value.data


def _number(properties: Properties, name: str) -> float:
    value = properties[name]
    assert isinstance(value, NumberAttr)
    return value.data


def _reduction(value: str) -> Reduction:
    if value not in list(Reduction):
        raise LayoutError(
            f"'{value}' is not a reduction: use {', '.join(Reduction)}", parameter="reduction"
        )
    return Reduction(value)


def _dtype(value: str) -> DType:
    if value not in list(DType):
        raise LayoutError(f"'{value}' is not a dtype: use {', '.join(DType)}", parameter="dtype")
    return DType(value)


# ---------------------------------------------------------------------------------------------
# Collectives
# ---------------------------------------------------------------------------------------------


@irdl_op_definition
class AllReduceOp(SendOverOp):
    """partial -> replicated."""

    name = "coll.all_reduce"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.all_reduce(mesh, operands[0], _axes(properties))


@irdl_op_definition
class ReduceOp(SendOverOp):
    """partial -> root."""

    name = "coll.reduce"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.reduce(mesh, operands[0], _axes(properties))


@irdl_op_definition
class BroadcastOp(SendOverOp):
    """root -> replicated."""

    name = "coll.broadcast"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.broadcast(mesh, operands[0], _axes(properties))


@irdl_op_definition
class ReduceScatterOp(SendOverDimOp):
    """partial -> sharded."""

    name = "coll.reduce_scatter"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.reduce_scatter(mesh, operands[0], _axes(properties), _int(properties, "dim"))


@irdl_op_definition
class AllGatherOp(SendOverDimOp):
    """sharded -> replicated."""

    name = "coll.all_gather"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.all_gather(mesh, operands[0], _axes(properties), _int(properties, "dim"))


@irdl_op_definition
class ScatterOp(SendOverDimOp):
    """root -> sharded."""

    name = "coll.scatter"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.scatter(mesh, operands[0], _axes(properties), _int(properties, "dim"))


@irdl_op_definition
class GatherOp(SendOverDimOp):
    """sharded -> root."""

    name = "coll.gather"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.gather(mesh, operands[0], _axes(properties), _int(properties, "dim"))


@irdl_op_definition
class AllToAllOp(UnaryOp):
    """sharded on one dimension -> sharded on another."""

    name = "coll.all_to_all"

    axes = prop_def(AxesAttr)
    source = prop_def(IntegerAttr[I64])
    target = prop_def(IntegerAttr[I64])
    algorithm = opt_prop_def(StringAttr)
    is_async = opt_prop_def(UnitAttr, prop_name="async")

    assembly_format = (
        "$input `over` $axes `dim` $source `to` $target (`using` $algorithm^)? "
        "(`async` $async^)? attr-dict `:` type($input) `->` type($result)"
    )

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        source, target = _int(properties, "source"), _int(properties, "target")
        return rules.all_to_all(mesh, operands[0], _axes(properties), source, target)


class ToOp(UnaryOp, HasFolderInterface, ABC):
    """A value brought to a layout that is written out; to its own is no step."""

    to = prop_def(DistTensorType)

    assembly_format = "$input `to` $to attr-dict `:` type($input) `->` type($result)"

    def fold(self) -> Folded:
        return (self.input,) if self.input.type == self.result.type else None


@irdl_op_definition
class PermuteOp(ToOp):
    """Blocks change places: any layout to any other with equal shard counts per dimension."""

    name = "coll.permute"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.permute(mesh, operands[0], _to(properties))


@irdl_op_definition
class RedistributeOp(ToOp):
    """Any layout to any other: ``decompose`` finds the steps."""

    name = "coll.redistribute"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.redistribute(mesh, operands[0], _to(properties))


# ---------------------------------------------------------------------------------------------
# Local operations
# ---------------------------------------------------------------------------------------------


@irdl_op_definition
class SliceOp(OverDimOp):
    """replicated -> sharded: every device keeps its own block."""

    name = "coll.slice"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.slice(mesh, operands[0], _axes(properties), _int(properties, "dim"))


@irdl_op_definition
class KeepRootOp(OverOp):
    """replicated -> root: all but coordinate 0 drop their copy."""

    name = "coll.keep_root"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.keep_root(mesh, operands[0], _axes(properties))


@irdl_op_definition
class MaskOp(UnaryOp):
    """replicated -> partial: all coordinates but 0 take the identity of the reduction."""

    name = "coll.mask"

    axes = prop_def(AxesAttr)
    reduction = prop_def(StringAttr)

    assembly_format = (
        "$input `over` $axes `op` $reduction attr-dict `:` type($input) `->` type($result)"
    )

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        reduction = properties["reduction"]
        assert isinstance(reduction, StringAttr)
        return rules.mask(mesh, operands[0], _axes(properties), _reduction(reduction.data))


@irdl_op_definition
class SplitOp(UnaryOp):
    """A view: one dimension as two."""

    name = "coll.split"

    dim = prop_def(IntegerAttr[I64])
    sizes = prop_def(SizesAttr)

    assembly_format = (
        "$input `dim` $dim `into` $sizes attr-dict `:` type($input) `->` type($result)"
    )

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        sizes = _sizes(properties, "sizes")
        if len(sizes) != 2:
            raise LayoutError(
                f"split makes two dimensions out of one, not {len(sizes)}", parameter="sizes"
            )
        return rules.split(mesh, operands[0], _int(properties, "dim"), (sizes[0], sizes[1]))


@irdl_op_definition
class MergeOp(UnaryOp):
    """A view: a dimension and the one behind it as one."""

    name = "coll.merge"

    dim = prop_def(IntegerAttr[I64])

    assembly_format = "$input `dim` $dim attr-dict `:` type($input) `->` type($result)"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.merge(mesh, operands[0], _int(properties, "dim"))


@irdl_op_definition
class ReshapeOp(UnaryOp, HasFolderInterface):
    """A view under another global shape."""

    name = "coll.reshape"

    shape = prop_def(SizesAttr)

    assembly_format = "$input `to` $shape attr-dict `:` type($input) `->` type($result)"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.reshape(mesh, operands[0], _sizes(properties, "shape"))

    def fold(self) -> Folded:
        return (self.input,) if self.input.type == self.result.type else None


@irdl_op_definition
class TransposeOp(UnaryOp, HasFolderInterface):
    """The dimensions in another order (``order[i]`` is the operand's dimension at place i)."""

    name = "coll.transpose"

    order = prop_def(SizesAttr)

    assembly_format = "$input `order` $order attr-dict `:` type($input) `->` type($result)"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.transpose(mesh, operands[0], _sizes(properties, "order"))

    def fold(self) -> Folded:
        return (self.input,) if list(self.order.data) == sorted(self.order.data) else None


@irdl_op_definition
class PadOp(UnaryOp, HasFolderInterface):
    """``low`` elements in front, ``high`` behind; negative ones are cut off (as in XLA)."""

    name = "coll.pad"

    dim = prop_def(IntegerAttr[I64])
    low = prop_def(IntegerAttr[I64])
    high = prop_def(IntegerAttr[I64])
    value = prop_def(NumberAttr)

    assembly_format = (
        "$input `dim` $dim `low` $low `high` $high `value` $value attr-dict "
        "`:` type($input) `->` type($result)"
    )

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        dim, low, high = (_int(properties, name) for name in ("dim", "low", "high"))
        return rules.pad(mesh, operands[0], dim, low, high, _number(properties, "value"))

    def fold(self) -> Folded:
        return (self.input,) if self.low.value.data == self.high.value.data == 0 else None


@irdl_op_definition
class ScaleOp(UnaryOp, HasFolderInterface):
    """Every element times a constant."""

    name = "coll.scale"

    factor = prop_def(NumberAttr)

    assembly_format = "$input `by` $factor attr-dict `:` type($input) `->` type($result)"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.scale(mesh, operands[0], _number(properties, "factor"))

    def fold(self) -> Folded:
        return (self.input,) if self.factor.data == 1 else None


@irdl_op_definition
class CastOp(UnaryOp, HasFolderInterface):
    """Another dtype."""

    name = "coll.cast"

    dtype = prop_def(StringAttr)

    assembly_format = "$input `to` $dtype attr-dict `:` type($input) `->` type($result)"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        dtype = properties["dtype"]
        assert isinstance(dtype, StringAttr)
        return rules.cast(mesh, operands[0], _dtype(dtype.data))

    def fold(self) -> Folded:
        return (self.input,) if self.input.type == self.result.type else None


@irdl_op_definition
class AddOp(CollOp):
    """The elementwise sum of two tensors."""

    name = "coll.add"

    lhs = operand_def(DistTensorType)
    rhs = operand_def(DistTensorType)

    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        return rules.add(mesh, operands[0], operands[1])


@irdl_op_definition
class ConcatOp(CollOp):
    """Tensors one behind the other along a dimension."""

    name = "coll.concat"

    inputs = var_operand_def(DistTensorType)
    dim = prop_def(IntegerAttr[I64])

    assembly_format = "$inputs `dim` $dim attr-dict `:` type($inputs) `->` type($result)"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        if not operands:
            raise LayoutError("concat needs at least one operand")
        return rules.concat(mesh, operands, _int(properties, "dim"))


@irdl_op_definition
class ComputeOp(CollOp):
    """Stands for a computation: its first operand, once a device has computed so much.

    ``flops`` are floating-point operations of each device, at the rate of the operand's dtype. All
    operands have to be there before.
    """

    name = "coll.compute"

    inputs = var_operand_def(DistTensorType)
    flops = prop_def(NumberAttr)

    assembly_format = "$inputs `flops` $flops attr-dict `:` type($inputs) `->` type($result)"

    @classmethod
    def rule(cls, mesh: Mesh, operands: Operands, properties: Properties) -> DistType:
        if not operands:
            raise LayoutError("compute needs at least one operand")
        flops = _number(properties, "flops")
        if not 0 <= flops < math.inf:
            raise LayoutError("flops is a number of operations, 0 or more")
        return operands[0]


COLLECTIVES = (
    AllReduceOp,
    ReduceOp,
    BroadcastOp,
    ReduceScatterOp,
    AllGatherOp,
    ScatterOp,
    GatherOp,
    AllToAllOp,
    PermuteOp,
)
"""The operations that send."""

ASYNC = tuple(one for one in COLLECTIVES if one is not PermuteOp)
"""The operations that need not be waited for, if they say so."""

REDUCING = (AllReduceOp, ReduceOp, ReduceScatterOp)
"""The operations that reduce."""

VIEWS = (SplitOp, MergeOp, ReshapeOp, KeepRootOp)
"""The operations whose result is the memory of their operand."""

LOCAL = (
    SliceOp,
    KeepRootOp,
    MaskOp,
    SplitOp,
    MergeOp,
    ReshapeOp,
    TransposeOp,
    PadOp,
    ScaleOp,
    CastOp,
    AddOp,
    ConcatOp,
    ComputeOp,
)
"""The operations that send nothing."""

Coll = Dialect(
    "coll", [*COLLECTIVES, RedistributeOp, *LOCAL], [DistTensorType, AxesAttr, SizesAttr]
)

__all__ = [
    "COLLECTIVES",
    "LOCAL",
    "REDUCING",
    "AxesAttr",
    "Coll",
    "CollOp",
    "DistTensorType",
    "SizesAttr",
    "dist_type",
]
