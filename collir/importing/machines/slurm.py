"""Reader of SLURM's topologies: a tree of switches with their nodes, or blocks of nodes.

The text is a topology.conf, a topology.yaml, or the output of ``scontrol show topology``.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from collir.importing.machines import assumed, slurm_yaml
from collir.importing.machines.description import LevelDescription, MachineDescription
from collir.importing.machines.even import MachinePart, even
from collir.importing.machines.hostlist import MAX_NAMES, expand
from collir.importing.values import ReadError, Remark, TextPlace, shown
from collir.machine.level import Fabric, Level

_SETTING = re.compile(r"(?<![A-Za-z])([A-Za-z]+)\s*=\s*([^\s=]*)(?=\s|$)")
_KINDS = ("switchname", "blockname")
_DERIVED = ("level", "blockindex", "blocksize")
"""Settings that scontrol prints, and that follow from the rest."""
_KNOWN = (*_KINDS, *_DERIVED, "nodes", "switches", "blocksizes")
_MOST_REMARKS = 100

Settings = slurm_yaml.Settings


@dataclass(frozen=True)
class Switch:
    """A switch or a block: its name and place, and the names of its children."""

    name: str
    place: TextPlace
    children: tuple[str, ...]
    children_place: TextPlace
    of_nodes: bool


def read(text: str) -> MachineDescription:
    """Return the machine of a topology; a device is a node.

    Raises:
        ReadError: the text is malformed, or the nodes are not the leaves of one even tree.
    """
    remarks: list[Remark] = []
    if slurm_yaml.HEADER.search(text):
        topology = slurm_yaml.chosen(text)
        remarks += topology.remarks
        file, entries = "topology.yaml", iter(topology.groups)
    else:
        file, entries = "topology.conf", _entries(text, remarks)
    switches, blocks = _switches(entries)
    if not switches:
        raise ReadError("there is no SwitchName= and no BlockName= here", TextPlace(1))
    first = next(iter(switches.values())).place
    if blocks:
        _check_parents(switches)
        top = Switch("the cluster", first, tuple(switches), first, of_nodes=False)
        tiers = [[top], list(switches.values())]
    else:
        switches = _without_twins(switches, remarks)
        _check_parents(switches)
        tiers = _tiers(switches)
    sizes: list[int] = []
    for tier in tiers:
        noun = "nodes" if tier[0].of_nodes else "blocks" if blocks else "switches"
        parts = [MachinePart(switch.name, switch.place, len(switch.children)) for switch in tier]
        size, odd = even(parts, noun)
        sizes.append(size)
        remarks += odd
    return MachineDescription(
        f"A cluster of {'blocks' if blocks else 'switches'} as SLURM's {file} has it; "
        "a device is a node.",
        _levels(sizes, tiers, blocks),
        first,
        remarks=tuple(remarks),
        nodes=frozenset(
            x for switch in switches.values() if switch.of_nodes for x in switch.children
        ),
    )


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line without comments; a final backslash joins lines."""
    parts: list[str] = []
    first = 0
    for number, line in enumerate(text.split("\n"), 1):
        first = first if parts else number
        part = line.partition("#")[0].rstrip()
        if part.endswith("\\"):
            parts.append(f"{part[:-1]} ")
        else:
            yield first, "".join((*parts, part))
            parts = []
    yield first, "".join(parts)


def _settings(line: str, number: int) -> Settings:
    settings: Settings = {}
    at = 0
    for match in _SETTING.finditer(line):
        if between := line[at : match.start()].strip():
            column = line.index(between, at) + 1
            raise ReadError(f"'{shown(between)}' is not NAME=VALUE", TextPlace(number, column))
        key = match[1].lower()
        if key in settings:
            raise ReadError(f"{match[1]} is given twice", TextPlace(number, match.start() + 1))
        settings[key] = (match[2], TextPlace(number, match.start(2) + 1))
        at = match.end()
    if rest := line[at:].strip():
        raise ReadError(
            f"'{shown(rest)}' is not NAME=VALUE", TextPlace(number, line.index(rest) + 1)
        )
    return settings


def _entries(text: str, remarks: list[Remark]) -> Iterator[Settings]:
    """Yield the settings of each line."""
    for number, line in _lines(text):
        settings = _settings(line, number)
        _unread(line, number, remarks)
        yield settings


def _switches(entries: Iterable[Settings]) -> tuple[dict[str, Switch], bool]:
    """Return the switches or blocks by their names, and whether they are blocks."""
    switches: dict[str, Switch] = {}
    first = ""
    left = MAX_NAMES
    for settings in entries:
        kind = next((key for key in _KINDS if key in settings), None)
        if kind is None:
            continue
        first = first or kind
        if kind != first:
            place = settings[kind][1]
            raise ReadError("there are switches and blocks: only one of them is read", place)
        switch = _switch(settings, kind, left)
        left -= len(switch.children)
        if switch.name in switches:
            line_of = switches[switch.name].place.line
            message = f"{shown(switch.name)} is defined twice, first in line {line_of}"
            raise ReadError(message, switch.place)
        switches[switch.name] = switch
    return switches, first == "blockname"


def _without_twins(switches: dict[str, Switch], remarks: list[Remark]) -> dict[str, Switch]:
    """Return the switches with one for all that have the same children, such as parallel spines.

    Two switches are also taken as one if their children are, level by level from the nodes up.
    """
    parents: dict[str, list[str]] = {}
    waiting: dict[str, int] = {}
    for switch in switches.values():
        below = [] if switch.of_nodes else [x for x in switch.children if x in switches]
        waiting[switch.name] = len(below)
        for child in below:
            parents.setdefault(child, []).append(switch.name)
    first_like: dict[tuple[bool, frozenset[str]], str] = {}
    same: dict[str, str] = {}
    twins: dict[str, list[str]] = {}
    queue = [name for name, count in waiting.items() if not count]
    for name in queue:  # the queue grows during the loop
        switch = _with_children(switches[name], same)
        key = switch.of_nodes, frozenset(switch.children)
        same[name] = first = first_like.setdefault(key, name)
        if first != name:
            twins.setdefault(first, []).append(name)
        for parent in parents.get(name, ()):
            waiting[parent] -= 1
            if not waiting[parent]:
                queue.append(parent)
    for first, others in list(twins.items())[:_MOST_REMARKS]:
        message = (
            f"{shown(others[0])} has the children of {shown(first)} (line "
            f"{switches[first].place.line}): {len(others) + 1} switches side by side are taken as "
            "one"
        )
        remarks.append(Remark(message, switches[others[0]].place))
    left_out = {name for others in twins.values() for name in others}
    return {
        name: _with_children(switch, same)
        for name, switch in switches.items()
        if name not in left_out
    }


def _with_children(switch: Switch, same: dict[str, str]) -> Switch:
    """Return a switch with each child replaced by the switch that it is taken as."""
    if switch.of_nodes or all(same.get(child, child) == child for child in switch.children):
        return switch
    return replace(switch, children=tuple(dict.fromkeys(same.get(x, x) for x in switch.children)))


def _check_parents(switches: dict[str, Switch]) -> None:
    """Check that every node and every switch hangs on one switch or block."""
    parents: dict[tuple[bool, str], str] = {}
    for switch in switches.values():
        for child in switch.children:
            parent = parents.setdefault((switch.of_nodes, child), switch.name)
            if parent is not switch.name:
                raise ReadError(
                    f"{shown(child)} hangs on {shown(parent)} and on {shown(switch.name)}, whose "
                    "other children differ: no regular machine describes that",
                    switch.children_place,
                )


def _unread(line: str, number: int, remarks: list[Remark]) -> None:
    """Add a remark for each setting of a line that is not read, once for each message."""
    for match in _SETTING.finditer(line):
        key = match[1].lower()
        why = "is relative, and not read" if key == "linkspeed" else "is not read"
        message = f"{shown(match[1])} {why}"
        skipped = key in _KNOWN or len(remarks) >= _MOST_REMARKS
        if not skipped and all(remark.message != message for remark in remarks):
            remarks.append(Remark(message, TextPlace(number, match.start() + 1)))


def _switch(settings: Settings, kind: str, left: int) -> Switch:
    name, place = settings[kind]
    if not name or "[" in name:
        raise ReadError(f"a name is needed here, not '{shown(name)}'", place)
    keys = ["nodes"] if kind == "blockname" else ["nodes", "switches"]
    present = [key for key in keys if key in settings]
    if len(present) == 2 and "level" in settings:  # scontrol lists all nodes below a switch, too
        present.remove("nodes")
    if len(present) != 1:
        setting = "Nodes=" if kind == "blockname" else "either Nodes= or Switches="
        raise ReadError(f"{shown(name)} needs {setting}", place)
    children, children_place = settings[present[0]]
    listed = expand(children, children_place, left)
    names = tuple(dict.fromkeys(listed))
    if len(names) < len(listed):
        raise ReadError(f"{shown(name)} lists a name twice", children_place)
    return Switch(name, place, names, children_place, present[0] == "nodes")


def _tiers(switches: dict[str, Switch]) -> list[list[Switch]]:
    """Return the switches by their distance from the top switch.

    Raises:
        ReadError: the switches are not a tree, or its nodes are not all equally deep.
    """
    below: set[str] = set()
    for switch in switches.values():
        if not switch.of_nodes:
            for child in switch.children:
                if child not in switches:
                    message = f"there is no SwitchName={shown(child)}"
                    raise ReadError(message, switch.children_place)
            below.update(switch.children)
    tops = [switch for switch in switches.values() if switch.name not in below]
    if not tops:
        first = next(iter(switches.values()))
        raise ReadError(f"{shown(first.name)} hangs on itself: no switch is on top", first.place)
    if len(tops) > 1:
        raise ReadError(
            f"there is no path between {shown(tops[1].name)} and {shown(tops[0].name)} "
            f"(line {tops[0].place.line}): these are {len(tops)} machines; "
            "put a switch above them",
            tops[1].place,
        )
    tiers = [tops]
    while not all(switch.of_nodes for switch in tiers[-1]):
        odd = next((switch for switch in tiers[-1] if switch.of_nodes), None)
        if odd:
            raise ReadError(
                f"{shown(odd.name)} has nodes, and switches beside it have switches: no regular "
                "machine describes that",
                odd.place,
            )
        tiers.append([switches[name] for switch in tiers[-1] for name in switch.children])
    reached = {switch.name for tier in tiers for switch in tier}
    for switch in switches.values():
        if switch.name not in reached:
            raise ReadError(
                f"{shown(switch.name)} hangs on itself, below no top switch", switch.place
            )
    return tiers


def _levels(
    sizes: list[int], tiers: list[list[Switch]], blocks: bool
) -> tuple[LevelDescription, ...]:
    levels: list[LevelDescription] = []
    below = 1
    for height, (size, tier) in enumerate(zip(sizes[::-1], tiers[::-1], strict=True)):
        if size > 1 or (height == 0 and max(sizes) == 1):
            place = tier[0].place.line
            if height == 0:
                name = "node"
                port = f"Port: one adapter of a node: {assumed.ADAPTER}."
            else:
                name = "block" if blocks else ("leaf", "pod")[height - 1] if height < 3 else ""
                name = name or f"switch{height}"
                port = (
                    f"Port: assumed to carry what the {below} nodes below send, 25 GB/s each, "
                    "each by a rail of its own: the file does not say how many links there are."
                )
            level = Level(
                name,
                size,
                below * assumed.NIC,
                assumed.HOST_LATENCY,
                rails=below,
                fabric=Fabric.NETWORK,
            )
            sources = (
                f"Size: line {place}{'' if len(tier) == 1 else ' and others like it'}.",
                port,
                "Latency: assumed, as of InfiniBand in ndv2.",
            )
            levels.append(LevelDescription(level, sources))
        below *= size
    return tuple(levels[::-1])
