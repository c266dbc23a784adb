"""Functions whose layouts were chosen compute what they did, where their types say."""

import random

from auto import random_auto
from hypothesis import given, settings
from laid_out import check_meaning
from programs import RANDOM

from collir.synthesis.propagation.propagate import propagate


@settings(max_examples=24)
@given(RANDOM)
def test_the_meaning_stays(rng: random.Random) -> None:
    module = random_auto(rng)
    if module is not None:
        check_meaning(module, propagate)
