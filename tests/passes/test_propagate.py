"""Functions whose layouts were chosen compute what they did, where their types say."""

import random

from hypothesis import given, settings
from support.programs.auto_functions import random_auto
from support.programs.collectives import RANDOM
from support.semantics.laid_out import check_meaning

from collir.synthesis.propagation.propagate import propagate


@settings(max_examples=24)
@given(RANDOM)
def test_the_meaning_stays(rng: random.Random) -> None:
    module = random_auto(rng)
    if module is not None:
        check_meaning(module, propagate)
