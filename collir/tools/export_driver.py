"""The files of ``collir export chakra``."""

import argparse
import json
import re
import shlex
import sys
from pathlib import Path

import collir
from collir.cost.model import CostModel
from collir.ir.auto import is_auto
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of
from collir.syntax.chakra.messages import written_trace
from collir.targets.traces.chakra import ExecutionTraces, traces_of
from collir.targets.traces.network import network_of
from collir.tools.functions import keep_functions, reported
from collir.tools.hlo_options import text_of
from collir.tools.shell import UsageError, write_whole

PROGRAM = "AstraSim_Analytical_Congestion_Aware"


def run(options: argparse.Namespace) -> int:
    """Write the files; return the exit status."""
    try:
        model = CostModel(options.model, options.algorithm, options.order)
    except ValueError as error:
        raise UsageError(str(error)) from error
    file, text = text_of(options.file)
    module = collir.parse(text, file)
    names = [options.function] if options.function else []
    keep_functions(module, names)
    if passes := options.passes or "propagate" * any(map(is_auto, functions_of(module))):
        collir.run_passes(module, passes)
    kept = reported(module, names)
    traces = [x for x in traces_of(module, model) if x.name in kept]
    if not traces:
        raise DiagnosticError(Diagnostic(f"{file} has no functions"))
    folder = Path(options.output)
    for function in traces:
        _check_folder(folder, function)
    for function in traces:
        _write(folder, function)
    return 0


def _check_folder(folder: Path, traces: ExecutionTraces) -> None:
    """Make a folder, and check that it has no traces of other ranks of the function.

    Raises:
        DiagnosticError: it cannot be made, or has such.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [path.name for path in folder.iterdir()]
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot write {folder}: {reason}")) from error
    form = re.compile(rf"{re.escape(traces.name)}\.(\d+)\.et")
    older = [match[1] for name in files if (match := form.fullmatch(name))]
    if any(int(rank) >= traces.ranks for rank in older):
        message = (
            f"{folder} has traces of @{traces.name} on more than {traces.ranks} ranks: name "
            "another folder, or remove them"
        )
        raise DiagnosticError(Diagnostic(message))


def _write(folder: Path, traces: ExecutionTraces) -> None:
    """Write the traces of a function, and say how ASTRA-sim runs them."""
    base, count = folder / traces.name, 0
    for rank in range(traces.ranks):
        nodes = [*traces.nodes(rank)]
        count += len(nodes)
        write_whole(f"{base}.{rank}.et", b"".join(written_trace(nodes)))
    groups = traces.group_table()
    write_whole(f"{base}.json", f"{json.dumps(groups)}\n")
    network, reason = network_of(traces.programs.mesh.machine)
    if network:
        write_whole(f"{base}.yml", network)
    else:
        print(f"remark: there is no network file: {reason}", file=sys.stderr)
    if "empty" in str(base):
        print(f"remark: ASTRA-sim takes groups from no path with 'empty' in it, such as {base}",
              file=sys.stderr)  # fmt: skip
    last = traces.ranks - 1
    print(f"{base}.0.et to {base}.{last}.et: {count} nodes of {traces.ranks} ranks; {base}.json: "
          f"{len(groups)} groups{f'; {base}.yml: the network' if network else ''}")  # fmt: skip
    words = [
        PROGRAM,
        f"--workload-configuration={base}",
        f"--comm-group-configuration={base}.json",
        f"--network-configuration={base if network else 'NETWORK'}.yml",
        "--system-configuration=SYSTEM.json",
        "--remote-memory-configuration=MEMORY.json",
    ]
    print(shlex.join(words))
