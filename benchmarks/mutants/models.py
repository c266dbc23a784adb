"""Mistakes in what stands on models: the dialect ``nn``, gradients, rings, emitters, proofs."""

from mutants import Mutant

MODELS: list[Mutant] = []


def _in(area: str, file: str, tests: tuple[str, ...], *changes: tuple[str, str, str]) -> None:
    """Add mistakes in one file, each as its name, a piece of text and what takes its place."""
    for name, before, after in changes:
        MODELS.append(Mutant(area, name, f"collir/{file}", before, after, tests))


GRADIENTS = ("tests/passes/test_differentiate.py",)
LOOPS = ("tests/filecheck/passes/differentiate", *GRADIENTS)
STRUCTURES = ("tests/filecheck/dialects/nn", "tests/semantics/test_nn.py")
WINDOWS = (*STRUCTURES, "tests/semantics/test_nn_values.py", "tests/errors/test_errors.py")
RINGS = ("tests/filecheck/passes/ring-attention", "tests/passes/test_ring_attention.py")
FORMULAS = ("tests/layout/test_formulas.py",)

# --- rows of nn -----------------------------------------------------------------------------------

_in(
    "layout",
    "layout/nn.py",
    GRADIENTS,
    (
        "the gradient of a product has an index that other operands have as if it were summed",
        "known = {index for n in others for index in indices[n]}.union(result)",
        "known = set(result)",
    ),
    (
        "the gradient of a division lacks its sign",
        "lambda r, i: -(r.g * r.y / r.x[1]) if i else r.g / r.x[1]",
        "lambda r, i: r.g * r.y / r.x[1] if i else r.g / r.x[1]",
    ),
    (
        "the gradient of rsqrt has one factor too few",
        "(r.g * r.y * r.y * r.y)",
        "(r.g * r.y * r.y)",
    ),
    (
        "the gradient of a minimum is where the element is larger",
        'gradients.chosen(r, i, "less")',
        'gradients.chosen(r, i, "greater")',
    ),
)
_in(
    "layout",
    "layout/nn.py",
    STRUCTURES,
    (
        "iota of a float counts one number too few",
        "exact = last <= 2**to.dtype.mantissa if",
        "exact = last < 2**to.dtype.mantissa if",
    ),
)
_in(
    "layout",
    "layout/nn_gradients.py",
    (*GRADIENTS, "tests/passes/test_gradients_of_models.py"),
    (
        "a tie gives the whole cotangent to both operands",
        'half = r.g.step("scale", factor=0.5)\n    tie',
        'half = r.g.step("scale", factor=1)\n    tie',
    ),
    (
        "the gradient of a mean divides by the elements that are left",
        "return math.prod(r.types[0].shape[d] for d in dims)",
        "return math.prod(n for d, n in enumerate(r.types[0].shape) if d not in dims)",
    ),
    (
        "the gradient of cumsum goes in the same direction",
        'reverse="reverse" not in r.arguments',
        'reverse="reverse" in r.arguments',
    ),
    (
        "extremes count on their own shard",
        'dims=r.arguments["dims"], keepdims=True).whole()',
        'dims=r.arguments["dims"], keepdims=True)',
    ),
    (
        "a gradient of take over sharded positions is not partial",
        "axes = frozenset(axis for dim in chosen.dims for axis in dim.axes)",
        "axes = frozenset(axis for dim in chosen.dims[1:] for axis in dim.axes)",
    ),
    (
        "labels out of range have a gradient",
        'return g * (r.x[0].step("softmax", dims=(dim,)) * known - label)',
        'return g * (r.x[0].step("softmax", dims=(dim,)) - label)',
    ),
    (
        "the gradient of a filter is partial over channels",
        "to = _summed_over(w, x.dims[0])",
        "to = _summed_over(w, x.dims[-1])",
    ),
)
_in(
    "layout",
    "layout/nn_windows.py",
    WINDOWS,
    (
        "padding at one end only",
        "room = x.dims[d].size + 2 * more - width",
        "room = x.dims[d].size + more - width",
    ),
    (
        "a window may be all padding",
        "if more >= width or room < 0:",
        "if more > width or room < 0:",
    ),
    (
        "the last window is not counted",
        "return (room - rest) // step + 1",
        "return (room - rest + step - 1) // step",
    ),
)
_in(
    "layout",
    "layout/nn_selections.py",
    STRUCTURES,
    (
        "top_k may not take all elements",
        "and not 1 <= count <= size:",
        "and not 1 <= count < size:",
    ),
    (
        "take puts the dimensions of positions in front",
        "result = (*indices[0][:dim], *indices[1], *indices[0][dim + 1 :])",
        "result = (*indices[1], *indices[0][:dim], *indices[0][dim + 1 :])",
    ),
)

# --- gradients ------------------------------------------------------------------------------------

_in(
    "gradients",
    "ir/reverse.py",
    LOOPS,
    (
        "a second part takes the place of the first",
        "self._parts.setdefault(value, []).append(part)",
        "self._parts[value] = [part]",
    ),
    (
        "carries that become active in a later iteration are forgotten",
        "        if more <= inside:\n            return found\n",
        "        return found\n",
    ),
    (
        "invariants are stacked as slices are",
        "number < carries + slices else",
        "number <= carries + slices else",
    ),
    (
        "what depends on carries is done again rather than stacked",
        "if isinstance(op, DistOp) and known and carries.isdisjoint(op.operands):",
        "if isinstance(op, DistOp) and known:",
    ),
    (
        "gathers are done again from the stack's leading dimension too",
        "if dist_type(op.input).dims[0].axes:\n            break\n",
        "if not dist_type(op.input).dims[0].axes:\n            break\n",
    ),
)
_in(
    "gradients",
    "ir/differentiation.py",
    LOOPS,
    (
        "gradients with respect to other arguments are those of the first call",
        "key = (callee, call.sought)",
        "key = (callee, call.sought[:1])",
    ),
    (
        "calls in calls that are computed again are kept",
        "group = groups.get(call, number if again else None)",
        "group = number if again else None",
    ),
    (
        "the gradient function stands in front of what it was made of",
        'copy.properties["sym_name"] = type(function.sym_name)(',
        'copy.properties["sym_visibility"] = type(function.sym_name)(',
    ),
)

# --- rings ----------------------------------------------------------------------------------------

_in(
    "rings",
    "ir/attention.py",
    RINGS,
    (
        "queries and keys change places",
        "return Attention(scores, maps, softmax, casts, user, 1 - with_key[0], share, dims[0])",
        "return Attention(scores, maps, softmax, casts, user, with_key[0], share, dims[0])",
    ),
    (
        "operands of the maps align from the first dimension",
        "    offset = len(attention.indices) - len(shape)\n    here",
        "    offset = 0\n    here",
    ),
    (
        "scores that are used elsewhere are forgotten",
        "for op in attention.steps[:-1]:",
        "for op in attention.steps[1:-1]:",
    ),
)
_in(
    "rings",
    "ir/ring_block.py",
    RINGS,
    (
        "the running sum is not scaled down",
        'kept = steps.step("mul", (total, before), {})\n        total',
        "kept = total\n        total",
    ),
    (
        "the block that came round is counted in the other direction",
        'source = steps.step("sub", (own, number), {})',
        'source = steps.step("add", (own, number), {})',
    ),
    (
        "sums of short types are computed in these",
        "return own if own.bytes >= DType.F32.bytes else DType.F32",
        "return own",
    ),
)
_in(
    "rings",
    "ir/ring.py",
    RINGS,
    (
        "the last block has the number of the one before",
        "steps.constant(x, self.form.count - 1)]",
        "steps.constant(x, self.form.count - 2)]",
    ),
    (
        "leaves of keys stay where they are",
        "self.travels = [n for n, role in enumerate(roles) if role is Role.KEY]",
        "self.travels = [n for n, role in enumerate(roles[:3]) if role is Role.KEY]",
    ),
)

# --- sizes ----------------------------------------------------------------------------------------

_in(
    "layout",
    "layout/formulas.py",
    FORMULAS,
    (
        "a formula of exactly the greatest weight is too long",
        "if formula.weight > MAX_WEIGHT:",
        "if formula.weight >= MAX_WEIGHT:",
    ),
    (
        "a negative factor of a denominator stays in it",
        "        alone, factor = -alone, -factor\n",
        "        alone = -alone\n",
    ),
)
_in(
    "layout",
    "layout/sizes.py",
    FORMULAS,
    (
        "a number less a size has the formula of the size less the number",
        "return _combined(int.__sub__, Formula.__sub__, other, self)",
        "return _combined(int.__sub__, Formula.__sub__, self, other)",
    ),
    ("2^63 is a size", "if abs(value) >= LIMIT:", "if abs(value) > LIMIT:"),
)
_in(
    "layout",
    "layout/expansions.py",
    ("tests/passes/test_expand.py",),
    (
        "gains of dimensions in another order are not transposed back",
        "order = tuple(sorted(range(len(dims)), key=dims.__getitem__))",
        "order = tuple(dims[n] - min(dims) for n in range(len(dims)))",
    ),
    (
        "a label out of range has a loss",
        'return _narrow(f, total.step("log") * known - chosen)',
        'return _narrow(f, total.step("log") - chosen)',
    ),
)

# --- calls, sizes, loops --------------------------------------------------------------------------

AT_VALUES = (
    "tests/passes/test_calls_at_values.py",
    "tests/filecheck/passes/instantiate",
    "tests/filecheck/passes/inline",
    "tests/passes/test_size_parameters.py",
    "tests/errors/test_errors.py",
)
ANY_SIZE = ("tests/ir/test_any_size.py",)
ROTATED = ("tests/filecheck/passes/rotate", "tests/semantics/test_loops.py")

_in(
    "calls",
    "ir/any_size.py",
    ANY_SIZE,
    (
        "the smallest bounds are kept",
        "kept = [other for other in kept if not is_product(formula - other)]",
        "kept = [other for other in kept if not is_product(other - formula)]",
    ),
    (
        "what a pad cuts off at its end may be all",
        'min(op.integer("low"), 0) + min(op.integer("high"), 0)',
        'min(op.integer("low"), 0)',
    ),
    (
        "a sum in a denominator says of all its parameters that they are not 0",
        "return any(len(x.terms) == 1 and name in x.parameters for x in products)",
        "return any(name in x.parameters for x in products)",
    ),
)
_in(
    "calls",
    "ir/calls.py",
    AT_VALUES,
    (
        "functions are checked at the values of the first call alone",
        "missing += [(called, checked[key].parameters) for _, called in checked[key].calls]",
        "",
    ),
    (
        "one parameter at its default is enough",
        "if all(defaults.get(name) == int(value) for name, value in bindings.data):",
        "if any(defaults.get(name) == int(value) for name, value in bindings.data):",
    ),
)
_in(
    "calls",
    "ir/retyping.py",
    AT_VALUES,
    (
        "parameters that a call does not name are those of the caller",
        "values={**old, **bindings}",
        "values={**old, **parameters, **bindings}",
    ),
    (
        "types of gradients are not those at the values of the call",
        "*signature.gradients(mesh, types, op.sought)])",
        "*signature.gradients(mesh, types[::-1], op.sought)])",
    ),
)
_in(
    "calls",
    "ir/parameters.py",
    AT_VALUES,
    (
        "sharded dimensions keep their size",
        "dims = tuple(Dim(changed(dim.size), dim.axes) for dim in x.dims)",
        "dims = tuple(dim if dim.axes else Dim(changed(dim.size)) for dim in x.dims)",
    ),
)
_in(
    "calls",
    "ir/rotation.py",
    ROTATED,
    (
        "the last iteration of a reverse loop is at the end of a stack",
        "parts = [row, rows] if self.loop.is_reverse else [rows, row]",
        "parts = [rows, row]",
    ),
    (
        "what is ahead gets the slices of this iteration",
        "for slices, rows in ((self.now, first_rows), (self.following, last_rows))",
        "for slices, rows in ((self.now, first_rows), (self.following, first_rows))",
    ),
)
_in(
    "gradients",
    "ir/terms.py",
    GRADIENTS,
    (
        "repeated dimensions are summed at the places of the larger shape",
        "dims = [d for d, n in enumerate(own) if d < more or (n != 1 == shape[d - more])]",
        "dims = [d for d, n in enumerate(own) if d < more or (n != 1 == shape[d])]",
    ),
    (
        "a constant of a partial type is the constant on every device",
        "        if not x.partial:\n            return made\n",
        "        if not x.partial or value:\n            return made\n",
    ),
    (
        "a constant of a partial type is masked over the first sub-axis",
        'step("mask", (made,), {"axes": over,',
        'step("mask", (made,), {"axes": over[:1],',
    ),
)

# --- propagation and scheduling -------------------------------------------------------------------

PROPAGATED = (
    "tests/synthesis/test_estimates.py",
    "tests/filecheck/passes/propagate",
    "tests/passes/test_propagate.py",
    "tests/passes/test_styles_of_parallelism.py",
)
PREFETCHED = ("tests/filecheck/passes/prefetch", "tests/passes/test_prefetch.py")
BUCKETS = ("tests/filecheck/passes/bucket", "tests/passes/test_bucket.py")

_in(
    "propagation",
    "synthesis/propagation/estimate.py",
    PROPAGATED,
    (
        "an all_reduce is one round",
        "yield self._time(axis, part, 1 if axis in new else 2)",
        "yield self._time(axis, part, 1)",
    ),
    (
        "devices behind a port have it each for themselves",
        "(level.port if level else _PORT) / self._sharing(name))",
        "(level.port if level else _PORT))",
    ),
    (
        "the slowest choice is first",
        'key=lambda choice: float(f"{choice.seconds:.6g}"))',
        'key=lambda choice: -float(f"{choice.seconds:.6g}"))',
    ),
    (
        "the sub-axes of an index that is summed are those of the result",
        "if index not in relation.indices[-1])",
        "if index in relation.indices[-1])",
    ),
)
_in(
    "propagation",
    "synthesis/propagation/spread.py",
    PROPAGATED,
    (
        "states spread before weights",
        "        case Role.STATE:\n            return 2\n",
        "        case Role.STATE:\n            return 0\n",
    ),
    (
        "members agree where one is sharded more in another way",
        "if all(most[: len(axes)] == axes for axes in wishes):",
        "if all(most[:1] == axes[:1] for axes in wishes):",
    ),
    (
        "weights follow their states",
        "if tensor.layout is not None or (self._stage == 2 and tensor.role is Role.PARAMETER):",
        "if tensor.layout is not None:",
    ),
)
_in(
    "propagation",
    "synthesis/propagation/accumulate.py",
    ("tests/filecheck/passes/propagate/accumulate.coll",),
    (
        "carries that are sent within the loop are reduced behind it",
        "if not isinstance(use, DistOp) or use.kind.sends:",
        "if not isinstance(use, DistOp):",
    ),
    (
        "reductions in inner loops count once",
        "self._find(inner, times * op.times)",
        "self._find(inner, times)",
    ),
    (
        "reductions in a loop count once, however often it runs",
        "dist_type(op.input).local_bytes(self.mesh) * times for op, times in self.reductions",
        "dist_type(op.input).local_bytes(self.mesh) for op, _ in self.reductions",
    ),
)
_in(
    "rings",
    "synthesis/rings.py",
    RINGS,
    (
        "calls that have attention in several layouts have it in the first",
        "if isinstance(known, Blocks) and known != found:",
        "if isinstance(known, Blocks) and not isinstance(found, Blocks):",
    ),
    (
        "a function stays a kernel when its blocks are",
        '            del call.properties["fused"]\n',
        "            pass\n",
    ),
)
_in(
    "scheduling",
    "synthesis/scheduling/prefetching.py",
    PREFETCHED,
    (
        "invariants are slices",
        "first, last = len(loop.carried), len(loop.carried) + len(loop.sliced)",
        "first, last = len(loop.carried), len(loop.body.block.args)",
    ),
    (
        "the largest gathers are ahead first",
        "chosen = smallest_first[:count]",
        "chosen = smallest_first[-count:]",
    ),
    (
        "memory is that of the functions in the order that is found alone",
        "if after.fits and alone.fits and",
        "if after.fits and",
    ),
)
_in(
    "scheduling",
    "synthesis/scheduling/whole.py",
    ("tests/filecheck/passes/overlap", "tests/filecheck/passes/bucket/memory.coll"),
    (
        "what takes the least memory is taken back first",
        "key=lambda x: -x.bytes)",
        "key=lambda x: x.bytes)",
    ),
    (
        "functions that were too large before count",
        "left = {f: over for f, over in over_now.items() if f not in too_large}",
        "left = over_now",
    ),
)
_in(
    "scheduling",
    "synthesis/scheduling/bucketing.py",
    BUCKETS,
    (
        "a bucket holds a collective and one that needs it",
        "first = last_needed[last - 1] + 1",
        "first = max(last_needed[last - 1], 0)",
    ),
    (
        "a buffer of one is packed too",
        "durations[: last - first - 1] += group.packing * sizes[: last - first - 1]",
        "durations += group.packing * sizes",
    ),
    (
        "a bucket of ddp is closed above its size",
        "            if held >= limit:",
        "            if held > limit:",
    ),
)

# --- costs ----------------------------------------------------------------------------------------

KERNELS = ("tests/cost/test_kernels.py", "tests/filecheck/targets/kernels.coll")
SIMULATED = (
    *KERNELS,
    "tests/cost/test_loops.py",
    "tests/cost/test_simulation.py",
    "tests/filecheck/targets/simulate.coll",
    "tests/targets/test_simulation_reports.py",
)
DEVICE = ("tests/cost/test_device_calibration.py",)

_in(
    "costs",
    "cost/programs/kernels.py",
    KERNELS,
    (
        "a value with a role is not kept",
        "if not isinstance(op, DistOp) or op not in maps or role_of(op.result) is not None:",
        "if not isinstance(op, DistOp) or op not in maps:",
    ),
    (
        "kernels reach behind collectives",
        "if kernel is None or kernel in inside or run[kernel] != run[op]:",
        "if kernel is None or kernel in inside:",
    ),
    (
        "the kernel of a reduction has the points of its result",
        "points = kernel.result if kernel in maps else kernel.input",
        "points = kernel.result",
    ),
)
_in(
    "costs",
    "cost/programs/products.py",
    ("tests/cost/test_products.py",),
    (
        "the depth is paid once for all parts",
        "* (math.ceil(product.length / parts) + depth)",
        "* (math.ceil((product.length + depth) / parts))",
    ),
    (
        "a wave is as full as it is",
        "math.ceil(_tiles(product, sides) * parts / units)",
        "_tiles(product, sides) * parts / units",
    ),
    (
        "rows and columns change places",
        "count, columns = left & right & kept, (right - left) & kept",
        "count, columns = left & right & kept, (left - right) & kept",
    ),
)
_in(
    "costs",
    "cost/programs/simulate.py",
    SIMULATED,
    (
        "a kernel writes what no one reads",
        "results = [part.result for part in parts if not kernels.is_inside(part.result)]",
        "results = [part.result for part in parts]",
    ),
    (
        "a loop of one iteration has two buffers for a carry",
        "if spare is None and op.times > 1 and",
        "if spare is None and",
    ),
    (
        "a copy moves its bytes once",
        "does = LocalStep(COPY, 2 * classes.bytes_of(device_class, value))",
        "does = LocalStep(COPY, classes.bytes_of(device_class, value))",
    ),
    (
        "slices of one iteration reach all of the cache",
        "reach = 2.0 * loop.times * sum(",
        "reach = 2.0 * sum(",
    ),
)
_in(
    "costs",
    "cost/programs/repetition.py",
    ("tests/cost/test_repetition.py",),
    (
        "iterations that are under way are left out",
        "least = max(done, begun + 1)",
        "least = done",
    ),
)
_in(
    "calibration",
    "cost/calibration/device/fit.py",
    DEVICE,
    (
        "the kernels of a loop run once",
        "yield from _steps(step.loop.body.program, times * step.loop.times)",
        "yield from _steps(step.loop.body.program, times)",
    ),
    (
        "the weights of a line are those of absolute squares",
        "weights = [1 / y**2 for _, y in points]",
        "weights = [1.0 for _, y in points]",
    ),
    (
        "an array is read in half of its time",
        "array = max((slope - launch) / 2, 0.0)",
        "array = max(slope - launch, 0.0)",
    ),
    (
        "the bandwidth is that of the smallest arrays",
        "memory_bandwidth=streams[-1][1])",
        "memory_bandwidth=streams[0][1])",
    ),
)
_in(
    "calibration",
    "cost/calibration/device/times.py",
    DEVICE,
    ("a time of 0 is one", "if not 0 < number < 1e30:", "if not 0 <= number < 1e30:"),
    (
        "lines count from 0",
        "enumerate(text.splitlines(), 1)",
        "enumerate(text.splitlines())",
    ),
)

# --- emitters -------------------------------------------------------------------------------------

NUMPY = ("tests/targets/test_mpi4py_models.py",)
TORCH = ("tests/targets/test_torch_models.py",)
JAX = ("tests/targets/test_jax.py",)
IN_C = ("tests/targets/test_mpi_models.py",)

_in(
    "emitters",
    "targets/code/forms.py",
    NUMPY,
    (
        "gains of dimensions in another order are not put in order",
        "gain = s.permuted(gain, [dims.index(dim) for dim in ascending])",
        "gain = s.permuted(gain, [ascending.index(dim) for dim in dims])",
    ),
    (
        "minus zero is a constant of zeros",
        "if value in (0, 1) and math.copysign(1, value) > 0:",
        "if value in (0, 1):",
    ),
)
_in(
    "emitters",
    "targets/code/rank_forms.py",
    NUMPY,
    (
        "blocks of different sizes begin where even ones would",
        "begins = [cuts(self.mesh, size, axes, at)[0] for at in places(self.mesh, axes)]",
        "begins = [n * size // len(list(places(self.mesh, axes))) for n, _ in "
        "enumerate(places(self.mesh, axes))]",
    ),
    (
        "the padding of a maximum is 0",
        'function, _windows(s, s.x, s.op.sizes("window"), _lowest(s, 0)), _last(s)',
        'function, _windows(s, s.x, s.op.sizes("window")), _last(s)',
    ),
)
_in(
    "emitters",
    "targets/code/torch_methods.py",
    TORCH,
    (
        "a position at the end of a block is in it",
        "known = (at >= 0) & (at < x.shape[dim])",
        "known = (at >= 0) & (at <= x.shape[dim])",
    ),
    (
        "the smallest elements are first",
        "descending=True, stable=True)",
        "descending=False, stable=True)",
    ),
)
_in(
    "emitters",
    "targets/code/torch_ops.py",
    TORCH,
    (
        "gelu is the exact one",
        "'approximate=\"tanh\"'",
        "'approximate=\"none\"'",
    ),
    (
        "the logarithm of a softmax is computed in 16 bits",
        'frozenset(EXPRESSIONS) - {"log_softmax", "cross_entropy"}',
        'frozenset(EXPRESSIONS) - {"cross_entropy"}',
    ),
)
_in(
    "emitters",
    "targets/code/jax_ops.py",
    JAX,
    (
        "the padding of a transposed convolution is that of the other end",
        "(width - 1 - p, size - 1 + p - (count - 1) * step)",
        "(size - 1 + p - (count - 1) * step, width - 1 - p)",
    ),
    (
        "bounds are compared in 8 bits",
        "short = dist_type(s.op.operands[number]).dtype is DType.I8",
        "short = False",
    ),
    (
        "slices are added in 16 bits",
        'dtype, back = (DTYPES[DType.F32], f".astype({s.dtype})") if short else (s.dtype, "")',
        'dtype, back = s.dtype, ""',
    ),
)
_in(
    "emitters",
    "targets/code/jax_collectives.py",
    JAX,
    (
        "blocks are sent in the other direction",
        "[(i, (i + {by % count}) % {count})",
        "[(i, (i + {-by % count}) % {count})",
    ),
    (
        "an average is not divided when it is scattered",
        'return f"{scattered} / {s.group}" if reduction is Reduction.AVG else scattered',
        "return scattered",
    ),
)
_in(
    "emitters",
    "targets/code/c_windows.py",
    IN_C,
    (
        "a window between two strides is the one before",
        'left = f"if ({at} % {step} || {at} / {step} >= {factor_text(count)}) continue;"',
        'left = f"if ({at} / {step} >= {factor_text(count)}) continue;"',
    ),
    (
        "all of the largest elements of a window get its gradient",
        '"  found = 1;", ',
        "",
    ),
)
_in(
    "emitters",
    "targets/code/c_folds.py",
    IN_C,
    (
        "the columns behind the last whole cut are left out",
        "first < {size}; first += {_COLUMNS}",
        "first + {_COLUMNS} < {size}; first += {_COLUMNS}",
    ),
    (
        "NaN is smaller than all",
        'return f"{plain} || {value} != {value}" if dtype.is_float else plain',
        "return plain",
    ),
)
_in(
    "emitters",
    "targets/code/c_nest.py",
    IN_C,
    (
        "loops of several arrays are merged where one is contiguous",
        "not same_size(step, stride * inner.size):\n            return False\n    return True",
        "not same_size(step, stride * inner.size):\n            continue\n        return True\n"
        "    return False",
    ),
)
_in(
    "emitters",
    "targets/code/c_kernels.py",
    IN_C,
    (
        "blocks of different sizes begin at the number of a unit",
        'return f"{table}[{self.names.index_over(axes)}] * {size // count}"',
        'return f"{table}[{self.names.index_over(axes)}]"',
    ),
    (
        "kernels of equal statements on other types are one",
        "key = (op.mnemonic, parameters, *body)",
        "key = (op.mnemonic, *body)",
    ),
)

# --- proofs ---------------------------------------------------------------------------------------

PROOFS = (
    "tests/semantics/test_proofs_of_models.py",
    "tests/semantics/test_validation_symbolic.py",
    "tests/semantics/test_loops.py",
)

_in(
    "proofs",
    "semantics/symbolic/contractions.py",
    (*PROOFS, "tests/semantics/test_nn.py"),
    (
        "bound variables of several terms have one name",
        "exprs.append(substituted(term_expr(term.summand), values) if new else _body(term))",
        "exprs.append(_body(term))",
    ),
    (
        "a constant is summed over no variable",
        "number += times * math.prod(var.size for var in over)",
        "number += times",
    ),
)
_in(
    "proofs",
    "semantics/symbolic/blocks.py",
    PROOFS,
    (
        "an index that an operation needs whole is passed through",
        "used.intersection(structure.result) - structure.blocked - {REPEATED})",
        "used.intersection(structure.result) - {REPEATED})",
    ),
    (
        "the arguments of unknown functions are no fact",
        "facts = s.op.mnemonic, tuple(s.op.arguments.items()), pattern, shapes",
        "facts = s.op.mnemonic, pattern, shapes",
    ),
)
_in(
    "proofs",
    "semantics/symbolic/ranges.py",
    ("tests/semantics/test_sharded_models.py", "tests/semantics/test_validation.py"),
    (
        "ranges that overlap by a position are neighbours",
        "shifted(variable(back), length)",
        "shifted(variable(back), length - 1)",
    ),
    (
        "the second range is as long as the first",
        "front, back = fresh_variable(length), fresh_variable(more)",
        "front, back = fresh_variable(more), fresh_variable(length)",
    ),
)
_in(
    "proofs",
    "semantics/validation/loops.py",
    PROOFS,
    (
        "loops whose bodies have the same types are the same",
        "        if a.body.is_structurally_equivalent(b.body):\n            return True\n",
        "        if len(a.body.block.ops) == len(b.body.block.ops):\n            return True\n",
    ),
    (
        "the places of the tensors of a body may differ",
        "return [(x.dtype, x.shape, x.partial, x.reduction, x.place) for x in types]",
        "return [(x.dtype, x.shape, x.partial, x.reduction) for x in types]",
    ),
    (
        "loops in loops run once",
        "op.times * _steps_unrolled(op) if isinstance(op, RepeatOp) else 1",
        "op.times + _steps_unrolled(op) if isinstance(op, RepeatOp) else 1",
    ),
)

# --- tools ----------------------------------------------------------------------------------------

_in(
    "tools",
    "tools/finite_results.py",
    ("tests/errors", "tests/filecheck/targets/not-a-number.coll", "tests/tools/test_collrun.py"),
    (
        "only the first result is looked at",
        "for n, x in enumerate(results) if",
        "for n, x in enumerate(results[:1]) if",
    ),
    (
        "generated inputs make an error",
        "    if given:\n",
        "    if not given:\n",
    ),
)
_in(
    "tools",
    "tools/torch_run.py",
    (*TORCH, "tests/tools/test_collrun.py"),
    (
        "a function of two results in torch returns them as one",
        "results = results if count > 1 else (results,)[:count]",
        "results = results if count > 2 else (results,)[:count]",
    ),
)
_in(
    "tools",
    "tools/mpi4py_run.py",
    (*NUMPY, "tests/tools/test_collrun.py"),
    (
        "a function of several results returns them as one",
        "results if count > 1 else (results,)[:count]",
        "results if count > 2 else (results,)[:count]",
    ),
)
