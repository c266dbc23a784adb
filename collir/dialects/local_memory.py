"""The memory of ranks in the local dialect: allocations, views and copies."""

from xdsl.ir import (
    Attribute,
    SSAValue,
)
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from xdsl.utils.exceptions import VerifyException

from collir.dialects.local_program import bounds, check_numbers, ranks_at, same_numbers
from collir.dialects.local_types import (
    BufferType,
    RankNumberAttr,
    buffer_of,
)
from collir.dialects.tensor import PlaceAttr
from collir.layout import Place
from collir.layout.local import (
    LocalBuffer,
    rank_text,
)


@irdl_op_definition
class AllocOp(IRDLOperation):
    """Memory that nothing has written to yet.

    Attributes:
        place: the coordinates of the ranks that need it; none: all do.
        start: where it lies in the arena of the function, in bytes, once that is planned.
    """

    name = "local.alloc"

    place = opt_prop_def(PlaceAttr)
    start = opt_prop_def(RankNumberAttr)
    result = result_def(BufferType)

    assembly_format = "(`at` $place^)? (`from` $start^)? attr-dict `:` type($result)"

    @staticmethod
    def of(x: LocalBuffer, place: Place = ()) -> "AllocOp":
        """Return an allocation."""
        properties: dict[str, Attribute] = {"place": PlaceAttr(place)} if place else {}
        return AllocOp.create(properties=properties, result_types=[BufferType(x)])

    def verify_(self) -> None:
        x = buffer_of(self.result)
        if not x.is_contiguous:
            raise VerifyException("memory is contiguous: a view has strides")
        check_numbers(x.numbers, ranks_at(self))


@irdl_op_definition
class FreeOp(IRDLOperation):
    """The end of the life of memory."""

    name = "local.free"

    memory = operand_def(BufferType)

    assembly_format = "$memory attr-dict `:` type($memory)"

    def verify_(self) -> None:
        if not isinstance(self.memory.owner, AllocOp):
            raise VerifyException("only what an alloc made is freed")


@irdl_op_definition
class ViewOp(IRDLOperation):
    """A part of a buffer, or all of it in another shape; nothing moves.

    Attributes:
        offset: where it begins, in elements.
        place: the coordinates of the ranks that have it; none: all do.
    """

    name = "local.view"

    offset = prop_def(RankNumberAttr)
    place = opt_prop_def(PlaceAttr)
    whole = operand_def(BufferType)
    result = result_def(BufferType)

    assembly_format = (
        "$whole (`at` $place^)? `from` $offset attr-dict `:` type($whole) `to` type($result)"
    )

    @staticmethod
    def of(whole: SSAValue, x: LocalBuffer, offset: int = 0, place: Place = ()) -> "ViewOp":
        """Return a view of a contiguous buffer."""
        properties: dict[str, Attribute] = {"offset": RankNumberAttr(offset)}
        return ViewOp.create(
            operands=[whole],
            properties=properties | ({"place": PlaceAttr(place)} if place else {}),
            result_types=[BufferType(x)],
        )

    def verify_(self) -> None:
        whole, part, ranks = buffer_of(self.whole), buffer_of(self.result), ranks_at(self)
        if not whole.is_contiguous:
            raise VerifyException("a view is of a contiguous buffer")
        if whole.dtype is not part.dtype:
            raise VerifyException(f"a view of {whole.dtype} has no elements of {part.dtype}")
        check_numbers(part.numbers, ranks)
        start, end = self.offset.data, self.offset.data + part.span
        at = self.place.data if self.place else ()
        low, high = bounds(start, ranks, at)[0], bounds(end, ranks, at)[1]
        if low < 0 or bounds(end - whole.elements, ranks, at)[1] > 0:
            size = rank_text(whole.elements)
            raise VerifyException(f"elements {low} to {high} are not all among the {size}")


@irdl_op_definition
class CopyOp(IRDLOperation):
    """The elements of a buffer in another one: of any strides, to any strides."""

    name = "local.copy"

    source = operand_def(BufferType)
    target = operand_def(BufferType)

    @staticmethod
    def of(source: SSAValue, target: SSAValue) -> "CopyOp":
        """Return a copy."""
        return CopyOp.create(operands=[source, target])

    assembly_format = "$source `to` $target attr-dict `:` type($source) `to` type($target)"

    def verify_(self) -> None:
        source, target = buffer_of(self.source), buffer_of(self.target)
        if source.dtype is not target.dtype or not same_numbers(self, source.shape, target.shape):
            raise VerifyException(f"{source} has other elements than {target}")
        if self.source is self.target:
            raise VerifyException("a copy to itself does nothing")
        check_target(target)


def origin_of(value: SSAValue) -> tuple[SSAValue, int]:
    """Return the allocation or argument that a buffer lies in, and where it begins there."""
    start = 0
    while isinstance(value.owner, ViewOp):
        start, value = start + value.owner.offset.data, value.owner.whole
    return value, start


def check_target(x: LocalBuffer) -> None:
    if x.repeats:
        raise VerifyException(f"elements of {x} share memory: nothing is written to them")
