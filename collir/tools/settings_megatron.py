"""The arguments of Megatron-LM: all that a model and its plan have flags for."""

from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects.func import FuncOp

from collir.dialects.nested import CallOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.roles import Role, role_of
from collir.layout.dtypes import DType
from collir.synthesis.sweeping.configuration import WHOLE_GRADIENTS, Configuration
from collir.synthesis.sweeping.steps import TrainingStep

AXES = {
    "tensor-model-parallel-size": ("model", "tensor", "tp"),
    "context-parallel-size": ("context", "sequence", "cp"),
    "expert-model-parallel-size": ("expert", "experts", "ep"),
}
"""Megatron-LM's degrees, and the names of axes that they are taken from."""

_SIZES = {
    "num-layers": ("layers",),
    "hidden-size": ("hidden", "width"),
    "ffn-hidden-size": ("inner", "ffn", "intermediate"),
    "num-attention-heads": ("heads",),
    "num-query-groups": ("kv", "groups", "kv_heads"),
    "num-experts": ("experts",),
    "seq-length": ("seq",),
    "max-position-embeddings": ("seq",),
    "vocab-size": ("vocab",),
}
"""Flags of sizes, and the names of parameters that they are taken from."""

REQUIRED = (
    *("num-layers", "hidden-size", "num-attention-heads", "seq-length"),
    "max-position-embeddings",
)
"""Flags without which Megatron-LM does not start."""

DIVIDED = {2: "optim_grads", 3: "optim_grads_params"}
"""The names in Megatron-FSDP of the values that each stage of ZeRO divides."""

_DTYPES = {DType.BF16: "--bf16", DType.F16: "--fp16"}


def degree_of(axis: str) -> str | None:
    """Return the flag of an axis, or None."""
    return next((flag for flag, names in AXES.items() if axis in names), None)


def flags_of(step: TrainingStep, c: Configuration, rows: int) -> Iterator[str]:
    """Yield flags, one for each line.

    Args:
        rows: the rows of a device in a microbatch.
    """
    sizes = step.parameters
    taken = {flag: [n for n in names if n in sizes] for flag, names in _SIZES.items()}
    flags: dict[str, object] = {flag: sizes[names[0]] for flag, names in taken.items() if names}
    if step.words:
        flags |= dict.fromkeys(("seq-length", "max-position-embeddings"), step.words)
    flags["pipeline-model-parallel-size"] = c.stages
    for axis, size in c.degrees.items():
        if axis != step.data[0] and axis != c.pipeline and (flag := degree_of(axis)):
            flags[flag] = size
    if c.layers:
        own = ["t" * n if n < 3 else f"t*{n}" for n in c.layers]
        flags["pipeline-model-parallel-layout"] = f'"E{"|".join(own)}L"'
    elif c.chunks > 1:
        layers = sizes[step.layers] // (c.stages * c.chunks)
        flags["num-layers-per-virtual-pipeline-stage"] = layers
    flags |= {"micro-batch-size": rows, "global-batch-size": c.batch}
    yield from (f"--{flag} {value}" for flag, value in flags.items())
    yield from _of_model(step.callee, flags)
    if c.sequence:
        yield "--sequence-parallel"
    if is_attention(step, c):
        yield "--recompute-granularity selective --recompute-modules core_attn"
    elif c.recompute is True:
        yield "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    if any(c.degrees[axis] > 1 for axis in step.shards):
        yield from _of_data(c.zero, c.copies)


def is_attention(step: TrainingStep, c: Configuration) -> bool:
    """Return whether attention alone is computed again, for which frameworks have a name."""
    names = c.recompute
    return isinstance(names, tuple) and all(step.called.get(name) for name in names)


def unnamed(step: TrainingStep) -> Sequence[str]:
    """Return the parameters that are no flag."""
    known = {name for names in _SIZES.values() for name in names} | {step.batch}
    return [name for name in step.parameters if name not in known]


def _of_model(loss: FuncOp, flags: Mapping[str, object]) -> Iterator[str]:
    """Yield what the steps of a model say: its norm, activation, positions and dtype."""
    steps = {op.mnemonic for f in _with_callees(loss) for op in f.walk() if isinstance(op, DistOp)}
    calls = [op for op in loss.walk() if isinstance(op, CallOp)]
    weights = [value for value in loss.args if role_of(value) is Role.PARAMETER]
    names = [value.name_hint or "" for value in weights]
    if flags.get("num-query-groups", 0) != flags.get("num-attention-heads", 0) and (
        "num-query-groups" in flags
    ):
        yield "--group-query-attention"
    if "rms_norm" in steps:
        yield "--normalization RMSNorm"
    if "silu" in steps:
        yield "--swiglu"
    if any("rotat" in call.symbol or "rope" in call.symbol for call in calls):
        yield "--position-embedding-type rope"
    if not any("bias" in name for name in names):
        yield "--disable-bias-linear"
    vocab = flags.get("vocab-size")
    if sum(vocab in dist_type(value).shape for value in weights) > 1:
        yield "--untie-embeddings-and-output-weights"
    if any(call.fused is not None for call in calls):
        yield "--use-flash-attn"
    dtypes = {dist_type(value).dtype for value in weights}
    yield from (flag for dtype, flag in _DTYPES.items() if dtype in dtypes)


def _with_callees(function: FuncOp) -> Iterator[FuncOp]:
    """Yield a function and its callees."""
    pending, seen = [function], set[str]()
    while pending:
        own = pending.pop()
        yield own
        for call in (op for op in own.walk() if isinstance(op, CallOp)):
            callee = call.function()
            if callee is not None and call.symbol not in seen:
                seen.add(call.symbol)
                pending.append(callee)


def _of_data(zero: int, copies: int) -> Iterator[str]:
    """Yield how data parallelism divides states, and that its sends are hidden."""
    if copies > 1:
        yield f"--num-distributed-optimizer-instances {copies}"
    if copies > 1 and zero > WHOLE_GRADIENTS:
        yield "--outer-dp-sharding-strategy no_shard"
    if zero > WHOLE_GRADIENTS:
        yield f"--use-megatron-fsdp --data-parallel-sharding-strategy {DIVIDED[zero]}"
    elif zero:
        yield "--use-distributed-optimizer"
    yield "--overlap-grad-reduce"
    if zero:
        yield "--overlap-param-gather"
