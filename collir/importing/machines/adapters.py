"""The level of hosts that the network adapters of one host make."""

from collections.abc import Sequence

from collir.importing.machines import assumed
from collir.importing.machines.host import Host, Nic
from collir.importing.values import Described, Remark
from collir.machine.model import Fabric, Level


def level(host: Host, gpus: Sequence[int], remarks: list[Remark]) -> Described | None:
    """Hosts like this one on a network, each through the adapters nearest to its GPUs.

    None if the host has no adapters. How many hosts there are is a parameter.
    """
    if not host.nics:
        return None
    near: list[Nic] = []
    for nic in host.nics:
        if any(nic.distances[g] == min(x.distances[g] for x in host.nics) for g in gpus):
            near.append(nic)
    speeds = [nic.speed for nic in near]
    known = [speed for speed in speeds if speed is not None]
    slowest = min(known, default=host.nic)
    if known and (len(known) < len(near) or max(known) > slowest):
        odd = next(nic for nic in near if nic.speed is None or nic.speed == slowest)
        message = f"adapters of several speeds: all are taken to have {slowest / 1e9:g} GB/s"
        remarks.append(Remark(message, odd.place))
    rails = _rails(near, len(gpus), remarks)
    far = len(host.nics) - len(near)
    lines = sorted({nic.place.line for nic in near})
    where = f"lines {lines[0]} to {lines[-1]}" if len(lines) > 1 else f"line {lines[0]}"
    adapters = "1 adapter" if len(near) == 1 else f"{len(near)} adapters"
    speed = f"{slowest / 1e9:g} GB/s each" if known else host.nic_source
    port = f"Port: {adapters} ({where}), {speed}"
    if far:
        port += f"; {far} that are nearest to no GPU are left out"
    return Described(
        Level(
            "node",
            1,
            len(near) * slowest,
            assumed.LATENCY[Fabric.NETWORK],
            rails=rails,
            fabric=Fabric.NETWORK,
        ),
        (
            "Size: the file is of one host, more are a matter of the parameter.",
            f"{port}.",
            assumed.latency_source(Fabric.NETWORK),
        ),
        "nodes",
    )


def _rails(near: list[Nic], gpus: int, remarks: list[Remark]) -> int:
    count = len(near)
    if gpus % count == 0:
        return count
    if count % gpus == 0:
        return gpus
    remarks.append(
        Remark(
            f"{count} adapters do not divide over {gpus} GPUs: all GPUs are taken to share them",
            near[0].place,
        )
    )
    return 1
