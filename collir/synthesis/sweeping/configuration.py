"""A configuration: what a sweep chooses for a training step."""

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from collir.layout.mesh import Axis, Factor
from collir.layout.pipelines.rules import RULES
from collir.machine import Machine

WHOLE_GRADIENTS, ADDED_PARTS = 1, 2
"""The stages of ZeRO that divide states and no weights: each device adds up whole gradients of
microbatches, or parts of them."""

PREFETCHED = 3
"""The stage of ZeRO from which on layers gather their weights, which they may do ahead."""

REPLICA = "replica"
"""The axis of the batch over which ZeRO divides nothing: each of its devices has a copy (HSDP)."""

CONTEXT = "context"
"""The axis that is added to divide the words of sequences (context parallelism)."""

SUMMED = "sum-in-place"
"""The pass behind which a loop over microbatches has one buffer for each sum of gradients."""

Recompute = bool | tuple[str, ...]
"""Recomputation in the backward pass: none, of whole layers, or of calls of functions in them."""

UNSTAGED = "none"
"""The schedule of a step that is cut into no stages."""


@dataclass(frozen=True)
class Configuration:
    """A configuration of a training step.

    Attributes:
        axes: the name of each axis of the mesh, and its factor at each level of the machine,
            outermost first; the product of all factors of a level is its size.
        pipeline: the name of the axis whose coordinates are stages.
        batch: the sequences (or images) of a step, of all devices together.
        microbatches: the number of microbatches that the batch is cut into.
        schedule: the order of tasks; ``UNSTAGED`` if there is one stage.
        chunks: the chunks of layers at each stage.
        layers: the layers of each chunk, if they are not equally many.
        recompute: whether the backward pass computes layers again, or the names of the functions
            whose calls alone it computes again.
        zero: the values divided over axes of the batch and of words: 0 none, 1 states of the
            optimiser, 2 also gradients that microbatches add up, 3 also parameters.
        sequence: the axes over which values between layers are divided along the sequence (sequence
            parallelism); weights stay divided over them.
    """

    axes: tuple[tuple[str, tuple[int, ...]], ...]
    pipeline: str
    batch: int
    microbatches: int
    schedule: str = UNSTAGED
    chunks: int = 1
    recompute: Recompute = False
    zero: int = 0
    sequence: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()

    @cached_property
    def degrees(self) -> dict[str, int]:
        """The size of each axis."""
        return {name: math.prod(factors) for name, factors in self.axes}

    @property
    def stages(self) -> int:
        """The number of stages."""
        return self.degrees.get(self.pipeline, 1)

    @property
    def copies(self) -> int:
        """The number of copies of the devices over which ZeRO divides."""
        return self.degrees.get(REPLICA, 1)

    def layers_of_stages(self, layers: int) -> list[int]:
        """Return the layers of each stage, in all its chunks, of a model of so many layers."""
        if not self.layers:
            return [layers // self.stages] * self.stages
        places = RULES[self.schedule].chunk_places(self.stages, self.chunks)
        counts = Counter[int]()
        for place, own in zip(places, self.layers, strict=True):
            counts[place] += own
        return [counts[place] for place in range(self.stages)]

    @property
    def devices(self) -> int:
        """The number of devices."""
        return math.prod(self.degrees.values())

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """The size of each level of the machine, outermost first."""
        return tuple(map(math.prod, zip(*(factors for _, factors in self.axes), strict=True)))

    def mesh_axes(self, machine: Machine) -> tuple[Axis, ...]:
        """Return the axes of the mesh on the levels of a machine; one stage or copy has none."""
        innermost = machine.levels[-1].name

        def placed(name: str, sizes: tuple[int, ...]) -> Axis:
            named = zip(machine.level_names, sizes, strict=True)
            factors = [Factor(level, size) for level, size in named if size > 1]
            return Axis.placed(name, factors or [Factor(innermost, 1)])

        return tuple(
            placed(name, sizes)
            for name, sizes in self.axes
            if name not in (self.pipeline, REPLICA) or self.degrees[name] > 1
        )

    @property
    def cut(self) -> str:
        """The passes that cut the batch and leave the steps that are needed, but cut no layers."""
        # The axis of stages is there, and has no stages yet.
        without = f"{{without={self.pipeline}}}" if self.stages > 1 else ""
        cut = f"microbatch{{microbatches={self.microbatches}}}"
        adds_up = self.stages > 1 or self.microbatches > 1
        rules = ["reduce-once=true"] if self.zero == WHOLE_GRADIENTS and adds_up else []
        if self.sequence:
            rules.append(f"keep-weights={','.join(self.sequence)}")
        options = f"{{{' '.join(rules)}}}" if rules else ""
        return (
            f"{cut},propagate{options},canonicalize,reorder-by-hierarchy{without},fuse{without},cse"
        )

    @property
    def passes(self) -> str:
        """The passes of a program of this configuration, up to the order of its steps."""
        passes = [self.cut]
        if self.stages > 1:
            chunks = f" chunks={self.chunks}" if self.chunks > 1 else ""
            layers = f" layers={','.join(map(str, self.layers))}" if self.layers else ""
            schedule = f"schedule={self.schedule}{chunks}{layers}"
            passes.append(f"pipeline{{axis={self.pipeline} {schedule}}}")
        elif self.microbatches > 1:
            passes.append(SUMMED)
        if self.zero >= PREFETCHED:
            passes += ["prefetch", "rotate"]
        return ",".join([*passes, "overlap"])
