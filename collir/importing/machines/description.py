"""A machine as a text describes it: its levels, with the source of each number."""

from dataclasses import dataclass

from collir.importing.values import Remark, TextPlace
from collir.machine.level import Level
from collir.machine.model import Device, Machine


@dataclass(frozen=True)
class LevelDescription:
    """A level, with sentences that name the sources of its numbers.

    ``parameter`` is the name of the machine's parameter for the size of the level, or empty.
    """

    level: Level
    sources: tuple[str, ...]
    parameter: str = ""


@dataclass(frozen=True)
class MachineDescription:
    """A machine as a text describes it; ``levels`` are listed outermost first.

    ``about`` is a sentence on the machine as a whole, ``place`` is the place where the text
    begins to describe it.

    ``nodes`` are the names of the devices if these are the nodes of a network. ``hosts`` is the
    number of hosts that the text describes, 0 if it is not of hosts; ``host_name`` is the name of
    the only one and its place, if the text has it.
    """

    about: str
    levels: tuple[LevelDescription, ...]
    place: TextPlace
    device: Device | None = None
    device_source: str = ""
    remarks: tuple[Remark, ...] = ()
    nodes: frozenset[str] = frozenset()
    hosts: int = 0
    host_name: tuple[str, TextPlace] = ("", TextPlace(1))

    def machine(self, name: str) -> Machine:
        """Return the machine under a name.

        Raises:
            MachineError: the levels make no machine.
        """
        return Machine(name, tuple(level.level for level in self.levels), self.device)
