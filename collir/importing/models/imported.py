"""A graph as the text of a program, and what is known of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from collir.importing.models.export import fault
from collir.importing.models.graph import ModelGraph, live
from collir.importing.models.program import FunctionArgument, Written, written
from collir.importing.models.sizes import NAME as BATCH
from collir.importing.models.sizes import with_sizes
from collir.importing.models.training import library, step

PRECISIONS = ("f32", "bf16", "f16", "f64")
"""The dtypes that a model may compute in."""

MACHINE = "@dgx_h100(nodes = 1)"
MESH = "data = gpu:8"


@dataclass(frozen=True, repr=False)
class Imported:
    """A model as a program.

    Attributes:
        text: the program, in ``.coll``.
        arguments: the arguments of its function, in order, with what the framework calls them.
        constants: the elements of arguments that are constants of the model, by their names in
            ``of``.
        batch: the default of the parameter ``batch``; None if all sizes are fixed.
        has_experts: whether it has experts of ``transformers``.
        remarks: what is not as in the framework.
    """

    text: str
    arguments: tuple[FunctionArgument, ...]
    constants: Mapping[str, Any]
    batch: int | None
    has_experts: bool
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<Imported: {len(self.text.splitlines())} lines, {len(self.arguments)} arguments, "
            f"{len(self.remarks)} remarks>"
        )


def program_of(
    graph: ModelGraph,
    optimizer: str,
    clip: bool,
    axis: str,
    rolled: Callable[[ModelGraph], ModelGraph],
) -> tuple[Written, Mapping[str, Any], str]:
    """Return the function of a graph, its constants, and the text of all functions, without machine
    and mesh.

    Args:
        optimizer: that of a training step; empty if there is none.
        clip: whether the step clips gradients.
        axis: the axis that the batch is divided over.
        rolled: returns a graph with loops over layers that are alike.

    Raises:
        DiagnosticError: an operation cannot be imported, or the loss is no number.
    """
    is_loss = _is_loss(graph)
    if optimizer:
        graph = live(replace(graph, outputs=graph.outputs[:1]))
    graph = rolled(graph)
    function = written(graph, "loss" if is_loss else "model")
    if not optimizer:
        return function, graph.constants, function.text("m", axis)
    if not is_loss:
        raise fault(
            "a training step needs a loss: the first result of the model is "
            f"{function.results[0]}, and not one number"
        )
    parts = (
        *library(optimizer, clip),
        "",
        function.text("m"),
        step(function, "m", axis, optimizer, clip),
    )
    return function, graph.constants, "\n".join(parts)


def _is_loss(graph: ModelGraph) -> bool:
    """Return whether the first result is a number."""
    for node in graph.nodes:
        if getattr(node, "name", "") == graph.outputs[0]:
            result = getattr(node, "results", (None,))[0]
            return result is not None and result.shape == () and result.dtype[0] in "fb"
    return False


def headed(
    text: str, function: Written, batch: int | None, machine: str, mesh: str, comment: str
) -> str:
    """Return a program with its machine and mesh, and with its sizes as parameters.

    Args:
        machine: a reference to it, or its declaration.
    """
    declared = machine if machine.startswith("machine ") else f"machine @cluster = {machine}"
    head = [*(f"// {line}".rstrip() for line in comment.splitlines())]
    head += [declared, f"mesh @m on @cluster {{ {mesh} }}", ""]
    sizes = ({BATCH: batch} if batch else {}) | dict(function.layers)
    return "\n".join([*head, ""]) + with_sizes(text, sizes)
