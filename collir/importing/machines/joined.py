"""A cluster from two texts: one describes the network of its nodes, the other a node."""

from dataclasses import replace

from collir.importing.machines import assumed
from collir.importing.machines.description import LevelDescription, MachineDescription
from collir.importing.values import ReadError, Remark, shown
from collir.machine.level import Fabric, MachineError


def join(
    network: MachineDescription, node: MachineDescription, node_file: str
) -> MachineDescription:
    """Return a machine with the levels of a network, whose nodes have the levels of a host.

    The port of a node is the port of its adapters, and a level above carries the ports of all nodes
    below it. Remarks are those of the joining only, at places in the text of the host;
    ``node_file`` names this text in the sources of numbers.

    Raises:
        ReadError: the two do not fit together; the place is in the text of the host.
    """
    outer = list(network.levels)
    remarks: list[Remark] = []
    adapters, inner = _split(node)
    if node.hosts > 1:
        nodes = outer[-1].level.size
        if nodes != node.hosts:
            message = (
                f"NVLink joins {node.hosts} hosts here, but what is innermost in the network has "
                f"{nodes} nodes: give both of the same machine"
            )
            raise ReadError(message, node.place)
        outer.pop()
    name, place = node.host_name
    if name and network.nodes and not {name, name.partition(".")[0]} & network.nodes:
        message = f"this host, {shown(name)}, is not among the nodes of the network"
        remarks.append(Remark(message, place))
    gpus = any(level.level.fabric in (Fabric.NVLINK, Fabric.PCI) for level in inner)
    joined = MachineDescription(
        f"{network.about.partition(';')[0].rstrip('.')}; each node: {node.about}",
        (*_network_levels(outer, adapters, gpus, node_file), *inner),
        network.place,
        node.device,
        node.device_source,
        tuple(remarks),
    )
    try:
        joined.machine("m")
    except MachineError as error:
        raise ReadError(str(error), node.place) from error
    return joined


def _split(node: MachineDescription) -> tuple[LevelDescription | None, list[LevelDescription]]:
    """Return the level of a host's adapters, if it has one, and the levels inside the host."""
    first, *rest = node.levels
    return (first, rest) if first.parameter else (None, [first, *rest])


def _network_levels(
    outer: list[LevelDescription],
    adapters: LevelDescription | None,
    gpus: bool,
    node_file: str,
) -> list[LevelDescription]:
    """Return the levels of the network with the ports and latencies of a host's adapters."""
    levels: list[LevelDescription] = []
    below = 1
    latency = assumed.LATENCY[Fabric.NETWORK] if gpus else assumed.HOST_LATENCY
    latency_source = assumed.latency_source(Fabric.NETWORK)
    if not gpus:
        latency_source = "Latency: assumed, as of InfiniBand in ndv2."
    if adapters:
        latency, latency_source = adapters.level.latency, adapters.sources[-1]
    port = adapters.level.port if adapters else assumed.NIC
    rails = adapters.level.rails if adapters else 1
    for index, described in enumerate(reversed(outer)):
        size_source, *_ = described.sources
        if index == 0:
            port_source = f"Port: one adapter of a node: {assumed.ADAPTER}."
            if adapters:
                port_source = f"{adapters.sources[1].rstrip('.')}, of {node_file}."
        else:
            port_source = (
                f"Port: assumed to carry what the {below} nodes below send, {port / 1e9:g} GB/s "
                "each, each by rails of its own: no file says how many links there are."
            )
        level = replace(described.level, port=below * port, rails=below * rails, latency=latency)
        levels.append(LevelDescription(level, (size_source, port_source, latency_source)))
        below *= described.level.size
    return levels[::-1]
