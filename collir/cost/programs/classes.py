"""The classes of devices that a program tells apart, and the steps that each class runs.

Devices run different steps only if their coordinates differ on sub-axes with values at other places
than root. There is a class for each combination of these coordinates: a pipeline has as many
classes as stages, however many devices a stage has. A program whose values are everywhere or at
root has one class: the device at coordinate 0 takes part in all of its steps.

A step runs once for each set of classes that take part in it together. An all_reduce over ``data``
is one step for each stage of a pipeline, and stages do not wait for each other. A send is a step of
the two classes at its ends.

On a machine with several kinds of devices there are classes for each kind too (``kinds``). Groups
whose messages may share links start together, when the last of their devices is there.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from xdsl.ir import Operation, SSAValue

from collir.cost.collectives.phases import Phase
from collir.cost.network.loads import Resource, ResourceKind
from collir.cost.programs.kinds import (
    Children,
    Coupling,
    axes_of_kinds,
    has_kinds,
    kinds_at,
    share_links,
)
from collir.dialects.nested import CallOp, NestedOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.steps import Step, steps_of
from collir.layout import DistType, Mesh
from collir.layout.types import Place, place_at, place_text


@dataclass(frozen=True)
class Sites:
    """The ports and interconnects that a step uses, which classes share or do not share.

    Attributes:
        ports: for each level, the ports, such as ``pipe = 1, out``.
        inside: for each level, the parents whose interconnects it uses, such as ``pipe = 1``.
    """

    ports: tuple[tuple[str, ...], ...]
    inside: tuple[tuple[str, ...], ...]

    def located(self, phases: Iterable[Phase]) -> tuple[Phase, ...]:
        """Return phases that use these resources in place of the resources of one class."""
        return tuple(
            replace(phase, uses=tuple(self._uses(phase.uses))) if phase.uses else phase
            for phase in phases
        )

    def _uses(self, uses: Iterable[tuple[Resource, float]]) -> Iterator[tuple[Resource, float]]:
        for resource, part in uses:
            if resource.kind is ResourceKind.PARENT:
                yield resource, part
                continue
            sites = self.ports if resource.kind is ResourceKind.PORT else self.inside
            for where in sites[resource.level]:
                yield resource._replace(where=where), part


@dataclass(frozen=True)
class StepInstance:
    """A step, as some classes run it together.

    Attributes:
        step: the step.
        on: the numbers of the classes.
        after: the numbers of the earlier instances whose results it needs, ascending.
        place: the coordinates of these classes on sub-axes along which other classes run it apart.
        at: the place, as a report shows it; empty if there is one class.
        kinds: the kinds of the devices, if the machine has several; else empty.
        sites: the ports and interconnects that it uses; None if there is one class.
    """

    step: Step
    on: tuple[int, ...]
    after: tuple[int, ...]
    place: Place = ()
    at: str = ""
    sites: Sites | None = None
    kinds: tuple[str, ...] = ()

    def located(self, phases: Sequence[Phase]) -> tuple[Phase, ...]:
        """Return phases of the step that use the resources of its classes."""
        return tuple(phases) if self.sites is None else self.sites.located(phases)


class _Site(NamedTuple):
    """Where an instance is; see the attributes of the same names."""

    place: Place
    at: str
    sites: Sites | None
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Lookup:
    """The class of each device, without the program that tells classes apart.

    Attributes:
        places, sets, children: see ``DeviceClasses``.
    """

    mesh: Mesh
    places: Sequence[Mapping[str, int]]
    sets: Sequence[int]
    children: Children | None

    def class_of(self, rank: int) -> int:
        """Return the number of the class of a device."""
        for number, place in enumerate(self.places):
            if self.children is not None and self.sets[number] != self.children.set_at(rank):
                continue
            subs = ((self.mesh.by_name[axis], at) for axis, at in place.items())
            if all(rank // sub.stride % sub.size == at for sub, at in subs):
                return number
        raise AssertionError(f"device {rank} is in no class")


class DeviceClasses:
    """The classes of devices of a program.

    Attributes:
        axes: the sub-axes whose coordinates tell classes apart.
        places: for each class, the coordinates of its device on these sub-axes.
        children: the children of the level of the kinds; None if kinds are not told apart.
        sets: for each class, the number of its set of these children.
        roots: the sub-axes on the level of the kinds where some value is at coordinate 0 only.
        place: the coordinates of the program's devices, where devices at other coordinates run
            another program.
    """

    def __init__(
        self,
        mesh: Mesh,
        steps: Sequence[Step],
        by_kind: bool = False,
        arguments: Sequence[DistType] = (),
        place: Place = (),
    ):
        """Tell classes apart.

        Args:
            by_kind: whether devices of different kinds are in different classes.
            arguments: the types of the arguments of the program, which matter to kinds.
            place: see the attribute.

        Raises:
            CostError: kinds are to be told apart, and the mesh is not placed on levels.
        """
        self.mesh, self.place = mesh, place
        by_kind = by_kind and has_kinds(mesh)
        steps = [*_with_nested(steps)]
        types = [x for step in steps for x in _types_in(step)] + list(arguments if by_kind else ())
        places = [pair for x in types for pair in x.place]
        self.axes = mesh.ordered(axis for axis, coordinate in places if coordinate)
        self.children: Children | None = None
        self.sets: list[int] = []
        self.roots: frozenset[str] = frozenset()
        on_level: Sequence[str] = ()
        if by_kind:
            roots = mesh.ordered(axis for axis, _ in places if axis not in self.axes)
            alone = (step for step in steps if not isinstance(step, NestedOp))
            couplings = dict.fromkeys(map(self._coupling, alone))
            self.children = Children(mesh, self.axes, roots, [*filter(None, couplings)])
            self.roots = frozenset(roots).intersection(on_level := self.children.axes)
        sizes = (range(mesh.by_name[axis].size) for axis in self.axes if axis not in on_level)
        names = [axis for axis in self.axes if axis not in on_level]
        self.places: list[Mapping[str, int]] = [
            dict(zip(names, coordinates, strict=True)) for coordinates in product(*sizes)
        ]
        if self.children is not None:
            self._split_by_kind(self.children)
        self._rails: dict[int, list[tuple[str, ...]]] = {}
        self._sites: dict[object, _Site] = {}
        self._holding: dict[int, tuple[DistType, list[int]]] = {}  # by identity
        self._bytes: list[dict[SSAValue, int]] = [{} for _ in self.places]

    def _split_by_kind(self, children: Children) -> None:
        """Split each class by the sets of the children."""
        numbers = range(len(children.members))
        self.sets = [number for _ in self.places for number in numbers]
        self.places = [
            place
            | {
                axis: children.coordinate(children.members[number][0], axis)
                for axis in children.axes
                if axis in self.axes
            }
            for place in map(dict, self.places)
            for number in numbers
        ]

    def _coupling(self, step: DistOp) -> Coupling:
        """Return the sub-axes on the level of the kinds along which a step couples children."""
        source, target = _ends_of(step)
        over, on_level = _coupled(step, source, target), axes_of_kinds(self.mesh)
        coupled = {axis for axis in on_level if axis in over}
        if share_links(self.mesh, over):
            coupled.update(axis for axis in on_level if axis not in self.axes)
        return frozenset(coupled)

    @property
    def _told_apart(self) -> bool:
        return bool(self.axes) or self.children is not None

    @property
    def lookup(self) -> Lookup:
        """The class of each device."""
        return Lookup(self.mesh, self.places, self.sets, self.children)

    def text(self, number: int) -> str:
        """Return the coordinates of a class as in a ``.coll`` file, and its kind of devices; empty
        if there is one class."""
        place = place_text(place_at(self.places[number]), self.mesh)
        return ", ".join(filter(None, (place, self._kind_text((number,)))))

    def _kind_text(self, on: Sequence[int]) -> str:
        """Return the kinds of devices of some classes; empty if all kinds are among them."""
        if self.children is None:
            return ""
        sets = sorted({self.sets[number] for number in on})
        if len(sets) == len(self.children.members):
            return ""
        return " and ".join(dict.fromkeys(map(self.children.text, sets)))

    def kinds_of(self, on: Iterable[int]) -> tuple[str, ...]:
        """Return the kinds of the devices of some classes; empty if devices are alike or
        unplaced."""
        if not has_kinds(self.mesh):
            return ()
        if self.children is None:
            places = [place_at(self.places[number]) for number in on]
            kinds = (kind for place in places for kind in kinds_at(self.mesh, place))
        else:
            kinds = (kind for n in on for kind in self.children.kinds(self.sets[n]))
        return tuple(dict.fromkeys(kinds))

    def bytes_of(self, number: int, value: SSAValue) -> int:
        """Return the bytes of the largest buffer of a value on the devices of a class."""
        known = self._bytes[0 if self.children is None else number]
        size = known.get(value)
        if size is None:
            size = known[value] = self.local_bytes(number, dist_type(value))
        return size

    def local_bytes(self, number: int, x: DistType) -> int:
        """Return the bytes of the largest buffer of a type on the devices of a class."""
        if self.children is None or x.is_even(self.mesh):
            return x.local_bytes(self.mesh)
        uneven = [axis for dim in x.dims for axis in dim.axes if axis in self.mesh.uneven]
        devices = self.children.coordinates(self.sets[number], uneven, self.places[number])
        return max(math.prod(x.shape_at(self.mesh, at)) for at in devices) * x.dtype.bytes

    def holding(self, x: DistType) -> list[int]:
        """Return the classes that hold a value."""
        if (known := self._holding.get(id(x))) is None:
            known = self._holding[id(x)] = x, self._holding_new(x)
        return known[1]

    def _holding_new(self, x: DistType) -> list[int]:
        at = {axis: coordinate for axis, coordinate in x.place if axis in self.axes}
        classes = [n for n, place in enumerate(self.places) if at.items() <= place.items()]
        if self.children is None:
            return classes
        children = self.children
        roots = [axis for axis, _ in x.place if axis in self.roots]
        first = {n: children.members[self.sets[n]][0] for n in classes}
        return [n for n in classes if not any(children.coordinate(first[n], a) for a in roots)]

    def instances(self, ops: Iterable[Operation]) -> list[StepInstance]:
        """Return the steps that are more than views, as classes run them, in order."""
        instances: list[StepInstance] = []
        numbers_of: list[list[int]] = []
        for step, predecessors in steps_of(ops, self.mesh):
            before = [number for earlier in predecessors for number in numbers_of[earlier]]
            numbers_of.append([])
            for on in self._groups(step):
                after = sorted(n for n in before if not {*on}.isdisjoint(instances[n].on))
                numbers_of[-1].append(len(instances))
                instances.append(self._instance(step, on, tuple(after)))
        return instances

    def instances_of(self, op: DistOp | CallOp) -> list[StepInstance]:
        """Return a step, or a call of a function that names no places, as classes run it."""
        if isinstance(op, DistOp):
            return [self._instance(op, on, ()) for on in self._groups(op)]
        held = self.holding(dist_type(op.operands[0]))
        return [self._located(op, (number,), (), ()) for number in held]

    def _groups(self, step: Step) -> list[tuple[int, ...]]:
        """Return the sets of classes that run a step, each together."""
        if not self._told_apart:
            return [(0,)]
        if isinstance(step, NestedOp):
            return [tuple(sorted(self._taking_part(step)))]
        source, target = _ends_of(step)
        over = _coupled(step, source, target)
        ends = _ends(source, target, over)
        coupling = None if self.children is None else self._coupling(step)
        groups: dict[object, list[int]] = {}
        for number in self.holding(target.without_place(over)):
            place = self.places[number]
            if ends and not any(_agree(place, end) for end in ends):
                continue
            apart = tuple(place[axis] for axis in self.axes if axis not in over)
            partners: frozenset[int] = frozenset()
            if self.children is not None and coupling is not None:
                partners = self.children.partners(self.sets[number], coupling)
            groups.setdefault((apart, partners), []).append(number)
        return [tuple(group) for group in groups.values()]

    def _taking_part(self, loop: NestedOp) -> set[int]:
        """Return the classes that run a step in a loop, or hold one of its results."""
        block = loop.program()
        inner = [op for op in block.ops if isinstance(op, Step)] if block else []
        on = {number for result in loop.results for number in self.holding(dist_type(result))}
        return on.union(*(group for op in inner for group in self._groups(op)))

    def _instance(self, step: Step, on: tuple[int, ...], after: tuple[int, ...]) -> StepInstance:
        if not self._told_apart or isinstance(step, NestedOp):
            return StepInstance(step, on, after, self.place, kinds=self.kinds_of(on))
        source, target = _ends_of(step)
        over = _coupled(step, source, target)
        return self._located(step, on, over, _ends(source, target, over), after)

    def _located(
        self,
        step: Step,
        on: tuple[int, ...],
        over: Sequence[str],
        ends: Sequence[Mapping[str, int]],
        after: tuple[int, ...] = (),
    ) -> StepInstance:
        """Return the instance of a step on coupled classes, with the ports that it uses."""
        if not self._told_apart:
            return StepInstance(step, on, after, self.place, kinds=self.kinds_of(on))
        key = on, tuple(over), tuple(tuple(end.items()) for end in ends)
        if (site := self._sites.get(key)) is None:
            site = self._sites[key] = self._site(on, over, ends)
        return StepInstance(step, on, after, *site)

    def _site(
        self, on: tuple[int, ...], over: Sequence[str], ends: Sequence[Mapping[str, int]]
    ) -> _Site:
        """Return the place of classes that are coupled along sub-axes."""
        place = {axis: n for axis, n in self.places[on[0]].items() if axis not in over}
        ports: list[tuple[str, ...]] = []
        inside: list[tuple[str, ...]] = []
        for level in range(len(self.mesh.machine.levels)):
            names: dict[str, None] = {}
            for number in on:
                for direction, end in zip(("out", "in"), ends or ({}, {}), strict=True):
                    if _agree(self.places[number], end):
                        path = self._path(number, level + 1)
                        rails = self._rails_of(level)[number]
                        names |= {f"{path}{rail}{direction}": None for rail in rails}
            ports.append(tuple(names))
            inside.append(tuple(dict.fromkeys(self._path(n, level).rstrip(", ") for n in on)))
        sites = Sites(tuple(ports), tuple(inside))
        text = ", ".join(filter(None, (self._text(on, ends), self._kind_text(on))))
        return _Site(place_at(place), text, sites, self.kinds_of(on))

    def _path(self, number: int, levels: int) -> str:
        """Return the coordinates of a class on the outer levels, as the start of a text."""
        names = [level.name for level in self.mesh.machine.levels[:levels]]
        place = {
            axis: coordinate
            for axis, coordinate in self.places[number].items()
            if self.mesh.by_name[axis].level in (None, *names)
        }
        text = f"{place_text(place_at(place), self.mesh)}, " if place else ""
        if self.children is not None and levels > self.children.level:
            text += f"{self.children.text(self.sets[number])}, "
        return text

    def _rails_of(self, level: int) -> list[tuple[str, ...]]:
        """Return for each class the rails of a port that its devices use, as parts of a text. Rails
        with the same classes count as one; without differences, the port does."""
        if level not in self._rails:
            reached = [self.rails_reached(number, level) for number in range(len(self.places))]
            users: dict[tuple[int, ...], list[int]] = {}
            for rail in sorted(frozenset[int]().union(*reached)):
                using = tuple(n for n, rails in enumerate(reached) if rail in rails)
                users.setdefault(using, []).append(rail)
            texts = {
                using: f"rail {', '.join(map(str, rails))}, " if len(users) > 1 else ""
                for using, rails in users.items()
            }
            self._rails[level] = [
                tuple(text for using, text in texts.items() if number in using)
                for number in range(len(reached))
            ]
        return self._rails[level]

    def rails_reached(self, number: int, level: int) -> frozenset[int]:
        """Return the rails of a level's port that are linked to devices of a class."""
        levels, children = self.mesh.machine.levels, self.children
        below = math.prod(inner.size for inner in levels[level + 1 :])
        block = below // levels[level].rails
        reached = {0}
        if children is not None and children.level > level:
            inside = math.prod(inner.size for inner in levels[children.level + 1 :])
            reached = {inside * child for child in children.members[self.sets[number]]}
        for sub in self.mesh.sub_axes:
            if sub.stride >= below or (children is not None and sub.name in children.axes):
                continue
            # The devices along a sub-axis inside of one block are on one rail.
            free = range(1 if block % (sub.stride * sub.size) == 0 else sub.size)
            coordinate = self.places[number].get(sub.name)
            steps = free if coordinate is None else [coordinate]
            reached = {offset + sub.stride * x for offset in reached for x in steps}
        return frozenset(offset // block for offset in reached)

    def _text(self, on: Sequence[int], ends: Sequence[Mapping[str, int]]) -> str:
        """Return the place of an instance: what its classes have in common, or its two ends."""
        if ends:
            start, end = (place_text(place_at(place), self.mesh) for place in ends)
            return f"{start} to {end}"
        first = self.places[on[0]]
        common = {
            axis: coordinate
            for axis, coordinate in first.items()
            if all(self.places[number][axis] == coordinate for number in on)
        }
        return place_text(place_at(common), self.mesh)


def classes_of(
    ops: Iterable[Operation],
    mesh: Mesh,
    by_kind: bool = False,
    arguments: Sequence[DistType] = (),
    place: Place = (),
) -> DeviceClasses:
    """Return the classes of a program, by the steps in its loops too.

    Args:
        by_kind: whether devices of different kinds are in different classes.
        arguments: the types of the arguments of the program, which matter to kinds.
        place: the coordinates of the program's devices, where devices at other coordinates run
            another program.

    Raises:
        CostError: kinds are to be told apart, and the mesh is not placed on levels.
    """
    return DeviceClasses(
        mesh, [op for op in ops if isinstance(op, Step)], by_kind, arguments, place
    )


def _ends_of(step: DistOp) -> tuple[DistType, DistType]:
    """Return the types of the first operand and of the result; a step without operands has the
    latter twice."""
    source, *_ = _types_in(step)
    return source, dist_type(step.result)


def _types_in(step: Step) -> Iterator[DistType]:
    """Yield the types of the operands and results of a step."""
    yield from map(dist_type, (*step.operands, *step.results))


def _with_nested(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps, and those inside of loops."""
    for step in steps:
        yield step
        for region in step.regions if type(step) is RepeatOp else ():
            yield from _with_nested(op for op in region.block.ops if isinstance(op, Step))


def _coupled(step: DistOp, source: DistType, target: DistType) -> tuple[str, ...]:
    """Return the sub-axes along which devices take part in a step together."""
    if not step.kind.sends:
        return ()
    if step.over:
        return step.over
    return tuple({axis for x in (source, target) for dim in x.dims for axis in dim.axes})


def _ends(source: DistType, target: DistType, over: Sequence[str]) -> tuple[Mapping[str, int], ...]:
    """Return the places of the sender and the receiver, if a step has only these two."""
    if not over or not source.placed.issuperset(over) or not target.placed.issuperset(over):
        return ()
    return tuple({axis: x.coordinate(axis) for axis in over} for x in (source, target))


def _agree(place: Mapping[str, int], end: Mapping[str, int]) -> bool:
    return all(place.get(axis, coordinate) == coordinate for axis, coordinate in end.items())
