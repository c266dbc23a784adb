"""Functions whose layouts were chosen compute what they did."""

from collections.abc import Callable

import numpy as np
from support.semantics.checks import functions_of
from support.semantics.differentiated import inputs_of, on_all_devices, on_one_device
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.tensor import dist_type
from collir.ir.auto import is_auto
from collir.ir.verification import verify
from collir.semantics.reference.collectives import Array
from collir.semantics.validation.validate import Outcome, compare_modules


def check_meaning(module: ModuleOp, choose: Callable[[ModuleOp], None]) -> None:
    """Check that the one function of a module computes the same on all devices when its layouts are
    chosen, in place, and that its arguments keep the layouts that their types give."""
    (function,) = functions_of(module)
    verify(module)
    tensors = inputs_of(function, 0)
    expected = on_one_device(function, tensors)
    written = [dist_type(argument) for argument in function.args]
    before = module.clone()
    choose(module)
    verify(module)
    for comparison in compare_modules(before, module):
        assert comparison.verdict.outcome is not Outcome.DIFFERENT
    assert not is_auto(function)
    for x, argument in zip(written, function.args, strict=True):
        assert not x.axes or dist_type(argument) == x
    actual = on_all_devices(module, function, tensors)
    (whole,) = functions_of(before)
    is_stable = _is_stable(whole, tensors, expected)
    for x, y in zip(actual, expected, strict=True):
        assert x.shape == y.shape
        if is_stable:
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)


def _is_stable(function: FuncOp, tensors: list[Array], expected: list[Array]) -> bool:
    """Return whether results hardly change where inputs do: the sine of a large number does not
    tell a mistake from a rounding."""
    rng = np.random.default_rng(0)
    near = [x * (1 + 1e-14 * rng.choice([-1, 1], x.shape)) for x in tensors]
    pairs = zip(expected, on_one_device(function, near), strict=True)
    return all(np.allclose(x, y, rtol=1e-10, atol=1e-10) for x, y in pairs)
