"""Runs see differences behind rounded values, and proofs do not overlook a division by 0."""

import pytest
from xdsl.dialects.func import FuncOp

import collir
from collir.semantics.validation.validate import Verdict, compare

FUNCTION = """machine @c {{ level gpu[2] {{ port = 8 GB/s, latency = 20 us }} }}
mesh @m on @c {{ data = gpu:2 }}
func @f(%x: f32[3, 4, 4], %y: f32[3, 4, 4]) -> {type} on @m {{
{first}
  %r = {step}
  return %r
}}
"""

STEPS = {
    "stop_gradient %e": "f32[3, 4, 4]",
    "greater %e, %y": "bool[3, 4, 4]",
    "less_equal %y, %e": "bool[3, 4, 4]",
    "argmax %e dim 1": "i32[3, 4]",
    "top_k_indices %e k 2 dim 1": "i32[3, 2, 4]",
    "max_pool_transpose %y, %e window [4] stride [1] padding [0]": "f32[3, 4, 4]",
}


def compared(*texts: str) -> Verdict:
    """Return the verdict on two programs of one function."""
    modules = [collir.parse(text) for text in texts]
    before, after = (
        next(op for op in module.walk() if isinstance(op, FuncOp)) for module in modules
    )
    return compare(before, after)


@pytest.mark.parametrize("step", STEPS)
def test_behind_a_rounded_value(step: str) -> None:
    type_ = STEPS[step]
    y = step.replace("%y", "%p") if "pool" in step else step
    pooled = "  %p = max_pool %y window [4] stride [1] padding [0]\n" if "pool" in step else ""
    texts = [
        FUNCTION.format(type=type_, step=y, first=pooled + first)
        for first in ("  %e = exp %x", "  %n = neg %x\n  %e = exp %n")
    ]
    verdict = compared(*texts)
    assert (verdict.outcome, verdict.how) == ("different", "execution")


def test_zero_divided_by_zero_is_not_proven_to_be_zero() -> None:
    first = "  %z = sub %x, %x"
    texts = [
        FUNCTION.format(type="f32[3, 4, 4]", first=first, step=step)
        for step in ("add %z, %z", "div %z, %z")
    ]
    assert compared(*texts).how != "proof"
