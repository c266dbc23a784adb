"""A listener that keeps source positions through rewrites: of an operation for its replacement."""

from collections.abc import Sequence

from xdsl.dialects.builtin import UnknownLoc
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriterListener


def keep_locations() -> PatternRewriterListener:
    """Return a listener that gives inserted operations the location of the one they replace."""
    inserted: list[Operation] = []

    def replaced(op: Operation, _: Sequence[SSAValue | None]) -> None:
        for new in inserted:
            if isinstance(new.location, UnknownLoc):
                new.location = op.location
        inserted.clear()

    return PatternRewriterListener(
        operation_insertion_handler=[inserted.append], operation_replacement_handler=[replaced]
    )
