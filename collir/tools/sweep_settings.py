"""The lines of ``collir sweep --settings``: how Megatron-LM, PyTorch or JAX are set up."""

import math
from collections.abc import Callable, Collection, Iterator
from itertools import groupby

from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.synthesis.sweeping.configuration import UNSTAGED, Configuration
from collir.synthesis.sweeping.programs import on_machine
from collir.synthesis.sweeping.steps import TrainingStep
from collir.tools.settings_megatron import AXES, degree_of, flags_of, unnamed
from collir.tools.sweep_model import Model

_TORCH_SCHEDULES = {
    "1f1b": "Schedule1F1B",
    "gpipe": "ScheduleGPipe",
    "interleaved": "ScheduleInterleaved1F1B",
    "zb-h1": "ScheduleInterleavedZeroBubble",
    "zb-v": "ScheduleZBVZeroBubble",
}

_SCHEDULES = {"megatron": ("1f1b", "interleaved"), "fsdp": tuple(_TORCH_SCHEDULES)}
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


def _dimensions(model: Model, configuration: Configuration) -> list[tuple[str, int]]:
    """Return the axes in the order of the devices, outermost first, each with its size; an axis
    with another one in the middle of it comes twice."""
    mesh = on_machine(model.machine, configuration)
    subs = sorted(mesh.sub_axes, key=lambda sub: -sub.stride)
    runs = groupby((sub for sub in subs if sub.size > 1), key=lambda sub: sub.axis)
    return [(axis, math.prod(sub.size for sub in own)) for axis, own in runs]


def _rows(model: Model, c: Configuration) -> int:
    """Return the rows of a device in a microbatch."""
    ranks = math.prod(c.degrees[axis] for axis in model.step.data)
    return c.batch // ranks // c.microbatches


def _megatron(model: Model, c: Configuration) -> Iterator[str]:
    step = model.step
    known = {step.data[0]: "data", c.pipeline: "pipeline"}
    known |= {axis: flag for axis in c.degrees if axis not in known and (flag := degree_of(axis))}
    words = [*flags_of(step, c, _rows(model, c))]
    usual = [*AXES, "data", "pipeline"]
    order = [known[axis] for axis, _ in reversed(_dimensions(model, c))]
    swapped = [*AXES, "pipeline", "data"]
    if order == sorted(order, key=swapped.index) != sorted(order, key=usual.index):
        words.append("--use-tp-pp-dp-mapping")
    elif order != sorted(order, key=usual.index):
        placed = ", ".join(f"{axis}:{size}" for axis, size in _dimensions(model, c))
        yield f"# Megatron-LM orders ranks otherwise: here they are {placed}, outermost first"
    if rest := unnamed(step):
        sizes = ", ".join(f"{name} = {step.parameters[name]}" for name in rest)
        yield f"# Megatron-LM has no flag here for {sizes}"
    per_node = c.level_sizes[-1]
    command = f"torchrun --nnodes {c.devices // per_node} --nproc-per-node {per_node}"
    yield " \\\n  ".join([f"{command} pretrain_gpt.py", *words])


def _mesh(model: Model, c: Configuration) -> tuple[str, str, list[str]]:
    """Return the sizes and the names of the dimensions of a mesh of devices, and the axes that are
    several dimensions."""
    dimensions = _dimensions(model, c) or [(model.step.data[0], 1)]
    axes = [axis for axis, _ in dimensions]
    split = [axis for axis in dict.fromkeys(axes) if axes.count(axis) > 1]
    names = [
        f"{axis}_{axes[:number].count(axis)}" if axis in split else axis
        for number, axis in enumerate(axes)
    ]
    comma = "," if len(axes) == 1 else ""
    sizes = f"({', '.join(str(size) for _, size in dimensions)}{comma})"
    return sizes, f"({', '.join(repr(name) for name in names)}{comma})".replace("'", '"'), split


def _fsdp(model: Model, c: Configuration) -> Iterator[str]:
    sizes, names, split = _mesh(model, c)
    data = model.step.data[0]
    wide = c.degrees[data] > 1
    yield f'mesh = init_device_mesh("cuda", {sizes}, mesh_dim_names={names})'
    for axis in split:
        parts = ", ".join(part for part in names.strip("()").split(", ") if f'"{axis}_' in part)
        yield f'mesh[{parts}]._flatten("{axis}")'
    for axis, size in c.degrees.items():
        if size > 1 and axis not in (data, c.pipeline):
            yield f'# parallelize_module(model, mesh["{axis}"], ...): what the types divide over it'
    if c.recompute:
        yield "for layer in model.layers:"
        yield "    checkpoint_wrapper(layer)"
    if c.zero == 3:
        yield "for layer in [*model.layers, model]:"
        yield f'    fully_shard(layer, mesh=mesh["{data}"], reshard_after_forward=True)'
    elif wide:
        yield f'model = DistributedDataParallel(model, device_mesh=mesh["{data}"])'
    if c.zero == 1:
        group = f'process_group=mesh.get_group("{data}")'
        yield f"optimizer = ZeroRedundancyOptimizer(model.parameters(), AdamW, {group})"
    if c.stages > 1:
        chunks = f"  # {c.chunks} stages of each rank" if c.chunks > 1 else ""
        yield f"schedule = {_TORCH_SCHEDULES[c.schedule]}(stage, {c.microbatches}, loss){chunks}"
    elif c.microbatches > 1:
        yield f"# {c.microbatches} microbatches of {_rows(model, c)}; gradients are summed"


def _jax(model: Model, c: Configuration) -> Iterator[str]:
    sizes, names, split = _mesh(model, c)
    data = model.step.data[0]
    if data in split:
        own = ", ".join(part for part in names.strip("()").split(", ") if f'"{data}_' in part)
        data_axis = f"({own})"
    else:
        data_axis = f'"{data}"' if c.degrees[data] > 1 else "None"
    yield f"mesh = jax.make_mesh({sizes}, {names})"
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
        yield f"# jax.lax.scan over {c.microbatches} microbatches of {_rows(model, c)}"
    yield f"# `-o best.coll`, then `collopt best.coll -p '{c.passes}' -t jax` prints the whole step"


FRAMEWORKS: dict[str, Callable[[Model, Configuration], Iterator[str]]] = {
    "megatron": _megatron,
    "fsdp": _fsdp,
    "jax": _jax,
}
"""The frameworks, each with a function that yields lines."""
