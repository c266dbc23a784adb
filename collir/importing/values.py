"""What a reader gives back: levels, where each of their numbers is from, and what is odd."""

from dataclasses import dataclass, field

from collir.machine.model import Device, Level, Machine


@dataclass(frozen=True, order=True)
class Place:
    """A place in a text; line and column count from 1."""

    line: int
    column: int = 1


@dataclass(frozen=True)
class Remark:
    """Something odd in a text, and what was assumed of it."""

    message: str
    place: Place


class ReadError(ValueError):
    """A text that no machine can be made of: what is wrong, and where."""

    def __init__(self, message: str, place: Place):
        super().__init__(message)
        self.message = message
        self.place = place


@dataclass(frozen=True)
class Described:
    """A level, and sentences on where its numbers are from.

    ``parameter`` is the name of the machine's parameter that its size is, or empty.
    """

    level: Level
    sources: tuple[str, ...]
    parameter: str = ""


@dataclass(frozen=True)
class Reading:
    """What a text says of a machine: its levels, outermost first.

    ``about`` is a sentence on the whole, ``place`` where the text begins to speak of the machine.
    """

    about: str
    levels: tuple[Described, ...]
    place: Place
    device: Device | None = None
    device_source: str = ""
    remarks: tuple[Remark, ...] = field(default=())

    def machine(self, name: str) -> Machine:
        """The machine.

        Raises:
            MachineError: it cannot exist.
        """
        return Machine(name, tuple(one.level for one in self.levels), self.device)


def shown(text: str) -> str:
    """A text of the input as a message quotes it: not too long, in one line."""
    cut = text if len(text) <= 40 else f"{text[:40]}..."
    return "".join(c if c.isprintable() else "?" for c in cut)
