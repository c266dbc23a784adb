"""The local dialect: what each rank executes, once for all ranks.

Values are buffers of the rank and tokens of what is under way. A collective has a start and a wait;
in between its operand may be read by others, and its result by nobody. Only ``copy`` moves memory
inside a device. What differs by rank is a number of its coordinates, or stands in an ``at``.
"""

from xdsl.ir import Dialect

from collir.dialects.local_collectives import StartOp, WaitOp, started_by
from collir.dialects.local_kernels import MASK, ComputeOp, type_parameters
from collir.dialects.local_memory import AllocOp, CopyOp, FreeOp, ViewOp, check_target, origin_of
from collir.dialects.local_program import (
    STEP,
    AtOp,
    LocalCallOp,
    LocalFuncOp,
    LocalRepeatOp,
    LocalYieldOp,
    bounds,
    check_numbers,
    enclosing,
    local_functions,
    mesh_at,
    number,
    place_around,
    ranks_at,
    same_numbers,
)
from collir.dialects.local_types import BufferType, RankNumberAttr, TokenType
from collir.dialects.tables import register

__all__ = [
    "MASK",
    "STEP",
    "AllocOp",
    "AtOp",
    "ComputeOp",
    "CopyOp",
    "FreeOp",
    "Local",
    "LocalCallOp",
    "LocalFuncOp",
    "LocalRepeatOp",
    "LocalYieldOp",
    "StartOp",
    "ViewOp",
    "WaitOp",
    "bounds",
    "check_numbers",
    "check_target",
    "enclosing",
    "local_functions",
    "mesh_at",
    "number",
    "origin_of",
    "place_around",
    "ranks_at",
    "same_numbers",
    "started_by",
    "type_parameters",
]

Local = Dialect(
    "local",
    [
        AllocOp,
        FreeOp,
        ViewOp,
        CopyOp,
        StartOp,
        WaitOp,
        ComputeOp,
        LocalYieldOp,
        AtOp,
        LocalRepeatOp,
        LocalCallOp,
        LocalFuncOp,
    ],
    [BufferType, TokenType, RankNumberAttr],
)

register(Local)
