"""The methods that operations of models call in emitted numpy, by their names."""

METHODS: dict[str, str] = {
    "erf": '''\
    def _erf(self, x):
        """The error function, element by element."""
        values = [math.erf(value) for value in self.xp.asarray(x, dtype="f8").ravel().tolist()]
        return self.xp.asarray(values, dtype=x.dtype).reshape(x.shape)
''',
    "sigmoid": '''\
    def _sigmoid(self, x):
        """1 / (1 + e^-x), which does not overflow."""
        return self.xp.exp(-self.xp.logaddexp(0, -x))
''',
    "silu": '''\
    def _silu(self, x):
        """x / (1 + e^-x)."""
        return x * self._sigmoid(x)
''',
    "gelu": '''\
    def _gelu(self, x):
        """The approximation by Hendrycks and Gimpel, as in GPT-2."""
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + self.xp.tanh(inner))
''',
    "softmax": '''\
    def _softmax(self, x, axis):
        """e^x over its sum along dimensions."""
        terms = self.xp.exp(x - self.xp.max(x, axis=axis, keepdims=True))
        return terms / self.xp.sum(terms, axis=axis, keepdims=True)
''',
    "log_softmax": '''\
    def _log_softmax(self, x, axis):
        """x less the logarithm of the sum of e^x along dimensions."""
        x = x - self.xp.max(x, axis=axis, keepdims=True)
        return x - self.xp.log(self.xp.sum(self.xp.exp(x), axis=axis, keepdims=True))
''',
    "layer_norm": '''\
    def _layer_norm(self, x, gain, bias, axis, eps):
        """x with mean 0 and variance 1 along dimensions, times a gain, plus a bias."""
        x = x - self.xp.mean(x, axis=axis, keepdims=True)
        squares = self.xp.mean(x * x, axis=axis, keepdims=True)
        return x / self.xp.sqrt(squares + eps) * gain + bias
''',
    "rms_norm": '''\
    def _rms_norm(self, x, gain, axis, eps):
        """x over the root of its mean square along dimensions, times a gain."""
        squares = self.xp.mean(x * x, axis=axis, keepdims=True)
        return x / self.xp.sqrt(squares + eps) * gain
''',
    "iota": '''\
    def _iota(self, shape, dtype, axis, start):
        """The positions along a dimension, whose block begins at start."""
        numbers = self.xp.arange(start, start + shape[axis], dtype=dtype)
        numbers = self.xp.reshape(numbers, (-1, *(1,) * (len(shape) - axis - 1)))
        return self._packed(self.xp.broadcast_to(numbers, shape))
''',
    "uniform": '''\
    def _uniform(self, seed, starts, shape, dtype, bits):
        """Numbers from 0 to below 1, each by the seed and its position in the whole tensor."""

        def mixed(x):
            for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
                x = (x ^ (x >> shift)) * factor & 0xFFFFFFFF
            return x ^ (x >> 16)

        wide = self.xp.uint64
        drawn = self.xp.astype(self.xp.reshape(seed, (1,) * len(shape)), wide)
        drawn = mixed(drawn & 0xFFFFFFFF)
        for dim, (start, size) in enumerate(zip(starts, shape, strict=True)):
            own = self.xp.arange(start, start + size, dtype=wide) & 0xFFFFFFFF
            own = self.xp.reshape(own, (-1, *(1,) * (len(shape) - dim - 1)))
            drawn = mixed((drawn ^ own) * 0x9E3779B1 + dim & 0xFFFFFFFF)
        numbers = self.xp.broadcast_to((drawn >> (32 - bits)) * 0.5**bits, shape)
        return self._packed(self.xp.astype(numbers, dtype))
''',
    "one_hot": '''\
    def _one_hot(self, x, size, dtype, start):
        """1 at positions in a new dimension, whose block begins at start, else 0."""
        own = self.xp.expand_dims(x, axis=-1) == self.xp.arange(start, start + size)
        return self.xp.astype(own, dtype)
''',
    "cross_entropy": '''\
    def _cross_entropy(self, x, labels, axis):
        """The logarithm of the sum of e^x along a dimension, less the x of a label.

        It is 0 for labels that are no position of the dimension.
        """
        labels = self.xp.expand_dims(labels, axis=axis)
        known = (labels >= 0) & (labels < x.shape[axis])
        labels = self.xp.where(known, labels, 0)
        losses = self.xp.take_along_axis(-self._log_softmax(x, axis), labels, axis=axis)
        losses = self.xp.where(known, losses, 0)
        return self._packed(self.xp.squeeze(losses, axis=axis))
''',
    "take": '''\
    def _take(self, x, at, axis, start):
        """The slices of x at positions along a dimension, whose block begins at start.

        They are 0 for positions that it does not have.
        """
        at = self.xp.asarray(self.xp.astype(at, self.xp.int64) - start)
        known = (at >= 0) & (at < x.shape[axis])
        at = self.xp.where(known, at, 0)
        slices = self.xp.asarray(self.xp.take(x, at, axis=axis))
        slices[(*(slice(None),) * axis, self.xp.logical_not(known))] = 0
        return self._packed(slices)
''',
    "take_transpose": '''\
    def _take_transpose(self, x, at, axis, start, size):
        """Zeros with the slices of x added at positions along a dimension, from start.

        Those of positions that it does not have are left out.
        """
        at = self.xp.asarray(self.xp.astype(at, self.xp.int64) - start)
        shape = (*x.shape[:axis], size, *x.shape[axis + at.ndim :])
        sums, before = self.xp.zeros(shape, dtype=x.dtype), (slice(None),) * axis
        known = (at >= 0) & (at < size)
        self.xp.add.at(sums, (*before, at[known]), x[(*before, known)])
        return sums
''',
    "linear_scan": '''\
    def _linear_scan(self, x, factors, axis, back=False):
        """Each element of x plus a factor times the result before (or behind), along an axis."""
        rows, factors = self.xp.moveaxis(x, axis, 0), self.xp.moveaxis(factors, axis, 0)
        results = self.xp.empty(rows.shape, dtype=x.dtype)
        state = self.xp.zeros(rows.shape[1:], dtype=x.dtype)
        for n in reversed(range(len(rows))) if back else range(len(rows)):
            results[n] = state = rows[n] + factors[n] * state
        return self._packed(self.xp.moveaxis(results, 0, axis))
''',
    "take_along": '''\
    def _take_along(self, x, at, axis, start):
        """The elements of x at positions along an axis, whose block begins at start.

        They are 0 for positions that it does not have.
        """
        at = self.xp.asarray(self.xp.astype(at, self.xp.int64) - start)
        known = (at >= 0) & (at < x.shape[axis])
        found = self.xp.take_along_axis(x, self.xp.where(known, at, 0), axis=axis)
        return self._packed(self.xp.where(known, found, self.xp.zeros_like(found)))
''',
    "take_along_transpose": '''\
    def _take_along_transpose(self, x, at, axis, start, size):
        """Zeros with the elements of x added at positions along an axis, from start.

        Those of positions that it does not have are left out.
        """
        at = self.xp.asarray(self.xp.astype(at, self.xp.int64) - start)
        known = (at >= 0) & (at < size)
        sums = self.xp.zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]), dtype=x.dtype)
        place = list(np.nonzero(known))
        place[axis] = at[known]
        self.xp.add.at(sums, tuple(place), x[known])
        return sums
''',
    "grouped_matmul": '''\
    def _grouped_matmul(self, x, w, groups, start, transposed=False):
        """The product of each row of x with the matrix of its group, the first of which is start.

        It is 0 for groups that w does not have.
        """
        rows, groups = self.xp.reshape(x, (-1, x.shape[-1])), self.xp.reshape(groups, (-1,))
        products = self.xp.zeros((len(rows), w.shape[1 if transposed else 2]), dtype=x.dtype)
        for group, matrix in enumerate(w, start):
            own = groups == group
            products[own] = rows[own] @ (matrix.T if transposed else matrix)
        return self.xp.reshape(products, (*x.shape[:-1], -1))
''',
    "grouped_matmul_transpose": '''\
    def _grouped_matmul_transpose(self, x, y, groups, start, size):
        """The products of the elements of rows of x and y, added up for each group from start."""
        groups = self.xp.reshape(groups, (-1,))
        x, y = (self.xp.reshape(rows, (-1, rows.shape[-1])) for rows in (x, y))
        sums = self.xp.zeros((size, x.shape[-1], y.shape[-1]), dtype=x.dtype)
        for group in range(size):
            own = groups == start + group
            sums[group] = x[own].T @ y[own]
        return sums
''',
    "top_k_indices": '''\
    def _top_k_indices(self, x, k, axis):
        """The positions of the k largest elements, of equal ones the first."""
        xp = self.xp
        ascending = xp.argsort(xp.flip(x, axis=axis), axis=axis, stable=True)
        largest = x.shape[axis] - 1 - xp.flip(ascending, axis=axis)
        first = largest[(*(slice(None),) * axis, slice(k))]
        return self._packed(xp.astype(first, xp.int32))
''',
    "windows": '''\
    def _windows(self, x, window, stride, padding, outside=0):
        """The windows of the inner dimensions, those of a window behind all others."""
        widths = [(0, 0), *((p, p) for p in padding), (0, 0)]
        x = self.xp.pad(x, widths, constant_values=outside)
        inner = tuple(range(1, 1 + len(window)))
        windows = self.xp.lib.stride_tricks.sliding_window_view(x, window, inner)
        return windows[(slice(None), *(slice(None, None, step) for step in stride))]
''',
    "added_windows": '''\
    def _added_windows(self, x, shape, stride, padding):
        """Zeros of a shape with windows added, whose dimensions are the last of x."""
        counts, window = x.shape[1 : len(shape) - 1], x.shape[len(shape) :]
        sizes = [size + 2 * p for size, p in zip(shape[1:-1], padding)]
        sums = self.xp.zeros((shape[0], *sizes, shape[-1]), dtype=x.dtype)
        for place in np.ndindex(*window):
            cuts = (
                slice(p, p + step * (count - 1) + 1, step)
                for p, step, count in zip(place, stride, counts)
            )
            sums[(slice(None), *cuts)] += x[(..., *place)]
        inner = (slice(p, p + size) for p, size in zip(padding, shape[1:-1]))
        return self._packed(sums[(slice(None), *inner)])
''',
    "largest": '''\
    def _largest(self, x, windows):
        """The elements of x at the first largest of each window, else zeros."""
        flat = self.xp.reshape(windows, (*x.shape, -1))
        first = self.xp.expand_dims(self.xp.argmax(flat, axis=-1), axis=-1)
        own = first == self.xp.arange(flat.shape[-1])
        own = self.xp.where(own, self.xp.expand_dims(x, axis=-1), 0)
        return self.xp.reshape(own, windows.shape)
''',
}
"""The text of each method."""


USES: dict[str, tuple[str, ...]] = {
    "silu": ("sigmoid",),
    "erf": ("math",),
    "gelu": ("math",),
    "iota": ("packed",),
    "uniform": ("packed",),
    "cross_entropy": ("log_softmax", "packed"),
    "take": ("packed",),
    "linear_scan": ("packed",),
    "take_along": ("packed",),
    "take_along_transpose": ("np",),
    "top_k_indices": ("packed",),
    "added_windows": ("packed", "np"),
}
"""The methods and modules that methods use."""
