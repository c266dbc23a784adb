"""The work of collrun: run the functions of a program and check their results."""

import argparse
import sys
import time
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Sources
from collir.ir.functions import check_programs, functions_of
from collir.ir.loops import steps_with_times
from collir.ir.names import argument_names, result_names
from collir.ir.roles import argument_roles
from collir.machine.counts import devices_text
from collir.semantics.reference.buffers import NUMPY, assemble, random_tensor
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.exactness import exact_results, roundings
from collir.semantics.reference.executor import execute, memory_needed
from collir.synthesis.propagation.propagate import make_explicit
from collir.tools import api
from collir.tools.comparison import Case, distributed, report, wrong_meaning
from collir.tools.engines import ENGINES, CodeEngine, check_on
from collir.tools.finite_results import check_finite
from collir.tools.functions import keep_functions, reported
from collir.tools.memory import check_available
from collir.tools.missing_rows import locating_missing_rows
from collir.tools.shell import BAD_INPUT, UsageError
from collir.transforms.inlining import functions_without_calls
from collir.transforms.instantiation import instantiate
from collir.transforms.smaller import dimensions, largest_dimension, resize


def run(options: argparse.Namespace, sources: Sources) -> int:
    """Run functions as the options ask, and return the exit status."""
    api.pass_pipeline(options.passes)  # errors of the command come before those of the file
    engine = ENGINES.get(options.engine)
    repeats = _repeats(options, engine)
    if engine is not None:
        engine.check_installed()
    asked = set[str](options.function)
    module = api.parse(options.file, sources=sources, functions=asked)
    with locating_missing_rows(module):
        return _run(options, module, asked, engine, repeats)


def _run(
    options: argparse.Namespace,
    module: ModuleOp,
    asked: set[str],
    engine: CodeEngine | None,
    repeats: int | None,
) -> int:
    """Run functions of a module (only those asked for, if any are), and return the status."""
    keep_functions(module, options.function)
    _set_sizes(module, options.set_size)
    api.run_passes(module, options.passes)
    make_explicit(module)
    functions = _chosen(module, options)
    without_calls = functions_without_calls(functions)
    _check_size(without_calls, options)
    files = _inputs(functions, options)
    cases = [
        _numpy_case(module, function, alone, options.seed, files)
        for function, alone in zip(functions, without_calls, strict=True)
    ]
    for case in cases:
        names = argument_names(case.function)
        case.not_finite = check_finite(
            module, case.function, (names, case.arguments), case.results, bool(files)
        )
    verdicts = [_check_meaning(case, options) for case in cases]
    if engine is not None:
        verdicts.append(check_on(engine, module, cases, repeats))
    return 0 if all(verdicts) else BAD_INPUT


def _repeats(options: argparse.Namespace, engine: CodeEngine | None) -> int | None:
    """Return the number of runs for ``--time``; None without it."""
    if not options.time:
        if options.repeats is not None:
            raise UsageError("--repeats goes with --time")
        return None
    repeats = 10 if options.repeats is None else options.repeats
    if engine is None or not engine.is_timed or repeats < 1:
        raise UsageError("--time is for --engine mpi or mpi4py, and needs --repeats of at least 1")
    return repeats


def _parameter(text: str) -> tuple[str, int]:
    """Return the name and the value of a size parameter that ``--set-size`` gives."""
    name, _, number = text.partition("=")
    if not number.isdecimal():
        raise UsageError(f"--set-size {text}: write {name}=NEW")
    return name, int(number)


def _check_once(option: str, names: Sequence[str]) -> None:
    """Check that an option gives no name two values, since one of them would be dropped."""
    if twice := [name for index, name in enumerate(names) if name in names[:index]]:
        raise UsageError(f"{option} gives {twice[0] or 'the largest size'} two values")


def _set_sizes(module: ModuleOp, texts: Sequence[str]) -> None:
    _check_once("--set-size", [text.rpartition("=")[0] for text in texts])
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
            raise UsageError(f"--set-size {text}: write NEW or OLD=NEW") from None
        if known and size not in known:
            listed = ", ".join(map(str, sorted(known)))
            raise UsageError(f"--set-size {text}: there is no size {size} (there are {listed})")
    if sizes:
        resize(module, sizes)


def _chosen(module: ModuleOp, options: argparse.Namespace) -> list[FuncOp]:
    """Return the functions to run, after the passes."""
    functions = functions_of(module)
    if options.function:
        names = reported(module, options.function)
        functions = [f for f in functions if f.sym_name.data in names]
    else:  # what is made for gradients is run where it is called
        functions = [f for f in functions if f.sym_visibility is None]
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


MOST_STEPS = 10**9
"""The most steps of a function, with all iterations of its loops, that are run: hours."""


def _check_size(functions: Sequence[FuncOp], options: argparse.Namespace) -> None:
    """Check that functions without calls have not too many steps, and fit into memory."""
    needed = 0
    for function in functions:
        steps = steps_with_times(function.body.block.ops)
        if sum(times for _, times in steps) > MOST_STEPS:
            text = f"@{function.sym_name.data} runs more than {MOST_STEPS} steps"
            raise DiagnosticError.at(function, f"{text}: try --set-size, or fewer iterations")
        needed += memory_needed(function) * (1 if options.engine == "numpy" else 2)
        devices = mesh_of(function).devices
        check_available(needed, function, f"the buffers of its {devices} devices")


def _inputs(
    functions: Sequence[FuncOp], options: argparse.Namespace
) -> dict[str, Path | zipfile.Path]:
    """Return the .npy files of --input by argument; some function must have each argument, and an
    argument in each folder."""
    known = {name for function in functions for name in argument_names(function)}
    _check_once("--input", [text.partition("=")[0].removeprefix("%") for text in options.input])
    files: dict[str, Path | zipfile.Path] = {}
    for text in options.input:
        name, equals, path = text.partition("=")
        if not equals and (paths := _files_in(Path(text), known)):
            files |= paths
        elif not equals or name.removeprefix("%") not in known:
            raise UsageError(
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
    module: ModuleOp,
    function: FuncOp,
    without_calls: FuncOp,
    seed: int,
    files: Mapping[str, Path | zipfile.Path],
) -> Case:
    rng = np.random.default_rng(seed)
    tensors: list[Array] = []
    names, roles = argument_names(function), argument_roles(function)
    for name, arg, role in zip(names, function.args, roles, strict=True):
        x, path = dist_type(arg), files.get(name)
        tensors.append(
            _load(path, x.shape, NUMPY[x.dtype]) if path else random_tensor(x, rng, role)
        )
    arguments = distributed(function, tensors, rng)
    start = time.perf_counter()
    results = execute(module, function, arguments)
    seconds = time.perf_counter() - start
    given = [arg for name, arg in zip(names, without_calls.args, strict=True) if name in files]
    allowed = roundings(without_calls)
    tolerance = [0 if exact else allowed for exact in exact_results(without_calls, given)]
    return Case(function, without_calls, tensors, arguments, tolerance, results, seconds)


def _check_meaning(case: Case, options: argparse.Namespace) -> bool:
    """Compare the numpy engine's result with the function on one device."""
    mesh = mesh_of(case.function)
    if options.output:
        values = plan_buffers(case.function).returned
        named = zip(result_names(case.function), values, case.results, strict=True)
        for name, value, buffers in named:
            tensor = assemble(mesh, buffers, dist_type(value))
            _save(options.output, f"{case.name}.{name}.npy", tensor)
    wrong = wrong_meaning(case)
    verdict = "WRONG: not what the function means on one device" if wrong else case.verdict()
    took = f"{case.seconds * 1e3:.1f} ms"
    print(f"{case.name}: {verdict} on {devices_text(mesh.devices)} (numpy, {took})")
    return report(wrong)


def _save(folder: Path, name: str, tensor: Array) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / name, tensor)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot write to {folder}: {reason}")) from error
