"""The roles of values: what memory holds them for, as the report of memory groups it.

A role is a discardable attribute: of an argument of a function, or of the operation that makes a
value. It changes nothing that a program computes. A value whose role is not known, because no one
gave it one or because a pass replaced the operation, is a temporary.
"""

from collections.abc import Sequence
from enum import StrEnum

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue
from xdsl.utils.exceptions import VerifyException

from collir.dialects.nested import RepeatOp

ROLE = "coll.role"
"""The attribute with a role; of an operation with several results, a list of roles."""

_NONE = ""
"""The role, in a list, of a result without one."""


class Role(StrEnum):
    """What the memory of a value is for."""

    PARAMETER = "parameter"
    """A weight that is trained."""
    GRADIENT = "gradient"
    """A gradient of a parameter, or a part of it."""
    STATE = "state"
    """What an optimiser keeps between steps, such as moments or a copy in higher precision."""
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


def argument_roles(function: FuncOp) -> list[Role | None]:
    """Return the roles of the arguments of a function, in order."""
    if function.arg_attrs is None:
        return [None] * len(function.function_type.inputs)
    return [_role(entry.data.get(ROLE)) for entry in function.arg_attrs]


def set_argument_roles(function: FuncOp, roles: Sequence[Role | None]) -> None:
    """Give roles to all arguments of a function; other attributes of arguments stay."""
    old = function.arg_attrs or ArrayAttr([DictionaryAttr({}) for _ in roles])
    entries: list[DictionaryAttr] = []
    for entry, role in zip(old, roles, strict=True):
        data: dict[str, Attribute] = {key: x for key, x in entry.data.items() if key != ROLE}
        entries.append(DictionaryAttr(data | ({ROLE: StringAttr(role)} if role else {})))
    if any(entry.data for entry in entries):
        function.properties["arg_attrs"] = ArrayAttr(entries)
    else:
        function.properties.pop("arg_attrs", None)


def check_roles(op: Operation) -> None:
    """Check the roles of the results of an operation, or of the arguments of a function.

    Raises:
        VerifyException: a role does not exist, or there is not one for each value.
    """
    if isinstance(op, FuncOp):
        count = len(op.function_type.inputs)
        if op.arg_attrs is not None and len(op.arg_attrs) != count:
            given = len(op.arg_attrs)
            raise VerifyException(f"there are attributes of {given} arguments, not of {count}")
        argument_roles(op)
    elif ROLE in op.attributes and len(_roles_of(op)) != len(op.results):
        raise VerifyException(f"there is one role for each of {len(op.results)} results")


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
