"""The loss and the gradients of a torch module, by torch and by its imported program, in f64."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from support.importing.architectures import f64_by_default

import collir
from collir.importing.models.decompositions import decomposed
from collir.importing.models.export import graph_of
from collir.importing.models.graph import live
from collir.importing.models.hugging_face import set_experts
from collir.importing.models.layers import rolled
from collir.importing.models.program import Written, written
from collir.importing.models.scans import take_scans, whole_scans
from collir.importing.models.sizes import with_sizes
from collir.ir.functions import functions_of
from collir.semantics.reference.executor import execute

HEAD = """
machine @one { level device[1] { port = 1 GB/s, latency = 1 us } }
mesh @m on @one { x = device:1 }
"""

WIDE = dict.fromkeys((torch.float32, torch.bfloat16, torch.float16), torch.float64) | {
    torch.complex64: torch.complex128
}

NUMPY = {"f64": np.float64, "i64": np.int64, "i32": np.int32, "bool": np.bool_}


@dataclass(frozen=True)
class Compared:
    """The errors of an imported program beside torch.

    Attributes:
        program: the text of the function.
        loss: the relative error of the loss.
        gradients: the error of the gradient of each weight, relative to its largest element, or to
            1e-5 of the largest of all where that is more.
    """

    program: Written
    loss: float
    gradients: Mapping[str, float]

    @property
    def worst(self) -> float:
        """The largest error; NaN counts as infinite."""
        errors = [self.loss, *self.gradients.values()]
        return max(error if error == error else np.inf for error in errors)


def compared(module: torch.nn.Module, kwargs: Mapping[str, Any], roll: bool = True) -> Compared:
    """Return the loss and all gradients of a module by its imported program, beside torch's.

    What torch would round to 32 bits in between, both compute in 64.
    """
    with f64_by_default():
        return _compared(module, kwargs, roll)


def _compared(module: torch.nn.Module, kwargs: Mapping[str, Any], roll: bool) -> Compared:
    module = module.double().train(False)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(torch.randn_like(weight) * 0.05)  # gains are not all 1
    set_experts(module)
    take_scans(module)
    with whole_scans():
        exported = torch.export.export(module, (), kwargs=dict(kwargs), strict=False)
    made = decomposed(copy.copy(exported))
    widen(made)
    widen(exported)
    graph = graph_of(made)
    graph.outputs = graph.outputs[:1]
    graph = rolled(live(graph)) if roll else live(graph)
    function = written(graph, "loss")
    runnable: Any = exported.module(check_guards=False)
    values = dict(runnable.named_parameters(remove_duplicate=False))
    values |= dict(runnable.named_buffers(remove_duplicate=False))
    values |= {name: x for name, x in exported.constants.items() if isinstance(x, torch.Tensor)}
    values |= dict(kwargs)
    values |= {path: torch.as_tensor(array) for path, array in graph.constants.items()}
    found = dict(_by_program(function, values))
    made = runnable(**kwargs)
    loss = torch.utils._pytree.tree_leaves(made)[0]
    names = [name for name in found if name]
    own = torch.autograd.grad(loss, [values[name] for name in names], allow_unused=True)
    exact = [np.zeros_like(found[name]) if g is None else g.numpy()
             for name, g in zip(names, own, strict=True)]  # fmt: skip
    largest = max(float(abs(g).max()) for g in exact if g.size)
    errors = {
        name: float(abs(found[name] - g).max()) / max(float(abs(g).max()), 1e-5 * largest)
        for name, g in zip(names, exact, strict=True)
        if g.size
    }
    return Compared(function, abs(float(found[""]) - loss.item()) / abs(loss.item()), errors)


def widen(exported: Any) -> None:
    """Replace dtypes of 16 and 32 bits in an exported program by those of 64."""
    graphs = [x.graph for x in exported.graph_module.modules() if hasattr(x, "graph")]
    for node in [node for graph in graphs for node in graph.nodes]:
        if "_assert_tensor_metadata" in str(node.target):
            node.graph.erase_node(node)
            continue
        if "aten.view.default" in str(node.target):
            node.target = torch.ops.aten.reshape.default
        if "aten.copy.default" in str(node.target):
            node.target = torch.ops.aten.expand_as.default
            node.args = node.args[::-1][-2:]
        node.kwargs = {name: _wide_dtype(x) for name, x in node.kwargs.items()}
        node.args = tuple(_wide_dtype(x) for x in node.args)
        value = node.meta.get("val")
        if isinstance(value, list | tuple):
            node.meta["val"] = [_wide(x) for x in value]  # pyright: ignore
        else:
            node.meta["val"] = _wide(value)
    for name, x in list(exported.constants.items()):
        exported.constants[name] = _wide(x)


def _wide(x: Any) -> Any:
    return x.to(WIDE[x.dtype]) if isinstance(x, torch.Tensor) and x.dtype in WIDE else x


def _wide_dtype(x: Any) -> Any:
    return WIDE.get(x, x) if isinstance(x, torch.dtype) else x


def _by_program(function: Written, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the loss, named "", and the gradient of each weight, by the reference executor."""
    weights = [x for x in function.arguments if x.kind == "weight"]
    operands = ", ".join(f"%{x.name}" for x in function.arguments)
    gradients = ", ".join(f"%d.{x.name}" for x in weights)
    listed = ", ".join(f"%{x.name}: {x.type()}" for x in function.arguments)
    wrt = ", ".join(f"%{x.name}" for x in weights)
    sizes = with_sizes("{sizes}", function.layers)
    given = with_sizes("{given}", function.layers)
    text = (
        f"{HEAD}{with_sizes(function.text('m'), function.layers)}\n"
        f"func @gradients{sizes}({listed})\n"
        f"    -> (f64[], {', '.join(x.type() for x in weights)}) on @m auto {{\n"
        f"  %loss, {gradients} = gradient @loss{given}({operands}) wrt {wrt}\n"
        f"  return %loss, {gradients}\n}}\n"
    )
    module = collir.parse(text)
    [gradient] = [f for f in functions_of(module) if f.sym_name.data == "gradients"]
    arrays: list[list[Any]] = []
    for x in function.arguments:
        parts = [values[name].detach().numpy() for name in x.of]
        array = np.stack(parts) if x.layers else parts[0]
        arrays.append([array.astype(NUMPY[x.dtype])])
    loss, *results = (buffers[0] for buffers in execute(module, gradient, arrays))
    yield "", loss
    for x, result in zip(weights, results, strict=True):
        assert result is not None
        yield from zip(x.of, result if x.layers else [result], strict=True)
