"""The children of the level on which kinds of devices differ, told apart where a program does.

Devices below one child are alike. Two children are alike if their devices have the same kind, hold
the same values, and run each step together with children that are again alike. Refinement finds
these sets: at first all children of one kind and place are a set, and sets are split until all
children of a set run each step with the same sets.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import product

from collir.cost.network.group import CostError
from collir.layout import Mesh, Place
from collir.layout.mesh import unplaced_message
from collir.machine import LinkKind

Coupling = frozenset[str]
"""The sub-axes on the level of the kinds along which children run a step together."""


class Children:
    """The sets of children that a program tells apart.

    Attributes:
        level: the index of the level of the kinds.
        axes: the sub-axes on that level.
        set_of: for each child, the number of its set.
        members: for each set, its children.
    """

    def __init__(
        self,
        mesh: Mesh,
        separate: Iterable[str],
        at_zero: Iterable[str],
        couplings: Collection[Coupling],
    ):
        """Tell children apart.

        Args:
            separate: the sub-axes on which every coordinate is a place of its own.
            at_zero: the sub-axes on which only coordinate 0 is a place of its own.
            couplings: the couplings of all steps of the program.

        Raises:
            CostError: the mesh is not placed on levels.
        """
        level = mesh.machine.kinds_level
        assert level is not None
        check_kinds_known(mesh)
        self.mesh, self.level, self.axes = mesh, level, axes_of_kinds(mesh)
        counts = mesh.machine.levels[self.level].kinds
        self._names = [name for name, count in counts for _ in range(count)]
        devices = mesh.machine.kind_of
        apart, roots = [*self._on(separate)], [*self._on(at_zero)]
        start = [
            (
                devices[name],
                tuple(self.coordinate(child, axis) for axis in apart),
                tuple(self.coordinate(child, axis) == 0 for axis in roots),
            )
            for child, name in enumerate(self._names)
        ]
        self.set_of = _numbered(start)
        sets = 0
        while sets < (sets := max(self.set_of) + 1):
            together = [self._together(coupling) for coupling in couplings]
            self.set_of = _numbered(
                zip(self.set_of, *(map(_key, partners) for partners in together), strict=True)
            )
        self.members: list[list[int]] = [[] for _ in range(sets)]
        for child, number in enumerate(self.set_of):
            self.members[number].append(child)
        self._places = [
            [self.coordinate(first, axis) for axis in apart] for first, *_ in self.members
        ]

    def _on(self, axes: Iterable[str]) -> Iterator[str]:
        return (axis for axis in axes if axis in self.axes)

    @cached_property
    def _steps(self) -> dict[str, tuple[int, int]]:
        """For each sub-axis on the level, the difference of neighbouring children, and its size."""
        inside = 1
        for level in self.mesh.machine.levels[self.level + 1 :]:
            inside *= level.size
        subs = self.mesh.by_name
        return {axis: (subs[axis].stride // inside, subs[axis].size) for axis in self.axes}

    def coordinate(self, child: int, axis: str) -> int:
        """Return the coordinate of a child on a sub-axis of the level."""
        step, size = self._steps[axis]
        return child // step % size

    def set_at(self, rank: int) -> int:
        """Return the number of the set of the child that a device is below."""
        levels = self.mesh.machine.levels
        inside = math.prod(level.size for level in levels[self.level + 1 :])
        return self.set_of[rank // inside % levels[self.level].size]

    def _together(self, coupling: Coupling) -> list[frozenset[int]]:
        """Return, for each child, the sets of the children that it runs steps with."""
        first = [
            child - sum(self.coordinate(child, axis) * self._steps[axis][0] for axis in coupling)
            for child in range(len(self.set_of))
        ]
        sets: dict[int, set[int]] = {}
        for child, group in enumerate(first):
            sets.setdefault(group, set()).add(self.set_of[child])
        frozen = {group: frozenset(members) for group, members in sets.items()}
        return [frozen[group] for group in first]

    def partners(self, number: int, coupling: Coupling) -> frozenset[int]:
        """Return the sets that a set runs a step with, and itself."""
        if not coupling:
            return frozenset((number,))
        if coupling not in self._partners:
            together = self._together(coupling)
            self._partners[coupling] = [together[children[0]] for children in self.members]
        return self._partners[coupling][number]

    @cached_property
    def _partners(self) -> dict[Coupling, list[frozenset[int]]]:
        return {}

    def kinds(self, number: int) -> tuple[str, ...]:
        """Return the names of the kinds of a set, which are alike."""
        return tuple(dict.fromkeys(self._names[child] for child in self.members[number]))

    def text(self, number: int) -> str:
        """Return the name of a set for reports: its kind, and its first child if other sets of the
        kind are at the same place."""
        name, same = "/".join(self.kinds(number)), (self.kinds(number), self._places[number])
        others = [(self.kinds(n), self._places[n]) for n in range(len(self.members)) if n != number]
        if same not in others:
            return name
        return f"{name} {self.mesh.machine.levels[self.level].name} {self.members[number][0]}"

    def coordinates(
        self, number: int, axes: Sequence[str], fixed: Mapping[str, int]
    ) -> Iterator[dict[str, int]]:
        """Yield the coordinates of the devices of a set on some sub-axes, each once.

        Args:
            fixed: coordinates on sub-axes of other levels.
        """
        here = [*self._on(axes)]
        elsewhere = [axis for axis in axes if axis not in self.axes]
        children = {
            tuple(self.coordinate(child, axis) for axis in here) for child in self.members[number]
        }
        ranges = (
            (fixed[axis],) if axis in fixed else range(self.mesh.by_name[axis].size)
            for axis in elsewhere
        )
        for inside, outside in product(sorted(children), [*product(*ranges)]):
            yield dict(zip((*here, *elsewhere), (*inside, *outside), strict=True))


def check_kinds_known(mesh: Mesh) -> None:
    """Check that the kind of each device is known.

    Raises:
        CostError: devices differ, and the mesh is not placed on levels.
    """
    if mesh.machine.kinds_level is not None and not mesh.placed:
        kinds = " and which ".join(kind.name for kind in mesh.machine.kinds)
        raise CostError(
            f"it is not known which devices of mesh @{mesh.name} are {kinds}: "
            f"{unplaced_message(mesh)}"
        )


def _key(sets: frozenset[int]) -> tuple[int, ...]:
    return tuple(sorted(sets))


def _numbered(keys: Iterable[object]) -> list[int]:
    """Return a number for each key, in the order in which keys are first seen."""
    numbers: dict[object, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def axes_of_kinds(mesh: Mesh) -> tuple[str, ...]:
    """Return the sub-axes on the level of the kinds; none if all devices are alike."""
    if (index := mesh.machine.kinds_level) is None:
        return ()
    level = mesh.machine.levels[index].name
    return mesh.ordered(sub.name for sub in mesh.sub_axes if sub.level == level)


def share_links(mesh: Mesh, over: Collection[str]) -> bool:
    """Return whether groups over sub-axes may use links that groups of devices of other kinds use
    too."""
    index = mesh.machine.kinds_level
    assert index is not None
    levels = mesh.machine.levels
    own = levels[index]
    used = {mesh.by_name[axis].level for axis in over}
    kinds = {own.kind, *(part.kind for part in own.parts)}
    plain = own.uniform and kinds == {LinkKind.SWITCH} and own.taper == 1
    return any(level.name in used for level in levels[:index]) or (own.name in used and not plain)


def has_kinds(mesh: Mesh) -> bool:
    """Return whether devices of the machine differ."""
    return mesh.machine.kinds_level is not None


def kinds_at(mesh: Mesh, place: Place) -> tuple[str, ...]:
    """Return the kinds of the devices at some coordinates; none if they are not known, as all
    devices are alike or the mesh is on no levels."""
    return _kinds_at(mesh, place) if has_kinds(mesh) and mesh.placed else ()


@lru_cache(maxsize=256)
def _kinds_at(mesh: Mesh, place: Place) -> tuple[str, ...]:
    here = [(axis, coordinate) for axis, coordinate in place if axis in axes_of_kinds(mesh)]
    children = Children(mesh, [axis for axis, _ in here], (), ())
    return tuple(
        dict.fromkeys(
            kind
            for number, (first, *_) in enumerate(children.members)
            if all(children.coordinate(first, axis) == coordinate for axis, coordinate in here)
            for kind in children.kinds(number)
        )
    )


def seen_by(mesh: Mesh, kinds: tuple[str, ...]) -> Mesh:
    """Return the mesh on a machine whose devices are all as slow as the slowest of some kinds."""
    return _seen_by(mesh, kinds) if 0 < len(kinds) < len(mesh.machine.kinds) else mesh


@lru_cache(maxsize=64)
def _seen_by(mesh: Mesh, kinds: tuple[str, ...]) -> Mesh:
    return Mesh(mesh.name, mesh.machine.of_kinds(kinds), mesh.axes)
