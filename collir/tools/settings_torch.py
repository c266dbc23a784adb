"""``collir sweep --settings torch``: a Python file that sets a model up in PyTorch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collir.layout.dtypes import DType
from collir.synthesis.sweeping.configuration import (
    PREFETCHED,
    REPLICA,
    WHOLE_GRADIENTS,
    Configuration,
)
from collir.synthesis.sweeping.weights import Weight, WeightUse, weights_of
from collir.tools.settings_mesh import NamedMesh, rows_of, tuple_text
from collir.tools.sweep_model import Model

SCHEDULES = {
    "1f1b": "Schedule1F1B",
    "gpipe": "ScheduleGPipe",
    "interleaved": "ScheduleInterleaved1F1B",
    "zb-h1": "ScheduleInterleavedZeroBubble",
    "zb-v": "ScheduleZBVZeroBubble",
}
"""The schedules of torch.distributed.pipelining."""

_NARROW = {DType.BF16: "torch.bfloat16", DType.F16: "torch.float16"}

_REPLICATED = "_layouts=Replicate()"


@dataclass(frozen=True)
class ParallelPlan:
    """The modules that an axis divides, and the way in which they run.

    Attributes:
        styles: for the name of each module, what is written for it.
        outputs: the names of tables that are also the matrix of a product.
        whole: the weights that PyTorch has no style for, and weights divided with them.
    """

    styles: dict[str, str]
    outputs: Sequence[str]
    whole: Sequence[str]

    @staticmethod
    def of(weights: Sequence[Weight], axis: str) -> "ParallelPlan":
        """Return the styles of the modules whose weights an axis divides."""
        divided = [weight for weight in weights if axis in weight.divided]
        known = {weight.module: weight for weight in divided if weight.use is not WeightUse.OTHER}
        # A bias follows the weight of its module, or of the table whose output it is for. All other
        # weights without a style stay whole, with those that are divided together with them.
        left = {weight.divided[axis][1] for weight in divided if weight.module not in known}
        left -= {weight.divided[axis][1] for weight in known.values() if weight.is_output}
        made = {  # classes that begin with the outputs of a product, which stay where they are
            weight.divided[axis][1]
            for weight in known.values()
            if weight.use is WeightUse.LINEAR and weight.divided[axis][0] == 0 and not weight.whole
        }
        styles = {
            module: _style(weight, axis, weight.divided[axis][1] in made)
            for module, weight in known.items()
            if weight.divided[axis][1] not in left
        }
        outputs = [module for module, weight in known.items() if weight.is_output]
        whole = [weight.name for weight in divided if weight.divided[axis][1] in left]
        return ParallelPlan(styles, outputs, whole)


def _style(weight: Weight, axis: str, inside: bool) -> str:
    """Return the style of the module of a weight.

    Args:
        inside: whether the inputs of rows are the outputs of columns, on the same device.
    """
    dim, _ = weight.divided[axis]
    if weight.use is WeightUse.TABLE:
        return f"RowwiseParallel(input{_REPLICATED})" if dim == 0 else "ColwiseParallel()"
    if dim == 0:
        gathered = weight.whole or not weight.layers
        return f"ColwiseParallel({f'output{_REPLICATED}' * gathered})"
    return f"RowwiseParallel({'' if inside else f'input{_REPLICATED}'})"


def torch_lines(model: Model, c: Configuration) -> Iterator[str]:
    """Yield the lines of the file.

    Raises:
        DiagnosticError: the layouts of the model cannot be chosen.
    """
    weights = weights_of(model.step)
    summed = *model.step.data, *model.step.context
    others = [axis for axis in c.degrees if axis not in (c.pipeline, *summed)]
    plans = {axis: ParallelPlan.of(weights, axis) for axis in others if c.degrees[axis] > 1}
    lists = list(dict.fromkeys(weight.layers for weight in weights if weight.layers))
    yield from _docstring(model, c, plans)
    yield from _imports(model, c, plans)
    yield from _mesh(model, c)
    for axis, plan in plans.items():
        yield from _styles(axis, plan)
    yield f"\n\nLAYERS = {tuple_text(lists)}"
    yield from _parallelize(model, c, plans)
    if any(plan.styles for plan in plans.values()):
        yield _DIVIDE
    yield from _stages(model, c, lists) if c.stages > 1 else _train_step(model, c)


def _docstring(model: Model, c: Configuration, plans: dict[str, ParallelPlan]) -> Iterator[str]:
    step = model.step
    yield f'"""@{step.function} on {c.devices} devices of {model.machine.name}, by collir sweep.'
    yield ""
    yield "    mesh = make_mesh()"
    if c.stages > 1:
        yield "    own = [own_layers(deepcopy(model), number) for number in own_stages(mesh)]"
        yield "    stages = [parallelize(model, mesh) for model in own]"
        yield "    schedule = make_schedule(stages, mesh, loss)"
    else:
        yield "    model = parallelize(model, mesh)"
        yield "    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)"
        more = ", mesh" * bool(_context(model, c))
        yield f"    loss = train_step(model, optimizer, microbatches{more})"
    yield ""
    data = [axis for axis in model.step.data if axis != REPLICA or c.degrees[axis] > 1]
    microbatches = (
        f"{c.microbatches} microbatch{'es' * (c.microbatches > 1)} of {rows_of(model, c)} rows"
    )
    yield f"A rank has {microbatches}, by its place in {' and '.join(data)}."
    yield "Run it with torchrun, a process for each device."
    if whole := [name for plan in plans.values() for name in plan.whole]:
        yield ""
        yield "These weights are whole here, as PyTorch has no style for them. The sweep divides"
        yield "them, so that a step takes longer than it says:"
        yield from (f"    {name}" for name in whole)
    if _context(model, c):
        yield ""
        yield "A rank has a part of each sequence: let a microbatch have position_ids, and labels"
        yield "that are shifted already."
    if isinstance(c.recompute, tuple):
        yield ""
        yield f"The sweep computes {', '.join(c.recompute)} again, and this file does not."
        yield "Attention keeps no scores if it is scaled_dot_product_attention; all else takes"
        yield "more memory."
    if c.sequence:
        yield ""
        yield "What goes from layer to layer is whole here. The sweep divides it along the"
        yield "sequence, so that it takes less memory than this."
    yield '"""'


def _imports(model: Model, c: Configuration, plans: dict[str, ParallelPlan]) -> Iterator[str]:
    yield ""
    own = ["from bisect import bisect_right"] * (c.stages > 1)
    own += ["from fnmatch import fnmatch"] * bool(plans)
    yield "".join(f"{line}\n" for line in own)
    yield "import torch\nfrom torch import nn"
    if not c.zero:
        yield "from torch.distributed._composable.replicate_with_fsdp import replicate"
    if c.recompute is True:
        path = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
        yield f"from {path} import checkpoint_wrapper"
    yield "from torch.distributed.device_mesh import DeviceMesh, init_device_mesh"
    names = ["MixedPrecisionPolicy"] * (model.step.narrow is not None) + ["fully_shard"] * bool(
        c.zero
    )
    if names:
        yield f"from torch.distributed.fsdp import {', '.join(names)}"
    if c.stages > 1:
        yield f"from torch.distributed.pipelining import PipelineStage, {SCHEDULES[c.schedule]}"
    if _context(model, c):
        yield "from torch.distributed.tensor.experimental import context_parallel"
    if plans:
        yield "from torch.distributed.tensor import DTensor, Replicate"
        yield "from torch.distributed.tensor.parallel import ("
        yield "    ColwiseParallel,\n    RowwiseParallel,\n    parallelize_module,\n)"


def _named(model: Model, c: Configuration) -> NamedMesh:
    """Return the mesh; one copy has no dimension."""
    return NamedMesh.of(model, c, [axis for axis in model.step.data if axis != REPLICA])


def _mesh(model: Model, c: Configuration) -> Iterator[str]:
    mesh = _named(model, c)
    yield '\n\ndef make_mesh(device: str = "cuda") -> DeviceMesh:'
    yield '    """Return the mesh of all ranks, outermost dimension first."""'
    names = tuple_text(mesh.names)
    yield f"    mesh = init_device_mesh(device, {tuple_text(mesh.sizes)}, mesh_dim_names={names})"
    for axis in mesh.split:
        yield f'    mesh[{", ".join(map(repr, mesh.of_axis[axis]))}]._flatten("{axis}")'.replace(
            "'", '"'
        )
    yield "    return mesh"


def _styles(axis: str, plan: ParallelPlan) -> Iterator[str]:
    name = axis.upper()
    yield f"\n\n# What {axis} divides; the first pattern that a name of a module has is its style."
    yield f"{name} = {{"
    yield from (f'    "{module}": {style},' for module, style in plan.styles.items())
    yield "}"
    if plan.outputs:
        yield "\n# Tables whose matrix is that of an output too"
    yield f"{name}_OUTPUTS = {tuple_text(plan.outputs) if plan.outputs else '()'}"


_DIVIDE = '''

def shared_inputs(mesh: DeviceMesh):
    """Return a hook for products: those of the same input share it, so that its gradient is reduced
    once, and not for each of them."""
    last: list = [None, None]

    def hook(module: nn.Module, inputs: tuple) -> tuple:
        if last[0] is not inputs[0]:
            divided = DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False)
            last[:] = inputs[0], divided
        return (last[1], *inputs[1:])

    return hook


def divide(model: nn.Module, mesh: DeviceMesh, styles: dict, tables: tuple[str, ...]) -> None:
    """Divide the weights of modules, and keep those together that modules share."""
    shared: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            shared.setdefault(weight, []).append((module, name))
    hook = shared_inputs(mesh)
    for name, module in list(model.named_modules()):
        style = next((style for pattern, style in styles.items() if fnmatch(name, pattern)), None)
        if style is None:
            continue
        if name in tables:
            for output, _ in shared[module.weight]:
                if isinstance(output, nn.Linear):
                    parallelize_module(output, mesh, ColwiseParallel(output_layouts=Replicate()))
        elif isinstance(style, ColwiseParallel):
            module.register_forward_pre_hook(hook)
        parallelize_module(module, mesh, style)
    for places in shared.values():
        new = [getattr(module, name) for module, name in places]
        divided = next((weight for weight in new if isinstance(weight, DTensor)), None)
        if divided is not None:
            for module, name in places:
                setattr(module, name, divided)'''


def _parallelize(model: Model, c: Configuration, plans: dict[str, ParallelPlan]) -> Iterator[str]:
    yield "\n\ndef parallelize(model: nn.Module, mesh: DeviceMesh) -> nn.Module:"
    yield '    """Set up a model, or the module of a stage, in place."""'
    for axis in plans:
        name = axis.upper()
        yield f'    divide(model, mesh["{axis}"], {name}, {name}_OUTPUTS)'
    yield "    parts = dict(model.named_modules())"
    yield "    lists = [parts[name] for name in LAYERS if name in parts]"
    if c.recompute is True:
        yield "    for layers in lists:"
        yield "        for name, layer in list(layers.named_children()):"
        yield "            layers.register_module(name, checkpoint_wrapper(layer))"
    mesh = _named(model, c)
    summed = [axis for axis in (*model.step.data, *_context(model, c)) if axis != REPLICA]
    summed.sort(key=[*mesh.of_axis].index)
    over = "_".join(summed)
    if len(summed) > 1:
        names = ", ".join(f'"{axis}"' for axis in summed)
        yield f'    mesh[{names}]._flatten("{over}")'
    copies = f'"{REPLICA}", ' * (c.copies > 1)
    yield f'    over = mesh[{copies}"{over}"]'
    keywords = ["mesh=over"]
    if narrow := model.step.narrow:
        yield f"    policy = MixedPrecisionPolicy(param_dtype={_NARROW[narrow]})"
        keywords.append("mp_policy=policy")
    call = "fully_shard" if c.zero else "replicate"
    inner = [*keywords, f"reshard_after_forward={c.zero >= PREFETCHED}"] if c.zero else keywords
    root = [*keywords, "reshard_after_forward=False"] if c.zero else keywords
    yield "    for layer in (layer for layers in lists for layer in layers.children()):"
    yield f"        {call}(layer, {', '.join(inner)})"
    yield f"    return {call}(model, {', '.join(root)})"


def _context(model: Model, c: Configuration) -> tuple[str, ...]:
    """Return the axes over which sequences are divided, with their own inputs."""
    return tuple(axis for axis in model.step.context if c.degrees.get(axis, 1) > 1)


def _train_step(model: Model, c: Configuration) -> Iterator[str]:
    context = _context(model, c)
    more = ", mesh: DeviceMesh" * bool(context)
    whole = " with whole sequences," * bool(context)
    yield f"""

def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, microbatches: list[dict]{more}
):
    \"\"\"Run a step on the microbatches of this rank, each the arguments of the model,
   {whole} and return the mean of its losses.\"\"\"
    total = 0.0
    for number, microbatch in enumerate(microbatches, 1):"""
    if c.microbatches > 1 and c.zero < PREFETCHED:
        yield "        is_last = number == len(microbatches)"
        if c.zero <= WHOLE_GRADIENTS:
            yield "        model.set_requires_gradient_sync(is_last)"
        if c.zero:
            yield "        model.set_reshard_after_backward(is_last)"
    if context:
        yield f"""        words = list(microbatch.values())
        with context_parallel(  # attention runs as a ring, in place of each word with all others
            mesh["{context[0]}"],
            buffers=words,
            buffer_seq_dims=[1] * len(words),
            no_restore_buffers=set(words),
        ):
            output = model(**microbatch)
            loss = getattr(output, "loss", output) / len(microbatches)
            loss.backward()"""
    else:
        yield """        output = model(**microbatch)
        loss = getattr(output, "loss", output) / len(microbatches)
        loss.backward()"""
    yield """        total += loss.detach()
    optimizer.step()
    optimizer.zero_grad()
    return total"""


def _stages(model: Model, c: Configuration, lists: Sequence[str]) -> Iterator[str]:
    step = model.step
    count = c.stages * c.chunks
    own_counts = c.layers or (step.parameters[step.layers] // count,) * count
    starts = [sum(own_counts[:number]) for number in range(1, count)]
    zigzag = c.schedule == "zb-v"
    own = "made" if c.chunks > 1 or zigzag or c.schedule == "zb-h1" else "made[0]"
    yield f"""

STAGES = {count}
STARTS = {starts}  # the first layer of each stage but stage 0


def own_stages(mesh: DeviceMesh) -> list[int]:
    \"\"\"Return the numbers of the stages of this rank.\"\"\"
    place = mesh["{c.pipeline}"].get_local_rank()"""
    if zigzag:
        yield "    return [place, STAGES - 1 - place]"
    else:
        yield f"    return list(range(place, STAGES, {c.stages}))"
    yield f"""

def own_layers(model: nn.Module, stage: int) -> nn.Module:
    \"\"\"Leave the layers of a stage in a model, in place. What is before the layers is of the
    first stage, and what is behind them of the last: the forward of the model has to do without
    what is not there.\"\"\"
    for name in LAYERS:
        layers = model.get_submodule(name)
        for number, (key, _) in enumerate(list(layers.named_children())):
            if bisect_right(STARTS, number) != stage:
                delattr(layers, key)
    return model


def make_schedule(stages: list[nn.Module], mesh: DeviceMesh, loss):
    \"\"\"Return the schedule; `step(inputs)` runs it on the first rank of a pipeline, and
    `step(target=..., losses=[])` on the last.\"\"\"
    group, device = mesh["{c.pipeline}"].get_group(), torch.device(mesh.device_type)
    made = [
        PipelineStage(stage, number, STAGES, device, group=group)
        for number, stage in zip(own_stages(mesh), stages, strict=True)
    ]
    return {SCHEDULES[c.schedule]}({own}, {c.microbatches}, loss)"""
