"""How every operation is written.

The reader, the writer and the grammar go by the rows of the operations; nothing is added here.
"""

from collir.dialects.tables import OPERATIONS
from collir.layout.steps import ArgumentKind, StepKind

SHOWN = {
    ArgumentKind.AXES: ("AXES", "axes"),
    ArgumentKind.INTEGER: ("N", "an integer"),
    ArgumentKind.SIZES: ("[N, ...]", "sizes in []"),
    ArgumentKind.NUMBER: ("NUMBER", "a number"),
    ArgumentKind.NAME: ("NAME", "a name"),
    ArgumentKind.TYPE: ("TYPE", "a type"),
    ArgumentKind.FLAG: ("", "nothing"),
}
"""What an argument is called, in the usage of an operation and in a sentence."""


def keywords(*kinds: ArgumentKind) -> list[str]:
    """Return the keywords of the parameters of some kinds, each once."""
    parameters = (one for op in OPERATIONS.values() for one in op.KIND.parameters)
    return list(dict.fromkeys(one.keyword for one in parameters if one.kind in kinds))


def usage(kind: StepKind) -> str:
    """Return how to write an operation, as in ``all_gather %x over AXES dim N``."""
    operands = (
        "%x, ..."
        if kind.operands is None
        else ", ".join("%x%y"[i * 2 : i * 2 + 2] for i in range(kind.operands))
    )
    clauses: list[str] = []
    for one in kind.parameters:
        text = f"{one.keyword} {SHOWN[one.kind][0]}".rstrip()
        clauses.append(text if one.required else f"[{text}]")
    return " ".join([kind.name, operands, *clauses])
