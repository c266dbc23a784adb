"""The way of a value from one layout to another in single steps.

Steps that make blocks smaller come first, then steps that move blocks, and last steps that make
blocks larger.
"""

from collections.abc import Iterator
from dataclasses import replace

from xdsl.ir import SSAValue

from collir.dialects.tensor import dist_type
from collir.layout import DistType
from collir.layout.types import with_axes
from collir.transforms.terms import BlockSteps


def bring(steps: BlockSteps, value: SSAValue, to: DistType) -> SSAValue:
    """Add the steps that bring a value to a layout, and return it there; a ``redistribute`` stands
    where no single step leads on.

    Raises:
        LayoutError: the layout cannot be reached.
    """
    for there in way(dist_type(value), to):
        value = steps.laid_out(value, there)
    return steps.laid_out(value, to)


def way(x: DistType, to: DistType) -> Iterator[DistType]:
    """Yield the layouts on the way to another one, each a step from the one before."""
    new = {axis for dim in to.dims for axis in dim.axes}
    for number, dim in enumerate(to.dims):
        own = x.dims[number].axes
        more = dim.axes[len(own) :]
        held = {axis for own_dim in x.dims for axis in own_dim.axes}
        if more and dim.axes[: len(own)] == own and held.isdisjoint(more):
            for parts in (x.partial, new - x.partial):  # reduce and scatter, then slice
                taken = _leading(more, parts)
                if taken:
                    x = with_axes(x, number, (*x.dims[number].axes, *taken))
                    left = x.partial.difference(taken)
                    x = replace(x, partial=left, reduction=x.reduction if left else None)
                    more = more[len(taken) :]
                    yield x
    for number in range(len(x.dims)):
        for goal_number, target in enumerate(to.dims):
            own, there = x.dims[number].axes, x.dims[goal_number].axes
            moved = target.axes[len(there) :]
            fits = moved and there + moved == target.axes
            if number != goal_number and fits and own[len(own) - len(moved) :] == moved:
                x = with_axes(x, number, own[: len(own) - len(moved)])
                x = with_axes(x, goal_number, target.axes)
                yield x
    if x.partial:
        x = x.whole
        yield x
    for number, dim in enumerate(to.dims):
        own = x.dims[number].axes
        if len(own) > len(dim.axes) and own[: len(dim.axes)] == dim.axes:
            x = with_axes(x, number, dim.axes)
            yield x


def _leading(axes: tuple[str, ...], of: frozenset[str] | set[str]) -> tuple[str, ...]:
    """Return the sub-axes at the front that are among some."""
    count = next((n for n, axis in enumerate(axes) if axis not in of), len(axes))
    return axes[:count]
