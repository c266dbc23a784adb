"""The graph of a model: what a framework's tracer found, in data of our own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Ref:
    """The value of an input, or of a node; of a node with several, their tuple."""

    name: str


@dataclass(frozen=True)
class Shaped:
    """The shape and the dtype of a value, as ``.coll`` names it."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class ModelInput:
    """A value that the model takes.

    Attributes:
        of: what the framework calls it: the path of a weight, or the name of an argument.
        kind: ``argument``, ``weight``, ``buffer`` (a tensor of the model that is not trained) or
            ``constant``.
        axes: what stands behind the size of each dimension, such as ``@data``; empty if the
            framework does not say how it lies.
    """

    name: str
    value: Shaped
    of: str
    kind: str = "argument"
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelNode:
    """An operation.

    Attributes:
        op: its name in the framework, such as ``add.Tensor``.
        args: numbers, names, None, lists of these, and values as ``Ref``.
        results: the types of its values; None for one that is no tensor.
        path: the module that it is in, such as ``model.layers.0.mlp``.
        line: the line of the user's Python, as ``file:line``; empty if that is not known.
    """

    name: str
    op: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[Shaped | None, ...]
    path: str = ""
    line: str = ""

    @property
    def result(self) -> Shaped:
        """Return the type of its first value, which is a tensor."""
        result = self.results[0]
        assert result is not None
        return result

    def operands(self) -> Iterator[str]:
        """Yield the names of the values that it takes."""
        yield from refs((self.args, self.kwargs))

    def replaced(self, names: Mapping[str, str]) -> "ModelNode":
        """Return the node with other names for values that it takes."""

        def renamed(x: Any) -> Any:
            return Ref(names.get(x.name, x.name)) if isinstance(x, Ref) else x

        args, kwargs = mapped(self.args, renamed), mapped(dict(self.kwargs), renamed)
        return replace(self, args=args, kwargs=kwargs)


@dataclass(frozen=True)
class Stack:
    """Inputs that lie along a new first dimension, a slice for each iteration of a loop."""

    name: str
    inputs: tuple[ModelInput, ...]

    @property
    def value(self) -> Shaped:
        """The type of all of them."""
        first = self.inputs[0].value
        return Shaped((len(self.inputs), *first.shape), first.dtype)


@dataclass(frozen=True)
class RepeatedNodes:
    """Nodes that run several times, once for each of some alike layers.

    Attributes:
        nodes: those of the first iteration.
        carries: for each value that goes from one iteration to the next: its name in the body, the
            value of the first iteration, the value that the body yields, and its name behind the
            loop.
        stacks: for each slice, its name in the body.
        shared: the values from outside that all iterations read.
        path: the modules of the first iteration.
    """

    times: int
    nodes: tuple[ModelNode, ...]
    carries: tuple[tuple[str, str, str, str], ...]
    stacks: Mapping[str, Stack]
    shared: tuple[str, ...]
    path: str


@dataclass
class ModelGraph:
    """A model as a list of operations.

    Attributes:
        inputs: its inputs, in order.
        nodes: operations, and loops of them, in an order in which they may run.
        outputs: the names of its results.
        constants: the elements of inputs that are constants of the model, by their path.
    """

    inputs: list[ModelInput]
    nodes: list[ModelNode | RepeatedNodes]
    outputs: list[str]
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict[str, Any])


def refs(x: Any) -> Iterator[str]:
    """Yield the names of all values in arguments."""
    if isinstance(x, Ref):
        yield x.name
    elif isinstance(x, Mapping):
        for item in x.values():  # pyright: ignore[reportUnknownVariableType]
            yield from refs(item)
    elif isinstance(x, list | tuple):
        for item in x:  # pyright: ignore[reportUnknownVariableType]
            yield from refs(item)


def mapped(x: Any, function: Callable[[Any], Any]) -> Any:
    """Return arguments with a function of each item that is no list and no mapping."""
    if isinstance(x, dict):
        return {key: mapped(item, function) for key, item in x.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(x, list | tuple):
        return type(x)(mapped(item, function) for item in x)  # pyright: ignore
    return function(x)


def live(graph: ModelGraph, inputs: Sequence[ModelInput] | None = None) -> ModelGraph:
    """Return the graph without operations and inputs that no result needs.

    Args:
        inputs: the inputs to keep; by default the inputs that a result needs.
    """
    needed = set(graph.outputs)
    kept: list[ModelNode | RepeatedNodes] = []
    for node in reversed(graph.nodes):
        assert isinstance(node, ModelNode)
        if node.name in needed:
            needed.update(node.operands())
            kept.append(node)
    kept_inputs = [x for x in graph.inputs if x.name in needed] if inputs is None else [*inputs]
    return replace(graph, inputs=kept_inputs, nodes=kept[::-1])
