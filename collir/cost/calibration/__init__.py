"""Machines from measurements: which bandwidths and latencies explain the times of collectives.

``calibrate(machine, samples)`` fits; ``Sample`` is one measured time. docs/calibration.md says how
good the numbers are.
"""

from collir.cost.calibration.fit import Calibration, calibrate
from collir.cost.calibration.values import CalibrationError, FittedParameter, Residual, Sample

__all__ = ["Calibration", "CalibrationError", "FittedParameter", "Residual", "Sample", "calibrate"]
