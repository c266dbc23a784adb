"""Written by collir VERSION: torch.distributed.

Every process, after torch.distributed.init_process_group, makes one object of a mesh, and calls
its methods with its own tensors:

    m = M()
    r = m.sync_gradients(g)

Arguments are checked, results are new tensors, outside of autograd. Where a rank holds nothing
of a value, it gives and gets None. Tensors are on the device of the mesh (device="cuda"), which
the backend of the default process group has to serve.
"""

import torch
import torch.distributed as dist


class M:
    """Mesh @m on @cluster: 8 ranks, data = node:2 * gpu:4."""

    def __init__(self, device="cpu"):
        size = dist.get_world_size()
        if size != 8:
            raise ValueError(f"mesh @m needs 8 ranks, has {size}")
        self.device = device
        rank = dist.get_rank()
        # This rank's coordinates on the sub-axes.
        self.data_node = rank // 4
        self.data_gpu = rank % 4
        # All ranks by their coordinates on data.node, data.gpu; a row for every group.
        ranks = torch.arange(8).reshape((2, 4))
        groups = ranks.reshape(-1, 4).tolist()
        self.over_data_gpu, _ = dist.new_subgroups_by_enumeration(groups)
        groups = ranks.movedim(0, -1).reshape(-1, 2).tolist()
        self.over_data_node, _ = dist.new_subgroups_by_enumeration(groups)

    @torch.no_grad()
    def sync_gradients(self, g):
        """Every rank calls it with what it holds.

        Args:
            g: f32[1048576] partial(sum: data), on each rank a tensor of shape (1048576,).

        Returns:
            r: f32[1048576], on each rank a tensor of shape (1048576,).
        """
        g = self._argument("g", g, torch.float32, (1048576,))
        # %0 = reduce_scatter %g over data.gpu dim 0
        v0 = torch.empty((262144,), dtype=torch.float32, device=self.device)
        dist.reduce_scatter_tensor(
            v0, g, op=dist.ReduceOp.SUM, group=self.over_data_gpu
        )
        # %1 = all_reduce %0 over data.node
        v1 = v0.clone()
        dist.all_reduce(v1, op=dist.ReduceOp.SUM, group=self.over_data_node)
        del v0
        # %r = all_gather %1 over data.gpu dim 0
        r = torch.empty((1048576,), dtype=torch.float32, device=self.device)
        dist.all_gather_into_tensor(r, v1, group=self.over_data_gpu)
        return r

    def _argument(self, name, x, dtype, shape):
        """An argument with its elements in order, if it is what it should be."""
        if getattr(x, "dtype", None) != dtype or tuple(x.shape) != shape:
            found = f"{x.dtype}, {tuple(x.shape)}" if hasattr(x, "dtype") else repr(x)
            raise ValueError(f"{name} is {found}, not {dtype}, {shape}")
        return x.contiguous()
