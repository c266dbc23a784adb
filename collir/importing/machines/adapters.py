"""The network level, derived from the network adapters of one host."""

from collections.abc import Sequence

from collir.importing.machines import assumed
from collir.importing.machines.description import LevelDescription
from collir.importing.machines.host import Host, Nic
from collir.importing.values import Remark
from collir.machine.level import Fabric, Level


def level(host: Host, gpus: Sequence[int], remarks: list[Remark]) -> LevelDescription | None:
    """Return a level of such hosts, each connected through the adapters nearest to its GPUs.

    Returns None if the host has no adapters. The number of hosts is a parameter.
    """
    if not host.nics:
        return None
    nearest: list[Nic] = []
    for nic in host.nics:
        if any(nic.distances[g] == min(x.distances[g] for x in host.nics) for g in gpus):
            nearest.append(nic)
    speeds = [nic.speed for nic in nearest]
    known = [speed for speed in speeds if speed is not None]
    slowest = min(known, default=host.nic)
    if known and (len(known) < len(nearest) or max(known) > slowest):
        odd = next(nic for nic in nearest if nic.speed is None or nic.speed == slowest)
        message = f"adapters of several speeds: all are taken to have {slowest / 1e9:g} GB/s"
        remarks.append(Remark(message, odd.place))
    rails = _rails(nearest, len(gpus), remarks)
    left_out = len(host.nics) - len(nearest)
    lines = sorted({nic.place.line for nic in nearest})
    place = f"lines {lines[0]} to {lines[-1]}" if len(lines) > 1 else f"line {lines[0]}"
    adapters = "1 adapter" if len(nearest) == 1 else f"{len(nearest)} adapters"
    speed = f"{slowest / 1e9:g} GB/s each" if known else host.nic_source
    port = f"Port: {adapters} ({place}), {speed}"
    if left_out:
        port += f"; {left_out} that are nearest to no GPU are left out"
    machine = "one host" if host.hosts == 1 else f"{host.hosts} hosts that NVLink joins"
    return LevelDescription(
        Level(
            "node" if host.hosts == 1 else "rack",
            1,
            len(nearest) * slowest,
            assumed.LATENCY[Fabric.NETWORK],
            rails=rails,
            fabric=Fabric.NETWORK,
        ),
        (
            f"Size: the file is of {machine}, more are a matter of the parameter.",
            f"{port}.",
            assumed.latency_source(Fabric.NETWORK),
        ),
        "nodes" if host.hosts == 1 else "racks",
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
