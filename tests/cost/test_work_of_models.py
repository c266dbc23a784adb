"""The work, the bytes and the products of operations of models, from their index structures."""

import pytest

import collir
from collir.cost.programs.operations import local_step
from collir.cost.programs.products import MatrixProducts, product_of
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.ir.buffers import plan_buffers
from collir.ir.functions import functions_of

PROGRAM = """
machine @box {
  device { compute f32 = 19.5 TFLOP/s; memory = 40 GB @ 1555 GB/s }
  level gpu[4] { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { data = gpu:2, model = gpu:2 }
func @f(%x: f32[32@data, 224, 224, 3], %w: f32[7, 7, 3, 64@model], %t: f32[50000@model, 768],
    %i: i32[8@data, 128], %e: f32[8@data, 128, 768], %h: f32[8@data, 128, 768],
    %k: f32[16@model, 768, 32]) on @m {
  %conv = conv %x, %w stride [2, 2] padding [3, 3]
  %pool = max_pool %conv window [3, 3] stride [2, 2] padding [1, 1]
  %image = conv_transpose %conv, %w stride [2, 2] padding [3, 3]
      to f32[32@data, 224, 224, 3] partial(sum: model)
  %filter = conv_filter %x, %conv stride [2, 2] padding [3, 3]
      to f32[7, 7, 3, 64@model] partial(sum: data)
  %taken = take %t, %i dim 0
  %table = take_transpose %e, %i dim 0 to f32[50000@model, 768] partial(sum: data)
  %hot = one_hot %i to f32[8@data, 128, 50000@model]
  %scores = einsum "b s h, b t h -> b s t" %e, %h
  %experts = grouped_matmul %e, %k, %i
  %whole = all_reduce %experts over model
  %matrices = grouped_matmul_transpose %e, %whole, %i to f32[16@model, 768, 32] partial(sum: data)
  %made = constant value 1 to f32[32@data, 4]
  return
}
"""
POINTS = 16 * 112 * 112 * 32 * 7 * 7 * 3
"""Products of numbers of a device, for the first convolution of ResNet-50 on a quarter of the batch
and the features."""
EMBEDDED = 4 * 128 * 768

WORK: dict[str, tuple[int, int | None, MatrixProducts | None]] = {
    "conv": (2 * POINTS, None, MatrixProducts(1, 16 * 112 * 112, 32, 7 * 7 * 3)),
    "pool": (16 * 56 * 56 * 32 * 9, None, None),
    "image": (2 * POINTS, None, MatrixProducts(1, 16 * 112 * 112, 3, 7 * 7 * 32)),
    "filter": (2 * POINTS, None, MatrixProducts(1, 3 * 7 * 7, 32, 16 * 112 * 112)),
    "taken": (0, 4 * (2 * EMBEDDED + 4 * 128), None),  # reads what it takes, and no more
    "table": (EMBEDDED, 4 * (EMBEDDED + 4 * 128 + 25000 * 768), None),
    "hot": (0, 4 * (4 * 128 + 4 * 128 * 25000), None),
    "scores": (2 * 4 * 128 * 128 * 768, None, MatrixProducts(4, 128, 128, 768)),
    # Half of the groups have half of the 512 rows of a device: 32 rows each.
    "experts": (256 * 2 * 768 * 32, None, MatrixProducts(8, 32, 32, 768)),
    "matrices": (256 * 2 * 768 * 32, None, MatrixProducts(8, 768, 32, 32)),
    "made": (0, 4 * 16 * 4, None),
}
"""The operations, the bytes read and written, and the product, of every value of the program."""


@pytest.mark.parametrize("name", WORK)
def test_work_follows_from_the_indices(name: str) -> None:
    [function] = functions_of(collir.parse(PROGRAM))
    mesh, where = mesh_of(function), plan_buffers(function)
    (op,) = [
        op for op in function.body.ops if isinstance(op, DistOp) and where.names[op.result] == name
    ]
    flops, moved, product = WORK[name]
    step = local_step(op, mesh, where)
    assert op.flops == flops
    assert moved in (None, step.size)
    assert op.structure is not None
    assert product_of(op, op.structure, mesh) == product
