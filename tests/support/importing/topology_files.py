"""Files of topologies as other tools write them, and the levels that are in each."""

from collections.abc import Sequence
from pathlib import Path

from collir.importing.machines import read
from collir.importing.machines.description import MachineDescription
from collir.machine import Fabric, LinkKind

TOPOLOGIES = Path(__file__).parents[2] / "importing" / "topologies"
"""The folder of the files, which were written by hand in the formats of the tools.

- dgx_a100: two GPUs and two of eight network adapters at each of four PCIe switches, two adapters
  for storage, six NVSwitches (DGX A100 user guide; numbered as nvidia-smi numbers them).
- hgx_h100: an adapter at the switch of each GPU, 18 NVLinks to NVSwitches (DGX H100 user guide).
- dgx1_v100: the link matrix of the hybrid cube mesh, an adapter for each pair of GPUs (NVIDIA DGX-1
  white paper).
- hgx_a100_4: four A100 with four NVLinks between every two (HGX A100 4-GPU).
- pcie_l40s, nvlink_bridges: servers without NVSwitch, as commonly assembled.
- mi100_rocm_smi, mi250_amd_smi: two hives of MI100; four MI250 of two GPUs each.
- mi300x_rccl: an xGMI link between every two GPUs (AMD Instinct MI300X platform).
- the other files describe themselves in a comment.
"""

FILES = sorted(TOPOLOGIES.iterdir())

SWITCH, RING, FULL, BUS, _, LINKS = LinkKind
NVLINK, PCI, NETWORK, MEMORY = Fabric.NVLINK, Fabric.PCI, Fabric.NETWORK, Fabric.MEMORY

Row = tuple[str, int, float, LinkKind, int, Fabric | None]
"""Name, size, port in bytes/second, kind, rails and fabric of a level."""

EXPECTED: dict[str, tuple[str, list[Row]]] = {
    "dgx_a100.txt": (
        "nvidia-smi",
        [("node", 1, 200e9, SWITCH, 8, NETWORK), ("gpu", 8, 300e9, SWITCH, 1, NVLINK)],
    ),
    "hgx_h100.txt": (
        "nvidia-smi",
        [("node", 1, 400e9, SWITCH, 8, NETWORK), ("gpu", 8, 450e9, SWITCH, 1, NVLINK)],
    ),
    "dgx1_v100.txt": (
        "nvidia-smi",
        [("node", 1, 100e9, SWITCH, 4, NETWORK), ("gpu", 8, 150e9, LINKS, 1, NVLINK)],
    ),
    "hgx_a100_4.txt": ("nvidia-smi", [("gpu", 4, 300e9, FULL, 1, NVLINK)]),
    "pcie_l40s.txt": (
        "nvidia-smi",
        [
            ("socket", 2, 12e9, SWITCH, 1, PCI),
            ("pcie", 2, 12e9, SWITCH, 1, PCI),
            ("gpu", 2, 12e9, SWITCH, 1, PCI),
        ],
    ),
    "nvlink_bridges.txt": (
        "nvidia-smi",
        [("island", 2, 12e9, SWITCH, 1, PCI), ("gpu", 2, 100e9, SWITCH, 1, NVLINK)],
    ),
    "a100_one_without_nvlink.txt": ("nvidia-smi", [("gpu", 7, 300e9, SWITCH, 1, NVLINK)]),
    "a100_mixed_counts.txt": ("nvidia-smi", [("gpu", 8, 225e9, SWITCH, 1, NVLINK)]),
    "dgx_a100_nccl.xml": (
        "nccl",
        [("node", 1, 200e9, SWITCH, 8, NETWORK), ("gpu", 8, 300e9, SWITCH, 1, NVLINK)],
    ),
    "dgx1_v100_nccl.xml": (
        "nccl",
        [("node", 1, 50e9, SWITCH, 4, NETWORK), ("gpu", 8, 150e9, LINKS, 1, NVLINK)],
    ),
    "by_class_nccl.xml": (
        "nccl",
        [
            ("node", 1, 200e9, SWITCH, 8, NETWORK),
            ("pcie", 4, 31.51e9, SWITCH, 1, PCI),
            ("gpu", 2, 31.51e9, SWITCH, 1, PCI),
        ],
    ),
    "mnnvl_nccl.xml": (
        "nccl",
        [("rack", 1, 200e9, SWITCH, 4, NETWORK), ("gpu", 4, 900e9, SWITCH, 1, NVLINK)],
    ),
    "mi300x_rccl.xml": ("nccl", [("gpu", 8, 448e9, FULL, 1, NVLINK)]),
    "mi100_rocm_smi.txt": (
        "amd-smi",
        [("island", 2, 12e9, SWITCH, 1, PCI), ("gpu", 4, 150e9, FULL, 1, NVLINK)],
    ),
    "mi250_amd_smi.txt": ("amd-smi", [("gpu", 8, 400e9, LINKS, 1, NVLINK)]),
    "fat_tree.conf": (
        "slurm",
        [
            ("pod", 2, 200e9, SWITCH, 8, NETWORK),
            ("leaf", 2, 100e9, SWITCH, 4, NETWORK),
            ("node", 4, 25e9, SWITCH, 1, NETWORK),
        ],
    ),
    "blocks.conf": (
        "slurm",
        [("block", 2, 450e9, SWITCH, 18, NETWORK), ("node", 18, 25e9, SWITCH, 1, NETWORK)],
    ),
    "fat_tree.yaml": (
        "slurm",
        [
            ("pod", 2, 200e9, SWITCH, 8, NETWORK),
            ("leaf", 2, 100e9, SWITCH, 4, NETWORK),
            ("node", 4, 25e9, SWITCH, 1, NETWORK),
        ],
    ),
    "fat_tree_scontrol.txt": (
        "slurm",
        [
            ("pod", 2, 200e9, SWITCH, 8, NETWORK),
            ("leaf", 2, 100e9, SWITCH, 4, NETWORK),
            ("node", 4, 25e9, SWITCH, 1, NETWORK),
        ],
    ),
    "blocks.yaml": (
        "slurm",
        [("block", 2, 450e9, SWITCH, 18, NETWORK), ("node", 18, 25e9, SWITCH, 1, NETWORK)],
    ),
    "blocks_scontrol.txt": (
        "slurm",
        [("block", 2, 450e9, SWITCH, 18, NETWORK), ("node", 18, 25e9, SWITCH, 1, NETWORK)],
    ),
    "uneven.conf": (
        "slurm",
        [("leaf", 2, 75e9, SWITCH, 3, NETWORK), ("node", 3, 25e9, SWITCH, 1, NETWORK)],
    ),
    "astra_3d.yml": (
        "astra-sim",
        [
            ("dim3", 4, 1.6e12, SWITCH, 32, None),
            ("dim2", 8, 2.8e12, FULL, 4, None),
            ("dim1", 4, 400e9, RING, 1, None),
        ],
    ),
    "epyc_7742_hwloc.xml": (
        "hwloc",
        [
            ("node", 1, 25e9, SWITCH, 1, NETWORK),
            ("socket", 2, 144e9, SWITCH, 1, MEMORY),
            ("numa", 2, 51.2e9, SWITCH, 1, MEMORY),
            ("core", 16, 51.2e9, BUS, 1, MEMORY),
        ],
    ),
    "xeon_hwloc1.xml": (
        "hwloc",
        [("socket", 2, 144e9, SWITCH, 1, MEMORY), ("core", 8, 102.4e9, BUS, 1, MEMORY)],
    ),
    "uneven_hwloc.xml": (
        "hwloc",
        [
            ("socket", 2, 144e9, SWITCH, 1, MEMORY),
            ("core", 7, 102.4e9, BUS, 1, MEMORY),
        ],
    ),
    "v100_hwloc3.xml": (
        "hwloc",
        [("node", 1, 50e9, SWITCH, 2, NETWORK), ("gpu", 4, 150e9, SWITCH, 1, NVLINK)],
    ),
}
"""File -> its format and its levels."""

ASTRA = "topology: [Ring]\nnpus_count: [4]\nbandwidth: [50.0]\nlatency: [500.0]\n"
"""A network of ASTRA-sim: a ring of four NPUs."""

TWO_GPUS = """<system><cpu><pci busid="1"><gpu dev="0">{0}</gpu></pci>
<pci busid="2"><gpu dev="1"/></pci></cpu></system>"""
"""NCCL's description of two GPUs; ``{0}`` takes the links of the first."""


def text_of(name: str) -> str:
    return (TOPOLOGIES / name).read_text(encoding="utf-8")


def rows(reading: MachineDescription) -> list[Row]:
    levels = [described.level for described in reading.levels]
    return [(x.name, x.size, x.port, x.kind, x.rails, x.fabric) for x in levels]


def sizes(reading: MachineDescription) -> list[int]:
    return [described.level.size for described in reading.levels]


def matrix(cells: Sequence[Sequence[str]], nics: int = 0) -> str:
    """Return the matrix as nvidia-smi prints it; the last ``nics`` rows are adapters."""
    gpus = len(cells) - nics
    names = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(nics)]
    lines = ["\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity"])]
    lines += ["\t".join([name, *row, "0-7", "0"]) for name, row in zip(names, cells, strict=True)]
    return "\n".join(lines) + "\n\nLegend:\n"


def remarks(text: str) -> list[tuple[int, str]]:
    """Return the line and the message of each remark on a text."""
    return [(remark.place.line, remark.message) for remark in read(text).remarks]
