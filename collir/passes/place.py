"""Place every mesh that has no placement on the levels of its machine, at the least cost.

What: a mesh such as ``{ data = 4, model = 4 }`` gets levels for its axes, such as ``{ data = node:2
* gpu:2, model = node:2 * gpu:2 }``. A placement costs the sending time of all functions on the
mesh, each times its weight; computations take the same time on every placement. Every collective
runs by its cheapest program, as ``decompose`` finds it. The cheapest placement is written into the
mesh, and the sub-axes of the programs are renamed. A mesh that is smaller than its machine gets the
first children of some levels: the best part of the machine, which is declared as a machine beside
it.

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

from collir.ir.functions import meshes_of
from collir.ir.remarks import remark
from collir.synthesis.options import ParallelOptions
from collir.synthesis.placement.meshes import place, unplaced_meshes
from collir.synthesis.placement.placements import best_placements
from collir.synthesis.placement.unplacing import unplace
from collir.synthesis.placement.weights import weights_of
from collir.synthesis.searching import search_workers


@dataclass(frozen=True)
class PlacePass(ParallelOptions, ModulePass):
    """Place every mesh that has no placement on the levels of its machine, at the least cost."""

    name = "place"

    limit: int = 60
    """Seconds for the search on each mesh; 0: no limit."""
    again: bool = False
    """Place anew the placed meshes whose functions name whole axes only."""
    weights: tuple[str, ...] = ()
    """The number of runs of each function, such as `weights="grads:1,activations:32"`; 1 by
    default."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        model = self.cost_model()
        weights = weights_of(self.weights, op)
        self._unplace_or_remark(op)
        for mesh in unplaced_meshes(op):
            with search_workers(self.workers):
                result = best_placements(op, mesh, model, 1, self.seconds, weights)
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
