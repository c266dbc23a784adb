"""The engines of collrun that run emitted code, and the comparison of their results with numpy."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.dialects.machine import mesh_of
from collir.ir.diagnostics import DiagnosticError
from collir.targets.reports.text import seconds_text
from collir.tools import jax_run, local_run, mpi4py_run, mpi_run, torch_run
from collir.tools.comparison import Case, cases_in_double, part_of, report, wrong_buffers
from collir.tools.processes import Call, Outcome, check_installed
from collir.transforms.as_run import function_as_run
from collir.transforms.for_code import has_models
from collir.transforms.inlining import function_without_calls


def _rounds(case: Case) -> bool:
    """Return whether a function rounds."""
    return case.rounds


def _is_model_that_rounds(case: Case) -> bool:
    """Return whether a function is a model that rounds."""
    return case.rounds and has_models(function_without_calls(case.function))


@dataclass(frozen=True)
class CodeEngine:
    """An engine that runs emitted code.

    Attributes:
        name: its name in reports.
        run: a function that runs calls of a module a number of times, with files in a folder.
        is_timed: whether the number of times may be more than one.
        in_double: a function that returns whether a case is compared in f64.
        unit: the word for what holds a buffer.
        package: the package of Python that it needs, if collir does not bring it.
    """

    name: str
    run: Callable[[ModuleOp, Sequence[Call], Path, int], list[Outcome]]
    is_timed: bool
    in_double: Callable[[Case], bool]
    unit: str = "rank"
    package: str = ""

    def check_installed(self) -> None:
        """Check that what the engine needs is installed.

        Raises:
            DiagnosticError: it is not.
        """
        if self.package:
            check_installed(self.package)

    def outcomes(self, module: ModuleOp, cases: Sequence[Case], repeats: int) -> list[Outcome]:
        """Return what the functions of some cases give, with the best time of a number of runs."""
        calls = [(case.function, case.arguments) for case in cases]
        with tempfile.TemporaryDirectory(prefix="collrun-") as folder:
            return self.run(module, calls, Path(folder), repeats)


ENGINES = {
    "mpi": CodeEngine(
        "MPI",
        lambda module, calls, folder, n: mpi_run.run(module, calls, folder, repeats=n),
        True,
        _is_model_that_rounds,
    ),
    "mpi4py": CodeEngine(
        "MPI, numpy",
        lambda module, calls, folder, n: mpi4py_run.run(module, calls, folder, n),
        True,
        _is_model_that_rounds,
    ),
    "jax": CodeEngine(
        "jax",
        lambda module, calls, folder, _: jax_run.run(module, calls, folder),
        False,
        _rounds,
        unit="device",
        package="jax",
    ),
    "torch": CodeEngine(
        "torch, gloo",
        lambda module, calls, folder, _: torch_run.run(module, calls, folder),
        False,
        _rounds,
        package="torch",
    ),
    "local": CodeEngine(
        "programs of ranks",
        lambda module, calls, folder, _: local_run.run(module, calls),
        False,
        lambda case: False,
    ),
}
"""The engines by the words for them on the command line."""


def check_on(
    engine: CodeEngine, module: ModuleOp, cases: Sequence[Case], repeats: int | None
) -> bool:
    """Run functions on an engine, and return whether every device's buffers are those of numpy.

    Args:
        repeats: the number of runs, of which the best time is printed beside the predicted one;
            None: one run, and no such line.
    """
    correct = True
    for code, group in _parts(engine, module, cases):
        double = engine.in_double(group[0])
        checked = cases_in_double(code, group) if double else (code, group)
        outcomes = engine.outcomes(*checked, 1 if double else repeats or 1)
        for case, outcome in zip(checked[1], outcomes, strict=True):
            correct &= _is_same(checked[0], case, outcome, engine)
        if not repeats:
            continue
        timed = engine.outcomes(code, group, repeats) if double else outcomes
        for case, (_, seconds) in zip(group, timed, strict=True):
            print(f"{case.name}: {_prediction(case.function, seconds, repeats)}")
    return correct


def _parts(
    engine: CodeEngine, module: ModuleOp, cases: Sequence[Case]
) -> Iterator[tuple[ModuleOp, list[Case]]]:
    """Yield the cases of one launch, with the module that has their functions: they are on meshes
    of one size, and are compared alike."""
    for devices in dict.fromkeys(mesh_of(case.function).devices for case in cases):
        own = [case for case in cases if mesh_of(case.function).devices == devices]
        for double in (False, True):
            if group := [case for case in own if engine.in_double(case) is double]:
                yield part_of(module, group)


def _is_same(module: ModuleOp, case: Case, outcome: Outcome, engine: CodeEngine) -> bool:
    """Print whether every device's buffers are those of the numpy engine, and return it."""
    results, seconds = outcome
    wrong = wrong_buffers(module, case, results)
    verdict = case.verdict(f"every {engine.unit}'s buffers are equal")
    if wrong:
        ranks = sorted({rank for difference in wrong for rank in difference.ranks})
        verdict = f"WRONG on {engine.unit}s {ranks}"
    devices = mesh_of(case.function).devices
    units = f"{devices} {engine.unit}{'s' * (devices != 1)}"
    print(f"{case.name}: {verdict} on {units} ({engine.name}, {seconds * 1e3:.1f} ms)")
    return report(wrong)


def _prediction(function: FuncOp, seconds: float, repeats: int) -> str:
    """Return a measured time beside the prediction for the machine in the file."""
    model = CostModel("alpha-beta", "runtime", "written")
    measured = f"best of {repeats}: {seconds_text(seconds)} measured"
    try:
        predicted = simulate_function(function_as_run(function), model).time
    except DiagnosticError as error:
        return f"{measured}; no prediction: {error.diagnostics[0].message}"
    name = mesh_of(function).machine.name
    return f"{measured}, {seconds_text(predicted)} predicted for @{name} with MPICH's algorithms"
