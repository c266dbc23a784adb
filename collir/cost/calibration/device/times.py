"""Files of the times of probes: what ran them, and a line for each."""

from collections.abc import Iterator
from dataclasses import dataclass

from collir.cost.calibration.device.probes import Probe
from collir.cost.calibration.values import CalibrationError

HEAD = "# Times of small programs on a device, from `collir calibrate --device`."
"""The first line of a file."""

_WORDS = ("library", "device", "cores", "memory")


@dataclass(frozen=True)
class ProbeTiming:
    """A probe, and the seconds that a run took; ``line`` is its line in a file."""

    probe: Probe
    seconds: float
    line: int = 0


@dataclass(frozen=True)
class DeviceTimes:
    """The times of probes on a device.

    Attributes:
        library: the library that ran them, with its version.
        device: the device, in words.
        cores: its processors that work on one product.
        memory: bytes.
    """

    library: str
    device: str
    cores: int
    memory: float
    timings: tuple[ProbeTiming, ...]

    @property
    def text(self) -> str:
        """The text of a file."""
        return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        yield HEAD
        yield f"library {self.library}"
        yield f"device {self.device}"
        yield f"cores {self.cores}"
        yield f"memory {self.memory:.0f}"
        yield "# program, element type, sizes, seconds of a call"
        for timing in self.timings:
            yield f"{timing.probe.name} {timing.seconds:.4g}"


def parse_times(text: str, file: str) -> DeviceTimes:
    """Return the times of a file.

    Raises:
        CalibrationError: a line is not one of such a file, or a word about the device is missing.
    """
    words: dict[str, str] = {}
    timings: list[ProbeTiming] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        first, _, rest = line.partition(" ")
        try:
            if first in _WORDS:
                words[first] = rest.strip()
                if first in ("cores", "memory"):
                    _positive(float(rest))
            else:
                timings.append(_timing(line, number))
        except ValueError as error:
            raise CalibrationError(str(error), f"{file}:{number}") from error
    for word in _WORDS:
        if word not in words:
            raise CalibrationError(
                f"there is no line '{word} ...', which `collir calibrate --device --save` writes",
                f"{file}:1",
            )
    cores, memory = int(float(words["cores"])), float(words["memory"])
    return DeviceTimes(words["library"], words["device"], cores, memory, tuple(timings))


def _positive(number: float) -> float:
    if not 0 < number < 1e30:
        raise ValueError(f"a number above 0 is needed, not {number:g}")
    return number


def _timing(line: str, number: int) -> ProbeTiming:
    words = line.split()
    if len(words) != 4:
        raise ValueError("a line has a program, a type, sizes and seconds: `map:exp f32 240 1e-6`")
    return ProbeTiming(Probe.named(*words[:3]), _positive(float(words[3])), number)
