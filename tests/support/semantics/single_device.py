"""Functions of a single device, and the collectives of those that were divided."""

from collections.abc import Iterator
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of


def single_device(module: ModuleOp, name: str = "step") -> ModuleOp:
    """Return the module of a function as a single device computes it, without the others."""
    alone = collir.run_passes(module.clone(), "unshard")
    for function in functions_of(alone):
        if function.sym_name.data != name:
            function.detach()
            function.erase()
    return alone


class Sent(NamedTuple):
    """A collective of a function.

    Attributes:
        name: its name, such as ``all_reduce``.
        over: its axes.
        shape: the global shape of what it sends.
        looped: whether it is in a loop.
    """

    name: str
    over: tuple[str, ...]
    shape: tuple[int, ...]
    looped: bool


def sent(function: FuncOp) -> list[Sent]:
    """Return the collectives of a function, in order."""
    mesh = mesh_of(function)
    return [
        Sent(op.mnemonic, tuple(mesh.short(op.over)), dist_type(op.input).shape, looped)
        for op, looped in _collectives(function.body.block, False)
    ]


def _collectives(block: Block, looped: bool) -> Iterator[tuple[DistOp, bool]]:
    for op in block.ops:
        if isinstance(op, RepeatOp):
            yield from _collectives(op.body.block, True)
        elif isinstance(op, DistOp) and op.kind.sends:
            yield op, looped


def steps(function: FuncOp, name: str) -> list[DistOp]:
    """Return the steps of a name in a function, in order, without those in loops."""
    return [x for x in function.body.ops if isinstance(x, DistOp) and x.mnemonic == name]


def layouts(function: FuncOp) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the axes of the dimensions of each argument, by its name."""
    mesh = mesh_of(function)
    return {
        argument.name_hint or "": tuple(mesh.short(dim.axes) for dim in dist_type(argument).dims)
        for argument in function.args
    }
