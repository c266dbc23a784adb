"""The target ``device-mesh``: a `DeviceMesh` of torch.distributed for every mesh."""

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from collir.targets.launch.python_mesh import Framework, PythonMeshTarget, python_meshes

_TORCH = Framework(
    name="torch.distributed",
    about="Ranks are numbered by hardware; a mesh has them in the order of its placement.",
    imports=["import torch", "from torch.distributed.device_mesh import DeviceMesh"],
    parameter='device_type="cuda"',
    meaning="device_type: cuda, cpu, ...",
    devices='torch.arange({devices}, device="cpu")',
    transpose="permute",
    made=["DeviceMesh", "device_type", "array", "mesh_dim_names={names}"],
)


@dataclass(frozen=True)
class DeviceMeshTarget(PythonMeshTarget):
    """Python for torch.distributed: a function per mesh that makes a `DeviceMesh` with its axes.

    The mesh has the ranks in the order of the placement, under the names of the axes. Ranks are
    numbered by hardware, the ranks of a host one behind the other: torchrun and lists with
    `order=hardware` number ranks so. Along an axis ranks ascend: in the group of an axis, a rank is
    the coordinate on the axis.
    """

    name = "device-mesh"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write(python_meshes(module, self.mesh, _TORCH))
