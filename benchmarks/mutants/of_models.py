"""Mistakes in what stands on models: the dialect ``nn``, gradients, rings, calls and sizes."""

from mutants import Mutant

MODELS: list[Mutant] = []


def plant(area: str, file: str, tests: tuple[str, ...], *changes: tuple[str, str, str]) -> None:
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

plant(
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
plant(
    "layout",
    "layout/nn.py",
    STRUCTURES,
    (
        "iota of a float counts one number too few",
        "exact = last <= 2**to.dtype.mantissa if",
        "exact = last < 2**to.dtype.mantissa if",
    ),
)
plant(
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
plant(
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
plant(
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

plant(
    "gradients",
    "transforms/gradients/reverse.py",
    LOOPS,
    (
        "a second part takes the place of the first",
        "self._parts.setdefault(value, []).append(part)",
        "self._parts[value] = [part]",
    ),
    (
        "carries that become active in a later iteration are forgotten",
        "        if more <= inside:\n            return inner_active\n",
        "        return inner_active\n",
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
plant(
    "gradients",
    "transforms/gradients/differentiation.py",
    LOOPS,
    (
        "gradients with respect to other arguments are those of the first call",
        "key = (callee, call.sought)",
        "key = (callee, call.sought[:1])",
    ),
    (
        "calls in calls that are computed again are kept",
        "around, fused = groups.get(call, ()), call.fused is not None",
        "around, fused = (), call.fused is not None",
    ),
    (
        "the gradient function stands in front of what it was made of",
        'copy.properties["sym_name"] = type(function.sym_name)(',
        'copy.properties["sym_visibility"] = type(function.sym_name)(',
    ),
)

# --- rings ----------------------------------------------------------------------------------------

plant(
    "rings",
    "transforms/ring_attention/attention.py",
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
plant(
    "rings",
    "transforms/ring_attention/block.py",
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
plant(
    "rings",
    "transforms/ring_attention/ring.py",
    RINGS,
    (
        "the last block has the number of the one before",
        "steps.constant(x, self.form.count - 1)]",
        "steps.constant(x, self.form.count - 2)]",
    ),
    (
        "leaves of keys stay where they are",
        "self.travels = [n for n, role in enumerate(roles) if role is AttentionRole.KEY]",
        "self.travels = [n for n, role in enumerate(roles[:3]) if role is AttentionRole.KEY]",
    ),
)

# --- sizes ----------------------------------------------------------------------------------------

plant(
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
plant(
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
plant(
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

plant(
    "calls",
    "transforms/any_size.py",
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
plant(
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
plant(
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
plant(
    "calls",
    "ir/parameters.py",
    AT_VALUES,
    (
        "sharded dimensions keep their size",
        "dims = tuple(Dim(changed(dim.size), dim.axes) for dim in x.dims)",
        "dims = tuple(dim if dim.axes else Dim(changed(dim.size)) for dim in x.dims)",
    ),
)
plant(
    "calls",
    "transforms/loops/rotation.py",
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
plant(
    "gradients",
    "transforms/terms.py",
    GRADIENTS,
    (
        "repeated dimensions are summed at the places of the larger shape",
        "dims = [d for d, n in enumerate(own) if d < more or not same_size(n, shape[d - more])]",
        "dims = [d for d, n in enumerate(own) if d < more or not same_size(n, shape[d])]",
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
