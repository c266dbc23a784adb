"""A host with GPUs as ``nvidia-smi`` and NCCL describe it, before it is made regular."""

from dataclasses import dataclass
from enum import IntEnum

from collir.importing.values import TextPlace

MAX_GPUS = 256
"""The largest number of GPUs of a host, as in NCCL."""


class Distance(IntEnum):
    """The distance of two devices of a host: the farthest link on the path, as nvidia-smi says."""

    PIX = 1
    """At most one PCIe bridge."""
    PXB = 2
    """Several PCIe bridges, but not the host bridge."""
    PHB = 3
    """A host bridge of PCIe."""
    NODE = 4
    """Several host bridges of one NUMA node."""
    SYS = 5
    """The link between NUMA nodes."""


@dataclass(frozen=True)
class Gpu:
    """A GPU and its place in the text."""

    name: str
    place: TextPlace


@dataclass(frozen=True)
class Nic:
    """A network adapter: its bytes/second, if the text has them, and its distance to each GPU."""

    name: str
    place: TextPlace
    speed: float | None
    distances: tuple[Distance, ...]


@dataclass(frozen=True)
class Host:
    """The GPUs and network adapters of a host, and the links between them.

    ``hosts`` is above 1 if NVLink joins the GPUs of several hosts to what is here one.

    ``links`` are the numbers of NVLinks between every two GPUs, ``distances`` their paths over
    PCIe.

    ``switched`` is whether the links go through switches, or ``None`` if the text does not say.
    ``lane``, ``pci`` and ``nic`` are the bytes/second of a link, of PCIe, and of an adapter
    without a speed of its own; each has a text on its source.
    """

    gpus: tuple[Gpu, ...]
    links: tuple[tuple[int, ...], ...]
    distances: tuple[tuple[Distance, ...], ...]
    nics: tuple[Nic, ...]
    switched: bool | None
    lane: float
    lane_source: str
    pci: float
    pci_source: str
    nic: float
    nic_source: str
    fabric: str = "NVLink"
    hosts: int = 1
