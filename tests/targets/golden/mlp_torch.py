"""Written by collir VERSION: torch.distributed.

Every process, after torch.distributed.init_process_group, makes one object of a mesh, and calls
its methods with its own tensors:

    m = M()
    mean = m.loss(x, z, v, w)

Arguments are checked, results are new tensors, outside of autograd. Where a rank holds nothing
of a value, it gives and gets None. Tensors are on the device of the mesh (device="cuda"), which
the backend of the default process group has to serve.
"""

import torch
import torch.distributed as dist


class M:
    """Mesh @m on @box: 4 ranks, data = node:2, model = gpu:2."""

    def __init__(self, device="cpu"):
        size = dist.get_world_size()
        if size != 4:
            raise ValueError(f"mesh @m needs 4 ranks, has {size}")
        self.device = device
        rank = dist.get_rank()
        # This rank's coordinates on the sub-axes.
        self.data_node = rank // 2
        self.model_gpu = rank % 2
        # All ranks by their coordinates on data.node, model.gpu; a row for every group.
        ranks = torch.arange(4).reshape((2, 2))
        groups = ranks.movedim(0, -1).reshape(-1, 2).tolist()
        self.over_data_node, _ = dist.new_subgroups_by_enumeration(groups)
        groups = ranks.reshape(-1, 2).tolist()
        self.over_model_gpu, _ = dist.new_subgroups_by_enumeration(groups)

    @torch.no_grad()
    def loss(self, x, z, v, w):
        """Every rank calls it with what it holds.

        Args:
            x: f32[4@data, 8], on each rank a tensor of shape (2, 8).
            z: f32[4@data, 8], on each rank a tensor of shape (2, 8).
            v: f32[2, 8, 8@model], on each rank a tensor of shape (2, 8, 4).
            w: f32[2, 8@model, 8], on each rank a tensor of shape (2, 4, 8).

        Returns:
            mean: f32[], on each rank a tensor of shape ().
        """
        x = self._argument("x", x, torch.float32, (2, 8))
        z = self._argument("z", z, torch.float32, (2, 8))
        v = self._argument("v", v, torch.float32, (2, 8, 4))
        w = self._argument("w", w, torch.float32, (2, 4, 8))
        # %y = repeat (layers / 2) carry(%h = %x) slice(%v_1 = %v, %w_1 = %w)
        y = x
        for i in range(2):
            y = self.loss_body(y, v[i, ...], w[i, ...])
        # %difference = sub %y, %z
        difference = y - z
        # %squares = mul %difference, %difference
        squares = difference * difference
        # %part = sum %squares dims [0, 1]
        part = torch.sum(squares, dim=(0, 1))
        # %total = all_reduce %part over data
        total = part.clone()
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=self.over_data_node)
        # %count = constant value batch * width to f32[]
        count = torch.full((), 32.0, dtype=torch.float32, device=self.device)
        # %mean = div %total, %count
        mean = total / count
        return mean

    @torch.no_grad()
    def step(self, x, z, v, w):
        """Every rank calls it with what it holds.

        Args:
            x: f32[4@data, 8], on each rank a tensor of shape (2, 8).
            z: f32[4@data, 8], on each rank a tensor of shape (2, 8).
            v: f32[2, 8, 8@model], on each rank a tensor of shape (2, 8, 4).
            w: f32[2, 8@model, 8], on each rank a tensor of shape (2, 4, 8).

        Returns:
            loss: f32[], on each rank a tensor of shape ().
            new_v: f32[2, 8, 8@model], on each rank a tensor of shape (2, 8, 4).
            new_w: f32[2, 8@model, 8], on each rank a tensor of shape (2, 4, 8).
        """
        x = self._argument("x", x, torch.float32, (2, 8))
        z = self._argument("z", z, torch.float32, (2, 8))
        v = self._argument("v", v, torch.float32, (2, 8, 4))
        w = self._argument("w", w, torch.float32, (2, 4, 8))
        # %y, %0, %1, %2 = repeat (layers / 2) carry(%h = %x) slice(%v_1 = %v, %w_1 = %w)
        y = x
        v0 = torch.empty((2, 2, 8), dtype=torch.float32, device=self.device)
        v1 = torch.empty((2, 2, 4), dtype=torch.float32, device=self.device)
        v2 = torch.empty((2, 2, 8), dtype=torch.float32, device=self.device)
        for i in range(2):
            made = self.step_body(y, v[i, ...], w[i, ...])
            y = made[0]
            v0[i, ...] = made[1]
            v1[i, ...] = made[2]
            v2[i, ...] = made[3]
        # %difference = sub %y, %z
        difference = y - z
        # %squares = mul %difference, %difference
        squares = difference * difference
        # %part = sum %squares dims [0, 1]
        part = torch.sum(squares, dim=(0, 1))
        # %total = all_reduce %part over data
        total = part.clone()
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=self.over_data_node)
        # %count = constant value batch * width to f32[]
        count = torch.full((), 32.0, dtype=torch.float32, device=self.device)
        # %loss = div %total, %count
        loss = total / count
        # %3 = constant value 1 to f32[]
        v3 = torch.ones((), dtype=torch.float32, device=self.device)
        # %4 = div %3, %count
        v4 = v3 / count
        # %5 = reshape %4 to [1, 1]
        v5 = v4.reshape((1, 1))
        # %6 = broadcast_to %5 to f32[batch@data, width]
        v6 = torch.broadcast_to(v5, (2, 8)).contiguous()
        # %7 = mul %6, %difference
        v7 = v6 * difference
        # %8 = mul %6, %difference
        v8 = v6 * difference
        # %9 = add %7, %8
        v9 = v7 + v8
        # %10, %d_v, %d_w = repeat (layers / 2) carry(%16 = %9) slice(%17 = %0, %18 = %1, %h_1 = %2, %w_2 = %w, %v_2 = %v) reverse
        v10 = v9
        d_v = torch.empty((2, 8, 4), dtype=torch.float32, device=self.device)
        d_w = torch.empty((2, 4, 8), dtype=torch.float32, device=self.device)
        for i in reversed(range(2)):
            made = self.step_body_2(
                v10,
                v0[i, ...],
                v1[i, ...],
                v2[i, ...],
                w[i, ...],
                v[i, ...],
            )
            v10 = made[0]
            d_v[i, ...] = made[1]
            d_w[i, ...] = made[2]
        # %u_v = scale %d_v by 0.01
        u_v = d_v * 0.01
        # %u_w = scale %d_w by 0.01
        u_w = d_w * 0.01
        # %new_v = sub %v, %u_v
        new_v = v - u_v
        # %new_w = sub %w, %u_w
        new_w = w - u_w
        return loss, new_v, new_w

    @torch.no_grad()
    def loss_body(self, h, v, w):
        """Every rank calls it with what it holds.

        Args:
            h: f32[4@data, 8], on each rank a tensor of shape (2, 8).
            v: f32[8, 8@model], on each rank a tensor of shape (8, 4).
            w: f32[8@model, 8], on each rank a tensor of shape (4, 8).

        Returns:
            v4: f32[4@data, 8], on each rank a tensor of shape (2, 8).
        """
        h = self._argument("h", h, torch.float32, (2, 8))
        v = self._argument("v", v, torch.float32, (8, 4))
        w = self._argument("w", w, torch.float32, (4, 8))
        # %0 = einsum "b i, i j -> b j" %h, %v
        v0 = torch.einsum("bi,ij->bj", h, v).contiguous()
        # %1 = relu %0
        v1 = torch.relu(v0)
        # %2 = einsum "b i, i j -> b j" %1, %w
        v2 = torch.einsum("bi,ij->bj", v1, w).contiguous()
        # %3 = all_reduce %2 over model
        v3 = v2.clone()
        dist.all_reduce(v3, op=dist.ReduceOp.SUM, group=self.over_model_gpu)
        # %4 = relu %3
        v4 = torch.relu(v3)
        return v4

    @torch.no_grad()
    def step_body(self, h, v, w):
        """Every rank calls it with what it holds.

        Args:
            h: f32[4@data, 8], on each rank a tensor of shape (2, 8).
            v: f32[8, 8@model], on each rank a tensor of shape (8, 4).
            w: f32[8@model, 8], on each rank a tensor of shape (4, 8).

        Returns:
            v4: f32[4@data, 8], on each rank a tensor of shape (2, 8).
            v4: f32[4@data, 8], on each rank a tensor of shape (2, 8).
            v1: f32[4@data, 8@model], on each rank a tensor of shape (2, 4).
            h: f32[4@data, 8], on each rank a tensor of shape (2, 8).
        """
        h = self._argument("h", h, torch.float32, (2, 8))
        v = self._argument("v", v, torch.float32, (8, 4))
        w = self._argument("w", w, torch.float32, (4, 8))
        # %0 = einsum "b i, i j -> b j" %h, %v
        v0 = torch.einsum("bi,ij->bj", h, v).contiguous()
        # %1 = relu %0
        v1 = torch.relu(v0)
        # %2 = einsum "b i, i j -> b j" %1, %w
        v2 = torch.einsum("bi,ij->bj", v1, w).contiguous()
        # %3 = all_reduce %2 over model
        v3 = v2.clone()
        dist.all_reduce(v3, op=dist.ReduceOp.SUM, group=self.over_model_gpu)
        # %4 = relu %3
        v4 = torch.relu(v3)
        return v4, v4.clone(), v1, h.clone()

    @torch.no_grad()
    def step_body_2(self, v0, v1, v2, h, w, v):
        """Every rank calls it with what it holds.

        Args:
            v0: f32[4@data, 8], on each rank a tensor of shape (2, 8).
            v1: f32[4@data, 8], on each rank a tensor of shape (2, 8).
            v2: f32[4@data, 8@model], on each rank a tensor of shape (2, 4).
            h: f32[4@data, 8], on each rank a tensor of shape (2, 8).
            w: f32[8@model, 8], on each rank a tensor of shape (4, 8).
            v: f32[8, 8@model], on each rank a tensor of shape (8, 4).

        Returns:
            v15: f32[4@data, 8], on each rank a tensor of shape (2, 8).
            v16: f32[8, 8@model], on each rank a tensor of shape (8, 4).
            v17: f32[8@model, 8], on each rank a tensor of shape (4, 8).
        """
        v0 = self._argument("v0", v0, torch.float32, (2, 8))
        v1 = self._argument("v1", v1, torch.float32, (2, 8))
        v2 = self._argument("v2", v2, torch.float32, (2, 4))
        h = self._argument("h", h, torch.float32, (2, 8))
        w = self._argument("w", w, torch.float32, (4, 8))
        v = self._argument("v", v, torch.float32, (8, 4))
        # %3 = constant value 0 to f32[]
        v3 = torch.zeros((), dtype=torch.float32, device=self.device)
        # %4 = greater %1, %3
        v4 = v1 > v3
        # %5 = constant value 0 to f32[]
        v5 = torch.zeros((), dtype=torch.float32, device=self.device)
        # %6 = where %4, %0, %5
        v6 = torch.where(v4, v0, v5)
        # %7 = einsum "b j, i j -> b i" %6, %w
        v7 = torch.einsum("bj,ij->bi", v6, w).contiguous()
        # %8 = einsum "b j, b i -> i j" %6, %2
        v8 = torch.einsum("bj,bi->ij", v6, v2).contiguous()
        # %9 = constant value 0 to f32[]
        v9 = torch.zeros((), dtype=torch.float32, device=self.device)
        # %10 = greater %2, %9
        v10 = v2 > v9
        # %11 = constant value 0 to f32[]
        v11 = torch.zeros((), dtype=torch.float32, device=self.device)
        # %12 = where %10, %7, %11
        v12 = torch.where(v10, v7, v11)
        # %13 = einsum "b j, i j -> b i" %12, %v
        v13 = torch.einsum("bj,ij->bi", v12, v).contiguous()
        # %14 = einsum "b j, b i -> i j" %12, %h
        v14 = torch.einsum("bj,bi->ij", v12, h).contiguous()
        # %15 = all_reduce %13 over model
        v15 = v13.clone()
        dist.all_reduce(v15, op=dist.ReduceOp.SUM, group=self.over_model_gpu)
        # %16 = all_reduce %14 over data
        v16 = v14.clone()
        dist.all_reduce(v16, op=dist.ReduceOp.SUM, group=self.over_data_node)
        # %17 = all_reduce %8 over data
        v17 = v8.clone()
        dist.all_reduce(v17, op=dist.ReduceOp.SUM, group=self.over_data_node)
        return v15, v16, v17

    def _argument(self, name, x, dtype, shape):
        """An argument with its elements in order, if it is what it should be."""
        if getattr(x, "dtype", None) != dtype or tuple(x.shape) != shape:
            found = f"{x.dtype}, {tuple(x.shape)}" if hasattr(x, "dtype") else repr(x)
            raise ValueError(f"{name} is {found}, not {dtype}, {shape}")
        return x.contiguous()
