"""Give the size parameters of functions other values.

What: every size that is a formula of parameters gets its value at the new ones, in types and in the
arguments of steps, and every step is typed again. The functions keep their parameters, with the new
values as defaults.

Why: one program is written and checked for many sizes. Costs, code and runs are for the defaults.

When not: values may be refused by a formula (a quotient that is no integer) or by a step (a
dimension that its shards do not divide); they are errors at that type or step. A program that other
passes have changed may have steps that fit some values only; they are errors as well, so it is
better to instantiate before such passes.

    func @f(batch = 8)(%x: f32[4 * batch]) -> f32[4 * batch@data] on @m {
      %y = slice %x over data dim 0
      return %y
    }
becomes, by instantiate{sizes="batch=16"},
    func @f(batch = 16)(%x: f32[4 * batch]) -> f32[4 * batch@data] on @m {
      %y = slice %x over data dim 0
      return %y
    }

Cost: that of the program at the new sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.transforms.instantiation import instantiate


@dataclass(frozen=True)
class InstantiatePass(ModulePass):
    """Give the size parameters of functions other values."""

    name = "instantiate"

    sizes: tuple[str, ...]
    """The new values of size parameters, such as `sizes="batch=16,hidden=64"`."""
    function: str = ""
    """The function that gets the new values; by default every function with such parameters."""

    def __post_init__(self) -> None:
        _values(self.sizes)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        instantiate(op, _values(self.sizes), self.function.removeprefix("@"))


def _values(options: Sequence[str]) -> dict[str, int]:
    """Return the values of parameters that the option gives.

    Raises:
        ValueError: a part is not ``name=value``, or names a parameter a second time.
    """
    values: dict[str, int] = {}
    for option in ",".join(options).split(","):
        name, _, number = (part.strip() for part in option.partition("="))
        if not name or not number.isdecimal() or not number.isascii() or len(number) > 19:
            raise ValueError(f"sizes are like `sizes=\"batch=16,hidden=64\"`, not '{option}'")
        if name in values:
            raise ValueError(f"sizes give '{name}' twice")
        values[name] = int(number)
    return values
