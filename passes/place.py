"""Place every mesh that has no placement on the levels of its machine, at the least cost.

What: a mesh such as ``{ data = 4, model = 4 }`` gets levels for its axes, such as ``{ data =
node:2 * gpu:2, model = node:2 * gpu:2 }``. A placement costs the sum of the times of all functions
on the mesh, each multiplied by its weight; every collective runs by its cheapest program, as
``decompose`` finds it. The cheapest placement is written into the mesh, and the sub-axes of the
programs are renamed. A mesh that is smaller than its machine gets the first children of some
levels: the best part of the machine, which is declared as a machine beside it.

Why: the links that an axis uses decide the cost of its collectives, by factors of 10 and more on
machines whose links differ as much.

When not: a mesh that is placed already stays as it is, and a remark says so. With ``again`` it is
placed anew, unless one of its functions names a part of an axis (``over data.gpu``).

    mesh @m on @cluster { data = 2, model = 4 }
becomes, if model sends more bytes,
    mesh @m on @cluster { data = node:2, model = gpu:4 }

Cost: never more than on any other placement, if the search ends within its limit. The results of
programs do not change. The programs that were costed are written by ``decompose``, not here.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.cost.model import CostModel
from collir.ir.functions import meshes_of
from collir.ir.remarks import remark
from collir.synthesis.placement.meshes import place, unplaced_meshes
from collir.synthesis.placement.placements import best_placements
from collir.synthesis.placement.unplacing import unplace
from collir.synthesis.placement.weights import weights_of
from collir.synthesis.searching import search_workers


@dataclass(frozen=True)
class PlacePass(ModulePass):
    """Place every mesh that has no placement on the levels of its machine, at the least cost.

    Attributes:
        model, algorithm, order: options of the cost model, as of the target cost.
        limit: seconds for each mesh; 0: no limit.
        workers: processes for a search that takes long.
        again: whether placed meshes whose functions name whole axes only are placed anew.
        weights: how often functions run, such as `weights="grads:1,activations:32"`; default 1.
    """

    name = "place"

    model: str = "auto"
    algorithm: str = "auto"
    order: str = "auto"
    limit: int = 60
    workers: int = 1
    again: bool = False
    weights: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.limit < 0 or self.workers < 1:
            raise ValueError("limit is 0 or more seconds, workers is 1 or more")
        CostModel(self.model, self.algorithm, self.order)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        model = CostModel(self.model, self.algorithm, self.order)
        weights = weights_of(self.weights, op)
        self._unplace_or_remark(op)
        for mesh in unplaced_meshes(op):
            with search_workers(self.workers):
                result = best_placements(op, mesh, model, 1, float(self.limit) or None, weights)
            if result.best:
                place(mesh, result.best[0].mesh)
            else:
                remark(mesh, f"{self.name} has found no placement of mesh @{mesh.sym_name.data}")

    def _unplace_or_remark(self, module: ModuleOp) -> None:
        """Unplace placed meshes if asked to, and remark those that stay."""
        for mesh in [op for op in meshes_of(module) if op.value().placed]:
            stays = f"{self.name} leaves mesh @{mesh.sym_name.data} where it is, on levels"
            if not self.again:
                remark(mesh, f"{stays}: {self.name}{{again=true}} places it anew")
            elif (function := unplace(module, mesh)) is not None:
                remark(mesh, f"{stays}: @{function.sym_name.data} names parts of its axes")
