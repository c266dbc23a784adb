"""Meshes, types, and which block of a dimension a device holds."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from .text import AxisText, TypeText, integer

FLOATS = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
INTEGERS = {"i8": 1, "i32": 4, "i64": 8}
DTYPES = {**FLOATS, **INTEGERS, "bool": 1}


class Refused(Exception):
    """The program is not well typed."""


def need(condition: object, reason: str) -> None:
    """Refuse unless a condition holds."""
    if not condition:
        raise Refused(reason)


def lowest(weights: Sequence[int]) -> tuple[int, ...]:
    """Return weights without a common divisor."""
    divisor = math.gcd(*weights)
    return tuple(weight // divisor for weight in weights)


@dataclass(frozen=True)
class Axis:
    """Sub-axes with their sizes, outermost first, and a weight for each coordinate, or none."""

    name: str
    parts: tuple[tuple[str, int], ...]
    weights: tuple[int, ...] = ()

    @cached_property
    def of_part(self) -> dict[str, tuple[int, ...]]:
        """The weights of each sub-axis, if those of the axis are a product of them."""
        sizes = [size for _, size in self.parts]
        strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        vectors = [
            lowest([self.weights[i * stride] for i in range(size)])
            for size, stride in zip(sizes, strides, strict=True)
        ]
        outer = lowest([math.prod(row) for row in itertools.product(*vectors)])
        if outer != lowest(self.weights):
            return {}
        return dict(zip((name for name, _ in self.parts), vectors, strict=True))

    def sums(self, taken: int, before: tuple[int, ...]) -> tuple[int, ...]:
        """Return the weights of sub-axis ``taken`` where those in front are at ``before``."""
        sizes = [size for _, size in self.parts]
        rows = [
            sum(
                self.weights[position]
                for position, row in enumerate(itertools.product(*map(range, sizes)))
                if row[: taken + 1] == (*before, coordinate)
            )
            for coordinate in range(sizes[taken])
        ]
        return tuple(rows)


@dataclass(frozen=True)
class Type:
    """The type of a value; ``shards`` has the sub-axes of each dimension, major to minor."""

    dtype: str
    shape: tuple[int, ...]
    shards: tuple[tuple[str, ...], ...]
    partial: frozenset[str] = frozenset()
    reduction: str = ""
    place: frozenset[tuple[str, int]] = frozenset()

    @property
    def held(self) -> dict[str, int]:
        """The coordinate that holds the value, by sub-axis."""
        return dict(self.place)

    @property
    def sharded(self) -> set[str]:
        """All sub-axes that a dimension is sharded over."""
        return {sub for subs in self.shards for sub in subs}

    def replicated(self, sub: str) -> bool:
        """Return whether each coordinate of a sub-axis holds the same."""
        return sub not in self.sharded | self.partial | set(self.held)

    def __str__(self) -> str:
        def size(n: int, subs: tuple[str, ...]) -> str:
            return f"{n}" + (f"@({', '.join(subs)})" if subs else "")

        dims = ", ".join(size(n, subs) for n, subs in zip(self.shape, self.shards, strict=True))
        text = f"{self.dtype}[{dims}]"
        if self.partial:
            text += f" partial({self.reduction}: {', '.join(sorted(self.partial))})"
        if self.place:
            text += f" at({', '.join(f'{sub} = {n}' for sub, n in sorted(self.place))})"
        return text


class Mesh:
    """Axes of devices. A device is a coordinate for each sub-axis, in the order of declaration."""

    def __init__(self, axes: Sequence[Axis], vanished: Sequence[str] = ()) -> None:
        self.vanished = set(vanished)
        self.axes = tuple(axes)
        self.size = {name: size for axis in axes for name, size in axis.parts}
        self.axis_of = {name: axis for axis in axes for name, _ in axis.parts}
        self.devices = [
            dict(zip(self.size, row, strict=True))
            for row in itertools.product(*map(range, self.size.values()))
        ]

    @classmethod
    def read(cls, axes: list[AxisText]) -> "Mesh":
        """Return the mesh of a declaration, with the factors of 1 under its axes."""
        made: list[Axis] = []
        for name, factors, weights in axes:
            parts = [(f"{name}.{level}" if level else name, n) for level, n in factors]
            kept = tuple(part for part in parts if part[1] > 1)
            shares = lowest(weights) if weights and len(set(weights)) > 1 else ()
            made.append(Axis(name, kept, shares))
        vanished = [
            f"{name}.{level}" if level else name
            for name, factors, _ in axes
            for level, n in factors
            if n == 1
        ]
        return cls(made, vanished)

    def named(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the sub-axes that names stand for; refuse unknown ones and any that is twice."""
        found: list[str] = []
        seen: set[str] = set()
        whole = {axis.name: [part for part, _ in axis.parts] for axis in self.axes}
        for name in names:
            need(name in whole or name in self.size or name in self.vanished, f"no axis {name}")
            subs = whole.get(name, [name])
            need(not seen & {name, *subs}, f"{name} is named twice")
            seen |= {name, *subs}
            found += [sub for sub in subs if sub in self.size]
        return tuple(found)

    def count(self, subs: Sequence[str]) -> int:
        """Return the number of coordinates of sub-axes."""
        return math.prod(self.size[sub] for sub in subs)

    def index(self, device: dict[str, int], subs: Sequence[str]) -> int:
        """Return the coordinate of a device along sub-axes, the first most significant."""
        position = 0
        for sub in subs:
            position = position * self.size[sub] + device[sub]
        return position

    def coordinates(self, subs: Sequence[str], index: int) -> dict[str, int]:
        """Return the coordinate of each sub-axis at an index along all."""
        need(0 <= index < self.count(subs), f"no coordinate {index}")
        found: dict[str, int] = {}
        for sub in reversed(subs):
            found[sub] = index % self.size[sub]
            index //= self.size[sub]
        return found

    def weights(self, sub: str, before: dict[str, int]) -> tuple[int, ...]:
        """Return the weights of a sub-axis where those in front are at ``before``."""
        axis = self.axis_of[sub]
        if not axis.weights:
            return (1,) * self.size[sub]
        if axis.of_part:
            return axis.of_part[sub]
        names = [name for name, _ in axis.parts]
        taken = names.index(sub)
        return axis.sums(taken, tuple(before[name] for name in names[:taken]))

    def even(self, subs: Sequence[str]) -> bool:
        """Return whether sub-axes cut into blocks of one size."""
        return all(
            not self.axis_of[sub].weights
            or (self.axis_of[sub].of_part and len(set(self.axis_of[sub].of_part[sub])) == 1)
            for sub in subs
        )

    def units(self, subs: Sequence[str]) -> int:
        """Return what the size of a dimension is a multiple of; refuse sub-axes that do not cut."""
        total = 1
        for axis in self.axes:
            mine = [sub for sub in subs if self.axis_of[sub] is axis]
            if not axis.weights:
                total *= self.count(mine)
            elif axis.of_part:
                total *= math.prod(sum(axis.of_part[sub]) for sub in mine)
            elif mine:
                names = [name for name, _ in axis.parts]
                need(mine == names[: len(mine)], f"{mine} are not the first of {names}")
                rows = itertools.product(*(range(self.size[sub]) for sub in mine[:-1]))
                total *= sum(lowest([w for row in rows for w in axis.sums(len(mine) - 1, row)]))
        return total

    def block(self, size: int, subs: Sequence[str], device: dict[str, int]) -> tuple[int, int]:
        """Return where the block of a device begins in a dimension, and where it ends."""
        low, before = 0, dict[str, int]()
        for sub in subs:
            weights = self.weights(sub, before)
            first = size * sum(weights[: device[sub]]) // sum(weights)
            size = size * weights[device[sub]] // sum(weights)
            low += first
            before[sub] = device[sub]
        return low, low + size

    def local(self, kind: Type, device: dict[str, int]) -> tuple[slice, ...]:
        """Return the part of a whole tensor that lies on a device."""
        pairs = zip(kind.shape, kind.shards, strict=True)
        return tuple(slice(*self.block(n, subs, device)) for n, subs in pairs)

    def holds(self, kind: Type, device: dict[str, int]) -> bool:
        """Return whether a device is at the place of a value."""
        return all(device[sub] == n for sub, n in kind.place)

    def checked(self, kind: Type) -> Type:
        """Refuse what is no type on this mesh."""
        need(kind.dtype in DTYPES, f"no element type {kind.dtype}")
        used = [sub for subs in kind.shards for sub in subs]
        used += [*kind.partial, *(sub for sub, _ in kind.place)]
        need(len(used) == len(set(used)), "a sub-axis has two states")
        for n, subs in zip(kind.shape, kind.shards, strict=True):
            need(n >= 1, "a size below 1")
            need(n % self.units(subs) == 0, f"{subs} does not cut {n}")
        if kind.partial:
            need(kind.reduction in ("sum", "prod", "max", "min", "avg"), "no such reduction")
            need(kind.reduction != "avg" or kind.dtype in FLOATS, "an average of integers")
            need(kind.dtype != "bool" or kind.reduction in ("max", "min"), "a sum of bool")
        return kind if kind.partial else Type(kind.dtype, kind.shape, kind.shards, place=kind.place)

    def type(self, written: TypeText, sizes: dict[str, int]) -> Type:
        """Return the type that a text stands for."""
        need(written.dims is not None, "a type without dimensions")
        dims = written.dims or ()
        place = dict.fromkeys(self.named(written.root), 0)
        for axis, coordinate in written.at:
            subs = self.named([axis])
            need(not set(subs) & set(place), f"{axis} is named twice")
            place |= self.coordinates(subs, integer(coordinate, sizes))
        return self.checked(
            Type(
                written.dtype,
                tuple(integer(size, sizes) for size, _ in dims),
                tuple(self.named(subs) for _, subs in dims),
                frozenset(self.named(written.partial)),
                written.reduction,
                frozenset(place.items()),
            )
        )
