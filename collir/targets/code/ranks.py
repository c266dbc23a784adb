"""The coordinates of this rank, as expressions that C and Python share but for two operators."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar

from collir.cost.programs.compute import seconds_of_children
from collir.cost.programs.kinds import axes_of_kinds
from collir.dialects.operation import DistOp
from collir.layout import DistType, Mesh, Place
from collir.layout.mesh import by_rank

OverList = tuple[str, ...]
"""An ordered list of sub-axes."""


def outermost(mesh: Mesh, over: OverList) -> str:
    """Return the name of the outermost level that a collective over sub-axes goes through; empty
    for none."""
    levels = {mesh.by_name[axis].level for axis in over}
    return next((level.name for level in mesh.machine.levels if level.name in levels), "")


def axes_text(mesh: Mesh) -> str:
    """Return the axes of a mesh with their factors, as declared."""
    texts: list[str] = []
    for axis in mesh.axes:
        factors = " * ".join(f"{f.level}:{f.size}" for f in axis.factors or ())
        weights = f" weights [{', '.join(map(str, axis.weights))}]" if axis.weights else ""
        texts.append(f"{axis.name} = {factors or axis.size}{weights}")
    return ", ".join(texts)


def needed_ranks(mesh: Mesh) -> str:
    """Return the words for the number of ranks that a mesh runs on."""
    return f"mesh @{mesh.name} needs {mesh.devices} {'rank' if mesh.devices == 1 else 'ranks'}"


class RankText(ABC):
    """The coordinates of this rank on a mesh, in some language."""

    mesh: Mesh
    AND: ClassVar[str]
    DIVIDE: ClassVar[str]
    CHOICE: ClassVar[str]
    """The form of an expression with two values, of which a condition chooses one."""

    @abstractmethod
    def coordinate(self, axis: str) -> str:
        """Return this rank's coordinate on a sub-axis."""

    @abstractmethod
    def member(self, name: str) -> str:
        """Return a member of the mesh."""

    def definitions(self, rank: str) -> list[tuple[str, str]]:
        """Return every coordinate with its value as an expression of the rank."""
        values: list[tuple[str, str]] = []
        for sub in self.mesh.sub_axes:
            index = rank + (f" {self.DIVIDE} {sub.stride}" if sub.stride > 1 else "")
            wrap = "" if sub.stride * sub.size == self.mesh.devices else f" % {sub.size}"
            values.append((self.coordinate(sub.name), f"{index}{wrap}"))
        return values

    def index_over(self, axes: Iterable[str]) -> str:
        """Return this rank's mixed-radix index over sub-axes, the first most significant."""
        text = ""
        for place, axis in enumerate(axes):
            coordinate, size = self.coordinate(axis), self.mesh.by_name[axis].size
            major = f"({text})" if place > 1 else text
            text = f"{major} * {size} + {coordinate}" if text else coordinate
        return text or "0"

    def factor_over(self, axes: OverList) -> str:
        """Return this rank's mixed-radix index over sub-axes as a factor of a product."""
        index = self.index_over(axes)
        return f"({index})" if len(axes) > 1 else index

    def seconds(self, op: DistOp, number: Callable[[float], str] = repr) -> str:
        """Return the seconds that a computation takes on this rank as an expression; empty if it
        takes none.

        Args:
            number: a function that returns seconds as text.

        Raises:
            DiagnosticError: see ``seconds_of_children``.
        """
        *others, (last, _) = seconds_of_children(op, self.mesh)
        if not last:
            return ""
        text, children = number(last), sum(count for _, count in others)
        child = self.index_over(by_rank(self.mesh, axes_of_kinds(self.mesh)))
        for seconds, count in reversed(others):
            condition = f"{child} < {children}"
            text = self.CHOICE.format(condition=condition, then=number(seconds), other=text)
            children -= count
        return text

    def at_place(self, place: Place) -> str:
        """Return the condition that this rank is at a place; empty if all ranks are."""
        at = dict(place)
        conditions = (f"{self.coordinate(axis)} == {at[axis]}" for axis in self.mesh.ordered(at))
        return f" {self.AND} ".join(conditions)

    def next_index(self, axes: OverList, distance: int) -> str:
        """Return the index over sub-axes that is a distance further along a ring."""
        count = self.mesh.group_size(axes)
        return f"({self.index_over(axes)} + {distance % count}) % {count}"

    def index_on_line(self, axes: OverList, distance: int) -> str:
        """Return the index over sub-axes plus a distance; it may lie outside of the ranks."""
        return f"{self.index_over(axes)} {'+' if distance > 0 else '-'} {abs(distance)}"

    def beyond_line(self, axes: OverList, distance: int, index: str) -> str:
        """Return the condition that a variable with ``index_on_line`` is the index of no rank."""
        return f"{index} >= {self.mesh.group_size(axes)}" if distance > 0 else f"{index} < 0"

    def has_neighbour(self, axes: OverList, distance: int) -> str:
        """Return the condition that there is an index a distance further, along an open ring."""
        index = self.index_over(axes)
        if distance < 0:
            return f"{index} >= {-distance}"
        return f"{index} < {self.mesh.group_size(axes) - distance}"

    def from_index(self, axes: OverList, index: str) -> list[str]:
        """Return the terms to add to this rank for the rank with an index over sub-axes.

        Args:
            index: the variable that holds the index.
        """
        terms: list[str] = []
        for place, axis in enumerate(axes):
            sub, minor = self.mesh.by_name[axis], self.mesh.group_size(axes[place + 1 :])
            digit = f"{index} {self.DIVIDE} {minor}" if minor > 1 else index
            digit += f" % {sub.size}" if place else ""
            times = f" * {sub.stride}" if sub.stride > 1 else ""
            terms.append(f"({digit} - {self.coordinate(axis)}){times}")
        return terms

    def to_partner(self, x: DistType, y: DistType) -> list[str]:
        """Return the terms to add to this rank for its partner, the rank whose place in layout
        ``y`` is the place of this rank in layout ``x``.

        Coordinates on sub-axes that shard neither layout stay. On the others, the partner of the
        r-th rank that holds a block in one layout is the r-th rank that holds it in the other.
        """
        sharded = {axis for z in (x, y) for dim in z.dims for axis in dim.axes}
        moving = [sub.name for sub in self.mesh.sub_axes if sub.name in sharded]
        lists = [(a.axes, b.axes) for a, b in zip(x.dims, y.dims, strict=True)]
        copies = [tuple(a for a in moving if z.dim_of(a) is None) for z in (x, y)]
        lists.append((copies[0], copies[1]))
        terms: list[str] = []
        for source, target in lists:
            for axis in target:
                coordinate = self.coordinate(axis)
                partner = self._digit(source, target, axis)
                stride = self.mesh.by_name[axis].stride
                if partner != coordinate:
                    times = f" * {stride}" if stride > 1 else ""
                    terms.append(f"({partner} - {coordinate}){times}")
        return terms

    def _digit(self, source: OverList, target: OverList, axis: str) -> str:
        """Return the coordinate on ``axis``, a sub-axis of ``target``, of the block that has this
        rank's index over ``source``; both lists count the same blocks."""
        size = self.mesh.by_name[axis].size
        minor = self.mesh.group_size(target[target.index(axis) + 1 :])
        for place, candidate in enumerate(source):
            rest = self.mesh.group_size(source[place + 1 :])
            if (self.mesh.by_name[candidate].size, rest) == (size, minor):
                return self.coordinate(candidate)
        digit = self.factor_over(source)
        digit += f" {self.DIVIDE} {minor}" if minor > 1 else ""
        return digit if axis == target[0] else f"{digit} % {size}"
