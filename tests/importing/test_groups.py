"""A module's own experts: rows that are sorted, counted, and multiplied in groups."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.importing.torch_gradients import HEAD  # noqa: E402

import collir  # noqa: E402
from collir.importing.models.export import exported  # noqa: E402
from collir.importing.models.program import written  # noqa: E402
from collir.importing.models.sizes import with_sizes  # noqa: E402
from collir.ir.functions import functions_of  # noqa: E402
from collir.semantics.reference.executor import execute  # noqa: E402


def results_of(module: Any, x: Any) -> tuple[list[Any], str]:
    """Return what a module makes of a tensor, by its imported program, and the text of that."""
    function = written(exported(module, (x,), {}), "model")
    text = with_sizes(function.text("m"), function.layers)
    program = collir.parse(HEAD + text)
    values = {**{f"w.{n}": p for n, p in module.named_parameters()}, "x": x}
    arrays = [[values[a.name].detach().numpy()] for a in function.arguments]
    made = execute(program, functions_of(program)[-1], arrays)
    return [np.asarray(buffers[0]) for buffers in made], text


class Experts(torch.nn.Module):
    """Experts as one writes them for a kernel of grouped products."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.router = torch.nn.Linear(8, 4)
        self.up = torch.nn.Parameter(torch.randn(4, 8, 16))
        self.down = torch.nn.Parameter(torch.randn(4, 16, 8))

    def forward(self, x: Any) -> Any:
        score, expert = self.router(x).softmax(-1).max(-1)
        order = torch.argsort(expert)
        counts = torch.histc(expert.float(), bins=4, min=0, max=3)
        ends = counts.cumsum(0).to(torch.int32)
        rows, up, down = (t.bfloat16() for t in (x[order], self.up, self.down))
        inner = torch.relu(torch._grouped_mm(rows, up, offs=ends))
        made = torch._grouped_mm(inner, down, offs=ends).float()
        return torch.zeros_like(x).index_copy(0, order, made) * score[:, None]


@pytest.mark.turns
def test_sorted_experts_are_products_of_groups() -> None:
    torch.manual_seed(2)
    module, x = Experts(), torch.randn(12, 8)
    [y], text = results_of(module, x)
    assert text.count("= grouped_matmul ") == 2
    assert np.allclose(y, module(x).detach().numpy(), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("low, high, bins", [(-1.0, 1.0, 5), (0, 3, 4), (-10.0, 2.5, 7)])
def test_counts_of_ranges_have_their_ends(low: float, high: float, bins: int) -> None:
    class Counts(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.histc(x, bins=bins, min=low, max=high)

    torch.manual_seed(3)
    ends = torch.tensor([low, high, low - 1, high + 1, float("inf"), float("-inf")])
    x = torch.cat([torch.randn(200), torch.arange(-5.0, 5.0), ends])
    [counts], _ = results_of(Counts(), x)
    assert np.array_equal(counts, torch.histc(x, bins=bins, min=low, max=high).numpy())
