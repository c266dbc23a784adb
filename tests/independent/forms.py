"""The form of each operation: how many operands it has, and which words stand behind them."""

from .mesh import need
from .text import Step

WAYS = "using? async? ahead?"
FORMS = {
    "all_reduce": f"1 over {WAYS}",
    "reduce": f"1 over {WAYS}",
    "broadcast": f"1 over {WAYS}",
    "reduce_scatter": f"1 over dim {WAYS}",
    "all_gather": f"1 over dim {WAYS}",
    "scatter": f"1 over dim {WAYS}",
    "gather": f"1 over dim {WAYS}",
    "all_to_all": f"1 over dim to {WAYS}",
    "send": "1 over from to async? ahead?",
    "shift": "1 over by open? async? ahead?",
    "permute": "1 to",
    "redistribute": "1 to",
    "slice": "1 over dim",
    "keep_root": "1 over",
    "keep": "1 at",
    "part": "1 over at dim",
    "assemble": "* over dim",
    "terms": "1 over dim",
    "mask": "1 over op",
    "split": "1 dim into",
    "merge": "1 dim",
    "reshape": "1 to",
    "transpose": "1 order",
    "add": "2",
    "scale": "1 by",
    "cast": "1 to",
    "pad": "1 dim low? high? value?",
    "concat": "* dim",
    "compute": "* flops",
    "barrier": "1",
    "einsum": "* text",
    **dict.fromkeys(("neg", "relu", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid"), "1"),
    **dict.fromkeys(("erf", "sin", "cos", "silu", "gelu", "stop_gradient"), "1"),
    **dict.fromkeys(("mul", "sub", "div", "maximum", "minimum"), "2"),
    **dict.fromkeys(("greater", "greater_equal", "less", "less_equal", "equal", "not_equal"), "2"),
    "where": "3",
    **dict.fromkeys(("sum", "max", "min", "mean"), "1 dims keepdims?"),
    "argmax": "1 dim",
    **dict.fromkeys(("top_k", "top_k_indices"), "1 k dim"),
    "cumsum": "1 dim reverse?",
    "linear_scan": "2 dim reverse?",
    "layer_norm": "3 dims eps",
    "rms_norm": "2 dims eps",
    **dict.fromkeys(("softmax", "log_softmax"), "1 dims"),
    "take": "2 dim",
    "take_transpose": "2 dim to",
    "take_along_dim": "2 dim",
    "take_along_dim_transpose": "2 dim to",
    "grouped_matmul": "3 transposed?",
    "grouped_matmul_transpose": "3 to",
    "one_hot": "1 to",
    "cross_entropy": "2 dim",
    "conv": "2 stride padding",
    **dict.fromkeys(("conv_transpose", "conv_filter"), "2 stride padding to"),
    **dict.fromkeys(("max_pool", "avg_pool"), "1 window stride padding"),
    "max_pool_transpose": "2 window stride padding",
    "avg_pool_transpose": "1 window stride padding to",
    "constant": "0 value to",
    "iota": "0 dim to",
    "uniform": "1 to",
    "broadcast_to": "1 to",
}
"""The number of operands (``*``: one or more), then words; ``?`` behind those that may lack."""


def check(step: Step) -> None:
    """Refuse a step that has not the form of its operation."""
    need(step.op in FORMS, f"no operation {step.op}")
    count, *words = FORMS[step.op].split()
    need(len(step.operands) == int(count) if count != "*" else step.operands, "operands")
    needed = {word for word in words if not word.endswith("?")}
    need(needed <= set(step.clauses) <= {word.rstrip("?") for word in words}, "clauses")
