"""The target ``rankfile``: the host and the cores of every rank for Open MPI."""

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from collir.targets.launch.ranks import RanksTarget


@dataclass(frozen=True)
class RankfileTarget(RanksTarget):
    """A rankfile of Open MPI: the host and the cores of every rank, by the placement of a mesh.

    This is for programs that number their ranks along the mesh: axes as declared, the last axis
    fastest. With `order=hardware` rank r is device r instead, for programs that place the axes
    themselves, such as the programs that `mpi`, `nccl`, `torch` and `device-mesh` print.

    Device i of a host is its core i, or with `cores=c` the c cores from i * c on. GPUs are mostly
    chosen by local rank. On a host of several levels their order may differ from the order of the
    devices; a comment then has the CUDA_VISIBLE_DEVICES of all ranks.
    """

    name = "rankfile"
    WHAT = "rankfile"

    cores: int = 1
    """The number of cores of each rank."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cores < 1:
            raise ValueError("cores is 1 or more")

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        ranks = self.ranks(module)
        hosts = self.host_text(ranks, lambda host: f"+n{host}")
        how = f"mpirun -n {ranks.mesh.devices} --map-by rankfile:file=FILE PROGRAM"
        output.write(ranks.comments("rankfile of Open MPI", how))
        for rank, device in enumerate(ranks.devices()):
            host, slot = ranks.slot(device)
            first, last = slot * self.cores, (slot + 1) * self.cores - 1
            cores = f"{first}" if first == last else f"{first}-{last}"
            output.write(f"rank {rank}={hosts[host]} slot={cores}\n")
