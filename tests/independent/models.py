"""The models that ship, at sizes so small that every derivative can be taken by a complex step."""

from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir

EXAMPLES = Path(__file__).parents[2] / "examples" / "models"

STYLES = {"batch": 2, "seq": 4, "hidden": 4, "heads": 4, "layers": 2}
EXPERTS = {"groups": 8, "words": 4, "hidden": 2, "experts": 8, "places": 2}
SMALL: list[tuple[str, str, dict[str, int]]] = [
    ("mlp", "step", {"batch": 4, "width": 4, "layers": 2}),
    ("styles", "data_parallel", {**STYLES, "batch": 8}),
    ("styles", "zero_1", {**STYLES, "batch": 8, "hidden": 8, "layers": 1}),
    ("styles", "fully_sharded", {**STYLES, "batch": 8, "hidden": 8, "layers": 1}),
    ("styles", "tensor_parallel", STYLES),
    ("styles", "sequence_parallel", STYLES),
    ("styles", "context_parallel", STYLES),
    ("styles", "mixed", {**STYLES, "batch": 4}),
    ("words", "step", {"batch": 2, "seq": 4, "hidden": 4, "heads": 2, "layers": 1, "vocab": 4}),
    ("training", "clipped", {"batch": 4, "seq": 4, "hidden": 4, "layers": 2}),
    ("training", "accumulated", {"count": 2, "batch": 4, "seq": 4, "hidden": 4, "layers": 2}),
    ("switch", "step", {**EXPERTS, "layers": 1}),
]  # fmt: skip
"""Files, functions and sizes."""

PASSES = [
    "differentiate",
    "differentiate,propagate",
    "differentiate,propagate,inline,unroll,cse",
    "differentiate,propagate,expand,split-backward",
    "ring-attention,differentiate,propagate",
    "differentiate,propagate,decompose,bucket,overlap",
    "default",
    "ddp",
    "zero",
    "fsdp",
    "megatron",
    "latency",
]


def small(name: str, function: str, sizes: dict[str, int]) -> ModuleOp:
    """Return the module of a model with a function at small sizes, and what that calls."""
    module = collir.parse(EXAMPLES / f"{name}.coll")
    module = collir.instantiate(module, function=function, **sizes)
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    needed, left = set[str](), [function]
    while left:
        needed.add(symbol := left.pop())
        for op in functions[symbol].walk():
            callee = op.attributes.get("callee") or op.properties.get("callee")
            called = str(callee).removeprefix("@") if callee else ""
            left += [called] if called in functions and called not in needed else []
    for symbol, op in functions.items():
        if symbol not in needed:
            op.detach()
    return module
