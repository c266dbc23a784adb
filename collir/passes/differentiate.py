"""Add functions that compute gradients.

What: every ``gradient @f(...) wrt %w`` becomes a call of ``@f_gradient``, a function that is added
behind ``@f``. It has the results of ``@f``, and behind them the gradients of the first result. With
``of=f``, such a function is added for ``@f`` itself; ``wrt=w,v`` names the arguments, without it
all floating-point ones.

Why: costs, targets and other passes see a gradient as this function anyway. The pass shows it, and
lets other passes rewrite it.

    %loss, %d_w = gradient @loss(%x, %w) wrt %w
becomes
    %loss, %d_w = call @loss_gradient(%x, %w)

The function is the forward program and, behind it, its reverse, in steps of the language. The
derivative is that of the meaning on one device, so a collective passes a cotangent on. A cotangent
is brought to the layout of its value where the value was computed, by one collective or a
``redistribute``. A gradient has the layout of its argument. The reverse of a ``repeat`` is a
``repeat`` in the other direction over values that the forward loop stacks. Values that depend on
slices and invariants only are computed again, and gathered again. After a ``call`` or a ``repeat``
with ``recompute``, only its operands or carries are kept, and the rest is computed again behind a
``barrier``.

When not: a function with a step that has no gradient, which is an error where it stands.

Cost: about twice the work of the forward program, and the memory of the kept values.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from collir.dialects.machine import mesh_of
from collir.dialects.nested import Signature
from collir.dialects.operation import value_text
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of
from collir.layout import LayoutError
from collir.transforms.gradients.differentiation import gradient_function, gradients_as_calls


@dataclass(frozen=True)
class DifferentiatePass(ModulePass):
    """Add functions that compute gradients."""

    name = "differentiate"

    of: str = ""
    """The function to differentiate; by default the module's `gradient` steps are
    differentiated."""
    wrt: tuple[str, ...] = ()
    """The arguments of this function to differentiate by; by default all floating-point
    arguments."""

    def __post_init__(self) -> None:
        if self.wrt and not self.of:
            raise ValueError("wrt names arguments of a function, which `of` names")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not self.of:
            _ = gradients_as_calls(op)
            return
        name = self.of.removeprefix("@")
        functions = {function.sym_name.data: function for function in functions_of(op)}
        if name not in functions:
            known = ", ".join(f"@{known}" for known in functions)
            raise DiagnosticError(
                Diagnostic(f"there is no function @{name} (there are {known or 'none'})")
            )
        function = functions[name]
        numbers = self._numbers(function)
        _ = gradients_as_calls(op)
        signature, types = Signature.of(function), [dist_type(arg) for arg in function.args]
        try:
            _ = signature.gradients(mesh_of(function), types, numbers)
        except LayoutError as error:
            names = [value_text(arg) for arg in function.args]
            raise DiagnosticError.at(function, error.text(names)) from error
        _ = gradient_function(function, numbers)

    def _numbers(self, function: FuncOp) -> list[int]:
        """Return the numbers of the arguments that the option names."""
        if not self.wrt:
            return [n for n, arg in enumerate(function.args) if dist_type(arg).dtype.is_float]
        names = [arg.name_hint or "" for arg in function.args]
        wanted = [part.strip().removeprefix("%") for word in self.wrt for part in word.split(",")]
        for name in wanted:
            if name not in names:
                raise DiagnosticError.at(
                    function,
                    f"@{function.sym_name.data} has no argument %{name}: its arguments are "
                    f"{', '.join(f'%{known}' for known in names)}",
                )
        return [names.index(name) for name in wanted]
