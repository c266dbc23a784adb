"""An exported program as operations that have rows: torch's own decompositions of all others."""

import importlib
from typing import Any

from collir.importing.models.rows import (
    groups,
    maps,
    products,
    reductions,
    rounding,
    selections,
    shapes,
    windows,
)
from collir.importing.models.rows.table import ROWS

_ = groups, maps, products, reductions, rounding, selections, shapes, windows  # their rows

_NOTHING = frozenset({
    "alias", "contiguous", "clone", "lift_fresh_copy", "_assert_scalar",
    "_assert_tensor_metadata", "to.device", "lift_fresh", "dropout", "feature_dropout",
    "alpha_dropout", "feature_alpha_dropout", "positive", "resolve_conj", "resolve_neg",
})  # fmt: skip
"""Operations that change no value where a model is not trained by torch itself."""


DETACHED = frozenset({"detach", "detach_"})
"""Operations that no gradient goes through."""


def op_name(op: Any) -> str:
    """Return the name of an operation of torch, without ``aten.`` and ``.default``."""
    return str(op).removeprefix("aten.").removesuffix(".default")


def is_nothing(name: str) -> bool:
    """Return whether an operation changes no value."""
    return name in _NOTHING or name.partition(".")[0] in _NOTHING


def decomposed(program: Any) -> Any:
    """Return an exported program of operations that have rows, as far as torch knows how.

    What it computes without gradients is detached: its decompositions forget that.
    """
    torch = importlib.import_module("torch")
    region = torch.ops.higher_order.wrap_with_set_grad_enabled
    for part in program.graph_module.modules():
        for node in [*part.graph.nodes] if hasattr(part, "graph") else []:
            if node.target is region and node.args[0] is False:
                _detach_results(torch, getattr(part, node.args[1].target))
    return program.run_decompositions(decompositions())


def _detach_results(torch: Any, part: Any) -> None:
    """Detach the results of a part of a program, in place."""
    [output] = [node for node in part.graph.nodes if node.op == "output"]

    def detached(x: Any) -> Any:
        value = x.meta.get("val")
        if not getattr(getattr(value, "dtype", None), "is_floating_point", False):
            return x
        with part.graph.inserting_before(output):
            made = part.graph.call_function(torch.ops.aten.detach.default, (x,))
        made.meta = dict(x.meta)
        return made

    output.args = torch.fx.map_arg(output.args, detached)
    part.recompile()


def decompositions() -> dict[Any, Any]:
    """Return torch's own decompositions of the operations that have no row."""
    torch = importlib.import_module("torch")
    every = importlib.import_module("torch._decomp").decomposition_table
    table = {op: made for op, made in every.items() if op_name(op) in _MORE}
    table |= dict(torch.export.default_decompositions().items())
    return {op: made for op, made in table.items() if not _is_kept(op_name(op))}


_PARTS = frozenset({"view_as_complex", "view_as_real", "polar", "complex", "real", "imag"})
"""Operations of complex values that become others later."""

_MORE = frozenset({"unfold", "grid_sampler_2d", "native_dropout", "var_mean.correction"})
"""Operations that torch keeps by default, and that have no row."""


def _is_kept(name: str) -> bool:
    return name in ROWS or is_nothing(name) or name in _PARTS or name in DETACHED
