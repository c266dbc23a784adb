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
        groups = ranks.reshape(-1, 2).tolist()
        self.over_model_gpu, _ = dist.new_subgroups_by_enumeration(groups)
        groups = ranks.movedim(0, -1).reshape(-1, 2).tolist()
        self.over_data_node, _ = dist.new_subgroups_by_enumeration(groups)

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
            # %0 = einsum "b i, i j -> b j" %h, %v
            v1 = torch.einsum("bi,ij->bj", y, v[i, ...]).contiguous()
            # %1 = relu %0
            v2 = torch.relu(v1)
            del v1
            # %2 = einsum "b i, i j -> b j" %1, %w
            v3 = torch.einsum("bi,ij->bj", v2, w[i, ...]).contiguous()
            del v2
            # %3 = all_reduce %2 over model
            v4 = v3.clone()
            dist.all_reduce(v4, op=dist.ReduceOp.SUM, group=self.over_model_gpu)
            del v3
            # %4 = relu %3
            y = torch.relu(v4)
            del v4
        # %difference = sub %y, %z
        difference = y - z
        del y
        # %squares = mul %difference, %difference
        squares = difference * difference
        del difference
        # %part = sum %squares dims [0, 1]
        part = torch.sum(squares, dim=(0, 1))
        del squares
        # %total = all_reduce %part over data
        total = part.clone()
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=self.over_data_node)
        del part
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
        v0 = torch.empty((2, 2, 8), dtype=torch.float32, device=self.device)
        v1 = torch.empty((2, 2, 4), dtype=torch.float32, device=self.device)
        v2 = torch.empty((2, 2, 8), dtype=torch.float32, device=self.device)
        y = x
        for i in range(2):
            # %0 = einsum "b i, i j -> b j" %h, %v
            v6 = torch.einsum("bi,ij->bj", y, v[i, ...]).contiguous()
            # %1 = relu %0
            v1[i, ...] = torch.relu(v6)
            del v6
            # %2 = einsum "b i, i j -> b j" %1, %w
            v7 = torch.einsum("bi,ij->bj", v1[i, ...], w[i, ...]).contiguous()
            # %3 = all_reduce %2 over model
            v8 = v7.clone()
            dist.all_reduce(v8, op=dist.ReduceOp.SUM, group=self.over_model_gpu)
            del v7
            # %4 = relu %3
            v3 = torch.relu(v8)
            del v8
            v2[i, ...] = v3
            v0[i, ...] = y
            y = v3
        # %difference = sub %y, %z
        difference = y - z
        del y
        # %squares = mul %difference, %difference
        squares = difference * difference
        # %part = sum %squares dims [0, 1]
        part = torch.sum(squares, dim=(0, 1))
        del squares
        # %total = all_reduce %part over data
        total = part.clone()
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=self.over_data_node)
        del part
        # %count = constant value batch * width to f32[]
        count = torch.full((), 32.0, dtype=torch.float32, device=self.device)
        # %loss = div %total, %count
        loss = total / count
        del total
        # %3 = constant value 1 to f32[]
        v9 = torch.ones((), dtype=torch.float32, device=self.device)
        # %4 = div %3, %count
        v10 = v9 / count
        del v9, count
        # %6 = broadcast_to %5 to f32[batch@data, width]
        v11 = v10[None, None].expand((2, 8)).contiguous()
        del v10
        # %7 = mul %6, %difference
        v12 = v11 * difference
        # %8 = mul %6, %difference
        v13 = v11 * difference
        del v11, difference
        # %9 = add %7, %8
        v14 = v12 + v13
        del v13, v12
        # %10, %d_v, %d_w = repeat (layers / 2) carry(%16 = %9) slice(%17 = %0, %18 = %1, %h_1 = %2, %w_2 = %w, %v_2 = %v) reverse
        d_w = torch.empty((2, 4, 8), dtype=torch.float32, device=self.device)
        d_v = torch.empty((2, 8, 4), dtype=torch.float32, device=self.device)
        v16 = v14
        for i in reversed(range(2)):
            # %3 = constant value 0 to f32[]
            v23 = torch.zeros((), dtype=torch.float32, device=self.device)
            # %4 = greater %1, %3
            v24 = v2[i, ...] > v23
            del v23
            # %5 = constant value 0 to f32[]
            v25 = torch.zeros((), dtype=torch.float32, device=self.device)
            # %6 = where %4, %0, %5
            v26 = torch.where(v24, v16, v25)
            del v25, v24
            # %7 = einsum "b j, i j -> b i" %6, %w
            v27 = torch.einsum("bj,ij->bi", v26, w[i, ...]).contiguous()
            # %8 = einsum "b j, b i -> i j" %6, %2
            v28 = torch.einsum("bj,bi->ij", v26, v1[i, ...]).contiguous()
            del v26
            # %9 = constant value 0 to f32[]
            v29 = torch.zeros((), dtype=torch.float32, device=self.device)
            # %10 = greater %2, %9
            v30 = v1[i, ...] > v29
            del v29
            # %11 = constant value 0 to f32[]
            v31 = torch.zeros((), dtype=torch.float32, device=self.device)
            # %12 = where %10, %7, %11
            v32 = torch.where(v30, v27, v31)
            del v31, v30, v27
            # %13 = einsum "b j, i j -> b i" %12, %v
            v33 = torch.einsum("bj,ij->bi", v32, v[i, ...]).contiguous()
            # %14 = einsum "b j, b i -> i j" %12, %h
            v34 = torch.einsum("bj,bi->ij", v32, v0[i, ...]).contiguous()
            del v32
            # %15 = all_reduce %13 over model
            v16 = v33.clone()
            dist.all_reduce(v16, op=dist.ReduceOp.SUM, group=self.over_model_gpu)
            del v33
            # %16 = all_reduce %14 over data
            d_v[i, ...] = v34
            dist.all_reduce(
                d_v[i, ...], op=dist.ReduceOp.SUM, group=self.over_data_node
            )
            del v34
            # %17 = all_reduce %8 over data
            d_w[i, ...] = v28
            dist.all_reduce(
                d_w[i, ...], op=dist.ReduceOp.SUM, group=self.over_data_node
            )
            del v28
        del v16, v14, v2, v1, v0
        # %u_v = scale %d_v by 0.01
        u_v = d_v * 0.01
        del d_v
        # %u_w = scale %d_w by 0.01
        u_w = d_w * 0.01
        del d_w
        # %new_v = sub %v, %u_v
        new_v = v - u_v
        del u_v
        # %new_w = sub %w, %u_w
        new_w = w - u_w
        return loss, new_v, new_w

    def _argument(self, name, x, dtype, shape):
        """An argument with its elements in order, if it is what it should be."""
        if getattr(x, "dtype", None) != dtype or tuple(x.shape) != shape:
            found = f"{x.dtype}, {tuple(x.shape)}" if hasattr(x, "dtype") else repr(x)
            raise ValueError(f"{name} is {found}, not {dtype}, {shape}")
        return x.contiguous()
