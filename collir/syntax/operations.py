"""The written form of every operation, derived from its row of the table of steps.

The reader, the writer and the grammar use these rows; no form is added here.
"""

from collir.dialects.tables import OPERATIONS
from collir.layout.steps import ArgumentKind, StepKind

SHOWN = {
    ArgumentKind.AXES: ("AXES", "axes"),
    ArgumentKind.PLACE: ("AXIS = N, ...", "axes with a coordinate each"),
    ArgumentKind.INTEGER: ("N", "an integer"),
    ArgumentKind.COORDINATE: ("N", "an integer"),
    ArgumentKind.SIZES: ("[N, ...]", "sizes in []"),
    ArgumentKind.NUMBER: ("NUMBER", "a number"),
    ArgumentKind.NAME: ("NAME", "a name"),
    ArgumentKind.TYPE: ("TYPE", "a type"),
    ArgumentKind.FLAG: ("", "nothing"),
    ArgumentKind.TEXT: ('"..."', "a text in quotes"),
}
"""The name of each kind of argument, in the usage of an operation and in a sentence."""


def keywords(*kinds: ArgumentKind) -> list[str]:
    """Return the keywords of all parameters of these kinds, without repetitions."""
    parameters = [parameter for op in OPERATIONS.values() for parameter in op.KIND.parameters]
    words = (x.keyword for x in parameters if x.kind in kinds and x.keyword)
    return list(dict.fromkeys(words))


def usage(kind: StepKind, written: str = "") -> str:
    """Return the usage of an operation, such as ``all_gather %x over AXES dim N``.

    Args:
        written: what stands behind the operands.
    """
    operands = (
        "%x, ..."
        if kind.operands is None
        else ", ".join(f"%{name}" for name in "xyz"[: kind.operands])
    )
    clauses: list[str] = []
    texts = [SHOWN[x.kind][0] for x in kind.parameters if x.kind is ArgumentKind.TEXT]
    for parameter in kind.parameters:
        if parameter.kind is ArgumentKind.TEXT:
            continue
        text = f"{parameter.keyword} {SHOWN[parameter.kind][0]}".rstrip()
        clauses.append(text if parameter.required else f"[{text}]")
    return " ".join([kind.name, *texts, *filter(None, [operands, written]), *clauses])
