"""Amounts of data that a step sends where an axis divides it, in bytes and without any rates.

Amounts are integers: bytes times ``f * f``, for an axis of ``f`` devices, and times 4 by D-Rec.
"""

from typing import Final, Literal, Protocol

from collir.synthesis.propagation.graph import Relation

Where = int | None | Literal["unknown", "partial"]
"""The dimension of a value that is divided; None: none is. A result may be partial, and the layout
of a tensor unknown."""

UNKNOWN: Final = "unknown"
PARTIAL: Final = "partial"


class Accounting(Protocol):
    """A way of counting. What a step needs whole, and what it leaves partial, counts with all its
    bytes but those that a device has.

    Attributes:
        lies_whole: whether an operand that is needed whole counts also where it lies so.
        inputs_move: whether inputs of the program are moved from where they lie.
        maps_repeat: whether maps may be done by all devices alike.
    """

    lies_whole: bool
    inputs_move: bool
    maps_repeat: bool

    def weight(self, relation: Relation, place: int) -> int:
        """Return what the bytes of a member count where it has to be whole."""
        ...

    def operand(self, size: int, factor: int, need: Where, state: Where, nest: int) -> int:
        """Return what is sent to bring an operand from a state to the one that a step needs.

        Args:
            nest: the blocks of the dimension that is divided, by axes inside of this one.
        """
        ...

    def result(self, size: int, factor: int, left: Where, state: Where, nest: int) -> int:
        """Return what is sent to bring a result to its state, beside the reduction of one that is
        partial into blocks."""
        ...


class Amounts:
    """The bytes that a device receives: of an all_gather and a reduce_scatter the other parts of
    the tensor, of an all_to_all the other parts of its block, of an all_reduce both."""

    lies_whole = False
    inputs_move = True
    maps_repeat = False

    def weight(self, relation: Relation, place: int) -> int:
        """Return 1: all bytes count the same."""
        return 1

    def operand(self, size: int, factor: int, need: Where, state: Where, nest: int) -> int:
        """Return the bytes of an all_gather or an all_to_all. Blocks inside of others have to be
        gathered too, as those of the outer axis do not lie one behind the other."""
        if state == need:
            return 0
        if nest > 1:
            return size * factor * ((nest - 1) * factor if state is None else nest * factor - 1)
        if state is None:
            return 0
        return size * (factor - 1) * (factor if need is None else 1)

    def result(self, size: int, factor: int, left: Where, state: Where, nest: int) -> int:
        """Return the bytes of an all_gather or an all_to_all."""
        if left == PARTIAL:
            if state is not None and nest == 1:
                return 0
            return size * (factor - 1) * factor + self.operand(size, factor, state, None, nest)
        return self.operand(size, factor, state, left, nest)


class DRec:
    """D-Rec's numbers: what has to be whole or reduced counts, the second operand of a product a
    quarter, wherever it lies; and 16 times what lies otherwise than it is needed. Inputs lie as
    their steps need them."""

    lies_whole = True
    inputs_move = False
    maps_repeat = True

    def weight(self, relation: Relation, place: int) -> int:
        """Return the quarters that a member counts."""
        is_product = relation.op is not None and relation.op.mnemonic == "einsum"
        return 1 if is_product and place == 1 else 4

    def operand(self, size: int, factor: int, need: Where, state: Where, nest: int) -> int:
        """Return the quarters of a move."""
        return 0 if state == need else 64 * size * factor * factor

    def result(self, size: int, factor: int, left: Where, state: Where, nest: int) -> int:
        """Return the quarters of a move: what is reduced is whole."""
        return self.operand(size, factor, None if left == PARTIAL else left, state, nest)


AMOUNTS: Final = Amounts()
D_REC: Final = DRec()
