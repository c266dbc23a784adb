"""The classes of devices of a program that differ in which steps they take part in.

Devices differ by the places of values. Where all places are at coordinate 0, the device at
coordinate 0 of all sub-axes takes part in all steps and stands for all devices, so there are no
classes. Otherwise there is a class for every combination of the coordinates that the program names
on the sub-axes on which a value is at another coordinate than 0.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from math import prod

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.steps import PlannedStep
from collir.layout import DistType, Mesh, Place, place_at
from collir.layout.types import place_text

MOST_CLASSES = 4096
"""The most classes of devices; a program with more has none, so that all steps share a device."""

Devices = frozenset[int] | None
"""The numbers of the classes that take part in a step; None stands for all of them."""


@dataclass(frozen=True)
class DeviceClasses:
    """The classes of devices of a program.

    Attributes:
        classes: the coordinates of each class on the sub-axes on which classes differ.
    """

    classes: tuple[dict[str, int], ...] = ()

    @staticmethod
    def of(types: Iterable[DistType]) -> "DeviceClasses":
        """Return the classes of a program whose values have these types."""
        named: dict[str, set[int]] = {}
        for x in types:
            for axis, coordinate in x.place:
                named.setdefault(axis, {0}).add(coordinate)
        spread = {axis: sorted(found) for axis, found in named.items() if len(found) > 1}
        if not spread or prod(map(len, spread.values())) > MOST_CLASSES:
            return DeviceClasses()
        chosen = product(*spread.values())
        return DeviceClasses(tuple(dict(zip(spread, one, strict=True)) for one in chosen))

    def text(self, number: int, mesh: Mesh) -> str:
        """Return the coordinates of a class as in a ``.coll`` file; empty if there are none."""
        return place_text(place_at(self.classes[number]), mesh) if self.classes else ""

    def at(self, *places: Place) -> Devices:
        """Return the classes at any of some places."""
        if not self.classes:
            return None
        return frozenset(
            number
            for number, own in enumerate(self.classes)
            if any(all(own.get(axis, n) == n for axis, n in place) for place in places)
        )

    def of_step(self, step: DistOp | PlannedStep) -> Devices:
        """Return the classes that take part in a step."""
        if not self.classes:
            return None
        x, y = _ends(step)
        if step.kind.pairs:
            return self.at(x.place, y.place)
        return self.at(x.without_place(step.over).place if step.kind.sends else y.place)


def _ends(step: DistOp | PlannedStep) -> tuple[DistType, DistType]:
    """Return the types of the first operand and of the result."""
    if isinstance(step, PlannedStep):
        return step.operands[0].type, step.result.type
    return dist_type(step.operands[0]), dist_type(step.result)
