"""Place every mesh that has no placement on the levels of its machine, the cheapest way.

What: a mesh such as ``{ data = 4, model = 4 }`` gets levels for its axes, such as ``{ data =
node:2 * gpu:2, model = node:2 * gpu:2 }``. Placements are costed with all functions on the mesh,
each collective under the cheapest program for it (that of ``decompose``), each function as often
as its weight says; the one of the smallest sum is written into the mesh, and the sub-axes of the
programs are renamed. A mesh that is smaller than its machine gets the first children of some
levels: the best part of the machine, which becomes a machine beside it.

Why: which axis lives on which links decides what its collectives cost, by factors of 10 and more
where links differ as much.

When not: meshes that are placed are left as they are, and a remark says so; with ``again``, those
with functions that name parts of axes (``over data.gpu``).

    mesh @m on @cluster { data = 2, model = 4 }
becomes, where model has the more to send,
    mesh @m on @cluster { data = node:2, model = gpu:4 }

Cost: never more than that of any other placement, if the search ended within the limit; what
programs compute stays the same. The programs it was costed with are for ``decompose`` to write.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.cost.model import CostModel
from collir.dialects.machine import MeshOp
from collir.ir.remarks import remark
from collir.synthesis.placement.meshes import place, unplaced_meshes
from collir.synthesis.placement.placements import best_placements
from collir.synthesis.placement.unplacing import unplace
from collir.synthesis.placement.weights import weights_of
from collir.synthesis.searching import search_workers


@dataclass(frozen=True)
class PlacePass(ModulePass):
    """Place every mesh that has no placement on the levels of its machine, the cheapest way.

    model, algorithm, order: of the costs, as of the target cost.
    limit: seconds for each mesh; 0: none. workers: processes for a search that takes long.
    weights: how often functions run, such as `weights="grads:1,activations:32"`; once, if not said.
    again: whether meshes on levels are placed anew, where their functions name whole axes only.
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
        for mesh in (one for one in op.ops if isinstance(one, MeshOp)):
            if mesh.value().placed:
                what = f"{self.name} leaves mesh @{mesh.sym_name.data} where it is, on levels"
                if not self.again:
                    remark(mesh, f"{what}: {self.name}{{again=true}} places it anew")
                elif (named := unplace(op, mesh)) is not None:
                    remark(mesh, f"{what}: @{named.sym_name.data} names parts of its axes")
        for mesh in unplaced_meshes(op):
            with search_workers(self.workers):
                found = best_placements(op, mesh, model, 1, float(self.limit) or None, weights)
            if found.found:
                place(mesh, found.found[0].mesh)
            else:
                remark(mesh, f"{self.name} has found no placement of mesh @{mesh.sym_name.data}")
