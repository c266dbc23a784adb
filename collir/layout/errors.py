"""The one way a typing rule says no."""

from collections.abc import Sequence


class LayoutError(ValueError):
    """A step that is not well typed.

    ``message`` names operands as ``{0}``, ``{1}``: the rules do not know what a program calls
    them. ``operand`` is the index of the operand at fault, if one is; ``axes`` are the sub-axes
    it is about, so that the caller can look for the place that put them into their state.
    """

    def __init__(self, message: str, operand: int | None = None, axes: Sequence[str] = ()):
        super().__init__(message)
        self.message = message
        self.operand = operand
        self.axes = tuple(axes)

    def text(self, names: Sequence[str]) -> str:
        """The message with the operands called ``names``."""
        message = self.message
        for index, name in enumerate(names):
            message = message.replace(f"{{{index}}}", name)
        return message
