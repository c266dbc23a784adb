"""The programs that a calibration of a device times, each of one kind of kernel.

A probe is a function of ``.coll``. It is run through the target that runs models, and its time is
predicted as theirs is, so a calibration measures the same kernels that programs have. Most kernels
are repeated in a loop, in which one begins where another ends, as in models.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from collir.layout.coll import STEPS
from collir.layout.gradients import nothing
from collir.layout.nn_rows import DIMS, EPS, KEEPDIMS, NN
from collir.layout.steps import StepKind

REPEATED = 8
"""The iterations of the loops of probes."""

DTYPES = ("f32", "f64", "bf16", "f16")
"""The element types that may be timed."""


@dataclass(frozen=True)
class ProbeProgram:
    """A function of ``.coll``: the types of its arguments by name, its results, and its body."""

    arguments: Sequence[tuple[str, str]]
    results: Sequence[str]
    body: str

    def text(self, function: str) -> str:
        """Return the function on the mesh ``@m``."""
        arguments = ", ".join(f"%{name}: {shape}" for name, shape in self.arguments)
        results = ", ".join(self.results)
        return f"func @{function}({arguments}) -> ({results}) on @m {{\n{self.body}}}\n"


@dataclass(frozen=True)
class Probe:
    """A program to time.

    Attributes:
        kind: the kind of the program, a key of ``KINDS``.
        word: its variant within its kind, such as an operation; or "".
        dtype: its element type.
        sizes: its sizes, as its kind names them.
    """

    kind: str
    word: str
    dtype: str
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        """Its name in a file of measurements, such as ``map:exp f32 4096``."""
        word = f":{self.word}" if self.word else ""
        return f"{self.kind}{word} {self.dtype} {'x'.join(map(str, self.sizes))}"

    @property
    def program(self) -> ProbeProgram:
        """Return the function that is timed."""
        return KINDS[self.kind].program(self)

    @staticmethod
    def named(kind: str, dtype: str, sizes: str) -> "Probe":
        """Return the probe with the three words of a name.

        Raises:
            ValueError: there is no such probe.
        """
        kind, _, word = kind.partition(":")
        if kind not in KINDS:
            raise ValueError(f"there is no program '{kind}': there are {', '.join(KINDS)}")
        known = KINDS[kind].words()
        if word not in known:
            raise ValueError(f"there is no {kind} '{word}': there are {', '.join(known)}")
        if dtype not in DTYPES:
            raise ValueError(f"'{dtype}' is not timed: the types are {', '.join(DTYPES)}")
        numbers = tuple(int(size) if size.isdecimal() else 0 for size in sizes.split("x"))
        names = KINDS[kind].sizes
        if len(numbers) != len(names) or not all(0 < number < 2**31 for number in numbers):
            raise ValueError(f"a {kind} has sizes {' x '.join(names)}, not '{sizes}'")
        return Probe(kind, word, dtype, numbers)


def _tensor(probe: Probe, *sizes: int) -> str:
    return f"{probe.dtype}[{', '.join(map(str, sizes))}]"


def _loop(
    carried: str, kept: Sequence[str], body: Sequence[str], sliced: Sequence[str] = ()
) -> str:
    """Return a loop that makes ``%new`` of ``%{carried}``, and returns the last one."""
    same = f" with({', '.join(f'%{name} = %{name}' for name in kept)})" if kept else ""
    slices = f" slice({', '.join(f'%{name} = %{name}' for name in sliced)})" if sliced else ""
    inside = "".join(f"    {line}\n" for line in body)
    return (
        f"  %r = repeat {REPEATED} carry(%{carried} = %{carried}){slices}{same} {{\n"
        f"{inside}    yield %new\n  }}\n  return %r\n"
    )


def _map(probe: Probe) -> ProbeProgram:
    """Return a loop of one elementwise operation."""
    (size,) = probe.sizes
    x = _tensor(probe, size)
    if _row(probe.word).operands == 1:
        return ProbeProgram([("x", x)], [x], _loop("x", (), [f"%new = {probe.word} %x"]))
    body = _loop("x", ("y",), [f"%new = {probe.word} %x, %y"])
    return ProbeProgram([("x", x), ("y", x)], [x], body)


def _along(probe: Probe) -> ProbeProgram:
    """Return a loop of an operation along the rows of a matrix, or of a reduction of them."""
    rows, columns = probe.sizes
    x, column, row = (_tensor(probe, *n) for n in ((rows, columns), (rows, 1), (columns,)))
    kind = _row(probe.word)
    dims = f"{probe.word} %{{}}{{}} dims [1]"
    if KEEPDIMS in kind.parameters:
        lines = ["%0 = add %x, %s", f"%new = {dims.format('0', '')} keepdims"]
        return ProbeProgram([("s", column), ("x", x)], [column], _loop("s", ("x",), lines))
    weights = [f"w{n}" for n in range((kind.operands or 1) - 1)]
    eps = " eps 1e-5" if EPS in kind.parameters else ""
    line = f"%new = {dims.format('x', ''.join(f', %{w}' for w in weights))}{eps}"
    return ProbeProgram([("x", x), *((w, row) for w in weights)], [x], _loop("x", weights, [line]))


_FORMS = {
    "nn": ("n a b, n b c -> n a c", "{x}, {w}", "mk", ("kn", "nk")),
    "nt": ("n a b, n c b -> n a c", "{x}, {w}", "mk", ("nk", "kn")),
    "tn": ("n b a, n b c -> n a c", "{w}, {x}", "kn", ("km", "mk")),
}
"""For products with and without transposed operands: the equation, the order of the operands, the
sizes of the carry of a loop, and the sizes of the matrices that multiply it in turn."""


def _product(probe: Probe) -> ProbeProgram:
    """Return a loop of two products of matrices, there and back."""
    count, *sizes = probe.sizes
    size_of = dict(zip("mnk", sizes, strict=True))
    equation, operands, carried, weights = _FORMS[probe.word]
    before = () if count == 1 else (count,)
    equation = equation.replace("n ", "") if count == 1 else equation

    def shape(letters: str) -> str:
        return _tensor(probe, *before, *(size_of[letter] for letter in letters))

    lines = [
        f'%{y} = einsum "{equation}" {operands.format(x=f"%{x}", w=f"%w{n}")}'
        for n, (x, y) in enumerate((("x", "0"), ("0", "new")))
    ]
    arguments = [("x", shape(carried)), *((f"w{n}", shape(w)) for n, w in enumerate(weights))]
    return ProbeProgram(arguments, [shape(carried)], _loop("x", ("w0", "w1"), lines))


def _attention(probe: Probe) -> ProbeProgram:
    """Return a loop of the two products of attention, whose operands are not in the order of
    products."""
    batch, positions, heads, width = probe.sizes
    x = _tensor(probe, batch, positions, heads, width)
    lines = [
        '%0 = einsum "b i a d, b j a d -> b a i j" %x, %k',
        '%new = einsum "b a i j, b j a d -> b i a d" %0, %k',
    ]
    return ProbeProgram([("x", x), ("k", x)], [x], _loop("x", ("k",), lines))


def _sliced(probe: Probe) -> ProbeProgram:
    """Return a loop of products with matrices that are stacked."""
    rows, width = probe.sizes
    x, w = _tensor(probe, rows, width), _tensor(probe, REPEATED, width, width)
    lines = ['%new = einsum "a b, b c -> a c" %x, %w']
    return ProbeProgram([("x", x), ("w", w)], [x], _loop("x", (), lines, ["w"]))


def _transpose(probe: Probe) -> ProbeProgram:
    """Return a loop of transposes."""
    (size,) = probe.sizes
    x = _tensor(probe, size, size)
    return ProbeProgram([("x", x)], [x], _loop("x", (), ["%new = transpose %x order [1, 0]"]))


def _call(probe: Probe) -> ProbeProgram:
    """Return a function of some small arrays, each with a kernel."""
    (arrays,) = probe.sizes
    x = _tensor(probe, 8)
    steps = "".join(f"  %r{n} = neg %x{n}\n" for n in range(arrays))
    results = ", ".join(f"%r{n}" for n in range(arrays))
    return ProbeProgram(
        [(f"x{n}", x) for n in range(arrays)], [x] * arrays, f"{steps}  return {results}\n"
    )


def _launch(probe: Probe) -> ProbeProgram:
    """Return a row of small products."""
    (kernels,) = probe.sizes
    x = _tensor(probe, 8, 8)
    names = ["x", *(f"p{n}" for n in range(kernels))]
    lines = [f'  %{y} = einsum "a b, b c -> a c" %{x}, %w\n' for x, y in pairwise(names)]
    return ProbeProgram([("x", x), ("w", x)], [x], f"{''.join(lines)}  return %{names[-1]}\n")


def _stream(probe: Probe) -> ProbeProgram:
    """Return one addition of large arrays, whose result is in memory of its own."""
    (size,) = probe.sizes
    x = _tensor(probe, size)
    return ProbeProgram([("x", x), ("y", x)], [x], "  %r = add %x, %y\n  return %r\n")


def _row(name: str) -> StepKind:
    return NN.get(name) or STEPS[name]


def _nothing() -> tuple[str, ...]:
    return ("",)


def _maps() -> tuple[str, ...]:
    """Return the elementwise operations on floating-point numbers."""
    own = (k.name for k in NN.values() if _is_timed(k))
    return ("add", *own)


def _is_timed(kind: StepKind) -> bool:
    """Return whether an operation is a map of one or two floating-point numbers."""
    return kind.gradient not in (None, nothing) and not kind.parameters and kind.operands in (1, 2)


def _alongs() -> tuple[str, ...]:
    """Return the operations along dimensions."""
    return tuple(kind.name for kind in NN.values() if DIMS in kind.parameters)


@dataclass(frozen=True)
class ProbeKind:
    """A kind of probes: the names of its sizes, its program, and the words that it knows."""

    sizes: tuple[str, ...]
    program: Callable[[Probe], ProbeProgram]
    words: Callable[[], tuple[str, ...]] = _nothing


KINDS = {
    "call": ProbeKind(("arrays",), _call),
    "launch": ProbeKind(("kernels",), _launch),
    "stream": ProbeKind(("elements",), _stream),
    "map": ProbeKind(("elements",), _map, _maps),
    "along": ProbeKind(("rows", "columns"), _along, _alongs),
    "transpose": ProbeKind(("size",), _transpose),
    "product": ProbeKind(("count", "rows", "columns", "length"), _product, lambda: tuple(_FORMS)),
    "attention": ProbeKind(("batch", "positions", "heads", "width"), _attention),
    "sliced": ProbeKind(("rows", "width"), _sliced),
}
"""The kinds of probes."""

# No powers of two: rows that far apart share cache lines, which is slow, and rare in models.
_STREAMS = tuple(240 * 2**n for n in range(17))
_MAPS = (7_200, 40_000, 240_000, 1_000_000)
_ALONG = ((80, 72), (1000, 72), (240, 288), (144, 1040), (800, 720))
_PRODUCTS = (
    *((1, n, n, n) for n in (16, 40, 72, 144, 288, 560, 1040)),
    *((1, 24, 240, 240), (1, 72, 480, 480), (1, 16, 1040, 1040), (1, 144, 1040, 1040)),
    *((1, 480, 72, 480), (1, 1040, 240, 72), (1, 144, 560, 144), (1, 240, 72, 288)),
    *((4, 72, 72, 40), (16, 72, 72, 24), (8, 144, 144, 40), (8, 240, 240, 72)),
)
_ATTENTION = ((1, 72, 4, 40), (4, 72, 4, 24), (2, 144, 4, 40), (4, 144, 8, 72), (1, 288, 4, 72))
_TRANSPOSES = (72, 280, 1000)
_SLICED = ((16, 72), (16, 280), (16, 1000), (72, 560))


def default_probes(dtypes: Sequence[str]) -> Iterator[Probe]:
    """Yield the probes that a calibration times."""
    first = dtypes[0]
    for arrays in (1, 2, 8, 32):
        yield Probe("call", "", first, (arrays,))
    for kernels in (4, 16, 64):
        yield Probe("launch", "", first, (kernels,))
    for dtype in dtypes:
        for size in _STREAMS[-4:]:
            yield Probe("stream", "", dtype, (size,))
        for size in _STREAMS[:-2]:
            yield Probe("map", "add", dtype, (size,))
        for word in _maps()[1:]:
            yield from (Probe("map", word, dtype, (size,)) for size in _MAPS)
        for word in _alongs():
            yield from (Probe("along", word, dtype, sizes) for sizes in _ALONG)
        for word in _FORMS:
            yield from (Probe("product", word, dtype, sizes) for sizes in _PRODUCTS)
        yield from (Probe("attention", "", dtype, sizes) for sizes in _ATTENTION)
        yield from (Probe("transpose", "", dtype, (size,)) for size in _TRANSPOSES)
        yield from (Probe("sliced", "", dtype, s) for s in _SLICED)


MESH = """\
machine @one {{
  {device}
  level core[1] {{ port = 1 GB/s, latency = 1 us }}
}}
mesh @m on @one {{ data = 1 }}
"""
"""The head of a file of probes."""


def page(probes: Sequence[Probe], device: str = "device { memory = 1 GB }") -> str:
    """Return a file of ``.coll`` with the function ``probe_N`` for the probe of number N."""
    functions = (probe.program.text(f"probe_{n}") for n, probe in enumerate(probes))
    return "\n".join([MESH.format(device=device), *functions])
