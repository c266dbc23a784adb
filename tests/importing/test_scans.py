"""Scans of torch are operations, whatever function of two elements says what they are."""

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from support.importing.torch_gradients import compared

try:
    from torch._higher_order_ops.associative_scan import associative_scan
except ImportError:
    pytest.skip("this torch has no associative_scan", allow_module_level=True)


def recurrence(left: Any, right: Any):
    return left[0] * right[0], right[0] * left[1] + right[1]


def both(left: Any, right: Any):
    return right[0] * left[0], right[1] + left[1] * right[0]


def added(left: Any, right: Any):
    return left + right


def largest(left: Any, right: Any):
    return torch.maximum(left, right)


class Scan(torch.nn.Module):
    def __init__(self, function: Any, dim: Any, reverse: Any):
        super().__init__()
        self.a = torch.nn.Parameter(torch.rand(3, 5, 2))
        self.function, self.dim, self.reverse = function, dim, reverse

    def forward(self, x: Any):
        is_pair = self.function in (recurrence, both)
        xs = (torch.sigmoid(self.a), x * self.a) if is_pair else x * self.a
        y = associative_scan(self.function, xs, self.dim, self.reverse, combine_mode="generic")
        products, states = y if is_pair else (y, y)
        return (states * states).sum() + products.sum()


@pytest.mark.turns
@pytest.mark.parametrize("function", [recurrence, both, added, largest])
@pytest.mark.parametrize("dim, reverse", [(1, False), (0, True)])
def test_a_scan_is_that_of_torch(function: Any, dim: int, reverse: bool) -> None:
    torch.manual_seed(4)
    result = compared(Scan(function, dim, reverse), {"x": torch.randn(3, 5, 2)})
    text = "\n".join(result.program.body)
    wanted = {recurrence: "linear_scan", both: "linear_scan", added: "cumsum", largest: "maximum"}
    assert wanted[function] in text
    assert result.worst < 1e-9, result.gradients
