"""Random cases: a step on sharded operands and its gradient, with what jax and torch compute."""

import random
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from support.outside import forms, windows
from support.outside.forms import FLOATS, MAPS, PAIRS, Form
from support.outside.layouts import DTYPES, Layout, Mesh, distributed, random_shards

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")

jax.config.update("jax_enable_x64", True)

FORMS: dict[str, Any] = {
    "einsum": forms.einsum_form,
    **{name: partial(forms.map_form, name) for name in MAPS},
    **{name: partial(forms.pair_form, name) for name in PAIRS},
    "where": forms.where_form,
    **{name: partial(forms.reduction_form, name) for name in ("sum", "mean", "max", "min")},
    **{name: partial(forms.softmax_form, name) for name in ("softmax", "log_softmax")},
    **{name: partial(forms.norm_form, name) for name in ("layer_norm", "rms_norm")},
    "cumsum": forms.cumsum_form,
    "linear_scan": forms.linear_scan_form,
    "argmax": forms.argmax_form,
    **{name: partial(forms.top_k_form, name) for name in ("top_k", "top_k_indices")},
    "take": forms.take_form,
    "take_transpose": forms.take_transpose_form,
    "take_along_dim": forms.take_along_form,
    "take_along_dim_transpose": forms.take_along_transpose_form,
    "grouped_matmul": forms.grouped_matmul_form,
    "grouped_matmul_transpose": forms.grouped_matmul_transpose_form,
    "one_hot": forms.one_hot_form,
    "cross_entropy": forms.cross_entropy_form,
    **{n: partial(windows.conv_form, n) for n in ("conv", "conv_transpose", "conv_filter")},
    **{
        n: partial(windows.pool_form, n)
        for n in ("max_pool", "avg_pool", "max_pool_transpose", "avg_pool_transpose")
    },
    "constant": windows.constant_form,
    "iota": windows.iota_form,
    "broadcast_to": windows.broadcast_to_form,
    "scale": windows.scale_form,
    "cast": windows.cast_form,
    "pad": windows.pad_form,
    "concat": windows.concat_form,
    **{name: partial(windows.view_form, name) for name in ("split", "merge", "reshape")},
    "transpose": windows.transpose_form,
}


@dataclass
class Result:
    """What a function is to return.

    Attributes:
        truth: in f64, or integers.
        scale: the magnitude to which errors of rounding are compared.
        steps: how many roundings to the element type there are.
    """

    layout: Layout
    truth: Any
    scale: float
    steps: float


@dataclass
class Case:
    """A function to call: its name, its text with all that it calls, the buffers of its arguments,
    and its results."""

    name: str
    text: str
    mesh: Mesh
    arguments: list[list[Any]]
    results: list[Result]
    notes: list[str] = field(default_factory=list)


SPECIAL = [np.inf, -np.inf, np.nan, 0.0, -0.0, 3e4, -3e4, 1e-5]


def sample(numbers: Any, dtype: str, shape: list[int], values: str, special: bool) -> Any:
    """Return a random array of an element type."""
    if dtype == "bool":
        return numbers.integers(0, 2, shape).astype(bool)
    if dtype.startswith("i"):
        if values != "small" and numbers.random() < 0.3:  # products and sums wrap
            info = np.iinfo(DTYPES[dtype])
            return numbers.integers(info.min, info.max, shape, endpoint=True).astype(DTYPES[dtype])
        return numbers.integers(-5, 6, shape).astype(DTYPES[dtype])
    x: Any = numbers.normal(size=shape) * numbers.choice([0.5, 2.0, 8.0])
    if numbers.random() < 0.35:
        x = x.round()  # with equal elements
    if values == "positive":
        x = abs(x) + 0.05
    if special and x.size:
        for _ in range(numbers.integers(1, 4)):
            x.flat[numbers.integers(x.size)] = numbers.choice(SPECIAL)
    return np.asarray(x).astype(DTYPES[dtype])


def _layouts(
    rng: random.Random, mesh: Mesh, form: Form
) -> tuple[list[Layout], Layout, tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Return the types of the operands and of the result, which may be partial."""
    known = list(dict.fromkeys(i for over in (*form.operands, form.result) for i in over))
    own = {i for over in form.operands for i in over}
    gone = [i for i in known if i in own and i not in form.result]
    blocked = set(form.blocked)
    if form.reduced == "avg" and mesh.weights:
        blocked |= set(gone)
    shards, left = random_shards(rng, mesh, known, blocked)
    if form.text.startswith(("split", "merge", "reshape")):
        shards, left = _view_shards(rng, mesh, left, shards, form)
    units = {i: _unit(mesh, axes) for i, axes in shards.items()}
    size: dict[str, int] = {}
    for index in known:
        least = units.get(index, 1)
        size[index] = form.sizes.get(index) or least * rng.randint(1, 1 if least > 3 else 3)
        if size[index] % least:
            left += shards.pop(index)
    mine, place = _passed(rng, form, left, mesh, any(i in shards for i in gone))
    dtype = rng.choice(form.dtypes)
    operands: list[Layout] = []
    for number, over in enumerate(form.operands):
        kind = "bool" if form.condition and number == 0 else dtype
        if form.positions and form.positions[0] == number:
            kind = rng.choice(["i32", "i32", "i64", "i8"])
        shape = [1 if i == "1" else size[i] for i in over]
        cut = [shards.get(i, ()) for i in over]
        passes = mine and (form.linear == "all" or mine[0] == number) and kind != "bool"
        operands.append(Layout(kind, shape, cut, mine[1] if mine and passes else (), "sum", place))
    reduced = tuple(x for i in gone if i not in form.blocked for x in shards.get(i, ()))
    made = form.out or dtype
    shape = [1 if i == "1" else size[i] for i in form.result]
    through = mine[1] if mine and operands and any(x.partial for x in operands) else ()
    result = Layout(made, shape, [shards.get(i, ()) for i in form.result], (*through, *reduced))
    result.reduction = form.reduced if reduced else "sum"
    result.place = place
    return operands, result, reduced, shards


def _unit(mesh: Mesh, axes: tuple[str, ...]) -> int:
    unit = 1
    for axis in axes:
        unit *= sum(mesh.parts(axis))
    return unit


def _view_shards(
    rng: random.Random, mesh: Mesh, left: list[str], shards: dict[str, Any], form: Form
) -> tuple[dict[str, Any], list[str]]:
    """Shard the front of what is split or merged, at times."""
    whole = [axis for axis in left if axis not in mesh.weights]
    if whole and rng.random() < 0.7:
        axis = rng.choice(whole)
        if form.sizes["a"] % mesh.axes[axis] == 0:
            return {**shards, "a": (axis,), "ab": (axis,)}, [x for x in left if x != axis]
    return shards, left


def _passed(
    rng: random.Random, form: Form, left: list[str], mesh: Mesh, cut: bool
) -> tuple[tuple[int, tuple[str, ...]] | None, dict[str, int]]:
    """Return an operand and the sub-axes that it is partial over, and a place."""
    place: dict[str, int] = {}
    if left and rng.random() < 0.15 and all(mesh.axes[x] > 1 for x in left):
        axis = left.pop()
        place = {axis: rng.randrange(mesh.axes[axis])}
    integers = form.positions[0] if form.positions else -1
    choices = [n for n in range(len(form.operands)) if n != integers]
    usable = tuple(left)
    if cut and form.reduced == "avg":
        usable = ()
    if usable and choices and form.linear and rng.random() < 0.5:
        chosen = tuple(rng.sample(usable, rng.randint(1, len(usable))))
        if set(form.dtypes) != {"bool"} and "cast" not in form.text:
            return (rng.choice(choices), chosen), place
    return None, place


def _torch(x: Any) -> Any:
    return torch.from_numpy(np.array(x))


def _in_torch(form: Form, wholes: list[Any]) -> Any:
    """Return the result in torch, or None if torch has no such kernel."""
    try:
        result = form.torch(*map(_torch, wholes)).detach()
    except RuntimeError as error:
        if "not implemented" not in str(error):
            raise
        return None
    return (result.float() if result.dtype is torch.bfloat16 else result).numpy()


def _truth(form: Form, wholes: list[Any], case: Case, with_jax: bool) -> Any:
    """Return the result in torch, and in jax too, which have to agree."""
    other = _in_torch(form, wholes)
    if other is not None and not with_jax:
        return other
    truth = np.asarray(form.jax(*map(jnp.asarray, wholes)))
    if other is not None and not _close(truth, other):
        case.notes.append(f"{case.name}: torch is not jax")
    return truth


def _close(a: Any, b: Any) -> bool:
    return np.allclose(a, b, 1e-9, 1e-9 * (1 + top(a)), equal_nan=True)


def top(x: Any) -> float:
    x = np.asarray(x, np.float64)
    return float(abs(x[np.isfinite(x)]).max(initial=0.0))


def case_of(
    rng: random.Random,
    mesh: Mesh,
    name: str,
    label: str,
    with_jax: bool = True,
    special: float = 0.2,
) -> list[Case]:
    """Return a random step as a function, and its gradient as another.

    Args:
        with_jax: whether the truth is jax's, and torch has to agree; else it is torch's alone.
        special: how often operands have infinities, NaN and zeros of both signs.
    """
    while True:
        form: Form = FORMS[name](rng)
        operands, result, reduced, _ = _layouts(rng, mesh, form)
        if result.dtype != "bool" or not result.partial:
            break
    numbers = np.random.default_rng(rng.getrandbits(64))
    sums = any(x.partial for x in operands) or reduced
    plain = sums or not form.special or rng.random() >= special
    wholes, buffers, scale = list[Any](), list[Any](), 1.0
    for number, layout in enumerate(operands):
        if form.positions and form.positions[0] == number:
            size = _selected(form, operands, result)
            draw = partial(_positions, numbers, size, layout)
        else:
            draw = partial(sample, numbers, layout.dtype, layout.shape, form.values, not plain)
        whole, parts, large = distributed(mesh, layout, draw)
        wholes.append(whole)
        buffers.append(parts)
        scale = max(scale, large) if form.linear != "each" else scale * max(1.0, large)
    names = [f"%x{n}" for n in range(len(operands))]
    step = form.text.format(*names, to=result.text())
    typed = ", ".join(f"{n}: {x.text()}" for n, x in zip(names, operands, strict=True))
    whole = Layout(result.dtype, result.shape, result.shards, place=result.place)
    body = [
        f"%r = {step}",
        f"%w = all_reduce %r over {', '.join(result.partial)}"
        if result.partial
        else "%w = barrier %r",
    ]
    text = f"func @{label}({typed}) -> {whole.text()} on @{mesh.name} {{\n  " + "\n  ".join(body)
    case = Case(label, f"{text}\n  return %w\n}}\n", mesh, buffers, [])
    truth = _truth(form, wholes, case, with_jax)
    steps = 8.0 if result.partial or name == "max_pool_transpose" else 1.0
    case.results = [Result(whole, truth, max(scale, top(truth)), steps)]
    cases = [case]
    of_floats = [n for n, x in enumerate(operands) if x.dtype in FLOATS and not x.partial]
    if form.gradient and of_floats and result.dtype in FLOATS and plain:
        cases.append(
            _gradient(
                form,
                case,
                (operands, result, whole),
                wholes,
                of_floats,
                numbers,
                body,
                typed,
                with_jax,
            )
        )
    return cases


def _selected(form: Form, operands: list[Layout], result: Layout) -> int:
    """Return the size of the dimension that integers select from."""
    assert form.positions
    index = form.positions[1]
    for over, layout in zip([*form.operands, form.result], [*operands, result], strict=True):
        if index in over:
            return layout.shape[over.index(index)]
    raise AssertionError


def _positions(numbers: Any, size: int, layout: Layout) -> Any:
    """Return positions, some of them out of range."""
    return numbers.integers(-2, size + 2, layout.shape).astype(DTYPES[layout.dtype])


def _gradient(
    form: Form,
    case: Case,
    types: tuple[list[Layout], Layout, Layout],
    wholes: list[Any],
    wrt: list[int],
    numbers: Any,
    body: list[str],
    typed: str,
    with_jax: bool,
) -> Case:
    """Return the gradients of a random linear functional of a step, as a function."""
    operands, result, whole = types
    mesh, label, dtype = case.mesh, case.name, result.dtype
    draw = partial(sample, numbers, dtype, whole.shape, "any", False)
    c, parts, _ = distributed(mesh, whole, draw)
    cut = [axis for axes in whole.shards for axis in axes]
    number = Layout(dtype, [], [], place=whole.place)
    steps = [*body, "%p = mul %w, %c"]
    if whole.shape:
        steps.append(f"%s = sum %p dims {list(range(len(whole.shape)))}")
    else:
        steps.append("%s = barrier %p")
    steps.append(f"%l = all_reduce %s over {', '.join(cut)}" if cut else "%l = barrier %s")
    typed = f"{typed}, %c: {whole.text()}"
    loss = f"func @{label}_loss({typed}) -> {number.text()} on @{mesh.name} {{\n  "
    loss += "\n  ".join([*steps, "return %l"]) + "\n}\n"
    names = [f"%x{n}" for n in range(len(operands))]
    made = ", ".join(f"%d{n}" for n in wrt)
    results = ", ".join([number.text(), *(operands[n].text() for n in wrt)])
    call = f"gradient @{label}_loss({', '.join([*names, '%c'])})"
    call += f" wrt {', '.join(names[n] for n in wrt)}"
    text = f"func @{label}_g({typed}) -> ({results}) on @{mesh.name} {{\n  %l, {made} = {call}\n"
    text += f"  return %l, {made}\n}}\n"
    truths, notes = _gradients(form, wholes, wrt, c, with_jax)
    out = Case(f"{label}_g", loss + text, mesh, [*case.arguments, parts], [])
    truth = case.results[0]
    value = np.sum(np.asarray(truth.truth) * c)
    scale = max(1.0, truth.scale) * max(1.0, top(c))
    out.results = [Result(number, value, scale * max(1, np.size(c)), 64.0)]
    out.results += [
        Result(operands[n], g, max(top(g), scale), 64.0) for n, g in zip(wrt, truths, strict=True)
    ]
    out.notes = [f"{out.name}: {note}" for note in notes]
    return out


def _gradients(
    form: Form, wholes: list[Any], wrt: list[int], c: Any, with_jax: bool
) -> tuple[list[Any], list[str]]:
    """Return the gradients of a sum with coefficients, and where torch and jax disagree."""
    every = [_torch(x) for x in wholes]
    for n in wrt:
        every[n].requires_grad_()
    loss = (form.torch(*every) * _torch(c)).sum()
    others = [None] * len(wrt)
    if loss.requires_grad:
        others = torch.autograd.grad(loss, [every[n] for n in wrt], allow_unused=True)
    zeros = [np.zeros_like(wholes[n]) for n in wrt]
    found = [z if x is None else x.numpy() for x, z in zip(others, zeros, strict=True)]
    if not with_jax:
        return found, []

    def functional(*xs: Any) -> Any:
        inputs = [jnp.asarray(x) for x in wholes]
        for n, x in zip(wrt, xs, strict=True):
            inputs[n] = x
        return (form.jax(*inputs) * c).sum()

    made = jax.grad(functional, tuple(range(len(wrt))))(*[jnp.asarray(wholes[n]) for n in wrt])
    truths = [np.asarray(g) for g in made]
    pairs = zip(wrt, truths, found, strict=True)
    return truths, [f"gradient {n} of torch is not jax's" for n, a, b in pairs if not _close(a, b)]
