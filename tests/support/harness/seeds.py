"""The seed of the random tests: another one for every commit, so that they see new programs.

Hypothesis and ``fresh`` start from it. ``COLLIR_TEST_SEED=n`` in the environment repeats a run.
Seeds with which a test failed are kept in ``.hypothesis/``, where Hypothesis keeps its failures,
and are run again beside the new one.
"""

import os
import random
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

T = TypeVar("T")

ROOT = Path(__file__).parents[3]
FAILED = ROOT / ".hypothesis" / "failed_seeds.txt"
"""Lines of a test and a seed with which it failed."""

VARIABLE = "COLLIR_TEST_SEED"


def _new_seed() -> int:
    """Return the seed of the commit that is checked out; of the day, where git does not tell it."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return int(time.time()) // 86400
    return int(commit[:8], 16)


SEED = int(os.environ.setdefault(VARIABLE, str(_new_seed())))  # workers inherit it
"""The seed of this run."""

_current = [SEED]


def use(seed: int) -> None:
    """Make ``fresh`` start from a seed."""
    _current[0] = seed


def current() -> int:
    """Return the seed that ``fresh`` starts from."""
    return _current[0]


def fresh(*key: object) -> random.Random:
    """Return a generator that depends on the seed and on a key."""
    return random.Random(f"{current()} {key}")


def fresh_numbers(*key: object) -> np.random.Generator:
    """Return a numpy generator that depends on the seed and on a key."""
    return np.random.default_rng(fresh(*key).getrandbits(64))


def chosen(items: Sequence[T], count: int, *key: object) -> list[T]:
    """Return ``count`` of the items in their order: other ones for every seed."""
    indices = random.Random(f"{SEED} {key}").sample(range(len(items)), count)
    return [items[index] for index in sorted(indices)]


def some(items: Sequence[Any], count: int, *key: object) -> list[Any]:
    """Return parameters of a test, all but ``count`` of them slow: other ones for every seed."""
    quick = chosen(range(len(items)), count, *key)
    rows: list[Sequence[Any]] = [item if isinstance(item, tuple) else (item,) for item in items]
    return [
        pytest.param(*row, marks=[] if index in quick else [pytest.mark.slow])
        for index, row in enumerate(rows)
    ]


def one_of_each(first: Iterable[Any], second: Sequence[Any]) -> list[Any]:
    """Return all pairs as parameters of a test: of each first item, all but one pair are slow."""
    return [
        row
        for index, item in enumerate(first)
        for row in some([(item, other) for other in second], 1, index)
    ]


def failed(test: str) -> list[int]:
    """Return the seeds with which a test failed in earlier runs, the last five."""
    if not FAILED.exists():
        return []
    lines = (line.rpartition(" ") for line in FAILED.read_text(encoding="utf-8").splitlines())
    return list(dict.fromkeys(int(seed) for name, _, seed in lines if name == test))[-5:]


def remember(test: str, seed: int) -> None:
    """Keep a seed with which a test failed."""
    FAILED.parent.mkdir(exist_ok=True)
    with FAILED.open("a", encoding="utf-8") as file:
        file.write(f"{test} {seed}\n")
