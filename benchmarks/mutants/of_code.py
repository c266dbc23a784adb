"""Mistakes in code that is emitted for models, in proofs of them, and in tools that run them."""

from of_models import plant

# --- emitters -------------------------------------------------------------------------------------

NUMPY = ("tests/targets/test_mpi4py_models.py",)
TORCH = ("tests/filecheck/targets/torch", "tests/targets/test_torch_models.py")
JAX = ("tests/filecheck/targets/jax", "tests/targets/test_jax.py")
IN_C = ("tests/targets/test_mpi_models.py",)

plant(
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
plant(
    "emitters",
    "targets/code/rank_forms.py",
    NUMPY,
    (
        "the padding of a maximum is 0",
        'function, _windows(s, s.x, s.op.sizes("window"), _lowest(s, 0)), _last(s)',
        'function, _windows(s, s.x, s.op.sizes("window")), _last(s)',
    ),
)
plant(
    "emitters",
    "targets/code/torch_methods.py",
    TORCH,
    (
        "a position at the end of a block is in it",
        "known = (at >= 0) & (at < x.shape[dim])\n        slices",
        "known = (at >= 0) & (at <= x.shape[dim])\n        slices",
    ),
    (
        "the smallest elements are first",
        "descending=True, stable=True)",
        "descending=False, stable=True)",
    ),
)
plant(
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
plant(
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
plant(
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
plant(
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
plant(
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
plant(
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
plant(
    "emitters",
    "targets/code/c_kernels.py",
    IN_C,
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
    "tests/semantics/test_validation.py",
)

plant(
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
plant(
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
plant(
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
plant(
    "proofs",
    "semantics/validation/loops.py",
    PROOFS,
    (
        "loops whose bodies have the same types are the same",
        "        if a.body.is_structurally_equivalent(b.body):\n            return True\n",
        "        if len(a.body.block.ops) == len(b.body.block.ops):\n            return True\n",
    ),
    (
        "bodies of the same tensors compute the same",
        "return mean_the_same(old, new, numbered_bodies(old, new))",
        "return True",
    ),
    (
        "loops in loops run once",
        "op.times * _steps_unrolled(op) if isinstance(op, RepeatOp) else 1",
        "op.times + _steps_unrolled(op) if isinstance(op, RepeatOp) else 1",
    ),
)

# --- tools ----------------------------------------------------------------------------------------

plant(
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
plant(
    "tools",
    "tools/torch_run.py",
    (*TORCH, "tests/tools/test_collrun.py"),
    (
        "a function of two results in torch returns them as one",
        "results = results if count > 1 else (results,)[:count]",
        "results = results if count > 2 else (results,)[:count]",
    ),
)
plant(
    "tools",
    "tools/mpi4py_run.py",
    (*NUMPY, "tests/tools/test_collrun.py"),
    (
        "a function of several results returns them as one",
        "results if count > 1 else (results,)[:count]",
        "results if count > 2 else (results,)[:count]",
    ),
)
