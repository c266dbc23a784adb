"""Write the programs in this folder from the published shapes of the models:

    python examples/models/generate.py [FOLDER]

The computation of a device is a `compute` step with its floating-point operations. Its result, a
gradient or an activation, is an argument of the function, as nothing else is known of it.
A matrix product of m x k by k x n takes 2 m k n operations, and its backward pass twice as many:
one product for each of its two operands.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

WIDTH = 100


@dataclass(frozen=True)
class Tensor:
    """A parameter: its name, its global shape, and the FLOP to compute its gradient."""

    name: str
    shape: tuple[int, ...]
    backward: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        found = 1
        for one in self.shape:
            found *= one
        return found


def sharded(shape: Sequence[int], dim: int | None = None, axis: str = "data") -> str:
    """Return a shape as it is written in a type, with one dimension over an axis."""
    each = (f"{size}@{axis}" if place == dim else str(size) for place, size in enumerate(shape))
    return f"[{', '.join(each)}]"


def listed(start: str, items: Sequence[str], end: str, indent: str) -> list[str]:
    """Return a list of items, in as few lines as possible."""
    # Wrap at the commas between items only, not at those inside of brackets.
    text = start + ", ".join(one.replace(" ", "\0") for one in items) + end.replace(" ", "\0")
    lines = wrap(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\0", " ") for line in lines]


def function(
    name: str,
    arguments: Sequence[tuple[str, str]],
    body: Sequence[str],
    results: Sequence[tuple[str, str]],
) -> list[str]:
    """Return the lines of a function; arguments and results are names and types."""
    head = [f"%{one}: {kind}" for one, kind in arguments]
    types = [kind for _, kind in results]
    given = f"({', '.join(types)})" if len(types) > 1 else types[0]
    whole = f"func @{name}({', '.join(head)}) -> {given} on @m {{"
    returned = listed("  return ", [f"%{one}" for one, _ in results], "", "    ")
    if len(whole) <= WIDTH:
        lines = [whole]
    else:
        lines = listed(f"func @{name}(", head, ")", "    ")
        lines += (
            listed("    -> (", types, ") on @m {", "        ")
            if len(types) > 1
            else [f"    -> {given} on @m {{"]
        )
    return [*lines, *(f"  {line}" if line else "" for line in body), *returned, "}"]


def filled(text: str) -> list[str]:
    """Return the lines of a refilled text; paragraphs end at an empty line, a `-` or a `:`."""
    parts: list[str] = []
    for line in text.strip("\n").split("\n"):
        if line and parts and parts[-1] and not re.match(r"- |\w+: ", line):
            parts[-1] += f" {line.strip()}"
        else:
            parts.append(line)
    width = WIDTH - len("// ")
    return [
        line
        for part in parts
        for line in wrap(part, width, subsequent_indent="  " if part.startswith("- ") else "")
        or [""]
    ]


def program(comment: str, machine: str, mesh: str, *functions: list[str]) -> str:
    """Return the text of a file: a comment, the machine, the mesh, and functions."""
    lines = [f"// {line}".rstrip() for line in filled(comment)]
    lines += ["", f"machine @cluster = {machine}", "", f"mesh @m on @cluster {{ {mesh} }}"]
    for one in functions:
        lines += ["", *one]
    return "\n".join(lines) + "\n"


# --- data parallel gradients --------------------------------------------------------------------


def gradients(name: str, tensors: Sequence[Tensor], dtype: str) -> list[str]:
    """Return a backward pass; each gradient is averaged once it has been computed."""
    body: list[str] = []
    before = ""
    for one in tensors:
        body.append(f"%{one.name}_here = compute %{one.name}{before} flops {one.backward}")
        body.append(f"%{one.name}_mean = all_reduce %{one.name}_here over data")
        before = f", %{one.name}_here"
    return function(
        name,
        [(one.name, f"{dtype}{sharded(one.shape)} partial(avg: data)") for one in tensors],
        body,
        [(f"{one.name}_mean", f"{dtype}{sharded(one.shape)}") for one in tensors],
    )


# --- GPT-2 --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GPT2:
    """A GPT-2: its layers, its width, and the tokens of a batch on each device."""

    layers: int
    width: int
    tokens: int
    vocabulary: int = 50257
    context: int = 1024

    def layer(self, number: int) -> list[Tensor]:
        """Return the parameters of a layer, in the order of the backward pass."""
        d, tokens = self.width, self.tokens
        attention = 2 * 2 * 2 * self.context * d * tokens  # two products, each with two gradients
        name = f"h{number}"
        return [
            Tensor(f"{name}_down", (4 * d, d), 2 * 2 * 4 * d * d * tokens),
            Tensor(f"{name}_up", (d, 4 * d), 2 * 2 * d * 4 * d * tokens),
            Tensor(f"{name}_proj", (d, d), 2 * 2 * d * d * tokens),
            Tensor(f"{name}_qkv", (d, 3 * d), attention + 2 * 2 * d * 3 * d * tokens),
            # Biases of the four, and scales and shifts of the two normalisations.
            Tensor(f"{name}_rest", (d + 4 * d + d + 3 * d + 2 * 2 * d,)),
        ]

    @property
    def head(self) -> int:
        """Operations of the backward pass of the output, which shares its matrix with the input."""
        return 2 * 2 * self.vocabulary * self.width * self.tokens

    @property
    def tensors(self) -> list[Tensor]:
        """All parameters, in the order of the backward pass."""
        d = self.width
        found = [Tensor("ln", (2 * d,), self.head)]
        for number in reversed(range(self.layers)):
            found += self.layer(number)
        # The input and the output share wte, so its gradient is the last one.
        return [*found, Tensor("wpe", (self.context, d)), Tensor("wte", (self.vocabulary, d))]


GPT2_SOURCE = """\
Shapes: A. Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), and the
published weights. Biases and normalisations of a layer are concatenated into one vector. The output
layer shares the matrix of the embedding, so its gradient is complete only at the end."""


def gpt2_xl() -> str:
    """Return data parallel training of GPT-2 XL."""
    model = GPT2(48, 1600, 4 * 1024)
    assert sum(one.size for one in model.tensors) == 1_557_611_200
    return program(
        f"""
The gradients of GPT-2 XL, averaged over data parallel replicas: 48 layers, 1,557,611,200 numbers in
bf16, in the order in which a backward pass computes them.

{GPT2_SOURCE}
Operations: those of the backward pass of each matrix for 4 sequences of 1024 tokens on a device, at
the peak rate of the device.""",
        "@dgx_a100(nodes = 4)",
        "data = node:4 * gpu:8",
        gradients("backward", model.tensors, "bf16"),
    )


# --- ZeRO ---------------------------------------------------------------------------------------

ZERO = GPT2(12, 768, 8 * 1024)
ZERO_MACHINE, ZERO_MESH = "@gcp_a2(nodes = 4)", "data = node:4 * gpu:16"
ZERO_SOURCE = (
    """\
S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, "ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models" (2020). The model is GPT-2 small, 12 layers, 124,439,808 numbers in bf16.

"""
    + GPT2_SOURCE
    + """
Operations: for 8 sequences of 1024 tokens on a device and microbatch, at the peak rate of the
device. A step of gradient descent stands for the optimizer.
Memory: reports overstate it, because gradients are arguments here, and arguments occupy memory all
the time."""
)


def split_dim(tensor: Tensor) -> int:
    """Return the dimension that a parameter is sharded on; 50257 rows do not divide."""
    return 1 if tensor.name == "wte" else 0


def shard_of(tensor: Tensor) -> str:
    """Return the type of a device's shard."""
    return f"bf16{sharded(tensor.shape, split_dim(tensor))}"


def partial_of(tensor: Tensor) -> str:
    """Return the type of a device's own gradient."""
    return f"bf16{sharded(tensor.shape)} partial(avg: data)"


def updated(tensor: Tensor, gradient: str) -> list[str]:
    """Return the optimizer step on a device's shard of the weights and the gradient."""
    name = tensor.name
    return [
        f"%{name}_step = scale %{gradient} by -0.0009765625",
        f"%{name}_new = add %{name}, %{name}_step",
    ]


def step_of_two(tensors: Sequence[Tensor], body: Sequence[str]) -> str:
    """Return a step on the gradients of two microbatches, a and b, and on shards of weights."""
    return function(
        "step",
        [
            argument
            for one in tensors
            for argument in (
                (f"{one.name}_a", partial_of(one)),
                (f"{one.name}_b", partial_of(one)),
                (one.name, shard_of(one)),
            )
        ],
        body,
        [(f"{one.name}_all", f"bf16{sharded(one.shape)}") for one in tensors],
    )


def zero1() -> str:
    """Return ZeRO-1: sharded optimizer states."""
    tensors = ZERO.tensors
    body: list[str] = []
    before = ""
    for one in tensors:
        name, dim = one.name, split_dim(one)
        body += [
            f"%{name}_b_here = compute %{name}_b{before} flops {one.backward}",
            f"%{name}_sum = add %{name}_a, %{name}_b_here",
            f"%{name}_g = reduce_scatter %{name}_sum over data dim {dim}",
        ]
        before = f", %{name}_b_here"
    for one in tensors:
        body += updated(one, f"{one.name}_g")
        body.append(f"%{one.name}_all = all_gather %{one.name}_new over data dim {split_dim(one)}")
    step = step_of_two(tensors, body)
    return program(
        f"""
ZeRO, stage 1: optimizer states are sharded. Each device adds up the gradients of two microbatches
(a, whose pass has ended, and b). The sums are reduced to shards, each device updates its shard of
the weights, and all devices gather the new weights.

{ZERO_SOURCE}""",
        ZERO_MACHINE,
        ZERO_MESH,
        step,
    )


def zero2() -> str:
    """Return ZeRO-2: sharded gradients too."""
    tensors = ZERO.tensors
    body: list[str] = []
    before = ""
    for batch in "ab":
        for one in tensors:
            name = f"{one.name}_{batch}"
            body += [
                f"%{name}_here = compute %{name}{before} flops {one.backward}",
                f"%{name}_g = reduce_scatter %{name}_here over data dim {split_dim(one)}",
            ]
            before = f", %{name}_here"
    for one in tensors:
        name = one.name
        body += [f"%{name}_g = add %{name}_a_g, %{name}_b_g", *updated(one, f"{name}_g")]
        body.append(f"%{name}_all = all_gather %{name}_new over data dim {split_dim(one)}")
    step = step_of_two(tensors, body)
    return program(
        f"""
ZeRO, stage 2: gradients are sharded too. The gradients of each of two microbatches (a and b) are
reduced to shards at once, so that no device keeps a complete gradient. Then each device updates its
shard of the weights, and all devices gather the new weights.

{ZERO_SOURCE}""",
        ZERO_MACHINE,
        ZERO_MESH,
        step,
    )


def zero3() -> str:
    """Return ZeRO-3: sharded parameters too."""
    tensors = ZERO.tensors
    by_name = {one.name: one for one in tensors}
    layers = [ZERO.layer(number) for number in range(ZERO.layers)]
    ends = [by_name[name] for name in ("wpe", "wte", "ln")]

    def gather(one: Tensor, when: str) -> str:
        return f"%{one.name}_{when} = all_gather %{one.name} over data dim {split_dim(one)}"

    body = [gather(one, "f") for one in ends]
    body.append("%x_0 = compute %x, %wpe_f, %wte_f flops 0")
    for number, layer in enumerate(layers):
        body += [gather(one, "f") for one in layer]
        weights = ", ".join(f"%{one.name}_f" for one in layer)
        flops = sum(one.backward for one in layer) // 2
        body.append(f"%x_{number + 1} = compute %x_{number}, {weights} flops {flops}")
    body.append(f"%loss = compute %x_{ZERO.layers}, %ln_f, %wte_f flops {ZERO.head // 2}")
    body.append("")
    before = "%loss"
    for one in tensors:
        name = one.name
        if name.startswith("h"):  # the other parameters are still gathered
            body.append(gather(one, "b"))
        weight = f"%{name}_b" if name.startswith("h") else f"%{name}_f"
        body += [
            f"%{name}_here = compute %{name}_d, {before}, {weight} flops {one.backward}",
            f"%{name}_g = reduce_scatter %{name}_here over data dim {split_dim(one)}",
        ]
        before = f"%{name}_here"
    for one in tensors:
        body += updated(one, f"{one.name}_g")
    step = function(
        "step",
        [
            ("x", f"bf16[{ZERO.tokens * 64}@data, {ZERO.width}]"),
            *(
                argument
                for one in tensors
                for argument in ((one.name, shard_of(one)), (f"{one.name}_d", partial_of(one)))
            ),
        ],
        body,
        [(f"{one.name}_new", shard_of(one)) for one in tensors],
    )
    return program(
        f"""
ZeRO, stage 3: parameters are sharded too. The parameters of each layer are gathered before its
forward pass, and again before its backward pass, so that no device keeps them. Gradients are
reduced to shards, and each device updates its own shard. (Fully sharded data parallelism does the
same.)

{ZERO_SOURCE}""",
        ZERO_MACHINE,
        ZERO_MESH,
        step,
    )


# --- mixture of experts -------------------------------------------------------------------------


def moe() -> str:
    """Return a block of a mixture of 8 experts."""
    width, hidden, experts, tokens, keys = 4096, 14336, 8, 4096, 1024
    devices, capacity = 64, 2 * tokens // experts
    expert_flops = 3 * 2 * width * hidden * experts * capacity
    projections = 2 * (2 * width * width + 2 * width * keys) * tokens
    attention = 2 * 2 * tokens * width * tokens
    at_home = f"bf16[{devices}@(data, expert), {experts}, {capacity}, {width}]"
    hidden_state = f"bf16[{devices * tokens}@(data, expert), {width}]"
    forward = function(
        "forward",
        [("x", hidden_state), ("routed", at_home)],
        [
            "// Attention, and the router: each device sorts its tokens by expert.",
            f"%y = compute %x flops {projections + attention}",
            "%tokens = compute %routed, %y flops 0",
            "%sent = all_to_all %tokens over expert dim 0 to 1",
            f"%done = compute %sent flops {expert_flops}",
            "%back = all_to_all %done over expert dim 1 to 0",
            "%out = compute %y, %back flops 0",
        ],
        [("out", hidden_state)],
    )
    weights = [
        ("w1", f"[{experts}@expert, {width}, {hidden}]"),
        ("w2", f"[{experts}@expert, {hidden}, {width}]"),
        ("w3", f"[{experts}@expert, {width}, {hidden}]"),
    ]
    shared = [
        ("wq", f"[{width}, {width}]"),
        ("wk", f"[{width}, {keys}]"),
        ("wv", f"[{width}, {keys}]"),
        ("wo", f"[{width}, {width}]"),
        ("router", f"[{width}, {experts}]"),
        ("norms", f"[{2 * width}]"),
    ]
    body = [
        "%tokens = compute %routed, %d_out flops 0",
        "%sent = all_to_all %tokens over expert dim 0 to 1",
        "// The gradient of the experts' input is sent back; the gradients of their weights stay.",
        f"%done = compute %sent flops {expert_flops}",
        "%back = all_to_all %done over expert dim 1 to 0",
    ]
    before = "%done"
    for name, _ in weights:
        body.append(f"%d_{name} = compute %{name}, {before} flops {expert_flops // 3}")
        body.append(f"%{name}_sum = all_reduce %d_{name} over data")
        before = f"%d_{name}"
    body.append("// Attention and its weights, which all devices share.")
    body.append(f"%d_x = compute %d_out, %back, {before} flops {projections + 2 * attention}")
    before = "%d_x"
    for number, (name, _) in enumerate(shared):
        flops = projections if number == 0 else 0  # gradients of all of them
        body.append(f"%d_{name} = compute %{name}, {before} flops {flops}")
        body.append(f"%{name}_sum = all_reduce %d_{name} over data, expert")
        before = f"%d_{name}"
    backward = function(
        "backward",
        [
            ("d_out", hidden_state),
            ("routed", at_home),
            *((name, f"bf16{shape} partial(sum: data)") for name, shape in weights),
            *((name, f"bf16{shape} partial(sum: data, expert)") for name, shape in shared),
        ],
        body,
        [("d_x", hidden_state), *((f"{name}_sum", f"bf16{s}") for name, s in weights + shared)],
    )
    return program(
        f"""
A block with a mixture of 8 experts. Each token goes to 2 of them. The experts are on 8 devices of
two nodes, and there are 8 copies of them. Tokens are sent to their experts and back, in the forward
and in the backward pass. Gradients of experts are summed over their copies, all other gradients
over all devices.

Sizes: Mixtral 8x7B (A. Jiang et al., "Mixtral of Experts", 2024, table 1): width {width}, hidden
{hidden}, 8 key-value heads of 128. Each device has a sequence of {tokens} tokens, and sends up to
{capacity} of its {2 * tokens} copies of tokens to each expert, which is enough for an even load.
Operations: at the peak rate of the device; dispatching and adding up are not counted.""",
        "@gcp_a2(nodes = 4)",
        "data = node:2 * gpu:4, expert = node:2 * gpu:4",
        forward,
        backward,
    )


# --- tensor and sequence parallelism ------------------------------------------------------------


def megatron() -> str:
    """Return a layer of a transformer in tensor and in sequence parallelism."""
    width, tokens, copies, shards = 12288, 2048, 4, 8
    whole, cut = (
        f"bf16[{copies * tokens}@data, {width}]",
        (f"bf16[{copies * tokens}@(data, model), {width}]"),
    )
    part = f"{whole} partial(sum: model)"
    # Operations of one device, for its columns of the matrices and its heads.
    square = 2 * width * width * tokens // shards
    scores = 2 * 2 * tokens * width * tokens // shards
    attention, mlp = 4 * square + scores, 8 * square
    weights = [
        ("down", f"bf16[{4 * width}@model, {width}]", 4 * square),
        ("up", f"bf16[{width}, {4 * width}@model]", 4 * square),
        ("proj", f"bf16[{width}@model, {width}]", square),
        ("qkv", f"bf16[{width}, {3 * width}@model]", 3 * square),
    ]
    gradients = [(name, f"{kind} partial(avg: data)") for name, kind, _ in weights]
    means = [(f"{name}_mean", kind) for name, kind, _ in weights]

    def reduced(names: Sequence[str], before: str) -> list[str]:
        lines: list[str] = []
        for name, _, flops in weights:
            if name in names:
                lines.append(f"%{name}_here = compute %{name}, {before} flops {flops}")
                lines.append(f"%{name}_mean = all_reduce %{name}_here over data")
        return lines

    tensor_forward = function(
        "tensor_forward",
        [("x", whole), ("attention", part), ("mlp", part)],
        [
            f"%a = compute %attention, %x flops {attention}",
            "%a_sum = all_reduce %a over model",
            "%y = add %x, %a_sum",
            f"%b = compute %mlp, %y flops {mlp}",
            "%b_sum = all_reduce %b over model",
            "%z = add %y, %b_sum",
        ],
        [("z", whole)],
    )
    tensor_backward = function(
        "tensor_backward",
        [("d_z", whole), ("d_mlp", part), ("d_attention", part), *gradients],
        [
            f"%b = compute %d_mlp, %d_z flops {mlp}",
            "%b_sum = all_reduce %b over model",
            *reduced(("down", "up"), "%b"),
            "%d_y = add %d_z, %b_sum",
            f"%a = compute %d_attention, %d_y flops {attention + scores}",
            "%a_sum = all_reduce %a over model",
            *reduced(("proj", "qkv"), "%a"),
            "%d_x = add %d_y, %a_sum",
        ],
        [("d_x", whole), *means],
    )
    sequence_forward = function(
        "sequence_forward",
        [("x", cut), ("attention", part), ("mlp", part)],
        [
            "%x_all = all_gather %x over model dim 0",
            f"%a = compute %attention, %x_all flops {attention}",
            "%a_sum = reduce_scatter %a over model dim 0",
            "%y = add %x, %a_sum",
            "%y_all = all_gather %y over model dim 0",
            f"%b = compute %mlp, %y_all flops {mlp}",
            "%b_sum = reduce_scatter %b over model dim 0",
            "%z = add %y, %b_sum",
        ],
        [("z", cut)],
    )
    sequence_backward = function(
        "sequence_backward",
        [("d_z", cut), ("x", cut), ("y", cut), ("d_mlp", part), ("d_attention", part), *gradients],
        [
            "%d_z_all = all_gather %d_z over model dim 0",
            "// The input is kept sharded, and gathered again for the gradients of the weights.",
            "%y_all = all_gather %y over model dim 0",
            f"%b = compute %d_mlp, %d_z_all flops {mlp}",
            "%b_sum = reduce_scatter %b over model dim 0",
            *reduced(("down", "up"), "%b, %y_all"),
            "%d_y = add %d_z, %b_sum",
            "%d_y_all = all_gather %d_y over model dim 0",
            "%x_all = all_gather %x over model dim 0",
            f"%a = compute %d_attention, %d_y_all flops {attention + scores}",
            "%a_sum = reduce_scatter %a over model dim 0",
            *reduced(("proj", "qkv"), "%a, %x_all"),
            "%d_x = add %d_y, %a_sum",
        ],
        [("d_x", cut), *means],
    )
    return program(
        f"""
A layer of a transformer whose matrices are split over the {shards} GPUs of a node, with {copies}
copies of it.

- tensor_forward, tensor_backward: M. Shoeybi et al., "Megatron-LM" (2019), figure 3: g is the
  all_reduce after a pair of matrices in the forward pass, f is the all_reduce in the backward pass.
- sequence_forward, sequence_backward: V. Korthikanti et al., "Reducing Activation Recomputation in
  Large Transformer Models" (2022), figure 5: activations between the pairs are sharded too, so g is
  a reduce_scatter, and its counterpart in the backward pass is an all_gather.

Sizes: GPT-3 175B (T. Brown et al., "Language Models are Few-Shot Learners", 2020, table 2.1): width
{width}, a sequence of {tokens} tokens on each copy. Biases and normalisations are left out.
Operations: at the peak rate of the device.""",
        f"@dgx_a100(nodes = {copies})",
        f"data = node:{copies}, model = gpu:{shards}",
        tensor_forward,
        tensor_backward,
        sequence_forward,
        sequence_backward,
    )


FILES = {
    "gpt2_xl": gpt2_xl,
    "moe": moe,
    "megatron": megatron,
    "zero1": zero1,
    "zero2": zero2,
    "zero3": zero3,
}


def main() -> None:
    """Write all files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, write in FILES.items():
        (folder / f"{name}.coll").write_text(write(), encoding="utf-8")


if __name__ == "__main__":
    main()
