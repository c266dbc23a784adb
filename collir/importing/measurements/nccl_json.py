"""Reader of the JSON that nccl-tests writes (-J): a run in an object of its own.

    {"args": ["all_reduce_perf", ...], "config": {"nthreads", "ngpus", "devices": [{"rank", ...}]},
     "results": [{"size", "redop", "root", "out_of_place": {"time", "alg_bw", ...}, "in_place"}]}

Times are in microseconds, as in the tables. Of each process only the first rank is listed.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, cast

from collir.importing.measurements.names import kind_of_file, kind_of_program
from collir.importing.measurements.nccl_run import ListedRank, NcclRun, Time, out_of_bounds
from collir.importing.measurements.tables import MAX_SIZE, MeasuredTables, is_time
from collir.importing.values import ReadError, Remark, TextPlace, shown

MARK = re.compile(r'\A\s*\{.*"results"\s*:.*"out_of_place"\s*:', re.DOTALL)
"""A pattern that only these files have."""

_NOT_JSON = re.compile(r"(:\s{0,9})-?(?:inf|nan)\b")
"""A number as C prints it where a time or a bandwidth is none."""

_MOST_EACH = 4096
"""The most GPUs of a process."""

_DECODER = json.JSONDecoder()


def read(text: str, kind: str | None = None, file: str = "") -> MeasuredTables:
    """Return the times of the run.

    Raises:
        ReadError: the text is no such JSON, or has no times of a known collective that can be used.
    """
    remarks: list[Remark] = []
    runs: list[NcclRun] = []
    for place, document in _documents(text):
        try:
            runs.append(_run(document, file, place, remarks))
        except ReadError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            message = f"this is no JSON of nccl-tests: {shown(str(error))}"
            raise ReadError(message, place) from error
    others = [run for run in runs if run.sole_name == ""]
    runs = [run for run in runs if run not in others]
    if not runs:
        raise ReadError("this is of no collective whose times are read", others[0].place)
    for run in others:
        remarks.append(Remark("this run is of no collective whose times are read", run.place))
    if not any(run.times for run in runs):
        why = f": {remarks[0].message}" if remarks else ""
        raise ReadError(f"there are no times that can be used here{why}", runs[0].place)
    for run in runs:
        if not run.times:
            remarks.append(Remark("there are no times that can be used here", run.place))
    tables = tuple(run.table(kind, remarks) for run in runs if run.times)
    return MeasuredTables("Times of nccl-tests.", tables, tuple(remarks))


def _documents(text: str) -> Iterator[tuple[TextPlace, dict[str, Any]]]:
    """Yield the documents of a text, one behind the other.

    Raises:
        ReadError: the text is no JSON, or the last document is cut off.
    """
    text = _NOT_JSON.sub(lambda match: match[1] + "null", text)
    at = len(text) - len(text.lstrip())
    while at < len(text):
        place = TextPlace(1 + text.count("\n", 0, at))
        try:
            document, at = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            place = TextPlace(error.lineno, error.colno)
            raise ReadError(f"this is no JSON: {error.msg}; it may be cut off", place) from error
        except (ValueError, RecursionError) as error:
            raise ReadError(f"this is no JSON: {shown(str(error))}", place) from error
        yield place, document
        at += len(text) - at - len(text[at:].lstrip())


def _run(document: dict[str, Any], file: str, place: TextPlace, remarks: list[Remark]) -> NcclRun:
    config = document.get("config", {})
    args: list[str] = document.get("args") or [""]
    run = NcclRun(place, kind_of_program(args[0]), hint=kind_of_file(file))
    gpus = int(config.get("nthreads", 1)) * int(config.get("ngpus", 1))
    if not 0 < gpus <= _MOST_EACH:
        raise ReadError(f"a process cannot have {gpus} GPUs", place)
    for device in config.get("devices", []):
        if int(device.get("group", 0)):
            raise ReadError(
                "these ranks are in several groups at the same time (NCCL_TESTS_SPLIT), which is "
                "not read: measure one group a run",
                place,
            )
        for at in range(gpus):
            number, index = int(device["rank"]) + at, int(device["device"]) + at
            run.ranks[ListedRank(number, device["hostname"], index, str(device["pid"]))] = place
    for result in document["results"]:
        run.times += _times(result, place, remarks)
    bounds: dict[str, Any] = document.get("out_of_bounds") or {}
    if count := int(bounds.get("count", 0)):
        remarks.append(Remark(out_of_bounds(count), place))
    errors: list[object] = document.get("errors") or []
    remarks += [Remark(f"the run says '{shown(str(error))}'", place) for error in errors if error]
    return run


def _times(result: dict[str, Any], place: TextPlace, remarks: list[Remark]) -> Iterator[Time]:
    """Yield the times of a size, out of place and in place."""
    size = int(result["size"])
    groups = [cast(dict[str, Any] | None, result.get(f"{at}_place")) for at in ("out_of", "in")]
    counted = [bool(group) and group.get("nwrong") is not None for group in groups]
    for group in groups:
        if not group or not 0 < size <= MAX_SIZE:
            continue
        if "cpu_time" in group:
            raise ReadError(
                "these are times that the CPU took to start the collectives (-C 1), not those that "
                "the collectives took: measure without -C",
                place,
            )
        time = str(group["time"])
        if not is_time(time):
            remarks.append(Remark(f"'{shown(time)}' is not a time above 0 us: left out", place))
        elif group.get("nwrong"):
            text = f"{group['nwrong']:g} elements of {size} bytes were wrong: this time is left out"
            remarks.append(Remark(text, place))
        else:
            yield Time(
                size,
                float(time) * 1e-6,
                place,
                result["redop"] not in ("", "none") if "redop" in result else None,
                int(result["root"]) if "root" in result else None,
                counted[1] if counted[0] else None,
                *(_interval(group.get(name)) for name in ("alg_bw", "bus_bw")),
            )


def _interval(value: object) -> tuple[float, float] | None:
    """Return the least and the largest number that are printed with six digits as a value."""
    if not isinstance(value, float | int) or not value > 0:
        return None
    return value - 5e-7, value + 5e-7
