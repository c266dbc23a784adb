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
    "the collectives of a gradient can be rewritten once it is a function of the program",
)
_PROPAGATE = PipelineEntry(
    "propagate",
    "which collectives there are follows from the layouts of auto functions, gradients included",
)
_CLEAN = PipelineEntry(
    "canonicalize", "what does nothing or is used by nothing need not be looked at by the others"
)
_REORDER = PipelineEntry(
    "reorder-by-hierarchy",
    "values travel while they are small; steps that a cast or a scale kept apart then stand side "
    "by side, for fuse",
)
_BUCKET = PipelineEntry(
    "bucket",
    "small collectives share their latencies; ahead of decompose, which makes steps over single "
    "levels of them and chooses by the size of the buffer",
)
_DECOMPOSE = PipelineEntry(
    "decompose",
    "each collective in the cheapest steps over the levels, once it is known how large it is",
)
_CLEAN_AGAIN = PipelineEntry(
    "canonicalize", "what the others have left behind goes, so that it is not scheduled"
)
_PREFETCH = PipelineEntry(
    "prefetch",
    "weights of the next layer are gathered beside this layer where that is faster and there is "
    "memory; behind decompose, as each step of a gather is ahead by itself",
)
_ROTATE = PipelineEntry(
    "rotate",
    "gathers of the next layer become steps of the iteration in which they run, so that overlap "
    "puts them in order with the others",
)
_OVERLAP = PipelineEntry(
    "overlap",
    "a schedule is for the steps that there are in the end; and fuse and bucket leave alone what "
    "is async",
)

_SHARE = PipelineEntry(
    "cse",
    "gradients by several operands of one operation share its statistics; behind fuse, which "
    "leaves values alone that are used twice",
)

_DEFAULT = PassPipeline(
    "default",
    "The order that suits most programs: fewer steps, then cheaper ones, then at the same time.",
    "For programs of which nothing is known. It may use more memory than the program as it is "
    "written, where that does a step twice, or early, so as not to keep something: see zero.",
    (
        _DIFFERENTIATE,
        _PROPAGATE,
        _CLEAN,
        _REORDER,
        PipelineEntry(
            "fuse",
            "steps that undo or repeat each other go while they still stand side by side as they "
            "were written; of buffers, and of steps over single levels, it would see less",
        ),
        PipelineEntry(
            "cse",
            "the same step on the same value once, so that it is packed once; behind fuse, which "
            "leaves values alone that are used twice",
        ),
        _BUCKET,
        _DECOMPOSE,
        PipelineEntry("cse", "first steps that programs of decompose have in common merge"),
        _CLEAN_AGAIN,
        _PREFETCH,
        _ROTATE,
        _OVERLAP,
    ),
)

_DDP = PassPipeline(
    "ddp",
    "Data parallel training: many gradients, each reduced once it has been computed.",
    "For functions with a reduction for every tensor and nothing behind it but an update, which is "
    "why there is nothing to reorder.",
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
    "ZeRO-1 and ZeRO-2: states, and gradients, in shards that no pass makes whole.",
    "It has no cse, as what is gathered twice is gathered twice so as not to be kept in between; "
    "and neither fuse nor reorder-by-hierarchy, which would add up whole gradients of microbatches "
    "to reduce them once, where ZeRO-2 keeps their shards only. Nor has it prefetch: where layers "
    "gather their weights, no device holds those of two layers. If there is memory for two, fsdp "
    "is faster.",
    (_DIFFERENTIATE, _PROPAGATE, _CLEAN, _BUCKET, _DECOMPOSE, _CLEAN_AGAIN, _OVERLAP),
)

_FSDP = PassPipeline(
    "fsdp",
    "FSDP, ZeRO-3: the weights of a layer are gathered for it alone, in few buffers.",
    "It is zero for programs that gather in the layers as well, and differs by the place of these "
    "gathers: one layer ahead where that is faster, which takes the memory of the weights of two "
    "layers. Gradients are scattered in the iteration of their layer, for each microbatch.",
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
    "It has no bucket: activations follow one another on the critical path, so no two of them are "
    "due at the same time, and to copy them to a buffer takes longer than a latency. Gradients are "
    "few and large, and are reduced beside the backward pass.",
    (
        _DIFFERENTIATE,
        _PROPAGATE,
        _CLEAN,
        _REORDER,
        PipelineEntry(
            "fuse",
            "an all_reduce of which a device uses its part of the sequence is a reduce_scatter, "
            "and what is gathered to be cut again is not sent",
        ),
        PipelineEntry(
            "cse",
            "products of one operand gather it once, and its gradients share what they need of it; "
            "loops keep the backward pass apart, so what it gathers again is not kept",
        ),
        _DECOMPOSE,
        _CLEAN_AGAIN,
        PipelineEntry(
            "overlap",
            "gradients of weights are computed beside the all_reduce of the gradient of their "
            "input, and reduced beside the layers before; last, as it is for the steps that there "
            "are in the end",
        ),
    ),
)

_LATENCY = PassPipeline(
    "latency",
    "Small buffers, such as activations in inference: few steps one behind the other.",
    "It has no overlap: streams and events, or requests and waits, take longer than small steps "
    "gain beside each other, and no model here counts them.",
    (
        _DIFFERENTIATE,
        _PROPAGATE,
        _CLEAN,
        _REORDER,
        PipelineEntry("fuse", "a step less is a latency less"),
        PipelineEntry("cse", "the same for steps that are equal; behind fuse, as in default"),
        PipelineEntry("bucket", "collectives that are due at the same time share their latencies"),
        PipelineEntry(
            "decompose",
            "a step becomes several only where that is faster, latencies counted: where fewer of "
            "them cross the slow level",
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
