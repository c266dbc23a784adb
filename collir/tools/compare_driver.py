"""The work of ``collir compare``: put measured times beside predicted times."""

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
from collir.targets.reports.page.rendered import check_installed
from collir.targets.reports.text import bytes_text, seconds_text, table
from collir.tools.calibration_output import point_json
from collir.tools.compare_page import html
from collir.tools.measured import file_request, machine_named, read, samples_of
from collir.tools.shell import BAD_INPUT, UsageError, write_whole


def run(options: argparse.Namespace) -> int:
    """Print the comparison; return the exit status."""
    sources = Sources()
    try:
        model = CostModel(options.model, options.algorithm, options.order)
    except ValueError as error:
        raise UsageError(str(error)) from error
    try:
        if options.html:
            check_installed()
        residuals = _compared(options, model, sources)
        if options.html:
            write_whole(options.html, html(residuals, _costing(residuals, model)))
    except DiagnosticError as error:
        sys.stderr.write(render_all(error.diagnostics, sources))
        return BAD_INPUT
    text = (
        json.dumps(_json(residuals, model), indent=2)
        if options.json
        else "\n".join(_report(residuals, model))
    )
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    return 0


def _compared(options: argparse.Namespace, model: CostModel, sources: Sources) -> list[Residual]:
    """Return the measurements of all files, each with its prediction."""
    requests = [file_request(text) for text in options.files]
    op = machine_named(options.machine, options.name, sources, "to predict for")
    machine: Machine = op.value()
    texts = [read(request, sources) for request in requests]
    samples = [sample for text in texts for sample in samples_of(machine, text, sources)]
    try:
        return [Residual(sample, step_cost(sample.collective, model).time) for sample in samples]
    except CostError as error:
        raise DiagnosticError(Diagnostic(str(error))) from error


def _report(residuals: Sequence[Residual], model: CostModel) -> list[str]:
    """Return the table, a row for each time, and the errors of the predictions."""
    rows: list[list[str]] = []
    for residual in residuals:
        collective = residual.sample.collective
        rows.append(
            [
                collective.kind,
                str(collective.ranks),
                bytes_text(collective.size),
                seconds_text(residual.sample.seconds),
                seconds_text(residual.predicted),
                f"{residual.predicted / residual.sample.seconds:.2f}",
                residual.sample.source,
            ]
        )
    head = ["collective", "ranks", "bytes", "measured", "predicted", "ratio", "from"]
    largest = worst_residual(residuals)
    assert largest is not None, "files without times are refused"
    return [
        *table(head, rows, left=1),
        "",
        f"{len(residuals)} times: median error {median_error(residuals):.1%}, the worst "
        f"{largest.error:+.1%} ({largest.sample.source}), costed {_costing(residuals, model)}",
    ]


def _costing(residuals: Sequence[Residual], model: CostModel) -> str:
    return model.how(residuals[0].sample.collective.mesh.machine)


def _json(residuals: Sequence[Residual], model: CostModel) -> dict[str, Any]:
    """Return the comparison for programs: bytes, seconds, relative errors."""
    largest = worst_residual(residuals)
    return {
        "costed": _costing(residuals, model),
        "times": len(residuals),
        "median_error": median_error(residuals),
        "worst_error": largest.error if largest else math.nan,
        "points": [
            point_json(residual) | {"ratio": residual.predicted / residual.sample.seconds}
            for residual in residuals
        ],
    }
