"""Devices of the operating system in hwloc's XML: GPUs and network adapters; the host's name."""

import re

from collir.importing.machines.elements import Element
from collir.importing.values import TextPlace

_GPU = re.compile(r"(?:cuda|nvml|rsmi|amdsmi|amdgpu|opencl\d+d|ze)\d+(?:\.\d+)?")
_OPENFABRICS = 3
"""The ``osdev_type`` of an adapter up to hwloc 2, where the types are numbers."""
_OPENFABRICS_BIT = 32
"""The bit of an adapter in the ``osdev_type`` of hwloc 3, where a device has several types."""


def is_gpu(element: Element) -> bool:
    """Return whether an object is the device of a GPU, as a library of GPUs knows it."""
    if element.get("type") != "OSDev" or not _GPU.fullmatch(element.get("name")):
        return False
    kinds = [
        child.get("value") for child in element.children if child.get("name") == "OpenCLDeviceType"
    ]
    return kinds in ([], ["GPU"])


def is_adapter(element: Element, root: Element) -> bool:
    """Return whether an object is an InfiniBand adapter or the like; ``root`` has the version."""
    if element.get("type") != "OSDev":
        return False
    kind = element.get("osdev_type")
    number = int(kind) if re.fullmatch(r"[0-9]{1,9}", kind) else 0
    bits = re.match(r"(?:[3-9]|\d\d)", root.get("version"))
    if bits:
        return bool(number & _OPENFABRICS_BIT)
    return number == _OPENFABRICS or element.get("subtype") == "OpenFabrics"


def host_name(root: Element) -> tuple[str, TextPlace]:
    """Return the name of the host and its place, or an empty name."""
    infos = (info for info in root.inside("info") if info.get("name") == "HostName")
    return next(((info.get("value"), info.place) for info in infos), ("", root.place))
