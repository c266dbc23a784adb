"""Layouts for all values of ``auto`` functions, found from those that are written."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.ir.auto import AUTO, auto_functions, is_auto
from collir.ir.calls import calls_in, inline_call
from collir.ir.functions import functions_of
from collir.ir.fusion import keep_kernels_together
from collir.ir.remarks import listening
from collir.ir.roles import Role
from collir.layout.steps import StepKind
from collir.synthesis.propagation.accumulate import reduce_behind_loops
from collir.synthesis.propagation.estimate import Estimates
from collir.synthesis.propagation.graph import TensorGraph
from collir.synthesis.propagation.improve import improve
from collir.synthesis.propagation.rewrite import rewrite
from collir.synthesis.propagation.sharing import share
from collir.synthesis.propagation.spread import Spreading
from collir.transforms.expansion import expand_operation
from collir.transforms.gradients.differentiation import gradients_as_calls


@dataclass(frozen=True)
class PropagationRules:
    """Rules, besides time, by which layouts are chosen.

    Attributes:
        reduce_once: whether the sums of loops are reduced once behind them, even if a device needs
            only a part.
        keep_weights: the axes over which weights are not gathered.
    """

    reduce_once: bool = False
    keep_weights: tuple[str, ...] = ()


RULES = PropagationRules()
"""No others than time."""


def propagate(module: ModuleOp, rules: PropagationRules = RULES) -> None:
    """Choose the layouts of all values of the ``auto`` functions of a module, in place.

    Raises:
        DiagnosticError: a function has a step that cannot be where layouts are chosen.
    """
    lay_out(module, partial(propagate_function, rules=rules))


def lay_out(module: ModuleOp, choose: Callable[[FuncOp, bool], None], callees: bool = True) -> None:
    """Choose the layouts of all values of the ``auto`` functions of a module, in place.

    Args:
        choose: a function that chooses the layouts of a function without calls. Its second argument
            is whether the types of arguments and results stay as they are.
        callees: whether functions that only these call get layouts too; if not, they are erased.

    Raises:
        DiagnosticError: a function has a step that cannot be where layouts are chosen.
    """
    if not auto_functions(module):
        return
    inside = {call.function() for x in auto_functions(module) for call in calls_in(x)}
    made = gradients_as_calls(module)
    called = {
        call.function()
        for function in functions_of(module)
        if not is_auto(function)
        for call in calls_in(function)
    }
    functions = auto_functions(module)
    erased = {*made, *(() if callees else inside)} - called
    for function in functions:
        while calls := list(calls_in(function)):
            for call in calls:
                _ = inline_call(call, function)
    for function in functions:
        if function in erased:
            function.detach()
            function.erase()
        else:
            choose(function, function in called)


def explicit(module: ModuleOp) -> ModuleOp:
    """Return a module with layouts for all values: itself, or a copy.

    Raises:
        DiagnosticError: a function has a step that cannot be where layouts are chosen.
    """
    if not auto_functions(module):
        return module
    copy = module.clone()
    make_explicit(copy)
    return copy


def make_explicit(module: ModuleOp, whole: StepKind | None = None) -> None:
    """Choose the layouts of ``auto`` functions without remarks, in place.

    Args:
        whole: the kind of composite steps that are not expanded, even where they could be divided.

    Raises:
        DiagnosticError: a function has a step that cannot be where layouts are chosen.
    """
    with listening(lambda _: None):
        lay_out(module, partial(propagate_function, whole=whole))


def propagate_function(
    function: FuncOp, closed: bool, whole: StepKind | None = None, rules: PropagationRules = RULES
) -> None:
    """Choose the layouts of the values of a function without calls, in place.

    Args:
        closed: whether the types of its arguments and results stay as they are.
        whole: see ``make_explicit``.
    """
    mesh = mesh_of(function)
    kept = frozenset(sub for axis in rules.keep_weights for sub in mesh.of_axis.get(axis, ()))
    while True:
        graph = TensorGraph.build(function, closed, kept)
        spread = _spread(function, graph, kept)
        fastest = _fastest(spread)
        composite = [
            x.op
            for x in fastest.divided()
            if x.op and x.op.kind.expansion is not None and x.op.kind is not whole
        ]
        if not composite:
            break
        for op in composite:
            expand_operation(op)
    for spreading in spread:
        improve(spreading)
        share(spreading)
    fastest = _fastest(spread)
    rewrite(function, graph, fastest.layouts, fastest.choices)
    reduce_behind_loops(function, rules.reduce_once)
    keep_kernels_together(function)
    del function.attributes[AUTO]


def _spread(function: FuncOp, graph: TensorGraph, kept: frozenset[str]) -> list[Spreading]:
    """Return the layouts of a function where weights come before inputs over no, or over some,
    sub-axes; they always do over those in ``kept``."""
    estimates, contended = Estimates(function, graph.mesh), _contended(graph)
    always = kept.intersection(contended)
    firsts = [first for first in _subsets(contended) if always <= {*first}]
    spread = [Spreading(graph, estimates, first) for first in firsts]
    for spreading in spread:
        spreading.run()
    return spread


def _fastest(spread: list[Spreading]) -> Spreading:
    return min(spread, key=Spreading.seconds) if len(spread) > 1 else spread[0]


def _contended(graph: TensorGraph) -> list[str]:
    """Return the sub-axes that both types of weights and other types name."""
    axes: tuple[set[str], set[str]] = (set(), set())
    for tensor in graph.tensors:
        if tensor.layout is not None:
            axes[tensor.role is Role.PARAMETER].update(chain.from_iterable(tensor.layout))
    return list(graph.mesh.ordered(axes[0] & axes[1]))


def _subsets(axes: list[str]) -> Iterable[tuple[str, ...]]:
    return chain.from_iterable(combinations(axes, n) for n in range(len(axes) + 1))
