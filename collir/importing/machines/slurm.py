"""SLURM's topologies: the switches of a tree with their nodes, or blocks of nodes.

They are a topology.conf, a topology.yaml, or what ``scontrol show topology`` prints.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from collir.importing.machines import assumed, slurm_yaml
from collir.importing.machines.even import Part, even
from collir.importing.machines.hostlist import MAX_NAMES, expand
from collir.importing.values import Described, Place, ReadError, Reading, Remark, shown
from collir.machine.model import Fabric, Level

_SETTING = re.compile(r"(?<![A-Za-z])([A-Za-z]+)\s*=\s*([^\s=]*)(?=\s|$)")
_KINDS = ("switchname", "blockname")
_SHOWN = ("level", "blockindex", "blocksize")  # by scontrol, which they follow from the others
_KNOWN = (*_KINDS, *_SHOWN, "nodes", "switches", "blocksizes")
_MOST_REMARKS = 100

Settings = slurm_yaml.Settings


@dataclass(frozen=True)
class Group:
    """A switch or a block: where it is named, and the names of its children."""

    name: str
    place: Place
    children: tuple[str, ...]
    children_place: Place
    of_nodes: bool


def read(text: str) -> Reading:
    """The machine of a topology; a device is a node.

    Raises:
        ReadError: it is malformed, or the nodes are not the leaves of one even tree.
    """
    remarks: list[Remark] = []
    if slurm_yaml.HEADER.search(text):
        topology = slurm_yaml.chosen(text)
        remarks += topology.remarks
        file, entries = "topology.yaml", iter(topology.groups)
    else:
        file, entries = "topology.conf", _entries(text, remarks)
    groups, blocks = _groups(entries)
    if not groups:
        raise ReadError("there is no SwitchName= and no BlockName= here", Place(1))
    first = next(iter(groups.values())).place
    if blocks:
        top = Group("the cluster", first, tuple(groups), first, of_nodes=False)
        tiers = [[top], list(groups.values())]
    else:
        tiers = _tiers(groups)
    sizes: list[int] = []
    for tier in tiers:
        what = "nodes" if tier[0].of_nodes else "blocks" if blocks else "switches"
        parts = [Part(one.name, one.place, len(one.children)) for one in tier]
        size, odd = even(parts, what)
        sizes.append(size)
        remarks += odd
    return Reading(
        f"A cluster of {'blocks' if blocks else 'switches'} as SLURM's {file} has it; "
        "a device is a node.",
        _levels(sizes, tiers, blocks),
        first,
        remarks=tuple(remarks),
    )


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, with their numbers; a backslash at the end continues a line."""
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
    found: Settings = {}
    at = 0
    for match in _SETTING.finditer(line):
        if between := line[at : match.start()].strip():
            column = line.index(between, at) + 1
            raise ReadError(f"'{shown(between)}' is not NAME=VALUE", Place(number, column))
        key = match[1].lower()
        if key in found:
            raise ReadError(f"{match[1]} is given twice", Place(number, match.start() + 1))
        found[key] = (match[2], Place(number, match.start(2) + 1))
        at = match.end()
    if rest := line[at:].strip():
        raise ReadError(f"'{shown(rest)}' is not NAME=VALUE", Place(number, line.index(rest) + 1))
    return found


def _entries(text: str, remarks: list[Remark]) -> Iterator[Settings]:
    """Yield the settings of each line."""
    for number, line in _lines(text):
        settings = _settings(line, number)
        _unread(line, number, remarks)
        yield settings


def _groups(entries: Iterable[Settings]) -> tuple[dict[str, Group], bool]:
    """The switches or blocks by their names, and whether they are blocks."""
    groups: dict[str, Group] = {}
    parents: dict[tuple[bool, str], str] = {}
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
        group = _group(settings, kind, left)
        left -= len(group.children)
        if group.name in groups:
            line_of = groups[group.name].place.line
            message = f"{shown(group.name)} is defined twice, first in line {line_of}"
            raise ReadError(message, group.place)
        for child in group.children:
            other = parents.setdefault((group.of_nodes, child), group.name)
            if other is not group.name:
                raise ReadError(
                    f"{shown(child)} hangs on {shown(other)} and on {shown(group.name)}",
                    group.children_place,
                )
        groups[group.name] = group
    return groups, first == "blockname"


def _unread(line: str, number: int, remarks: list[Remark]) -> None:
    """Remarks on the settings of a line that are not read, once each."""
    for match in _SETTING.finditer(line):
        key = match[1].lower()
        why = "is relative, and not read" if key == "linkspeed" else "is not read"
        message = f"{shown(match[1])} {why}"
        known = key in _KNOWN or len(remarks) >= _MOST_REMARKS
        if not known and all(remark.message != message for remark in remarks):
            remarks.append(Remark(message, Place(number, match.start() + 1)))


def _group(settings: Settings, kind: str, left: int) -> Group:
    name, place = settings[kind]
    if not name or "[" in name:
        raise ReadError(f"a name is needed here, not '{shown(name)}'", place)
    keys = ["nodes"] if kind == "blockname" else ["nodes", "switches"]
    given = [key for key in keys if key in settings]
    if len(given) == 2 and "level" in settings:  # scontrol lists all nodes below a switch, too
        given.remove("nodes")
    if len(given) != 1:
        what = "Nodes=" if kind == "blockname" else "either Nodes= or Switches="
        raise ReadError(f"{shown(name)} needs {what}", place)
    children, children_place = settings[given[0]]
    listed = expand(children, children_place, left)
    names = tuple(dict.fromkeys(listed))
    if len(names) < len(listed):
        raise ReadError(f"{shown(name)} lists a name twice", children_place)
    return Group(name, place, names, children_place, given[0] == "nodes")


def _tiers(groups: dict[str, Group]) -> list[list[Group]]:
    """The switches by their distance from the top one.

    Raises:
        ReadError: they are not a tree, or its nodes are not all equally deep.
    """
    below: set[str] = set()
    for group in groups.values():
        if not group.of_nodes:
            for child in group.children:
                if child not in groups:
                    message = f"there is no SwitchName={shown(child)}"
                    raise ReadError(message, group.children_place)
            below.update(group.children)
    tops = [group for group in groups.values() if group.name not in below]
    if not tops:
        first = next(iter(groups.values()))
        raise ReadError(f"{shown(first.name)} hangs on itself: no switch is on top", first.place)
    if len(tops) > 1:
        raise ReadError(
            f"there is no path between {shown(tops[1].name)} and {shown(tops[0].name)} "
            f"(line {tops[0].place.line}): these are {len(tops)} machines; "
            "put a switch above them",
            tops[1].place,
        )
    tiers = [tops]
    while not all(one.of_nodes for one in tiers[-1]):
        odd = next((one for one in tiers[-1] if one.of_nodes), None)
        if odd:
            raise ReadError(
                f"{shown(odd.name)} has nodes, and switches beside it have switches: no regular "
                "machine describes that",
                odd.place,
            )
        tiers.append([groups[name] for one in tiers[-1] for name in one.children])
    reached = {one.name for tier in tiers for one in tier}
    for group in groups.values():
        if group.name not in reached:
            raise ReadError(
                f"{shown(group.name)} hangs on itself, below no top switch", group.place
            )
    return tiers


def _levels(sizes: list[int], tiers: list[list[Group]], blocks: bool) -> tuple[Described, ...]:
    found: list[Described] = []
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
            found.append(Described(level, sources))
        below *= size
    return tuple(found[::-1])
