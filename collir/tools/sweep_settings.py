"""The lines of ``collir sweep --settings``: how frameworks are set up."""

from collections.abc import Callable, Collection, Iterator

from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.synthesis.sweeping.configuration import REPLICA, UNSTAGED, Configuration
from collir.synthesis.sweeping.steps import TrainingStep
from collir.tools.settings_jax import jax_lines
from collir.tools.settings_launchers import (
    TITAN_SCHEDULES,
    deepspeed_lines,
    nemo_lines,
    titan_lines,
)
from collir.tools.settings_megatron import (
    AXES,
    REQUIRED,
    degree_of,
    flags_of,
    is_attention,
    unnamed,
)
from collir.tools.settings_mesh import dimensions, order_remark, rows_of, torchrun
from collir.tools.settings_torch import SCHEDULES as TORCH_SCHEDULES
from collir.tools.settings_torch import torch_lines
from collir.tools.sweep_model import Model

_NAMES = {
    "megatron": "Megatron-LM",
    "torch": "PyTorch",
    "torchtitan": "torchtitan",
    "deepspeed": "DeepSpeed",
    "nemo": "NeMo",
}

_SCHEDULES = {
    "megatron": ("1f1b", "interleaved"),
    "torch": tuple(TORCH_SCHEDULES),
    "torchtitan": tuple(TITAN_SCHEDULES),
    "deepspeed": ("1f1b",),
    "nemo": ("1f1b", "interleaved"),
}
"""The schedules that frameworks have; others have any, as steps that are printed."""

_BY_NAME = ("megatron", "torchtitan", "deepspeed", "nemo")
"""The frameworks that have a degree for each axis that they know."""


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
    """Check that a framework has words for axes, except the axis of stages, and for schedules.

    Raises:
        DiagnosticError: it has no word for one of them.
    """
    known = _SCHEDULES.get(framework, schedules)
    for schedule in schedules:
        if schedule not in (UNSTAGED, *known):
            text = (
                f"{_NAMES[framework]} has no schedule {schedule}: try --schedules {','.join(known)}"
            )
            raise DiagnosticError(Diagnostic(text))
    batch = (step.data[0], REPLICA) if framework == "megatron" else step.data
    for axis in axes if framework in _BY_NAME else ():
        if axis not in batch and degree_of(axis) is None:
            wanted = ", ".join(names[0] for names in AXES.values())
            text = f"{_NAMES[framework]} has no degree for the axis {axis}: axes are named {wanted}"
            raise DiagnosticError(Diagnostic(text))


def _megatron(model: Model, c: Configuration) -> Iterator[str]:
    step = model.step
    known = {step.data[0]: "data", REPLICA: "data", c.pipeline: "pipeline"}
    known |= {axis: flag for axis in c.degrees if axis not in known and (flag := degree_of(axis))}
    words = [*flags_of(step, c, rows_of(model, c))]
    usual = [*AXES, "data", "pipeline"]
    order = [known[axis] for axis, _ in reversed(dimensions(model, c))]
    swapped = [*AXES, "pipeline", "data"]
    if order == sorted(order, key=swapped.index) != sorted(order, key=usual.index):
        words.append("--use-tp-pp-dp-mapping")
    elif order != sorted(order, key=usual.index):
        yield from order_remark(model, c, "Megatron-LM", known, usual)
    if isinstance(c.recompute, tuple) and not is_attention(step, c):
        yield f"# Megatron-LM has no flag here that computes {', '.join(c.recompute)} again"
    if rest := unnamed(step):
        sizes = ", ".join(f"{name} = {step.parameters[name]}" for name in rest)
        yield f"# Megatron-LM has no flag here for {sizes}"
    if missing := [
        flag for flag in REQUIRED if not any(word.startswith(f"--{flag} ") for word in words)
    ]:
        flags = ", ".join(f"--{flag}" for flag in missing)
        yield f"# {flags} are not here: @{step.function} has no parameters of such names"
    yield torchrun(c, "pretrain_gpt.py", words)


FRAMEWORKS: dict[str, Callable[[Model, Configuration], Iterator[str]]] = {
    "megatron": _megatron,
    "torch": torch_lines,
    "jax": jax_lines,
    "torchtitan": titan_lines,
    "deepspeed": deepspeed_lines,
    "nemo": nemo_lines,
}
"""The frameworks, each with a function that yields lines."""
