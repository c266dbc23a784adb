"""Parser of SLURM's topology.yaml: a topology as settings of a topology.conf."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from collir.importing.values import ReadError, Remark, TextPlace, shown

HEADER = re.compile(r"^[ \t]*-[ \t]+[\"']?topology[\"']?[ \t]*:", re.MULTILINE)

_LINE = re.compile(r"[ \t]*(?P<dash>-(?=\s)[ \t]*)?(?:[\"']?(?P<key>\w+)[\"']?[ \t]*:(?=\s|$))?")
_KINDS = ("tree", "block", "flat", "ring", "torus3d")
_LISTS = {"switches": "tree", "blocks": "block"}
_SETTINGS = {
    "switch": "switchname",
    "block": "blockname",
    "children": "switches",
    "nodes": "nodes",
}
"""Key of a switch or block -> setting of topology.conf."""

Settings = dict[str, tuple[str, TextPlace]]


@dataclass
class Topology:
    """A topology of the file: its kind, and the settings of its switches or blocks."""

    name: str
    place: TextPlace
    default: bool = False
    kind: str = ""
    groups: list[Settings] = field(default_factory=list[Settings])
    remarks: list[Remark] = field(default_factory=list[Remark])


def chosen(text: str) -> Topology:
    """Return the topology of the whole cluster; remarks name the topologies that are not read.

    Raises:
        ReadError: the text is malformed, or the topology is neither a tree nor of blocks.
    """
    topologies = list(_topologies(text))
    default = next((topology for topology in topologies if topology.default), topologies[0])
    if default.kind not in _LISTS.values():
        raise ReadError(
            f"topology {shown(default.name)} is {default.kind or 'empty'}: only those of kind tree "
            "or block are read; set cluster_default on one",
            default.place,
        )
    default.remarks += [
        Remark(
            f"topology {shown(topology.name)} is not read: {shown(default.name)} is that of the "
            "cluster",
            topology.place,
        )
        for topology in topologies
        if topology is not default
    ]
    return default


def _topologies(text: str) -> Iterator[Topology]:
    topology: Topology | None = None
    inside = ""
    for number, line in enumerate(text.split("\n"), 1):
        plain = re.sub(r"(?:^|(?<=\s))#.*", "", line).rstrip()
        if not plain or plain in ("---", "..."):
            continue
        match = _LINE.match(plain)
        assert match
        start = match.end() + len(plain[match.end() :]) - len(plain[match.end() :].lstrip())
        place = TextPlace(number, start + 1)
        key, value = match["key"], _value(plain[start:], place)
        if key == "topology" and match["dash"]:
            if topology:
                yield topology
            topology, inside = Topology(value, place), ""
        elif topology is None:
            raise ReadError("a list of topologies, `- topology: NAME`, is needed", place)
        elif inside == "block_sizes" and match["dash"] and not key:
            continue
        elif not key:
            raise ReadError(f"'{shown(value)}' is not `key: value`", place)
        elif key == "cluster_default":
            topology.default = value == "true"
        elif key in _KINDS and not match["dash"] and (not value or key == "flat"):
            if topology.kind:
                raise ReadError(f"topology {shown(topology.name)} has two kinds", place)
            topology.kind = key
        elif key in ("block_sizes", *_LISTS) and not match["dash"]:
            inside = key
        elif inside in _LISTS and key in _SETTINGS:
            if match["dash"]:
                topology.groups.append({})
            elif not topology.groups:
                raise ReadError(f"{key} belongs to an item of {inside}", place)
            if _SETTINGS[key] in topology.groups[-1]:
                raise ReadError(f"{key} is given twice", place)
            topology.groups[-1][_SETTINGS[key]] = (value, place)
        elif all(shown(key) not in remark.message for remark in topology.remarks):
            topology.remarks.append(Remark(f"{shown(key)} is not read", place))
    if topology is None:
        raise ReadError("there is no topology here", TextPlace(1))
    yield topology


def _value(text: str, place: TextPlace) -> str:
    """Return a plain or quoted value without its quotes."""
    if text[:1] in "\"'" and len(text) > 1 and text[-1] == text[0]:
        return text[1:-1]
    if text[:1] in tuple("{&*!|>%@`\"'"):
        raise ReadError(f"'{shown(text[0])}' is not read here: write `key: value`", place)
    return text
