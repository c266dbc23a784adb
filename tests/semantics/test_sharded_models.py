"""Layers on shards are proven to be layers on whole tensors, under every parallelism.

Each layer is written twice: with what every device has, and with everything gathered first. The
second has no collectives between its operations; its result is sliced.
"""

import itertools
import re
from collections.abc import Sequence

import pytest
from support.harness.hanging import within
from support.harness.seeds import some
from support.semantics.checks import agree, functions_of, results_on_all_devices
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.semantics.validation.loops import decided
from collir.semantics.validation.validate import compare_modules
from collir.semantics.validation.verdict import Outcome

SIZES = {"nodes": 2, "gpus": 4, "B": 4, "S": 8, "H": 16, "A": 4, "D": 8, "F": 64}
GPT3 = {"nodes": 64, "gpus": 8, "B": 512, "S": 2048, "H": 12288, "A": 96, "D": 128, "F": 49152}

HEAD = """
machine @box {{
  level node[{nodes}] {{ port = 8 GB/s, latency = 20 us }}
  level gpu[{gpus}] {{ port = 300 GB/s, latency = 3 us }}
}}
mesh @m on @box {{ data = node:{nodes}, model = gpu:{gpus} }}

func @block(%x: f32[{B}@data, {S}@seq, {H}],
    %g1: f32[{H}], %b1: f32[{H}], %g2: f32[{H}], %b2: f32[{H}], %n: f32[1], %eps: f32[1],
    %wq: f32[{H}, {A}@model, {D}], %wk: f32[{H}, {A}@model, {D}], %wv: f32[{H}, {A}@model, {D}],
    %wo: f32[{A}@model, {D}, {H}], %row: f32[{S}, 1], %column: f32[{S}], %low: f32[1],
    %w1: f32[{H}, {F}@model], %c1: f32[{F}@model], %w2: f32[{F}@model, {H}])
    -> f32[{B}@data, {S}@seq, {H}] on @m {{
"""

WEIGHTS = {"wq": 1, "wk": 1, "wv": 1, "wo": 0, "w1": 1, "c1": 0, "w2": 0}
"""The dimension over which each weight is sharded."""


def norm(x: str, k: int) -> str:
    """Return the steps of a layer norm of %x, whose result is %y and the number ``k``."""
    return f"""
  %s{k} = sum %{x} dims [2] keepdims
  %m{k} = div %s{k}, %n
  %d{k} = sub %{x}, %m{k}
  %q{k} = mul %d{k}, %d{k}
  %t{k} = sum %q{k} dims [2] keepdims
  %u{k} = div %t{k}, %n
  %v{k} = maximum %u{k}, %eps
  %r{k} = rsqrt %v{k}
  %e{k} = mul %d{k}, %r{k}
  %f{k} = mul %e{k}, %g{k}
  %y{k} = sub %f{k}, %b{k}"""


def attention(x: str) -> str:
    """Return the steps of a causal attention on %x, whose result is %a."""
    return f"""
  %q = einsum "b s h, h a d -> b a s d" %{x}, %wq
  %k = einsum "b s h, h a d -> b a s d" %{x}, %wk
  %v = einsum "b s h, h a d -> b a s d" %{x}, %wv
  %scores = einsum "b a i d, b a j d -> b a i j" %q, %k
  %scaled = scale %scores by 0.125
  %seen = less_equal %column, %row
  %masked = where %seen, %scaled, %low
  %p = softmax %masked dims [3]
  %o = einsum "b a i j, b a j d -> b a i d" %p, %v
  %a = einsum "b a i d, a d h -> b i h" %o, %wo"""


def mlp(x: str) -> str:
    """Return the steps of a layer of two linear maps on %x, whose result is %z."""
    return f"""
  %z0 = einsum "b s h, h f -> b s f" %{x}, %w1
  %z1 = sub %z0, %c1
  %z2 = gelu %z1
  %z = einsum "b s f, f h -> b s h" %z2, %w2"""


def sharded(seq: bool, model: bool) -> str:
    """Return the steps on shards: Megatron's, with sequence parallelism or without."""

    def whole(x: str) -> tuple[str, str]:
        step = f"\n  %{x}w = all_gather %{x} over model dim 1"
        return (step, f"{x}w") if seq else ("", x)

    def back(x: str) -> str:
        if model:
            step = "reduce_scatter" if seq else "all_reduce"
            return f"\n  %{x}r = {step} %{x} over model{' dim 1' * seq}"
        return f"\n  %{x}r = slice %{x} over model dim 1" if seq else f"\n  %{x}r = barrier %{x}"

    gather1, y1 = whole("y1")
    gather2, y2 = whole("y2")
    first = norm("x", 1) + gather1 + attention(y1) + back("a") + "\n  %h = add %x, %ar"
    second = norm("h", 2) + gather2 + mlp(y2) + back("z") + "\n  %out = add %h, %zr"
    return f"{first}{second}\n  return %out\n"


def unsharded(data: bool, seq: bool, model: bool) -> str:
    """Return the steps on gathered tensors."""
    before, x = "", "x"
    for used, axis, dim in ((data, "data", 0), (seq, "model", 1)):
        if used:
            before += f"\n  %x{dim} = all_gather %{x} over {axis} dim {dim}"
            x = f"x{dim}"
    first = norm(x, 1) + attention("y1") + f"\n  %h = add %{x}, %a"
    body = first + norm("h", 2) + mlp("y2") + "\n  %out = add %h, %z"
    if model:
        for name, dim in WEIGHTS.items():
            before += f"\n  %{name}w = all_gather %{name} over model dim {dim}"
            body = re.sub(rf"%{name}\b", f"%{name}w", body)
    out = "out"
    for used, axis, dim in ((data, "data", 0), (seq, "model", 1)):
        if used:
            body += f"\n  %out{dim} = slice %{out} over {axis} dim {dim}"
            out = f"out{dim}"
    return f"{before}{body}\n  return %{out}\n"


def block(
    steps: str, data: bool, seq: bool, model: bool, sizes: dict[str, int], weights: str = ""
) -> ModuleOp:
    """Return the decoder block with these steps."""
    head = HEAD.replace("@seq", "@model" if seq else "")
    head = head.replace("model = gpu:{gpus}", f"model = gpu:{{gpus}}{weights}")
    head = head if data else head.replace("@data", "")
    if not model:
        head = re.sub(r"(%\w+: \w+\[[^\]]*)@model", r"\1", head.replace("{S}@model", "{S}@keep"))
        head = head.replace("@keep", "@model")
    return collir.parse(head.format(**sizes) + steps + "}\n")


def outcome(one: ModuleOp, other: ModuleOp) -> Outcome:
    [[old], [new]] = functions_of(one), functions_of(other)
    return decided(old, new).outcome


EVERY = list(itertools.product([False, True], repeat=3))


def named(layout: Sequence[bool]) -> str:
    """Return the names of the parallelisms that are used."""
    names = zip(["data", "sequence", "tensor"], layout, strict=True)
    return " ".join(name for name, used in names if used) or "none"


@pytest.mark.parametrize("layout", some([(layout,) for layout in EVERY], 2, "layouts"), ids=named)
def test_a_decoder_block_is_proven(layout: tuple[bool, bool, bool]) -> None:
    """GPT-3's on 512 devices, without looping over them."""
    with within():
        whole = block(unsharded(*layout), *layout, GPT3)
        assert outcome(whole, block(sharded(*layout[1:]), *layout, GPT3)) is Outcome.SAME


def in_bf16(steps: str) -> str:
    """Return steps with the products in bf16 and everything else in f32."""
    for k in (1, 2):
        old = f"%y{k} = sub %f{k}, %b{k}"
        steps = steps.replace(old, f"{old.replace('=', 'f =', 1)}\n  %y{k} = cast %y{k}f to bf16")
        steps = steps.replace(f"%y{k} f", f"%y{k}f")
    for old in ("%h = add %x, %ar", "%out = add %h, %zr", "%h = add %x1, %a", "%out = add %h, %z"):
        last = old.rpartition("%")[2]
        new = f"%{last}f = cast %{last} to f32\n  {old}f"
        steps = re.sub(rf"{old}\b", new, steps)
    return steps


def test_a_decoder_block_in_mixed_precision_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "|".join([*WEIGHTS, "low"])
    monkeypatch.setitem(globals(), "HEAD", re.sub(rf"(%({names}): )f32", r"\1bf16", HEAD))
    layout = (True, True, True)
    whole = block(in_bf16(unsharded(*layout)), *layout, GPT3)
    assert outcome(whole, block(in_bf16(sharded(True, True)), *layout, GPT3)) is Outcome.SAME


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [False, True])
def test_blocks_of_different_sizes_are_proven(swapped: bool) -> None:
    """Weights cut heads and positions in blocks of 1, 1, 2 and 4 parts."""
    sizes, weights = {**SIZES, "A": 8, "S": 16}, " weights [1, 1, 2, 4]"
    steps = sharded(seq=True, model=True)
    if swapped:
        steps = steps.replace('b s f, f h -> b s h" %z2, %w2', 'f h, b s f -> b s h" %w2, %z2')
    whole = block(unsharded(True, True, True), True, True, True, sizes, weights)
    assert outcome(whole, block(steps, True, True, True, sizes, weights)) is Outcome.SAME


UNEVEN = """
machine @box { level gpu[4] { port = 300 GB/s, latency = 3 us } }
mesh @m on @box { model = gpu:4 weights [1, 1, 2, 4] }
func @f(%x: f32[4, 16@model], %w: f32[16@model, 8], %b: f32[4, 8]) -> f32[4, 8] on @m {
"""


@pytest.mark.parametrize("weights", ["1, 1, 2, 4", "3, 1, 2, 2"])
@pytest.mark.parametrize("wrong", [False, True])
def test_contractions_over_blocks_of_different_sizes_are_proven(wrong: bool, weights: str) -> None:
    """Also where no block is as large as all in front of it together."""
    head = UNEVEN.replace("1, 1, 2, 4", weights)
    parts = """
  %p = einsum "a k, k b -> a b" %x, %w
  %y = all_reduce %p over model
  %z = sub %y, %b
  %r = tanh %z
  return %r
}"""
    whole = """
  %xs = all_gather %x over model dim 1
  %ws = all_gather %w over model dim 0
  %y = einsum "k b, a k -> a b" %ws, %xs
  %z = sub %y, %b
  %r = tanh %z
  return %r
}"""
    if wrong:
        whole = whole.replace("= sub %y, %b", "= sub %b, %y")
    expected = Outcome.UNKNOWN if wrong else Outcome.SAME
    assert outcome(collir.parse(head + parts), collir.parse(head + whole)) is expected


def test_extremes_over_blocks_of_different_sizes_are_proven() -> None:
    """As atoms of whole tensors: ranges of maxima do not join."""
    parts = """
  %p = max %x dims [1] keepdims
  %y = all_reduce %p over model
  %z = sub %b, %y
  return %z
}"""
    whole = """
  %xs = all_gather %x over model dim 1
  %y = max %xs dims [1] keepdims
  %z = sub %b, %y
  return %z
}"""
    old = collir.parse(UNEVEN + parts)
    assert outcome(old, collir.parse(UNEVEN + whole)) is Outcome.SAME
    wrong = whole.replace("max", "min")
    assert outcome(old, collir.parse(UNEVEN + wrong)) is Outcome.UNKNOWN


MUTANTS = {
    "a sum dropped": (
        "%ar = reduce_scatter %a over model dim 1",
        "%a0 = reduce_scatter %a over model dim 1\n  %ar = sub %a0, %a0",
    ),
    "another place": (
        "%y1w = all_gather %y1 over model dim 1",
        "%y1v = shift %y1 by 1 over model\n  %y1w = all_gather %y1v over model dim 1",
    ),
    "keys for queries": ("%q, %k", "%k, %q"),
    "no scale": ("%scaled = scale %scores by 0.125", "%scaled = barrier %scores"),
    "no mask": ("where %seen, %scaled, %low", "where %seen, %scaled, %eps"),
    "another softmax": ("dims [3]", "dims [2]"),
    "heads for positions": ('b a i j, b a j d -> b a i d" %p', 'b a j i, b a j d -> b a i d" %p'),
    "another norm": ("%y2 = sub %f2, %b2", "%y2 = sub %f2, %b1"),
    "no mean": ("%d1 = sub %x, %m1", "%d1 = barrier %x"),
    "another activation": ("%z2 = gelu", "%z2 = silu"),
    "no residual": ("%out = add %h, %zr", "%out = add %zr, %zr"),
}


@pytest.mark.turns
@pytest.mark.parametrize("name", some(list(MUTANTS), 3, "mutants"))
def test_a_wrong_block_is_not_proven(name: str) -> None:
    old, new = MUTANTS[name]
    good = sharded(seq=True, model=True)
    assert good.count(old) == 1
    right, wrong = (block(x, True, True, True, SIZES) for x in (good, good.replace(old, new)))
    assert outcome(right, wrong) is Outcome.UNKNOWN


def test_the_text_is_what_runs() -> None:
    whole = block(unsharded(True, True, True), True, True, True, SIZES)
    parts = block(sharded(seq=True, model=True), True, True, True, SIZES)
    sides = [results_on_all_devices(m, functions_of(m)[0], 1) for m in (whole, parts)]
    assert agree(sides[0], sides[1], 64)
    [checked] = compare_modules(whole, parts)
    assert (checked.verdict.outcome, checked.verdict.how) == (Outcome.SAME, "proof")


SHARED = ["g1", "b1", "g2", "b2", "n", "eps", "row", "column", "low"]


def stacked(steps: str, wide: bool, sizes: dict[str, int]) -> ModuleOp:
    """Return a loop over layers, each with its own weights, under all parallelisms.

    With ``wide``, what it works on is gathered before the loop.
    """
    head = HEAD.replace("@seq", "@model")
    slices: list[str] = []
    before, x = "", "x"
    for name in WEIGHTS:
        head = head.replace(f"%{name}: f32[", f"%{name}: f32[{{layers}}, ")
        stack = name
        if wide:
            before += f"\n  %{name}w = all_gather %{name} over model dim {WEIGHTS[name] + 1}"
            stack += "w"
        slices.append(f"%{name} = %{stack}")
    if wide:
        before += "\n  %x0 = all_gather %x over data dim 0\n  %x1 = all_gather %x0 over model dim 1"
        x = "x1"
    shared = ", ".join(f"%{name} = %{name}" for name in SHARED)
    loop = f"repeat {{layers}} carry(%x = %{x}) slice({', '.join(slices)}) with({shared})"
    body = steps.replace("return", "yield").replace("\n", "\n  ")
    after = "\n  return %y\n}\n"
    if wide:
        after = "\n  %z = slice %y over data dim 0\n  %o = slice %z over model dim 1" + after
        after = after.replace("return %y", "return %o")
    text = head.format(**sizes) + before + f"\n  %y = {loop.format(**sizes)} {{{body}\n  }}{after}"
    return collir.parse(text)


@pytest.mark.turns
def test_layers_on_shards_are_proven_by_induction() -> None:
    """The carries of the two loops have other layouts; 96 layers take as long as one."""
    sizes = {**GPT3, "layers": 96}
    on_shards = stacked(sharded(seq=True, model=True), wide=False, sizes=sizes)
    whole = unsharded(data=False, seq=False, model=False)
    assert outcome(stacked(whole, wide=True, sizes=sizes), on_shards) is Outcome.SAME
    wrong = stacked(whole.replace("sub %x, %m1", "sub %x, %s1"), wide=True, sizes=sizes)
    assert outcome(wrong, on_shards) is Outcome.UNKNOWN


# --- a training step ----------------------------------------------------------------------------

GRADIENTS = """
machine @box {
  level node[2] { port = 8 GB/s, latency = 20 us }
  level gpu[4] { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { data = node:2, model = gpu:4 }

func @gradients(%x: f32[32@data, 16, 64], %dy: f32[32@data, 16, 64], %wq: f32[64, 8@model, 8],
    %wk: f32[64, 8@model, 8], %wv: f32[64, 8@model, 8], %wo: f32[8@model, 8, 64],
    %w1: f32[64, 256@model], %w2: f32[256@model, 64])
    -> (f32[64, 8@model, 8], f32[64, 8@model, 8], f32[64, 8@model, 8], f32[8@model, 8, 64],
        f32[64, 256@model], f32[256@model, 64], f32[32@data, 16, 64]) on @m {
"""

BACKWARD = """
  %q = einsum "b s h, h a d -> b a s d" %x, %wq
  %k = einsum "b s h, h a d -> b a s d" %x, %wk
  %v = einsum "b s h, h a d -> b a s d" %x, %wv
  %scores = einsum "b a i d, b a j d -> b a i j" %q, %k
  %p = softmax %scores dims [3]
  %o = einsum "b a i j, b a j d -> b a i d" %p, %v
  %at = einsum "b a i d, a d h -> b i h" %o, %wo
  REDUCE %at
  %h = add %x, %at_r
  %u = einsum "b s h, h f -> b s f" %h, %w1
  %a = tanh %u
  %da = einsum "b s h, f h -> b s f" %dy, %w2
  %aa = mul %a, %a
  %daa = mul %da, %aa
  %du = sub %da, %daa
  %dw2 = einsum "b s f, b s h -> f h" %a, %dy
  %dw1 = einsum "b s h, b s f -> h f" %h, %du
  %dh0 = einsum "b s f, h f -> b s h" %du, %w1
  REDUCE %dh0
  %dh = add %dh0_r, %dy
  %do = einsum "b i h, a d h -> b a i d" %dh, %wo
  %dwo = einsum "b a i d, b i h -> a d h" %o, %dh
  %dp = einsum "b a i d, b a j d -> b a i j" %do, %v
  %dv = einsum "b a i j, b a i d -> b a j d" %p, %do
  %pd = mul %p, %dp
  %t = sum %pd dims [3] keepdims
  %dpt = sub %dp, %t
  %ds = mul %p, %dpt
  %dq = einsum "b a i j, b a j d -> b a i d" %ds, %k
  %dk = einsum "b a i j, b a i d -> b a j d" %ds, %q
  %dwq = einsum "b s h, b a s d -> h a d" %x, %dq
  %dwk = einsum "b s h, b a s d -> h a d" %x, %dk
  %dwv = einsum "b s h, b a s d -> h a d" %x, %dv
  %dxq = einsum "b a s d, h a d -> b s h" %dq, %wq
  %dxk = einsum "b a s d, h a d -> b s h" %dk, %wk
  %dxv = einsum "b a s d, h a d -> b s h" %dv, %wv
  %dx0 = add %dxq, %dxk
  %dx1 = add %dx0, %dxv
  REDUCE %dx1
  %dx = add %dx1_r, %dh
"""


def gradients(wide: bool) -> ModuleOp:
    """Return the gradients of attention and a layer behind it: on shards or, ``wide``, gathered."""
    weights = {name: dim for name, dim in WEIGHTS.items() if name != "c1"}
    step = r"%\1_r = barrier %\1" if wide else r"%\1_r = all_reduce %\1 over model"
    body = re.sub(r"REDUCE %(\w+)", step, BACKWARD)
    before = after = ""
    for name, dim in weights.items():
        if wide:
            before += f"  %{name}_w = all_gather %{name} over model dim {dim}\n"
            body = re.sub(rf"%{name}\b", f"%{name}_w", body)
            after += f"  %d{name}_s = slice %d{name} over model dim {dim}\n"
        else:
            after += f"  %d{name}_s = all_reduce %d{name} over data\n"
    last = "dx"
    if wide:
        for name in ("x", "dy"):
            before += f"  %{name}_w = all_gather %{name} over data dim 0\n"
            body = re.sub(rf"%{name}\b", f"%{name}_w", body)
        after, last = after + "  %dx_s = slice %dx over data dim 0\n", "dx_s"
    results = ", ".join([*(f"%d{name}_s" for name in weights), f"%{last}"])
    return collir.parse(f"{GRADIENTS}{before}{body}{after}  return {results}\n}}\n")


def test_the_gradients_of_a_block_are_proven() -> None:
    """Weights' gradients are sums over the batch, so over devices of the data axis."""
    assert outcome(gradients(wide=True), gradients(wide=False)) is Outcome.SAME


# --- identities ---------------------------------------------------------------------------------

PROGRAM = """
machine @box {{ level gpu[8] {{ port = 300 GB/s, latency = 3 us }} }}
mesh @m on @box {{ data = gpu:2, model = gpu:4 }}
func @f({arguments}) -> {result} on @m {{
{steps}
  return %z
}}
"""

X = "%a: f64[8, 16], %b: f64[8, 16], %c: f64[16, 4], %d: f64[4, 8], %e: f64[16, 16], %s: f64[1, 16]"

IDENTITIES = {
    "linearity": (
        "f64[8, 4]",
        '%0 = add %a, %b\n%z = einsum "i k, k j -> i j" %0, %c',
        '%0 = einsum "i k, k j -> i j" %a, %c\n%1 = einsum "x y, y z -> x z" %b, %c\n'
        "%z = add %0, %1",
    ),
    "associativity": (
        "f64[8, 8]",
        '%0 = einsum "i k, k j -> i j" %a, %c\n%z = einsum "i j, j l -> i l" %0, %d',
        '%0 = einsum "k j, j l -> k l" %c, %d\n%z = einsum "i k, k l -> i l" %a, %0',
    ),
    "three operands at once": (
        "f64[8, 8]",
        '%0 = einsum "i k, k j -> i j" %a, %c\n%z = einsum "i j, j l -> i l" %0, %d',
        '%z = einsum "j l, i k, k j -> i l" %d, %a, %c',
    ),
    "scale through products": (
        "f64[8, 4]",
        '%0 = scale %a by 0.5\n%z = einsum "i k, k j -> i j" %0, %c',
        '%0 = scale %c by 2\n%1 = einsum "i k, k j -> i j" %a, %0\n%z = scale %1 by 0.25',
    ),
    "signs": (
        "f64[8, 4]",
        '%0 = sub %a, %b\n%z = einsum "i k, k j -> i j" %0, %c',
        '%0 = neg %c\n%1 = sub %b, %a\n%z = einsum "i k, k j -> i j" %1, %0',
    ),
    "sums in any order": (
        "f64[]",
        "%0 = sum %a dims [0]\n%z = sum %0 dims [0]",
        "%0 = reshape %a to [4, 2, 16]\n%1 = sum %0 dims [2, 0]\n%z = sum %1 dims [0]",
    ),
    "a sum of a product": (
        "f64[8]",
        "%0 = mul %a, %b\n%z = sum %0 dims [1]",
        '%z = einsum "i k, i k -> i" %b, %a',
    ),
    "factors outside of sums": (
        "f64[8]",
        "%0 = sum %a dims [1] keepdims\n%1 = mul %a, %0\n%z = sum %1 dims [1]",
        "%0 = sum %a dims [1]\n%z = mul %0, %0",
    ),
    "transposed": (
        "f64[8, 4]",
        '%0 = transpose %a order [1, 0]\n%z = einsum "k i, k j -> i j" %0, %c',
        '%0 = transpose %c order [1, 0]\n%z = einsum "i k, j k -> i j" %a, %0',
    ),
    "reshaped": (
        "f64[8, 4]",
        '%z = einsum "i k, k j -> i j" %a, %c',
        "%0 = reshape %a to [8, 4, 4]\n%1 = split %c dim 0 into [4, 4]\n"
        '%z = einsum "i p q, p q j -> i j" %0, %1',
    ),
    "columns and rows": (
        "f64[8, 4]",
        '%z = einsum "i k, k j -> i j" %a, %c',
        "%0 = slice %a over model dim 1\n%1 = slice %c over model dim 0\n"
        '%2 = einsum "i k, k j -> i j" %0, %1\n%z = all_reduce %2 over model',
    ),
    "contracted over two axes": (
        "f64[8, 4]",
        '%z = einsum "i k, k j -> i j" %a, %c',
        "%0 = slice %a over model, data dim 1\n%1 = slice %c over model, data dim 0\n"
        '%2 = einsum "i k, k j -> i j" %0, %1\n%3 = all_reduce %2 over data\n'
        "%z = all_reduce %3 over model",
    ),
    "a softmax over shards": (
        "f64[8, 16]",
        "%z = softmax %a dims [1]",
        "%0 = slice %a over model dim 1\n%1 = max %0 dims [1] keepdims\n"
        "%2 = all_reduce %1 over model\n%3 = sub %0, %2\n%4 = exp %3\n"
        "%5 = sum %4 dims [1] keepdims\n%6 = all_reduce %5 over model\n%7 = div %4, %6\n"
        "%z = all_gather %7 over model dim 1",
    ),
    "maps of blocks": (
        "f64[8, 16]",
        "%0 = add %a, %s\n%z = tanh %0".replace("add %a, %s", "sub %a, %s"),
        "%0 = slice %a over model dim 1\n%1 = slice %s over model dim 1\n%2 = sub %0, %1\n"
        "%3 = slice %2 over data dim 0\n%4 = tanh %3\n%5 = all_gather %4 over model dim 1\n"
        "%z = all_gather %5 over data dim 0",
    ),
    "maps of views": (
        "f64[16, 8]",
        "%0 = exp %a\n%1 = reshape %0 to [128]\n%2 = sqrt %1\n%3 = reshape %2 to [8, 16]\n"
        "%z = transpose %3 order [1, 0]",
        "%0 = transpose %a order [1, 0]\n%1 = exp %0\n%z = sqrt %1",
    ),
    "maps of what is put together": (
        "f64[16, 16]",
        "%0 = concat %a, %b dim 0\n%z = tanh %0",
        "%0 = tanh %a\n%1 = tanh %b\n%z = concat %0, %1 dim 0",
    ),
    "a contraction of what is put together": (
        "f64[16, 4]",
        '%0 = concat %a, %b dim 0\n%z = einsum "i k, k j -> i j" %0, %c',
        '%0 = einsum "i k, k j -> i j" %a, %c\n%1 = einsum "i k, k j -> i j" %b, %c\n'
        "%z = concat %0, %1 dim 0",
    ),
    "a chain in a circle": (
        "f64[]",
        '%0 = einsum "i j, j k -> i k" %e, %e\n%1 = einsum "i j, j k -> i k" %0, %e\n'
        '%z = einsum "i j, j i -> " %1, %e',
        '%0 = einsum "p q, q r -> r p" %e, %e\n%z = einsum "r p, p r -> " %0, %0',
    ),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_an_identity_is_proven(name: str) -> None:
    result, *sides = IDENTITIES[name]
    one, other = (
        collir.parse(PROGRAM.format(arguments=X, result=result, steps=steps)) for steps in sides
    )
    assert outcome(one, other) is Outcome.SAME
    results = [results_on_all_devices(m, functions_of(m)[0], 1) for m in (one, other)]
    assert agree(results[0], results[1], 64)
