"""The roles of values: what memory holds them for, as the report of memory groups it.

A role is a discardable attribute: of an argument of a function, or of the operation that makes a
value. It changes nothing that a program computes. A value whose role is not known, because no one
gave it one or because a pass replaced the operation, is a temporary.
"""

from collections.abc import Sequence
from enum import StrEnum

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue
from xdsl.utils.exceptions import VerifyException

from collir.dialects.nested import RepeatOp
from collir.ir.signature import ARGUMENTS, RESULTS, entries, set_entries

ROLE = "coll.role"
"""The attribute with a role; of an operation with several results, a list of roles."""

_NONE = ""
"""The role, in a list, of a result without one."""


class Role(StrEnum):
    """The use of the memory of a value."""

    PARAMETER = "parameter"
    """A weight that is trained."""
    GRADIENT = "gradient"
    """A gradient of a parameter, or a part of it."""
    STATE = "state"
    """A value that an optimiser keeps between steps: a moment, or a copy in higher precision."""
    ACTIVATION = "activation"
    """A value of the forward pass that the backward pass reads."""


def role_of(value: SSAValue) -> Role | None:
    """Return the role of a value, or None.

    The arguments of the body of a loop have the roles of the operands that they stand for.
    """
    if isinstance(value, OpResult):
        return _roles_of(value.op)[value.index] if ROLE in value.op.attributes else None
    assert isinstance(value, BlockArgument)
    parent = value.block.parent_op()
    if isinstance(parent, RepeatOp):
        return role_of(parent.operands[value.index])
    return argument_roles(parent)[value.index] if isinstance(parent, FuncOp) else None


def set_role(item: SSAValue | Operation, role: Role | None) -> None:
    """Give a role to a value, or to all results of an operation; None takes it away.

    Raises:
        ValueError: the value is an argument of a loop's body, which has the role of its operand.
    """
    if isinstance(item, Operation):
        _set_roles(item, [role] * len(item.results))
        return
    if isinstance(item, OpResult):
        roles = _roles_of(item.op)
        roles[item.index] = role
        _set_roles(item.op, roles)
        return
    assert isinstance(item, BlockArgument)
    function = item.block.parent_op()
    if not isinstance(function, FuncOp):
        raise ValueError("an argument of a loop's body has the role of the operand it stands for")
    roles = argument_roles(function)
    roles[item.index] = role
    set_argument_roles(function, roles)


def pass_role(old: SSAValue, new: SSAValue) -> None:
    """Give a value the role of the value that it replaces, unless it has one or is an argument."""
    role = role_of(old)
    if role is not None and isinstance(new, OpResult) and role_of(new) is None:
        set_role(new, role)


def argument_roles(function: FuncOp) -> list[Role | None]:
    """Return the roles of the arguments of a function, in order."""
    return [_role(entry) for entry in entries(function, ARGUMENTS, ROLE)]


def set_argument_roles(function: FuncOp, roles: Sequence[Role | None]) -> None:
    """Give roles to all arguments of a function; other attributes of arguments stay."""
    set_entries(function, ARGUMENTS, ROLE, [StringAttr(r) if r else None for r in roles])


def result_roles(function: FuncOp) -> list[Role | None]:
    """Return the roles that the signature of a function gives to its results, in order.

    The n-th result with the role of a parameter or a state is the new value of the n-th argument
    with that role.
    """
    return [_role(entry) for entry in entries(function, RESULTS, ROLE)]


def set_result_roles(function: FuncOp, roles: Sequence[Role | None]) -> None:
    """Give roles to all results of a function; other attributes of results stay."""
    set_entries(function, RESULTS, ROLE, [StringAttr(r) if r else None for r in roles])


def check_roles(op: Operation) -> None:
    """Check the roles of the results of an operation, or of the arguments of a function.

    Raises:
        VerifyException: a role does not exist, or there is not one for each value.
    """
    if isinstance(op, FuncOp):
        types = op.function_type
        for what, given, values in (
            ("arguments", op.arg_attrs, types.inputs),
            ("results", op.res_attrs, types.outputs),
        ):
            if given is not None and len(given) != len(values):
                text = f"there are attributes of {len(given)} {what}, not of {len(values)}"
                raise VerifyException(text)
        argument_roles(op)
        result_roles(op)
    elif ROLE in op.attributes and (count := len(_roles_of(op))) != len(op.results):
        raise VerifyException(f"there is a role for each result: {count} for {len(op.results)}")


def _roles_of(op: Operation) -> list[Role | None]:
    match op.attributes.get(ROLE):
        case None:
            return [None] * len(op.results)
        case ArrayAttr() as listed:
            return [_role(entry) for entry in listed]
        case role:
            return [_role(role)]


def _set_roles(op: Operation, roles: Sequence[Role | None]) -> None:
    if not any(roles):
        op.attributes.pop(ROLE, None)
    elif len(roles) == 1:
        op.attributes[ROLE] = StringAttr(roles[0] or _NONE)
    else:
        op.attributes[ROLE] = ArrayAttr([StringAttr(role or _NONE) for role in roles])


def _role(attribute: Attribute | None) -> Role | None:
    """Return the role that an attribute names, or None.

    Raises:
        VerifyException: there is none of that name.
    """
    if attribute is None or attribute == StringAttr(_NONE):
        return None
    if not isinstance(attribute, StringAttr) or attribute.data not in list(Role):
        raise VerifyException(f"there is no role {attribute}: there are {', '.join(Role)}")
    return Role(attribute.data)
