"""The fit of a machine to measurements: settings of knobs, their intervals, and undetermined knobs.

1. Every k-th point is held back and not used in the fit.
2. Starting from the given machine, each knob is tried over six decades; then the knobs are fitted
   by least squares (problem.py).
3. A knob is undetermined if it explains no part of the times, if it cannot be told from another
   knob, or if its interval reaches zero or infinity. It goes back to the given value, or as near to
   it as the measurements allow, and the other knobs are fitted again.
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
"""A knob that explains a smaller part than this of every time is undetermined."""

UNSEEN = "it explains less than"
"""The first words of the reason of a knob that explains no part of the times."""

ALIKE = 1e-4
"""Knobs are alike if a combination of them changes times by this factor less than each alone."""

LEVEL = 0.95
"""Confidence level of the intervals."""

TOLERATED = 1.92
"""Tolerated excess of the loss over its minimum, in squared spreads: half of the 95 % quantile of
chi-squared with one degree of freedom."""

HALVINGS = 7
"""Bisection steps to find how near to its given value a knob may stay."""

FAR = 0.1
"""Scale of residuals in the search for the right valley of the loss."""

COARSE = (-3, -2, -1, -0.5, 0.5, 1, 2, 3)
FINE = (-2, -1, -0.5, -0.25, -0.1, -0.03, 0.03, 0.1, 0.25, 0.5, 1, 2)
"""Powers of ten by which a knob is changed to look for a better valley."""

FEW = 60
"""Largest number of samples in the search for a valley."""

VALLEYS = 4
"""Largest number of searches for another valley."""

EXACT = 1e-4
"""Smallest spread: no model is more accurate."""

NARROW = 2.0
"""Size of residuals, in spreads, from which they count less than their squares."""


@dataclass(frozen=True, repr=False)
class Calibration:
    """A machine fitted to samples.

    Attributes:
        parameters: the numbers of the machine, outermost level first.
        fitted: the residuals of the samples used in the fit.
        held_back: the residuals of the samples held back.
    """

    machine: Machine
    parameters: tuple[FittedParameter, ...]
    fitted: tuple[Residual, ...]
    held_back: tuple[Residual, ...]

    def __repr__(self) -> str:
        count = sum(parameter.fitted for parameter in self.parameters)
        return (
            f"<Calibration of @{self.machine.name}: {count} of {len(self.parameters)} numbers "
            f"fitted to {len(self.fitted)} times, {len(self.held_back)} held back>"
        )


def calibrate(
    machine: Machine,
    samples: Iterable[Sample],
    model: CostModel | None = None,
    held_back: float = 0.2,
    fixed: Collection[str] = (),
) -> Calibration:
    """Fit the ports, the latencies and the reduction rate (if any) of a machine to measured times.

    Args:
        samples: measurements on meshes of ``machine``, or of a machine that differs only in the
            numbers to fit.
        model: the cost model of the collectives.
        held_back: the part of the points that is only predicted. Samples of the same collective
            are one point; every k-th point in the order of the samples is held back.
        fixed: the names of the parameters to keep.

    Raises:
        CalibrationError: no samples, an unknown name, or a collective that has no cost.
    """
    model = model or CostModel()
    points = tuple(samples)
    used, kept = split_samples(points, held_back)
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
    moved = [n for n in range(len(knobs)) if fit.settings[n] != fit.given[n]]
    fitted = machine_with_settings(
        machine, [knobs[n] for n in moved], [fit.settings[n] for n in moved]
    )
    return Calibration(fitted, fit.parameters(), _residuals(fit, used), _residuals(fit, kept))


def unfitted(machine: Machine, reason: str) -> Calibration:
    """Return a machine as it is, with the reason why its numbers were not fitted."""
    values = [(knob.name, knob.machine_value(machine)) for knob in knobs_of(machine)]
    parameters = [
        FittedParameter(name, value, 0.0, math.inf, False, value, reason) for name, value in values
    ]
    return Calibration(machine, tuple(parameters), (), ())


def split_samples(
    samples: Sequence[Sample], part: float
) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """Return the samples to fit to, and the samples to hold back.

    Every k-th point is held back, beginning in the middle of the first k points.

    Raises:
        CalibrationError: a part that is not from 0 to 0.9.
    """
    if not 0 <= part <= 0.9:
        raise CalibrationError(f"the part that is held back is from 0 to 0.9, not {part:g}")
    collectives = dict.fromkeys(sample.collective for sample in samples)
    point_of = {collective: point for point, collective in enumerate(collectives)}
    used: list[Sample] = []
    kept: list[Sample] = []
    for sample in samples:
        point = point_of[sample.collective]
        back = math.floor((point + 1) * part + 0.5) > math.floor(point * part + 0.5)
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
    """The state of a fit: the settings of all knobs, and the reasons of those not fitted."""

    def __init__(self, problem: FitProblem, fixed: frozenset[str]):
        self.problem = problem
        self.knobs = problem.knobs
        self.given = [knob.setting(problem.machine) for knob in self.knobs]
        start = [
            value or START.get(knob.what, FLOOR[knob.what])
            for knob, value in zip(self.knobs, self.given, strict=True)
        ]
        self.logs: Vector = np.log(np.array(start))
        self.reasons: dict[int, str] = {}
        self.moved: set[int] = set()
        self.bounds: dict[int, tuple[float, float]] = {}
        crossed = self._crossed()
        for index, knob in enumerate(self.knobs):
            if knob.name in fixed:
                self._restore(index, "kept, as asked")
            elif knob.what != "reduction":
                level = knob.level_of(problem.machine).name
                if level not in crossed:
                    self._restore(index, f"no measurement crosses level '{level}'")

    # --- the knobs --------------------------------------------------------------------------------

    @property
    def active(self) -> list[int]:
        """The indices of the knobs that are fitted."""
        return [index for index in range(len(self.knobs)) if index not in self.reasons]

    @property
    def settings(self) -> list[float]:
        """The settings of all knobs; a latency at its smallest setting is 0."""
        return [self._setting(index) for index in range(len(self.knobs))]

    def _setting(self, index: int) -> float:
        value = float(np.exp(self.logs[index]))
        if self.knobs[index].what == "latency" and value <= FLOOR["latency"] * 1.01:
            return 0.0
        given = self.given[index]
        return given if given and abs(value / given - 1) < 1e-12 else value

    def _crossed(self) -> set[str]:
        """Return the names of the levels over which the groups of some sample extend.

        The ports of other levels carry messages between parents too, but these do not tell them
        from the ports of the parents' level.
        """
        levels = self.problem.machine.levels
        crossed: set[str] = set()
        for collective in {sample.collective: None for sample in self.problem.samples}:
            if levels[0].parents and (parents := collective.group().levels[0].parents):
                crossed.add(parents.level.name)
            for axis in collective.axes:
                level = collective.mesh.by_name[axis].level
                if level:
                    crossed.add(level)
                else:  # an unplaced mesh, on a machine with a single level of several children
                    crossed |= {only.name for only in levels if only.size > 1}
        return crossed

    def _restore(self, index: int, reason: str) -> None:
        """Set a knob to the machine's value, and do not fit it."""
        self.logs = self._with(index, 1.0)
        self.reasons[index] = reason

    def _with(self, index: int, part: float) -> Vector:
        """Return the logarithms with one of them moved part of the way to the machine's value."""
        moved = self.logs.copy()
        given = self.given[index] or FLOOR[self.knobs[index].what]
        moved[index] += part * (math.log(given) - moved[index])
        return moved

    # --- the fit ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Fit all knobs, then withdraw undetermined knobs one by one."""
        self._search()
        self._settle()
        if self._blame_outer():
            self._settle()

    def _settle(self) -> None:
        """Withdraw undetermined knobs one by one."""
        while (undetermined := self._undetermined()) is not None:
            self._withdraw(*undetermined)

    def _blame_outer(self) -> bool:
        """Fit the port of an outer level in the place of an inner one where that explains the times
        as well; return whether there is one.

        A group over several levels waits for its slowest port, so its times may tell of no other.
        """
        swapped = False
        ports = [index for index, knob in enumerate(self.knobs) if knob.what == "port"]
        for inner in reversed(ports):
            outers = [x for x in ports if x < inner and self.reasons.get(x, "").startswith(UNSEEN)]
            if inner in self.reasons or self._setting(inner) == self.given[inner]:
                continue
            for outer in outers:
                if (logs := self._with_other(inner, outer)) is not None:
                    name = self.knobs[outer].name
                    self.bounds[inner] = 0.0, self._setting(inner)  # seconds of a byte
                    self.reasons[inner] = f"{name} explains the times as well"
                    del self.reasons[outer]
                    self.logs, swapped = logs, True
                    break
        return swapped

    def _with_other(self, old: int, new: int) -> Vector | None:
        """Return the logarithms with one knob at the machine's value and another fitted in its
        place; None if they explain the times less well."""
        scale = self._scale()
        most = soft_l1(self.problem.residuals(self.logs), scale)
        most += TOLERATED * max(self._spread(), EXACT) ** 2
        active = [new, *(index for index in self.active if index != old)]
        start = self._with(old, 1.0)
        for step in (0.0, *COARSE, *FINE):
            moved = start.copy()
            moved[new] += step * math.log(10)
            moved = self.problem.fit(self.problem.clipped(moved), active, scale)
            if soft_l1(self.problem.residuals(moved), scale) <= most:
                return moved
        return None

    def _search(self) -> None:
        """Find a good start and fit: all knobs by one factor, then each by powers of ten.

        This is repeated until no knob is better elsewhere, as a knob that explained nothing at its
        old setting may explain the times that are left.
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
        """Return the problem with a random choice of samples, enough to find the right valley."""
        samples = self.problem.samples
        if len(samples) > FEW:
            samples = tuple(random.Random(0).sample(samples, FEW))
        return replace(self.problem, samples=samples)

    def _sweep(self, problem: FitProblem, index: int, steps: Sequence[float]) -> None:
        """Set a knob to the step with the least loss, if the gain is more than noise."""
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
        """Fit by least squares, adapting the scale of outliers to the remaining residuals."""
        scale = max(FAR, NARROW * self._spread())
        for _ in range(4):
            self.logs = self.problem.fit(self.logs, self.active, scale)
            new_scale = self._scale()
            if abs(math.log(new_scale / scale)) < 0.05:
                break
            scale = new_scale

    def _spread(self) -> float:
        return residual_spread(self.problem.residuals(self.logs), len(self.active))

    # --- intervals and undetermined knobs ---------------------------------------------------------

    def _relative_widths(self) -> Vector:
        """Return half the widths of the active knobs' intervals, relative to their settings.

        They are those of an M-estimate (Huber 1981, 7.6), with Student's quantile, and infinite if
        there are no more samples than knobs.
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

    def _undetermined(self) -> tuple[int, str] | None:
        """Return the worst undetermined knob and the reason, or None."""
        active = self.active
        if not active:
            return None
        shares = self.problem.shares(self.logs, active)
        backward = self.problem.shares(self.logs, active, -STEP)
        most = np.max(np.minimum(np.abs(shares), np.abs(backward)), axis=0)
        if most.min() < LEAST_SHARE:
            index = active[int(np.argmin(most))]
            if index not in self.moved:
                self.moved.add(index)
                if self._move(index):
                    return self._undetermined()
            return index, f"{UNSEEN} {LEAST_SHARE:.1%} of every time"
        if (alike := self._alike(shares / np.linalg.norm(shares, axis=0))) is not None:
            return alike
        if len(self.problem.samples) <= len(active):
            return None
        widths = self._relative_widths()
        if widths.max() >= 1:
            index = active[int(np.argmax(widths))]
            return index, "the measurements only bound it"
        return None

    def _move(self, index: int) -> bool:
        """Move a knob that explains nothing to where it explains more, and fit all knobs again.

        Return whether there is such a setting.
        """
        if np.abs(self.problem.residuals(self.logs)).max() < EXACT:
            return False
        scale = max(FAR, NARROW * self._spread())
        least = soft_l1(self.problem.residuals(self.logs), scale)
        least -= TOLERATED * max(self._spread(), EXACT) ** 2
        best = None
        for step in FINE:
            moved = self.logs.copy()
            moved[index] += step * math.log(10)
            moved = self.problem.fit(self.problem.clipped(moved), self.active, scale)
            loss = soft_l1(self.problem.residuals(moved), scale)
            if loss < least:
                least, best = loss, moved
        if best is None:
            return False
        self.logs = best
        self._descend()
        return True

    def _alike(self, columns: Vector) -> tuple[int, str] | None:
        """Return one of the alike knobs and the reason: first a reduction, latency, then a port."""
        _, values, vectors = np.linalg.svd(columns)
        rank = int(np.sum(values > ALIKE))
        if rank == columns.shape[1]:
            return None
        together = [
            self.active[column]
            for column in range(columns.shape[1])
            if np.abs(vectors[rank:, column]).max() > 0.05
        ]
        order = ("reduction", "latency", "port")
        chosen = min(together, key=lambda index: (order.index(self.knobs[index].what), index))
        names = " and ".join(self.knobs[index].name for index in together if index != chosen)
        return chosen, f"it cannot be told from {names}"

    def _withdraw(self, index: int, reason: str) -> None:
        """Take a knob out of the fit, as near to the machine's value as the measurements allow.

        Bisection finds how near, with the other knobs fitted again at each step.
        """
        width = float(self._relative_widths()[self.active.index(index)])
        low, high = self._interval(index, width)
        scale = self._scale()
        most = soft_l1(self.problem.residuals(self.logs), scale)
        most += TOLERATED * max(self._spread(), EXACT) ** 2
        self.reasons[index] = reason
        nearest, part, step = self.logs, 1.0, 0.5
        for _ in range(HALVINGS):
            candidate = self.problem.fit(self._with(index, part), self.active, scale)
            allowed = soft_l1(self.problem.residuals(candidate), scale) <= most
            if allowed:
                nearest = candidate
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
        """Return the interval of a setting; it is symmetric, as times are linear in settings."""
        value = self._setting(index)
        if math.isinf(width):
            return 0.0, math.inf
        return max(0.0, value * (1 - width)), value * (1 + width)

    def parameters(self) -> tuple[FittedParameter, ...]:
        """Return all knobs as values of the machine."""
        widths = dict(zip(self.active, self._relative_widths(), strict=True))
        for index, width in widths.items():
            self.bounds[index] = self._interval(index, float(width))
        return tuple(self._parameter(index) for index in range(len(self.knobs)))

    def _parameter(self, index: int) -> FittedParameter:
        knob = self.knobs[index]
        fitted = index not in self.reasons
        ends = self.bounds.get(index, (0.0, math.inf))
        low, high = sorted(knob.value_of(end) for end in ends)
        given = knob.machine_value(self.problem.machine)
        same = self._setting(index) == self.given[index]
        value = given if same else knob.value_of(self._setting(index))
        return FittedParameter(
            knob.name, value, low, high, fitted, given, self.reasons.get(index, "")
        )
