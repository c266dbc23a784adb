"""Profiles of XLA, as ``jax.profiler`` writes them: Chrome's JSON, a file for each host.

A device is a process of the trace, and its work is on threads with names of their own: kernels on
its streams (GPUs), or operations of HLO one after the other (TPUs). On CPUs, operations of HLO are
on the threads of the host, with the number of their device.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collir.importing.traces.chrome import ChromeTrace, opened
from collir.importing.traces.loose import UNREADABLE, finite, mapped, text
from collir.importing.traces.names import is_collective_kernel, kind_of
from collir.importing.traces.profile import TraceProfile, joined
from collir.importing.traces.ranks import reading
from collir.importing.traces.trace import KernelWork, RankTrace, Span, Trace, TracedCollective
from collir.importing.traces.xla_collectives import CONTAINER, XlaCollective, operation_of, paired

_SECOND = 1e-6
"""A microsecond, the unit of the times of a trace."""

_DEVICE = re.compile(r"/device:(?:GPU|TPU):(\d{1,9})")
_ORDINAL = re.compile(r"\d{1,9}")
_MARKS = ('"/host:CPU"', '"/device:', '"hlo_op"')


@dataclass
class _Device:
    """The data read of a device.

    Attributes:
        kernels, sent: what ran on its streams, without collectives, and these.
        work, operations: the operations of HLO, without collectives, and these.
        beside: collectives that ran beside other operations.
        runs: when programs ran, by their names and runs.
    """

    kernels: KernelWork = field(default_factory=KernelWork)
    sent: list[TracedCollective] = field(default_factory=list[TracedCollective])
    work: KernelWork = field(default_factory=KernelWork)
    operations: list[XlaCollective] = field(default_factory=list[XlaCollective])
    beside: list[TracedCollective] = field(default_factory=list[TracedCollective])
    steps: list[Span] = field(default_factory=list[Span])
    runs: dict[tuple[str, str], Span] = field(default_factory=dict[tuple[str, str], Span])


@dataclass
class _Reading:
    """The data read of a file.

    Attributes:
        processes, threads: their names.
        steps: the steps of training that the host marks.
    """

    processes: dict[object, str] = field(default_factory=dict[object, str])
    threads: dict[tuple[object, object], str] = field(
        default_factory=dict[tuple[object, object], str]
    )
    devices: dict[int, _Device] = field(default_factory=lambda: defaultdict(_Device))
    steps: list[Span] = field(default_factory=list[Span])


def is_xla(_: Path, head: str) -> bool:
    """Return whether this is the beginning of such a profile."""
    return head.lstrip().startswith(("{", "[")) and any(x in head for x in _MARKS)


def read_xla_files(paths: Sequence[Path]) -> Trace:
    """Return the trace of a job, of one file for each host.

    Raises:
        ReadError: a file is no such profile.
        OSError: a file cannot be read.
    """
    profiles: list[TraceProfile] = []
    for path in paths:
        with reading(path):
            profiles.append(read_xla(path))
    return joined("XLA's profiler", profiles)


def read_xla(path: Path) -> TraceProfile:
    """Return what a file says.

    Raises:
        ReadError: it is no such profile.
        OSError: it cannot be read.
    """
    profile, read = TraceProfile(path), _Reading()
    with opened(path) as stream:
        chrome = ChromeTrace(stream)
        for event in chrome.events():
            profile.events += 1
            try:
                used = _read(event, read)
            except UNREADABLE:
                used = False
            profile.ignored += not used
    profile.cut_off = chrome.cut_off
    for _, device in sorted(read.devices.items()):
        profile.devices.append(_finished(device, read, profile))
    return profile


def _read(event: Mapping[str, Any], read: _Reading) -> bool:
    """Take in an event; return whether it says anything."""
    process, thread = event.get("pid"), event.get("tid")
    arguments, name = mapped(event.get("args")), text(event.get("name"))
    match event.get("ph"):
        case "M" if name == "process_name":
            read.processes[process] = text(arguments.get("name"))
            return True
        case "M" if name == "thread_name":
            read.threads[process, thread] = text(arguments.get("name"))
            return True
        case "X":
            start = finite(event["ts"]) * _SECOND
            span = Span(name, start, start + max(0.0, finite(event.get("dur", 0))) * _SECOND)
        case _:
            return False
    if number := _DEVICE.fullmatch(read.processes.get(process, "")):
        device = read.devices[int(number[1])]
        return _on_device(span, arguments, read.threads.get((process, thread), ""), device)
    return _on_host(span, arguments, str(thread), read)


def _on_device(span: Span, arguments: Mapping[str, Any], thread: str, device: _Device) -> bool:
    """Take in what a GPU or a TPU ran."""
    if thread.startswith("Stream #"):
        _kernel(span, arguments, thread.partition("(")[0], device)
    elif thread == "XLA Ops":
        return _operation(span, arguments, thread, device)
    elif thread == "Async XLA Ops":
        if made := operation_of(span, arguments, thread):
            device.beside.append(made.collective)
        return made is not None
    elif thread == "XLA Modules":
        device.runs[span.name.partition("(")[0], str(len(device.runs))] = span
    elif thread == "Steps":
        device.steps.append(Span(f"step {span.name}", span.start, span.end))
    else:
        return False
    return True


def _on_host(span: Span, arguments: Mapping[str, Any], thread: str, read: _Reading) -> bool:
    """Read an event of the host, such as a step, or an operation of a CPU as a device."""
    if step := text(arguments.get("step_num")):
        read.steps.append(Span(f"{span.name} {step}", span.start, span.end))
        return True
    ordinal = text(arguments.get("device_ordinal"))
    if not _ORDINAL.fullmatch(ordinal) or not arguments.get("hlo_op"):
        return False
    device = read.devices[int(ordinal)]
    key = text(arguments.get("hlo_module")), text(arguments.get("run_id"))
    _, start, end = device.runs.get(key, span)
    device.runs[key] = Span(key[0], min(start, span.start), max(end, span.end))
    return _operation(span, arguments, thread, device)


def _kernel(span: Span, arguments: Mapping[str, Any], stream: str, device: _Device) -> None:
    """Take in what ran on a stream of a GPU."""
    if made := operation_of(span, arguments, stream):
        device.sent.append(made.collective)
    elif is_collective_kernel(span.name):
        device.sent.append(
            TracedCollective(kind_of(span.name), span.name, 0.0, *span[1:], span.start, stream)
        )
    else:
        device.kernels.add(*span)


def _operation(span: Span, arguments: Mapping[str, Any], stream: str, device: _Device) -> bool:
    """Take in an operation of HLO; return whether it is no container of others."""
    if CONTAINER.fullmatch(span.name):
        return False
    if made := operation_of(span, arguments, stream):
        device.operations.append(made)
    else:
        device.work.add(*span)
    return True


def _finished(device: _Device, read: _Reading, profile: TraceProfile) -> RankTrace:
    """Return what a device ran: its kernels, or if these are not there its operations."""
    made = RankTrace(-1, str(profile.path))
    if len(device.kernels) or device.sent:
        made.work, made.collectives = device.kernels, device.sent
    else:
        made.work = device.work
        made.waits = [
            Span(x.name, x.collective.start, x.collective.end)
            for x in device.operations
            if x.phase == "-done"
        ]
        ends = [x for x in device.operations if not (device.beside and x.phase)]
        made.collectives = [*paired(ends), *device.beside]
    made.collectives.sort(key=lambda x: x.issued)
    made.steps = sorted(device.steps or read.steps or _runs(device, profile),
                        key=lambda x: x.start)  # fmt: skip
    return made


def _runs(device: _Device, profile: TraceProfile) -> Iterator[Span]:
    """Yield the runs of the program that runs longest, as steps."""
    seconds: dict[str, float] = defaultdict(float)
    for (name, _), span in device.runs.items():
        seconds[name] += span.seconds
    if not seconds:
        return
    longest = max(seconds, key=lambda x: seconds[x])
    remark = f"no steps are marked: those here are the runs of {longest}"
    if remark not in profile.remarks:
        profile.remarks.append(remark)
    yield from (
        Span(f"{name} {run}", *span[1:])
        for (name, run), span in device.runs.items() if name == longest
    )  # fmt: skip
