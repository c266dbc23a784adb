"""Models of examples/models against figures of the literature: parameters, operations, memory."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from support.programs.model_pages import PAGES, function_of, page, with_gradients
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DType
from collir.transforms.inlining import function_without_calls

GPT2_SMALL = {"seq": 1024, "hidden": 768, "heads": 12, "layers": 12, "vocab": 50257}
GPT2_XL = {"seq": 1024, "hidden": 1600, "heads": 25, "layers": 48, "vocab": 50257}
GPT3 = {"seq": 2048, "hidden": 12288, "heads": 96, "layers": 96, "vocab": 51200}
ALONE = "data = 1, model = 1"

Edit = tuple[str, str]

FULL: list[Edit] = [("slice(%w = %w.layers) {", "slice(%w = %w.layers) recompute {")]
SELECTIVE: list[Edit] = [("heads = heads)(%q, %k, %v)", "heads = heads)(%q, %k, %v) recompute")]


def changed(edits: Sequence[Edit], nodes: int, mesh: str, sizes: Mapping[str, int]) -> ModuleOp:
    """Return the loss of gpt.coll behind changes of its text, on another mesh, at some sizes."""
    text = (PAGES / "gpt.coll").read_text(encoding="utf-8").partition("// A step of AdamW")[0]
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    head = f"machine @c = @dgx_a100(nodes = {nodes})\nmesh @p on @c {{ {mesh} }}\n"
    given = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    taken = f"func @taken = @loss({given}) on @p\n"
    return collir.parse(text + head + taken, str(PAGES / "changed.coll"))


def operations(block: Block, times: int = 1) -> Iterator[tuple[DistOp, int]]:
    """Yield the steps of a program without calls, with the number of times that they run."""
    for op in block.ops:
        if isinstance(op, RepeatOp):
            yield from operations(op.body.block, times * op.times)
        elif isinstance(op, DistOp):
            yield op, times


def is_product(op: DistOp) -> bool:
    """Return whether a step is a convolution or a product of matrices: each operand of these has an
    index of its own.

    The gradient of a gain is no such product, though it is an einsum.
    """
    structure = op.structure
    if op.mnemonic == "conv":
        return True
    if op.mnemonic != "einsum" or structure is None or len(structure.operands) != 2:
        return False
    a, b = map(set, structure.operands)
    return bool(a - b and b - a)


def products(function: FuncOp) -> int:
    """Return the operations of all products of a function, on all devices."""
    steps = operations(function_without_calls(function).body.block)
    local = sum(int(op.flops) * times for op, times in steps if is_product(op))
    return local * mesh_of(function).devices


def kept(module: ModuleOp, drawn_again: Sequence[str] = ()) -> float:
    """Return the bytes that a layer keeps on a device for the backward pass: what is stacked, and
    the masks of dropout, which are operands.

    Args:
        drawn_again: the masks that the backward pass draws again.
    """
    function, _ = with_gradients(module, "taken")
    mesh = mesh_of(function)
    [forward, _] = [op for op in function.body.ops if isinstance(op, RepeatOp)]
    stacks = [dist_type(x) for x in list(forward.results)[len(forward.carried) :]]
    kept_masks = [arg for arg in function.args if arg.name_hint not in drawn_again]
    masks = [x for x in map(dist_type, kept_masks) if x.dtype is DType.BOOL]
    return sum(x.local_bytes(mesh) for x in (*stacks, *masks)) / forward.times


def test_parameters() -> None:
    """Narayanan et al. (SC'21), equation 2, and the final norm, which it leaves out."""
    for sizes, published in ((GPT2_SMALL, 124_439_808), (GPT2_XL, 1_557_611_200), (GPT3, None)):
        function = function_of(changed([], 1, ALONE, sizes), "taken")
        types = [dist_type(arg) for arg in function.args]
        number = sum(math.prod(x.shape) for x in types if x.dtype.is_float)
        s, h, layers, v = (sizes[name] for name in ("seq", "hidden", "layers", "vocab"))
        assert number == layers * (12 * h**2 + 13 * h) + v * h + s * h + 2 * h
        assert published in (None, number)


@pytest.mark.turns
@pytest.mark.parametrize(
    ("nodes", "mesh", "sizes", "batch"),
    [(1, ALONE, GPT2_SMALL, 8), (512, "data = node:512, model = gpu:8", GPT3, 1536)],
)
def test_operations_of_a_step(nodes: int, mesh: str, sizes: Mapping[str, int], batch: int) -> None:
    """Narayanan et al., equation 3, for one and for two forward passes.

    All devices together do as many operations as one device alone: none are done twice. Where
    attention or a layer is computed again, its last product is not, as nothing in the backward pass
    needs it.
    """
    b, s, h, layers, v = batch, *(sizes[name] for name in ("seq", "hidden", "layers", "vocab"))
    words, dense, attention = 3 * 2 * b * s * h * v, 24 * b * s * h**2, 4 * b * s**2 * h
    plain = words + 3 * layers * (dense + attention)
    # 72 b s L h^2 (1 + s / 6h + V / 12 L h), without a rounding
    assert plain == 72 * b * s * layers * h**2 + 12 * b * s**2 * layers * h + 6 * b * s * h * v
    full = words + layers * (4 * (dense + attention) - 8 * b * s * h**2)
    selective = plain + layers * attention // 2
    for edits, expected in (([], plain), (SELECTIVE, selective), (FULL, full)):
        function, _ = with_gradients(
            changed(edits, nodes, mesh, {"batch": batch, **sizes}), "taken"
        )
        assert products(function) == expected


@pytest.mark.turns
@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("vgg19", 143_667_240),  # torchvision
        ("resnet50", 25_557_032),  # torchvision; running averages are not parameters
        ("vit", 86_567_656),  # torchvision, vit_b_16
        # BertModel of Hugging Face, which has a pooler of h^2 + h parameters. The page has none;
        # it finds masked words with a layer of as many, a norm, and a bias for each word.
        ("bert", 109_482_240 + 2 * 768 + 30_522),
        ("llama", 8_030_261_248),  # meta-llama/Meta-Llama-3-8B
    ],
)
def test_parameters_of_a_page(name: str, published: int) -> None:
    function = function_of(page(name), "step")
    assert function.arg_attrs is not None
    roles = [attributes.data.get("coll.role") for attributes in function.arg_attrs]
    weights = [
        dist_type(arg).shape
        for arg, role in zip(function.args, roles, strict=True)
        if role == StringAttr("parameter")
    ]
    assert sum(map(math.prod, weights)) == published


def vgg19_products() -> Iterator[int]:
    """Yield the multiplications of each layer for an image (Simonyan and Zisserman, table 1)."""
    side, channels = 224, 3
    for layers, features in ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512)):
        for _ in range(layers):
            yield side**2 * 9 * channels * features
            channels = features
        side //= 2
    yield from (side**2 * 512 * 4096, 4096 * 4096, 4096 * 1000)


def resnet50_products() -> Iterator[int]:
    """Yield the multiplications of each layer for an image (He et al. 2015, table 1)."""
    yield 112**2 * 49 * 3 * 64
    before, side, channels = 56, 56, 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        yield side**2 * channels * 4 * width  # beside the first block
        for _ in range(blocks):
            yield before**2 * channels * width
            yield side**2 * (9 * width * width + 4 * width * width)
            before, channels = side, 4 * width
        side //= 2
    yield 2048 * 1000


@pytest.mark.parametrize(
    ("name", "batch", "layers", "published"),
    [("vgg19", 256, vgg19_products, 19.632), ("resnet50", 2048, resnet50_products, 4.089)],
)
def test_operations_of_a_forward_pass(
    name: str, batch: int, layers: Callable[[], Iterator[int]], published: float
) -> None:
    """Of convolutions and linear layers for an image; torchvision publishes them in 10^9."""
    for_an_image = sum(layers())
    assert round(for_an_image / 1e9, 3) == published
    assert products(function_of(page(name), "loss")) == 2 * batch * for_an_image


DROPOUT: list[Edit] = [
    (
        "     %v: bf16[batch@data, seq, heads@model, hidden / heads])\n",
        "     %v: bf16[batch@data, seq, heads@model, hidden / heads],\n"
        "     %mask: bool[batch@data, heads@model, seq, seq])\n",
    ),
    (
        '  %mixed = einsum "b a i j, b j a d -> b i a d" %weights, %v\n',
        "  %zero = constant value 0 to bf16[]\n  %drop = where %mask, %weights, %zero\n"
        '  %mixed = einsum "b a i j, b j a d -> b i a d" %drop, %v\n',
    ),
    (
        "%w: bf16 @gpt parameter)\n    -> f32[] on @m {",
        "%w: bf16 @gpt parameter,\n"
        "     %mask_a: bool[layers, batch@data, heads@model, seq, seq],\n"
        "     %mask_o: bool[layers, batch@data, seq, hidden],\n"
        "     %mask_d: bool[layers, batch@data, seq, hidden]) -> f32[] on @m {",
    ),
    (
        "slice(%w = %w.layers) {",
        "slice(%w = %w.layers, %mask_a = %mask_a, %mask_o = %mask_o, %mask_d = %mask_d) {\n"
        "%zero = constant value 0 to bf16[]",
    ),
    ("(%q, %k, %v)\n", "(%q, %k, %v, %mask_a)\n"),
    ("    %h = add %x, %o\n", "    %o_d = where %mask_o, %o, %zero\n    %h = add %x, %o_d\n"),
    ("    %z = add %h, %d\n", "    %d_d = where %mask_d, %d, %zero\n    %z = add %h, %d_d\n"),
]
"""Dropout in the three places of Megatron-LM, with masks for operands; scaling keeps nothing."""

SEQUENCE: list[Edit] = [
    (
        "  %whole = all_reduce %part over model\n  %inputs = add %whole, %w.positions\n",
        "  %whole = reduce_scatter %part over model dim 1\n"
        "  %own = slice %w.positions over model dim 0\n  %inputs = add %whole, %own\n",
    ),
    ("    %n = layer_norm", "    %n_s = layer_norm"),
    ("    %q_0 =", "    %n = all_gather %n_s over model dim 1\n    %q_0 ="),
    (
        "    %o_1 = all_reduce %o_0 over model\n",
        "    %o_1 = reduce_scatter %o_0 over model dim 1\n",
    ),
    ("    %m = layer_norm", "    %m_s = layer_norm"),
    ("    %u_0 =", "    %m = all_gather %m_s over model dim 1\n    %u_0 ="),
    (
        "    %d_1 = all_reduce %d_0 over model\n",
        "    %d_1 = reduce_scatter %d_0 over model dim 1\n",
    ),
    ("  %last = layer_norm", "  %last_s = layer_norm"),
    ("  %products =", "  %last = all_gather %last_s over model dim 1\n  %products ="),
]
"""Sequence parallelism: between the products, the sequence is divided over `model`."""

SEQUENCE_DROPOUT: list[Edit] = [
    (
        "%mask_o: bool[layers, batch@data, seq, hidden]",
        "%mask_o: bool[layers, batch@data, seq@model, hidden]",
    ),
    (
        "%mask_d: bool[layers, batch@data, seq, hidden]",
        "%mask_d: bool[layers, batch@data, seq@model, hidden]",
    ),
]


def layer_bytes(edits: list[Edit], tensor: int, sizes: Mapping[str, int], batch: int) -> float:
    """Return what a layer keeps, in units of s b h bytes."""
    module = changed(edits, 1, f"data = 1, model = {tensor}", {"batch": batch, **sizes})
    return kept(module) / (sizes["seq"] * batch * sizes["hidden"])


def test_activations_of_a_layer() -> None:
    """Korthikanti et al. (2022), equations 1, 2, 4 and 6, with dropout and without it."""
    sizes = {"seq": 2048, "hidden": 6144, "heads": 64, "layers": 2, "vocab": 51200}
    a = 64 * 2048 / 6144
    for t, edits, expected in (
        (1, [], 32 + 2 * a),
        (1, DROPOUT, 34 + 5 * a),
        (8, [], 8 + (24 + 2 * a) / 8),
        (8, SEQUENCE, (32 + 2 * a) / 8),
        (8, [*DROPOUT, *SEQUENCE, *SEQUENCE_DROPOUT], (34 + 5 * a) / 8),
    ):
        assert layer_bytes(edits, t, sizes, 4) == pytest.approx(expected, rel=1e-12)


SELECTIVE_DROPOUT: list[Edit] = [("(%q, %k, %v, %mask_a)\n", "(%q, %k, %v, %mask_a) recompute\n")]
"""The scores, their softmax and its dropout are computed again; the result of attention is kept by
the product that reads it."""

MEASURED = {
    "22B": (48, 6144, 64, 4, 1, 1, 59.25, 9.5625),
    "175B": (96, 12288, 96, 1, 8, 3, 66.84375, 12.3515625),
    "530B": (105, 20480, 128, 1, 35, 3, 114.0234375, 23.076171875),
    "1T": (128, 25600, 160, 1, 64, 1, 131.25, 26.5625),
}
"""Layers, width, heads, microbatch, stages, chunks of a stage, and GiB of activations on a device
of the first stage: with tensor parallelism alone, and with sequence parallelism and selective
recomputation. Korthikanti et al. (arXiv 2205.05198), figure 1, tensor parallel over 8 devices, as
read by the authors of Calculon (llm/validation.py)."""


@pytest.mark.parametrize(
    "name", ["22B", *(pytest.param(name, marks=pytest.mark.slow) for name in [*MEASURED][1:])]
)
def test_activations_of_megatron(name: str) -> None:
    """With dropout they are equal. The first of P stages holds as many layers as all stages have,
    and with v > 1 chunks for each stage 1 + (P - 1) / (P v) times as many."""
    layers, hidden, heads, batch, stages, chunks, plain, selective = MEASURED[name]
    sizes = {"seq": 2048, "hidden": hidden, "heads": heads, "layers": 1, "batch": batch}
    ahead = (stages - 1) / (stages * chunks) if chunks > 1 else 0
    held = layers * (1 + ahead) / 2**30
    mesh = "data = 1, model = 8"
    assert kept(changed(DROPOUT, 1, mesh, sizes)) * held == pytest.approx(plain, rel=1e-12)
    edits = [*DROPOUT, *SEQUENCE, *SEQUENCE_DROPOUT, *SELECTIVE_DROPOUT]
    assert kept(changed(edits, 1, mesh, sizes), ["mask_a"]) * held == pytest.approx(
        selective, rel=1e-12
    )
