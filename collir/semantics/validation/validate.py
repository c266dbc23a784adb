"""Do two functions compute the same? A proof, or a run of both on the same data.

The proof holds for all inputs, takes the time of the program's steps and not of its devices and
elements, and names what is wrong: which element of which result, and what it is made of. Rounding
is no difference, but for what underflows and is added up (underflow.py). Where the proof cannot
tell, both functions are run on random data (trial.py), if that is small enough. A verdict says
which of the two it was.
"""

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp

from collir.dialects.machine import MESH_ATTRIBUTE, mesh_of, meshes_remembered
from collir.dialects.operation import DistOp, value_text
from collir.dialects.tensor import DistTensorType
from collir.ir.alternatives import place_of
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, note
from collir.ir.functions import functions_of
from collir.layout import Mesh
from collir.semantics.validation.proof import of_attribute, proven
from collir.semantics.validation.same_mesh import moved_to_mesh, refined
from collir.semantics.validation.trial import memory_of_runs, run_both
from collir.semantics.validation.underflow import more_lost
from collir.semantics.validation.verdict import How, Outcome, Verdict
from collir.syntax.parsing import no_gc


@dataclass(frozen=True)
class Checked:
    """A function of the later module, and what was found."""

    function: FuncOp
    verdict: Verdict


MEMORY = 2**30
"""Bytes of buffers up to which functions are run, unless told otherwise."""


def compare(
    before: FuncOp,
    before_module: ModuleOp,
    after: FuncOp,
    after_module: ModuleOp,
    *,
    seed: int = 0,
    memory: int = MEMORY,
) -> Verdict:
    """Whether two functions compute the same.

    Args:
        seed: of the random inputs, where the functions are run.
        memory: bytes of buffers up to which they are.
    """
    if not (_is_program(before) and _is_program(after)):
        return Verdict(
            Outcome.UNKNOWN, "none", "not proven and not run: it is no program of collir"
        )
    pair = _on_one_mesh((before_module, before), (after_module, after))
    if isinstance(pair, str):
        return Verdict(Outcome.DIFFERENT, "none", pair)
    (old_module, old), (new_module, new) = pair
    if problem := _other_types(old, new):
        return Verdict(Outcome.DIFFERENT, "none", problem)
    with meshes_remembered(), no_gc():
        verdict = proven(old, new)
        if verdict.outcome is Outcome.DIFFERENT:
            return verdict
        if lost := more_lost(old, new):
            text = (
                f"up to {float(lost[1]):g} times as much is lost to underflow, as values are made "
                "small before they are added or scaled up, and not after"
            )
            return Verdict(Outcome.DIFFERENT, "proof", text, lost[0])
        if verdict.outcome is Outcome.SAME:
            return verdict
        return executed(old, old_module, new, new_module, verdict.explanation, seed, memory)


def _is_program(function: FuncOp) -> bool:
    """Whether a function is on a mesh, and has operations and types of ``coll`` only."""
    types = (*function.function_type.inputs, *function.function_type.outputs)
    return (
        MESH_ATTRIBUTE in function.attributes
        and all(isinstance(x, DistTensorType) for x in types)
        and all(isinstance(op, DistOp | ReturnOp) for op in function.body.ops)
    )


_Placed = tuple[ModuleOp, FuncOp]


def _on_one_mesh(before: _Placed, after: _Placed) -> tuple[_Placed, _Placed] | str:
    """Two functions with the sub-axes of the finer mesh; why not, where that is not possible."""
    old, new = mesh_of(before[1]), mesh_of(after[1])
    if old == new:
        return before, after
    if (names := refined(old, new)) is not None:
        return moved_to_mesh(before[1], after[1], names), after
    if (names := refined(new, old)) is not None:
        return before, moved_to_mesh(after[1], before[1], names)
    return (
        f"it is on mesh @{new.name} ({_axes(new)}), and was on mesh @{old.name} ({_axes(old)}): "
        "only meshes of the same axes can be compared, placed or not"
    )


def _other_types(before: FuncOp, after: FuncOp) -> str:
    """Which of the types of two functions are not the same."""
    for what, old, new in (
        ("argument", before.function_type.inputs, after.function_type.inputs),
        ("result", before.function_type.outputs, after.function_type.outputs),
    ):
        if len(old) != len(new):
            return f"it has {_counted(len(new), what)}, and had {len(old)}"
        mesh = mesh_of(after)
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            if one != other:
                texts = [of_attribute(side).text(mesh) for side in (other, one)]
                return f"its {what} {index} is {texts[0]}, and was {texts[1]}"
    return ""


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _axes(mesh: Mesh) -> str:
    return ", ".join(f"{sub.name}={sub.size}" for sub in mesh.sub_axes) or "one device"


def executed(
    before: FuncOp,
    before_module: ModuleOp,
    after: FuncOp,
    after_module: ModuleOp,
    unproven: str,
    seed: int = 0,
    memory: int = MEMORY,
) -> Verdict:
    """Run both functions on random inputs, where their buffers are small enough.

    Args:
        unproven: why nothing is proven.
    """
    size = memory_of_runs([before, after])
    if size > memory:
        text = f"not proven, as {unproven}; not run, as that takes {size / 2**20:.0f} MiB"
        return Verdict(Outcome.UNKNOWN, "none", f"{text} for all devices")
    types = [of_attribute(output) for output in before.function_type.outputs]
    trial = run_both((before_module, before), (after_module, after), types, seed)
    if trial.problem:
        return Verdict(Outcome.DIFFERENT, "execution", trial.problem, trial.result)
    text = f"not proven, equal on {trial.runs} runs ({unproven})"
    return Verdict(Outcome.SAME, "execution", text)


# --- modules ------------------------------------------------------------------------------------


def compare_modules(
    before: ModuleOp, after: ModuleOp, *, new: bool = True, seed: int = 0, memory: int = MEMORY
) -> list[Checked]:
    """Compares the functions of two modules by name; those of ``after``, in order.

    A function only ``after`` has is compared with the one whose place it takes, if there is one.

    Args:
        new: whether ``after`` may have others besides.

    Raises:
        DiagnosticError: functions that differ, or that one of the modules does not have.
    """
    old = {f.sym_name.data: f for f in functions_of(before)}
    there = {f.sym_name.data: f for f in functions_of(after)}
    errors = [
        Diagnostic(f"@{name} is missing in what is compared with this", Position.of(function))
        for name, function in old.items()
        if name not in there
    ]
    done: list[Checked] = []
    for name, function in there.items():
        stands_for = place_of(function)
        other = old.get(name) or (old.get(stands_for[0]) if stands_for else None)
        if other is None:
            if not new:
                message = f"@{name} is not in what it is compared with"
                errors.append(Diagnostic(message, Position.of(function)))
            continue
        verdict = compare(other, before, function, after, seed=seed, memory=memory)
        done.append(Checked(function, verdict))
        if verdict.outcome is Outcome.DIFFERENT:
            errors.append(_diagnostic(name, other, function, verdict))
    if errors:
        raise DiagnosticError(errors)
    return done


def _diagnostic(name: str, before: FuncOp, after: FuncOp, verdict: Verdict) -> Diagnostic:
    """What to say of a function that computes something else."""
    place = Position.of(after)
    which = ""
    last = after.body.block.last_op
    if verdict.result is not None and last is not None:
        value = last.operands[verdict.result]
        named = value_text(value, "its result")
        which = f" for {named}"
        if len(last.operands) > 1:
            which += f", result {verdict.result}"
        place = Position.of(value.owner if isinstance(value.owner, DistOp) else last) or place
    was = note("what it is compared with", Position.of(before))
    if verdict.how == "none":
        message = f"@{name} cannot be compared: {verdict.explanation}"
    else:
        how = "proven" if verdict.how == "proof" else "seen in a run of both"
        message = f"@{name} computes something else{which}: {verdict.explanation} ({how})"
    return Diagnostic(message, place, (was,))


__all__ = ["Checked", "How", "Outcome", "Verdict", "compare", "compare_modules", "executed"]
