"""Runs code for values of any size on real ranks: each element of the types becomes ``width``.

The expected results are ``width`` runs of the numpy executor, one for each of these elements.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from on_fake_nccl import casts_an_average, compile_with_fake, harness
from on_ranks import FLAGS, HANG, arguments_of, same
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.devices import coordinate
from collir.semantics.reference.exactness import exact, roundings
from collir.semantics.reference.executor import execute
from collir.targets.code.mpi_function import emit_c
from collir.targets.code.mpi_harness import emit_harness
from collir.targets.code.nccl_main import averages_round
from collir.tools.mpi_run import compile_c, mpiexec

_INCLUDES = ("limits.h", "mpi.h", "stdint.h", "stdio.h", "stdlib.h", "string.h")


def _wider(text: str, width: int) -> str:
    """Return a main for buffers that are ``width`` times as large."""
    return re.sub(r"(?<!!)bytes\[i\]", f"({width} * bytes[i])", text)


def _mpi(module: ModuleOp, functions: Sequence[FuncOp], width: int, folder: Path) -> str:
    """Compile a program that runs functions of MPI code, and return its path."""
    text = emit_harness(module, functions)
    plain = emit_c(module, includes=_INCLUDES)
    assert text.startswith(plain)
    names = [function.sym_name.data for function in functions]
    calls = [f"#define {name}(...) {name}(__VA_ARGS__, {width})" for name in names]
    rest = _wider(text[len(plain) :], width)
    source = folder / "program.c"
    source.write_text("\n".join([emit_c(module, includes=_INCLUDES, sized=True), *calls, rest]))
    compile_c(source, folder / "program", FLAGS)
    return str(folder / "program")


def _nccl(module: ModuleOp, functions: Sequence[FuncOp], width: int, folder: Path) -> str:
    """Compile a program that runs functions of NCCL code on the fake, and return its path."""
    text = harness(module, functions, "nccl")
    plain = collir.emit(module, "nccl")
    assert text.startswith(plain)
    rest = _wider(text[len(plain) :], width)
    rest = rest.replace("collir_stream);", f"{width}, collir_stream);")
    return compile_with_fake(collir.emit(module, "nccl{sized=true}") + rest, folder)


def differences_at(
    module: ModuleOp, functions: Sequence[FuncOp], width: int, folder: Path, target: str
) -> list[str]:
    """Return the places where ranks hold other results than the numpy executor computes."""
    if target == "nccl":
        functions = [function for function in functions if not casts_an_average(function)]
    program = (_mpi if target == "mpi" else _nccl)(module, functions, width, folder)
    ranks = mesh_of(functions[0]).devices
    inputs = [[arguments_of(function, seed) for seed in range(width)] for function in functions]
    arguments = [argument for seeds in inputs for argument in zip(*seeds, strict=True)]
    for rank in range(ranks):
        with (folder / f"{rank}.in").open("wb") as file:
            for argument in arguments:
                if argument[0][rank] is not None:
                    pieces = [np.asarray(buffers[rank]) for buffers in argument]
                    file.write(np.stack(pieces, axis=-1).tobytes())
    mpiexec(ranks, [program, str(folder)], HANG)
    files = [(folder / f"{rank}.out").open("rb") for rank in range(ranks)]
    wrong: list[str] = []
    for function, seeds in zip(functions, inputs, strict=True):
        mesh = mesh_of(function)
        epsilons = 0 if exact(function) else roundings(function)
        if target == "nccl" and averages_round(function):
            epsilons = 8 * roundings(function) * mesh.devices
        expected = [execute(module, function, buffers) for buffers in seeds]
        for index, value in enumerate(plan_buffers(function).returned):
            x = dist_type(value)
            for rank, file in enumerate(files):
                if any(coordinate(mesh, rank, axis) != at for axis, at in x.place):
                    continue
                data = file.read(width * x.local_bytes(mesh))
                flat = np.frombuffer(data, NUMPY[x.dtype])
                actual = flat.reshape((*x.local_shape(mesh), width))
                right: list[Buffers] = [results[index] for results in expected]
                wrong += [
                    f"{function.sym_name.data}: result {index}, rank {rank}, {k}"
                    for k in range(width)
                    if not same(actual[..., k], right[k][rank], epsilons)
                ]
    for file in files:
        assert not file.read()
        file.close()
    return wrong
