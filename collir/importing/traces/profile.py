"""Profiles of computers: a file has all devices of one, and each of them is a rank."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collir.importing.traces.ranks import CUT_OFF, ranks_by_name, shift
from collir.importing.traces.trace import RankTrace, Trace


@dataclass
class TraceProfile:
    """The contents of a file.

    Attributes:
        devices: what ran on each, in order.
        numbers: their ranks, if the file says so.
        base: the second at which its times begin; 0 if the file does not say.
    """

    path: Path
    devices: list[RankTrace] = field(default_factory=list[RankTrace])
    numbers: list[int] | None = None
    world: int = 0
    base: float = 0.0
    remarks: list[str] = field(default_factory=list[str])
    events: int = 0
    ignored: int = 0
    cut_off: bool = False


def joined(tool: str, profiles: Sequence[TraceProfile]) -> Trace:
    """Return the trace of a job, of the profiles of its computers."""
    _number(profiles)
    if all(x.base for x in profiles):
        for x in profiles[1:]:
            for device in x.devices:
                shift(device, x.base - profiles[0].base)
    remarks = [CUT_OFF.format(x.path) for x in profiles if x.cut_off]
    remarks += dict.fromkeys(remark for x in profiles for remark in x.remarks)
    remarks += _described(profiles)
    ranks = [device for x in profiles for device in x.devices]
    return Trace(
        tool, sorted(ranks, key=lambda x: x.rank), max((x.world for x in profiles), default=0),
        remarks, sum(x.events for x in profiles), sum(x.ignored for x in profiles),
    )  # fmt: skip


def _number(profiles: Sequence[TraceProfile]) -> None:
    """Number the ranks: by the files; else by the names of files with one device each; else the
    ranks of a file follow those of the file before."""
    named = ranks_by_name([x.path for x in profiles])
    ordered = [x for _, x in sorted(zip(named, profiles, strict=True), key=lambda x: x[0])]
    if all(x.numbers for x in profiles):
        numbers = [number for x in ordered for number in x.numbers or ()]
    elif all(len(x.devices) == 1 for x in profiles):
        numbers = sorted(named)
    else:
        numbers = [*range(sum(len(x.devices) for x in profiles))]
    for rank, device in zip(numbers, (y for x in ordered for y in x.devices), strict=True):
        device.rank = rank


def _described(profiles: Sequence[TraceProfile]) -> Iterator[str]:
    """Say how the ranks were numbered, where it is not plain."""
    if all(x.numbers for x in profiles):
        return
    if len(profiles) > 1 or any(len(x.devices) > 1 for x in profiles):
        yield "the files do not say their ranks: devices are numbered in the order of files"
