"""The verdict on two functions: the outcome of a comparison, and how it was found."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

How = Literal["proof", "execution", "none"]


class Outcome(StrEnum):
    """The outcome of comparing two functions."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Verdict:
    """The outcome of comparing two functions.

    Attributes:
        how: the method that found the outcome.
        explanation: the reason, as a sentence for the user without its subject.
        result: the number of the result that differs.
    """

    outcome: Outcome
    how: How
    explanation: str
    result: int | None = None
