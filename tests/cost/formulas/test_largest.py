"""The largest of some sums, of which some are left out as they are never larger."""

import random

import sympy
from hypothesis import given, settings
from support.programs.collectives import RANDOM

from collir.cost.formulas.functions import symbol
from collir.cost.formulas.memory import largest


@given(rng=RANDOM)
@settings(max_examples=30)
def test_it_is_that_at_all_values(rng: random.Random) -> None:
    """Also where a term is taken away, as of a dimension that loses elements."""
    x, y = symbol("x"), symbol("y")
    terms = sympy.Integer(1), x, y, x / y
    numbers = [
        sympy.Add(*(rng.choice([-1, 0, 0, 1, 2]) * term for term in terms)) for _ in range(4)
    ]
    values = {x: rng.randint(1, 9), y: rng.randint(1, 9)}
    found = sympy.Max(*(number.subs(values) for number in numbers))
    assert largest(numbers).subs(values) == found
