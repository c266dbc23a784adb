"""What a calibration takes and gives back: measured times, numbers of a machine, errors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from collir.cost.collectives.collective import Collective


class CalibrationError(ValueError):
    """Measurements that no machine can be fitted to; ``message`` says why, ``source`` of which."""

    def __init__(self, message: str, source: str = ""):
        super().__init__(f"{source}: {message}" if source else message)
        self.message = message
        self.source = source


@dataclass(frozen=True)
class Sample:
    """A collective, on a mesh of the machine that is fitted, and the seconds it took.

    ``source`` says where that was measured, such as ``file:line``.

    Raises:
        CalibrationError: the time is not positive and finite.
    """

    collective: Collective
    seconds: float
    source: str = ""

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise CalibrationError(f"a time must be positive, not {self.seconds:g}", self.source)


@dataclass(frozen=True)
class FittedParameter:
    """A number of a machine after the fit, such as ``node.port``; in SI units.

    ``low`` and ``high`` are the ends of its 95 % interval: what noise of the size of the residuals
    leaves open, if the model is right. ``given`` is what the machine said before. Where it is not
    ``fitted``, ``reason`` says why, and the interval is all that the measurements allow.
    """

    name: str
    value: float
    low: float
    high: float
    fitted: bool
    given: float
    reason: str = ""


@dataclass(frozen=True)
class Residual:
    """A sample beside what the fitted machine predicts, in seconds."""

    sample: Sample
    predicted: float

    @property
    def error(self) -> float:
        """Relative to the measurement."""
        return self.predicted / self.sample.seconds - 1


def median_error(residuals: Sequence[Residual]) -> float:
    """The median of the errors' absolute values; NaN of none."""
    return median(abs(one.error) for one in residuals) if residuals else math.nan


def worst_residual(residuals: Sequence[Residual]) -> Residual | None:
    """The residual that is furthest from 1, as a ratio; None of none."""
    return max(
        residuals, key=lambda one: abs(math.log(one.predicted / one.sample.seconds)), default=None
    )
