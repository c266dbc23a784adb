"""Place every mesh that has no placement on the levels of its machine, the cheapest way.

What: a mesh such as ``{ data = 4, model = 4 }`` gets levels for its axes, such as ``{ data =
node:2 * gpu:2, model = gpu:4 }``. All placements are costed with all functions on the mesh, each
under the cheapest strategy of ``decompose``; the one of the smallest sum is written into the mesh,
and the sub-axes of the programs are renamed.

Why: which axis lives on which links decides what its collectives cost, by factors of 10 and more
where links differ as much.

When not: meshes that are placed are left as they are.

    mesh @m on @cluster { data = 2, model = 4 }
becomes, where model has the more to send,
    mesh @m on @cluster { data = node:2, model = gpu:4 }

Cost: never more than that of any other placement under the same strategies, if the search ended
within the limit; what programs compute stays the same.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.cost.model import CostModel
from collir.synthesis.placements import best_placements, place, unplaced


@dataclass(frozen=True)
class PlacePass(ModulePass):
    """Place every mesh that has no placement on the levels of its machine, the cheapest way.

    model: of the costs, as of the target cost. limit: seconds for each mesh.
    """

    name = "place"

    model: str = "alpha-beta"
    limit: int = 60

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ValueError("limit is 0 or more seconds")
        CostModel(self.model)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for mesh in unplaced(op):
            found = best_placements(op, mesh, CostModel(self.model), 1, float(self.limit)).found
            if found:
                place(mesh, found[0].mesh)
