"""The inputs and results of a calibration: measured times, fitted numbers, residuals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from collir.cost.collectives.collective import Collective


class CalibrationError(ValueError):
    """Measurements that no machine can be fitted to; ``source`` says where they come from."""

    def __init__(self, message: str, source: str = ""):
        super().__init__(f"{source}: {message}" if source else message)
        self.message = message
        self.source = source


@dataclass(frozen=True)
class Sample:
    """A collective on a mesh of the fitted machine, and the seconds it took.

    ``source`` says where the measurement comes from, such as ``file:line``.

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

    Attributes:
        low, high: the ends of its 95 % confidence interval, given noise as large as the residuals
            and provided that the model is right. If the number was not fitted, they are the ends
            of the range that the measurements allow.
        fitted: True if it was fitted.
        given: its value before the fit.
        reason: the reason why it was not fitted, or "".
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
    """A sample, and the seconds that the fitted machine predicts."""

    sample: Sample
    predicted: float

    @property
    def error(self) -> float:
        """The error relative to the measurement."""
        return self.predicted / self.sample.seconds - 1


def median_error(residuals: Sequence[Residual]) -> float:
    """Return the median of the absolute errors; NaN if there are no residuals."""
    return median(abs(residual.error) for residual in residuals) if residuals else math.nan


def worst_residual(residuals: Sequence[Residual]) -> Residual | None:
    """Return the residual whose ratio predicted / measured is furthest from 1, or None."""
    return max(residuals, key=lambda r: abs(math.log(r.predicted / r.sample.seconds)), default=None)
