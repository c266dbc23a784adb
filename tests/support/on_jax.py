"""Runs emitted jax on CPU devices, in one process, beside the numpy executor."""

from collections.abc import Sequence
from pathlib import Path

from on_ranks import arguments_of, same
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.semantics.reference.exactness import exact, roundings
from collir.semantics.reference.executor import execute
from collir.tools.jax_run import run


def differences(
    module: ModuleOp, functions: Sequence[FuncOp], folder: Path, seed: int = 0
) -> list[str]:
    """Return the places where devices hold other results than the numpy executor computes, as
    'function: result, device'."""
    arguments = [arguments_of(function, seed) for function in functions]
    done = run(module, functions, arguments, folder, quick=True)
    wrong: list[str] = []
    for function, inputs, (results, _) in zip(functions, arguments, done, strict=True):
        expected = execute(module, function, inputs)
        epsilons = 0 if exact(function) else roundings(function)
        assert len(results) == len(expected)
        for index, (buffers, right) in enumerate(zip(results, expected, strict=True)):
            wrong += [
                f"{function.sym_name.data}: result {index}, device {rank}"
                for rank, (actual, truth) in enumerate(zip(buffers, right, strict=True))
                if not same(actual, truth, epsilons)
            ]
    return wrong
