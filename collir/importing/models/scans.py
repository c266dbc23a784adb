"""Scans of torch as operations; its own export would write them as many halves of halves.

``torch``'s ``associative_scan`` takes a function of two elements. Trials show whether it is a sum,
or the recurrence of a state-space model.
"""

import importlib
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

_PLACE = "torch._higher_order_ops.associative_scan"

_MODELS = "mamba", "falcon_mamba"
"""The models of ``transformers`` that have a scan, and take it where torch compiles them."""


@contextmanager
def whole_scans() -> Generator[None]:
    """Let scans be one operation each, of the programs that torch exports meanwhile."""
    try:
        scan = importlib.import_module(_PLACE)
        before = scan.generic_associative_scan
    except (ImportError, AttributeError):  # another version of torch
        yield
        return

    def scanned(operator: Any, leaves: Sequence[Any], dim: int = 0, **more: Any) -> Any:
        found = _found(operator, leaves) if dim == 0 else None
        return before(operator, leaves, dim, **more) if found is None else found(*leaves)

    with ExitStack() as patches:
        patches.enter_context(patch.object(scan, "generic_associative_scan", scanned))
        for name in _MODELS:
            model = sys.modules.get(f"transformers.models.{name}.modeling_{name}")
            if model is not None and hasattr(model, "is_torchdynamo_exporting"):
                patches.enter_context(_patched(model, "is_torchdynamo_compiling", True))
                patches.enter_context(_patched(model, "is_torchdynamo_exporting", False))
        yield


def _patched(model: Any, name: str, answer: bool) -> Any:
    return patch.object(model, name, lambda: answer)


def take_scans(module: Any) -> None:
    """Let the parts of a model of ``transformers`` that have a scan take it."""
    for part in module.modules():
        if hasattr(part, "use_associative_scan"):
            part.use_associative_scan = True


def _found(operator: Any, leaves: Sequence[Any]) -> Callable[..., Any] | None:
    """Return a function of the leaves of a scan that is the same, if one is known."""
    if len(leaves) > 2 or not all(leaf.is_floating_point() for leaf in leaves):
        return None
    with ThreadPoolExecutor(1) as aside:  # where torch traces nothing
        kinds = [(leaf.dim(), leaf.dtype) for leaf in leaves]
        return aside.submit(_tried, operator, kinds).result()


def _tried(operator: Any, kinds: Sequence[tuple[int, Any]]) -> Callable[..., Any] | None:
    """Return what a function of two elements scans to, by calling it with numbers."""
    torch = importlib.import_module("torch")
    numbers = torch.Generator().manual_seed(1)
    left, right = (
        [torch.rand((3,) * rank, generator=numbers, dtype=dtype) for rank, dtype in kinds]
        for _ in range(2)
    )
    try:
        made = operator(*left, *right)
    except Exception:  # it needs other values, or other sizes
        return None
    made = [made] if isinstance(made, torch.Tensor) else list(made)
    if len(kinds) == 1:
        return _cumulated if _are_near(torch, made, [left[0] + right[0]]) else None
    (a, b), (c, d) = left, right
    return _recurrent if _are_near(torch, made, [a * c, c * b + d]) else None


def _are_near(torch: Any, made: Sequence[Any], wanted: Sequence[Any]) -> bool:
    if [x.shape for x in made] != [x.shape for x in wanted]:
        return False
    return all(torch.allclose(x, y) for x, y in zip(made, wanted, strict=True))


def _cumulated(x: Any) -> list[Any]:
    return [x.cumsum(0)]


def _recurrent(a: Any, b: Any) -> list[Any]:
    return [a.cumprod(0), _linear_scan()(b, a)]


@cache
def _linear_scan() -> Any:
    """Return the operation of torch that stands for a recurrence, in exported programs."""
    torch = importlib.import_module("torch")

    def scan(x: Any, factors: Any) -> Any:
        states = [x[0]]
        for row, factor in zip(x[1:], factors[1:], strict=True):
            states.append(row + factor * states[-1])
        return torch.stack(states)

    def shaped(x: Any, factors: Any) -> Any:
        return torch.empty_like(x)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[1], output)

    def gradients(ctx: Any, g: Any) -> Any:
        factors, states = ctx.saved_tensors
        behind = torch.cat([factors[1:], torch.zeros_like(factors[:1])])
        total = operation(g.flip(0), behind.flip(0)).flip(0)
        return total, total * torch.cat([torch.zeros_like(states[:1]), states[:-1]])

    kinds: Any = dict.fromkeys(("x", "factors", "return"), torch.Tensor)
    scan.__annotations__ = kinds
    operation = torch.library.custom_op("collir::linear_scan", scan, mutates_args=())
    operation.register_fake(shaped)
    operation.register_autograd(gradients, setup_context=keep)
    return operation
