"""The clusters that plans are compared on, of devices of two kinds."""

from collections.abc import Sequence
from dataclasses import dataclass

from collir.synthesis.sharding.uneven import _rounded

FAST, SLOW = 15.7, 8.7
RATIO = (9, 5)
"""The throughputs of the two kinds in small numbers."""

PAGE = """machine @cluster {{
  device fast {{ compute f32 = {fast} TFLOP/s; memory = 32 GB @ 900 GB/s }}
{slow}  level gpu[{n}] {{ port = 1.3 GB/s, latency = 20 us, fabric = network, {devices} }}
}}
mesh @m on @cluster {{ data = gpu:{n}{weights} }}
"""

SLOW_PAGE = f"  device slow {{ compute f32 = {SLOW} TFLOP/s; memory = 32 GB @ 730 GB/s }}\n"


@dataclass(frozen=True)
class Cluster:
    """A cluster of devices of two kinds.

    Attributes:
        fast: the number of fast devices.
        slow: that of slow ones.
    """

    fast: int
    slow: int

    @property
    def size(self) -> int:
        """Return the number of devices."""
        return self.fast + self.slow

    @property
    def name(self) -> str:
        """Return how tables call it."""
        return f"{self.fast} + {self.slow}" if self.slow else f"{self.fast} even"

    @property
    def multiple(self) -> int:
        """Return what the batch is a multiple of."""
        shares = RATIO[0] * self.fast + RATIO[1] * self.slow
        return 30 * self.size if (30 * self.size) % shares == 0 else 32 * self.size

    def weights(self, batch: int) -> tuple[int, ...]:
        """Return weights near the throughputs, whose sum divides the batch."""
        each = [RATIO[0]] * self.fast + [RATIO[1]] * self.slow
        shares = [own / sum(each) for own in each]
        sums = [n for n in range(self.size, 16 * self.size + 1) if batch % n == 0]
        found = [_rounded(shares, total) for total in sums]  # pyright: ignore

        def most(weights: tuple[int, ...]) -> float:
            both = zip(weights, shares, strict=True)
            return max(own / share for own, share in both) / sum(weights)

        return min(found, key=most)

    def page(self, weights: Sequence[int] = ()) -> str:
        """Return the machine and its mesh."""
        kinds = (
            f"devices = [{self.fast} fast, {self.slow} slow]"
            if self.slow
            else f"devices = [{self.size} fast]"
        )
        own = f" weights [{', '.join(map(str, weights))}]" if weights else ""
        slow = SLOW_PAGE if self.slow else ""
        return PAGE.format(fast=FAST, slow=slow, n=self.size, devices=kinds, weights=own)


CLUSTERS = (Cluster(2, 6), Cluster(16, 48), Cluster(8, 21), Cluster(64, 0))
