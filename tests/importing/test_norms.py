"""Norms that a model writes out are norms of the program; what only looks like one is not."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.importing.torch_gradients import compared  # noqa: E402
from torch import nn  # noqa: E402

from collir.importing.models.torch_models import import_torch  # noqa: E402

EPS = 1e-3

NORMS: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "llama": (lambda w, x: w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)), 1),
    "gemma": (lambda w, x: (x * torch.rsqrt((x * x).mean(2, keepdim=True) + EPS)) * (1 + w), 1),
    "no gain": (lambda w, x: torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * x, 1),
    "gain of each position": (
        lambda w, x: w.sum() * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS), 0
    ),
    "used twice": (
        lambda w, x: (n := x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)) * w + n, 1
    ),
    "of another value": (
        lambda w, x: w * (x * torch.rsqrt((x + 1).pow(2).mean(-1, keepdim=True) + EPS)), 0
    ),
    "cube": (lambda w, x: x * torch.rsqrt(x.abs().pow(3).mean(-1, keepdim=True) + EPS), 0),
    "other dimension": (lambda w, x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + EPS), 0),
    "two dimensions": (lambda w, x: x * torch.rsqrt(x.pow(2).mean((1, 2), keepdim=True) + EPS), 0),
    "scaled": (
        lambda w, x: x * torch.rsqrt(torch.add(x.pow(2).mean(-1, keepdim=True), EPS, alpha=2)), 0
    ),
}  # fmt: skip


class Normed(nn.Module):
    """The mean of a norm, times a number at each place."""

    def __init__(self, norm: Any):
        super().__init__()
        self.norm = norm
        self.first = nn.Linear(6, 6)
        self.weight = nn.Parameter(torch.linspace(0.5, 2, 6))

    def forward(self, x: Any) -> Any:
        """Return a number."""
        y = self.norm(self.weight, self.first(x))
        return (y * torch.linspace(-1, 2, 6, dtype=y.dtype)).sin().mean()


@pytest.mark.turns
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_that_is_written_out(name: str) -> None:
    norm, count = NORMS[name]
    x = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(3))
    text = import_torch(Normed(norm), (x,)).text
    assert text.count("rms_norm") == count, text
    assert ("rsqrt" in text) == (count == 0)
    result = compared(Normed(norm), {"x": x.double()})
    assert result.worst < 1e-9
