"""Values that are assumed where a text does not give them; docs/topologies.md has the table."""

from collir.machine.level import Fabric

LATENCY = {Fabric.NVLINK: 3.4e-6, Fabric.PCI: 5.7e-6, Fabric.NETWORK: 14e-6}
"""Seconds of a hop of a ring in NCCL 2.30 with its protocol Simple."""

_FABRIC = {Fabric.NVLINK: "NVLink", Fabric.PCI: "PCIe", Fabric.NETWORK: "the network"}

NVLINK = 25e9
"""Bytes/second per direction of an NVLink on V100, A100 and H100."""

XGMI = 50e9
"""Bytes/second per direction of an xGMI link of MI250."""

MOST_LINKS = 18
"""The largest number of NVLinks of a GPU (H100, B200)."""

PCI = 12e9
"""Bytes/second of PCIe 3 x16, as NCCL assumes."""

NIC = 25e9
"""Bytes/second of a port of InfiniBand HDR."""

NEW_NIC = 50e9
"""Bytes/second of a port of InfiniBand NDR, as beside H100."""

HOST_LATENCY = 1.3e-6
"""Seconds from host to host over InfiniBand, as in the preset ndv2."""

SOCKET = 144e9
"""Bytes/second from one socket to another, as in the preset cpu_cluster."""

SOCKET_LATENCY = 0.7e-6

MEMORY = 102.4e9
"""Bytes/second that the cores of a socket copy, as in the preset cpu_cluster."""

CORE_LATENCY = 0.5e-6

ADAPTER = "25 GB/s each is assumed (InfiniBand HDR)"
NEW_ADAPTER = "50 GB/s each is assumed (InfiniBand NDR, as beside H100)"


def latency_source(fabric: Fabric) -> str:
    """Return the sentence on the source of an assumed latency."""
    return (
        f"Latency: assumed, a hop of a ring over {_FABRIC[fabric]} in NCCL 2.30, protocol Simple."
    )
