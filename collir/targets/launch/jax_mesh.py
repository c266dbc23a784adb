"""The target ``jax-mesh``: a `jax.sharding.Mesh` for every mesh."""

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from collir.targets.launch.python_mesh import Framework, PythonMeshTarget, python_meshes

_JAX = Framework(
    name="JAX",
    about="Processes are numbered by hardware; a mesh has devices in the order of its placement.",
    imports=["import jax", "import numpy as np", "from jax.sharding import Mesh"],
    parameter="devices=None",
    meaning="devices: in hardware order, those of a host one behind the other; or jax.devices().",
    devices="np.array(jax.devices() if devices is None else devices, dtype=object)",
    transpose="transpose",
    made=["Mesh", "array", "{names}"],
)


@dataclass(frozen=True)
class JaxMeshTarget(PythonMeshTarget):
    """Python for JAX: a function per mesh that makes a `jax.sharding.Mesh` with its axes.

    The mesh has the devices in the order of the placement, so that shardings by its axes send over
    the links of the placement. Processes are numbered by hardware: `jax.devices()` then is in
    hardware order, the devices of a host one behind the other. If `jax.devices()` has another
    order, as on some TPUs, pass the function a list of the devices in hardware order.
    """

    name = "jax-mesh"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write(python_meshes(module, self.mesh, _JAX))
