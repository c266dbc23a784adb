"""Estimates of configurations, by kind and number of stages."""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

from collir.layout.mesh import MeshError
from collir.layout.pipelines.rules import RULES
from collir.machine import Machine
from collir.machine.level import MachineError
from collir.synthesis.sweeping.configuration import (
    ADDED_PARTS,
    WHOLE_GRADIENTS,
    Configuration,
    Recompute,
)
from collir.synthesis.sweeping.groups import ConfigurationEstimate, ConfigurationGroup
from collir.synthesis.sweeping.ingredients import MICROBATCHES, Costs
from collir.synthesis.sweeping.prices import MeshPrices


class ProgramKind(NamedTuple):
    """The common steps of the programs of some configurations.

    The axis of the batch is in all of them, as a collective over one device costs nothing.

    Attributes:
        wide: the other axes larger than 1, without the axis of stages.
        once: whether there is one microbatch and one stage, so that no loop adds up gradients.
        staged: whether there are several stages.
        splits: whether gradients of weights are tasks of their own.
        sequence: whether sequences are divided over the axes of weights.
    """

    wide: tuple[str, ...]
    recompute: Recompute
    zero: int
    once: bool = False
    staged: bool = False
    splits: bool = False
    sequence: bool = False

    @property
    def unstaged(self) -> "ProgramKind":
        """The kind of the program before it is cut into stages."""
        return self._replace(staged=False, splits=False)


def kind_of(configuration: Configuration, data: str) -> ProgramKind:
    """Return the kind of a configuration, whose batch has an axis of this name."""
    rule = RULES.get(configuration.schedule)
    fixed = data, configuration.pipeline
    sizes = configuration.degrees.items()
    wide = tuple(name for name, size in sizes if size > 1 and name not in fixed)
    splits = bool(rule and rule.splits[0])
    staged = configuration.stages > 1
    once, zero = not staged and configuration.microbatches == 1, configuration.zero
    if once and zero == WHOLE_GRADIENTS:
        zero = ADDED_PARTS  # nothing is added up, so that the programs are the same
    sequence = bool(configuration.sequence)
    return ProgramKind(wide, configuration.recompute, zero, once, staged, splits, sequence)


def _by_program(kind: ProgramKind) -> tuple[str, bool, bool]:
    return repr(kind.unstaged), kind.staged, kind.splits


Rows = tuple[tuple[int, ...], ...]
"""The values of the batch, of its axis and of the wide axes."""


class Estimator:
    """Estimates of configurations of one training step on machines of one kind."""

    def __init__(
        self,
        machine: Machine,
        layers: int,
        data: str,
        costs: Callable[[Sequence[tuple[ProgramKind, Rows]]], Iterable[Costs | str]],
    ) -> None:
        """Prepare estimates.

        Args:
            layers: the layers of the model.
            data: the name of the axis of the batch.
            costs: function from kinds and their rows to their costs, or to reasons for having none.
        """
        self.prices, self.layers, self.data, self.costs = MeshPrices(machine), layers, data, costs

    def estimates(
        self, configurations: Iterable[Configuration]
    ) -> Generator[tuple[Configuration, ConfigurationEstimate | str]]:
        """Yield the estimate of each configuration, or why it is impossible, kind by kind."""
        groups: dict[ProgramKind, list[tuple[Configuration, int, int]]] = defaultdict(list)
        rows: dict[ProgramKind, dict[tuple[int, ...], int]] = defaultdict(dict)
        for configuration in configurations:
            kind = kind_of(configuration, self.data)
            known = rows[kind]
            own, whole = (
                known.setdefault(self._row(configuration, kind, batch), len(known))
                for batch in (self._batch(configuration, kind), configuration.batch)
            )
            groups[kind].append((configuration, own, whole))
        asked = [(kind, tuple(rows[kind])) for kind in sorted(rows, key=_by_program)]
        for (kind, _), costs in zip(asked, self.costs(asked), strict=True):
            if isinstance(costs, str):
                yield from ((configuration, costs) for configuration, *_ in groups[kind])
            else:
                yield from self._of_kind(costs, groups[kind])

    def _batch(self, configuration: Configuration, kind: ProgramKind) -> int:
        """Return the batch that gives a kind's program the microbatches of a configuration."""
        times = 1 if kind.once else MICROBATCHES
        return configuration.batch // configuration.microbatches * times

    def _row(self, configuration: Configuration, kind: ProgramKind, batch: int) -> tuple[int, ...]:
        """Return the values of the batch and of axes in the program of a kind."""
        degrees = configuration.degrees
        return batch, degrees[self.data], *(degrees[name] for name in kind.wide)

    def _of_kind(
        self, costs: Costs, entries: Iterable[tuple[Configuration, int, int]]
    ) -> Iterator[tuple[Configuration, ConfigurationEstimate | str]]:
        groups: dict[tuple[object, ...], list[tuple[Configuration, int, int, int]]]
        groups = defaultdict(list)
        for c, row, whole in entries:
            if not costs.whole[row]:
                yield c, "a dimension does not divide by the size of an axis"
                continue
            try:
                mesh = self.prices.number(c)
            except (MachineError, MeshError) as error:
                yield c, str(error)
                continue
            groups[c.schedule, c.stages, c.chunks, c.layers].append((c, row, whole, mesh))
        for group in groups.values():
            own, *columns = zip(*group, strict=True)
            yield from zip(
                own,
                ConfigurationGroup(self.prices, self.layers, costs, own, *columns).estimates(),
                strict=True,
            )
