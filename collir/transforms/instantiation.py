"""Functions at other values of their size parameters.

Every formula is evaluated again, and every step is typed again. If the program, changed by passes
for some values, is well typed for the new ones, its proof holds again. Otherwise the error at the
ill-typed step is the guard that fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from collir.ir.alternatives import place_of
from collir.ir.calls import callees_first, calls_in
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.parameters import parameters_of, set_parameters
from collir.ir.renaming import set_type
from collir.ir.retyping import at_values, fix_parameters, retype
from collir.ir.verification import verify
from collir.layout.sizes import default_error


def instantiate(module: ModuleOp, values: Mapping[str, int], function: str = "") -> None:
    """Give parameters of functions other values, in place, and check the module.

    A function that takes the place of another is instantiated together with it. Calls that do not
    name a parameter run the function at the new value, so the callers are typed again too.

    Args:
        values: the new values of parameters. A parameter that is not named keeps its default.
        function: the name of the function; by default, all functions that have one of the
            parameters.

    Raises:
        DiagnosticError: there is no such function or parameter, or the program is not well typed
            with these values; the module is left as it was.
    """
    functions = _with_callers(module, _chosen(module, values, function))
    before = [_State.of(f) for f, _ in functions]
    try:
        for changed, chosen in functions:
            old = parameters_of(changed)
            new = {name: values.get(name, value) for name, value in old.items()} if chosen else old
            retype(changed, at_values(new))
            set_parameters(changed, new)
        verify(module)
    except DiagnosticError as error:
        for state in before:
            state.restore()
        raise _with_values(error, values) from error


def _chosen(module: ModuleOp, values: Mapping[str, int], name: str) -> list[FuncOp]:
    """Return the functions that get other values; check that all names and values fit them."""
    functions = functions_of(module)
    known = {f.sym_name.data: parameters_of(f) for f in functions}
    for parameter, value in values.items():
        if problem := default_error(parameter, value):
            raise DiagnosticError(Diagnostic(problem))
    if name and name not in known:
        listed = ", ".join(f"@{other}" for other in known) or "none"
        raise DiagnosticError(Diagnostic(f"there is no function @{name} (there are {listed})"))
    candidates = {name: known[name]} if name else known
    for parameter in values:
        if not any(parameter in parameters for parameters in candidates.values()):
            names = dict.fromkeys(p for parameters in candidates.values() for p in parameters)
            subject = f"@{name}" if name else "no function"
            has = "has no" if name else "has a"
            listed = ", ".join(names) or "none"
            text = f"{subject} {has} parameter '{parameter}' (there are {listed})"
            raise DiagnosticError(Diagnostic(text))
    return [
        f
        for f in functions
        if not known[f.sym_name.data].keys().isdisjoint(values)
        and name in ("", f.sym_name.data, (place_of(f) or ("",))[0])
    ]


def _with_callers(module: ModuleOp, chosen: Sequence[FuncOp]) -> list[tuple[FuncOp, bool]]:
    """Return functions and their direct and indirect callers, each with whether it was chosen.

    A function comes behind the functions that it calls.
    """
    changed: dict[FuncOp, bool] = {}
    for function in callees_first(module):
        calls = (call.function() for call in calls_in(function))
        if function in chosen or any(callee in changed for callee in calls):
            changed[function] = function in chosen
    return list(changed.items())


def _with_values(error: DiagnosticError, values: Mapping[str, int]) -> DiagnosticError:
    """Return an error whose messages begin with the values of parameters."""
    listed = ", ".join(f"{name} = {value}" for name, value in values.items())
    return DiagnosticError(
        replace(diagnostic, message=f"with {listed}, {diagnostic.message}")
        for diagnostic in error.diagnostics
    )


@dataclass(frozen=True)
class _State:
    """The types and arguments of a function, kept to restore them."""

    function: FuncOp
    attributes: dict[str, Attribute]
    properties: list[tuple[Operation, dict[str, Attribute]]]
    types: list[tuple[SSAValue, Attribute]]

    @staticmethod
    def of(function: FuncOp) -> "_State":
        ops = list(function.walk())
        values: list[SSAValue] = [result for op in ops for result in op.results]
        values += [arg for op in ops for region in op.regions for arg in region.block.args]
        return _State(
            function,
            dict(function.attributes),
            [(op, dict(op.properties)) for op in ops],
            [(value, value.type) for value in values],
        )

    def restore(self) -> None:
        """Give the function its types and arguments back."""
        self.function.attributes = self.attributes
        for op, properties in self.properties:
            op.properties = properties
        for value, old in self.types:
            set_type(value, old)


__all__ = ["fix_parameters", "instantiate"]
