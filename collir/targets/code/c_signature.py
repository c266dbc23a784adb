"""The signature of a function in C: its buffers, its sizes, and the functions that it chooses."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.tensor import dist_type
from collir.ir.alternatives import alternatives
from collir.ir.functions import functions_of
from collir.ir.parameters import parameters_of
from collir.layout import DistType
from collir.layout.formulas import Formula
from collir.transforms.any_size import Condition, conditions


@dataclass(frozen=True)
class SizeVariant:
    """A function that takes the place of another one where its parameter is large.

    Attributes:
        least: the value of the parameter from which on it does.
        needed: the conditions on its sizes.
    """

    name: str
    least: int
    needed: Sequence[Condition]


@dataclass(frozen=True)
class CSignature:
    """The properties of a C function that follow from the function of the program.

    Attributes:
        types: the types of its arguments and results.
        static: whether the function is for its own file only.
        sizes: the size parameters that it takes.
        needed: the conditions on them.
        choices: the functions that take its place, those for the largest values first.
        wide: whether its parameter is the width that every function can have.
    """

    types: Sequence[DistType]
    static: bool
    sizes: Sequence[str] = ()
    needed: Sequence[Condition] = ()
    choices: Sequence[SizeVariant] = ()
    wide: bool = False


def signatures(
    module: ModuleOp, static: Iterable[FuncOp], wide: Iterable[FuncOp], sized: bool
) -> dict[str, CSignature]:
    """Return the signatures of the functions of a module, by their names.

    Args:
        sized: whether size parameters are arguments.
    """
    hidden, widened = set(static), set(wide)
    others = alternatives(module) if sized else {}
    made: dict[str, CSignature] = {}
    for function in functions_of(module):
        last = function.body.block.last_op
        assert last is not None
        types = [dist_type(x) for x in (*function.args, *last.operands)]
        name, is_wide = function.sym_name.data, function in widened
        if not sized:
            made[name] = CSignature(types, function in hidden)
            continue
        sizes, needed = parameters_of(function), conditions(function)
        if is_wide:
            [width] = sizes
            needed = [x for x in needed if x.formula != Formula.parameter(width)]
        choices = [_choice(factor, x, sizes, needed, is_wide) for factor, x in others.get(name, [])]
        made[name] = CSignature(types, function in hidden, [*sizes], needed, choices, is_wide)
    return made


def _choice(
    factor: int,
    function: FuncOp,
    sizes: Mapping[str, int],
    needed: Sequence[Condition],
    is_wide: bool,
) -> SizeVariant:
    [default] = sizes.values()
    more = [] if is_wide else [x for x in conditions(function) if x not in needed]
    return SizeVariant(function.sym_name.data, factor * default, more)
