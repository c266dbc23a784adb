"""The work of ``collir export tuner``: write or check a file for NCCL's example tuner plugin."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import collir
from collir.cost.collectives.collective import Collective
from collir.cost.collectives.tuning import KINDS, fastest_ranges, saved
from collir.cost.network.group import CostError, Group
from collir.dialects.machine import MachineOp
from collir.importing.measurements.tables import LevelExtent, mesh_over
from collir.importing.tuner import (
    ALGORITHMS,
    COLLECTIVES,
    FIELDS,
    PROTOCOLS,
    read_tuner,
)
from collir.importing.values import MAX_BYTES, ReadError, TextPlace
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, Sources
from collir.machine import Machine, Runtime, runtime_of
from collir.syntax.machines import shipped
from collir.targets.reports.sizes import bytes_of
from collir.targets.reports.text import bytes_text
from collir.tools.foreign import read_foreign
from collir.tools.measured import machine_named
from collir.tools.shell import UsageError, check_folders, write_or_print
from collir.tools.tuner_check import LEAST_GAIN, TunedCollective, problems

LAST = 2**63 - 1
"""The largest size, if ``--sizes`` does not say it."""

SAMPLES = [8 << place for place in range(31)]
"""The sizes at which the choices are compared with NCCL's: 8 B to 8 GiB, as nccl-tests double
them."""


def run(options: argparse.Namespace) -> int:
    """Write the file and report on stderr, or check one; return the exit status."""
    first, last = _sizes(options.sizes)
    kinds = list(dict.fromkeys(options.collective or KINDS))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        has = ", ".join(KINDS)
        raise UsageError(f"NCCL does not choose an algorithm for {unknown[0]}: it does for {has}")
    check_folders(options.output)
    text: str = options.machine
    if text in shipped() and not Path(text).exists():
        text = f"@{text}"
    op = machine_named(text, options.name, Sources(), "to tune NCCL for")
    machine = op.value()
    if runtime_of(machine) is not Runtime.NCCL:
        message = f"NCCL does not run on @{machine.name}: none of its levels is nvlink or pci"
        raise DiagnosticError(Diagnostic(message, Position.of(op)))
    tuned = [
        TunedCollective(kind, group, first, last)
        for group in _groups(op, options.ranks or [machine.devices])
        for kind in kinds
    ]
    if options.check:
        return _check_file(options.check, tuned)
    text = text_of(machine, tuned)
    assert not list(problems(read_tuner(text), tuned)), "the file does not say what was priced"
    for collective in tuned:
        sys.stderr.write(f"{_gain(collective)}\n")
    write_or_print(options.output, text)
    return 0


# --- what is asked for ---------------------------------------------------------------------------


def _sizes(text: str | None) -> tuple[int, int]:
    if text is None:
        return 0, LAST
    try:
        first, last = map(bytes_of, text.split(".."))
    except ValueError as error:
        raise UsageError(f"--sizes {text}: this is not FROM..TO, such as 1KiB..1GiB") from error
    if first > last:
        raise UsageError(f"--sizes {text}: FROM is larger than TO")
    return first, last


def _groups(op: MachineOp, ranks: Sequence[int]) -> Iterator[Group]:
    """Yield the communicators of the machine's first ranks, each alone on the machine."""
    for count in dict.fromkeys(ranks):
        try:
            yield group_of(op.value(), count)
        except (ReadError, CostError) as error:
            raise DiagnosticError(Diagnostic(str(error), Position.of(op))) from error


def group_of(machine: Machine, ranks: int) -> Group:
    """Return the communicator of a machine's first ranks.

    Raises:
        ReadError: no level ends with these ranks.
        CostError: the group has no cost.
    """
    extents: list[LevelExtent] = []
    left = ranks
    for level in reversed(machine.levels):
        if left < 1 or (left > level.size and left % level.size):
            left = 0
            break
        extents.append(LevelExtent(level.name, min(left, level.size)))
        left = max(1, left // level.size)
    if left != 1:
        sizes = " x ".join(f"{level.name}[{level.size}]" for level in machine.levels)
        message = f"{ranks} ranks do not fill whole children of the levels {sizes}"
        raise ReadError(message, TextPlace(1))
    mesh = mesh_over(machine, extents, TextPlace(1))
    axes = tuple(sub.name for sub in mesh.sub_axes if sub.axis == "group")
    idle = frozenset(sub.name for sub in mesh.sub_axes if sub.axis == "idle")
    return Collective(KINDS[0], mesh, axes, 1.0, at_root=idle).group("hardware")


# --- the file ------------------------------------------------------------------------------------


def text_of(machine: Machine, tuned: Sequence[TunedCollective]) -> str:
    """Return the file with the fastest choice for all sizes of each collective."""
    head = (
        f"# The fastest choices of NCCL on @{machine.name}, by collir {collir.__version__}",
        "# channels: 0 leaves their number to NCCL; the plugin makes one channel of -1",
        f"# {','.join(FIELDS)}",
    )
    return "".join(f"{line}\n" for line in (*head, *_rows(tuned)))


def _rows(tuned: Sequence[TunedCollective]) -> Iterator[str]:
    tables = (COLLECTIVES, ALGORITHMS, PROTOCOLS)
    names = {ours: name for table in tables for name, ours in table.items()}
    for x in tuned:
        place = f"{x.nodes},{x.group.size}"
        for sizes in fastest_ranges(x.kind, x.group, x.first, x.last):
            algorithm, protocol = (names[part] for part in sizes.choice.split("/"))
            size = f"{sizes.first},{sizes.last}"
            yield f"{names[x.kind]},{size},{algorithm},{protocol},0,{place},-1,-1"


def _gain(tuned: TunedCollective) -> str:
    """Return what the choices gain over NCCL's own, in words."""
    sizes = [size for size in SAMPLES if tuned.first <= size <= tuned.last]
    sizes = sizes or list(dict.fromkeys((tuned.first, tuned.last)))
    gains = {size: saved(tuned.kind, tuned.group, size) for size in sizes}
    better = [size for size in sizes if gains[size] > LEAST_GAIN]
    text = f"{tuned}: NCCL's own choice is slower at {len(better)} of {len(sizes)} sizes"
    if not better:
        return text
    most = max(better, key=lambda size: gains[size])
    return f"{text}, by up to {100 * gains[most]:.1f} % of its time ({bytes_text(most)})"


# --- the check -----------------------------------------------------------------------------------


def _check_file(file: str, tuned: Sequence[TunedCollective]) -> int:
    shown, text = read_foreign(file, MAX_BYTES, "leave out other communicators", Sources())
    try:
        wrong = list(problems(read_tuner(text.replace("\r\n", "\n")), tuned))
    except ReadError as error:
        wrong = [(error.message, error.place)]
    if wrong:
        raise DiagnosticError(Diagnostic(x, Position(shown, at.line, at.column)) for x, at in wrong)
    for collective in tuned:
        print(f"{collective}: the fastest choice for every size")
    return 0
