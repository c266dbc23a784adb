"""Measured times beside those of a machine with its knobs set, and the least squares of both.

A residual is the logarithm of predicted over measured. Its loss is scipy's ``soft_l1``: the square
of small ones, proportional to large ones, so that a few outliers pull little.
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
"""Of a difference quotient, relative. Times are piecewise linear, so that it is exact."""

PIECES = 30
"""Linear pieces that a fit goes through, at most."""

HALVED = 12
"""How often a step that does not go downhill is halved."""

CLOSE = 1e-11
"""A step, or a relative gain, that is none."""

SMALL = 1e-2
"""Residuals that are never taken for outliers."""


def scipy_function(module: str, name: str) -> Callable[..., Any]:
    """A function of scipy.

    Raises:
        CalibrationError: scipy is not installed.
    """
    try:
        found = getattr(import_module(f"scipy.{module}"), name)
    except ImportError as error:
        message = "calibration needs scipy: `pip install 'collir[fit]'` brings it"
        raise CalibrationError(message) from error
    return cast("Callable[..., Any]", found)


def soft_l1(residuals: Vector, scale: float) -> float:
    """The loss of all residuals, those above ``scale`` counting less than their squares."""
    return float(np.sum(scale**2 * (np.sqrt(1 + (residuals / scale) ** 2) - 1)))


def residual_spread(residuals: Vector, parameters: int) -> float:
    """The standard deviation of residuals but for outliers: 1.48 of the median, as of a normal
    distribution, with the degrees of freedom that parameters take."""
    if len(residuals) <= parameters:
        return 0.0
    taken = np.sort(np.abs(residuals))[parameters:]
    return float(1.4826 * np.median(taken))


@dataclass(frozen=True)
class FitProblem:
    """Samples, and the knobs of the machine that they are explained with."""

    machine: Machine
    samples: tuple[Sample, ...]
    model: CostModel
    knobs: tuple[Knob, ...]

    @cached_property
    def measured(self) -> Vector:
        """The logarithms of the seconds."""
        return np.log([sample.seconds for sample in self.samples])

    @cached_property
    def _collectives(self) -> tuple[list[Collective], npt.NDArray[np.intp]]:
        """The different collectives, and which of them each sample is of."""
        index = {sample.collective: 0 for sample in self.samples}
        for place, one in enumerate(index):
            index[one] = place
        return list(index), np.array([index[sample.collective] for sample in self.samples])

    def seconds(self, settings: Sequence[float] | Vector) -> Vector:
        """What each sample is predicted to take.

        Raises:
            CalibrationError: a sample has no cost, or takes no time in the model.
        """
        machine = machine_with_settings(self.machine, self.knobs, [float(x) for x in settings])
        collectives, which = self._collectives
        meshes: dict[int, Mesh] = {}
        found: list[float] = []
        for number, one in enumerate(collectives):
            mesh = meshes.get(id(one.mesh))
            if mesh is None:
                own = one.mesh.machine
                mesh = replace(one.mesh, machine=machine.first([lv.size for lv in own.levels]))
                meshes[id(one.mesh)] = mesh
            try:
                found.append(step_estimate(replace(one, mesh=mesh), self.model)[1].time)
            except CostError as error:
                raise CalibrationError(str(error), self._source(number)) from error
            if not found[-1] > 0:
                message = f"this {one.kind} takes no time in the model"
                raise CalibrationError(message, self._source(number))
        return np.array(found)[which]

    def _source(self, collective: int) -> str:
        return self.samples[int(np.argmax(self._collectives[1] == collective))].source

    def residuals(self, logs: Vector) -> Vector:
        """log(predicted / measured), by the logarithms of the settings."""
        return np.log(self.seconds(np.exp(logs))) - self.measured

    def shares(self, logs: Vector, active: Sequence[int], step: float = STEP) -> Vector:
        """The derivatives of the residuals: which part of each time each active knob explains.

        Over all knobs of a machine they add up to 1: times are homogeneous in them. Where two
        pieces meet, a negative step gives the derivatives of the other one.
        """
        base = self.seconds(np.exp(logs))
        return self._slopes(logs, base, active, step) / base[:, None]

    def _slopes(
        self, logs: Vector, base: Vector, active: Sequence[int], step: float = STEP
    ) -> Vector:
        """The derivatives of the seconds by the logarithms of the active settings."""
        columns: list[Vector] = []
        for place in active:
            moved = np.exp(logs)
            moved[place] *= 1 + step
            columns.append((self.seconds(moved) - base) / step)
        return np.stack(columns, axis=1) if columns else np.zeros((len(base), 0))

    @cached_property
    def _ends(self) -> tuple[Vector, Vector]:
        """The least and the most logarithms of the settings."""
        low, high = (np.log([ends[knob.what] for knob in self.knobs]) for ends in (FLOOR, CEILING))
        return low, high

    def clipped(self, logs: Vector) -> Vector:
        """The nearest logarithms of settings that a machine can have."""
        return np.clip(logs, *self._ends)

    def fit(self, logs: Vector, active: Sequence[int], scale: float) -> Vector:
        """The logarithms of the settings that fit best, others than the active ones as they are.

        Times are taken to be linear in the settings, as they are in one piece; the best settings
        of that are where the next piece is looked at. Where this does not go downhill, the step is
        halved.

        Raises:
            CalibrationError: scipy is missing, or see ``seconds``.
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
                found = soft_l1(np.log(base) - self.measured, scale)
                if found <= loss or np.abs(step).max() < CLOSE:
                    break
                step /= 2
            else:
                return logs
            near = np.abs(step).max() < CLOSE or loss - found < CLOSE * found
            logs, loss = moved, found
            if near:
                break
        return logs

    def _linear(
        self, part: Vector, base: Vector, slopes: Vector, ends: tuple[Vector, Vector], scale: float
    ) -> Vector:
        """The best logarithms of some settings, if times are linear in the settings."""
        rates = slopes / np.exp(part)
        rest = np.maximum(base - slopes.sum(axis=1), 0.0)

        def seconds(part: Vector) -> Vector:
            return np.maximum(rest + rates @ np.exp(part), 1e-300)

        def residuals(part: Vector) -> Vector:
            return np.log(seconds(part)) - self.measured

        def jacobian(part: Vector) -> Vector:
            return rates * np.exp(part) / seconds(part)[:, None]

        done = scipy_function("optimize", "least_squares")(
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
        return done.x
