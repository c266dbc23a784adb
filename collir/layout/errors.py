"""The one way a typing rule says no."""

from collections.abc import Sequence


class LayoutError(ValueError):
    """A step or a type that is not well typed.

    ``message`` names operands as ``{0}``, ``{1}``: the rules do not know what a program calls
    them. What is at fault, as far as it is known, so that a caller can point there: ``operand``, an
    operand's index; ``axes``, sub-axes, whose state some earlier step made; ``parameter``, one of
    the step such as ``dim``; ``dim``, a dimension of a type.
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
        """The message with the operands called ``names``."""
        message = self.message
        for index, name in enumerate(names):
            message = message.replace(f"{{{index}}}", name)
        return message
