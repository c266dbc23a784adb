"""Measured times beside predicted ones: ``collir compare MACHINE --from FILE``."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from typing import Any

from collir.cost.calibration import Residual
from collir.cost.calibration.values import median_error, worst_residual
from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Sources, render_all
from collir.machine import Machine
from collir.targets.reports.text import bytes_text, seconds_text, table
from collir.tools.api import UsageError
from collir.tools.calibration_output import point_json
from collir.tools.measured import file_given, machine_named, read, samples_of
from collir.tools.shell import BAD_INPUT


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("machine", help="a .coll file with the machine, or @NAME of a shipped one")
    parser.add_argument(
        "--from",
        dest="files",
        action="append",
        required=True,
        metavar="FILE[,over=LEVELS][,collective=NAME]",
        help="measurements of nccl-tests, of OSU or of collir, as for collir calibrate; again for "
        "more files",
    )
    parser.add_argument(
        "--machine", dest="name", metavar="NAME", help="the machine, where the file has several"
    )
    default = CostModel()
    for name, about in (
        ("model", "alpha-beta, nccl or p2"),
        ("algorithm", "how the collectives ran: cheapest, runtime (MPICH's) or one by name"),
        ("order", "order of the ranks: written or hardware"),
    ):
        given = getattr(default, name)
        parser.add_argument(f"--{name}", default=given, help=f"{about} (default: {given})")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the comparison; return the exit status."""
    sources = Sources()
    try:
        model = CostModel(options.model, options.algorithm, options.order)
    except ValueError as error:
        raise UsageError(str(error)) from error
    try:
        found = _compared(options, model, sources)
    except DiagnosticError as error:
        sys.stderr.write(render_all(error.diagnostics, sources))
        return BAD_INPUT
    text = (
        json.dumps(_json(found, model), indent=2)
        if options.json
        else "\n".join(_report(found, model))
    )
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    return 0


def _compared(options: argparse.Namespace, model: CostModel, sources: Sources) -> list[Residual]:
    """Return the measurements of all files, each with its prediction."""
    chosen = [file_given(text) for text in options.files]
    op = machine_named(options.machine, options.name, sources, "to predict for")
    machine: Machine = op.value()
    texts = [read(one, sources) for one in chosen]
    samples = [sample for one in texts for sample in samples_of(machine, one, sources)]
    try:
        return [Residual(one, step_cost(one.collective, model).time) for one in samples]
    except CostError as error:
        raise DiagnosticError(Diagnostic(str(error))) from error


def _report(found: Sequence[Residual], model: CostModel) -> list[str]:
    """Return the table, a row for each time, and how far off the predictions are."""
    rows: list[list[str]] = []
    for one in found:
        sent = one.sample.collective
        rows.append(
            [
                sent.kind,
                str(sent.ranks),
                bytes_text(sent.size),
                seconds_text(one.sample.seconds),
                seconds_text(one.predicted),
                f"{one.predicted / one.sample.seconds:.2f}",
                one.sample.source,
            ]
        )
    head = ["collective", "ranks", "bytes", "measured", "predicted", "ratio", "from"]
    most = worst_residual(found)
    assert most is not None, "files without times are refused"
    return [
        *table(head, rows, left=1),
        "",
        f"{len(found)} times: median error {median_error(found):.1%}, the worst {most.error:+.1%} "
        f"({most.sample.source}), costed {_how(found, model)}",
    ]


def _how(found: Sequence[Residual], model: CostModel) -> str:
    return model.how(found[0].sample.collective.mesh.machine)


def _json(found: Sequence[Residual], model: CostModel) -> dict[str, Any]:
    """Return all of it for programs: bytes, seconds, relative errors."""
    most = worst_residual(found)
    return {
        "costed": _how(found, model),
        "times": len(found),
        "median_error": median_error(found),
        "worst_error": most.error if most else math.nan,
        "points": [
            point_json(one) | {"ratio": one.predicted / one.sample.seconds} for one in found
        ],
    }
