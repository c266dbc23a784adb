"""The work of ``collir check``: read an algorithm, prove it, and say which runtimes take it."""

import argparse
import gc
import json
from collections.abc import Iterator
from pathlib import Path

from collir.algorithms.checking import CheckedAlgorithm, check
from collir.algorithms.mscclpp.checking import check_plan
from collir.importing.algorithms.msccl_xml import MscclFile, read_msccl_xml
from collir.importing.algorithms.mscclpp import MscclppFile, read_mscclpp
from collir.importing.values import ReadError
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.tools.shell import UsageError

_KINDS = {
    "form": "steps that do not fit together",
    "deadlock": "blocks that wait for ever",
    "race": "races",
    "value": "values that are not there, or added twice",
    "result": "chunks of outputs that are wrong",
    "limit": "limits of the executor that are exceeded",
}
"""The words for problems of each kind."""


_BLANK = b"\xef\xbb\xbf \t\r\n"
"""The characters before the first value of JSON, which tells it from XML."""

_MOST_STEPS = 50_000
"""The most steps of a program that is run again with fewer messages."""


def run(options: argparse.Namespace) -> int:
    """Print what was proven, or what is wrong; return the exit status."""
    gc.set_threshold(50_000, 20, 100)  # files are large, and hardly any of it is garbage
    if options.capacity < 1:
        raise UsageError("--capacity is a positive number")
    file = options.file
    try:
        data = Path(file).read_bytes()
        is_plan = data.lstrip(_BLANK)[:1] in (b"{", b"[")
        read_file = (read_mscclpp if is_plan else read_msccl_xml)(data, options.collective or "")
    except ReadError as error:
        at = Position(file, error.place.line, error.place.column)
        raise DiagnosticError(Diagnostic(error.message, at)) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot read {file}: {reason}")) from error
    if isinstance(read_file, MscclppFile):
        checked = check_plan(read_file.plan)
        facts, report = _plan_facts(read_file), _plan_report(read_file, checked)
    else:
        checked = check(read_file.program, options.capacity)
        facts, report = _facts(read_file), _report(read_file, checked, options.capacity)
    if options.json:
        print(json.dumps(_as_json(facts, checked), indent=2))
        return 0 if checked.is_right else 1
    if not checked.is_right:
        raise DiagnosticError([*_diagnostics(file, checked)])
    print("\n".join(report))
    return 0


def _diagnostics(file: str, checked: CheckedAlgorithm) -> Iterator[Diagnostic]:
    causes = [x for x in checked.problems if x.kind != "result"]
    for problem in causes or checked.problems:
        at = Position(file, problem.line, 1) if problem.line else None
        yield Diagnostic(problem.message, at)
    for kind, count in checked.counts.items():
        shown = sum(x.kind == kind for x in causes or checked.problems)
        if count > shown:
            yield Diagnostic(f"{count - shown} {'more ' * bool(shown)}{_KINDS[kind]}")


def _report(found: MscclFile, checked: CheckedAlgorithm, capacity: int) -> Iterator[str]:
    program = found.program
    name = f"{program.name}: " if program.name else ""
    yield (
        f"{name}{program.collective} on {len(program.ranks)} ranks, {program.step_count:,} steps, "
        f"{checked.messages:,} messages"
    )
    yield "  proven: every chunk of every output has each of its contributions once"
    yield (
        f"  no race, and no deadlock where a connection holds {capacity} messages"
        f"{_needed(found, capacity)}"
    )
    for runtime, reasons in found.refused.items():
        yield f"  {runtime} takes it" if not reasons else f"  {runtime} does not take it:"
        yield from (f"    {reason}" for reason in reasons)


def _needed(found: MscclFile, capacity: int) -> str:
    """Return how many messages a connection has to hold, in words, if that is found soon."""
    if found.program.step_count > _MOST_STEPS:
        return ""
    least = next(n for n in range(1, capacity + 1) if check(found.program, n).is_right)
    return f" (it needs {least})"


def _plan_report(found: MscclppFile, checked: CheckedAlgorithm) -> Iterator[str]:
    plan = found.plan
    name = f"{plan.outline.name}: " if plan.outline.name else ""
    yield (
        f"{name}{plan.outline.collective} on {len(plan.ranks)} ranks, {plan.operation_count:,} "
        f"operations, {checked.messages:,} signals"
    )
    yield "  proven: every chunk of every output has each of its contributions once"
    yield "  no race and no deadlock, within a launch and with the next one"
    yield "  mscclpp takes it"
    yield from (f"  careful: {remark}" for remark in found.remarks)


def _facts(found: MscclFile) -> dict[str, object]:
    program = found.program
    return {
        "name": program.name,
        "collective": program.collective,
        "ranks": len(program.ranks),
        "steps": program.step_count,
        "refused": {name: [*reasons] for name, reasons in found.refused.items()},
    }


def _plan_facts(found: MscclppFile) -> dict[str, object]:
    outline = found.plan.outline
    return {
        "name": outline.name,
        "collective": outline.collective,
        "ranks": len(found.plan.ranks),
        "steps": found.plan.operation_count,
        "remarks": [*found.remarks],
    }


def _as_json(facts: dict[str, object], checked: CheckedAlgorithm) -> dict[str, object]:
    return {
        **facts,
        "messages": checked.messages,
        "right": checked.is_right,
        "counts": checked.counts,
        "problems": [x._asdict() for x in checked.problems],
    }
