"""The lines of ``collir sweep --settings``: how Megatron-LM, PyTorch or JAX are set up."""

from collections.abc import Callable, Collection, Iterator

from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.synthesis.sweeping.configuration import UNSTAGED, Configuration
from collir.synthesis.sweeping.steps import TrainingStep
from collir.tools.settings_jax import jax_lines
from collir.tools.settings_megatron import AXES, degree_of, flags_of, unnamed
from collir.tools.settings_mesh import dimensions, rows_of
from collir.tools.settings_torch import SCHEDULES as TORCH_SCHEDULES
from collir.tools.settings_torch import torch_lines
from collir.tools.sweep_model import Model

_SCHEDULES = {"megatron": ("1f1b", "interleaved"), "torch": tuple(TORCH_SCHEDULES)}
"""The schedules that frameworks have; others have any, as steps that are printed."""


def settings_text(model: Model, configuration: Configuration, framework: str) -> str:
    """Return what sets up a configuration in a framework.

    Args:
        framework: one of ``FRAMEWORKS``.

    Raises:
        DiagnosticError: the framework has no word for an axis or for the schedule.
    """
    c = configuration
    wide = [name for name, size in c.degrees.items() if size > 1 and name != c.pipeline]
    check_words(framework, model.step, wide, [c.schedule])
    return "\n".join(FRAMEWORKS[framework](model, configuration)) + "\n"


def check_words(
    framework: str, step: TrainingStep, axes: Collection[str], schedules: Collection[str]
) -> None:
    """Check that a framework has words for axes, without that of stages, and for schedules.

    Raises:
        DiagnosticError: it has no word for one of them.
    """
    known = _SCHEDULES.get(framework, schedules)
    for schedule in schedules:
        if schedule not in (UNSTAGED, *known):
            name = "Megatron-LM" if framework == "megatron" else "PyTorch"
            text = f"{name} has no schedule {schedule}: try --schedules {','.join(known)}"
            raise DiagnosticError(Diagnostic(text))
    for axis in axes if framework == "megatron" else ():
        if axis != step.data[0] and degree_of(axis) is None:
            wanted = ", ".join(names[0] for names in AXES.values())
            text = f"Megatron-LM has no degree for the axis {axis}: axes are named {wanted}"
            raise DiagnosticError(Diagnostic(text))


def _megatron(model: Model, c: Configuration) -> Iterator[str]:
    step = model.step
    known = {step.data[0]: "data", c.pipeline: "pipeline"}
    known |= {axis: flag for axis in c.degrees if axis not in known and (flag := degree_of(axis))}
    words = [*flags_of(step, c, rows_of(model, c))]
    usual = [*AXES, "data", "pipeline"]
    order = [known[axis] for axis, _ in reversed(dimensions(model, c))]
    swapped = [*AXES, "pipeline", "data"]
    if order == sorted(order, key=swapped.index) != sorted(order, key=usual.index):
        words.append("--use-tp-pp-dp-mapping")
    elif order != sorted(order, key=usual.index):
        placed = ", ".join(f"{axis}:{size}" for axis, size in dimensions(model, c))
        yield f"# Megatron-LM orders ranks otherwise: here they are {placed}, outermost first"
    if rest := unnamed(step):
        sizes = ", ".join(f"{name} = {step.parameters[name]}" for name in rest)
        yield f"# Megatron-LM has no flag here for {sizes}"
    per_node = c.level_sizes[-1]
    command = f"torchrun --nnodes {c.devices // per_node} --nproc-per-node {per_node}"
    yield " \\\n  ".join([f"{command} pretrain_gpt.py", *words])


FRAMEWORKS: dict[str, Callable[[Model, Configuration], Iterator[str]]] = {
    "megatron": _megatron,
    "torch": torch_lines,
    "jax": jax_lines,
}
"""The frameworks, each with a function that yields lines."""
