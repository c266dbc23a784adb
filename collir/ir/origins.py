"""Explanations of wrong layouts: the step that made a layout, and a step that corrects it."""

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from collir.dialects.operation import value_text
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import Diagnostic, Position, note
from collir.layout import DistType, Mesh, Reduction
from collir.layout.coll import ALL_TO_ALL, PERMUTE, REDISTRIBUTE, step_between
from collir.layout.cuts import same_cut
from collir.layout.mesh import index_over
from collir.layout.types import place_text


def _state(x: DistType, axis: str) -> str:
    if axis in x.partial:
        return f"partial({x.reduction})"
    if axis in x.placed:
        coordinate = x.coordinate(axis)
        return f"at {coordinate}" if coordinate else "at root"
    return "replicated" if x.dim_of(axis) is None else "sharded"


def _sharding(x: DistType, axes: Sequence[str]) -> list[list[str]]:
    """Return, for each dimension, the given sub-axes that shard it together, in their order."""
    lists = ([axis for axis in dim.axes if axis in axes] for dim in x.dims)
    return [part for part in lists if part]


def _preposition(state: str) -> str:
    return "on" if state.startswith("at ") else "over"


def origin_notes(
    value: SSAValue, axes: Sequence[str], name: str, mesh: Mesh
) -> tuple[Diagnostic, ...]:
    """Return a note at the step or argument that put ``value`` into its states on ``axes``."""
    if not axes or any(axis not in mesh.by_name for axis in axes):
        return ()
    lists = _sharding(dist_type(value), axes)
    sharding = [axis for part in lists for axis in part]
    axes = (*sharding, *(axis for axis in mesh.ordered(axes) if axis not in sharding))
    states = [_state(dist_type(value), axis) for axis in axes]
    source = value
    while isinstance(source.owner, Operation) and source.owner.operands:
        before = source.owner.operands[0]
        if [_state(dist_type(before), axis) for axis in axes] != states:
            break
        if _sharding(dist_type(before), axes) != lists:
            break
        source = before
    position = Position.of(source)
    if position is None:
        return ()
    state = states[0]
    layout = f"{state} {_preposition(state)} {', '.join(mesh.short(axes))}"
    x = dist_type(value)
    if x.placed.issuperset(axes):  # the coordinates are digits
        index = index_over(mesh, axes, dict(x.place))
        layout = f"at {index or 'root'} on {', '.join(mesh.short(axes))}"
    elif len(set(states)) > 1:
        layout = f"distributed like this over {', '.join(mesh.short(axes))}"
    return (note(f"{value_text(source, name)} is {layout} from here", position),)


def _move(actual: DistType, promised: DistType, mesh: Mesh) -> tuple[str, tuple[str, ...]] | None:
    """Return the step that brings a value to the place where it is promised, and its sub-axes.

    None if the value is there, or is promised at coordinate 0 of sub-axes where it is everywhere.
    """

    def digits(changed: list[str], placed: frozenset[str]) -> tuple[str, ...]:
        """Return changed sub-axes with the other digits of their axes."""
        names = {mesh.by_name[axis].axis for axis in changed}
        return mesh.ordered(axis for axis in placed if mesh.by_name[axis].axis in names)

    both = actual.placed & promised.placed
    if changed := [a for a in both if actual.coordinate(a) != promised.coordinate(a)]:
        axes = digits(changed, both)
        start, end = (index_over(mesh, axes, dict(x.place)) for x in (actual, promised))
        return f"send it over {', '.join(mesh.short(axes))} from {start} to {end}", axes
    everywhere = [a for a in promised.placed if actual.state_of(a) == "replicated"]
    if changed := [a for a in everywhere if promised.coordinate(a)]:
        axes = digits(changed, frozenset(everywhere))
        place = tuple(item for item in promised.place if item[0] in axes)
        return f"keep it at {place_text(place, mesh)}", axes
    return None


def return_mismatch(
    actual: DistType, promised: DistType, name: str, mesh: Mesh
) -> tuple[str, tuple[str, ...]]:
    """Return the error where a function returns a wrong type, and the sub-axes that are wrong.

    The error suggests a step that leads to the promised type, if there is one.
    """
    text = f"{name} is {actual.text(mesh)}, but the function promises {promised.text(mesh)}"
    if actual.shape != promised.shape:
        return text, ()
    if actual.dtype != promised.dtype:
        return f"{text}: cast it to {promised.dtype} before returning", ()
    states = {axis: (_state(actual, axis), _state(promised, axis)) for axis in mesh.by_name}
    differing = [axis for axis, (state, promise) in states.items() if state != promise]
    if not differing:
        counts = [[mesh.group_size(dim.axes) for dim in x.dims] for x in (actual, promised)]
        step = PERMUTE if counts[0] == counts[1] else ALL_TO_ALL
        pairs = zip(actual.dims, promised.dims, strict=True)
        if step is PERMUTE and not all(same_cut(mesh, x.axes, y.axes) for x, y in pairs):
            step = REDISTRIBUTE
        return f"{text}: {step.name} it before returning", ()
    if (move := _move(actual, promised, mesh)) is not None:
        return f"{text}: {move[0]} before returning", move[1]
    axes = tuple(axis for axis in differing if states[axis] == states[differing[0]])
    target = promised.state_of(axes[0])
    step = step_between(actual.state_of(axes[0]), target)
    if step and (target != "partial" or promised.reduction in (Reduction.SUM, Reduction.PROD)):
        text += f": {step.name} it over {', '.join(mesh.short(axes))} before returning"
    return text, axes
