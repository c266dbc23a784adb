"""Measured times of collectives, and their predictions on machines that ship with collir."""

import csv
import re
from dataclasses import dataclass, replace
from pathlib import Path

from measured.rows import DataError

from collir.cost.collectives.collective import Collective, RingShift
from collir.cost.model import CostModel, step_cost
from collir.layout import Mesh
from collir.layout.mesh import Axis, Factor
from collir.machine import Machine
from collir.synthesis.sweeping.programs import resized
from collir.tools.machine import preset

PRESETS = {
    "a100": "dgx_a100",
    "h100": "dgx_h100",
    "h200": "dgx_h200",
    "b200": "dgx_b200",
    "b300": "dgx_b200",
    "gb200": "gb200_nvl72",
    "gb300": "gb200_nvl72",
    "h20": "dgx_h200",
    "mi300x": "mi300x",
    "mi355x": "mi355x",
    "v100": "dgx1_v100",
    "cpu": "cpu_cluster",
}
"""Machines of the tables, and those of collir whose links are theirs."""

CLOUDS = {
    "A3 Mega": "gcp_a3_mega",
    "A3 High": "gcp_a3_high",
    "A3 Ultra": "gcp_a3_ultra",
    "GKE": "gcp_a3_ultra",
    "GCP A4": "gcp_a4",
}
"""Networks of the tables, by words in their names, and the machines of collir that have them."""

KINDS = {"alltoall": "all_to_all", "sendrecv": "shift"}
"""Collectives of nccl-tests, by the names of collir where these are others."""

_NETWORK = re.compile(r"(\d+)x(\d+)Gb")
_TRAY = 4
"""The GPUs of a tray of an NVL72."""


@dataclass(frozen=True)
class Row:
    """A measured collective.

    Attributes:
        line: the line in its file.
        machine, network, library, source: as the table says.
        below, nodes: the GPUs of a node that take part, and the nodes.
        kind: the collective.
        size: bytes, as nccl-tests count them.
        seconds: the time.
    """

    line: int
    machine: str
    below: int
    nodes: int
    network: str
    library: str
    kind: str
    size: float
    seconds: float
    source: str

    @property
    def series(self) -> tuple[str, ...]:
        """The texts that rows of one sweep over sizes have in common."""
        where = self.network if self.nodes > 1 else "one node"
        return self.machine, f"{self.nodes}x{self.below}", where, self.kind, self.source


def read(path: Path) -> list[Row]:
    """Return the rows of a table.

    Raises:
        DataError: it cannot be read.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [_row(number, each) for number, each in enumerate(csv.DictReader(file), 2)]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: error: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: error: this is no table of collectives: {error}") from error


def _row(line: int, each: dict[str, str]) -> Row:
    below, nodes = int(each["gpus_per_node"]), int(each["nodes"])
    size, seconds = float(each["bytes"]), 1e-6 * float(each["time_us"])
    if min(below, nodes) < 1 or size <= 0 or seconds <= 0:
        raise ValueError(f"a number of line {line} is not positive")
    kind = KINDS.get(each["collective"], each["collective"])
    texts = each["machine"], below, nodes, each["network"], each["library"], kind
    return Row(line, *texts, size, seconds, each["source"])


def machine_of(row: Row) -> Machine:
    """Return the machine of a row: one that ships with collir, with as many GPUs and nodes, and
    with the ports that the table says.

    Raises:
        KeyError: none has its devices.
    """
    cloud = next((name for word, name in CLOUDS.items() if word in row.network), "")
    full = preset(cloud or PRESETS[row.machine]).op.value()
    network, *_ = full.levels
    parts = [1] * (len(full.levels) - 2)  # of a node, between its outermost and innermost level
    sizes = (row.nodes, *parts, row.below)[-len(full.levels) :]
    one_rail = (replace(network, rails=1), *full.levels[1:])
    machine = resized(replace(full, levels=one_rail), sizes)
    if row.nodes == 1 or not (found := _NETWORK.search(row.network)):
        return machine
    count, rate = map(int, found.groups())
    count *= row.below // _TRAY if "per tray" in row.network else 1
    port = count * (network.port / network.rails if cloud else rate / 8 * 1e9)
    outer, *inner = machine.levels
    return replace(machine, levels=(replace(outer, port=port, rails=count), *inner))


def predicted(row: Row) -> float:
    """Return the seconds that a collective is predicted to take."""
    machine = machine_of(row)
    factors = [Factor(level.name, level.size) for level in machine.levels if level.size > 1]
    mesh = Mesh("m", machine, (Axis.placed("x", factors),))
    axes = mesh.of_axis["x"]
    shift = RingShift(1, is_open=False) if row.kind == "shift" else None
    collective = Collective(row.kind, mesh, axes, row.size, sent_by=shift)
    device = machine.device
    software = device.execution.sync if device else 0.0  # as a simulation adds it
    return step_cost(collective, CostModel()).time + software
