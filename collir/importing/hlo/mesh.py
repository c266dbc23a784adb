"""The mesh of a program of XLA: the coarsest one whose axes explain all of its groups."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from collir.importing.hlo.groups import Digit, Digits, GroupsError


@dataclass(frozen=True)
class Piece:
    """An axis of a mesh, or a part of it.

    Attributes:
        name: its name in types: ``data``, or ``data.node`` of an axis over several levels.
    """

    axis: str
    level: str
    name: str
    digit: Digit


@dataclass(frozen=True)
class MeshPieces:
    """All pieces of a mesh, the most significant first.

    Attributes:
        text: the axes as they are written: ``data = node:2 * gpu:4``.
    """

    pieces: tuple[Piece, ...]
    text: str

    def of(self, digits: Digits) -> tuple[int, ...]:
        """Return the numbers of the pieces that digits are, in order.

        Raises:
            GroupsError: they are no product of pieces.
        """
        made: list[int] = []
        for digit in digits:
            own = [n for n, x in enumerate(self.pieces)
                   if digit.stride <= x.digit.stride and x.digit.end <= digit.end]  # fmt: skip
            if math.prod(self.pieces[n].digit.size for n in own) != digit.size:
                raise GroupsError(
                    f"stride {digit.stride} and size {digit.size} cut an axis of the mesh"
                )
            made += own
        return tuple(made)

    def listed(self, numbers: Iterable[int]) -> str:
        """Return pieces as a list, in order; an axis with all of its pieces is named as a whole."""
        left = list(numbers)
        made: list[str] = []
        while left:
            axis = self.pieces[left[0]].axis
            own = [n for n, x in enumerate(self.pieces) if x.axis == axis]
            if left[: len(own)] == own:
                made.append(axis)
                left = left[len(own) :]
            else:
                made.append(self.pieces[left.pop(0)].name)
        return ", ".join(made)


def mesh_of(
    digits: Iterable[Digit],
    devices: int,
    axes: Mapping[str, int],
    levels: Sequence[tuple[str, int]],
) -> MeshPieces:
    """Return the coarsest mesh in which digits are products of axes.

    Args:
        axes: the axes that the user names, in the order of the devices; empty for others.
        levels: the levels of the machine, the outermost first, each with its children.

    Raises:
        GroupsError: the axes or the levels are not of these devices, or digits overlap: there are
            several meshes then.
    """
    for what, sizes in (("axes", axes.values()), ("levels", (n for _, n in levels))):
        total = math.prod(sizes)
        if total != devices and (axes or what == "levels"):
            raise GroupsError(f"the {what} have {total} devices, and the program {devices}")
    bounds = {1, devices}
    for digit in digits:
        bounds |= {digit.stride, digit.end}
    named = _digits(axes)
    of_levels = _digits(dict(levels))
    for digit in (*named.values(), *of_levels.values()):
        bounds |= {digit.stride, digit.end}
    edges = sorted(bounds, reverse=True)
    for high, low in pairwise(edges):
        if high % low:
            raise GroupsError(
                f"groups with strides {low} and {high} are of several meshes: name the axes, as in "
                "--mesh data=4,model=2"
            )
    cuts = [Digit(low, high // low) for high, low in pairwise(edges)]
    if not named:
        named = _invented(list(digits), cuts, devices)
    return _named(cuts, named, of_levels)


def _digits(sizes: Mapping[str, int]) -> dict[str, Digit]:
    made: dict[str, Digit] = {}
    inner = math.prod(sizes.values())
    for name, size in sizes.items():
        inner //= size
        made[name] = Digit(inner, size)
    return made


def _invented(digits: Sequence[Digit], cuts: Sequence[Digit], devices: int) -> dict[str, Digit]:
    """Return axes for the coarsest digits of groups, called a, b, c and so on."""
    bounds = sorted({1, devices, *(x for d in digits for x in (d.stride, d.end))}, reverse=True)
    names = iter("abcdefghijklmnopqrstuvwxyz")
    pairs = pairwise(bounds)
    return {next(names): Digit(low, high // low) for high, low in pairs}


def _inside(x: Digit, y: Digit) -> bool:
    return y.stride <= x.stride and x.end <= y.end


def _named(
    cuts: Sequence[Digit], axes: Mapping[str, Digit], levels: Mapping[str, Digit]
) -> MeshPieces:
    """Return the pieces of axes; an axis that is cut within a level is several."""
    pieces: list[Piece] = []
    texts: list[str] = []
    for axis, whole in axes.items():
        own = [x for x in cuts if _inside(x, whole)]
        of = [next(name for name, level in levels.items() if _inside(x, level)) for x in own]
        if len(set(of)) == len(own):
            if own:
                texts.append(f"{axis} = {_factors(of, own)}")
            for level, digit in zip(of, own, strict=True):
                name = f"{axis}.{level}" if len(own) > 1 else axis
                pieces.append(Piece(axis, level, name, digit))
            continue
        for number, (level, digit) in enumerate(zip(of, own, strict=True)):
            name = f"{axis}_{number}"
            texts.append(f"{name} = {_factors([level], [digit])}")
            pieces.append(Piece(name, level, name, digit))
    return MeshPieces(tuple(pieces), ", ".join(texts))


def _factors(levels: Sequence[str], digits: Sequence[Digit]) -> str:
    return " * ".join(f"{level}:{x.size}" for level, x in zip(levels, digits, strict=True))
