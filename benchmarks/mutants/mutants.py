"""Mistakes that tests should find: what is changed, where, and which tests are run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A mistake.

    Attributes:
        area: what it is a mistake of, such as ``rules`` or ``costs``.
        name: the mistake in words.
        file: the file that is changed.
        before: a piece of its text that stands there once.
        after: what takes its place.
        tests: the tests that are run, those that should find it first.
    """

    area: str
    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]


RULES = (
    "tests/layout",
    "tests/filecheck/dialects",
    "tests/semantics/test_transitions.py",
    "tests/errors",
)
EXECUTOR = ("tests/semantics/test_collectives.py", "tests/semantics", "tests/filecheck/dialects")
PROOFS = ("tests/semantics",)
COSTS = ("tests/cost", "tests/filecheck/targets")
PASSES = ("tests/passes", "tests/filecheck/passes", "tests/synthesis")
MPI = ("tests/filecheck/targets", "tests/targets/test_golden.py", "tests/targets/test_mpi_ranks.py")
NCCL = (
    "tests/filecheck/targets",
    "tests/targets/test_golden.py",
    "tests/targets/test_nccl_code.py",
    "tests/targets/test_nccl_ranks.py",
)
PYTHON = ("tests/filecheck/targets", "tests/targets/test_golden.py", "tests/targets/test_mpi4py.py")
SYNTAX = ("tests/syntax", "tests/filecheck/syntax", "tests/errors")
SEARCH = ("tests/search", "tests/problems")

TYPES = "collir/layout/rules.py"
NEEDED = "collir/layout/requirements.py"
LOCAL_TYPES = "collir/layout/local_rules.py"
EVEN = "collir/semantics/symbolic/even.py"
LOCAL_PROOFS = "collir/semantics/symbolic/local.py"
RUN = "collir/semantics/reference/collectives.py"
STEPS = "collir/semantics/reference/steps.py"
TABLE = "collir/cost/collectives/table.py"
METER = "collir/cost/collectives/meter.py"
ROUNDS = "collir/cost/collectives/rounds.py"
DOUBLING = "collir/algorithms/halving_doubling.py"
BRUCK = "collir/algorithms/bruck.py"
SCHEDULE = "collir/cost/programs/schedule.py"
PACKING = "collir/synthesis/scheduling/packing.py"
ORDER = "collir/synthesis/scheduling/ordering.py"
MPI_CODE = "collir/targets/code/mpi_method.py"
C_CODE = "collir/targets/code/c_method.py"
NCCL_CODE = "collir/targets/code/nccl_method.py"
PYTHON_CODE = "collir/targets/code/mpi4py.py"

MUTANTS = [
    # --- typing rules -------------------------------------------------------------------------
    Mutant(
        "rules",
        "a gather may take sub-axes that are not the last of a dimension",
        NEEDED,
        "    if have[max(0, len(have) - len(axes)) :] != axes:",
        "    if have[max(0, len(have) - len(axes)) :] != axes and not have:",
        RULES,
    ),
    Mutant(
        "rules",
        "a reduced value is on all devices",
        TYPES,
        "return without_partial(x, axes).with_place(at_root(axes))",
        "return without_partial(x, axes)",
        RULES,
    ),
    Mutant(
        "rules",
        "scattered sub-axes are the major ones",
        NEEDED,
        "x.dims[index].axes + axes",
        "axes + x.dims[index].axes",
        RULES,
    ),
    Mutant(
        "rules",
        "the whole dimension divides, not the local part",
        NEEDED,
        "    if local % group:",
        "    if x.dims[dim].size % group:",
        RULES,
    ),
    Mutant(
        "rules",
        "a value keeps its reduction when nothing is partial",
        NEEDED,
        "reduction=x.reduction if partial else None)",
        "reduction=x.reduction)",
        RULES,
    ),
    Mutant(
        "rules",
        "two reductions on one value",
        TYPES,
        "    if axes and x.reduction not in (None, reduction):",
        "    if False:",
        RULES,
    ),
    Mutant(
        "rules",
        "a permute to fewer shards",
        TYPES,
        "        if have != need:",
        "        if have > need:",
        RULES,
    ),
    Mutant(
        "rules",
        "a redistribute from one reduction to another",
        TYPES,
        "    if kept and x.reduction != to.reduction:",
        "    if False:",
        RULES,
    ),
    Mutant(
        "rules",
        "a split across blocks",
        LOCAL_TYPES,
        "        if minor:\n            fits = ",
        "        if False:\n            fits = ",
        RULES,
    ),
    Mutant(
        "rules",
        "a merge of rows that are on several devices",
        LOCAL_TYPES,
        "    if inner.axes and not (",
        "    if False and not (",
        RULES,
    ),
    Mutant(
        "rules",
        "a negative factor leaves a maximum",
        LOCAL_TYPES,
        "    if factor < 0 and x.reduction in swap:",
        "    if False:",
        RULES,
    ),
    Mutant(
        "rules",
        "a partial sum is cast to a narrower type",
        LOCAL_TYPES,
        "    if x.reduction not in (Reduction.MAX, Reduction.MIN) or wraps or",
        "    if wraps or",
        RULES,
    ),
    Mutant(
        "rules",
        "a partial product is padded with any number",
        LOCAL_TYPES,
        "Reduction.PROD: (0.0, 1.0)}",
        "Reduction.PROD: (0.0, 1.0, 2.0)}",
        RULES,
    ),
    Mutant(
        "rules",
        "a part of a dimension is at coordinate 0",
        TYPES,
        "return whole.with_place(digits_over(mesh, axes, coordinate))",
        "return whole.with_place(digits_over(mesh, axes, 0))",
        (*RULES, "tests/semantics/test_places.py"),
    ),
    Mutant(
        "rules",
        "what is added is where the first operand is",
        NEEDED,
        "    _require_one_place(op, mesh, x, y, index)\n    if not x.agrees(y):",
        "    if not x.without_place(x.placed).agrees(y.without_place(y.placed)):",
        RULES,
    ),
    # --- executor -----------------------------------------------------------------------------
    Mutant(
        "executor",
        "an average is a sum",
        RUN,
        "    if reduction is Reduction.AVG:",
        "    if False:",
        EXECUTOR,
    ),
    Mutant(
        "executor",
        "a minimum is a maximum",
        RUN,
        "total = np.minimum(total, part)",
        "total = np.maximum(total, part)",
        EXECUTOR,
    ),
    Mutant(
        "executor",
        "an all_to_all concatenates along the target",
        RUN,
        "if (piece := pieces[i]) is not None], source)",
        "if (piece := pieces[i]) is not None], target)",
        EXECUTOR,
    ),
    Mutant(
        "executor",
        "a mask of products leaves zeros",
        RUN,
        "np.zeros_like if reduction is Reduction.SUM else np.ones_like",
        "np.zeros_like",
        EXECUTOR,
    ),
    Mutant(
        "executor",
        "a slice keeps the first block",
        RUN,
        "blocks(x, len(group), dim, cut)[index]",
        "blocks(x, len(group), dim, cut)[0]",
        EXECUTOR,
    ),
    Mutant(
        "executor",
        "keep_root ignores the last sub-axis",
        RUN,
        "groups(mesh, axes)}\n    return [x if rank in roots else None",
        "groups(mesh, axes[:-1])}\n    return [x if rank in roots else None",
        EXECUTOR,
    ),
    Mutant(
        "executor",
        "a redistribute takes one part for the sum",
        RUN,
        "if source.reduction and reduced else",
        "if source.reduction and not reduced else",
        EXECUTOR,
    ),
    Mutant(
        "executor",
        "a pad cuts nothing off the end",
        STEPS,
        "grown.shape[dim] - max(-high, 0)",
        "grown.shape[dim]",
        EXECUTOR,
    ),
    Mutant(
        "executor",
        "a pad grows with zeros only",
        STEPS,
        "constant_values=x.dtype.type(value)",
        "constant_values=x.dtype.type(0)",
        EXECUTOR,
    ),
    Mutant(
        "executor",
        "parts of an average are the average",
        "collir/semantics/reference/buffers.py",
        "(up - down + up_too - down_too)",
        "(up - down + up_too + down_too)",
        ("tests/semantics",),
    ),
    Mutant(
        "executor",
        "a shift goes the other way",
        RUN,
        "            source = index - distance",
        "            source = index + distance",
        ("tests/semantics/test_places.py",),
    ),
    # --- proofs -------------------------------------------------------------------------------
    Mutant(
        "proofs",
        "factors may be 2^-9 apart",
        "collir/semantics/validation/proof.py",
        "Fraction(1, 2**21)",
        "Fraction(1, 2**9)",
        ("tests/semantics/test_validation.py",),
    ),
    Mutant(
        "proofs",
        "computations on other inputs are the same",
        "collir/semantics/symbolic/values.py",
        "    return all(expressions_equal(x, y, Fraction(0)) for x, y in pairs)",
        "    return True",
        ("tests/semantics/test_validation.py",),
    ),
    Mutant(
        "proofs",
        "a doubtful difference is one",
        "collir/semantics/validation/proof.py",
        " and not _doubtful(",
        " or _doubtful(",
        ("tests/semantics/test_validation.py",),
    ),
    Mutant(
        "proofs",
        "what is at root is not compared",
        "collir/semantics/validation/proof.py",
        "        if (old.shape, old.place) != (new.shape, new.place):",
        "        if old.shape != new.shape:",
        PROOFS,
    ),
    Mutant(
        "proofs",
        "a transpose is undone the wrong way",
        LOCAL_PROOFS,
        "in order), x.place, substituted(x.expr, values))",
        "in order), x.place, x.expr)",
        PROOFS,
    ),
    Mutant(
        "proofs",
        "underflow of a factor is not followed",
        LOCAL_PROOFS,
        "dtype.short_range and abs(factor) < 1:",
        "dtype.short_range and abs(factor) < 0:",
        PROOFS,
    ),
    Mutant(
        "proofs",
        "an open shift is closed",
        EVEN,
        'if "open" not in op.properties:',
        "if by or not by:",
        PROOFS,
    ),
    # --- costs --------------------------------------------------------------------------------
    Mutant(
        "costs",
        "the bound of an all_to_all is a tenth lower",
        TABLE,
        "into=lambda size, parts, below, copied, helped: below * _rest(parts) * size,",
        "into=lambda size, parts, below, copied, helped: 0.9 * below * _rest(parts) * size,",
        COSTS,
    ),
    Mutant(
        "costs",
        "the bound of an all_to_all between children is a tenth lower",
        TABLE,
        "between=lambda size, parts, below: below * (parts - 1) * size,",
        "between=lambda size, parts, below: 0.9 * below * (parts - 1) * size,",
        COSTS,
    ),
    Mutant(
        "costs",
        "the bound of a gather ignores the port of the root",
        TABLE,
        "    return max(into / min(ports.roots), part)",
        "    return part",
        COSTS,
    ),
    Mutant(
        "costs",
        "the bound of a gather is a tenth lower",
        TABLE,
        "    return _rest(parts) * size\n\n\ndef _into_whole",
        "    return 0.9 * _rest(parts) * size\n\n\ndef _into_whole",
        COSTS,
    ),
    Mutant(
        "costs",
        "the bound of an all_to_all over links is half",
        TABLE,
        "* size * below / level.size",
        "* size * below / level.size / 2",
        COSTS,
    ),
    Mutant(
        "costs",
        "the bandwidth of nccl-tests for an all_reduce is that of an all_gather",
        TABLE,
        "busbw=lambda ranks: 2 * (ranks - 1) / ranks,",
        "busbw=lambda ranks: (ranks - 1) / ranks,",
        COSTS,
    ),
    Mutant(
        "costs",
        "a ring is one hop shorter",
        ROUNDS,
        "whole = part * priced.times",
        "whole = part * (priced.times - 1)",
        COSTS,
    ),
    Mutant(
        "costs",
        "recursive doubling sends the same in every round",
        DOUBLING,
        "        first = rank >> bit << bit\n        return range(first, first + (1 << bit))",
        "        first = rank >> bit << bit\n        return range(first, first + 1)",
        COSTS,
    ),
    Mutant(
        "costs",
        "Bruck's all_to_all sends half of all blocks in every round",
        BRUCK,
        "if block & distance]",
        "][: ranks // 2]",
        COSTS,
    ),
    Mutant(
        "costs",
        "reducing is free",
        METER,
        "return size / device.reduction if device and device.reduction else 0.0",
        "return 0.0",
        COSTS,
    ),
    Mutant(
        "costs",
        "tasks of one stream run side by side",
        SCHEDULE,
        "if not queue or queue[0] != number or stream in self.busy:",
        "if not queue or queue[0] != number:",
        COSTS,
    ),
    Mutant(
        "costs",
        "ports are not shared",
        SCHEDULE,
        "    if min(free.values(), default=0.0) >= 0:",
        "    if True:",
        COSTS,
    ),
    Mutant(
        "costs",
        "a step waits for no operand",
        SCHEDULE,
        "            if self.spans[needed][1] > now:",
        "            if False:",
        COSTS,
    ),
    Mutant(
        "costs",
        "what is sent goes to the neighbour",
        "collir/cost/collectives/permutation.py",
        "return ListedMessages(np.array([sender]), np.array([receiver]))",
        "return ListedMessages(np.array([sender]), np.array([(sender + 1) % collective.ranks]))",
        ("tests/cost/test_places.py",),
    ),
    Mutant(
        "costs",
        "a device that receives waits for what the sender computes",
        SCHEDULE,
        "if self.spans[needed][1] > now and device_class in self.tasks[needed].on:",
        "if self.spans[needed][1] > now:",
        ("tests/cost/test_schedule.py",),
    ),
    Mutant(
        "costs",
        "a device holds what other stages hold",
        "collir/cost/programs/simulate.py",
        "    return device_class in classes.holding(dist_type(value))",
        "    return True",
        ("tests/cost/test_places.py",),
    ),
    # --- passes -------------------------------------------------------------------------------
    Mutant(
        "passes",
        "all_to_alls in both directions share a buffer",
        PACKING,
        "x.place, front, backwards",
        "x.place, front",
        ("tests/passes/test_bucket.py",),
    ),
    Mutant(
        "passes",
        "values at root share a buffer with others",
        PACKING,
        "x.reduction, x.place, front",
        "x.reduction, front",
        ("tests/passes/test_bucket.py",),
    ),
    Mutant(
        "passes",
        "orders a fifth apart are equally good",
        ORDER,
        "AS_FAST = 2e-3",
        "AS_FAST = 0.2",
        ("tests/passes/test_overlap.py",),
    ),
    Mutant(
        "passes",
        "no order by Johnson's rule",
        ORDER,
        "total = math.fsum(task.time for task in tasks)",
        "total = 0.0",
        ("tests/passes/test_overlap.py",),
    ),
    Mutant(
        "passes",
        "a reduction passes a factor that underflows",
        "collir/synthesis/reorder/swap.py",
        "return not ahead and abs(factor) > 1",
        "return True",
        ("tests/synthesis/test_commuting.py", "tests/passes"),
    ),
    Mutant(
        "passes",
        "averages may be padded with anything",
        "collir/synthesis/reorder/swap.py",
        'return x.reduction is not Reduction.AVG or arguments["value"] == 0',
        "return True",
        ("tests/synthesis/test_commuting.py", "tests/passes"),
    ),
    Mutant(
        "passes",
        "dearer programs are taken",
        "collir/synthesis/programs/choices.py",
        "better = [choice for choice in listed if choice[0] < own * (1 - TIE)]",
        "better = list(listed)",
        PASSES,
    ),
    Mutant(
        "passes",
        "the sub-axes of a send are put in another order",
        "collir/synthesis/reorder/reorder.py",
        "if not op.kind.ordered and not op.kind.pairs:",
        "if not op.kind.ordered:",
        ("tests/filecheck/passes/reorder-by-hierarchy", "tests/passes"),
    ),
    Mutant(
        "passes",
        "values for different coordinates share a message",
        PACKING,
        "    return op.name, axes, ends, x.dtype",
        "    return op.name, axes, x.dtype",
        ("tests/passes/test_bucket.py", "tests/filecheck/passes/bucket"),
    ),
    # --- emitters -----------------------------------------------------------------------------
    Mutant(
        "emitters",
        "C: a loop of an even number of iterations ends in its spare buffer",
        C_CODE,
        "first = last if times % 2 else spare_name",
        "first = last",
        (*MPI, "tests/filecheck/targets/loops.coll"),
    ),
    Mutant(
        "emitters",
        "MPI: averages are sums",
        MPI_CODE,
        "        if op.operation is not Reduction.AVG:",
        "        if True:",
        MPI,
    ),
    Mutant(
        "emitters",
        "MPI: a product is a sum",
        MPI_CODE,
        'Reduction.PROD: "MPI_PROD"',
        'Reduction.PROD: "MPI_SUM"',
        MPI,
    ),
    Mutant(
        "emitters",
        "MPI: bf16 maxima drop a NaN",
        "collir/targets/code/mpi_mesh.py",
        '"a != a || a > b ? a : b"',
        '"a > b ? a : b"',
        (*MPI, "tests/targets/test_mpi_numbers.py"),
    ),
    Mutant(
        "emitters",
        "C: a matrix is transposed into rows of another length",
        "collir/targets/code/c_copies.py",
        "((to, inner), (start, last))",
        "((start, last), (to, inner))",
        MPI,
    ),
    Mutant(
        "emitters",
        "C: runs that do not lie one behind the other are copied as one",
        "collir/targets/code/c_copies.py",
        "    if inner is last:",
        "    if True:",
        MPI,
    ),
    Mutant(
        "emitters",
        "a result lies in the memory of an argument",
        "collir/ir/buffers.py",
        "isinstance(owner.owner, Operation)\n        and dist_type(owner)",
        "dist_type(owner)",
        MPI,
    ),
    Mutant(
        "emitters",
        "MPI: a result lies in an argument that is still read",
        "collir/localize/in_place.py",
        "return last_read < first_write",
        "return True",
        ("tests/targets/test_interface.py",),
    ),
    Mutant(
        "emitters",
        "NCCL: averages are sums",
        NCCL_CODE,
        'Reduction.AVG: "ncclAvg"',
        'Reduction.AVG: "ncclSum"',
        NCCL,
    ),
    Mutant(
        "emitters",
        "NCCL: the blocks of an all_to_all are too large",
        "collir/targets/code/c_collectives.py",
        "count = x.elements // names.mesh.group_size(op.axes.data)",
        "count = x.elements",
        NCCL,
    ),
    Mutant(
        "emitters",
        "NCCL: a stream does not wait for the last use of its memory",
        "collir/targets/code/nccl_streams.py",
        "if last is None:",
        "if True:",
        NCCL,
    ),
    Mutant(
        "emitters",
        "NCCL: a collective on a stream of its own is never waited for",
        "collir/targets/code/nccl_streams.py",
        "and uses.disturbs(used)",
        "and uses is used",
        NCCL,
    ),
    Mutant(
        "emitters",
        "mpi4py and torch: a copy of dimensions in another order is none",
        "collir/targets/code/rank_method.py",
        "            text = self.permuted(text, order)",
        "            pass",
        PYTHON,
    ),
    Mutant(
        "emitters",
        "mpi4py and torch: a part is made where all of the memory is needed",
        "collir/targets/code/rank_leaves.py",
        "    if start != 0 or x.elements != buffer_of(root).elements:",
        "    if start != 0:",
        PYTHON,
    ),
    Mutant(
        "emitters",
        "mpi4py and torch: nothing is under way",
        "collir/targets/code/rank_method.py",
        'token="" if waits else self.tokens[op]',
        'token=""',
        ("tests/filecheck/targets", "tests/targets/test_overlap.py"),
    ),
    Mutant(
        "emitters",
        "mpi4py: every reduction is a sum",
        PYTHON_CODE,
        'return f"MPI.{reduction.upper()}"',
        'return "MPI.SUM"',
        PYTHON,
    ),
    Mutant(
        "emitters",
        "mpi4py: an average of bf16 is a sum",
        PYTHON_CODE,
        "{s.out}.astype(np.float32) / {s.group}",
        "{s.out}.astype(np.float32)",
        PYTHON,
    ),
    Mutant(
        "emitters",
        "MPI: a broadcast starts from rank 0",
        "collir/targets/code/c_collectives.py",
        '"root": str(op.number("root"))',
        '"root": "0"',
        MPI,
    ),
    Mutant(
        "emitters",
        "MPI: only the sender's message is waited for",
        MPI_CODE,
        "count = 2 if _exchanges(op) else 1",
        "count = 1",
        ("tests/filecheck/targets", "tests/targets/test_async.py"),
    ),
    # --- the local level ----------------------------------------------------------------------
    Mutant(
        "localize",
        "memory ends where a collective starts to use it",
        "collir/localize/lifetimes.py",
        "                used |= _used(started)",
        "                pass",
        ("tests/semantics/test_local.py", "tests/filecheck/passes/localize"),
    ),
    Mutant(
        "localize",
        "any gap in an arena is large enough",
        "collir/localize/arena.py",
        "            if start - end >= count:",
        "            if start > end:",
        ("tests/semantics/test_local.py", "tests/filecheck/passes/localize"),
    ),
    Mutant(
        "localize",
        "blocks keep the order of sub-axes in groups that ascend",
        "collir/localize/blocks.py",
        "        return BlockOrder(tuple((mesh.by_name[axis].size, step[axis]) for axis in ranks))",
        "        return BlockOrder(((mesh.group_size(over), 1),))",
        ("tests/semantics/test_local.py", "tests/filecheck/passes/localize"),
    ),
    Mutant(
        "localize",
        "blocks of different sizes begin where even ones would",
        "collir/localize/blocks.py",
        "        if is_even(mesh, dim.axes):",
        "        if is_even(mesh, dim.axes) or True:",
        ("tests/semantics/test_local.py", "tests/filecheck/passes/localize"),
    ),
    Mutant(
        "localize",
        "what differs by rank is that of the first rank in all bounds",
        "collir/layout/local.py",
        "    for coordinates in places(mesh, list(tried)):",
        "    for coordinates in places(mesh, list(tried))[:1]:",
        ("tests/layout/test_rank_numbers.py",),
    ),
    # --- syntax -------------------------------------------------------------------------------
    Mutant(
        "syntax",
        "-0 is written as the default 0",
        "collir/syntax/step_writer.py",
        "argument != str(",
        "float(argument) != float(",
        SYNTAX,
    ),
    Mutant(
        "syntax",
        "two values have one name",
        "collir/ir/names.py",
        'while (numbered := f"{head}_{number}{dot}{field}") in self or numbered in self.wanted:',
        'while (numbered := f"{head}_{number}{dot}{field}") in self.wanted:',
        SYNTAX,
    ),
    Mutant(
        "syntax",
        "a column counts from 0",
        "collir/ir/diagnostics.py",
        "visible[: column - 1 - start]",
        "visible[: column - start]",
        SYNTAX,
    ),
    # --- search -------------------------------------------------------------------------------
    Mutant(
        "search",
        "nodes as good as the incumbent are searched too",
        "collir/search/core/explore.py",
        "if rank >= threshold or rank > cells[CUT]:",
        "if rank > threshold or rank > cells[CUT]:",
        SEARCH,
    ),
    Mutant(
        "search",
        "the other loop prunes nodes that are at the cut",
        "collir/search/core/explore.py",
        "rank <= cells[CUT]):",
        "rank < cells[CUT]):",
        SEARCH,
    ),
    Mutant(
        "search",
        "one label too many is kept",
        "collir/search/core/dominance.py",
        ">= self._k:",
        "> self._k:",
        SEARCH,
    ),
    Mutant(
        "search",
        "a label dominates by one of its costs",
        "collir/search/core/dominance.py",
        "return all(a <= b for",
        "return any(a <= b for",
        (*SEARCH, "tests/synthesis/test_pipelines.py"),
    ),
]
"""All mutants, by area."""
