"""Copies between buffers of any strides in C: loops around runs that lie one behind the other."""

from collections.abc import Sequence
from typing import NamedTuple

from collir.layout import DType
from collir.layout.local import LocalBuffer
from collir.targets.code.c_nest import Array, CLoop, is_one, merged, nested
from collir.targets.code.c_text import size_text


class Pointer(NamedTuple):
    """A pointer to elements: a variable, and how many elements behind it they begin, as a sum."""

    name: str
    start: str = ""

    def plus(self, start: str) -> "Pointer":
        """Return the pointer to elements that begin further behind."""
        return Pointer(self.name, " + ".join(filter(None, [self.start, start])))

    def element(self, index: str) -> str:
        """Return an element."""
        return f"{self.name}[{self.plus(index).start}]"

    def __str__(self) -> str:
        return f"{self.name} + {self.start}" if self.start else self.name


TILE = 16
"""The rows and columns of a tile in which a matrix is transposed: its lines stay in the cache."""


def copied(
    source: Pointer, x: LocalBuffer, target: Pointer, y: LocalBuffer, needs: set[str]
) -> list[str]:
    """Return the statements that copy the elements of a buffer to another one.

    Args:
        x, y: the buffers, with the numbers of this rank.
        needs: the sections of the runtime, to which they are added.
    """
    loops, (to, start) = loops_over([target, source], [y, x])
    inner = next((loop for loop in loops if is_one(start.strides.get(loop.variable, 0))), None)
    if inner is None or not is_one(to.strides[loops[-1].variable]):
        return nested(loops, [f"{to.element()} = {start.element()};"])
    last, size = loops[-1], y.dtype.bytes
    if inner is last:
        around = [loop.variable for loop in loops[:-1]]
        count = size_text(last.size * size)
        call = f"memcpy({to.place(around)}, {start.place(around)}, {count});"
        return nested(loops[:-1], [call])
    needs.add(f"transpose_{size}")
    outer = [loop for loop in loops if loop is not inner and loop is not last]
    around = [loop.variable for loop in outer]
    ends = [
        f"{array.place(around)}, {size_text(array.strides.get(loop.variable, 0))}"
        for array, loop in ((to, inner), (start, last))
    ]
    sizes = f"{size_text(inner.size)}, {size_text(last.size)}"
    return nested(outer, [f"transpose_{size}({', '.join(ends)}, {sizes});"])


def filled(target: Pointer, y: LocalBuffer, value: str) -> list[str]:
    """Return the statements that write the same value to all elements of a buffer."""
    loops, (to,) = loops_over([target], [y])
    return nested(loops, [f"{to.element()} = {value};"])


def loops_over(
    pointers: Sequence[Pointer], buffers: Sequence[LocalBuffer]
) -> tuple[list[CLoop], list[Array]]:
    """Return the loops over all elements, in the memory order of the first buffer, and the arrays
    over them."""
    first = buffers[0]
    order = sorted(range(len(first.shape)), key=lambda dim: (-int(first.steps[dim]), dim))
    kept = [dim for dim in order if not is_one(first.shape[dim])]
    loops = [CLoop(f"i{place}", first.shape[dim]) for place, dim in enumerate(kept)]
    arrays = [
        Array(pointer.name, x.dtype, _strides(x, kept), pointer.start)
        for pointer, x in zip(pointers, buffers, strict=True)
    ]
    loops, arrays = merged(loops, arrays, only="i")
    return loops, arrays


def _strides(x: LocalBuffer, dims: Sequence[int]) -> dict[str, int]:
    """Return the strides of some dimensions by the variables of their loops."""
    steps = ((f"i{place}", x.steps[dim]) for place, dim in enumerate(dims))
    return {variable: step for variable, step in steps if step != 0}


_TRANSPOSE = """\
/* Rows of `to` that are columns of `from`: elements of {bytes} bytes, tile by tile. */
static void transpose_{bytes}(void *to, size_t to_step, const void *from, size_t from_step,
                        size_t rows, size_t columns)
{{
  enum {{ TILE = {tile} }};
  for (size_t column = 0; column < columns; column += TILE)
    for (size_t row = 0; row < rows; row += TILE)
      for (size_t i = row; i < rows && i < row + TILE; ++i)
        for (size_t j = column; j < columns && j < column + TILE; ++j)
          memcpy((char *)to + (i * to_step + j) * {bytes},
                 (const char *)from + (j * from_step + i) * {bytes}, {bytes});
}}
"""

TRANSPOSES = {
    f"transpose_{count}": _TRANSPOSE.format(bytes=count, tile=TILE)
    for count in sorted({dtype.bytes for dtype in DType})
}
"""The functions that transpose a matrix, by their names."""
