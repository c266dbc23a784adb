"""The methods that operations of models call in emitted torch, by their names."""

METHODS: dict[str, str] = {
    "as_one_dim": '''\
    def _as_one_dim(self, function, x, dim):
        """A function of one dimension, of several as one."""
        last = tuple(range(-len(dim), 0))
        moved = x.movedim(dim, last)
        y = function(moved.flatten(-len(dim)), dim=-1)
        return y.reshape(moved.shape).movedim(last, dim).contiguous()
''',
    "normalised": '''\
    def _normalised(self, function, x, *gains, dim, shape, eps):
        """A normalisation of the last dimensions, of any that gains have in this order."""
        last = tuple(range(-len(dim), 0))
        y = function(x.movedim(dim, last), shape, *gains, eps=eps)
        return y.movedim(last, dim).contiguous()
''',
    "iota": '''\
    def _iota(self, shape, dtype, dim, start):
        """The positions along a dimension, whose block begins at start."""
        numbers = torch.arange(start, start + shape[dim], device=self.device).to(dtype)
        numbers = numbers.reshape(-1, *(1,) * (len(shape) - dim - 1))
        return numbers.expand(shape).contiguous()
''',
    "uniform": '''\
    def _uniform(self, seed, starts, shape, dtype, bits):
        """Numbers from 0 to below 1, each by the seed and its position in the whole tensor."""

        def mixed(x):
            for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
                x = (x ^ (x >> shift)) * factor & 0xFFFFFFFF
            return x ^ (x >> 16)

        drawn = mixed(seed.reshape((1,) * len(shape)).to(torch.int64) & 0xFFFFFFFF)
        for dim, (start, size) in enumerate(zip(starts, shape)):
            own = torch.arange(start, start + size, device=self.device) & 0xFFFFFFFF
            own = own.reshape(-1, *(1,) * (len(shape) - dim - 1))
            drawn = mixed((drawn ^ own) * 0x9E3779B1 + dim & 0xFFFFFFFF)
        numbers = (drawn >> (32 - bits)).to(dtype) * 0.5**bits
        return numbers.expand(shape).contiguous()
''',
    "take": '''\
    def _take(self, x, at, dim, start):
        """The slices of x at positions along a dimension, whose block begins at start.

        They are 0 for positions that it does not have.
        """
        at = at.to(torch.int64) - start
        known = (at >= 0) & (at < x.shape[dim])
        slices = x.index_select(dim, torch.where(known, at, 0).flatten())
        slices = slices.reshape((*x.shape[:dim], *at.shape, *x.shape[dim + 1 :]))
        known = known.reshape((*at.shape, *(1,) * (x.ndim - dim - 1)))
        return slices.masked_fill(~known, 0)
''',
    "take_transpose": '''\
    def _take_transpose(self, x, at, dim, start, size):
        """Zeros with the slices of x added at positions along a dimension, from start.

        Those of positions that it does not have are left out.
        """
        before, after = x.shape[:dim], x.shape[dim + at.ndim :]
        slices = x.reshape(*before, at.numel(), *after)
        at = at.to(torch.int64).flatten() - start
        at = torch.where((at >= 0) & (at < size), at, size)
        sums = self._zeros((*before, size + 1, *after), x.dtype)
        sums.index_add_(dim, at, slices.to(sums.dtype))
        return sums.narrow(dim, 0, size).to(x.dtype).contiguous()
''',
    "linear_scan": '''\
    def _linear_scan(self, x, factors, dim, back=False):
        """Each element of x plus a factor times the result before (or behind), along a dim."""
        wide = x.dtype
        if x.is_floating_point():
            wide = torch.promote_types(wide, torch.float32)
        rows, factors = x.to(wide).unbind(dim), factors.to(wide).unbind(dim)
        results, state = [None] * len(rows), torch.zeros_like(rows[0])
        for n in reversed(range(len(rows))) if back else range(len(rows)):
            results[n] = state = rows[n] + factors[n] * state
        return torch.stack(results, dim).to(x.dtype)
''',
    "take_along": '''\
    def _take_along(self, x, at, dim, start):
        """The elements of x at positions along a dimension, whose block begins at start.

        They are 0 for positions that it does not have.
        """
        at = at.to(torch.int64) - start
        known = (at >= 0) & (at < x.shape[dim])
        return x.gather(dim, torch.where(known, at, 0)).masked_fill(~known, 0)
''',
    "take_along_transpose": '''\
    def _take_along_transpose(self, x, at, dim, start, size):
        """Zeros with the elements of x added at positions along a dimension, from start.

        Those of positions that it does not have are left out.
        """
        at = at.to(torch.int64) - start
        at = torch.where((at >= 0) & (at < size), at, size)
        sums = self._zeros((*x.shape[:dim], size + 1, *x.shape[dim + 1 :]), x.dtype)
        sums.scatter_add_(dim, at, x.to(sums.dtype))
        return sums.narrow(dim, 0, size).to(x.dtype).contiguous()
''',
    "grouped_matmul": '''\
    def _grouped_matmul(self, x, w, groups, start, transposed=False):
        """The product of each row of x with the matrix of its group, the first of which is start.

        It is 0 for groups that w does not have.
        """
        rows, w = x.reshape(-1, x.shape[-1]), w.transpose(1, 2) if transposed else w
        products = x.new_zeros(rows.shape[0], w.shape[2])
        for group in range(w.shape[0]):
            own = torch.nonzero(groups.flatten() == start + group).flatten()
            products.index_copy_(0, own, rows.index_select(0, own) @ w[group])
        return products.reshape(*x.shape[:-1], -1)
''',
    "grouped_matmul_transpose": '''\
    def _grouped_matmul_transpose(self, x, y, groups, start, size):
        """The products of the elements of rows of x and y, added up for each group from start."""
        x, y = (rows.reshape(-1, rows.shape[-1]) for rows in (x, y))
        sums = x.new_zeros(size, x.shape[-1], y.shape[-1])
        for group in range(size):
            own = torch.nonzero(groups.flatten() == start + group).flatten()
            sums[group] = x.index_select(0, own).T @ y.index_select(0, own)
        return sums
''',
    "one_hot": '''\
    def _one_hot(self, x, size, dtype, start):
        """1 at positions in a new dimension, whose block begins at start, else 0."""
        own = torch.arange(start, start + size, device=self.device)
        return (x.unsqueeze(-1) == own).to(dtype)
''',
    "cross_entropy": '''\
    def _cross_entropy(self, x, labels, dim):
        """The logarithm of the sum of e^x along a dimension, less the x of a label.

        It is 0 for labels that are no position of the dimension.
        """
        labels = labels.to(torch.int64)
        known = (labels >= 0) & (labels < x.shape[dim])
        own = torch.where(known, labels, 0).unsqueeze(dim)
        losses = -torch.log_softmax(x, dim=dim).gather(dim, own).squeeze(dim)
        return losses.masked_fill(~known, 0)
''',
    "top_k": '''\
    def _top_k(self, x, k, dim):
        """The k largest elements and their positions, of equal ones the first."""
        values, indices = torch.sort(x, dim=dim, descending=True, stable=True)
        indices = indices.narrow(dim, 0, k).to(torch.int32)
        return values.narrow(dim, 0, k).contiguous(), indices.contiguous()
''',
    "conv": '''\
    def _conv(self, x, w, stride, padding):
        """The products of windows of the inner dimensions with a filter."""
        x, w, ones = x.movedim(-1, 1), w.movedim((-1, -2), (0, 1)), [1] * len(stride)
        y = torch.convolution(
            x, w, None, stride, padding, ones, False, [0] * len(stride), 1
        )
        return y.movedim(1, -1).contiguous()
''',
    "conv_transpose": '''\
    def _conv_transpose(self, g, w, shape, stride, padding):
        """The gradient of a convolution of an array of a shape, by the array."""
        x = g.new_empty((shape[0], shape[-1], *shape[1:-1]))
        w = w.movedim((-1, -2), (0, 1))
        gradient = self._conv_gradient(g, x, w, stride, padding, 0)
        return gradient.movedim(1, -1).contiguous()
''',
    "conv_filter": '''\
    def _conv_filter(self, x, g, shape, stride, padding):
        """The gradient of a convolution with a filter of a shape, by the filter."""
        w = x.new_empty((*shape[:-3:-1], *shape[:-2]))
        gradient = self._conv_gradient(g, x.movedim(-1, 1), w, stride, padding, 1)
        return gradient.movedim((0, 1), (-1, -2)).contiguous()
''',
    "conv_gradient": '''\
    def _conv_gradient(self, g, x, w, stride, padding, number):
        """The gradient of a convolution by its first operand (0) or its second (1)."""
        ones, none = [1] * len(stride), [0] * len(stride)
        wanted = [number == 0, number == 1, False]
        return torch.ops.aten.convolution_backward(
            g.movedim(-1, 1), x, w, None, stride, padding, ones, False, none, 1, wanted
        )[number]
''',
    "windows": '''\
    def _windows(self, x, window, stride, padding, outside=0):
        """The windows of the inner dimensions, those of a window behind all others."""
        widths = [n for p in reversed((*padding, 0)) for n in (p, p)]
        x = F.pad(x, widths, value=outside) if any(padding) else x
        for dim, (size, step) in enumerate(zip(window, stride), 1):
            x = x.unfold(dim, size, step)
        return x
''',
    "added_windows": '''\
    def _added_windows(self, x, shape, stride, padding):
        """Zeros of a shape with windows added, whose dimensions are the last of x."""
        counts, window = x.shape[1 : len(shape) - 1], x.shape[len(shape) :]
        sizes = [size + 2 * p for size, p in zip(shape[1:-1], padding)]
        sums = self._zeros((shape[0], *sizes, shape[-1]), x.dtype)
        for place in itertools.product(*map(range, window)):
            cuts = (
                slice(p, p + step * (count - 1) + 1, step)
                for p, step, count in zip(place, stride, counts)
            )
            sums[(slice(None), *cuts)] += x[(..., *place)]
        inner = (slice(p, p + size) for p, size in zip(padding, shape[1:-1]))
        return sums[(slice(None), *inner)].to(x.dtype).contiguous()
''',
    "zeros": '''\
    def _zeros(self, shape, dtype):
        """Zeros to which numbers of a type are added: of f32 for those of 16 bits."""
        short = dtype in (torch.float16, torch.bfloat16)
        return torch.zeros(
            shape, dtype=torch.float32 if short else dtype, device=self.device
        )
''',
    "largest": '''\
    def _largest(self, x, windows):
        """The elements of x at the first largest of each window, else zeros."""
        flat = windows.reshape(*x.shape, -1)
        first = flat.argmax(dim=-1, keepdim=True)
        own = x.new_zeros(flat.shape).scatter_(-1, first, x.unsqueeze(-1))
        return own.reshape(windows.shape)
''',
}
"""The text of each method."""

USES: dict[str, tuple[str, ...]] = {
    "conv_transpose": ("conv_gradient",),
    "conv_filter": ("conv_gradient",),
    "windows": ("F",),
    "added_windows": ("itertools", "zeros"),
    "take_transpose": ("zeros",),
    "take_along_transpose": ("zeros",),
}
"""The methods and modules that methods use."""
