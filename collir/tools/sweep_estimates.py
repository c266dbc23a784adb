"""The estimates of a sweep, until its time is over or the user ends it."""

import math
import sys
from collections import Counter
from collections.abc import Sequence

from collir.search.running.progress import progress_enabled
from collir.syntax.units import bytes_text, seconds_text
from collir.synthesis.sweeping.configuration import Configuration
from collir.synthesis.sweeping.estimates import Estimator
from collir.synthesis.sweeping.groups import ConfigurationEstimate
from collir.synthesis.sweeping.space import ConfigurationSpace
from collir.tools.deadline import Deadline
from collir.tools.sweep_output import BestConfigurations
from collir.tools.sweep_search import bound_of, memory_margin

SHARE = 0.6
"""The part of a time limit after which no other kind of configurations is compiled, if some that
may fit are known."""


class ProgressLine:
    """A line of stderr that says how far a sweep is, and is overwritten."""

    def __init__(self, asked: bool | None):
        self._shown, self._width = progress_enabled(asked), 0

    def say(self, text: str) -> None:
        """Write another line; nothing erases it."""
        if self._shown:
            sys.stderr.write(f"\r{text.ljust(self._width)}")
            if not text:
                sys.stderr.write("\r")
            sys.stderr.flush()
            self._width = len(text)


def estimated(
    space: ConfigurationSpace,
    estimator: Estimator,
    memory: float,
    deadline: Deadline,
    progress: ProgressLine,
) -> tuple[list[tuple[Configuration, ConfigurationEstimate]], BestConfigurations]:
    """Return the configurations that may fit into memory, fastest first, and the outcome so far.

    The outcome holds what estimates alone tell, before any configuration is simulated.

    If the time is over, or the user ends it, those that have no estimate yet are left out.
    """
    refused: Counter[str] = Counter()
    asked = [*space.configurations(refused)]
    known: list[tuple[Configuration, ConfigurationEstimate]] = []
    seen, reason = 0, ""
    estimates = estimator.estimates(asked)
    try:
        for configuration, estimate in estimates:
            seen += 1
            if isinstance(estimate, str):
                refused[estimate] += 1
            elif not math.isfinite(estimate.time + estimate.memory):
                refused["no estimate: its time or memory is not a number"] += 1
            else:
                known.append((configuration, estimate))
            if known and seen < len(asked) and deadline.is_over(SHARE):
                reason = f"{seconds_text(deadline.seconds or 0)} are not enough for all of them"
                break
            if seen % 64 == 1:
                progress.say(f"estimated {seen:,} of {len(asked):,} configurations")
    except KeyboardInterrupt:
        reason = "it was interrupted"
    finally:
        estimates.close()
        progress.say("")
    if reason:
        refused[f"no estimate: {reason}"] += len(asked) - seen
    sought = BestConfigurations(space.devices[0], 0, refused, reason=reason)
    return _that_fit(known, sought, memory, space.data[0])


def _that_fit(
    known: Sequence[tuple[Configuration, ConfigurationEstimate]],
    found: BestConfigurations,
    memory: float,
    data: str,
) -> tuple[list[tuple[Configuration, ConfigurationEstimate]], BestConfigurations]:
    """Return the configurations that may fit into memory, with the counts of the others."""
    entries: list[tuple[Configuration, ConfigurationEstimate]] = []
    smallest = math.inf
    for configuration, estimate in known:
        if estimate.memory <= memory * (1 + memory_margin(configuration, data)):
            entries.append((configuration, estimate))
        else:
            found.refused[f"it needs more than {bytes_text(memory)} of memory"] += 1
            smallest = min(smallest, estimate.memory)
    entries.sort(key=lambda entry: bound_of(*entry))
    complete = not found.reason
    return entries, BestConfigurations(
        found.devices,
        len(entries),
        found.refused,
        smallest,
        complete=complete,
        reason=found.reason,
        estimates=known,
    )
