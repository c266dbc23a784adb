"""Reader of ``nvidia-smi topo -m``: a matrix of the paths between GPUs and network adapters."""

import re
from dataclasses import dataclass

from collir.importing.machines import assumed
from collir.importing.machines.description import MachineDescription
from collir.importing.machines.host import Distance, Gpu, Host, Nic
from collir.importing.machines.regular import check_count, description
from collir.importing.values import ReadError, Remark, TextPlace, shown

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NAME = r"GPU\d+|NIC\d+|mlx\d+_\d+"
_CELL = r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC"
HEADER = re.compile(
    rf"^(?:[ \t|>]|\x1b\[[0-9;]*m)*GPU\d+(?=\s|$|\||(?:{_NAME}|CPU|{_CELL}))", re.MULTILINE
)
_WORD = re.compile(r"[^\s|]+")
_GLUED = re.compile(rf"(?:{_NAME}|CPU|NUMA|{_CELL})+")
_PIECE = re.compile(rf"{_NAME}|CPU|NUMA|{_CELL}")
_NVLINK = re.compile(r"NV(\d{1,3})")
_DISTANCES = {distance.name: distance for distance in Distance} | {"SOC": Distance.SYS}
_MOST = 1000
"""The largest number of columns of the matrix."""


@dataclass(frozen=True)
class GpuPath:
    """The path between two devices: a number of NVLinks, or a distance over PCIe."""

    links: int
    distance: Distance
    place: TextPlace


def read(text: str) -> MachineDescription:
    """Return the machine of a matrix: hosts like the one described, their number a parameter.

    Raises:
        ReadError: the matrix is malformed or not complete, or no regular machine describes it.
    """
    columns, header, rows = _matrix(text)
    remarks: list[Remark] = []
    gpus = [name for name in columns if name.startswith("GPU")]
    check_count(len(gpus), header)
    places = [columns.index(name) for name in gpus]
    nics = [name for name in columns if name not in gpus]
    matrix = [[rows[name][at] for at in places] for name in gpus]
    most = max((cell.links for row in matrix for cell in row), default=0)
    new = most >= assumed.MOST_LINKS
    host = Host(
        tuple(Gpu(name, TextPlace(rows[name][0].place.line)) for name in gpus),
        _symmetric(gpus, matrix, remarks),
        tuple(tuple(cell.distance for cell in row) for row in matrix),
        tuple(
            Nic(name, _nic_place(name, rows, header), None, _distances(name, columns, gpus, rows))
            for name in nics
        ),
        None,
        assumed.NVLINK,
        "25 GB/s each is assumed (V100, A100, H100; "
        + ("a B200 has 50)" if new else "an older P100 has 20)"),
        assumed.PCI,
        "12 GB/s is assumed (PCIe 3 x16)",
        assumed.NEW_NIC if new else assumed.NIC,
        assumed.NEW_ADAPTER if new else assumed.ADAPTER,
    )
    about = "A host with GPUs, as `nvidia-smi topo -m` shows it."
    return description(host, about, header, remarks)


def _nic_place(name: str, rows: dict[str, list[GpuPath]], header: TextPlace) -> TextPlace:
    return TextPlace(rows[name][0].place.line) if name in rows else header


def _distances(
    name: str, columns: list[str], gpus: list[str], rows: dict[str, list[GpuPath]]
) -> tuple[Distance, ...]:
    at = columns.index(name)
    return tuple(rows[gpu][at].distance for gpu in gpus)


Word = tuple[str, TextPlace]


def _words(line: str, number: int) -> list[Word]:
    """Return the words of a line with their places.

    A terminal may leave no blank between two names or cells, and a pasted table may have bars.
    """
    words: list[Word] = []
    plain = re.sub(r"^[ \t>]+", lambda match: " " * len(match[0]), _ESCAPE.sub("", line))
    for match in _WORD.finditer(plain):
        text, start = match[0], match.start() + 1
        if _GLUED.fullmatch(text):
            pieces = _PIECE.finditer(text)
            words += [(piece[0], TextPlace(number, start + piece.start())) for piece in pieces]
        else:
            words.append((text, TextPlace(number, start)))
    return words


def _matrix(text: str) -> tuple[list[str], TextPlace, dict[str, list[GpuPath]]]:
    """Return the names of the columns, the place of the header, and the rows by their names.

    A header or a row that is too wide for a terminal goes on in the next line.
    """
    columns: list[str] = []
    open_header = False
    header = TextPlace(1)
    rows: dict[str, list[Word]] = {}
    row: list[Word] = []
    for number, line in enumerate(text.split("\n"), 1):
        words = _words(line, number) if line and not line.isspace() else []
        if not words:
            if rows and all(name in rows or not name.startswith("GPU") for name in columns):
                break
            continue
        first, place = words[0]
        if not columns:
            if re.fullmatch(r"GPU\d+", first) and _is_header(words):
                header = place
                open_header = _add_columns(columns, words)
        elif rows and first.startswith("Legend"):
            break
        elif (
            open_header
            and not rows
            and first not in columns
            and re.fullmatch(_NAME, first)
            and _is_header(words)
        ):
            open_header = _add_columns(columns, words)
        elif rows and len(row) <= len(columns) and re.fullmatch(_CELL, first):
            row += words
        elif first in columns:
            if first in rows:
                raise ReadError(f"there are two rows of {first}", place)
            row = rows[first] = words
        elif first.startswith("GPU") and len(words) > 2:
            raise ReadError(f"{shown(first)} has a row, but no column", place)
    if not columns:
        raise ReadError("there is no line of GPU0 GPU1 ... here", TextPlace(1))
    cells = {name: _row(words, columns) for name, words in rows.items()}
    for name in columns:
        if name.startswith("GPU") and name not in rows:
            raise ReadError(f"{name} has a column, but no row", header)
    return columns, header, cells


def _is_header(words: list[Word]) -> bool:
    """Return whether a line names columns; a row has paths behind its name."""
    return len(words) == 1 or not re.fullmatch(_CELL, words[1][0])


def _add_columns(columns: list[str], words: list[Word]) -> bool:
    """Add the names of a header to the columns; return whether more may follow."""
    for word, place in words:
        if word in ("CPU", "NUMA", "GPU"):  # CPU Affinity, NUMA Affinity, GPU NUMA ID
            return False
        if word in columns:
            raise ReadError(f"{shown(word)} has two columns", place)
        columns.append(word)
        if len(columns) > _MOST:
            raise ReadError(f"there are more than {_MOST} columns", place)
    return True


def _row(words: list[Word], columns: list[str]) -> list[GpuPath]:
    name, cells = words[0][0], words[1 : len(columns) + 1]
    if len(cells) < len(columns):
        raise ReadError(f"{name} has {len(cells)} of {len(columns)} cells", words[-1][1])
    row: list[GpuPath] = []
    for column_name, (word, place) in zip(columns, cells, strict=True):
        match = _NVLINK.fullmatch(word)
        if (word == "X") != (column_name == name):
            raise ReadError(
                f"{name} to {column_name} is '{shown(word)}': X is what is itself", place
            )
        if match:
            row.append(GpuPath(int(match[1]), Distance.SYS, place))
        elif word == "X":
            row.append(GpuPath(0, Distance.PIX, place))
        elif word in _DISTANCES:
            row.append(GpuPath(0, _DISTANCES[word], place))
        else:
            distances = ", ".join(distance.name for distance in Distance)
            raise ReadError(f"'{shown(word)}' is not NV# (such as NV12), {distances}", place)
    return row


def _symmetric(
    gpus: list[str], matrix: list[list[GpuPath]], remarks: list[Remark]
) -> tuple[tuple[int, ...], ...]:
    """Return the links between every two GPUs; the smaller number where two cells differ."""
    links = [[cell.links for cell in row] for row in matrix]
    for a, name in enumerate(gpus):
        for b in range(a):
            if links[a][b] != links[b][a]:
                least = min(links[a][b], links[b][a])
                remarks.append(
                    Remark(
                        f"{name} to {gpus[b]} has {links[a][b]} NVLinks, {gpus[b]} to {name} has "
                        f"{links[b][a]}: taken to be {least}",
                        matrix[a][b].place,
                    )
                )
                links[a][b] = links[b][a] = least
    return tuple(tuple(row) for row in links)
