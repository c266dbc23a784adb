"""Runs cases of the outside truth with collir, and says where results differ.

PYTHONPATH=tests python tests/support/outside/run.py --cases 500 [--only conv]
"""

import argparse
import collections
import logging
import random
import sys
import traceback
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from support.harness.hanging import HANG
from support.outside.cases import FORMS, Case, Result, case_of
from support.outside.collectives import COLLECTIVES, collective
from support.outside.layouts import MESHES, joined
from support.outside.programs import program
from support.targets.python_ranks import results_on_ranks

import collir
from collir.ir.functions import functions_of
from collir.semantics.reference.executor import execute
from collir.tools import jax_run, mpi_run

EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
LARGEST = {"f64": np.inf, "f32": 3.4e38, "f16": 65504.0, "bf16": 3.38e38}


def wrong(result: Result, mesh: Any, buffers: list[Any]) -> str:
    """Return what is wrong with the buffers of a result, or nothing."""
    whole, problem = joined(mesh, result.layout, buffers)
    if problem:
        return problem
    dtype, truth = result.layout.dtype, np.asarray(result.truth)
    if truth.shape != whole.shape:
        return f"shape {truth.shape}"
    if dtype not in EPSILON:
        return "" if np.array_equal(whole, truth) else f"{whole} is not {truth}"
    truth = truth.astype(np.float64)
    limit = LARGEST[dtype]
    if dtype != "f64":
        big = abs(truth) > limit * (1 + EPSILON[dtype])
        truth = np.where(big & np.isfinite(truth), np.copysign(np.inf, truth), truth)
    near = abs(truth) > limit * (1 - 4 * EPSILON[dtype])
    near |= abs(whole) > limit * (1 - 4 * EPSILON[dtype])
    fine = (np.isnan(truth) & np.isnan(whole)) | (truth == whole)
    fine |= near & np.isfinite(truth) & (np.sign(whole) == np.sign(truth))
    if dtype != "f64" and result.scale > limit:  # an addend may be infinite, unlike the sum
        fine |= ~np.isfinite(whole)
    with np.errstate(all="ignore"):
        error = abs(whole - truth)
        short = max(EPSILON[dtype], 2.0**-52)
        inner = min(short, 2.0**-23 if dtype != "f64" else 2.0**-52)
        allowed = result.steps * short * (abs(truth) if result.steps < 2 else result.scale)
        allowed = allowed + 64 * inner * result.scale + (2.0**-24 if dtype == "f16" else 1e-37)
        fine |= error <= allowed
    if fine.all():
        return ""
    at = tuple(int(n) for n in np.argwhere(~fine)[0]) if fine.ndim else ()
    return f"{int((~fine).sum())} of {fine.size}: {whole[at]} is not {truth[at]} at {at}"


def module_of(cases: list[Case]) -> Any:
    """Return the module of all meshes and cases."""
    meshes = {case.mesh.name: case.mesh.text for case in cases}
    return collir.parse("".join([*meshes.values(), *(case.text for case in cases)]))


def _in_steps(cases: list[Case]) -> Any:
    """Return the module with gradients and redistributions as steps, as targets need it."""
    module = module_of(cases)
    if any(map(_needs_steps, cases)):
        logging.getLogger("collir").disabled = True
        collir.run_passes(module, "differentiate,inline,decompose")
    return module


def _needs_steps(case: Case) -> bool:
    """Return whether a program asks for a redistribution, or its gradient does."""
    if "gradient @" in case.text and "redistribute" not in case.text:
        module = collir.run_passes(module_of([case]), "differentiate")
        return any(op.name == "coll.redistribute" for op in module.walk())
    return "redistribute" in case.text


def _in_executor(cases: list[Case], folder: Path) -> list[list[list[Any]]]:
    module = module_of(cases)
    return [
        execute(module, f, x.arguments) for f, x in zip(_own(module, cases), cases, strict=True)
    ]


def _own(module: Any, cases: list[Case]) -> list[Any]:
    by_name = {f.sym_name.data: f for f in functions_of(module)}
    return [by_name[case.name] for case in cases]


def _calls(module: Any, cases: list[Case]) -> list[Any]:
    return list(zip(_own(module, cases), [x.arguments for x in cases], strict=True))


def _in_jax(cases: list[Case], folder: Path) -> list[list[list[Any]]]:
    module = _in_steps(cases)
    done = jax_run.run(module, _calls(module, cases), folder, quick=True)
    return [results for results, _ in done]


def _in_mpi(cases: list[Case], folder: Path) -> list[list[list[Any]]]:
    module = _in_steps(cases)
    done = mpi_run.run(module, _calls(module, cases), folder, ("-O0",), timeout=HANG)
    return [results for results, _ in done]


def _in_python(target: Any, cases: list[Case], folder: Path) -> list[list[list[Any]]]:
    module = _in_steps(cases)
    inputs = [x.arguments for x in cases]
    return results_on_ranks(target, module, _own(module, cases), folder, inputs=inputs)


ENGINES: dict[str, Any] = {
    "executor": _in_executor,
    "jax": _in_jax,
    "mpi": _in_mpi,
    "mpi4py": partial(_in_python, "mpi4py"),
    "torch": partial(_in_python, "torch"),
}


def run(engine: str, cases: list[Case]) -> list[tuple[Case, str]]:
    """Return the cases that an engine refuses or computes otherwise, and what it says."""
    if not cases:
        return []
    try:
        with TemporaryDirectory() as folder:
            done = ENGINES[engine](cases, Path(folder))
    except Exception as error:
        if len(cases) > 1:  # find the cases that stop all
            half = len(cases) // 2
            return [*run(engine, cases[:half]), *run(engine, cases[half:])]
        plain = isinstance(error, collir.DiagnosticError)
        return [(cases[0], str(error) if plain else traceback.format_exc())]
    bad: list[tuple[Case, str]] = []
    for case, results in zip(cases, done, strict=True):
        problems = [
            f"result {n}: {said}"
            for n, (result, buffers) in enumerate(zip(case.results, results, strict=True))
            if (said := wrong(result, case.mesh, buffers))
        ]
        if problems:
            bad.append((case, "\n".join(problems)))
    return bad


def batches(engine: str, cases: list[Case]) -> list[list[Case]]:
    """Return the cases that an engine has forms of, those on as many devices together."""
    if engine == "executor":
        return [[case] for case in cases]
    usable = [x for x in cases if not (engine == "jax" and x.mesh.weights)]
    asks = {case.name for case in usable if _needs_steps(case)}
    usable = [x for x in usable if not (x.name in asks and x.mesh.weights)]
    kinds = sorted({(case.mesh.devices, case.name in asks) for case in usable})
    return [
        [case for case in usable if (case.mesh.devices, case.name in asks) == kind]
        for kind in kinds
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="operations, with commas between them")
    parser.add_argument("--engines", default="executor", help=f"of {', '.join(ENGINES)}")
    parser.add_argument("--meshes", default=",".join(mesh.name for mesh in MESHES))
    parser.add_argument("--special", type=float, default=0.2, help="the part with NaN and others")
    parser.add_argument("--jax", type=float, default=0.3, help="the part of cases in jax as well")
    parser.add_argument("--show", type=int, default=10, help="how many failures to print")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [*FORMS, *COLLECTIVES]
    random.Random(options.seed).shuffle(names)
    meshes = [mesh for mesh in MESHES if mesh.name in options.meshes.split(",")]
    cases: list[Case] = []
    for number in range(options.cases):
        name = names[number % len(names)]
        rng = random.Random(f"{options.seed} {number}")
        label, mesh = f"{name}_{number}", rng.choice(meshes)
        if name == "program":
            cases.append(program(rng, mesh, label))
        elif name in COLLECTIVES:
            cases += collective(rng, mesh, name, label)
        else:
            cases += case_of(rng, mesh, name, label, rng.random() < options.jax, options.special)
    notes = [note for case in cases for note in case.notes]
    print(*notes, flush=True, sep="\n")
    failures = 0
    for engine in options.engines.split(","):
        bad = [pair for batch in batches(engine, cases) for pair in run(engine, batch)]
        for case, said in bad[: options.show]:
            print(f"--- {engine} {case.name}\n{case.mesh.text}{case.text}{said[-1500:]}")
        by_name = collections.Counter(case.name.rsplit("_", 1)[0] for case, _ in bad)
        count = sum(map(len, batches(engine, cases)))
        print(
            f"{engine}: {count} cases, {len(bad)} failed {dict(by_name)}; {len(notes)} notes",
            flush=True,
        )
        failures += len(bad)
    sys.exit(bool(failures or notes))


if __name__ == "__main__":
    main()
