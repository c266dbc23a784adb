"""Products of matrices in C: a function of the runtime for each element type, and the einsums that
call it.

An einsum of two operands has indices of four groups: of a batch, of rows, of columns, and of the
sum. Each group but the first is one dimension of a matrix if both of its arrays are contiguous over
it. If rows or columns are not, all but one of their indices are loops.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from collir.layout import DType
from collir.targets.code.c_kernels import BlockComputation
from collir.targets.code.c_nest import Array, CLoop, is_one, merged, nested, number_type
from collir.targets.code.c_text import C_ELEMENTS, C_TYPES, size_text


@dataclass(frozen=True)
class _Group:
    """Indices of a product that are one dimension of its matrices.

    Attributes:
        loop: the loop over the dimension.
        left: the loops over the other indices of the group.
        arrays: the arrays, with this loop in place of its parts.
    """

    loop: CLoop
    left: list[CLoop]
    arrays: list[Array]


def _grouped(loops: Sequence[CLoop], arrays: Sequence[Array], holder: int) -> _Group:
    """Return the largest dimension that contiguous indices make.

    Args:
        holder: the number of an array that has all of them.
    """
    order = list(arrays[holder].strides)
    ordered = sorted(loops, key=lambda loop: order.index(loop.variable))
    joined, merged_arrays = merged(ordered, arrays)
    largest = max(joined, key=lambda loop: int(loop.size))
    return _Group(largest, [loop for loop in joined if loop is not largest], merged_arrays)


def matrix_product(c: BlockComputation) -> list[str] | None:
    """Return the loops over the batch around the product of two matrices; None if an einsum is no
    such product."""
    if len(c.operands) != 2:
        return None
    (x, y), out = c.inputs(), c.out()
    left, right, made = (set(array.strides) for array in (x, y, out))
    loops = {loop.variable: loop for loop in c.loops(c.sizes)}
    if any((v in left) + (v in right) + (v in made) < 2 for v in loops):
        return None
    batch = [loops[v] for v in loops if v in left & right & made]
    rows, columns, depth = (
        [loops[v] for v in loops if v in own]
        for own in ((left & made) - right, (right & made) - left, (left & right) - made)
    )
    if not (rows and columns and depth):
        return None
    arrays = [x, y, out]
    summed = _grouped(depth, arrays, 0)
    if summed.left:
        return None
    first = _grouped(rows, summed.arrays, 0)
    second = _grouped(columns, first.arrays, 1)
    return nested(
        [*batch, *first.left, *second.left],
        [_call(c, second.arrays, [first.loop, second.loop, summed.loop])],
    )


def _call(c: BlockComputation, arrays: Sequence[Array], sizes: Sequence[CLoop]) -> str:
    """Return the call that multiplies two matrices, the one with the rows of the result first."""
    x, y, out = arrays
    rows, columns, depth = (loop.variable for loop in sizes)
    if is_one(out.strides[rows]):  # the columns of the result are to be contiguous
        x, y, rows, columns = y, x, columns, rows
        sizes = [sizes[1], sizes[0], sizes[2]]
    c.products.add(out.dtype)
    matrices = ((x, rows, depth), (y, depth, columns), (out, rows, columns))
    counts = ", ".join(size_text(loop.size) for loop in sizes)
    places = (
        f"{array.place([v for v in array.strides if v not in own])}, "
        + ", ".join(size_text(array.strides[v]) for v in own)
        for array, *own in matrices
    )
    return f"product_{out.dtype}({counts}, {', '.join(places)});"


BLAS = {DType.F32: "s", DType.F64: "d"}
"""The letters of BLAS for the element types that it has."""

CBLAS = """\
#ifdef COLLIR_CBLAS /* products of f32 and f64 by BLAS: link with it */
#include <cblas.h>
#endif
"""
"""The lines that include BLAS, where a program asks for it."""

_PRODUCT = """\
/* Matrices out = x y in {dtype}: `rows` by `depth` times `depth` by `columns`. The strides are in
 * elements. A block of y is packed, and the sums of a block of the result are in {number}. */
static void product_{dtype}(
    size_t rows, size_t columns, size_t depth, const {element} *restrict x, size_t x_row,
    size_t x_depth, const {element} *restrict y, size_t y_depth, size_t y_column,
    {element} *restrict out, size_t out_row, size_t out_column)
{{
  enum {{ ROWS = 64, COLUMNS = 64, DEPTH = 64, RUN = 32 }};
  {number} sums[ROWS][COLUMNS], block[DEPTH][COLUMNS];
{blas}\
  for (size_t row = 0; row < rows; row += ROWS)
    for (size_t column = 0; column < columns; column += COLUMNS) {{
      size_t m = rows - row < ROWS ? rows - row : ROWS;
      size_t n = columns - column < COLUMNS ? columns - column : COLUMNS;
      memset(sums, 0, sizeof sums);
      for (size_t start = 0; start < depth; start += DEPTH) {{
        size_t l = depth - start < DEPTH ? depth - start : DEPTH;
        memset(block, 0, sizeof block);
        for (size_t k = 0; k < l; ++k)
          for (size_t j = 0; j < n; ++j)
            block[k][j] = {y};
        for (size_t i = 0; i < m; ++i)
          for (size_t run = 0; run < n; run += RUN) {{
            {number} *to = &sums[i][run];
            for (size_t k = 0; k < l; ++k) {{
              {number} factor = {x};
              for (size_t j = 0; j < RUN; ++j) to[j] += factor * block[k][run + j];
            }}
          }}
      }}
      for (size_t i = 0; i < m; ++i)
        for (size_t j = 0; j < n; ++j)
          out[(row + i) * out_row + (column + j) * out_column] = {stored};
    }}
}}
"""

_CALL = """\
#ifdef COLLIR_CBLAS
  if ((x_row == 1 || x_depth == 1) && (y_depth == 1 || y_column == 1) && out_column == 1 &&
      rows <= INT_MAX && columns <= INT_MAX && depth <= INT_MAX && x_row <= INT_MAX &&
      x_depth <= INT_MAX && y_depth <= INT_MAX && y_column <= INT_MAX && out_row <= INT_MAX) {{
    cblas_{letter}gemm(CblasRowMajor, x_depth == 1 ? CblasNoTrans : CblasTrans,
                y_column == 1 ? CblasNoTrans : CblasTrans, (int)rows, (int)columns, (int)depth,
                1, x, (int)(x_depth == 1 ? x_row : x_depth), y,
                (int)(y_column == 1 ? y_depth : y_column), 0, out, (int)out_row);
    return;
  }}
#endif
"""


def product_text(dtype: DType) -> str:
    """Return the function that multiplies matrices of a type."""
    number = number_type(dtype)

    def loaded(text: str) -> str:
        return C_ELEMENTS.load(text, dtype) if dtype.is_float else f"({number}){text}"

    return _PRODUCT.format(
        dtype=dtype,
        element=C_TYPES[dtype],
        number=number,
        blas=_CALL.format(letter=BLAS[dtype]) if dtype in BLAS else "",
        x=loaded("x[(row + i) * x_row + (start + k) * x_depth]"),
        y=loaded("y[(start + k) * y_depth + (column + j) * y_column]"),
        stored=C_ELEMENTS.store("sums[i][j]", dtype),
    )
