"""Runs code for values of any size on real ranks.

Where functions have a ``width``, each element of the types becomes so many, and the expected
results are ``width`` runs of the numpy executor, one for each of them. Where functions have size
parameters, the expected results are those of the program at their values.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from support.harness.hanging import HANG
from support.targets.on_fake_nccl import casts_an_average, compile_with_fake, harness
from support.targets.on_ranks import FLAGS, arguments_of, same
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.alternatives import place_of
from collir.ir.buffers import plan_buffers
from collir.ir.functions import functions_of
from collir.ir.parameters import parameters_of
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.devices import coordinate
from collir.semantics.reference.exactness import exact, roundings
from collir.semantics.reference.executor import execute
from collir.targets.code.mpi_file import MpiFile
from collir.targets.code.mpi_harness import emit_harness
from collir.targets.code.nccl_main import averages_round
from collir.tools.mpi_run import compile_c, mpiexec
from collir.transforms.instantiation import instantiate


def _wider(text: str, width: int) -> str:
    """Return a main for buffers that are ``width`` times as large."""
    return re.sub(r"(?<!!)bytes\[i\]", f"({width} * bytes[i])", text)


def _mpi(at: ModuleOp, names: Mapping[str, str], code: str, width: int, folder: Path) -> str:
    """Compile a program that runs functions of MPI code, and return its path.

    Args:
        at: the module at the values of the sizes.
        names: the functions, each with the sizes it is called with.
        code: the code for any size.
    """
    text = emit_harness(at, [f for f in functions_of(at) if f.sym_name.data in names])
    plain = MpiFile(at).text()
    assert text.startswith(plain)
    calls = [f"#define {name}(...) {name}(__VA_ARGS__, {sizes})" for name, sizes in names.items()]
    rest = _wider(text[len(plain) :], width)
    source = folder / "program.c"
    source.write_text("\n".join([code, *calls, rest]))
    compile_c(source, folder / "program", FLAGS)
    return str(folder / "program")


def _nccl(at: ModuleOp, names: Mapping[str, str], code: str, width: int, folder: Path) -> str:
    """Compile a program that runs functions of NCCL code on the fake, and return its path; the
    arguments are those of ``_mpi``."""
    text = harness(at, [f for f in functions_of(at) if f.sym_name.data in names], "nccl")
    plain = collir.emit(at, "nccl")
    assert text.startswith(plain)
    rest = _wider(text[len(plain) :], width)
    for name, sizes in names.items():
        call = re.compile(rf"(return {name}\(.*)(collir_stream\);)")
        rest = call.sub(rf"\g<1>{sizes}, \g<2>", rest)
    return compile_with_fake(code + rest, folder)


def code_for_any_size(module: ModuleOp, target: str) -> str:
    """Return the code of a module for values of any size."""
    if target == "mpi":
        return MpiFile(module, sized=True).text()
    return collir.emit(module, f"{target}{{sized=true}}")


def differences_at(
    module: ModuleOp,
    functions: Sequence[FuncOp],
    width: int,
    folder: Path,
    target: str,
    values: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
) -> list[str]:
    """Return the places where ranks hold other results than the numpy executor computes.

    Args:
        width: the width of the functions without size parameters; 1 if there are others.
        values: values of size parameters, by the names of their functions.
    """
    if target == "nccl":
        functions = [function for function in functions if not casts_an_average(function)]
    code = code_for_any_size(module, target)
    sizes: dict[str, str] = {}
    at = module.clone()
    for function in functions_of(at):  # those for larger values may not fit the others
        if place_of(function) and function.sym_name.data not in {
            f.sym_name.data for f in functions
        }:
            function.detach()
    for function in functions:
        name = function.sym_name.data
        own = {**parameters_of(function), **values.get(name, {})}
        sizes[name] = ", ".join(map(str, own.values() or [width]))
        if name in values:
            instantiate(at, values[name], name)
    program = (_mpi if target == "mpi" else _nccl)(at, sizes, code, width, folder)
    module, functions = at, [f for f in functions_of(at) if f.sym_name.data in sizes]
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
