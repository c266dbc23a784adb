"""collrun: runs the functions of a program and checks what they compute.

The numpy engine holds every device's buffer and compares the result with what the function means
on one device. The mpi engine compiles the emitted C, runs it on real ranks, and compares every
rank's buffers with the numpy engine's.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.coll import dist_type
from collir.dialects.machine import mesh_of
from collir.semantics.buffers import NUMPY, assemble, distribute, random_tensor
from collir.semantics.collectives import Array, Buffers
from collir.semantics.executor import exact, execute, memory_needed
from collir.semantics.meaning import meaning
from collir.syntax.diagnostics import Diagnostic, DiagnosticError, Position, Sources
from collir.syntax.mlir import check_programs
from collir.targets.code.mpi import functions_of
from collir.targets.code.plan import plan
from collir.tools import api
from collir.tools.resize import dimensions, largest_dimension, resize
from collir.tools.shell import BAD_INPUT, Arguments, run_tool


def _parser() -> argparse.ArgumentParser:
    parser = Arguments(
        prog="collrun", description="Runs the functions of a program and checks what they compute."
    )
    parser.add_argument("file", type=Path, help="a .coll or .mlir file")
    parser.add_argument("--engine", choices=["numpy", "mpi"], default="numpy")
    parser.add_argument("--function", metavar="NAME", help="run this one only (default: all)")
    parser.add_argument("-p", "--passes", default="", help="passes to run first, as for collopt")
    parser.add_argument(
        "-n", type=int, metavar="RANKS", help="run the functions on meshes of this many devices"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the inputs (default: 0)")
    parser.add_argument(
        "--input",
        metavar="ARG=FILE.npy",
        action="append",
        default=[],
        help="the global tensor of an argument, instead of small random integers",
    )
    parser.add_argument(
        "--output", metavar="DIR", type=Path, help="write the global results there, as .npy"
    )
    parser.add_argument(
        "--set-size",
        metavar="[OLD=]NEW",
        action="append",
        default=[],
        help="replace dimensions of size OLD (default: the largest) by NEW, before the passes",
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks of internal errors")
    parser.add_argument("--version", action="version", version=f"collrun {collir.__version__}")
    return parser


@dataclass
class Case:
    """A function with its inputs, and what the numpy engine made of them."""

    function: FuncOp
    tensors: list[Array]
    arguments: list[Buffers]
    tolerance: float
    results: list[Buffers]
    seconds: float

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.sym_name.data


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    sources = Sources()

    def work() -> int:
        return _run(_parser().parse_args(given), sources)

    return run_tool("collrun", sources, "--debug" in given, work)


def script() -> None:
    """The console script."""
    sys.exit(main())


def _run(options: argparse.Namespace, sources: Sources) -> int:
    api.pass_pipeline(options.passes)  # what is wrong with the command is said first
    module = api.parse(options.file, sources=sources)
    _set_sizes(module, options.set_size)
    api.run_passes(module, options.passes)
    functions = _chosen(module, options)
    _check_memory(functions, options)
    cases = [_numpy_case(module, function, options) for function in functions]
    verdicts = [_check_meaning(case, options) for case in cases]
    if options.engine == "mpi":
        verdicts += [_check_mpi(module, group) for group in _by_ranks(cases)]
    return 0 if all(verdicts) else BAD_INPUT


def _set_sizes(module: ModuleOp, given: Sequence[str]) -> None:
    sizes: dict[int, int] = {}
    for text in given:
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
    if options.function:
        name = options.function.removeprefix("@")
        names = [f.sym_name.data for f in functions]
        if name not in names:
            raise api.UsageError(f"there is no function @{name} (there are {', '.join(names)})")
        functions = [f for f in functions if f.sym_name.data == name]
    if not functions:
        raise DiagnosticError(Diagnostic(f"{options.file} has no functions to run"))
    check_programs(functions, "cannot be run")
    if options.n is not None:
        sizes = sorted({mesh_of(f).devices for f in functions})
        functions = [f for f in functions if mesh_of(f).devices == options.n]
        if not functions:
            found = ", ".join(map(str, sizes))
            raise DiagnosticError(
                Diagnostic(
                    f"-n {options.n}: the functions are on meshes of {found} devices; a run needs "
                    f"a rank for each, so change the machine and its mesh to {options.n}"
                )
            )
    return functions


def _available_memory() -> int:
    """Bytes that can be used without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**28 else f"{size / 2**20:.1f} MiB"


def _check_memory(functions: Sequence[FuncOp], options: argparse.Namespace) -> None:
    available = _available_memory()
    for function in functions:
        needed = memory_needed(function) * (2 if options.engine == "mpi" else 1)
        if needed > available:
            where = Position.of(function)
            devices = mesh_of(function).devices
            raise DiagnosticError(
                Diagnostic(
                    f"@{function.sym_name.data} needs {_gib(needed)} for the buffers of its "
                    f"{devices} devices, and {_gib(available)} are available: try --set-size",
                    where,
                )
            )


def _inputs(function: FuncOp, options: argparse.Namespace) -> dict[str, Path]:
    """The .npy files given for arguments."""
    known = {arg.name_hint or str(i) for i, arg in enumerate(function.args)}
    given: dict[str, Path] = {}
    for text in options.input:
        name, equals, path = text.partition("=")
        if not equals or name.removeprefix("%") not in known:
            raise api.UsageError(
                f"--input {text}: write ARG=FILE.npy, with an argument of "
                f"@{function.sym_name.data} ({', '.join(sorted(known))})"
            )
        given[name.removeprefix("%")] = Path(path)
    return given


def _load(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> Array:
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
    return tensor.astype(dtype)


def _numpy_case(module: ModuleOp, function: FuncOp, options: argparse.Namespace) -> Case:
    rng = np.random.default_rng(options.seed)
    mesh = mesh_of(function)
    files = _inputs(function, options)
    tensors: list[Array] = []
    for index, arg in enumerate(function.args):
        x = dist_type(arg)
        path = files.get(arg.name_hint or str(index))
        tensors.append(_load(path, x.shape, NUMPY[x.dtype]) if path else random_tensor(x, rng))
    arguments = [
        distribute(mesh, tensor, dist_type(arg), rng)
        for tensor, arg in zip(tensors, function.args, strict=True)
    ]
    start = time.perf_counter()
    results = execute(module, function, arguments)
    seconds = time.perf_counter() - start
    tolerance = 0.0 if exact(function) and not files else float(4 * mesh.devices)
    return Case(function, tensors, arguments, tolerance, results, seconds)


def _same(found: Array, expected: Array, epsilons: float, epsilon: float) -> bool:
    """Whether two arrays are equal, up to some epsilons of their dtype and magnitude."""
    if found.shape != expected.shape:
        return False
    if not epsilons or not epsilon:
        return bool(np.array_equal(found, expected))
    scale = np.maximum(1.0, np.abs(expected.astype(np.float64)).max(initial=0.0))
    off = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    return bool((off <= epsilons * epsilon * scale).all())


def _check_meaning(case: Case, options: argparse.Namespace) -> bool:
    """Compares the numpy engine's result with the function on one device."""
    mesh = mesh_of(case.function)
    alone_module, alone = meaning(case.function)
    expected = execute(alone_module, alone, [[tensor] for tensor in case.tensors])
    right = True
    for index, value in enumerate(plan(case.function).returned):
        x = dist_type(value)
        found = assemble(mesh, case.results[index], x)
        true = expected[index][0]
        assert true is not None
        right &= _same(found, true, case.tolerance, x.dtype.epsilon)
        if options.output:
            options.output.mkdir(parents=True, exist_ok=True)
            np.save(options.output / f"{case.name}.{index}.npy", found)
    verdict = "ok" if right else "WRONG: not what the function means on one device"
    print(f"{case.name}: {verdict} on {mesh.devices} devices (numpy, {case.seconds * 1e3:.1f} ms)")
    return right


def _by_ranks(cases: Sequence[Case]) -> list[list[Case]]:
    groups: dict[int, list[Case]] = {}
    for case in cases:
        groups.setdefault(mesh_of(case.function).devices, []).append(case)
    return list(groups.values())


def _check_mpi(module: ModuleOp, cases: Sequence[Case]) -> bool:
    """Runs functions on real ranks and compares every rank's buffers with the numpy engine's."""
    from collir.tools.mpi_run import run

    with tempfile.TemporaryDirectory(prefix="collrun-") as folder:
        done = run(
            module,
            [case.function for case in cases],
            [case.arguments for case in cases],
            Path(folder),
        )
    right = True
    for case, (results, seconds) in zip(cases, done, strict=True):
        wrong = differing_ranks(case, results)
        right &= not wrong
        ranks = mesh_of(case.function).devices
        verdict = f"WRONG on ranks {wrong}" if wrong else "ok, every rank's buffers are equal"
        print(f"{case.name}: {verdict} on {ranks} ranks (MPI, {seconds * 1e3:.1f} ms)")
    return right


def differing_ranks(case: Case, results: Sequence[Buffers]) -> list[int]:
    """The ranks whose results are not those of the numpy engine."""
    wrong: set[int] = set()
    for value, found, expected in zip(
        plan(case.function).returned, results, case.results, strict=True
    ):
        epsilon = dist_type(value).dtype.epsilon
        for rank, (mine, right) in enumerate(zip(found, expected, strict=True)):
            if (mine is None) != (right is None) or (
                mine is not None
                and right is not None
                and not _same(mine, right, case.tolerance, epsilon)
            ):
                wrong.add(rank)
    return sorted(wrong)
