"""The typing rules against the numpy executor, one step from every layout.

A step is sound if the buffers after it stand for the same tensor as before. This is the induction
step of "a well-typed program computes what its signature says". All layouts of all meshes of up to
8 devices and 3 sub-axes are tried, in one and two dimensions, with every step that is well typed.
"""

from collections.abc import Iterable

import numpy as np
import pytest
from support.harness.seeds import fresh, some
from support.programs.collectives import (
    SIZES,
    FunctionBuilder,
    Move,
    axis_moves,
    layouts,
    local_moves,
    mesh_of_sizes,
    module_of,
    permutes,
)

from collir.dialects import coll
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import NumberAttr
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, DType, LayoutError, Mesh, Reduction
from collir.semantics.reference.buffers import assemble, distribute, random_tensor
from collir.semantics.reference.executor import execute
from collir.semantics.reference.meaning import meaning


def assert_sound(mesh: Mesh, arguments: list[DistType], moves: Iterable[Move]) -> list[Move]:
    """Assert that well-typed steps keep the meaning, all in one function; return these steps."""
    builder = FunctionBuilder(mesh, arguments)
    operands = [*builder.values]
    results = [(move, builder.try_op(move.op, operands, move.properties)) for move in moves]
    typed = [(move, result) for move, result in results if result is not None]
    if not typed:
        return []
    function = builder.function([result for _, result in typed])
    module = module_of([mesh], [function])
    rng = np.random.default_rng(len(arguments[0].axes))
    tensors = [random_tensor(x, rng) for x in arguments]
    buffers = [
        distribute(mesh, tensor, x, rng) for tensor, x in zip(tensors, arguments, strict=True)
    ]
    after = execute(module, function, buffers)
    alone = execute(*meaning(function), [[tensor] for tensor in tensors])
    for (move, result), buffer, (expected,) in zip(typed, after, alone, strict=True):
        tensor = assemble(mesh, buffer, dist_type(result))
        assert expected is not None
        assert tensor.dtype == expected.dtype
        assert np.array_equal(tensor, expected), f"{move} from {arguments[0]}"
    return [move for move, _ in typed]


def _transitions(sizes: tuple[int, ...], rank: int, reduction: Reduction) -> int:
    mesh = mesh_of_sizes(sizes)
    return sum(
        len(assert_sound(mesh, [x], axis_moves(mesh, rank))) for x in layouts(mesh, rank, reduction)
    )


@pytest.mark.turns
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_step_from_every_layout_in_one_dimension(sizes: tuple[int, ...]) -> None:
    assert _transitions(sizes, 1, Reduction.SUM) > 0


@pytest.mark.parametrize("sizes", some([(sizes,) for sizes in SIZES], 6), ids=str)
def test_every_step_from_every_layout_in_two_dimensions(sizes: tuple[int, ...]) -> None:
    assert _transitions(sizes, 2, Reduction.SUM) > 0


@pytest.mark.slow
def test_there_are_thousands_of_transitions() -> None:
    assert _transitions((2, 2, 2), 2, Reduction.SUM) > 2000


@pytest.mark.turns
@pytest.mark.parametrize("reduction", list(Reduction))
def test_every_step_from_every_layout_with_every_reduction(reduction: Reduction) -> None:
    for sizes in ((2, 3), (3, 2), (2, 2)):
        assert _transitions(sizes, 1, reduction) > 0


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2), (2, 3), (2, 2, 2)], ids=str)
def test_permute_from_every_layout_to_every_layout(sizes: tuple[int, ...]) -> None:
    mesh = mesh_of_sizes(sizes)
    rank = 1 if len(sizes) == 3 else 2
    count = sum(
        len(assert_sound(mesh, [x], permutes(mesh, x))) for x in layouts(mesh, rank, Reduction.SUM)
    )
    assert count > 0


@pytest.mark.parametrize("reduction", some(list(Reduction), 2))
@pytest.mark.parametrize("sizes", [(3,), (2, 2)], ids=str)
def test_local_operations_from_every_layout(sizes: tuple[int, ...], reduction: Reduction) -> None:
    mesh = mesh_of_sizes(sizes)
    rng = fresh(1)
    kinds: set[type[DistOp]] = set()
    for x in layouts(mesh, 2, reduction):
        kinds |= {move.op for move in assert_sound(mesh, [x], local_moves(x, rng))}
    expected = {
        OPERATIONS["split"],
        OPERATIONS["merge"],
        OPERATIONS["reshape"],
        OPERATIONS["transpose"],
        OPERATIONS["pad"],
    }
    assert expected | {OPERATIONS["cast"], OPERATIONS["scale"]} <= kinds


@pytest.mark.parametrize("dtype", some([DType.I8, DType.I32, DType.BF16, DType.F16], 2))
def test_casts_and_scales_of_partial_values_in_every_dtype(dtype: DType) -> None:
    mesh = mesh_of_sizes((2, 2))
    rng = fresh(1)
    kinds = [OPERATIONS[name] for name in ("cast", "scale", "pad")]
    for reduction in (r for r in Reduction if dtype.is_float or r is not Reduction.AVG):
        for x in layouts(mesh, 1, reduction, dtype):
            assert_sound(mesh, [x], [move for move in local_moves(x, rng) if move.op in kinds])


@pytest.mark.parametrize("reduction", list(Reduction))
def test_add_and_concat_of_every_two_layouts(reduction: Reduction) -> None:
    mesh = mesh_of_sizes((2, 2))
    gather = next(m for m in axis_moves(mesh, 1) if m.op is OPERATIONS["all_gather"])
    add = Move(OPERATIONS["add"], {})
    concat = Move(OPERATIONS["concat"], {"dim": gather.properties["dim"]})
    typed: set[type[DistOp]] = set()
    for x in layouts(mesh, 1, reduction):
        for y in layouts(mesh, 1, reduction):
            typed |= {move.op for move in assert_sound(mesh, [x, y], [add, concat])}
    assert typed == {add.op, concat.op}


# Every side condition is needed: without it, the rules would allow an unsound step. The steps below
# are such steps, carried out by the executor.


def _meaning_after(op: type[DistOp], x: DistType, y: DistType, move: Move, mesh: Mesh) -> bool:
    """Return whether a step from ``x`` to ``y`` that is not typed keeps the meaning."""
    builder = FunctionBuilder(mesh, [x])
    forced = op.create(
        operands=[builder.values[0]],
        properties=move.properties,
        result_types=[coll.DistTensorType(y)],
    )
    builder.block.add_op(forced)
    function = builder.function([forced.result])
    module = module_of([mesh], [function])
    rng = np.random.default_rng(0)
    tensor = random_tensor(x, rng)
    (after,) = execute(module, function, [distribute(mesh, tensor, x, rng)])
    alone_module, alone = meaning(function)
    (expected,) = execute(alone_module, alone, [[tensor]])
    assert expected[0] is not None
    try:
        return np.array_equal(assemble(mesh, after, y), expected[0])
    except RuntimeError:
        return False


def test_gathering_a_list_in_another_order_scrambles_blocks() -> None:
    mesh = mesh_of_sizes((2, 2))
    (x,) = (x for x in layouts(mesh, 1, Reduction.SUM) if x.dims[0].axes == ("a.l0", "b.l1"))
    y = DistType.make(DType.F32, x.shape)
    right, wrong = (
        next(
            m
            for m in axis_moves(mesh, 1)
            if m.op is OPERATIONS["all_gather"] and m.properties["axes"] == coll.AxesAttr(axes)
        )
        for axes in (("a.l0", "b.l1"), ("b.l1", "a.l0"))
    )
    assert _meaning_after(OPERATIONS["all_gather"], x, y, right, mesh)
    assert not _meaning_after(OPERATIONS["all_gather"], x, y, wrong, mesh)


def test_adding_a_replicated_value_to_a_partial_sum_counts_it_often() -> None:
    mesh = mesh_of_sizes((2,))
    partial = DistType.make(DType.F32, [4], partial=["a.l0"], reduction=Reduction.SUM)
    with pytest.raises(LayoutError, match="every device would add the whole"):
        OPERATIONS["add"].result_type(mesh, [partial, DistType.make(DType.F32, [4])], {})


@pytest.mark.parametrize(("value", "grown"), [(1.0, 1), (2.0, 2)])
def test_padding_a_partial_sum_with_other_than_zero_is_wrong(value: float, grown: int) -> None:
    mesh = mesh_of_sizes((2,))
    x = DistType.make(DType.F32, [4], partial=["a.l0"], reduction=Reduction.SUM)
    move = next(
        m
        for m in local_moves(x, fresh(0))
        if m.op is OPERATIONS["pad"] and m.properties["value"] == NumberAttr(value)
    )
    with pytest.raises(LayoutError, match="every device would bring in its own"):
        OPERATIONS["pad"].result_type(mesh, [x], move.properties)
    y = DistType.make(DType.F32, [4 + grown], partial=["a.l0"], reduction=Reduction.SUM)
    assert not _meaning_after(OPERATIONS["pad"], x, y, move, mesh)
