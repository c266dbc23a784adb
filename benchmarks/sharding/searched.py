"""The plans that ``shard`` finds."""

import time

from simulated import Plan, simulated
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.model import CostModel
from collir.ir.remarks import listening
from collir.layout import Axis
from collir.synthesis.propagation.propagate import lay_out
from collir.synthesis.sharding import shard as of_shard
from collir.synthesis.sharding.layouts import ShardOptions
from collir.synthesis.sharding.solver import VariableValues


class _Recorded(of_shard._Shard):  # pyright: ignore
    """A search whose solution is kept, with equal shares if ``even``."""

    even = False
    found: VariableValues | None = None

    def _cut(self, axis: Axis) -> None:
        if not self.even:
            super()._cut(axis)

    def _solution(self, limit: float | None) -> VariableValues:
        _Recorded.found = super()._solution(limit)
        return _Recorded.found


class _Even(_Recorded):
    even = True


def sharded(
    page: str, text: str, seconds: float, even: bool = False, model: CostModel | None = None
) -> tuple[Plan, ModuleOp]:
    """Return the plan of ``shard``."""
    module, model = collir.parse(page + text), model or CostModel()
    options = ShardOptions(model, seconds)
    kind = _Even if even else _Recorded
    start = time.process_time()
    with listening(lambda _: None):
        lay_out(module, lambda f, closed: kind(f, closed, options).run(), callees=False)
    took = time.process_time() - start
    module.verify()
    assert _Recorded.found is not None
    return simulated(module, model, _Recorded.found, took), module
