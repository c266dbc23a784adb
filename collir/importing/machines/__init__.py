"""Readers of machines that other tools describe.

``read(text)`` detects which of ``FORMATS`` a text has, and reads it. The readers print nothing.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from collir.importing.machines import (
    amd_smi,
    astra,
    hwloc,
    nccl_xml,
    nvidia_smi,
    slurm,
    slurm_yaml,
)
from collir.importing.machines.description import MachineDescription
from collir.importing.machines.joined import join
from collir.importing.values import ReadError, TextPlace
from collir.machine.level import MachineError

__all__ = ["FORMATS", "MachineDescription", "detect", "join", "read"]


@dataclass(frozen=True)
class MachineFormat:
    """A format of a text that describes a machine.

    ``about`` names the format in messages. An XML text is recognised by its ``root``, another
    text by what ``mark`` finds in it.
    """

    about: str
    read: Callable[[str], MachineDescription]
    root: str = ""
    mark: re.Pattern[str] | None = None


FORMATS = {
    "nccl": MachineFormat(
        "NCCL's topology XML (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE)", nccl_xml.read, "system"
    ),
    "hwloc": MachineFormat("hwloc's XML (lstopo --of xml)", hwloc.read, "topology"),
    "amd-smi": MachineFormat(
        "what `rocm-smi --showtopo` or `amd-smi topology` prints", amd_smi.read, mark=amd_smi.TITLE
    ),
    "nvidia-smi": MachineFormat(
        "what `nvidia-smi topo -m` prints", nvidia_smi.read, mark=nvidia_smi.HEADER
    ),
    "slurm": MachineFormat(
        "SLURM's topology.conf or topology.yaml",
        slurm.read,
        mark=re.compile(
            rf"^[ \t]*(?:SwitchName|BlockName)[ \t]*=|{slurm_yaml.HEADER.pattern}",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
    "astra-sim": MachineFormat(
        "a network of ASTRA-sim (yaml)",
        astra.read,
        mark=re.compile(r"^[\"']?(?:topology|npus_count)[\"']?[ \t]*:", re.MULTILINE),
    ),
}
"""Name of a format -> the format."""

_ROOT = re.compile(r"<([A-Za-z_][\w.-]*)")


def _root(text: str) -> str:
    """Return the first tag of an XML text, behind comments, or an empty text."""
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
    """Return the name of the format of a text.

    Raises:
        ReadError: the text has none of the formats.
    """
    if not text.strip():
        raise ReadError("the file is empty", TextPlace(1))
    if text.lstrip().startswith("<"):
        root = _root(text)
        for name, format in FORMATS.items():
            if root and format.root == root:
                return name
        raise ReadError(
            "this XML is neither NCCL's (<system>) nor hwloc's (<topology>)", TextPlace(1)
        )
    for name, format in FORMATS.items():
        if format.mark and format.mark.search(text):
            return name
    known = ", ".join(format.about for format in FORMATS.values())
    raise ReadError(f"this is none of {known}; --format says which", TextPlace(1))


def read(text: str, format: str | None = None) -> MachineDescription:
    """Return the machine that a text describes.

    Raises:
        ReadError: the text is malformed or of no format, or no regular machine describes it.
    """
    description = FORMATS[format or detect(text)].read(text)
    try:
        description.machine("m")
    except MachineError as error:
        raise ReadError(str(error), description.place) from error
    return description
