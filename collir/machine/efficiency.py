"""The efficiency of a device: the launch of kernels, and the work in whole tiles."""

from dataclasses import dataclass, replace

SHARES = ("compute", "memory", "unaligned", "fused")
"""The shares of rates, by name."""


@dataclass(frozen=True)
class Efficiency:
    """The shares of the rates of a device that kernels reach; the default is all.

    Attributes:
        launch: seconds that a kernel takes besides its work.
        compute: the fraction of the compute rates that large products of matrices sustain.
        memory: the fraction of the bandwidth of the memory that kernels sustain.
        units: the processors of the device, each of which works on one tile at a time; 0 if
            products are not divided into tiles.
        tile: the rows and columns of the smallest tile of a product at the full rate.
        depth: the length of the sum at which a tile runs at half of the rate that it reaches for
            a long one.
        unaligned: the fraction of the rate that a product keeps if its rows, columns or sums are no
            multiple of 8, which the units for matrices load badly.
        fused: the fraction of the rate that a product keeps in a kernel with other operations, such
            as a product of attention.
    """

    launch: float = 0.0
    compute: float = 1.0
    memory: float = 1.0
    units: int = 0
    tile: tuple[int, int] | None = None
    depth: int = 0
    unaligned: float = 1.0
    fused: float = 1.0

    @property
    def inside(self) -> "Efficiency":
        """The efficiency of products in a kernel with other operations: they run in its tiles, and
        not in waves of their own."""
        return replace(self, units=min(self.units, 1), depth=0, unaligned=1.0)

    def problem(self) -> str | None:
        """Return why there is no such device, or None."""
        if not 0 <= self.launch < 1e3:
            return f"the launch of a kernel takes less than 1000 s, not {self.launch:g} s"
        for what in SHARES:
            if not 0 < (part := getattr(self, what)) <= 1:
                return f"the efficiency of {what} is above 0 and at most 1, not {part:g}"
        if (self.tile is None) != (self.units == 0):
            return (
                "products are divided into tiles by the processors: give both, as in "
                "`tile = 128 x 128; units = 108`"
            )
        if self.units < 0 or self.depth < 0:
            return "a device has no negative number of units or depth"
        if self.depth and self.tile is None:
            return "a depth is of tiles: add `tile = 128 x 128; units = 108`"
        if self.tile is not None and not all(1 <= side <= 2**16 for side in self.tile):
            return f"a tile has 1 to 65536 rows and columns, not {self.tile[0]} x {self.tile[1]}"
        return None

    def slower(self, other: "Efficiency") -> "Efficiency":
        """Return one that is at most as good as both; of two kinds of tiles, that of the first."""
        tiled = self if self.tile is not None else other
        return Efficiency(
            max(self.launch, other.launch),
            min(self.compute, other.compute),
            min(self.memory, other.memory),
            tiled.units,
            tiled.tile,
            max(self.depth, other.depth),
            min(self.unaligned, other.unaligned),
            min(self.fused, other.fused),
        )


IDEAL = Efficiency()
"""The efficiency of a device that reaches its rates."""
