"""Reader of ``rocm-smi --showtopo`` and ``amd-smi topology``: tables of the links between GPUs."""

import math
import re
from dataclasses import dataclass

from collir.importing.machines import assumed, regular
from collir.importing.machines.description import MachineDescription
from collir.importing.machines.host import Distance, Gpu, Host
from collir.importing.numbers import integer
from collir.importing.values import ReadError, Remark, TextPlace, shown

TITLE = re.compile(
    r"^[ \t=|>]*(?P<name>access(?:ibility)?|link accessibility|weight|hops|link type|numa bw|"
    r"min/max bandwidth|bandwidth)[ \t]+(?:between two gpus?[ \t=]*|table:?[ \t]*)\r?$",
    re.IGNORECASE | re.MULTILINE,
)
"""The title of a table that is read."""

_OTHER = re.compile(r"table:?\s*$|={8,}|two gpus?\b", re.IGNORECASE)
"""The title of another table, or the end of a table."""

_NUMA = re.compile(r"GPU\s*\[?(\d+)\]?\s*:\s*\(Topology\) Numa Node:\s*(-?\d+)", re.IGNORECASE)
_NAME = re.compile(r"GPU\d+|(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_RANGE = re.compile(r"(\d+)-(\d+)")
_KEYS = {"link type": "type", "weight": "weight", "hops": "hops"}
_HOPS = {"1": Distance.PHB, "2": Distance.NODE, "3": Distance.SYS}
"""The hops of a path over PCIe, as AMD counts them -> its distance: 2 through one socket, 3 through
both."""
_MOST_MB = 10**9


@dataclass(frozen=True)
class TableCell:
    """A cell of a table, and its place."""

    text: str
    place: TextPlace


Table = dict[tuple[str, str], TableCell]


def read(text: str) -> MachineDescription:
    """Return the machine of the tables: hosts like the one described, their number a parameter.

    Raises:
        ReadError: the tables are malformed or miss, or no regular machine describes them.
    """
    tables, names, numa = _tables(text)
    if not names:
        raise ReadError("there is no table of GPUs here", TextPlace(1))
    regular.check_count(len(names), next(iter(names.values())))
    remarks: list[Remark] = []
    if "type" not in tables:
        first = next(iter(names.values()))
        if "hops" not in tables:
            message = "there is no table of link types: give all that rocm-smi --showtopo prints"
            raise ReadError(message, first)
        message = "without a table of link types, GPUs one hop apart are taken to be linked by xGMI"
        remarks.append(Remark(message, first))
        tables["type"] = {
            pair: TableCell("XGMI" if hops.text == "1" else "PCIE", hops.place)
            for pair, hops in tables["hops"].items()
        }
    gpus = list(names)
    links, lane, lane_source = _links(gpus, tables, remarks)
    distances = [[_distance(a, b, gpus, tables, numa) for b in gpus] for a in gpus]
    if "hops" not in tables and not numa and any(0 in row[:i] for i, row in enumerate(links)):
        message = "without hops and NUMA nodes, all paths over PCIe are taken to be alike"
        remarks.append(Remark(message, names[gpus[0]]))
    host = Host(
        tuple(Gpu(name, place) for name, place in names.items()),
        tuple(map(tuple, links)),
        tuple(map(tuple, distances)),
        (),
        False,
        lane,
        lane_source,
        assumed.PCI,
        "12 GB/s is assumed (PCIe 3 x16)",
        assumed.NIC,
        assumed.ADAPTER,
        "xGMI",
    )
    about = "A host with GPUs, as `rocm-smi --showtopo` or `amd-smi topology` shows it."
    return regular.description(host, about, names[gpus[0]], remarks)


def _tables(text: str) -> tuple[dict[str, Table], dict[str, TextPlace], dict[int, int]]:
    """Return the tables by what they hold, the names of GPUs with the places of their rows, and
    the NUMA node of each GPU."""
    tables: dict[str, Table] = {}
    headers: dict[str, TextPlace] = {}
    rows: dict[str, TextPlace] = {}
    numa: dict[int, int] = {}
    table: Table | None = None
    columns: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        words = [(match[0], match.start() + 1) for match in re.finditer(r"[^\s|>]+", line)]
        if title := TITLE.match(line):
            name = re.sub(r"\s+", " ", title["name"].lower())
            key = _KEYS.get(name, "bandwidth" if "b" in name.split()[-1][:1] else "access")
            table, columns = tables.setdefault(key, {}), []
        elif match := _NUMA.search(line):
            numa.setdefault(int(match[1][:9]), int(match[2][:9]))
        elif _OTHER.search(line) and not (words and _NAME.fullmatch(words[0][0])):
            table = None
        elif table is None or not words or not _NAME.fullmatch(words[0][0]):
            continue
        elif not columns:
            columns = [word for word, _ in words if _NAME.fullmatch(word)]
            if len(columns) < len(words):
                raise ReadError(
                    "this line of names has other words", TextPlace(number, words[0][1])
                )
            for word, column in words:
                headers.setdefault(word, TextPlace(number, column))
        else:
            _add_row(table, columns, words, number)
            rows.setdefault(words[0][0], TextPlace(number, words[0][1]))
    return tables, headers | rows, numa


def _add_row(table: Table, columns: list[str], words: list[tuple[str, int]], number: int) -> None:
    (name, column), cells = words[0], words[1:]
    if name not in columns:
        raise ReadError(f"{shown(name)} has a row, but no column", TextPlace(number, column))
    if len(cells) != len(columns):
        message = f"{shown(name)} has {len(cells)} of {len(columns)} cells"
        raise ReadError(message, TextPlace(number, words[-1][1]))
    if (name, columns[0]) in table:
        raise ReadError(f"there are two rows of {shown(name)}", TextPlace(number, column))
    for column_name, (word, at) in zip(columns, cells, strict=True):
        table[name, column_name] = TableCell(word, TextPlace(number, at))


def _cell(table: Table, a: str, b: str, gpus: list[str]) -> TableCell:
    if (a, b) not in table:
        place = next(iter(table.values())).place if table else TextPlace(1)
        raise ReadError(f"the table has no cell for {shown(a)} and {shown(b)}", place)
    return table[a, b]


def _links(
    gpus: list[str], tables: dict[str, Table], remarks: list[Remark]
) -> tuple[list[list[int]], float, str]:
    """Return the xGMI links between every two GPUs, the bytes/second of each, and their source.

    A pair with a larger weight than others is reached over other GPUs (a hop counts 15), and so is
    one without a bandwidth beside others that have one.
    """
    linked: dict[tuple[int, int], int] = {}
    weights: dict[tuple[int, int], int] = {}
    bandwidth: TableCell | None = None
    for a, first in enumerate(gpus):
        for b, second in enumerate(gpus):
            cell = _cell(tables["type"], first, second, gpus)
            kind = cell.text.upper()
            if a == b or kind in ("PCIE", "N/A", "UNKNOWN", "0"):
                continue
            if kind != "XGMI":
                raise ReadError(f"'{shown(cell.text)}' is not XGMI or PCIE", cell.place)
            linked[a, b] = 0
            if "bandwidth" in tables:
                most = _cell(tables["bandwidth"], first, second, gpus)
                if match := _RANGE.fullmatch(most.text):
                    linked[a, b] = integer(match[2], "a bandwidth", most.place, 0, _MOST_MB)
                    bandwidth = bandwidth or most
            if "weight" in tables:
                weight = _cell(tables["weight"], first, second, gpus)
                weights[a, b] = integer(weight.text, "a weight", weight.place, 0)
    least = min(weights.values(), default=0)
    known = any(linked.values())
    far = [pair for pair in linked if weights.get(pair, least) > least]
    far += [pair for pair in linked if known and not linked[pair] and pair not in far]
    if far:
        a, b = far[0]
        reason = "has no bandwidth, others have"
        if weights.get((a, b), least) > least:
            reason = f"weighs {weights[a, b]}, others {least}"
        message = (
            f"{gpus[a]} to {gpus[b]} {reason}: such pairs are taken to have no link of their own"
        )
        remarks.append(Remark(message, tables["type"][gpus[a], gpus[b]].place))
    for pair in far:
        del linked[pair]
    lane = math.gcd(*linked.values())
    links = [[0] * len(gpus) for _ in gpus]
    for (a, b), most in linked.items():
        links[a][b] = most // lane if lane else 1
    for a in range(len(gpus)):
        for b in range(a):
            if links[a][b] != links[b][a]:
                least = min(links[a][b], links[b][a])
                message = (
                    f"{gpus[a]} to {gpus[b]} has {links[a][b]} links, the other way "
                    f"{links[b][a]}: taken to be {least}"
                )
                remarks.append(Remark(message, tables["type"][gpus[a], gpus[b]].place))
                links[a][b] = links[b][a] = least
    if lane and bandwidth:
        return links, lane * 1e6, f"{lane / 1e3:g} GB/s each (line {bandwidth.place.line})"
    return links, assumed.XGMI, "50 GB/s each is assumed (MI250; an MI300X has 64)"


def _distance(
    a: str, b: str, gpus: list[str], tables: dict[str, Table], numa: dict[int, int]
) -> Distance:
    """Return the distance of two GPUs over PCIe, by hops, or else by their NUMA nodes."""
    if a == b:
        return Distance.PIX
    hops = tables.get("hops", {}).get((a, b))
    kind = tables["type"][a, b].text.upper()
    if hops and kind != "XGMI" and hops.text in _HOPS:
        return _HOPS[hops.text]
    nodes = [numa.get(gpus.index(name)) for name in (a, b)]
    return Distance.NODE if nodes[0] == nodes[1] else Distance.SYS
