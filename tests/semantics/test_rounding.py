"""Other roundings move a result further than the rounding of float64 does."""

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from numpy.typing import NDArray
from support.programs.arguments import FORMS, random_arrays
from support.programs.collectives import RANDOM

from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.semantics.reference.nn import FUNCTIONS
from collir.semantics.reference.rounding import Rounding

INTEGERS_OR_BLOCKS = (
    *("argmax", "top_k_indices", "uniform", "one_hot", "take", "take_transpose"),
    *("take_along_dim", "take_along_dim_transpose", "grouped_matmul", "grouped_matmul_transpose"),
)


@given(rng=RANDOM)
@settings(max_examples=30)
def test_roundings_of_float64_are_smaller(rng: random.Random) -> None:
    """Long doubles of 64 bits are the exact values here."""
    name = rng.choice([form for form in FORMS if form not in INTEGERS_OR_BLOCKS])
    drawn, arguments = random_arrays(rng, name)
    numbers = np.random.default_rng(rng.randrange(2**32))
    arrays: list[NDArray[Any]] = [
        x if x.dtype.kind == "i" else numbers.normal(size=x.shape) for x in drawn
    ]
    op = OPERATIONS[name].create(properties=arguments)
    assert isinstance(op, DistOp)
    with np.errstate(all="ignore"):
        value = FUNCTIONS[name](op, arrays)
        exact = FUNCTIONS[name](
            op, [x if x.dtype.kind == "i" else x.astype(np.longdouble) for x in arrays]
        )
        args = tuple([x] for x in arrays)
        moved = [Rounding(d, rng.randrange(99))(op, args, [value])[0] for d in (1, -1)]
    rounding = np.abs(exact - value).astype(np.float64)
    spread = np.max([np.abs(np.asarray(x) - value) for x in moved], axis=0)
    right = (rounding <= spread / 8 + 2.0**-50 * np.abs(value)) | ~np.isfinite(value)
    assert right.all(), (name, rounding[~right], spread[~right])


def test_what_float32_holds_is_not_rounded() -> None:
    op = OPERATIONS["mul"].create()
    assert isinstance(op, DistOp)
    x, third = np.array([3.0, 0.5]), np.array([1 / 3, 0.25])
    product = x * third
    (moved,) = Rounding(1, 0)(op, ([x], [third]), [product])
    assert moved is not None and product[0] == 1.0
    assert (moved == product).tolist() == [False, True]


def test_a_number_near_an_edge_is_on_both_sides() -> None:
    op = OPERATIONS["less"].create()
    assert isinstance(op, DistOp)
    x, y = np.array([0.1 * 3, 0.3, 0.3, 2.0]), np.array([0.3, 0.3, 0.31, 1.0])
    sides = [Rounding(d, 0)(op, ([x], [y]), [x < y])[0] for d in (1, -1)]
    assert [list(side) for side in sides if side is not None] == [
        [True, False, True, False],
        [False, False, True, False],
    ]
