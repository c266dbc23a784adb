"""The target ``hostfile``: the host of every rank for SLURM."""

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from collir.targets.launch.ranks import RanksTarget


@dataclass(frozen=True)
class HostfileTarget(RanksTarget):
    """A hostfile of SLURM: the host of every rank, a line each, by the placement of a mesh.

    `SLURM_HOSTFILE=FILE srun -n N --distribution=arbitrary PROGRAM` starts rank r on the host of
    line r. This is for programs that number their ranks along the mesh: axes as declared, the last
    axis fastest. With `order=hardware` rank r is device r instead, for programs that place the axes
    themselves, such as the programs that `mpi`, `nccl`, `torch` and `device-mesh` print.

    On a host of several levels, local ranks may be in another order than the devices. A comment
    then has the devices in the order of local ranks: the CUDA_VISIBLE_DEVICES of all ranks, or the
    list behind `--cpu-bind=map_cpu:`.
    """

    name = "hostfile"
    WHAT = "hostfile"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        ranks = self.ranks(module)
        hosts = self.host_text(ranks, lambda host: f"node{host}")
        how = f"SLURM_HOSTFILE=FILE srun -n {ranks.mesh.devices} --distribution=arbitrary PROGRAM"
        output.write(ranks.comments("hostfile of SLURM", how))
        for device in ranks.devices():
            output.write(f"{hosts[ranks.slot(device)[0]]}\n")
