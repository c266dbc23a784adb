"""Random training steps whose losses read the size of their batch in all the ways that there are.

A step is a text with functions ``@loss`` and ``@step``. Its mesh has an axis ``data`` and an axis
``pipe``, and the layers of the loss are a loop.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

BATCH, SEQ, WIDTH = 8, 2, 4


@dataclass
class Text:
    """The lines of a loss, with the values that it has so far.

    Attributes:
        values: the names of values, by their dimensions: ``bsh`` for batch, sequence and width.
    """

    rng: random.Random
    lines: list[str] = field(default_factory=list[str])
    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def add(self, text: str, dims: str | None = None) -> str:
        """Return the name of a new value."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        if dims is not None:
            self.values.setdefault(dims, []).append(name)
        return name

    def any(self, dims: str) -> str:
        """Return a value with some dimensions."""
        return self.rng.choice(self.values[dims])


SHAPES = {
    "bsh": "batch, seq, width",
    "bh": "batch, width",
    "bs": "batch, seq",
    "b": "batch",
    "th": "batch * seq, width",
    "t": "batch * seq",
    "": "",
}


def typed(dims: str, dtype: str = "f64") -> str:
    """Return the type of a value with some dimensions."""
    return f"{dtype}[{SHAPES[dims]}]"


# --- what a loss does with its rows ---------------------------------------------------------------


def _scale_by_batch(t: Text, y: str, dims: str) -> str:
    formula = t.rng.choice(["batch", "6 * batch", "batch * seq", "batch + 1"])
    return t.add(f"scale {y} by {formula}")


def _divide_by_constant(t: Text, y: str, dims: str) -> str:
    formula = t.rng.choice(["batch", "6 * batch", "batch * seq * width", "batch / 2"])
    n = t.add(f"constant value {formula} to f64[]")
    return t.add(f"div {y}, {n}")


def _pad_value(t: Text, y: str, dims: str) -> str:
    dim = len(dims) - 1
    padded = t.add(f"pad {y} dim {dim} low 1 high 0 value batch")
    return t.add(f"pad {padded} dim {dim} low 0 high -1")


def _pad_count(t: Text, y: str, dims: str) -> str:
    dim = len(dims) - 1
    padded = t.add(f"pad {y} dim {dim} low batch high 0 value 1")
    return t.add(f"pad {padded} dim {dim} low -batch high 0 value 1")


def _repeat_batch(t: Text, y: str, dims: str) -> str:
    return t.add(
        f"repeat batch carry(%h = {y}) {{\n    %h2 = scale %h by 1.0625\n    yield %h2\n  }}"
    )


def _iota(t: Text, y: str, dims: str) -> str:
    dim = t.rng.randrange(len(dims))
    i = t.add(f"iota dim {dim} to {typed(dims)}")
    return t.add(f"{t.rng.choice(['mul', 'add', 'sub'])} {y}, {i}")


def _one_iota(t: Text, y: str, dims: str) -> str:
    i = t.add("iota dim 0 to f64[batch]")
    equation = {"bsh": "b s h, b -> b s h", "bh": "b h, b -> b h", "th": ""}[dims]
    return t.add(f'einsum "{equation}" {y}, {i}') if equation else _iota(t, y, dims)


def _compare_with_batch(t: Text, y: str, dims: str) -> str:
    i = t.add(f"iota dim 0 to {typed(dims, 'i32')}")
    n = t.add(f"constant value {t.rng.choice(['batch / 2', 'batch - 3'])} to i32[]")
    small = t.add(f"{t.rng.choice(['less', 'greater_equal'])} {i}, {n}")
    half = t.add(f"scale {y} by 0.25")
    return t.add(f"where {small}, {y}, {half}")


def _dropout(t: Text, y: str, dims: str) -> str:
    u = t.add(f"uniform %seed to {typed(dims)}")
    half = t.add("constant value 0.5 to f64[]")
    kept = t.add(f"greater {u}, {half}")
    mask = t.add(f"cast {kept} to f64")
    return t.add(f"mul {y}, {mask}")


def _seed_of_batch(t: Text, y: str, dims: str) -> str:
    n = t.add("constant value batch to i32[]")
    seed = t.add(f"add %seed, {n}")
    u = t.add(f"uniform {seed} to f64[{SHAPES[dims].rsplit(', ', 1)[-1]}]")
    return t.add(f"mul {y}, {u}")


def _constants(t: Text, y: str, dims: str) -> str:
    ones = t.add(f"constant value 2 to {typed(dims)}")
    return t.add(f"{t.rng.choice(['mul', 'add'])} {y}, {ones}")


def _broadcast(t: Text, y: str, dims: str) -> str:
    wide = t.add(f"broadcast_to %bias to {typed(dims)}")
    return t.add(f"add {y}, {wide}")


def _one_hot(t: Text, y: str, dims: str) -> str:
    if dims != "bh":
        return _constants(t, y, dims)
    i = t.add("iota dim 0 to i32[batch]")
    hot = t.add(f"one_hot {i} to f64[batch, batch]")
    table = t.add("iota dim 0 to f64[batch, width]")
    rows = t.add(f'einsum "b c, c h -> b h" {hot}, {table}')
    return t.add(f"add {y}, {rows}")


def _bank(t: Text, y: str, dims: str) -> str:
    """Compare rows with a number of others that is the size of the batch."""
    if dims != "bh":
        return _broadcast(t, y, dims)
    scores = t.add(f'einsum "b h, c h -> b c" {y}, %bank')
    scores = t.add(f"scale {scores} by 0.0625")
    sharp = t.add(f"softmax {scores} dims [1]")
    return t.add(f'einsum "b c, c h -> b h" {sharp}, %bank')


def _own_rows(t: Text, y: str, dims: str) -> str:
    """Add a weight for each row of the batch."""
    return t.add(f"add {y}, %each") if dims == "bh" else _broadcast(t, y, dims)


def _take_table(t: Text, y: str, dims: str) -> str:
    index = {"bh": "%labels", "bsh": "%tokens"}.get(dims)
    if index is None:
        return _constants(t, y, dims)
    rows = t.add(f"take %table, {index} dim 0")
    return t.add(f"add {y}, {rows}")


def _take_rows(t: Text, y: str, dims: str) -> str:
    """Pick rows by their position: of the data, or of what depends on weights."""
    order = t.add("iota dim 0 to i32[batch]")
    number = t.add("constant value batch - 1 to i32[]")
    back = t.add(f"sub {number}, {order}")
    if t.rng.random() < 0.7 and dims == "bh":
        other = t.add(f"take %z, {back} dim 0")
        return t.add(f"mul {y}, {other}")
    if dims == "th":
        return _constants(t, y, dims)
    return t.add(f"take {y}, {back} dim 0")


def _cumulative(t: Text, y: str, dims: str) -> str:
    if t.rng.random() < 0.6 and dims == "bh":
        sums = t.add(f"cumsum %z dim {t.rng.randrange(2)}")
        return t.add(f"add {y}, {sums}")
    return t.add(f"cumsum {y} dim {t.rng.choice(range(len(dims)))}")


def _centre(t: Text, y: str, dims: str) -> str:
    """Subtract a mean over the batch, of the data or of what depends on weights."""
    source, over = (y, dims) if t.rng.random() < 0.3 else ("%z", "bh")
    mean = t.add(f"{t.rng.choice(['mean', 'sum', 'max'])} {source} dims {[*range(len(over) - 1)]}")
    return t.add(f"sub {y}, {mean}")


def _norm(t: Text, y: str, dims: str) -> str:
    return t.add(f"softmax {y} dims [{t.rng.choice([len(dims) - 1, len(dims) - 1, 0])}]")


def _tanh(t: Text, y: str, dims: str) -> str:
    small = t.add(f"scale {y} by 0.125")
    return t.add(f"tanh {small}")


def _square(t: Text, y: str, dims: str) -> str:
    return t.add(f"mul {y}, {y}")


def _product(t: Text, y: str, dims: str) -> str:
    last = {"bsh": "b s h, h k -> b s k", "bh": "b h, h k -> b k", "th": "t h, h k -> t k"}[dims]
    return t.add(f'einsum "{last}" {y}, %u')


def _with_inputs(t: Text, y: str, dims: str) -> str:
    if dims == "bh":
        return t.add(f"{t.rng.choice(['mul', 'sub', 'add'])} {y}, %z")
    if dims == "bsh":
        return t.add(f"mul {y}, %x")
    flat = t.add("reshape %x to [batch * seq, width]")
    return t.add(f"mul {y}, {flat}")


def _mask(t: Text, y: str, dims: str) -> str:
    weights = t.add("cast %tokens to f64")
    if dims == "th":
        weights = t.add(f"reshape {weights} to [batch * seq]")
        return t.add(f'einsum "t h, t -> t h" {y}, {weights}')
    if dims == "bsh":
        return t.add(f'einsum "b s h, b s -> b s h" {y}, {weights}')
    rows = t.add(f"sum {weights} dims [1]")
    return t.add(f'einsum "b h, b -> b h" {y}, {rows}')


def _concat(t: Text, y: str, dims: str) -> str:
    dim = t.rng.randrange(len(dims))
    sizes = SHAPES[dims].split(", ")
    double = t.add(f"concat {y}, {y} dim {dim}")
    low = t.rng.random() < 0.5
    if dim and low:
        return t.add(f"pad {double} dim {dim} low -{sizes[dim].replace(' ', '')} high 0")
    sizes.insert(dim, "2")
    two = t.add(f"reshape {double} to [{', '.join(sizes)}]")
    return t.add(f"sum {two} dims [{dim}]")


def _concat_const(t: Text, y: str, dims: str) -> str:
    dim = len(dims) - 1
    other = t.add(f"iota dim 0 to {typed(dims)}")
    double = t.add(f"concat {y}, {other} dim {dim}")
    sizes = SHAPES[dims].split(", ")
    sizes.insert(dim, "2")
    two = t.add(f"reshape {double} to [{', '.join(sizes)}]")
    return t.add(f"sum {two} dims [{dim}]")


def _transposed(t: Text, y: str, dims: str) -> str:
    order = t.rng.sample(range(len(dims)), len(dims))
    moved = t.add(f"transpose {y} order {order}")
    back = [order.index(n) for n in range(len(dims))]
    inner = t.add(f"scale {moved} by batch")
    return t.add(f"transpose {inner} order {back}")


def _drop_in_loop(t: Text, y: str, dims: str) -> str:
    name = t.add(
        f"repeat layers carry(%h = {y}, %s = %seed) {{\n"
        f"    %one = constant value {t.rng.choice(['1', 'batch'])} to i32[]\n"
        "    %s2 = add %s, %one\n"
        f"    %u = uniform %s2 to {typed(dims)}\n"
        "    %h2 = mul %h, %u\n"
        "    yield %h2, %s2\n  }"
    )
    t.lines[-1] = t.lines[-1].replace(f"{name} =", f"{name}, {name}_seed =", 1)
    return name


def _sums_in_loop(t: Text, y: str, dims: str) -> str:
    """Carry a state of the shape of the batch that starts as a constant."""
    name = t.add(
        f"repeat layers carry(%h = {y}, %a = %zero{dims}) {{\n"
        "    %h2 = scale %h by 0.5\n"
        "    %a2 = add %a, %h2\n"
        "    yield %h2, %a2\n  }"
    )
    start = f"%zero{dims} = constant value {t.rng.choice([0, 1])} to {typed(dims)}\n  "
    both = t.lines.pop().replace(f"{name} =", f"{name}, {name}_sum =", 1)
    t.lines.append(start + both if f"%zero{dims} =" not in "\n".join(t.lines) else both)
    return f"{name}_sum"


def _by_time(t: Text, y: str, dims: str) -> str:
    """Take data whose batch is not the leading dimension."""
    rows = t.add("transpose %by_time order [1, 0, 2]")
    if dims == "bh":
        rows = t.add(f"sum {rows} dims [1]")
    if dims == "th":
        rows = t.add(f"reshape {rows} to [batch * seq, width]")
    return t.add(f"mul {y}, {rows}")


def _pairs(t: Text, y: str, dims: str) -> str:
    """Take data with two rows for each of the batch: one behind the other, or in two halves."""
    if dims != "bh":
        return _by_time(t, y, dims)
    inside = t.rng.randrange(2)
    two = t.add(f"reshape %pairs to [{'batch, 2' if inside else '2, batch'}, width]")
    rows = t.add(f"sum {two} dims [{inside}]")
    return t.add(f"sub {y}, {rows}")


def _called(t: Text, y: str, dims: str) -> str:
    if dims != "bh":
        return _constants(t, y, dims)
    how = t.rng.choice(["", " recompute", " fused"])
    return t.add(f"call @part(rows = batch, number = 3 * batch, width = width)({y}, %seed){how}")


STEPS: list[Callable[[Text, str, str], str]] = [
    _scale_by_batch,
    _divide_by_constant,
    _pad_value,
    _pad_count,
    _repeat_batch,
    _iota,
    _one_iota,
    _compare_with_batch,
    _dropout,
    _seed_of_batch,
    _constants,
    _broadcast,
    _one_hot,
    _bank,
    _own_rows,
    _take_table,
    _take_rows,
    _cumulative,
    _centre,
    _norm,
    _tanh,
    _square,
    _product,
    _with_inputs,
    _mask,
    _concat,
    _concat_const,
    _transposed,
    _drop_in_loop,
    _sums_in_loop,
    _by_time,
    _pairs,
    _called,
]
"""What a loss may do with a value of its batch, which keeps its dimensions."""


# --- the end of a loss ----------------------------------------------------------------------------


def _total(t: Text, y: str, dims: str) -> str:
    order = [*range(len(dims))]
    if t.rng.random() < 0.5:
        return t.add(f"{t.rng.choice(['sum', 'mean'])} {y} dims {order}")
    if len(dims) == 1:
        return t.add(f"{t.rng.choice(['sum', 'mean'])} {y} dims [0]")
    first = t.add(f"{t.rng.choice(['sum', 'mean'])} {y} dims [{t.rng.choice([0, len(dims) - 1])}]")
    return t.add(f"{t.rng.choice(['sum', 'mean'])} {first} dims {order[:-1]}")


def _mean_by_hand(t: Text, y: str, dims: str) -> str:
    total = t.add(f"sum {y} dims {[*range(len(dims))]}")
    n = t.add(f"constant value batch * {t.rng.choice(['seq', 'width', '6'])} to f64[]")
    return t.add(f"div {total}, {n}")


def _of_ones(t: Text, y: str, dims: str) -> str:
    """Divide by a count of elements that is a sum of ones."""
    ones = t.add(f"constant value 1 to {typed(dims)}")
    count = t.add(f"sum {ones} dims {[*range(len(dims))]}")
    total = t.add(f"sum {y} dims {[*range(len(dims))]}")
    return t.add(f"div {total}, {count}")


def _of_tokens(t: Text, y: str, dims: str) -> str:
    """Divide by a count of tokens."""
    one = t.add("constant value 1 to i32[]")
    real = t.add(f"greater_equal %tokens, {one}")
    weights = t.add(f"cast {real} to f64")
    count = t.add(f"sum {weights} dims [0, 1]")
    least = t.add("constant value 1 to f64[]")
    count = t.add(f"maximum {count}, {least}")
    per = t.add(f"sum {y} dims [{len(dims) - 1}]")
    if dims == "th":
        per = t.add(f"reshape {per} to [batch, seq]")
    masked = per
    if dims != "bh":
        masked = t.add(f"mul {per}, {weights}")
    total = t.add(f"sum {masked} dims {[*range(len(dims) - 1 if dims != 'th' else 2)]}")
    return t.add(f"div {total}, {count}")


def _entropy(t: Text, y: str, dims: str) -> str:
    if dims == "bh":
        losses = t.add(f"cross_entropy {y}, %labels dim 1")
        return _total(t, losses, "b")
    labels = "%tokens"
    if dims == "th":
        labels = t.add("reshape %tokens to [batch * seq]")
    losses = t.add(f"cross_entropy {y}, {labels} dim {len(dims) - 1}")
    return _total(t, losses, dims[:-1])


def _histogram(t: Text, y: str, dims: str) -> str:
    if dims != "bh":
        return _total(t, y, dims)
    counts = t.add(f"take_transpose {y}, %labels dim 0 to f64[5, width]")
    return t.add(f"sum {counts} dims [0, 1]")


ENDS: list[Callable[[Text, str, str], str]] = [
    _total,
    _total,
    _mean_by_hand,
    _of_ones,
    _of_tokens,
    _entropy,
    _histogram,
]


def _plain(t: Text, loss: str) -> str:
    return loss


def _regularised(t: Text, loss: str) -> str:
    squares = t.add("mul %u, %u")
    norm = t.add(f"{t.rng.choice(['sum', 'mean'])} {squares} dims [0, 1]")
    return t.add(f"{t.rng.choice(['add', 'sub'])} {loss}, {norm}")


def _scaled(t: Text, loss: str) -> str:
    return t.add(f"scale {loss} by {t.rng.choice(['0.5', 'batch'])}")


def _bent(t: Text, loss: str) -> str:
    return t.add(f"tanh {loss}")


def _auxiliary(t: Text, loss: str) -> str:
    squares = t.add("mul %z, %z")
    other = t.add(f"{t.rng.choice(['mean', 'sum'])} {squares} dims [0, 1]")
    return t.add(f"add {loss}, {other}")


LAST: list[Callable[[Text, str], str]] = [
    *[_plain] * 4,
    _regularised,
    _scaled,
    _bent,
    _auxiliary,
]


@dataclass(frozen=True)
class BatchLoss:
    """A random training step.

    Attributes:
        text: the program, with ``@step``.
        steps: the names of what its loss does.
    """

    text: str
    steps: tuple[str, ...]


def random_loss(rng: random.Random, most: int = 3) -> BatchLoss:
    """Return a random training step whose loss reads the size of its batch."""
    t = Text(rng)
    dims = rng.choice(["bsh", "bh", "bh", "th"])
    names: list[str] = []
    layers = "bsh" if dims != "bh" else "bh"
    y = "%x" if layers == "bsh" else t.add("mean %x dims [1]")
    spec = {"bsh": "b s i, i j -> b s j", "bh": "b i, i j -> b j"}[layers]
    again = rng.choice(["", "", " recompute"])
    y = t.add(
        f"repeat layers carry(%h = {y}) slice(%w = %w){again} {{\n"
        f'    %p = einsum "{spec}" %h, %w\n    %q = tanh %p\n    yield %q\n  }}'
    )
    if dims == "th":
        y = t.add(f"reshape {y} to [batch * seq, width]")
    for _ in range(rng.randint(1, most)):
        step = rng.choice(STEPS)
        names.append(step.__name__)
        y = step(t, y, dims)
    end, last = rng.choice(ENDS), rng.choice(LAST)
    loss = last(t, end(t, y, dims))
    names += [end.__name__, last.__name__]
    return BatchLoss(_program(rng, t, loss), tuple(names))


def _program(rng: random.Random, t: Text, loss: str) -> str:
    weighted = rng.random() < 0.15
    data = rng.choice(["", "", "@data"]) if not weighted else ""
    own = f"%x: f64[batch{data}, seq, width], %z: f64[batch{rng.choice(['', data])}, width]"
    weights = (
        "%w: f64[layers, width, width], %u: f64[width, width] parameter, "
        "%bias: f64[width] parameter, %bank: f64[batch, width] parameter, "
        "%each: f64[batch, width] parameter, %table: f64[5, width]"
    )
    rest = (
        "%tokens: i32[batch, seq], %labels: i32[batch], %seed: i32[], "
        "%by_time: f64[seq, batch, width], %pairs: f64[2 * batch, width]"
    )
    over = [rng.choice(["", "@data", "@data"]) for _ in range(6)]
    narrow = rng.random() < 0.3
    given = (
        f"%x0: {'f32' if narrow else 'f64'}[batch{over[0]}, seq, width], "
        f"%z0: f64[batch{over[1]}, width], {weights}, "
        f"%tokens: i32[batch{over[2]}, seq], %labels: i32[batch{over[3]}], %seed: i32[], "
        f"%by_time: f64[seq, batch{over[4]}, width], %pairs: f64[2 * batch{over[5]}, width]"
    )
    front = [f"%x = {'cast %x0 to f64' if narrow else 'scale %x0 by 0.5'}"]
    form = rng.random()
    if form < 0.25:
        front += ["%zt = transpose %z0 order [1, 0]", "%z = transpose %zt order [1, 0]"]
    elif form < 0.5:
        front.append(f"%z = redistribute %z0 to f64[batch{rng.choice(['', '@data'])}, width]")
    else:
        front.append("%z = scale %z0 by 2")
    mesh = "{ pipe = node:2, data = gpu:2 }"
    if weighted:
        mesh = "{ pipe = node:2, data = gpu:2 weights [1, 3] }"
    layers = rng.choice([2, 4])
    sizes = f"batch = {BATCH}, seq = {SEQ}, width = {WIDTH}, layers = {layers}"
    passed = ", ".join(
        word for word in f"{own}, {weights}, {rest}".replace(":", "").split() if "%" in word
    )
    names = "batch = batch, seq = seq, width = width, layers = layers"
    sought = ", ".join(["%w", *(x for x in ("%u", "%bank", "%each") if rng.random() < 0.4)])
    count = sought.count("%")
    results = ", ".join(f"%d{n}" for n in range(count))
    types = {"%w": "layers, width, width", "%u": "width, width"}
    out = ", ".join(f"f64[{types.get(x, 'batch, width')}]" for x in sought.split(", "))
    body = "\n  ".join(t.lines)
    return f"""machine @box {{
  device {{ compute f64 = 1 TFLOP/s, f32 = 1 TFLOP/s; memory = 40 GiB @ 1.5 TB/s }}
  level node[2] {{ port = 1 GB/s, latency = 1 us }}
  level gpu[2] {{ port = 25 GB/s, latency = 1 us }}
}}
mesh @m on @box {mesh}

func @part(rows = 2, number = 1, width = 4)
    (%y: f64[rows, width], %seed: i32[]) -> f64[rows, width] on @m auto {{
  %n = constant value number to f64[]
  %u = uniform %seed to f64[rows, width]
  %d = div %y, %n
  %m = mul %d, %u
  return %m
}}

func @loss({sizes})({own}, {weights}, {rest}) -> f64[] on @m auto {{
  {body}
  return {loss}
}}

func @step({sizes})({given}) -> (f64[], {out}) on @m auto {{
  {chr(10).join("  " + line for line in front).strip()}
  %l, {results} = gradient @loss({names})({passed}) wrt {sought}
  return %l, {results}
}}
"""
