"""Written by collir VERSION: mpi4py and numpy.

Every rank makes one object of a mesh, for a communicator of as many ranks, and calls its methods
with its own arrays:

    m = M(MPI.COMM_WORLD)
    r = m.sync_gradients(g)

Arguments are checked, results are new arrays. Where a rank holds nothing of a value, it gives
and gets None. Arrays are numpy's, unless a mesh is made with the module of another library
(xp=cupy) that has the Python array API, and that MPI is built for. Needs numpy 2.1, mpi4py 4
and, for more than 2^31 - 1 elements, MPI 4.
"""

import numpy as np
from mpi4py import MPI


class M:
    """Mesh @m on @cluster: 8 ranks, data = node:2 * gpu:4."""

    def __init__(self, comm, xp=np):
        if comm.size != 8:
            raise ValueError(f"mesh @m needs 8 ranks, has {comm.size}")
        self.xp = xp
        rank = comm.rank
        # This rank's coordinates on the sub-axes.
        self.data_node = rank // 4
        self.data_gpu = rank % 4
        # Communicators, their ranks in the order of the sub-axes.
        self.over_data_gpu = comm.Split(self.data_node, self.data_gpu)
        self.over_data_node = comm.Split(self.data_gpu, self.data_node)

    def free(self):
        """Frees the communicators."""
        self.over_data_gpu.Free()
        self.over_data_node.Free()

    def sync_gradients(self, g):
        """Every rank calls it with what it holds.

        Args:
            g: f32[1048576] partial(sum: data), on each rank an array of shape (1048576,).

        Returns:
            r: f32[1048576], on each rank an array of shape (1048576,).
        """
        xp = self.xp
        g = self._argument("g", g, xp.float32, (1048576,))
        # %0 = reduce_scatter %g over data.gpu dim 0
        v0 = xp.empty((262144,), dtype=xp.float32)
        self.over_data_gpu.Reduce_scatter_block(g, v0, MPI.SUM)
        # %1 = all_reduce %0 over data.node
        v1 = xp.empty((262144,), dtype=xp.float32)
        self.over_data_node.Allreduce(v0, v1, MPI.SUM)
        del v0
        # %r = all_gather %1 over data.gpu dim 0
        r = xp.empty((1048576,), dtype=xp.float32)
        self.over_data_gpu.Allgather(v1, r)
        return r

    def _argument(self, name, x, dtype, shape):
        """An argument with its elements in order, if it is what it should be."""
        if getattr(x, "dtype", None) != dtype or x.shape != shape:
            found = f"{x.dtype} of shape {x.shape}" if hasattr(x, "dtype") else repr(x)
            raise ValueError(f"{name} is {found}, not {dtype} of shape {shape}")
        flags = getattr(x, "flags", None)
        return x if flags is not None and flags.c_contiguous else self._packed(x)

    def _packed(self, x):
        """A new array with the elements of x in order, as MPI reads them."""
        new = self.xp.empty(x.shape, dtype=x.dtype)
        new[...] = x
        return new
