"""The levels of a host: NVLink inside, PCIe around it, and the network outside."""

from collir.importing.machines import adapters, nvlink, pcie
from collir.importing.machines.host import MAX_GPUS, Host
from collir.importing.values import Described, Place, ReadError, Reading, Remark


def check_count(gpus: int, place: Place) -> None:
    """Checks that there are GPUs.

    Raises:
        ReadError: there are none, or too many.
    """
    if not gpus:
        raise ReadError("there is no GPU here", place)
    if gpus > MAX_GPUS:
        raise ReadError(f"there are more than {MAX_GPUS} GPUs", place)


def reading(host: Host, about: str, place: Place, remarks: list[Remark]) -> Reading:
    """What the text on a host says of a machine of such hosts.

    Raises:
        ReadError: no regular machine describes it.
    """
    islands = nvlink.islands(host, remarks)
    inner = nvlink.level(host, islands, remarks)
    outer, order = pcie.levels(host, islands, remarks)
    if inner is None and not outer:  # a single GPU
        outer = [pcie.alone(host)]
    if order != sorted(order):
        listed = nvlink.names([host.gpus[gpu] for gpu in order])
        first = next(
            gpu for gpu, next_one in zip(order, sorted(order), strict=True) if gpu != next_one
        )
        remarks.append(
            Remark(f"ranks of the machine are in this order: {listed}", host.gpus[first].place)
        )
    network = adapters.level(host, order, remarks)
    levels: list[Described] = [*([network] if network else []), *outer, *([inner] if inner else [])]
    return Reading(about, tuple(levels), place, remarks=tuple(remarks))
