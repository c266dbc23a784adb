"""Machines from measurements: bandwidths and latencies fitted to the times of collectives.

``calibrate(machine, samples)`` fits; a ``Sample`` is a measured time. docs/calibration.md says how
accurate the numbers are.
"""

from collir.cost.calibration.fit import Calibration, calibrate, unfitted
from collir.cost.calibration.values import CalibrationError, FittedParameter, Residual, Sample

__all__ = [
    "Calibration",
    "CalibrationError",
    "FittedParameter",
    "Residual",
    "Sample",
    "calibrate",
    "unfitted",
]
