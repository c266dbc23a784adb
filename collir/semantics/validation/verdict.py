"""What is known of two functions, and how it came to be known."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

How = Literal["proof", "execution", "none"]


class Outcome(StrEnum):
    """What is known of two functions."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Verdict:
    """What is known of two functions, by what, and in words; ``result`` is which one differs."""

    outcome: Outcome
    how: How
    explanation: str
    result: int | None = None
