"""The fit of a machine's knobs to measured times, by least squares.

A residual is log(predicted / measured). Its loss is scipy's ``soft_l1``: the square of small
residuals, and proportional to large ones, so that a few outliers have little influence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from collir.cost.calibration.knobs import CEILING, FLOOR, Knob, machine_with_settings
from collir.cost.calibration.values import CalibrationError, Sample
from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, step_estimate
from collir.cost.network.group import CostError
from collir.layout import Mesh
from collir.machine import Machine

Vector = npt.NDArray[np.float64]

STEP = 1e-6
"""Relative step of difference quotients, which are exact as times are piecewise linear."""

PIECES = 30
"""Largest number of linear pieces that a fit goes through."""

HALVED = 12
"""Largest number of times that a step which does not reduce the loss is halved."""

CLOSE = 1e-11
"""Steps and relative gains below this count as none."""

SMALL = 1e-2
"""Residuals below this are never outliers."""


def scipy_function(module: str, name: str) -> Callable[..., Any]:
    """Import a function of scipy when it is first needed: scipy is slow to import."""
    return cast("Callable[..., Any]", getattr(import_module(f"scipy.{module}"), name))


def soft_l1(residuals: Vector, scale: float) -> float:
    """Return the sum of the losses; residuals above ``scale`` count less than their squares."""
    return float(np.sum(scale**2 * (np.sqrt(1 + (residuals / scale) ** 2) - 1)))


def residual_spread(residuals: Vector, parameters: int) -> float:
    """Return the standard deviation of residuals without the influence of outliers.

    It is 1.48 times the median of the absolute values, as for a normal distribution. The smallest
    values are left out, one for each parameter, for the degrees of freedom.
    """
    if len(residuals) <= parameters:
        return 0.0
    sizes = np.sort(np.abs(residuals))[parameters:]
    return float(1.4826 * np.median(sizes))


@dataclass(frozen=True)
class FitProblem:
    """Samples, and the knobs of the machine that should explain them."""

    machine: Machine
    samples: tuple[Sample, ...]
    model: CostModel
    knobs: tuple[Knob, ...]

    @cached_property
    def measured(self) -> Vector:
        """The logarithms of the measured seconds."""
        return np.log([sample.seconds for sample in self.samples])

    @cached_property
    def _collectives(self) -> tuple[list[Collective], npt.NDArray[np.intp]]:
        """The distinct collectives, and the index of each sample's collective."""
        collectives = dict.fromkeys(sample.collective for sample in self.samples)
        index = {collective: number for number, collective in enumerate(collectives)}
        return list(index), np.array([index[sample.collective] for sample in self.samples])

    def seconds(self, settings: Sequence[float] | Vector) -> Vector:
        """Return the predicted seconds of each sample.

        Raises:
            CalibrationError: a sample has no cost, or takes no time in the model.
        """
        machine = machine_with_settings(self.machine, self.knobs, [float(x) for x in settings])
        collectives, index_of_sample = self._collectives
        meshes: dict[int, Mesh] = {}
        times: list[float] = []
        for number, collective in enumerate(collectives):
            old = collective.mesh
            mesh = meshes.get(id(old))
            if mesh is None:
                sizes = [level.size for level in old.machine.levels]
                mesh = meshes[id(old)] = replace(old, machine=machine.first(sizes))
            try:
                times.append(step_estimate(replace(collective, mesh=mesh), self.model)[1].time)
            except CostError as error:
                raise CalibrationError(str(error), self._source(number)) from error
            if not times[-1] > 0:
                message = f"this {collective.kind} takes no time in the model"
                raise CalibrationError(message, self._source(number))
        return np.array(times)[index_of_sample]

    def _source(self, collective: int) -> str:
        return self.samples[int(np.argmax(self._collectives[1] == collective))].source

    def residuals(self, logs: Vector) -> Vector:
        """Return log(predicted / measured) for the logarithms of the settings."""
        return np.log(self.seconds(np.exp(logs))) - self.measured

    def shares(self, logs: Vector, active: Sequence[int], step: float = STEP) -> Vector:
        """Return the derivatives of the residuals: the part of each time due to each active knob.

        They add up to 1 or so over all knobs of a machine: what a library takes besides is fixed.
        Where two linear pieces meet, a negative step gives the derivatives of the other piece.
        """
        base = self.seconds(np.exp(logs))
        return self._slopes(logs, base, active, step) / base[:, None]

    def _slopes(
        self, logs: Vector, base: Vector, active: Sequence[int], step: float = STEP
    ) -> Vector:
        """Return the derivatives of the seconds by the logarithms of the active settings."""
        columns: list[Vector] = []
        for index in active:
            moved = np.exp(logs)
            moved[index] *= 1 + step
            columns.append((self.seconds(moved) - base) / step)
        return np.stack(columns, axis=1) if columns else np.zeros((len(base), 0))

    @cached_property
    def _ends(self) -> tuple[Vector, Vector]:
        """The smallest and the largest logarithms of the settings."""
        low, high = (np.log([ends[knob.what] for knob in self.knobs]) for ends in (FLOOR, CEILING))
        return low, high

    def clipped(self, logs: Vector) -> Vector:
        """Return the nearest logarithms of settings that a machine can have."""
        return np.clip(logs, *self._ends)

    def fit(self, logs: Vector, active: Sequence[int], scale: float) -> Vector:
        """Return the logarithms of the settings with the active ones fitted.

        Times are linear in the settings within one piece. Each step takes the best settings for the
        current piece, as if it had no end, and continues there. A step that does not reduce the
        loss is halved.

        Raises:
            CalibrationError: see ``seconds``.
        """
        columns = list(active)
        if not columns:
            return logs
        low, high = (ends[columns] for ends in self._ends)
        logs = self.clipped(logs)
        base = self.seconds(np.exp(logs))
        loss = soft_l1(np.log(base) - self.measured, scale)
        for _ in range(PIECES):
            slopes = self._slopes(logs, base, columns)
            step = self._linear(logs[columns], base, slopes, (low, high), scale) - logs[columns]
            for _ in range(HALVED):
                moved = logs.copy()
                moved[columns] += step
                base = self.seconds(np.exp(moved))
                new_loss = soft_l1(np.log(base) - self.measured, scale)
                if new_loss <= loss or np.abs(step).max() < CLOSE:
                    break
                step /= 2
            else:
                return logs
            near = np.abs(step).max() < CLOSE or loss - new_loss < CLOSE * new_loss
            logs, loss = moved, new_loss
            if near:
                break
        return logs

    def _linear(
        self, part: Vector, base: Vector, slopes: Vector, ends: tuple[Vector, Vector], scale: float
    ) -> Vector:
        """Return the best logarithms of some settings, if times are linear in the settings."""
        rates = slopes / np.exp(part)
        rest = base - slopes.sum(axis=1)  # below 0 where a network's software is what is left

        def seconds(part: Vector) -> Vector:
            return np.maximum(rest + rates @ np.exp(part), 1e-300)

        def residuals(part: Vector) -> Vector:
            return np.log(seconds(part)) - self.measured

        def jacobian(part: Vector) -> Vector:
            return rates * np.exp(part) / seconds(part)[:, None]

        solution = scipy_function("optimize", "least_squares")(
            residuals,
            np.clip(part, ends[0] + 1e-9, ends[1] - 1e-9),
            jac=jacobian,
            bounds=ends,
            loss="soft_l1",
            f_scale=scale,
            xtol=1e-12,
            ftol=1e-12,
            gtol=1e-12,
            max_nfev=100,
        )
        return solution.x
