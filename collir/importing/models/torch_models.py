"""A torch module as a program: its graph, loops over its layers, and a training step."""

import copy
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from collir.importing.models.export import DTYPES, exported, fault
from collir.importing.models.hugging_face import set_experts
from collir.importing.models.imported import MACHINE, MESH, Imported, headed, program_of
from collir.importing.models.layers import rolled
from collir.importing.models.program import Written
from collir.importing.models.scans import take_scans
from collir.importing.models.sizes import batch_of, doubled, with_batch
from collir.importing.models.training import OPTIMIZERS
from collir.ir.diagnostics import DiagnosticError


def import_torch(
    module: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    optimizer: str = "",
    precision: str = "",
    clip: bool = False,
    capacity: float = 0.0,
    machine: str = MACHINE,
    mesh: str = MESH,
    comment: str = "",
) -> Imported:
    """Return a torch module as a program, for arguments of its ``forward``.

    The module stays as it is. It may lie on the device ``meta``, as its arguments: nothing is
    computed. Random numbers of dropout are left out, and statistics of batches are those that the
    model keeps. The program is not checked here: ``collir.parse`` does so, as the command does.

    Args:
        optimizer: adds a training step with an optimiser of the library; the first result of the
            module is the loss.
        precision: the dtype that the model computes in; by default that of its weights.
        clip: whether the step clips gradients by the norm of all of them.
        capacity: the words of a sequence that an expert of ``transformers`` has places for, over an
            even share; what is beyond is dropped. By default all experts compute all words, which
            drops none.
        machine: the machine, as a reference in ``.coll``.
        mesh: its axes; the batch is divided over the first.

    Raises:
        DiagnosticError: torch cannot export the module, an operation cannot be imported, or the
            loss is no number.
    """
    if optimizer and optimizer not in OPTIMIZERS:
        raise fault(f"there is no optimizer {optimizer}: {', '.join(OPTIMIZERS)}")
    module, given = _copy(module, precision).train(False), (tuple(args), dict(kwargs or {}))
    given = _in_precision(given, precision) if precision else given
    batch = batch_of(given)
    if capacity and batch is None:
        raise fault("a capacity is of sequences, and the arguments do not begin with a batch")
    take_scans(module)
    has_experts = set_experts(module, batch or 1, capacity)
    if capacity and not has_experts:
        raise fault("a capacity is of experts, and the model has none that are known")
    axis = mesh.partition("=")[0].strip()
    function, constants, text = _program(module, given, optimizer, clip, axis)
    sized = None
    if batch is not None:
        try:
            set_experts(module, 2 * batch, capacity)
            doubled_text = _program(module, doubled(given), optimizer, clip, axis)[-1]
            sized = with_batch(text, doubled_text, batch)
        except DiagnosticError:  # the model is for this size alone
            pass
    text = headed(sized or text, function, batch if sized else None, machine, mesh, comment)
    return Imported(text, function.arguments, constants, batch if sized else None, has_experts)


def _program(
    module: Any, given: tuple[Any, Any], optimizer: str, clip: bool, axis: str
) -> tuple[Written, Mapping[str, Any], str]:
    """Return the function of a module for arguments, its constants, and the text of all functions,
    without machine and mesh."""
    return program_of(exported(module, *given), optimizer, clip, axis, rolled)


def _copy(module: Any, precision: str) -> Any:
    """Return a copy of a module, which has the same weights in memory unless the dtype differs."""
    weights: dict[int, Any] = {}
    for weight in module.parameters():
        weights[id(weight)] = weight
        if precision and weight.is_floating_point():
            made = weight.detach().to(_dtype(precision))
            weights[id(weight)] = type(weight)(made, requires_grad=weight.requires_grad)
    copied = copy.deepcopy(module, weights)
    return copied.to(_dtype(precision)) if precision else copied


def _dtype(precision: str) -> Any:
    torch = importlib.import_module("torch")
    [name] = [name for name, short in DTYPES.items() if short == precision]
    return getattr(torch, name)


def _in_precision(x: Any, precision: str) -> Any:
    """Return arguments with their floating-point tensors in another dtype."""
    if isinstance(x, dict):
        return {key: _in_precision(item, precision) for key, item in x.items()}  # pyright: ignore
    if isinstance(x, list | tuple):
        return type(x)(_in_precision(item, precision) for item in x)  # pyright: ignore
    is_float = getattr(getattr(x, "dtype", None), "is_floating_point", False)
    return x.to(_dtype(precision)) if is_float else x
