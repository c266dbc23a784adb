"""Pipelines: named lists of passes, with a reason for the position of each pass.

The name of a pipeline may stand wherever the name of a pass may: ``-p ddp``, ``-p
'place,default'``. It is replaced by its passes before anything runs, so that each of them is seen
by ``--print-between-passes``, ``--cost-between-passes`` and the verifier. An option goes to every
pass of the pipeline that has it: ``-p 'default{model=p2 chunks=8}'``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from xdsl.passes import ModulePass, PassOptionInfo, get_pass_option_infos
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline, parse_spec

Known = Mapping[str, Callable[[], type[ModulePass]]]
"""Functions that import the known passes, by the names of the passes."""


@dataclass(frozen=True)
class PipelineEntry:
    """A pass in a pipeline: its text behind ``-p``, and the reason for its position."""

    written: str
    why: str

    @property
    def spec(self) -> ArgSpec:
        """Return the name of the pass and its options."""
        return parse_spec(self.written).normalize_parameter_names()


@dataclass(frozen=True)
class PassPipeline:
    """A named list of passes.

    Attributes:
        summary: its purpose in a line.
        about: further explanation for users.
        positions: its passes, in order.
    """

    name: str
    summary: str
    about: str
    positions: tuple[PipelineEntry, ...]


_DIFFERENTIATE = PipelineEntry(
    "differentiate",
    "passes can rewrite the collectives of a gradient once it is a function of the program",
)
_PROPAGATE = PipelineEntry(
    "propagate",
    "the layouts of auto functions, gradients included, decide which collectives there are",
)
_CLEAN = PipelineEntry(
    "canonicalize", "the other passes need not look at steps that do nothing or that nothing uses"
)
_REORDER = PipelineEntry(
    "reorder-by-hierarchy",
    "values travel while they are small, and steps that a cast or a scale stood between meet, for "
    "fuse",
)
_BUCKET = PipelineEntry(
    "bucket",
    "small collectives share their latencies; before decompose, which chooses steps by the size "
    "of the buffer",
)
_DECOMPOSE = PipelineEntry(
    "decompose",
    "each collective becomes its cheapest steps over the levels, once its size is known",
)
_CLEAN_AGAIN = PipelineEntry(
    "canonicalize", "unused steps that the others left behind are not scheduled"
)
_PREFETCH = PipelineEntry(
    "prefetch",
    "weights of the next layer are gathered beside this layer where that is faster and there is "
    "memory; after decompose, because each step of a gather is ahead by itself",
)
_ROTATE = PipelineEntry(
    "rotate",
    "gathers of the next layer become steps of the iteration in which they run, for overlap to "
    "order",
)
_OVERLAP = PipelineEntry(
    "overlap",
    "the schedule is for the final steps, and fuse and bucket do not touch async ones",
)

_SHARE = PipelineEntry(
    "cse",
    "the gradients of an operation by its operands share statistics; after fuse, which skips "
    "values that are used twice",
)

_DEFAULT = PassPipeline(
    "default",
    "The order that suits most programs: fewer steps, then cheaper ones, then at the same time.",
    "For programs of an unknown kind. It may undo what a program does to save memory, such as "
    "gathering a value twice: see zero.",
    (
        _DIFFERENTIATE,
        _PROPAGATE,
        _CLEAN,
        _REORDER,
        PipelineEntry(
            "fuse",
            "steps that undo or repeat each other vanish; before bucket and decompose, behind "
            "which they no longer stand side by side",
        ),
        PipelineEntry(
            "cse",
            "equal steps merge before they are packed; after fuse, which skips values that are "
            "used twice",
        ),
        _BUCKET,
        _DECOMPOSE,
        PipelineEntry("cse", "the programs of two collectives may begin with equal steps"),
        _CLEAN_AGAIN,
        _PREFETCH,
        _ROTATE,
        _OVERLAP,
    ),
)

_DDP = PassPipeline(
    "ddp",
    "Data parallel training: many gradients, each reduced once it has been computed.",
    "Behind each reduction there is only an update, so there is nothing to reorder.",
    (
        _DIFFERENTIATE,
        _PROPAGATE,
        _CLEAN,
        PipelineEntry(
            "fuse", "gradients that are summed over microbatches are reduced once, not each time"
        ),
        _SHARE,
        _BUCKET,
        _DECOMPOSE,
        _CLEAN_AGAIN,
        _OVERLAP,
    ),
)

_ZERO = PassPipeline(
    "zero",
    "ZeRO-1 and ZeRO-2: states and gradients stay in shards.",
    "Without cse, because weights are gathered twice on purpose, not to be kept in between. "
    "Without fuse and reorder-by-hierarchy, which would add up whole gradients of microbatches "
    "where ZeRO-2 keeps shards. Without prefetch, which holds the weights of two layers; if there "
    "is memory for two, fsdp is faster.",
    (_DIFFERENTIATE, _PROPAGATE, _CLEAN, _BUCKET, _DECOMPOSE, _CLEAN_AGAIN, _OVERLAP),
)

_FSDP = PassPipeline(
    "fsdp",
    "FSDP, ZeRO-3: the weights of a layer are gathered for it alone, in few buffers.",
    "As zero, but layers gather their weights one layer ahead where that is faster, which takes "
    "the memory of two layers. Gradients are scattered in the iteration of their layer, for each "
    "microbatch.",
    (
        _DIFFERENTIATE,
        _PROPAGATE,
        _CLEAN,
        _BUCKET,
        _DECOMPOSE,
        _CLEAN_AGAIN,
        _PREFETCH,
        _ROTATE,
        _OVERLAP,
    ),
)

_MEGATRON = PassPipeline(
    "megatron",
    "Tensor and sequence parallel training: activations are sent where layers wait for them.",
    "Without bucket: activations are sent one after another on the critical path, and copying "
    "them to a buffer takes longer than a latency. Gradients are few and large, and are reduced "
    "beside the backward pass.",
    (
        _DIFFERENTIATE,
        _PROPAGATE,
        _CLEAN,
        _REORDER,
        PipelineEntry(
            "fuse",
            "an all_reduce of which a device uses only its part of the sequence becomes a "
            "reduce_scatter, and nothing is gathered to be cut again",
        ),
        PipelineEntry(
            "cse",
            "products of one operand gather it once; the backward pass is a loop of its own, and "
            "still gathers again",
        ),
        _DECOMPOSE,
        _CLEAN_AGAIN,
        PipelineEntry(
            "overlap",
            "gradients of weights are computed beside the all_reduce of their input's gradient, "
            "and reduced beside earlier layers; last, because the schedule is for the final steps",
        ),
    ),
)

_LATENCY = PassPipeline(
    "latency",
    "Small buffers, such as activations in inference: few steps one after another.",
    "Without overlap: streams and events, or requests and waits, cost more than small steps gain "
    "side by side, and no cost model counts them.",
    (
        _DIFFERENTIATE,
        _PROPAGATE,
        _CLEAN,
        _REORDER,
        PipelineEntry("fuse", "one step less is one latency less"),
        PipelineEntry("cse", "the same for equal steps; after fuse, as in default"),
        PipelineEntry("bucket", "collectives that are due at the same time share their latencies"),
        PipelineEntry(
            "decompose",
            "a step becomes several where that is faster, latencies counted: where fewer of them "
            "cross the slow level",
        ),
        _CLEAN_AGAIN,
    ),
)

PIPELINES: dict[str, PassPipeline] = {
    pipeline.name: pipeline for pipeline in (_DEFAULT, _DDP, _ZERO, _FSDP, _MEGATRON, _LATENCY)
}


def expanded_passes(passes: str, known: Known) -> tuple[ArgSpec, ...]:
    """Return the passes of a specification, with the names of pipelines replaced by their passes.

    Raises:
        ArgSpecParseError: the specification cannot be parsed.
        ValueError: no pass of a pipeline has an option that the pipeline is given.
    """
    return tuple(p for spec in parse_pipeline(passes) for p in _expanded(spec, known))


def _expanded(spec: ArgSpec, known: Known) -> Iterator[ArgSpec]:
    if spec.name not in PIPELINES:
        yield spec
        return
    pipeline, parameters = PIPELINES[spec.name], spec.normalize_parameter_names().parameters
    options = options_of(pipeline, known)
    if unknown := [name for name in parameters if name not in options]:
        listed = ", ".join(options)
        raise ValueError(
            f"no pass of {pipeline.name} has an option {unknown[0]}; there is {listed}"
        )
    for position in pipeline.positions:
        own = position.spec
        passed = {
            name: value for name, value in parameters.items() if own.name in options[name].passes
        }
        yield ArgSpec(own.name, {**own.parameters, **passed})


@dataclass(frozen=True)
class PipelineOption:
    """An option of a pipeline.

    Attributes:
        info: name, type and default, as in the first pass that has the option.
        passes: names of the passes that have it.
    """

    info: PassOptionInfo
    passes: tuple[str, ...]


def options_of(pipeline: PassPipeline, known: Known) -> dict[str, PipelineOption]:
    """Return the options of a pipeline by name, with the values that it sets as defaults.

    Raises:
        ValueError: there is no such pass as the pipeline names.
    """
    options: dict[str, PipelineOption] = {}
    for spec in {position.spec.name: position.spec for position in pipeline.positions}.values():
        if spec.name not in known:
            raise ValueError(
                f"the pipeline {pipeline.name} names the pass {spec.name}: there is none"
            )
        for info in get_pass_option_infos(known[spec.name]()):
            if info.name in spec.parameters:
                value = ",".join(map(str, spec.parameters[info.name])).lower()
                info = info._replace(default_value=value)
            option = options.get(info.name, PipelineOption(info, ()))
            options[info.name] = replace(option, passes=(*option.passes, spec.name))
    return options
