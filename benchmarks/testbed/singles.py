"""Single collectives on one placement.

The machine is calibrated with their times, and the bytes on the links are compared with the model.
The page does not report their times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from collir.machine import Machine
from collir.syntax.reader import read

TYPES = {
    "all_reduce": ("partial", "whole"),
    "reduce_scatter": ("partial", "sharded"),
    "all_gather": ("sharded", "whole"),
    "reduce": ("partial", "root"),
    "broadcast": ("root", "whole"),
    "scatter": ("root", "sharded"),
    "gather": ("sharded", "root"),
}
"""Layouts of the operand and the result of each collective."""

SIZED = "reduce_scatter"
"""The collective that is measured in several sizes; the others have full size."""
PARTS = (1, 2, 4, 8)
"""Divisors of the full buffer, for the sizes of ``SIZED``."""


@dataclass(frozen=True)
class Single:
    """A collective over levels of the machine, on a full buffer of ``elements`` 4-byte numbers."""

    kind: str
    levels: tuple[str, ...]
    elements: int


def singles(machine: Machine, elements: int) -> list[Single]:
    """Return all collectives over all sets of levels, one of them in several sizes."""
    names = [level.name for level in machine.levels]
    over = [
        combination
        for count in range(1, len(names) + 1)
        for combination in combinations(names, count)
    ]
    return [
        Single(kind, levels, elements // part)
        for kind in TYPES
        for levels in over
        for part in (PARTS if kind == SIZED else (1,))
    ]


def module_of(listed: Sequence[Single], machine: Machine, folder: Path) -> ModuleOp:
    """Return a module with a function for each collective, on one mesh."""
    levels = machine.levels
    factors = " * ".join(f"{level.name}:{level.size}" for level in levels)
    lines = [
        (folder / f"{machine.name}.coll").read_text(encoding="utf-8"),
        f"mesh @m on @{machine.name} {{ a = {factors} }}",
    ]
    for number, single in enumerate(listed):
        idle = [f"a.{level.name}" for level in levels if level.name not in single.levels]
        own = ", ".join(f"a.{name}" for name in single.levels)
        total = single.elements
        for level in levels:
            total *= 1 if level.name in single.levels else level.size
        whole = f"f32[{total}{_sharded(idle)}]"
        types = {
            "whole": whole,
            "partial": f"{whole} partial(sum: {own})",
            "root": f"{whole} root({own})",
            "sharded": f"f32[{total}{_sharded([*idle, own])}]",
        }
        source, target = (types[name] for name in TYPES[single.kind])
        dim = " dim 0" if "sharded" in TYPES[single.kind] else ""
        lines.append(
            f"func @f{number}(%x: {source}) -> {target} on @m {{\n"
            f"  %y = {single.kind} %x over {own}{dim}\n  return %y\n}}"
        )
    return read("\n".join(lines))


def _sharded(axes: Sequence[str]) -> str:
    return f"@({', '.join(axes)})" if axes else ""
