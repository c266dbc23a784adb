"""Explanations of a sharding: where the time of a function goes, what each collective is for, and
what the best other layouts would cost."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from xdsl.ir import Operation, SSAValue

from collir.dialects.operation import value_text
from collir.layout import Mesh
from collir.layout.structure import index_text
from collir.syntax.units import seconds_text
from collir.synthesis.propagation.choice import Assignment, with_layout
from collir.synthesis.propagation.graph import Relation, TensorGraph
from collir.synthesis.searching import TIME
from collir.synthesis.sharding.problem import Sharding, is_kept, moves_of
from collir.synthesis.sharding.solver import VariableValues, least_sum

_MOST = 8
"""The most collectives that are explained one by one."""


class Reason(NamedTuple):
    """A sentence about a value or a step."""

    item: Operation | SSAValue
    text: str


def explanation(
    graph: TensorGraph, sharding: Sharding, solution: VariableValues, seconds: float | None
) -> Iterator[Reason]:
    """Yield the reasons for a solution: the times of steps and of moves, the longest moves, and the
    best solution that divides the largest step otherwise.

    Args:
        seconds: the limit of the search for that solution.
    """
    mesh, values = graph.mesh, solution.values
    steps = [(_time(sharding, solution, r), r) for r in graph.relations if r.op is not None]
    if not steps:
        return
    computing = sum(time for time, _ in steps)
    share = 100 * computing / max(solution.sum, 1e-300)
    largest, relation = max(steps, key=lambda pair: pair[0])
    assert relation.op is not None
    yield Reason(
        relation.op,
        f"steps compute for {seconds_text(computing)}, {share:.0f} % of the time, this one for "
        f"{seconds_text(largest)}: {_axes_text(mesh, sharding.way(values, relation).axes)}",
    )
    moves = sorted(_moves(graph, sharding, solution), key=lambda move: -move[0])
    for time, item, text in moves[:_MOST]:
        yield Reason(item, f"{text} takes {seconds_text(time)}")
    if len(moves) > _MOST:
        rest = sum(time for time, *_ in moves[_MOST:])
        yield Reason(relation.op, f"{len(moves) - _MOST} more moves take {seconds_text(rest)}")
    number = sharding.variable_of[relation]
    others = [n for n in range(len(sharding.ways[number])) if n != values[number]]
    if others:
        kept = {number: np.array(others)}
        alternative = least_sum(sharding.sum.restricted(kept), seconds, branch=False)
        if alternative.ended == TIME:
            text = "what this step takes otherwise was not found within the limit"
            yield Reason(relation.op, text)
            return
        way = sharding.ways[number][others[alternative.values[number]]]
        slower = 100 * (alternative.sum / solution.sum - 1)
        yield Reason(
            relation.op,
            f"the best that is found with this step otherwise ({_axes_text(mesh, way.axes)}) takes "
            f"{seconds_text(alternative.sum)}, {slower:.2g} % longer",
        )


def _time(sharding: Sharding, solution: VariableValues, relation: Relation) -> float:
    return sharding.way(solution.values, relation).seconds * relation.times


def _axes_text(mesh: Mesh, axes: Assignment) -> str:
    listed = [
        f"{index_text(index)} over {', '.join(mesh.short(own))}"
        for index, own in axes.items()
        if own
    ]
    return " and ".join(listed) or "the same on all devices"


def _moves(
    graph: TensorGraph, sharding: Sharding, solution: VariableValues
) -> Iterator[tuple[float, Operation | SSAValue, str]]:
    """Yield the moves of a solution, each with its time, its purpose, and the moved value."""
    values, seen = solution.values, set[tuple[object, ...]]()
    for relation in graph.relations:
        if is_kept(relation):
            continue
        for position, tensor in enumerate(relation.members[:-1]):
            if tensor.made or tensor not in sharding.variable_of:
                continue
            needs = sharding.needs(relation, position)
            user = relation if relation.op else relation.members[-1]
            need = needs[values[sharding.variable_of[user]]]
            x = with_layout(tensor.type, sharding.layout(values, tensor))
            to = with_layout(tensor.type, need)
            price = sharding.price(tensor, x, to) * moves_of(relation)
            key = (tensor, to, moves_of(relation))
            if price and key not in seen:
                seen.add(key)
                item = relation.op or tensor.value
                what = f"bringing {value_text(tensor.value)} from {x.text(graph.mesh)} to "
                target = f" for this {relation.op.mnemonic}" if relation.op else " for a loop"
                yield price, item, f"{what}{to.text(graph.mesh)}{target}"
        if relation.op is not None:
            result, way = relation.members[-1], sharding.way(values, relation)
            to = with_layout(result.type, sharding.layout(values, result))
            before = relation.before and sharding.way(values, relation.before)
            if before is not None and way.left.partial and before.left == way.left:
                continue  # the sum of both is reduced once
            if price := sharding.price(result, way.left, to) * relation.times:
                text = f"bringing the result from {way.left.text(graph.mesh)} to "
                yield price, relation.op, f"{text}{to.text(graph.mesh)}"
