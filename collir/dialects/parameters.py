"""The attribute of a function that gives its size parameters."""

from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from collir.dialects.tensor import BindingsAttr

PARAMETERS = "coll.parameters"
"""The attribute of a function that gives its parameters and their defaults, in order.

It is no dictionary: MLIR sorts those by their keys.
"""


def parameters_of(function: Operation) -> dict[str, int]:
    """Return the parameters of a function with their defaults, in order.

    Raises:
        VerifyException: the attribute is not a list of parameters with integers from 1.
    """
    attribute = function.attributes.get(PARAMETERS)
    if attribute is None:
        return {}
    if not isinstance(attribute, BindingsAttr):
        text = f"write #{BindingsAttr.name}<name = default, ...>"
        raise VerifyException(f"{PARAMETERS} is a list of parameters, not {attribute}: {text}")
    for name, value in attribute.data:
        if value < 1:
            raise VerifyException(f"the default of parameter '{name}' is not an integer from 1")
    return dict(attribute.data)
