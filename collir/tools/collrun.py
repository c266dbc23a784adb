"""collrun: run the functions of a program and check their results.

The numpy engine holds every device's buffer and compares the result with a run of the function
on one device. The mpi engine compiles the emitted C, runs it on real ranks, and compares every
rank's buffers with the numpy engine's; the mpi4py engine does so with the emitted Python, and the
torch engine with the emitted torch, on processes with gloo. The jax engine runs the emitted jax on
CPU devices, and compares likewise. Models that round run in f64; with jax and torch, so does every
function that rounds.
"""

import argparse
import os
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.cost.programs.cost import function_cost
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, Sources
from collir.ir.functions import check_programs, functions_of
from collir.ir.inlining import function_without_calls
from collir.ir.instantiation import instantiate
from collir.ir.models import has_models
from collir.ir.roles import argument_roles
from collir.ir.rotation import function_as_run
from collir.ir.selection import erase_other_functions
from collir.ir.sizes import dimensions, largest_dimension, resize
from collir.machine.model import devices_text
from collir.semantics.reference.buffers import NUMPY, assemble, distribute, random_tensor
from collir.semantics.reference.collectives import Array, Buffers
from collir.semantics.reference.double import in_double, module_in_double
from collir.semantics.reference.exactness import exact, roundings
from collir.semantics.reference.executor import execute, memory_needed
from collir.semantics.reference.meaning import meaning
from collir.synthesis.propagation.propagate import make_explicit
from collir.targets.reports.text import seconds_text
from collir.tools import api, completion
from collir.tools.agreement import DOUBLE_ROUNDINGS, Difference, differences, perturbed
from collir.tools.finite_results import check_finite
from collir.tools.functions import keep_functions
from collir.tools.shell import BAD_INPUT, Arguments, run_tool


def _seed(text: str) -> int:
    """Return the seed for numpy's generators, an integer that is not negative."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer of at least 0")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = Arguments(
        prog="collrun", description="Runs the functions of a program and checks what they compute."
    )
    parser.add_argument("file", type=Path, help="a .coll or .mlir file")
    parser.add_argument(
        "--engine",
        choices=["numpy", "mpi", "mpi4py", "jax", "torch"],
        default="numpy",
        help="what runs the functions: numpy (default), C or Python on MPI ranks, jax on CPU "
        "devices, or torch on processes with gloo",
    )
    parser.add_argument(
        "--function",
        metavar="NAME",
        action="append",
        default=[],
        help="run this one only; may be given several times (default: all)",
    )
    parser.add_argument("-p", "--passes", default="", help="passes to run first, as for collopt")
    parser.add_argument(
        "-n", type=int, metavar="RANKS", help="run the functions on meshes of this many devices"
    )
    parser.add_argument("--seed", type=_seed, default=0, help="seed of the inputs (default: 0)")
    parser.add_argument(
        "--input",
        metavar="ARG=FILE.npy",
        action="append",
        default=[],
        help="the global tensor of an argument, instead of small random numbers; or a folder with "
        "ARG.npy for each argument, or an .npz file with arrays of these names",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        help="write the global results there, as FUNCTION.RESULT.npy, where RESULT is the name of "
        "what is returned",
    )
    parser.add_argument(
        "--set-size",
        metavar="[OLD=]NEW",
        action="append",
        default=[],
        help="replace dimensions of size OLD (default: the largest), or the value of a size "
        "parameter of the functions, by NEW, before the passes",
    )
    parser.add_argument(
        "--time",
        action="store_true",
        help="with --engine mpi or mpi4py: print the best time of several runs beside the "
        "predicted one",
    )
    parser.add_argument(
        "--repeats", metavar="N", type=int, default=10, help="runs for --time (default: 10)"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks of internal errors")
    parser.add_argument("--version", action="version", version=f"collrun {collir.__version__}")
    if completion.asked():
        from collir.tools.universe import known_passes

        completion.complete(parser, passes=completion.pass_list(known_passes()))
    return parser


@dataclass
class Case:
    """A function with its inputs, and the results of the numpy engine.

    Attributes:
        not_finite: what there is in its results other than finite numbers: ``NaN`` or ``inf``.
    """

    function: FuncOp
    tensors: list[Array]
    arguments: list[Buffers]
    tolerance: int
    results: list[Buffers]
    seconds: float
    not_finite: str = ""

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.sym_name.data

    def verdict(self, equal: str = "") -> str:
        """Return the words for results that are right; ``equal`` says what was compared."""
        rounding = " up to rounding" if self.tolerance else ""
        if self.not_finite:
            return f"{equal or 'equal'}{rounding}, but with {self.not_finite}"
        return f"ok, {equal}{rounding}" if equal else f"ok{rounding}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sources = Sources()

    def work() -> int:
        return _run(_parser().parse_args(words), sources)

    return run_tool("collrun", sources, "--debug" in words, work)


def script() -> None:
    """Run the console script."""
    sys.exit(main())


def _run(options: argparse.Namespace, sources: Sources) -> int:
    api.pass_pipeline(options.passes)  # errors of the command come before those of the file
    if options.time and (options.engine not in _ON_RANKS or options.repeats < 1):
        raise api.UsageError(
            "--time is for --engine mpi or mpi4py, and needs --repeats of at least 1"
        )
    if options.engine in _CHECKS:
        _CHECKS[options.engine]()
    module = api.parse(options.file, sources=sources)
    keep_functions(module, options.function)
    asked = {name.removeprefix("@") for name in options.function}
    needed = {f.sym_name.data for f in functions_of(module)} - asked if asked else set[str]()
    _set_sizes(module, options.set_size)
    api.run_passes(module, options.passes)
    make_explicit(module)
    functions = [f for f in _chosen(module, options) if f.sym_name.data not in needed]
    _check_memory(functions, options)
    files = _inputs(functions, options)
    cases = [_numpy_case(module, function, options.seed, files) for function in functions]
    for case in cases:
        names = _argument_names(case.function)
        case.not_finite = check_finite(
            module, case.function, (names, case.arguments), case.results, bool(files)
        )
    verdicts = [_check_meaning(case, options) for case in cases]
    if options.engine in _ON_RANKS:
        repeats = options.repeats if options.time else None
        run, name = _ON_RANKS[options.engine]
        verdicts += [_check_ranks(module, group, repeats, run, name) for group in _by_ranks(cases)]
    if options.engine == "jax":
        verdicts += [_check_jax(*part) for part in _as_compared(module, cases)]
    if options.engine == "torch":
        verdicts += [_check_torch(module, group) for group in _by_ranks(cases)]
    return 0 if all(verdicts) else BAD_INPUT


def _parameter(text: str) -> tuple[str, int]:
    """Return the name and the value of a size parameter that ``--set-size`` gives."""
    name, _, number = text.partition("=")
    if not number.isdecimal():
        raise api.UsageError(f"--set-size {text}: write {name}=NEW")
    return name, int(number)


def _set_sizes(module: ModuleOp, texts: Sequence[str]) -> None:
    parameters = [text for text in texts if text.partition("=")[0].isidentifier()]
    if parameters:
        instantiate(module, dict(map(_parameter, parameters)))
    sizes: dict[int, int] = {}
    for text in texts:
        if text in parameters:
            continue
        old, _, new = text.rpartition("=")
        known = dimensions(module)
        try:
            size = int(old) if old else largest_dimension(module)
            sizes[size] = int(new)
        except ValueError:
            raise api.UsageError(f"--set-size {text}: write NEW or OLD=NEW") from None
        if known and size not in known:
            listed = ", ".join(map(str, sorted(known)))
            raise api.UsageError(f"--set-size {text}: there is no size {size} (there are {listed})")
    if sizes:
        resize(module, sizes)


def _chosen(module: ModuleOp, options: argparse.Namespace) -> list[FuncOp]:
    functions = functions_of(module)
    if not functions:
        raise DiagnosticError(Diagnostic(f"{options.file} has no functions to run"))
    in_jax = options.engine == "jax"
    cannot = "has no form in jax" if in_jax else "cannot be run"
    placeholders = options.engine == "numpy"
    check_programs(functions, cannot, redistributions=placeholders, even=in_jax, nested=True)
    if options.n is not None:
        sizes = sorted({mesh_of(f).devices for f in functions})
        functions = [f for f in functions if mesh_of(f).devices == options.n]
        if not functions:
            available = ", ".join(map(str, sizes))
            raise DiagnosticError(
                Diagnostic(
                    f"-n {options.n}: the functions are on meshes of {available} devices; a run "
                    f"needs a rank for each, so change the machine and its mesh to {options.n}"
                )
            )
    return functions


def _available_memory() -> int:
    """Return the available memory of this computer and this container, in bytes."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = (_lines(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit and used and limit[0].isdecimal():
        free = min(free, int(limit[0]) - int(used[0]))
    return free


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii").splitlines()
    except OSError:
        return []


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**28 else f"{size / 2**20:.1f} MiB"


def _check_memory(functions: Sequence[FuncOp], options: argparse.Namespace) -> None:
    available = _available_memory()
    needed = 0
    for function in functions:
        needed += memory_needed(function) * (1 if options.engine == "numpy" else 2)
        if needed > available:
            position = Position.of(function)
            devices = mesh_of(function).devices
            raise DiagnosticError(
                Diagnostic(
                    f"@{function.sym_name.data} needs {_gib(needed)} for the buffers of its "
                    f"{devices} devices, and {_gib(available)} are available: try --set-size",
                    position,
                )
            )


def _inputs(
    functions: Sequence[FuncOp], options: argparse.Namespace
) -> dict[str, Path | zipfile.Path]:
    """Return the .npy files of --input by argument; some function must have each argument, and an
    argument in each folder."""
    known = {name for function in functions for name in _argument_names(function)}
    files: dict[str, Path | zipfile.Path] = {}
    for text in options.input:
        name, equals, path = text.partition("=")
        if not equals and (found := _files_in(Path(text), known)):
            files |= found
        elif not equals or name.removeprefix("%") not in known:
            raise api.UsageError(
                f"--input {text}: write ARG=FILE.npy, or a folder or an .npz file, with one of the "
                f"arguments {', '.join(sorted(known))}"
            )
        else:
            files[name.removeprefix("%")] = Path(path)
    missing = sorted(known - files.keys())
    if missing and any("=" not in text for text in options.input):
        sys.stderr.write(f"collrun: remark: inputs are generated for {', '.join(missing)}\n")
    return files


def _files_in(path: Path, names: Collection[str]) -> dict[str, Path] | dict[str, zipfile.Path]:
    """Return the files of arguments in a folder or an .npz file; none if it is neither."""
    if path.is_dir():
        inside = {name: path / f"{name}.npy" for name in names}
        return {name: file for name, file in inside.items() if file.is_file()}
    if not zipfile.is_zipfile(path):
        return {}
    packed = {name: zipfile.Path(path, f"{name}.npy") for name in names}
    return {name: file for name, file in packed.items() if file.is_file()}


def _argument_names(function: FuncOp) -> list[str]:
    """Return the names of the arguments, or their numbers if they have no name."""
    return [arg.name_hint or str(index) for index, arg in enumerate(function.args)]


def _load(path: Path | zipfile.Path, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    try:
        with path.open("rb") as file:
            tensor = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot read {path}: {reason}")) from error
    except (ValueError, EOFError, SyntaxError, TypeError) as error:
        raise DiagnosticError(Diagnostic(f"{path} is not a .npy file of numbers")) from error
    if tensor.shape != shape:
        raise DiagnosticError(
            Diagnostic(f"{path} has shape {list(tensor.shape)}, but {list(shape)} is needed")
        )
    if tensor.dtype.kind not in "bif" and tensor.dtype not in NUMPY.values():
        raise DiagnosticError(Diagnostic(f"{path} holds {tensor.dtype}, not real numbers"))
    with np.errstate(all="ignore"):
        cast = tensor.astype(dtype)
    if dtype.kind == "i" and not np.array_equal(cast, tensor):
        raise DiagnosticError(Diagnostic(f"{path} holds numbers that are not of type {dtype}"))
    return cast


def _numpy_case(
    module: ModuleOp, function: FuncOp, seed: int, files: Mapping[str, Path | zipfile.Path]
) -> Case:
    rng = np.random.default_rng(seed)
    tensors: list[Array] = []
    names, roles = _argument_names(function), argument_roles(function)
    for name, arg, role in zip(names, function.args, roles, strict=True):
        x, path = dist_type(arg), files.get(name)
        tensors.append(
            _load(path, x.shape, NUMPY[x.dtype]) if path else random_tensor(x, rng, role)
        )
    arguments = _distributed(function, tensors, rng)
    start = time.perf_counter()
    results = execute(module, function, arguments)
    seconds = time.perf_counter() - start
    tolerance = 0 if exact(function) and not files else roundings(function)
    return Case(function, tensors, arguments, tolerance, results, seconds)


def _in_double(case: Case, module: ModuleOp, function: FuncOp) -> Case:
    """Return a case for its function in f64."""
    tensors = [
        tensor.astype(NUMPY[dist_type(arg).dtype])
        for tensor, arg in zip(case.tensors, function.args, strict=True)
    ]
    arguments = _distributed(function, tensors, np.random.default_rng(0))
    return replace(
        case,
        function=function,
        tensors=tensors,
        arguments=arguments,
        tolerance=DOUBLE_ROUNDINGS,
        results=execute(module, function, arguments),
    )


def _distributed(
    function: FuncOp, tensors: Sequence[Array], rng: np.random.Generator
) -> list[Buffers]:
    """Return the buffers of all devices for the arguments of a function."""
    return [
        distribute(mesh_of(function), tensor, dist_type(arg), rng)
        for tensor, arg in zip(tensors, function.args, strict=True)
    ]


def _check_meaning(case: Case, options: argparse.Namespace) -> bool:
    """Compare the numpy engine's result with the function on one device."""
    mesh = mesh_of(case.function)
    if options.output:
        for index, value in enumerate(plan_buffers(case.function).returned):
            tensor = assemble(mesh, case.results[index], dist_type(value))
            _save(options.output, f"{case.name}.{value.name_hint or index}.npy", tensor)
    wrong = _wrong_meaning(_case_in_double(case) if case.tolerance else case)
    verdict = "WRONG: not what the function means on one device" if wrong else case.verdict()
    took = f"{case.seconds * 1e3:.1f} ms"
    print(f"{case.name}: {verdict} on {devices_text(mesh.devices)} (numpy, {took})")
    return _none(wrong)


def _wrong_meaning(case: Case) -> list[Difference]:
    """Return the results of the numpy engine that are not those of the function on one device."""
    mesh, one_device = mesh_of(case.function), meaning(case.function)
    actual: list[Buffers] = [
        [assemble(mesh, buffers, dist_type(value))]
        for buffers, value in zip(case.results, plan_buffers(case.function).returned, strict=True)
    ]
    expected = execute(*one_device, [[tensor] for tensor in case.tensors])

    def nearby() -> list[Buffers]:
        return execute(*one_device, [[perturbed(tensor)] for tensor in case.tensors])

    return differences(case.function, actual, expected, case.tolerance, nearby)


def _none(wrong: Sequence[Difference]) -> bool:
    """Print what differs, and return whether nothing does."""
    for difference in wrong:
        print(f"  {difference.result} {difference.text}")
    return not wrong


def _case_in_double(case: Case) -> Case:
    """Return a case in f64, in a module of its own.

    Raises:
        DiagnosticError: its buffers do not fit the memory of this computer.
    """
    module, function = in_double(case.function)
    if memory_needed(function) > _available_memory():
        raise DiagnosticError(
            Diagnostic(
                f"@{case.name} rounds, and needs {_gib(memory_needed(function))} for a comparison "
                f"in f64, and {_gib(_available_memory())} are available: try --set-size",
                Position.of(case.function),
            )
        )
    return _in_double(case, module, function)


def _save(folder: Path, name: str, tensor: Array) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / name, tensor)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot write to {folder}: {reason}")) from error


def _rounds(case: Case) -> bool:
    """Return whether a function is a model that rounds."""
    return bool(case.tolerance) and has_models(function_without_calls(case.function))


def _part(module: ModuleOp, cases: Sequence[Case]) -> tuple[ModuleOp, list[Case]]:
    """Return a copy of a module with the functions of some cases and those they need, and the cases
    in it."""
    copy = module.clone()
    erase_other_functions(copy, [case.name for case in cases])
    functions = {function.sym_name.data: function for function in functions_of(copy)}
    return copy, [replace(case, function=functions[case.name]) for case in cases]


def _by_ranks(cases: Sequence[Case]) -> list[list[Case]]:
    groups: dict[int, list[Case]] = {}
    for case in cases:
        groups.setdefault(mesh_of(case.function).devices, []).append(case)
    return list(groups.values())


Run = list[tuple[list[Buffers], float]]
"""The results of functions on real ranks, and the seconds of the slowest rank."""


def _run_c(module: ModuleOp, cases: Sequence[Case], repeats: int) -> Run:
    """Run functions as C."""
    from collir.tools.mpi_run import run

    functions, arguments = [x.function for x in cases], [x.arguments for x in cases]
    with tempfile.TemporaryDirectory(prefix="collrun-") as folder:
        return run(module, functions, arguments, Path(folder), repeats=repeats)


def _run_python(module: ModuleOp, cases: Sequence[Case], repeats: int) -> Run:
    """Run functions as Python for mpi4py."""
    from collir.tools.mpi4py_run import run

    return run(module, [(case.function, case.arguments) for case in cases], repeats)


RunCases = Callable[[ModuleOp, Sequence[Case], int], Run]
"""A function that runs the functions of some cases, on meshes of one size, a number of times."""

_ON_RANKS: dict[str, tuple[RunCases, str]] = {
    "mpi": (_run_c, "MPI"),
    "mpi4py": (_run_python, "MPI, numpy"),
}
"""The engines that run functions on real ranks, and their names in reports."""


def _check_ranks(
    module: ModuleOp, cases: Sequence[Case], repeats: int | None, run: RunCases, name: str
) -> bool:
    """Run functions on real ranks and compare every rank's buffers with the numpy engine's.

    Models that round are compared in f64, and timed as they are. With ``repeats``, the best time of
    that number of runs is printed beside the predicted time.
    """
    rounding = [case for case in cases if _rounds(case)]
    plain = [case for case in cases if not _rounds(case)]
    groups = [_part(module, group) for group in (plain, rounding) if group]
    correct = True
    for code, group in groups:
        double = _rounds(group[0])
        checked = _cases_in_double(code, group) if double else (code, group)
        runs = run(*checked, 1 if double else repeats or 1)
        for case, (results, seconds) in zip(checked[1], runs, strict=True):
            took = f"{name}, {seconds * 1e3:.1f} ms"
            correct &= _compared(checked[0], case, results, took)
        if not repeats:
            continue
        timed = run(code, group, repeats) if double else runs
        for case, (_, seconds) in zip(group, timed, strict=True):
            print(f"{case.name}: {_prediction(case.function, seconds, repeats)}")
    return correct


def _check_torch(module: ModuleOp, cases: Sequence[Case]) -> bool:
    """Run functions as torch on processes, and compare every rank's buffers with the numpy
    engine's."""
    from collir.tools.torch_run import run

    correct = True
    for code, group in _as_compared(module, cases):
        runs = run(code, [(case.function, case.arguments) for case in group])
        for case, (results, seconds) in zip(group, runs, strict=True):
            took = f"torch, gloo, {seconds * 1e3:.1f} ms"
            correct &= _compared(code, case, results, took)
    return correct


def _as_compared(module: ModuleOp, cases: Sequence[Case]) -> list[tuple[ModuleOp, Sequence[Case]]]:
    """Return modules and their cases as engines other than numpy compare them: those that round in
    f64."""
    exact = [case for case in cases if not case.tolerance]
    rounding = [case for case in cases if case.tolerance]
    parts: list[tuple[ModuleOp, Sequence[Case]]] = [(module, exact)] if exact else []
    return [*parts, *([_cases_in_double(module, rounding)] if rounding else [])]


def _check_jax_installed() -> None:
    from collir.tools.jax_run import check_installed

    check_installed()


def _check_torch_installed() -> None:
    from collir.tools.torch_run import check_installed

    check_installed()


_CHECKS = {"jax": _check_jax_installed, "torch": _check_torch_installed}
"""Checks that what an engine needs is installed, before anything runs."""


def _compared(
    module: ModuleOp,
    case: Case,
    results: Sequence[Buffers],
    engine: str,
    words: tuple[str, str] = ("rank", "ranks"),
) -> bool:
    """Print whether every rank's buffers are those of the numpy engine, and return it.

    Args:
        engine: the engine and the time that it took.
        words: the words for a rank and for ranks.
    """

    def nearby() -> list[Buffers]:
        tensors = list(map(perturbed, case.tensors))
        arguments = _distributed(case.function, tensors, np.random.default_rng(0))
        return execute(module, case.function, arguments)

    wrong = differences(case.function, results, case.results, case.tolerance, nearby)
    ranks = sorted({rank for difference in wrong for rank in difference.ranks})
    one, several = words
    equal_text = case.verdict(f"every {one}'s buffers are equal")
    verdict = f"WRONG on {several} {ranks}" if wrong else equal_text
    count = mesh_of(case.function).devices
    print(f"{case.name}: {verdict} on {count} {several if count > 1 else one} ({engine})")
    return _none(wrong)


def _cases_in_double(module: ModuleOp, cases: Sequence[Case]) -> tuple[ModuleOp, list[Case]]:
    """Return a module in f64, and its functions with the same inputs."""
    double = module_in_double(module)
    functions = {function.sym_name.data: function for function in functions_of(double)}
    return double, [_in_double(case, double, functions[case.name]) for case in cases]


def _check_jax(module: ModuleOp, cases: Sequence[Case]) -> bool:
    """Run functions as jax and compare every device's buffers with the numpy engine's."""
    from collir.tools.jax_run import run

    with tempfile.TemporaryDirectory(prefix="collrun-") as folder:
        functions = [case.function for case in cases]
        runs = run(module, functions, [case.arguments for case in cases], Path(folder))
    correct = True
    for case, (results, seconds) in zip(cases, runs, strict=True):
        took = f"jax, {seconds * 1e3:.1f} ms"
        correct &= _compared(module, case, results, took, ("device", "devices"))
    return correct


def _prediction(function: FuncOp, seconds: float, repeats: int) -> str:
    """Return a measured time beside the prediction for the machine in the file."""
    model = CostModel("alpha-beta", "runtime", "written")
    measured = f"best of {repeats}: {seconds_text(seconds)} measured"
    try:
        predicted = function_cost(function_as_run(function), model).time
    except DiagnosticError as error:
        return f"{measured}; no prediction: {error.diagnostics[0].message}"
    name = mesh_of(function).machine.name
    return f"{measured}, {seconds_text(predicted)} predicted for @{name} with MPICH's algorithms"
