"""The operations of MSCCL++'s plans, and what each reads and writes.

The kernel that runs them defines their meaning (src/core/include/execution_kernel.hpp).
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from collir.algorithms.mscclpp.plan import PlanOperation, PlanRange


class Operand(Enum):
    """The use of a range by an operation.

    A packet has its data and a flag, which tells the reader that the data have come.
    """

    LOCAL = "a buffer of its rank"
    REMOTE = "a buffer of another rank"
    PACKETS = "packets in the scratch buffer of its rank"
    REMOTE_PACKETS = "packets in the scratch buffer of another rank"
    SWITCH = "a buffer of several ranks, by way of a switch"


_L, _R, _P, _Q, _G = Operand


class OperationKind(NamedTuple):
    """A kind of operations that move data.

    Attributes:
        sources, targets: how the ranges are used, one after the other.
        more_sources, more_targets: how all further ones are; None if there are none.
        paired: whether each source goes to the target of the same place; else all sources are
            added, and the sum goes to all targets.
        channels: the types of channel that it may have.
    """

    sources: tuple[Operand, ...]
    targets: tuple[Operand, ...]
    more_sources: Operand | None = None
    more_targets: Operand | None = None
    paired: bool = False
    channels: tuple[str, ...] = ("none", "memory")


_MEMORY, _BOTH, _PORT = ("memory",), ("memory", "port"), ("port",)

MOVES = {
    "copy": OperationKind((_L,), (_L,)),
    "cpkt": OperationKind((_L,), (_P,)),
    "upkt": OperationKind((_P,), (_L,)),
    "put": OperationKind((_L,), (_R,), _L, _R, True, _BOTH),
    "pws": OperationKind((_L,), (_R,), _L, _R, True, _PORT),
    "pwsf": OperationKind((_L,), (_R,), _L, _R, True, _PORT),
    "get": OperationKind((_R,), (_L,), _R, _L, True, _MEMORY),
    "ppkt": OperationKind((_L,), (_Q,), _L, _Q, True, _BOTH),
    "rppkt": OperationKind((_P,), (_Q,), _P, _Q, True, _BOTH),
    "re": OperationKind((_L,), (_L,), _L),
    "res": OperationKind((_L,), (_L,), _L, _R, channels=_MEMORY),
    "rre": OperationKind((_L,), (_L,), _R, channels=_MEMORY),
    "rres": OperationKind((_L,), (_L,), _R, _R, channels=_MEMORY),
    "repkt": OperationKind((_L,), (_L,), _P),
    "respkt": OperationKind((_L,), (_L,), _P, _Q, channels=_MEMORY),
    "recpkt": OperationKind((_L,), (_L, _P), _P),
    "recspkt": OperationKind((_L,), (_L, _P), _P, _Q, channels=_MEMORY),
    "glres": OperationKind((_G,), (_G,), channels=("switch",)),
}
"""The operations that move data."""

SIGNALS = ("signal", "rlxsignal")
WAITS = ("wait", "rlxwait")
SYNCHRONISES = ("nop", "barrier", *SIGNALS, *WAITS, "flush", "sem_acquire", "sem_release")
"""The operations that order others."""

WITHOUT_CODE = {
    "gstore": "the loader knows it, and the kernel has no code for it: it would do nothing",
    "glre": "the loader knows no such operation",
    "gstorepkt": "the loader knows no such operation",
}
"""Operations of MSCCL++'s language that its executor does not run."""

NAMES = (*MOVES, *SYNCHRONISES, "pipeline", *WITHOUT_CODE)

PACKET_OPERANDS = (Operand.PACKETS, Operand.REMOTE_PACKETS)


class PlanTransfer(NamedTuple):
    """A part of an operation: all sources are added, and the sum goes to all targets.

    Attributes:
        position: the place of the operands, which is their channel's.
    """

    sources: Sequence[tuple[PlanRange, Operand]]
    targets: Sequence[tuple[PlanRange, Operand]]
    position: int = 0


def operands(
    ranges: Sequence[PlanRange], first: Sequence[Operand], more: Operand | None
) -> list[tuple[PlanRange, Operand]]:
    """Return the ranges, each with how it is used."""
    kinds = [*first, *[more or first[-1]] * (len(ranges) - len(first))]
    return list(zip(ranges, kinds, strict=False))


def transfers(operation: PlanOperation) -> Iterator[PlanTransfer]:
    """Yield the transfers of an operation that moves data."""
    kind = MOVES[operation.name]
    sources = operands(operation.sources, kind.sources, kind.more_sources)
    targets = operands(operation.targets, kind.targets, kind.more_targets)
    if not kind.paired:
        yield PlanTransfer(sources, targets)
        return
    for position, (source, target) in enumerate(zip(sources, targets, strict=False)):
        yield PlanTransfer([source], [target], position)
