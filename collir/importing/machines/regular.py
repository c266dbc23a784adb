"""The machine of equal hosts: NVLink inside, PCIe around it, and the network outside."""

from collir.importing.machines import adapters, nvlink, pcie
from collir.importing.machines.description import MachineDescription
from collir.importing.machines.host import MAX_GPUS, Host
from collir.importing.values import ReadError, Remark, TextPlace


def check_count(gpus: int, place: TextPlace) -> None:
    """Check that a host has at least one GPU, and not too many.

    Raises:
        ReadError: there are no GPUs, or too many.
    """
    if not gpus:
        raise ReadError("there is no GPU here", place)
    if gpus > MAX_GPUS:
        raise ReadError(f"there are more than {MAX_GPUS} GPUs", place)


def description(
    host: Host, about: str, place: TextPlace, remarks: list[Remark]
) -> MachineDescription:
    """Return the description of a machine of hosts like this host.

    Raises:
        ReadError: no regular machine describes the host.
    """
    islands = nvlink.aligned(host, nvlink.islands(host, remarks))
    inner = nvlink.level(host, islands, remarks)
    outer, order = pcie.levels(host, islands, remarks)
    if inner is None and not outer:  # a single GPU
        outer = [pcie.alone(host)]
    if order != sorted(order):
        listed = nvlink.names([host.gpus[gpu] for gpu in order])
        first = next(
            gpu for gpu, in_order in zip(order, sorted(order), strict=True) if gpu != in_order
        )
        remarks.append(
            Remark(f"ranks of the machine are in this order: {listed}", host.gpus[first].place)
        )
    network = adapters.level(host, order, remarks)
    levels = tuple(level for level in (network, *outer, inner) if level)
    return MachineDescription(about, levels, place, remarks=tuple(remarks), hosts=host.hosts)
