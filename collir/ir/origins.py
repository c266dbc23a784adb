"""Why a layout is as it is: notes that point at the step which made it so, and what to do."""

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from collir.dialects.operation import value_text
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import Diagnostic, Position, note
from collir.layout import DistType, Mesh, Reduction
from collir.layout.steps import ALL_TO_ALL, PERMUTE, step_between


def _state(x: DistType, axis: str) -> str:
    if axis in x.partial:
        return f"partial({x.reduction})"
    if axis in x.root:
        return "at root"
    return "replicated" if x.dim_of(axis) is None else "sharded"


def _preposition(state: str) -> str:
    return "on" if state == "at root" else "over"


def origin_notes(
    value: SSAValue, axes: Sequence[str], name: str, mesh: Mesh
) -> tuple[Diagnostic, ...]:
    """A note at the step or argument that put ``value`` into its states on ``axes``."""
    if not axes or any(axis not in mesh.by_name for axis in axes):
        return ()
    axes = mesh.ordered(axes)
    states = [_state(dist_type(value), axis) for axis in axes]
    source = value
    while isinstance(source.owner, Operation) and source.owner.operands:
        before = source.owner.operands[0]
        if [_state(dist_type(before), axis) for axis in axes] != states:
            break
        source = before
    position = Position.of(source)
    if position is None:
        return ()
    state = states[0]
    what = f"{state} {_preposition(state)} {', '.join(mesh.short(axes))}"
    if len(set(states)) > 1:
        what = f"distributed like this over {', '.join(mesh.short(axes))}"
    return (note(f"{value_text(source, name)} is {what} from here", position),)


def return_mismatch(
    found: DistType, promised: DistType, name: str, mesh: Mesh
) -> tuple[str, tuple[str, ...]]:
    """What to say where a function returns another type than it promises, and the sub-axes."""
    text = f"{name} is {found.text(mesh)}, but the function promises {promised.text(mesh)}"
    differing = tuple(
        axis for axis in mesh.by_name if _state(found, axis) != _state(promised, axis)
    )
    if found.shape != promised.shape:
        return text, ()
    if found.dtype != promised.dtype:
        return f"{text}: cast it to {promised.dtype} before returning", ()
    if not differing:
        counts = [[mesh.group_size(dim.axes) for dim in x.dims] for x in (found, promised)]
        step = PERMUTE if counts[0] == counts[1] else ALL_TO_ALL
        return f"{text}: {step.name} it before returning", ()
    kind = _state(found, differing[0])
    same = tuple(
        axis
        for axis in differing
        if _state(found, axis) == kind and _state(promised, axis) == _state(promised, differing[0])
    )
    wanted = promised.state_of(same[0])
    step = step_between(found.state_of(same[0]), wanted)
    if step and (wanted != "partial" or promised.reduction in (Reduction.SUM, Reduction.PROD)):
        text += f": {step.name} it over {', '.join(mesh.short(same))} before returning"
    return text, same
