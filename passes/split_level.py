"""Put the children of a switch in groups: one level of a machine becomes several.

What: a level such as ``gpu[16]`` becomes ``gpu_0[4]`` and ``gpu_1[4]``, and what meshes have on it
is on both. The port of a group is made of those of its children, one rail for each.

Why: strategies are sequences of steps over sub-axes. With a level in groups they may reduce inside
a group first and between groups then: rings of 4 and 4 instead of one of 16 have fewer messages
one behind the other; and where the children of a level are in fact wired in groups, the numbers of
the new levels can be written down.

When not: levels that are no switch, and axes that lie across the groups, are errors.

    mesh @m on @box { data = gpu:8, model = gpu:2 }
becomes, by split-level{level=gpu into=4,4},
    mesh @m on @box { data = gpu_0:4 * gpu_1:2, model = gpu_1:2 }

Cost: messages take what they did; of algorithms that go level by level (trees, pairwise exchanges)
more or fewer may be sent one behind the other.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.synthesis.placement.levels import split_level


@dataclass(frozen=True)
class SplitLevelPass(ModulePass):
    """Put the children of a switch in groups: one level of a machine becomes several.

    level: its name. into: how many groups, and how many in each, such as `into=4,4`.
    """

    name = "split-level"

    level: str
    into: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.into) < 2 or min(self.into) < 1:
            raise ValueError("into is two numbers or more, such as into=4,4")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        split_level(op, self.level, self.into)
