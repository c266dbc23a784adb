"""Translation validation: check that two functions compute the same, by proof or by running both.

A proof (``proof``) holds for all inputs. Its time depends on the steps of the program, not on the
number of devices or elements. A proven difference names an element of a result and its wrong
contributions. Rounding is no difference, except for underflow whose loss is multiplied
(``underflow``). If nothing is proven, both functions are run on random inputs (``runs``), provided
that their buffers are small enough. The verdict says which method was used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp

from collir.dialects.local import LocalFuncOp, local_functions
from collir.dialects.machine import MESH_ATTRIBUTE, mesh_of, meshes_remembered
from collir.dialects.nested import NestedOp, YieldOp
from collir.dialects.operation import DistOp, value_text
from collir.dialects.tensor import DistTensorType
from collir.ir.alternatives import place_of
from collir.ir.auto import is_auto, take_layouts
from collir.ir.calls import called_names
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, note
from collir.ir.functions import copied_beside, functions_of
from collir.layout import Mesh
from collir.semantics.validation.local import compare_local
from collir.semantics.validation.loops import decided
from collir.semantics.validation.proof import result_types, type_of_attribute
from collir.semantics.validation.runs import memory_of_runs, run_both
from collir.semantics.validation.same_mesh import moved_to_mesh, refined
from collir.semantics.validation.verdict import How, Outcome, Verdict
from collir.syntax.parsing import no_gc
from collir.transforms.inlining import function_without_calls
from collir.transforms.stages.unstaging import UnstagedError, without_stages


@dataclass(frozen=True)
class Checked:
    """A function of the later module with the verdict on it."""

    function: FuncOp | LocalFuncOp
    verdict: Verdict


MEMORY_LIMIT = 2**30
"""The default limit of the bytes of buffers up to which functions are run."""

MOST_DEVICES = 2048
"""The most devices on which functions are run: a run takes time quadratic in them."""


def compare(
    before: FuncOp,
    after: FuncOp,
    *,
    seed: int = 0,
    memory: int = MEMORY_LIMIT,
) -> Verdict:
    """Return the verdict on whether two functions compute the same.

    Args:
        seed: the seed of the random inputs, if the functions are run.
        memory: the bytes of buffers up to which the functions are run.
    """
    if not (_is_program(before) and _is_program(after)):
        return Verdict(
            Outcome.UNKNOWN, "none", "not proven and not run: it is no program of collir"
        )
    try:
        unstaged = without_stages(before, after)
    except UnstagedError as error:
        return Verdict(Outcome.DIFFERENT, "none", str(error))
    verdict = _compared(function_without_calls(before), unstaged.function, seed, memory)
    if verdict.result is None:
        return verdict
    return replace(verdict, result=unstaged.results[verdict.result])


def _compared(before: FuncOp, after: FuncOp, seed: int, memory: int) -> Verdict:
    """Return the verdict on functions without calls."""
    pair = _on_one_mesh(before, after)
    if isinstance(pair, str):
        return Verdict(Outcome.DIFFERENT, "none", pair)
    old, new = pair
    if is_auto(old):
        old = copied_beside(old, new)
        take_layouts(old, new)
    if problem := _signature_difference(old, new):
        return Verdict(Outcome.DIFFERENT, "none", problem)
    with meshes_remembered(), no_gc():
        verdict = decided(old, new)
        if verdict.outcome is not Outcome.UNKNOWN:
            return verdict
        return executed(old, new, verdict.explanation, seed, memory)


def _is_program(function: FuncOp) -> bool:
    """Return whether a function is on a mesh, with types and operations of collir only."""
    types = (*function.function_type.inputs, *function.function_type.outputs)
    return (
        MESH_ATTRIBUTE in function.attributes
        and all(isinstance(x, DistTensorType) for x in types)
        and all(
            isinstance(op, DistOp | ReturnOp | NestedOp | YieldOp) for op in function.body.walk()
        )
    )


def _on_one_mesh(before: FuncOp, after: FuncOp) -> tuple[FuncOp, FuncOp] | str:
    """Return both functions on the finer of their meshes, or the reason why that is impossible."""
    old, new = mesh_of(before), mesh_of(after)
    if old == new:
        return before, after
    if (renaming := refined(before, after)) is not None:
        return moved_to_mesh(before, after, renaming), after
    if (renaming := refined(after, before)) is not None:
        return before, moved_to_mesh(after, before, renaming)
    return (
        f"it is on mesh @{new.name} ({_axes(new)}), and was on mesh @{old.name} ({_axes(old)}): "
        "only meshes of the same axes can be compared, placed or not"
    )


def _signature_difference(before: FuncOp, after: FuncOp) -> str:
    """Return the first difference between the types of two signatures, or an empty text."""
    mesh = mesh_of(after)
    for kind, old, new in (
        ("argument", before.function_type.inputs, after.function_type.inputs),
        ("result", before.function_type.outputs, after.function_type.outputs),
    ):
        if len(old) != len(new):
            return f"it has {_counted(len(new), kind)}, and had {len(old)}"
        for index, (old_type, new_type) in enumerate(zip(old, new, strict=True)):
            types = [type_of_attribute(x) for x in (new_type, old_type)]
            if not types[0].agrees(types[1]):
                texts = [x.text(mesh) for x in types]
                return f"its {kind} {index} is {texts[0]}, and was {texts[1]}"
    return ""


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _axes(mesh: Mesh) -> str:
    return ", ".join(f"{sub.name}={sub.size}" for sub in mesh.sub_axes) or "one device"


def executed(
    before: FuncOp,
    after: FuncOp,
    unproven: str,
    seed: int = 0,
    memory: int = MEMORY_LIMIT,
) -> Verdict:
    """Return the verdict of running both functions on random inputs, if their buffers are small.

    Args:
        unproven: the reason why nothing is proven.
    """
    devices = mesh_of(after).devices
    if devices > MOST_DEVICES:
        text = f"not proven, as {unproven}; not run, as it is on {devices} devices"
        way_out = "a smaller mesh in both files lets it run"
        return Verdict(Outcome.UNKNOWN, "none", f"{text}, more than {MOST_DEVICES}; {way_out}")
    size = memory_of_runs([before, after])
    if size > memory:
        text = f"not proven, as {unproven}; not run, as that takes {size / 2**20:.0f} MiB"
        way_out = "a larger `memory` lets it run, or smaller sizes in both files"
        return Verdict(Outcome.UNKNOWN, "none", f"{text} for all devices; {way_out}")
    compared = run_both(before, after, result_types(before), seed)
    if compared.problem:
        return Verdict(Outcome.DIFFERENT, "execution", compared.problem, compared.result)
    response = compared.response
    if response.is_none:
        text = f"no result of {compared.runs} runs depends on what its operations compute"
        return Verdict(Outcome.UNKNOWN, "none", f"not proven, as {unproven}; {text}")
    text = f"not proven, equal on {compared.runs} runs ({unproven})"
    return Verdict(Outcome.SAME, "execution", "; ".join(filter(None, (text, response.text))))


# --- modules ------------------------------------------------------------------------------------


def compare_modules(
    before: ModuleOp,
    after: ModuleOp,
    *,
    new: bool = True,
    seed: int = 0,
    memory: int = MEMORY_LIMIT,
) -> list[Checked]:
    """Compare the functions of two modules by name; return the verdicts in the order of ``after``.

    A function in ``after`` alone is compared with the function that it replaces, if any.

    Args:
        new: whether ``after`` may have additional functions. Called functions are parts of their
            callers and may always be new; private ones may be missing.

    Raises:
        DiagnosticError: functions differ, or one of the modules lacks a function.
    """
    if programs := list(local_functions(after)):
        return _compared_with_ranks(before, programs, seed, memory)
    old = {f.sym_name.data: f for f in functions_of(before)}
    later = {f.sym_name.data: f for f in functions_of(after)}
    errors = [
        Diagnostic(f"@{name} is missing in what is compared with this", Position.of(function))
        for name, function in old.items()
        if name not in later and function.sym_visibility is None
    ]
    checked: list[Checked] = []
    called = called_names(after)
    for name, function in later.items():
        stands_for = place_of(function)
        original = old.get(name) or (old.get(stands_for[0]) if stands_for else None)
        if original is None:
            if not new and name not in called:
                message = f"@{name} is not in what it is compared with"
                errors.append(Diagnostic(message, Position.of(function)))
            continue
        verdict = compare(original, function, seed=seed, memory=memory)
        checked.append(Checked(function, verdict))
        if verdict.outcome is Outcome.DIFFERENT:
            errors.append(_diagnostic(name, original, function, verdict))
    if errors:
        raise DiagnosticError(errors)
    return checked


def _compared_with_ranks(
    before: ModuleOp, programs: Sequence[LocalFuncOp], seed: int, memory: int
) -> list[Checked]:
    """Compare programs of ranks with the functions that they were made of.

    Raises:
        DiagnosticError: they differ.
    """
    old = {op.sym_name.data: op for op in before.ops if isinstance(op, FuncOp | LocalFuncOp)}
    checked: list[Checked] = []
    errors: list[Diagnostic] = []
    for program in programs:
        name = program.sym_name.data
        match old.get(name):
            case FuncOp() as function:
                verdict = compare_local(function, program, seed, memory)
            case LocalFuncOp() as same if same.is_structurally_equivalent(program):
                verdict = Verdict(Outcome.SAME, "proof", "it is the same program")
            case _:
                text = "not run: it is the program of a rank, and no function is beside it"
                verdict = Verdict(Outcome.UNKNOWN, "none", text)
        checked.append(Checked(program, verdict))
        if verdict.outcome is Outcome.DIFFERENT:
            text = f"@{name} computes something else: {verdict.explanation} (seen in a run of both)"
            errors.append(Diagnostic(text, Position.of(program)))
    if errors:
        raise DiagnosticError(errors)
    return checked


def _diagnostic(name: str, before: FuncOp, after: FuncOp, verdict: Verdict) -> Diagnostic:
    """Return the error for a function that computes something else."""
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
