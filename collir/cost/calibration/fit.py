"""The fit: settings of knobs, how sure they are, and which the measurements do not tell.

1. Every k-th point is held back: it is never looked at.
2. From the machine as given, each knob is tried over six decades; then least squares (problem.py).
3. A knob that explains none of the times, that cannot be told from another, or whose interval
   reaches zero or infinity, goes back to what the machine said, or as near to it as the
   measurements allow; the others are fitted again.
"""

import math
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collir.cost.calibration.knobs import FLOOR, START, knobs_of, machine_with_settings
from collir.cost.calibration.problem import (
    SMALL,
    STEP,
    FitProblem,
    Vector,
    residual_spread,
    scipy_function,
    soft_l1,
)
from collir.cost.calibration.values import CalibrationError, FittedParameter, Residual, Sample
from collir.cost.model import CostModel
from collir.machine import Machine

LEAST_SHARE = 1e-3
"""A knob that explains less than this of every time is not measured."""

ALIKE = 1e-4
"""Knobs are not told apart if some mixture of them changes times so many times less than each."""

LEVEL = 0.95
"""Of the intervals."""

TOLERATED = 1.92
"""How much more than the least the loss may be, in squared spreads: half of the 95 % quantile of
chi-squared with one degree of freedom."""

HALVINGS = 7
"""Steps in which it is found how near to its old number a knob may stay."""

FAR = 0.1
"""The spread of residuals at which a fit is in the right valley."""

COARSE = (-3, -2, -1, -0.5, 0.5, 1, 2, 3)
FINE = (-2, -1, -0.5, -0.25, -0.1, -0.03, 0.03, 0.1, 0.25, 0.5, 1, 2)
"""Powers of ten by which a knob is turned to look for a better valley."""

FEW = 60
"""Samples that are looked at from afar."""

VALLEYS = 4
"""How often another valley is looked for."""

EXACT = 1e-4
"""Spreads below this are taken for this: a model is not better."""

NARROW = 2.0
"""Spreads from which on a residual counts less than its square."""


@dataclass(frozen=True)
class Calibration:
    """A machine fitted to samples, and how well it explains them, and those held back.

    ``parameters`` are in the order of the levels, outermost first.
    """

    machine: Machine
    parameters: tuple[FittedParameter, ...]
    fitted: tuple[Residual, ...]
    held_back: tuple[Residual, ...]


def calibrate(
    machine: Machine,
    samples: Iterable[Sample],
    model: CostModel | None = None,
    held_back: float = 0.2,
    fixed: Collection[str] = (),
) -> Calibration:
    """Fits ports, latencies and the reduction rate (where the machine has one) to measured times.

    Args:
        samples: on meshes of ``machine``, or of one that differs in the numbers to fit only.
        model: how the collectives run; ``CostModel()`` takes the cheapest algorithm of each.
        held_back: the part of the points that is predicted only. Samples of the same collective
            are one point; every k-th point in the order of the samples is held back.
        fixed: names of parameters that stay as they are.

    Raises:
        CalibrationError: no samples, an unknown name, a collective that has no cost, or no scipy.
    """
    scipy_function("optimize", "least_squares")  # what is missing is said first
    model = model or CostModel()
    given = tuple(samples)
    used, kept = split_samples(given, held_back)
    if not used:
        raise CalibrationError("there are no measurements to fit to")
    knobs = tuple(knobs_of(machine))
    names = [knob.name for knob in knobs]
    if unknown := sorted(set(fixed) - set(names)):
        raise CalibrationError(
            f"machine @{machine.name} has no number '{unknown[0]}' to keep: it has "
            f"{', '.join(names)}"
        )
    fit = _Fit(FitProblem(machine, used, model, knobs), frozenset(fixed))
    fit.run()
    fitted = machine_with_settings(machine, knobs, fit.settings)
    return Calibration(fitted, fit.parameters(), _residuals(fit, used), _residuals(fit, kept))


def split_samples(
    samples: Sequence[Sample], part: float
) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """Those to fit to, and those to hold back: every k-th point, beginning in the middle of the
    first k.

    Raises:
        CalibrationError: a part that is not from 0 to 0.9.
    """
    if not 0 <= part <= 0.9:
        raise CalibrationError(f"the part that is held back is from 0 to 0.9, not {part:g}")
    points = {sample.collective: 0 for sample in samples}
    for place, one in enumerate(points):
        points[one] = place
    used: list[Sample] = []
    kept: list[Sample] = []
    for sample in samples:
        place = points[sample.collective]
        back = math.floor((place + 1) * part + 0.5) > math.floor(place * part + 0.5)
        (kept if back else used).append(sample)
    return tuple(used), tuple(kept)


def _residuals(fit: "_Fit", samples: tuple[Sample, ...]) -> tuple[Residual, ...]:
    if not samples:
        return ()
    problem = FitProblem(fit.problem.machine, samples, fit.problem.model, fit.problem.knobs)
    seconds = problem.seconds(fit.settings)
    return tuple(
        Residual(sample, float(time)) for sample, time in zip(samples, seconds, strict=True)
    )


class _Fit:
    """The knobs of a problem while they are turned."""

    def __init__(self, problem: FitProblem, fixed: frozenset[str]):
        self.problem = problem
        self.knobs = problem.knobs
        self.given = [knob.read(problem.machine) for knob in self.knobs]
        start = [
            value or START.get(knob.what, FLOOR[knob.what])
            for knob, value in zip(self.knobs, self.given, strict=True)
        ]
        self.logs: Vector = np.log(np.array(start))
        self.reasons: dict[int, str] = {}
        self.looked: set[int] = set()
        self.bounds: dict[int, tuple[float, float]] = {}
        crossed = self._crossed()
        for index, knob in enumerate(self.knobs):
            if knob.name in fixed:
                self._restore(index, "kept, as asked")
            elif knob.what != "reduction":
                level = problem.machine.levels[knob.level].name
                if level not in crossed:
                    self._restore(index, f"no measurement crosses level '{level}'")

    # --- what is known of the knobs ---------------------------------------------------------------

    @property
    def active(self) -> list[int]:
        """The knobs that are fitted."""
        return [index for index in range(len(self.knobs)) if index not in self.reasons]

    @property
    def settings(self) -> list[float]:
        """Of all knobs; one that has gone back to 0 or sank to the floor is 0."""
        return [self._setting(index) for index in range(len(self.knobs))]

    def _setting(self, index: int) -> float:
        value = float(np.exp(self.logs[index]))
        if self.knobs[index].what == "latency" and value <= FLOOR["latency"] * 1.01:
            return 0.0
        given = self.given[index]
        return given if given and abs(value / given - 1) < 1e-12 else value

    def _crossed(self) -> set[str]:
        """The levels over which the groups of some sample extend.

        Messages between their parents go through their ports too, but do not tell them from those
        of the parents.
        """
        levels = self.problem.machine.levels
        found: set[str] = set()
        for one in {sample.collective: None for sample in self.problem.samples}:
            for axis in one.axes:
                level = one.mesh.by_name[axis].level  # none in a mesh on the only level there is
                found |= {level} if level else {each.name for each in levels if each.size > 1}
        return found

    def _restore(self, index: int, reason: str) -> None:
        self.logs = self._with(index, 1.0)
        self.reasons[index] = reason

    def _with(self, index: int, part: float) -> Vector:
        """The logarithms with one of them moved part of the way to what the machine said."""
        moved = self.logs.copy()
        given = self.given[index] or FLOOR[self.knobs[index].what]
        moved[index] += part * (math.log(given) - moved[index])
        return moved

    # --- the fit ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Fits, and takes out what the measurements do not tell, one by one."""
        self._search()
        while (found := self._untold()) is not None:
            self._withdraw(*found)

    def _search(self) -> None:
        """From afar: all knobs by one factor, then each by powers of ten, then downhill.

        Again from there, until no knob is better elsewhere: one that explained nothing where it
        was may explain what is left.
        """
        few = self._few()
        if self.active:
            self.logs = self.logs.copy()
            self.logs[self.active] -= float(np.median(few.residuals(self.logs)))
            self.logs = self.problem.clipped(self.logs)
        for valley in range(VALLEYS):
            before = self.logs
            for index in self.active * 2:
                self._sweep(few, index, COARSE)
            if valley and np.array_equal(before, self.logs):
                break
            self._descend()

    def _few(self) -> FitProblem:
        """Some of the samples, any: enough to find the right valley."""
        samples = self.problem.samples
        if len(samples) > FEW:
            samples = tuple(random.Random(0).sample(samples, FEW))
        return replace(self.problem, samples=samples)

    def _sweep(self, problem: FitProblem, index: int, steps: Sequence[float]) -> None:
        """Turns a knob to where the loss is least, if that is more than noise could make it."""
        residuals = problem.residuals(self.logs)
        noise = min(FAR, residual_spread(residuals, len(self.active)))
        least = soft_l1(residuals, FAR) - TOLERATED * noise**2
        start = self.logs
        for step in steps:
            moved = start.copy()
            moved[index] += step * math.log(10)
            moved = problem.clipped(moved)
            loss = soft_l1(problem.residuals(moved), FAR)
            if loss < least:
                least, self.logs = loss, moved

    def _descend(self) -> None:
        """Least squares, with the scale of outliers from the residuals that are left."""
        scale = max(FAR, NARROW * self._spread())
        for _ in range(4):
            self.logs = self.problem.fit(self.logs, self.active, scale)
            wanted = self._scale()
            if abs(math.log(wanted / scale)) < 0.05:
                break
            scale = wanted

    def _spread(self) -> float:
        return residual_spread(self.problem.residuals(self.logs), len(self.active))

    # --- what the measurements tell ---------------------------------------------------------------

    def _relative(self) -> Vector:
        """Half the widths of the intervals of the active knobs, relative to their settings.

        Those of an estimate with a bounded influence (Huber 1981, 7.6), with Student's quantile.
        Infinite where there are no more samples than knobs.
        """
        active = self.active
        count, free = len(self.problem.samples), len(self.problem.samples) - len(active)
        if free <= 0:
            return np.full(len(active), math.inf)
        residuals = self.problem.residuals(self.logs)
        ratio = 1 + (residuals / self._scale()) ** 2
        pull, slope = residuals / np.sqrt(ratio), ratio**-1.5
        mean = float(np.mean(slope))
        correction = 1 + len(active) / count * float(np.var(slope)) / mean**2
        variance = correction**2 * float(np.sum(pull**2)) / free / mean**2
        shares = self.problem.shares(self.logs, active)
        norms = np.linalg.norm(shares, axis=0)
        columns = shares / np.where(norms > 0, norms, 1)
        inverse = np.diag(np.linalg.pinv(columns.T @ columns))
        quantile = float(scipy_function("special", "stdtrit")(free, (1 + LEVEL) / 2))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(norms > 0, quantile * np.sqrt(variance * inverse) / norms, math.inf)

    def _untold(self) -> tuple[int, str] | None:
        """A knob that the measurements do not tell, and why; the worst first."""
        active = self.active
        if not active:
            return None
        shares = self.problem.shares(self.logs, active)
        other = self.problem.shares(self.logs, active, -STEP)
        most = np.max(np.minimum(np.abs(shares), np.abs(other)), axis=0)
        if most.min() < LEAST_SHARE:
            index = active[int(np.argmin(most))]
            if index not in self.looked:
                self.looked.add(index)
                if self._look(index):
                    return self._untold()
            return index, f"it explains less than {LEAST_SHARE:.1%} of every time"
        if (alike := self._alike(shares / np.linalg.norm(shares, axis=0))) is not None:
            return alike
        if len(self.problem.samples) <= len(active):
            return None
        widths = self._relative()
        if widths.max() >= 1:
            index = active[int(np.argmax(widths))]
            return index, "the measurements only bound it"
        return None

    def _look(self, index: int) -> bool:
        """Whether a knob that explains nothing explains more where it is turned elsewhere, with the
        others fitted again."""
        if np.abs(self.problem.residuals(self.logs)).max() < EXACT:
            return False
        scale = max(FAR, NARROW * self._spread())
        least = soft_l1(self.problem.residuals(self.logs), scale)
        least -= TOLERATED * max(self._spread(), EXACT) ** 2
        found = None
        for step in FINE:
            moved = self.logs.copy()
            moved[index] += step * math.log(10)
            moved = self.problem.fit(self.problem.clipped(moved), self.active, scale)
            loss = soft_l1(self.problem.residuals(moved), scale)
            if loss < least:
                least, found = loss, moved
        if found is None:
            return False
        self.logs = found
        self._descend()
        return True

    def _alike(self, columns: Vector) -> tuple[int, str] | None:
        """One of the knobs that times do not tell apart: first the reduction, then latencies."""
        _, values, vectors = np.linalg.svd(columns)
        rank = int(np.sum(values > ALIKE))
        if rank == columns.shape[1]:
            return None
        together = [
            self.active[place]
            for place in range(columns.shape[1])
            if np.abs(vectors[rank:, place]).max() > 0.05
        ]
        order = ("reduction", "latency", "port")
        chosen = min(together, key=lambda index: (order.index(self.knobs[index].what), index))
        names = " and ".join(self.knobs[index].name for index in together if index != chosen)
        return chosen, f"it cannot be told from {names}"

    def _withdraw(self, index: int, reason: str) -> None:
        """Takes a knob out of the fit, as near to what the machine said as the measurements allow.

        How near is found by halving, each time with the others fitted again.
        """
        width = float(self._relative()[self.active.index(index)])
        low, high = self._interval(index, width)
        scale = self._scale()
        most = soft_l1(self.problem.residuals(self.logs), scale)
        most += TOLERATED * max(self._spread(), EXACT) ** 2
        self.reasons[index] = reason
        nearest, part, step = self.logs, 1.0, 0.5
        for _ in range(HALVINGS):
            tried = self.problem.fit(self._with(index, part), self.active, scale)
            allowed = soft_l1(self.problem.residuals(tried), scale) <= most
            if allowed:
                nearest = tried
                if part == 1.0:
                    break
            part += step if allowed else -step
            step /= 2
        self.logs = nearest
        value = self._setting(index)
        self.bounds[index] = min(low, value), max(high, value)
        self._descend()

    def _scale(self) -> float:
        return max(SMALL, NARROW * self._spread())

    def _interval(self, index: int, width: float) -> tuple[float, float]:
        """Of the setting of a knob; times are linear in settings, so it is symmetric."""
        value = self._setting(index)
        if math.isinf(width):
            return 0.0, math.inf
        return max(0.0, value * (1 - width)), value * (1 + width)

    def parameters(self) -> tuple[FittedParameter, ...]:
        """All knobs, as the machine says them."""
        widths = dict(zip(self.active, self._relative(), strict=True))
        for index, width in widths.items():
            self.bounds[index] = self._interval(index, float(width))
        return tuple(self._parameter(index) for index in range(len(self.knobs)))

    def _parameter(self, index: int) -> FittedParameter:
        knob = self.knobs[index]
        fitted = index not in self.reasons
        ends = self.bounds.get(index, (0.0, math.inf))
        low, high = sorted(knob.shown(end) for end in ends)
        given = knob.said(self.problem.machine)
        same = self._setting(index) == self.given[index]
        value = given if same else knob.shown(self._setting(index))
        return FittedParameter(
            knob.name, value, low, high, fitted, given, self.reasons.get(index, "")
        )
