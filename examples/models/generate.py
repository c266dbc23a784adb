"""Write the programs in this folder from the published shapes of the models:

    python examples/models/generate.py [FOLDER]

The computation of a device is a `compute` step with its floating-point operations. Its result, a
gradient or an activation, is an argument of the function, as nothing else is known of it.
A matrix product of m x k by k x n takes 2 m k n operations, and its backward pass twice as many:
one product for each of its two operands.
"""

import re
import sys
from collections.abc import Iterator, Sequence
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


# --- ResNet-50 ----------------------------------------------------------------------------------


def convolution(
    name: str, into: int, out: int, kernel: int, side: int, images: int, first: bool = False
) -> Iterator[Tensor]:
    """Return the parameters of a convolution to ``side`` x ``side`` pixels and a normalisation."""
    pixels = side * side * images
    # The first layer of all needs no gradient of its input.
    flops = (1 if first else 2) * 2 * kernel * kernel * into * out * pixels
    norm = name.replace("conv", "bn") if "conv" in name else f"{name}_bn"
    yield Tensor(name, (out, into, kernel, kernel), flops)
    yield Tensor(f"{norm}_weight", (out,))
    # It scales and shifts every element.
    yield Tensor(f"{norm}_bias", (out,), 2 * 2 * out * pixels)


def resnet50_tensors(images: int) -> list[Tensor]:
    """Return the parameters of ResNet-50, in forward order, with the strides of torchvision."""
    found = list(convolution("conv1", 3, 64, 7, 112, images, first=True))
    into, before = 64, 56
    for stage, (blocks, width, side) in enumerate(
        [(3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)], 1
    ):
        for block in range(blocks):
            name = f"layer{stage}_{block}"
            found += convolution(f"{name}_conv1", into, width, 1, before, images)
            found += convolution(f"{name}_conv2", width, width, 3, side, images)
            found += convolution(f"{name}_conv3", width, 4 * width, 1, side, images)
            if block == 0:
                found += convolution(f"{name}_down", into, 4 * width, 1, side, images)
            into, before = 4 * width, side
    found.append(Tensor("fc_weight", (1000, 2048), 2 * 2 * 1000 * 2048 * images))
    found.append(Tensor("fc_bias", (1000,)))
    return found


def resnet50() -> str:
    """Return data parallel training of ResNet-50."""
    images = 32
    tensors = resnet50_tensors(images)[::-1]
    assert len(tensors) == 161
    assert sum(one.size for one in tensors) == 25_557_032
    return program(
        f"""
The gradients of ResNet-50, averaged over data parallel replicas: its 161 parameters, 25,557,032
numbers, in the order in which a backward pass computes them.

Shapes: K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition" (2015),
table 1, and biases and strides as in torchvision (the strides are in the 3 x 3 convolutions).
Operations: those of the backward pass of each layer for {images} images of 224 x 224 on a device,
twice those of the forward pass, at the peak rate of the device.""",
        "@gcp_a2(nodes = 4)",
        "data = node:4 * gpu:16",
        gradients("backward", tensors, "f32"),
    )


FILES = {"resnet50": resnet50}


def main() -> None:
    """Write all files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, write in FILES.items():
        (folder / f"{name}.coll").write_text(write(), encoding="utf-8")


if __name__ == "__main__":
    main()
