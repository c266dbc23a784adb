"""The executor's collectives: averages that numpy would round, and redistribution by hand."""

import ml_dtypes
import numpy as np

from collir.layout import Axis, Dim, DistType, DType, Factor, Mesh, Reduction
from collir.machine import Level, Machine
from collir.semantics.reference.collectives import combine, redistribute


def test_an_average_is_divided_by_the_number_of_parts() -> None:
    """The division is in f32, as bf16 cannot hold 257."""
    parts = [np.array([256 if part == 0 else 0], ml_dtypes.bfloat16) for part in range(257)]
    assert float(combine(parts, Reduction.AVG)[0]) == float(ml_dtypes.bfloat16(256 / 257)) < 1


def test_a_redistribute_reduces_and_cuts() -> None:
    """Two terms of [4] become one half of their sum on each device."""
    machine = Machine("m", (Level("gpu", 2, 1e9, 0.0),))
    mesh = Mesh("m", machine, (Axis.placed("x", [Factor("gpu", 2)]),))
    source = DistType.make(DType.F32, [4], partial=["x.gpu"], reduction=Reduction.SUM)
    target = DistType(DType.F32, (Dim(4, ("x.gpu",)),))
    terms = [np.array([1, 2, 3, 4], np.float32), np.array([10, 20, 30, 40], np.float32)]
    halves = redistribute(mesh, [*terms], source, target)
    assert [half.tolist() for half in halves if half is not None] == [[11, 22], [33, 44]]
