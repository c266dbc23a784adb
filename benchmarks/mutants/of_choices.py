"""Mistakes in what chooses for models: layouts, orders of steps, costs and calibrations."""

from of_models import RINGS, plant

# --- propagation and scheduling -------------------------------------------------------------------

PROPAGATED = (
    "tests/synthesis/test_estimates.py",
    "tests/filecheck/passes/propagate",
    "tests/passes/test_propagate.py",
    "tests/passes/test_styles_of_parallelism.py",
)
PREFETCHED = ("tests/filecheck/passes/prefetch", "tests/passes/test_prefetch.py")
BUCKETS = ("tests/filecheck/passes/bucket", "tests/passes/test_bucket.py")

plant(
    "propagation",
    "synthesis/propagation/estimate.py",
    PROPAGATED,
    (
        "axes that are on no level have the slowest one",
        "port = max(level.port",
        "port = min(level.port",
    ),
    (
        "results that are added up are reduced one by one",
        "seconds += reduces / relation.addends",
        "seconds += reduces",
    ),
    (
        "the slowest choice is first",
        'key=lambda choice: float(f"{choice.seconds:.6g}"))',
        'key=lambda choice: -float(f"{choice.seconds:.6g}"))',
    ),
)
plant(
    "propagation",
    "synthesis/propagation/choice.py",
    PROPAGATED,
    (
        "the sub-axes of an index that is summed are those of the result",
        "if index not in relation.indices[-1])",
        "if index in relation.indices[-1])",
    ),
)
plant(
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
plant(
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
plant(
    "rings",
    "synthesis/rings.py",
    RINGS,
    (
        "calls that have attention in several layouts have it in the first",
        "if isinstance(known, Blocks) and known != blocks:",
        "if isinstance(known, Blocks) and not isinstance(blocks, Blocks):",
    ),
    (
        "a function stays a kernel when its blocks are",
        '                    call.properties.pop("fused", None)\n',
        "                    pass\n",
    ),
)
plant(
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
plant(
    "scheduling",
    "synthesis/scheduling/whole.py",
    ("tests/filecheck/passes/overlap", "tests/filecheck/passes/bucket/memory.coll"),
    (
        "orders that there is the memory for are taken back where others are",
        "        for reordering in some:\n            reordering.after.write()\n        if not",
        "        if not",
    ),
    (
        "functions that were too large before count",
        "    names = [function for function in names if function not in as_before]\n",
        "",
    ),
)
plant(
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
        "durations[-1] = np.interp(sizes[-1], grid, times)",
        "durations[-1] = np.interp(sizes[-1], grid, packed)",
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
    "tests/cost/test_device_calibration.py::test_loops_copy_the_slices_that_products_read",
    "tests/cost/test_simulation.py",
    "tests/filecheck/targets/simulate.coll",
    "tests/targets/test_simulation_reports.py",
)
DEVICE = ("tests/cost/test_device_calibration.py",)

plant(
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
plant(
    "costs",
    "cost/programs/products.py",
    ("tests/cost/test_products.py",),
    (
        "the depth is paid once for all parts",
        "np.ceil(length / parts) + depth",
        "np.ceil((length + depth) / parts)",
    ),
    (
        "a wave is as full as it is",
        "np.ceil(tiles * parts / units)",
        "tiles * parts / units",
    ),
    (
        "rows and columns change places",
        "count, columns = left & right & kept, (right - left) & kept",
        "count, columns = left & right & kept, (left - right) & kept",
    ),
)
plant(
    "costs",
    "cost/programs/operations.py",
    SIMULATED,
    (
        "a kernel writes what no one reads",
        "results = [part.result for part in parts if not kernels.is_inside(part.result)]",
        "results = [part.result for part in parts]",
    ),
)
plant(
    "costs",
    "cost/programs/simulate.py",
    SIMULATED,
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
        "reach = 2 * loop.times * sum(",
        "reach = 2 * sum(",
    ),
)
plant(
    "costs",
    "cost/programs/repetition.py",
    ("tests/cost/test_repetition.py",),
    (
        "iterations that are under way are left out",
        "least = max(done, begun + 1)",
        "least = done",
    ),
)
plant(
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
plant(
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
plant(
    "costs",
    "synthesis/programs/pricing.py",
    ("tests/passes/test_decompose_pays.py", "tests/filecheck/passes/decompose"),
    (
        "what devices copy is not counted",
        "return local_seconds(plan.steps, mesh, scale) + copy",
        "return copy",
    ),
    (
        "only the programs that send for the shortest time are timed",
        "if due <= candidates[-1].time * (1 + TIE):",
        "if due >= 0:",
    ),
)
plant(
    "sharding",
    "synthesis/sharding/problem.py",
    ("tests/synthesis/sharding/test_descent.py",),
    (
        "a stack may be divided along iterations",
        "if tensor.layout is None and tensor in stacked:",
        "if tensor.layout is None and tensor in stacked and _stacks(relation):",
    ),
)
plant(
    "costs",
    "cost/model.py",
    ("tests/cost/test_one_price.py", "tests/filecheck/passes/localize"),
    (
        "what a library runs is priced as code",
        "algorithm != collective.algorithm or collective.library_reason:",
        "algorithm != collective.algorithm:",
    ),
)
plant(
    "costs",
    "algorithms/table.py",
    ("tests/cost/test_one_price.py", "tests/filecheck/passes/localize"),
    ("async steps are written as rounds", "    if is_async:", "    if is_async and not is_async:"),
)
