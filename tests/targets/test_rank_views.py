"""Views as expressions: of numpy and of torch, against strides."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from support.programs.collectives import RANDOM, random_mesh

from collir.layout import DType
from collir.layout.local import LocalBuffer
from collir.targets.code.rank_views import ArrayWords, view_text

MESH = random_mesh(random.Random(0))


class NumpyWords(ArrayWords):
    """The words of numpy for fixed sizes; what has no words of its own is counted."""

    def __init__(self) -> None:
        self.by_strides = 0

    def spelled(self, number: int) -> str:
        return str(number)

    def begin(self, number: int) -> str:
        return str(number)

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        return f"np.reshape({x}, {tuple(shape)})"

    def permuted(self, x: str, order: Sequence[int]) -> str:
        return f"np.permute_dims({x}, {tuple(order)})"

    def repeated(self, x: str, shape: Sequence[int]) -> str:
        return f"np.broadcast_to({x}, {tuple(shape)})"

    def strided(self, x: str, view: LocalBuffer, start: int) -> str:
        self.by_strides += 1
        return f"strided({x}, {view.shape}, {view.steps}, {start})"


class TorchWords(NumpyWords):
    """The words of torch."""

    REST = ""

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        return f"{x}.reshape({tuple(shape)})"

    def permuted(self, x: str, order: Sequence[int]) -> str:
        return f"{x}.permute({tuple(order)})"

    def repeated(self, x: str, shape: Sequence[int]) -> str:
        return f"{x}.expand({tuple(shape)})"

    def strided(self, x: str, view: LocalBuffer, start: int) -> str:
        self.by_strides += 1
        return f"{x}.reshape(-1)[{start}:].as_strided({view.shape}, {view.steps})"


def strided(
    x: NDArray[np.int64], shape: tuple[int, ...], steps: tuple[int, ...], start: int
) -> NDArray[np.int64]:
    return viewed(x, LocalBuffer(DType.I64, shape, steps), start)


def random_view(rng: random.Random) -> tuple[tuple[int, ...], LocalBuffer, int]:
    """Return the shape of an array, and a view of it: a part, in some order, split or joined."""
    shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 4)))
    x = LocalBuffer(DType.I64, shape)
    dims: list[tuple[int, int]] = []  # sizes and strides
    start = 0
    for size, step in zip(x.shape, x.steps, strict=True):
        begin = rng.randrange(size) if rng.random() < 0.5 else 0
        count = rng.randint(1, size - begin) if rng.random() < 0.5 else size - begin
        start += begin * step
        if count % 2 == 0 and rng.random() < 0.3:
            dims += [(2, count // 2 * step), (count // 2, step)]
        elif rng.random() > 0.2 or count != 1:
            dims.append((count, step))
    if rng.random() < 0.5:
        rng.shuffle(dims)
    if rng.random() < 0.2:
        dims.insert(rng.randint(0, len(dims)), (rng.randint(1, 3), 0))
    sizes, steps = [size for size, _ in dims], [step for _, step in dims]
    return shape, LocalBuffer.strided(DType.I64, sizes, steps), start


def viewed(x: NDArray[np.int64], view: LocalBuffer, start: int) -> NDArray[np.int64]:
    strides = [step * x.itemsize for step in view.steps]
    return as_strided(x.reshape(-1)[start:], view.shape, strides)


@given(rng=RANDOM)
@settings(max_examples=300)
def test_expressions_of_numpy_are_the_views(rng: random.Random) -> None:
    """Check the elements, and that what is written to a view is written to the array."""
    shape, view, start = random_view(rng)
    x = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)
    text = view_text(NumpyWords(), "x", shape, view, start, MESH)
    got = eval(text, {"np": np, "x": x, "strided": strided})
    assert np.array_equal(got, viewed(x, view, start)), text
    if view.elements and not view.repeats:
        assert np.shares_memory(got, x)


@given(rng=RANDOM)
@settings(max_examples=100)
def test_those_of_torch_too(rng: random.Random) -> None:
    torch = pytest.importorskip("torch")
    shape, view, start = random_view(rng)
    x = torch.arange(int(np.prod(shape, dtype=int))).reshape(shape)
    got = eval(view_text(TorchWords(), "x", shape, view, start, MESH), {"x": x})
    assert np.array_equal(got.numpy(), viewed(x.numpy(), view, start))
    if view.elements and not view.repeats:
        assert np.shares_memory(got.numpy(), x.numpy())


@pytest.mark.parametrize(
    ("shape", "view", "start", "text"),
    [
        ((4, 6), LocalBuffer(DType.F32, (4, 6)), 0, "x"),
        ((4, 6), LocalBuffer(DType.F32, (24,)), 0, "np.reshape(x, (24,))"),
        ((4, 6), LocalBuffer(DType.F32, (2, 6)), 12, "x[2:, ...]"),
        ((4, 6), LocalBuffer(DType.F32, (4, 2), (6, 1)), 3, "x[:, 3:5]"),
        ((4, 6), LocalBuffer(DType.F32, (6, 4), (1, 6)), 0, "np.permute_dims(x, (1, 0))"),
        (
            (4, 6),
            LocalBuffer(DType.F32, (2, 4, 3), (3, 6, 1)),
            0,
            "np.permute_dims(np.reshape(x, (4, 2, 3)), (1, 0, 2))",
        ),
        (
            (4, 6),
            LocalBuffer(DType.F32, (2, 4)),
            6,
            "np.reshape(np.reshape(x, (24,))[6:14], (2, 4))",
        ),
        ((4,), LocalBuffer(DType.F32, (2, 4), (0, 1)), 0, "np.broadcast_to(x[None, :], (2, 4))"),
        ((4, 6), LocalBuffer(DType.F32, (2,), (5,)), 1, "strided(x, (2,), (5,), 1)"),
    ],
)
def test_how_views_are_written(
    shape: tuple[int, ...], view: LocalBuffer, start: int, text: str
) -> None:
    assert view_text(NumpyWords(), "x", shape, view, start, MESH) == text
