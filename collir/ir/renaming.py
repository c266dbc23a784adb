"""Changes of the types and attributes of a function, in place; renamed sub-axes among them."""

from collections.abc import Callable, Iterable, Mapping

from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from collir.dialects.operation import DistOp
from collir.dialects.tensor import AxesAttr, DistTensorType, PlaceAttr, same_type
from collir.layout import Dim, DistType, Mesh, Place, place_at
from collir.layout.coll import REDISTRIBUTE
from collir.layout.mesh import digits_over, index_over

Renaming = Mapping[str, tuple[str, ...]]
"""The sub-axes that replace a sub-axis, major to minor; a sub-axis without an entry stays."""


def set_type(value: SSAValue, new_type: Attribute) -> None:
    """Give a value another type; its uses and its name stay."""
    value._type = new_type  # pyright: ignore[reportPrivateUsage]


def map_attributes(function: FuncOp, mapped: Callable[[Attribute], Attribute]) -> None:
    """Replace the types in a function's signature, and the types of values and the properties in
    its body (nested regions too), by what ``mapped`` returns for each."""

    def mapped_property(attribute: Attribute) -> Attribute:
        if isinstance(attribute, FunctionType):
            inputs, outputs = map(mapped, attribute.inputs), map(mapped, attribute.outputs)
            return FunctionType.from_lists([*inputs], [*outputs])
        return mapped(attribute)

    for op in function.walk():
        op.properties = {name: mapped_property(value) for name, value in op.properties.items()}
        arguments = [arg for region in op.regions for block in region.blocks for arg in block.args]
        for value in (*arguments, *op.results):
            set_type(value, mapped(value.type))


def rename_sub_axes(function: FuncOp, renaming: Renaming, old: Mesh, new: Mesh) -> None:
    """Rename the sub-axes of the old mesh to those of the new one, in all types and attributes.

    A sub-axis without a replacement vanishes, and so does a step that then is over no sub-axes, or
    changes no layout.
    """
    moves = {
        op
        for op in function.walk()
        if _is_move(op) and not same_type(op.operands[0], op.results[0])
    }
    map_attributes(function, lambda attribute: _renamed(attribute, renaming, old, new))
    for op in list(function.walk()):
        is_over_none = not {AxesAttr(()), PlaceAttr(())}.isdisjoint(op.properties.values())
        if is_over_none or (op in moves and same_type(op.operands[0], op.results[0])):
            op.results[0].replace_all_uses_with(op.operands[0])
            op.detach()
            op.erase()


def _is_move(op: Operation) -> bool:
    return isinstance(op, DistOp) and op.kind is REDISTRIBUTE


def renamed_type(x: DistType, renaming: Renaming, old: Mesh, new: Mesh) -> DistType:
    """Return a type with its sub-axes renamed, from an old mesh to a new one."""
    partial = frozenset(_renamed_axes(x.partial, renaming))
    return DistType(
        x.dtype,
        tuple(Dim(dim.size, _renamed_axes(dim.axes, renaming)) for dim in x.dims),
        partial,
        x.reduction if partial else None,
        _renamed_place(x.place, renaming, old, new),
    )


def _renamed_place(place: Place, renaming: Renaming, old: Mesh, new: Mesh) -> Place:
    """Return a place with its coordinates on other sub-axes; the index along an axis stays."""
    coordinate, renamed = dict(place), dict[str, int]()
    for axis, subs in old.of_axis.items():
        if subs and all(sub in coordinate for sub in subs):
            index = index_over(old, subs, coordinate)
            renamed |= digits_over(new, new.of_axis[axis], index)
            continue
        for sub in subs:
            if sub in coordinate:
                renamed |= digits_over(new, _renamed_axes([sub], renaming), coordinate[sub])
    return place_at(renamed)


def _renamed(attribute: Attribute, renaming: Renaming, old: Mesh, new: Mesh) -> Attribute:
    match attribute:
        case AxesAttr():
            return AxesAttr(_renamed_axes(attribute.data, renaming))
        case DistTensorType():
            return DistTensorType(renamed_type(attribute.data, renaming, old, new))
        case PlaceAttr():
            return PlaceAttr(_renamed_place(attribute.data, renaming, old, new))
        case _:
            return attribute


def _renamed_axes(axes: Iterable[str], renaming: Renaming) -> tuple[str, ...]:
    return tuple(new for axis in axes for new in renaming.get(axis, (axis,)))
