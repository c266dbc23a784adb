"""The effect of collectives on chunks by the rules of P² (Xie et al., MLSys 2022), bit-parallel.

k devices reduce a buffer of k chunks. The content of a device is a k x k boolean matrix with a row
per chunk and a column per contributing device. Here it is one integer: row i is the k bits from bit
i k on. Contents are numbered, so that a state is a tuple of small integers, and the effect of a
collective on a group's contents is computed once.

``tests/support/semantics/chunks.py`` has the same rules on numpy matrices, as the oracle of tests.
"""

from collections.abc import Callable

from p2.dsl import CollectiveKind, DeviceGroups

State = tuple[int, ...]
"""The number of the content of every device."""

_Held = tuple[int, ...]
"""The numbers of the contents of a group."""


class Chunks:
    """The chunk semantics for a number of devices."""

    def __init__(self, devices: int):
        self.devices = devices
        self._bits: list[int] = []  # matrix of each number
        self._rows: list[int] = []  # bit set of its nonempty rows
        self._numbers: dict[int, int] = {}
        self._effects: dict[tuple[CollectiveKind, _Held], _Held | None] = {}
        self._empty = self._number(0, 0)
        self._rules: dict[CollectiveKind, Callable[[_Held], _Held | None]] = {
            CollectiveKind.ALL_REDUCE: self._all_reduce,
            CollectiveKind.REDUCE_SCATTER: self._reduce_scatter,
            CollectiveKind.ALL_GATHER: self._all_gather,
            CollectiveKind.REDUCE: self._reduce,
            CollectiveKind.BROADCAST: self._broadcast,
        }

    def initial(self) -> State:
        """Return the state in which device j holds its own contribution to every chunk."""
        k = self.devices
        column = sum(1 << row * k for row in range(k))
        return tuple(self._number(column << device, (1 << k) - 1) for device in range(k))

    def goal(self) -> State:
        """Return the state in which every device holds every chunk, complete."""
        k = self.devices
        return (self._number((1 << k * k) - 1, (1 << k) - 1),) * k

    def step(self, state: State, collective: CollectiveKind, groups: DeviceGroups) -> State | None:
        """Return the state after a collective of all groups at once, or None if it is invalid."""
        after = list(state)
        effects = self._effects
        for group in groups:
            held = tuple([state[device] for device in group])
            key = (collective, held)
            if key in effects:
                result = effects[key]
            else:
                result = effects[key] = self._rules[collective](held)
            if result is None:
                return None
            for device, number in zip(group, result, strict=True):
                after[device] = number
        return tuple(after)

    def bits(self, number: int) -> int:
        """Return the matrix of a number in a state, as an integer."""
        return self._bits[number]

    def _number(self, bits: int, rows: int) -> int:
        number = self._numbers.setdefault(bits, len(self._bits))
        if number == len(self._bits):
            self._bits.append(bits)
            self._rows.append(rows)
        return number

    def _sum(self, held: _Held) -> int | None:
        """Return the matrix of the sum of contents.

        Returns None if devices hold different chunks, or if a contribution would be counted twice.
        """
        rows = self._rows[held[0]]
        if not rows:
            return None
        total = 0
        for number in held:
            bits = self._bits[number]
            if self._rows[number] != rows or total & bits:
                return None
            total |= bits
        return total

    def _all_reduce(self, held: _Held) -> _Held | None:
        total = self._sum(held)
        if total is None:
            return None
        return (self._number(total, self._rows[held[0]]),) * len(held)

    def _reduce(self, held: _Held) -> _Held | None:
        total = self._sum(held)
        if total is None:
            return None
        return (self._number(total, self._rows[held[0]]), *[self._empty] * (len(held) - 1))

    def _reduce_scatter(self, held: _Held) -> _Held | None:
        rows = [row for row in range(self.devices) if self._rows[held[0]] >> row & 1]
        if len(rows) % len(held):
            return None
        total = self._sum(held)
        if total is None:
            return None
        share = len(rows) // len(held)
        row_of_ones = (1 << self.devices) - 1
        result: list[int] = []
        for start in range(0, len(rows), share):
            block = rows[start : start + share]
            mask = sum(row_of_ones << row * self.devices for row in block)
            result.append(self._number(total & mask, sum(1 << row for row in block)))
        return tuple(result)

    def _all_gather(self, held: _Held) -> _Held | None:
        share = self._rows[held[0]].bit_count()
        if not share:
            return None
        bits = rows = 0
        for number in held:
            own = self._rows[number]
            if own.bit_count() != share or own & rows:
                return None
            rows |= own
            bits |= self._bits[number]
        return (self._number(bits, rows),) * len(held)

    def _broadcast(self, held: _Held) -> _Held | None:
        root = held[0]
        if any(self._bits[number] & ~self._bits[root] for number in held):
            return None
        if all(number == root for number in held):
            return None
        return (root,) * len(held)
