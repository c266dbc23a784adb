"""The attribute of a function that gives its size parameters."""

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr
from xdsl.dialects.func import FuncOp
from xdsl.utils.exceptions import VerifyException

PARAMETERS = "coll.parameters"
"""The attribute of a function that gives its parameters and their defaults, in order."""


def parameters_of(function: FuncOp) -> dict[str, int]:
    """Return the parameters of a function with their defaults, in order.

    Raises:
        VerifyException: the attribute is not a dictionary of integers from 1.
    """
    attribute = function.attributes.get(PARAMETERS)
    if attribute is None:
        return {}
    if not isinstance(attribute, DictionaryAttr):
        raise VerifyException(f"{PARAMETERS} is a dictionary of integers, not {attribute}")
    values: dict[str, int] = {}
    for name, value in attribute.data.items():
        if not isinstance(value, IntegerAttr) or value.value.data < 1:
            raise VerifyException(f"the default of parameter '{name}' is not an integer from 1")
        values[name] = value.value.data
    return values
