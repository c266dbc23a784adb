"""The lines of ``collir sweep --settings``: how Megatron-LM, PyTorch or JAX are set up."""

from collections.abc import Callable, Collection, Iterator

from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.synthesis.sweeping.configuration import UNSTAGED, Configuration
from collir.synthesis.sweeping.steps import TrainingStep
from collir.tools.settings_megatron import AXES, degree_of, flags_of, unnamed
from collir.tools.settings_mesh import NamedMesh, dimensions, rows_of, tuple_text
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


def _jax(model: Model, c: Configuration) -> Iterator[str]:
    mesh = NamedMesh.of(model, c, model.step.data[:1] if c.devices == 1 else ())
    parts = [name for axis in model.step.data for name in mesh.of_axis.get(axis, ())]
    data_axis = tuple_text(parts) if len(parts) > 1 else f'"{parts[0]}"' if parts else "None"
    yield f"mesh = jax.make_mesh({tuple_text(mesh.sizes)}, {tuple_text(mesh.names)})"
    yield f"batch = NamedSharding(mesh, PartitionSpec({data_axis}))"
    if c.zero:
        what = "states of the optimiser" if c.zero == 1 else "parameters and states"
        yield f"# {what}: one more dimension of each over {data_axis}"
    if c.recompute:
        yield "layer = jax.checkpoint(layer)"
    if c.stages > 1:
        chunks = f" x{c.chunks}" if c.chunks > 1 else ""
        yield f"# {c.stages} stages, {c.microbatches} microbatches, {c.schedule}{chunks}:"
    elif c.microbatches > 1:
        yield f"# jax.lax.scan over {c.microbatches} microbatches of {rows_of(model, c)}"
    yield f"# `-o best.coll`, then `collopt best.coll -p '{c.passes}' -t jax` prints the whole step"


FRAMEWORKS: dict[str, Callable[[Model, Configuration], Iterator[str]]] = {
    "megatron": _megatron,
    "torch": torch_lines,
    "jax": _jax,
}
"""The frameworks, each with a function that yields lines."""
