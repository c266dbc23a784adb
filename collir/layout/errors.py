"""The error that the typing rules raise."""

from collections.abc import Sequence


class LayoutError(ValueError):
    """A step or a type that is not well typed.

    The attributes other than ``message`` point at the fault, if it is known, so that a caller can
    show its source position.

    Attributes:
        message: the text, with operands written ``{0}``, ``{1}``: the rules do not know the
            operands' names in the program.
        operand: the index of an operand.
        axes: sub-axes whose state an earlier step made.
        parameter: the name of a parameter of the step, such as ``dim``.
        dim: the index of a dimension of a type.
    """

    def __init__(
        self,
        message: str,
        operand: int | None = None,
        axes: Sequence[str] = (),
        parameter: str = "",
        dim: int | None = None,
    ):
        super().__init__(message)
        self.message = message
        self.operand = operand
        self.axes = tuple(axes)
        self.parameter = parameter
        self.dim = dim

    def text(self, names: Sequence[str]) -> str:
        """Return the message with ``names`` in place of the operands."""
        message = self.message
        for index, name in enumerate(names):
            message = message.replace(f"{{{index}}}", name)
        return message
