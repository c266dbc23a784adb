"""Machines as others describe them, read as plain values.

``read(text)`` finds out which of ``FORMATS`` a text has and reads it. Nothing here prints.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from collir.importing.machines import astra, hwloc, nccl_xml, nvidia_smi, slurm, slurm_yaml
from collir.importing.values import Described, Place, ReadError, Reading, Remark
from collir.machine.model import MachineError

__all__ = [
    "FORMATS",
    "MAX_BYTES",
    "Described",
    "Place",
    "ReadError",
    "Reading",
    "Remark",
    "detect",
    "read",
]

MAX_BYTES = 4 * 2**20
"""The longest text that is read."""


@dataclass(frozen=True)
class Format:
    """A format: what it is, its reader, and its XML root or what its text has somewhere."""

    about: str
    read: Callable[[str], Reading]
    root: str = ""
    mark: re.Pattern[str] | None = None


FORMATS = {
    "nccl": Format("NCCL's topology XML (NCCL_TOPO_DUMP_FILE)", nccl_xml.read, "system"),
    "hwloc": Format("hwloc's XML (lstopo --of xml)", hwloc.read, "topology"),
    "nvidia-smi": Format(
        "what `nvidia-smi topo -m` prints", nvidia_smi.read, mark=nvidia_smi.HEADER
    ),
    "slurm": Format(
        "SLURM's topology.conf or topology.yaml",
        slurm.read,
        mark=re.compile(
            rf"^[ \t]*(?:SwitchName|BlockName)[ \t]*=|{slurm_yaml.HEADER.pattern}",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
    "astra-sim": Format(
        "a network of ASTRA-sim (yaml)",
        astra.read,
        mark=re.compile(r"^[\"']?(?:topology|npus_count)[\"']?[ \t]*:", re.MULTILINE),
    ),
}
"""Name -> format."""

_ROOT = re.compile(r"<([A-Za-z_][\w.-]*)")


def _root(text: str) -> str:
    """The first tag of an XML text, behind comments."""
    at = 0
    while (at := text.find("<", at)) >= 0:
        if text.startswith("<!--", at):
            at = text.find("-->", at)
            if at < 0:
                return ""
        elif match := _ROOT.match(text, at):
            return match[1]
        else:
            at += 1
    return ""


def detect(text: str) -> str:
    """The name of the format of a text.

    Raises:
        ReadError: it is none of them.
    """
    if not text.strip():
        raise ReadError("the file is empty", Place(1))
    if text.lstrip().startswith("<"):
        root = _root(text)
        for name, one in FORMATS.items():
            if root and one.root == root:
                return name
        raise ReadError("this XML is neither NCCL's (<system>) nor hwloc's (<topology>)", Place(1))
    for name, one in FORMATS.items():
        if one.mark and one.mark.search(text):
            return name
    known = ", ".join(one.about for one in FORMATS.values())
    raise ReadError(f"this is none of {known}; --format says which", Place(1))


def read(text: str, format: str | None = None) -> Reading:
    """What a text says of a machine.

    Raises:
        ReadError: it is malformed, of none of the formats, or no regular machine describes it.
    """
    found = FORMATS[format or detect(text)].read(text)
    try:
        found.machine("m")
    except MachineError as error:
        raise ReadError(str(error), found.place) from error
    return found
