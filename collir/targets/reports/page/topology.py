"""The levels of a machine as pictures: children, the axes on them, links and how busy they are."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from collir.cost.network.loads import ResourceKind
from collir.cost.programs.links import link_seconds
from collir.cost.programs.simulation import Simulation
from collir.layout import Mesh
from collir.machine import Level, LinkKind
from collir.targets.reports.text import percent_text, rate_text, seconds_text

_WIDTH = 760
"""The units of the picture of a level, from its left to its right."""

_IN_A_ROW = 8
"""The most children that are drawn beside each other."""

_IN_A_CIRCLE = 16
"""The most children that are drawn in a circle, with all links between them."""

_IN_A_GRID = 8
"""The most children of a side of a torus that is drawn."""

_WORDS = {LinkKind.FULL: "full mesh", LinkKind.LINKS: "matrix of links"}

_MOST_RADIUS = 200.0
_BOX = 84
_LINE = 14
_THICKEST = 7.0


@dataclass(frozen=True)
class Box:
    """A child: where its middle is, how large it is, and the lines in it."""

    x: float
    y: float
    height: float
    lines: Sequence[str]
    width: float = _BOX

    @property
    def rows(self) -> Iterator[tuple[float, str]]:
        """The heights of its lines, and these."""
        first = self.y - _LINE * (len(self.lines) - 1) / 2
        yield from ((first + _LINE * n, line) for n, line in enumerate(self.lines))


@dataclass(frozen=True)
class Wire:
    """A link, from a point to another, and the share of the time that it is busy."""

    x1: float
    y1: float
    x2: float
    y2: float
    share: float
    title: str
    most: bool = False

    @property
    def thickness(self) -> float:
        """The thicker, the busier."""
        return 1.2 + (_THICKEST - 1.2) * min(1.0, self.share)


@dataclass(frozen=True)
class Drawing:
    """A level.

    Attributes:
        title: what it is, in words.
        share: the part of the time that its busiest resource is busy.
        most: whether no other level has a busier one.
        notes: what the picture leaves out.
    """

    title: str
    share: float
    most: bool
    height: float
    boxes: Sequence[Box]
    wires: Sequence[Wire]
    notes: Sequence[str] = ()
    width: float = field(default=_WIDTH, init=False)


def drawings(simulation: Simulation) -> list[Drawing]:
    """Return a picture for each level with several children, the outermost first.

    All children of a level are alike, so it is one of them that the next picture opens.
    """
    levels = simulation.mesh.machine.levels
    shares = [_share(simulation, number) for number in range(len(levels))]
    largest = max(shares, default=0.0)
    return [
        _drawing(simulation, number, shares[number], 0 < largest == shares[number])
        for number, level in enumerate(levels)
        if level.size > 1
    ]


def _share(simulation: Simulation, number: int, *kinds: ResourceKind) -> float:
    """Return the share of the time that the busiest resource of a level (of some kinds) is busy."""
    found = [x for x in simulation.busy if x.level == number and (not kinds or x.kind in kinds)]
    busiest = max((simulation.busy[x] for x in found), default=0.0)
    return busiest / simulation.time if simulation.time else 0.0


def _drawing(simulation: Simulation, number: int, share: float, most: bool) -> Drawing:
    level = simulation.mesh.machine.levels[number]
    what = _WORDS.get(level.kind, str(level.kind))
    port = f"{rate_text(level.port)} a port, {seconds_text(level.latency)}"
    busy = f"busy {percent_text(share, 1.0)} of the time{', the busiest' if most else ''}"
    title = f"{level.name}: {level.size} on a {what}, {port}; {busy}"
    notes: list[str] = []
    labels = _Labels(simulation.mesh, level)
    if level.wires and level.size <= _IN_A_CIRCLE and level.kind is not LinkKind.TORUS:
        boxes = _circle(level, labels)
        pairs = [(a, b) for a in range(level.size) for b in range(a) if _linked(level, b, a)]
    elif level.shape and len(level.shape) > 1 and max(level.shape[-2:]) <= _IN_A_GRID:
        boxes = _grid(level.shape, labels)
        pairs = []
        if planes := math.prod(level.shape[:-2]) - 1:
            notes.append(f"{planes} more planes like this one are not drawn")
    else:
        return _row(simulation, number, title, share, most, labels)
    busy_links = link_seconds(simulation, number)
    known = bool(busy_links) or not share
    if not known:
        notes.append("all links are drawn alike: this cost model counts the bytes of ports alone")
    alike = _share(simulation, number, ResourceKind.LINK) or share
    loads = {
        pair: seconds / simulation.time if simulation.time else 0.0
        for pair, seconds in busy_links.items()
    }
    top = max(loads.values(), default=0.0)

    def wire(a: int, b: int, points: tuple[float, float, float, float]) -> Wire:
        own = loads.get((min(a, b), max(a, b)), 0.0) if known else alike
        text = f"{level.name} {min(a, b)} - {max(a, b)}: busy {percent_text(own, 1.0)}"
        return Wire(*points, own, text, most and bool(own) and own >= 0.999 * (top or alike))

    wires = [wire(a, b, (boxes[a].x, boxes[a].y, boxes[b].x, boxes[b].y)) for a, b in pairs]
    if level.shape and not pairs:
        wires = [wire(a, b, points) for a, b, points in _grid_links(level.shape, boxes)]
    height = max(box.y + box.height / 2 for box in boxes) + 26
    return Drawing(title, share, most, height, boxes, wires, notes)


class _Labels:
    """The lines in each child of a level: its coordinates on the axes that are on the level, and
    the kind of its devices."""

    def __init__(self, mesh: Mesh, level: Level):
        on_level = [x for x in mesh.by_name.values() if x.level == level.name]
        parts = Counter(x.axis for x in on_level)
        self.axes = [(x.axis if parts[x.axis] == 1 else x.name, x.size) for x in on_level]
        self.kinds = [name for name, count in level.kinds for _ in range(count)]
        self.level = level

    @property
    def count(self) -> int:
        """The number of lines of a child."""
        return max(1, len(self.axes)) + bool(self.kinds)

    def of(self, child: int) -> list[str]:
        """Return the lines of a child."""
        rest, stride, lines = child, self.level.size, list[str]()
        for name, size in self.axes:
            stride //= size
            lines.append(f"{name} {rest // stride}")
            rest %= stride
        return [*(lines or [f"{self.level.name} {child}"]), *self.kinds[child : child + 1]]


def _linked(level: Level, a: int, b: int) -> bool:
    """Return whether there is a link between two children."""
    if level.links:
        return level.links[a][b] > 0
    return level.kind is LinkKind.FULL or (b - a) % level.size in (1, level.size - 1)


def _circle(level: Level, labels: _Labels) -> list[Box]:
    radius, height = max(70.0, 16.0 * level.size), _LINE * labels.count + 8
    turns = [2 * math.pi * child / level.size for child in range(level.size)]
    return [
        Box(
            _WIDTH / 2 + 1.6 * min(radius, _MOST_RADIUS) * math.sin(turn),
            radius * (1 - math.cos(turn)) + height / 2 + 4,
            height,
            labels.of(child),
        )
        for child, turn in enumerate(turns)
    ]


def _grid(shape: Sequence[int], labels: _Labels) -> list[Box]:
    rows, columns = shape[-2:]
    height = _LINE * labels.count + 8
    wide = min(120.0, (_WIDTH - 60) / columns)
    left = _WIDTH / 2 - wide * (columns - 1) / 2
    size = min(_BOX, wide - 16)
    return [
        Box(left + wide * column, height / 2 + 22 + (height + 22) * row, height,
            labels.of(row * columns + column), size)
        for row in range(rows) for column in range(columns)
    ]  # fmt: skip


def _grid_links(
    shape: Sequence[int], boxes: Sequence[Box]
) -> Iterator[tuple[int, int, tuple[float, float, float, float]]]:
    """Yield the links of the first plane of a torus: two children, and a line between them; where a
    link goes round, a short line at both ends."""
    rows, columns = shape[-2:]
    for at in range(rows * columns):
        row, column = divmod(at, columns)
        box = boxes[at]
        for beside, size, place, dx, dy in (
            (row * columns + (column + 1) % columns, columns, column, box.width / 2 + 12, 0.0),
            ((row + 1) % rows * columns + column, rows, row, 0.0, box.height / 2 + 12),
        ):
            neighbour = boxes[beside]
            if place + 1 < size:
                yield at, beside, (box.x, box.y, neighbour.x, neighbour.y)
            elif size > 2:
                yield at, beside, (box.x, box.y, box.x + dx, box.y + dy)
                yield at, beside, (neighbour.x, neighbour.y, neighbour.x - dx, neighbour.y - dy)


def _row(
    simulation: Simulation, number: int, title: str, share: float, most: bool,
    labels: _Labels,
) -> Drawing:  # fmt: skip
    """Return a picture of children beside each other, each with its port to what they share."""
    level = simulation.mesh.machine.levels[number]
    count = min(level.size, _IN_A_ROW)
    shown: list[int | None] = [*range(count)]
    if level.size > count:
        shown[-2:] = [None, level.size - 1]
    wide = (_WIDTH - 40) / count
    height = _LINE * labels.count + 8
    top, middle = 14.0, 60.0 + height / 2
    core = _share(simulation, number, ResourceKind.CORE)
    port = _share(simulation, number, ResourceKind.PORT, ResourceKind.PARENT) or share
    boxes: list[Box] = []
    shared = f"{level.kind} of {level.name}{f': busy {percent_text(core, 1.0)}' if core else ''}"
    wires = [Wire(20, top, _WIDTH - 20, top, core, shared, most and core >= share)]
    for place, child in enumerate(shown):
        x = 20 + wide * (place + 0.5)
        if child is None:
            boxes.append(Box(x, middle, height, [f"... {level.size - count + 1} more"]))
            continue
        boxes.append(Box(x, middle, height, labels.of(child)))
        busy = f"port of {level.name} {child}: busy {percent_text(port, 1.0)}"
        wires.append(Wire(x, top, x, middle - height / 2, port, busy, most and port >= share))
    return Drawing(title, share, most, middle + height / 2 + 6, boxes, wires)
