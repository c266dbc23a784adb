"""The classes of devices that a program tells apart, and the steps that each class runs.

Devices differ in what they do only by their coordinates on sub-axes on which values are at places
other than root. There is a class for each combination of these coordinates: a pipeline has as many
classes as stages, however many devices a stage has. A program whose values are everywhere or at
root has one class: the device at coordinate 0 takes part in all of its steps.

A step runs once for each set of classes that take part in it together. An all_reduce over ``data``
is one step for each stage of a pipeline, and stages do not wait for each other. A send is a step of
the two classes at its ends.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.cost.collectives.phases import Phase
from collir.cost.network.loads import Resource, ResourceKind
from collir.dialects.machine import mesh_of
from collir.dialects.nested import NestedOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.steps import PlannedStep, Step, steps_of
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
        """Return phases that use these resources, in place of those of one class."""
        return tuple(
            replace(phase, uses=tuple(self._uses(phase.uses))) if phase.uses else phase
            for phase in phases
        )

    def _uses(self, uses: Iterable[tuple[Resource, float]]) -> Iterator[tuple[Resource, float]]:
        for resource, part in uses:
            sites = self.ports if resource.kind is ResourceKind.PORT else self.inside
            for where in sites[resource.level]:
                yield resource._replace(where=where), part


@dataclass(frozen=True)
class Instance:
    """A step, as some classes run it together.

    Attributes:
        step: the step.
        on: the numbers of the classes.
        after: the numbers of the earlier instances whose results it needs, ascending.
        place: the coordinates of these classes on sub-axes along which others run it apart.
        at: the place, as a report shows it; empty if there is one class.
        sites: the ports and interconnects that it uses; None if there is one class.
    """

    step: Step
    on: tuple[int, ...]
    after: tuple[int, ...]
    place: Place = ()
    at: str = ""
    sites: Sites | None = None

    def located(self, phases: Sequence[Phase]) -> tuple[Phase, ...]:
        """Return phases of the step that use the resources of its classes."""
        return tuple(phases) if self.sites is None else self.sites.located(phases)


class Classes:
    """The classes of devices of a program.

    Attributes:
        axes: the sub-axes whose coordinates tell classes apart.
        places: for each class, the coordinates of its device on these sub-axes.
    """

    def __init__(self, mesh: Mesh, types: Iterable[DistType]):
        self.mesh = mesh
        self.axes = mesh.ordered(axis for x in types for axis, coordinate in x.place if coordinate)
        sizes = (range(mesh.by_name[axis].size) for axis in self.axes)
        self.places: list[Mapping[str, int]] = [
            dict(zip(self.axes, coordinates, strict=True)) for coordinates in product(*sizes)
        ]

    def text(self, number: int) -> str:
        """Return the coordinates of a class as in a ``.coll`` file; empty if there are none."""
        return place_text(place_at(self.places[number]), self.mesh)

    def holding(self, x: DistType) -> list[int]:
        """Return the classes that hold a value."""
        at = {axis: coordinate for axis, coordinate in x.place if axis in self.axes}
        return [n for n, place in enumerate(self.places) if at.items() <= place.items()]

    def instances(self, ops: Iterable[Operation | PlannedStep]) -> list[Instance]:
        """Return the steps that are more than views, as classes run them, in order."""
        instances: list[Instance] = []
        numbers_of: list[list[int]] = []
        for step, predecessors in steps_of(ops, self.mesh):
            before = [number for earlier in predecessors for number in numbers_of[earlier]]
            numbers_of.append([])
            for on in self._groups(step):
                after = sorted(n for n in before if not {*on}.isdisjoint(instances[n].on))
                numbers_of[-1].append(len(instances))
                instances.append(self._instance(step, on, tuple(after)))
        return instances

    def _groups(self, step: Step) -> list[tuple[int, ...]]:
        """Return the sets of classes that run a step, each together."""
        if not self.axes:
            return [(0,)]
        if isinstance(step, NestedOp):
            return [tuple(sorted(self._taking_part(step)))]
        (source, *_), target = types_of(step)
        over = _coupled(step, source, target)
        ends = _ends(source, target, over)
        groups: dict[tuple[int, ...], list[int]] = {}
        for number in self.holding(target.without_place(over)):
            place = self.places[number]
            if ends and not any(_agree(place, end) for end in ends):
                continue
            apart = tuple(place[axis] for axis in self.axes if axis not in over)
            groups.setdefault(apart, []).append(number)
        return [tuple(group) for group in groups.values()]

    def _taking_part(self, loop: NestedOp) -> set[int]:
        """Return the classes that run a step in a loop, or hold one of its results."""
        block = loop.program()
        inner = [op for op in block.ops if isinstance(op, Step)] if block else []
        on = {number for result in loop.results for number in self.holding(dist_type(result))}
        return on.union(*(group for op in inner for group in self._groups(op)))

    def _instance(self, step: Step, on: tuple[int, ...], after: tuple[int, ...]) -> Instance:
        if not self.axes or isinstance(step, NestedOp):
            return Instance(step, on, after)
        (source, *_), target = types_of(step)
        over = _coupled(step, source, target)
        ends = _ends(source, target, over)
        place = {axis: n for axis, n in self.places[on[0]].items() if axis not in over}
        ports: list[tuple[str, ...]] = []
        inside: list[tuple[str, ...]] = []
        for level in range(len(self.mesh.machine.levels)):
            names: dict[str, None] = {}
            for number in on:
                for direction, end in zip(("out", "in"), ends or ({}, {}), strict=True):
                    if _agree(self.places[number], end):
                        names[f"{self._path(number, level + 1)}{direction}"] = None
            ports.append(tuple(names))
            inside.append(tuple(dict.fromkeys(self._path(n, level).rstrip(", ") for n in on)))
        sites = Sites(tuple(ports), tuple(inside))
        return Instance(step, on, after, place_at(place), self._text(on, ends), sites)

    def _path(self, number: int, levels: int) -> str:
        """Return the coordinates of a class on the outer levels, as the start of a text."""
        names = [level.name for level in self.mesh.machine.levels[:levels]]
        place = {
            axis: coordinate
            for axis, coordinate in self.places[number].items()
            if self.mesh.by_name[axis].level in (None, *names)
        }
        return f"{place_text(place_at(place), self.mesh)}, " if place else ""

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


def classes_of(ops: Iterable[Operation | PlannedStep], mesh: Mesh) -> Classes:
    """Return the classes of a program, by the types of its values, in loops too."""
    return Classes(mesh, (x for op in ops if isinstance(op, Step) for x in _all_types(op)))


def runs_apart(function: FuncOp) -> bool:
    """Return whether devices of a function run different steps, as values are at several places."""
    return bool(classes_of(function.body.ops, mesh_of(function)).axes)


def types_of(step: DistOp | PlannedStep) -> tuple[list[DistType], DistType]:
    """Return the types of the operands and of the result."""
    if isinstance(step, PlannedStep):
        return [operand.type for operand in step.operands], step.result.type
    return [dist_type(operand) for operand in step.operands], dist_type(step.result)


def _all_types(step: Step) -> Iterator[DistType]:
    if isinstance(step, NestedOp):
        yield from map(dist_type, (*step.operands, *step.results))
        for op in step.regions[0].block.ops if step.regions else ():
            if isinstance(op, Step):
                yield from _all_types(op)
    else:
        operands, result = types_of(step)
        yield from (*operands, result)


def _coupled(step: DistOp | PlannedStep, source: DistType, target: DistType) -> tuple[str, ...]:
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
