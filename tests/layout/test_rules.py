"""The typing rules by example: results, errors, and independence of the number of devices."""

import pytest

from collir.layout import (
    Axis,
    Dim,
    DistType,
    DType,
    Factor,
    LayoutError,
    Mesh,
    Reduction,
    at_root,
    check_type,
    local_rules,
    rules,
)
from collir.machine import Level, Machine


def mesh(node: int = 4, gpu: int = 2, model: int = 8) -> Mesh:
    machine = Machine("c", (Level("node", node, 1e9, 0), Level("gpu", gpu * model, 1e9, 0)))
    data = Axis.placed("data", [Factor("node", node), Factor("gpu", gpu)])
    return Mesh("m", machine, (data, Axis.placed("model", [Factor("gpu", model)])))


M = mesh()
NODE, GPU, MODEL = "data.node", "data.gpu", "model.gpu"


def tensor(
    *dims: int | tuple[int, tuple[str, ...]],
    partial: tuple[str, ...] = (),
    op: Reduction = Reduction.SUM,
    root: tuple[str, ...] = (),
    dtype: DType = DType.F32,
) -> DistType:
    built = tuple(Dim(d) if isinstance(d, int) else Dim(*d) for d in dims)
    return DistType(dtype, built, frozenset(partial), op if partial else None, at_root(root))


def test_reduce_scatter_appends_minor_most_in_the_written_order() -> None:
    x = tensor((64, (MODEL,)), partial=(NODE, GPU))
    y = rules.reduce_scatter(M, x, (GPU, NODE), 0)
    assert y == tensor((64, (MODEL, GPU, NODE)))


def test_all_gather_takes_the_exact_suffix() -> None:
    x = tensor((64, (MODEL, GPU, NODE)))
    assert rules.all_gather(M, x, (GPU, NODE), 0) == tensor((64, (MODEL,)))
    with pytest.raises(LayoutError, match="its blocks would be out of order"):
        rules.all_gather(M, x, (NODE, GPU), 0)
    with pytest.raises(LayoutError, match="its blocks would be out of order"):
        rules.all_gather(M, x, (MODEL,), 0)


def test_all_to_all_keeps_the_order() -> None:
    x = tensor((64, (MODEL, GPU, NODE)), 64)
    assert rules.all_to_all(M, x, (GPU, NODE), 0, 1) == tensor((64, (MODEL,)), (64, (GPU, NODE)))


def test_other_sub_axes_pass_unchanged() -> None:
    x = tensor((64, (MODEL,)), partial=(GPU,), root=(NODE,))
    assert rules.all_reduce(M, x, (GPU,)) == tensor((64, (MODEL,)), root=(NODE,))


def test_results_of_a_partial_value() -> None:
    x = tensor(64, partial=(NODE, GPU))
    assert rules.reduce(M, x, (GPU,)) == tensor(64, partial=(NODE,), root=(GPU,))
    assert rules.all_reduce(M, x, (GPU,)) == tensor(64, partial=(NODE,))
    assert rules.all_reduce(M, x, (GPU, NODE)) == tensor(64)
    assert rules.slice(M, x, (MODEL,), 0) == tensor((64, (MODEL,)), partial=(NODE, GPU))
    assert rules.keep_root(M, x, (MODEL,)) == tensor(64, partial=(NODE, GPU), root=(MODEL,))


@pytest.mark.parametrize(
    ("dims", "sizes", "expected"),
    [
        ((64, ()), (4, 16), (Dim(4), Dim(16))),
        ((64, (NODE,)), (4, 16), (Dim(4, (NODE,)), Dim(16))),
        ((64, (NODE,)), (8, 8), (Dim(8, (NODE,)), Dim(8))),
        ((64, (NODE, GPU)), (4, 16), (Dim(4, (NODE,)), Dim(16, (GPU,)))),
        ((64, (NODE, GPU)), (8, 8), (Dim(8, (NODE, GPU)), Dim(8))),
        ((64, (NODE, GPU)), (1, 64), (Dim(1), Dim(64, (NODE, GPU)))),
    ],
)
def test_split_and_merge_are_inverse(
    dims: tuple[int, tuple[str, ...]], sizes: tuple[int, int], expected: tuple[Dim, ...]
) -> None:
    x = tensor(dims)
    y = local_rules.split(M, x, 0, sizes)
    assert y.dims == expected
    assert local_rules.merge(M, y, 0) == x


@pytest.mark.parametrize("sizes", [(2, 32), (6, 11), (64, 2)])
def test_split_across_blocks_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(LayoutError, match=r"would cut across its blocks|is not 64"):
        local_rules.split(M, tensor((64, (NODE,))), 0, sizes)


@pytest.mark.parametrize(
    ("x", "shape", "dims"),
    [
        (tensor(6, 4), (24,), (Dim(24),)),
        (tensor((8, (NODE,)), 3), (24,), (Dim(24, (NODE,)),)),
        (
            tensor(
                (24, (NODE,)),
            ),
            (4, 6),
            (Dim(4, (NODE,)), Dim(6)),
        ),
        (tensor(3, (8, (NODE,))), (3, 4, 2), (Dim(3), Dim(4, (NODE,)), Dim(2))),
        (tensor(1, (8, (NODE,)), 1), (8,), (Dim(8, (NODE,)),)),
        (tensor(), (1, 1), (Dim(1), Dim(1))),
        (tensor(1, 1), (), ()),
    ],
)
def test_reshape_is_a_view(x: DistType, shape: tuple[int, ...], dims: tuple[Dim, ...]) -> None:
    assert local_rules.reshape(M, x, shape).dims == dims


def test_reshape_that_moves_data_is_refused() -> None:
    with pytest.raises(LayoutError, match="would move data"):
        local_rules.reshape(M, tensor(3, (8, (NODE,))), (24,))


@pytest.mark.parametrize(
    ("dtype", "op", "to", "allowed"),
    [
        (DType.F32, Reduction.SUM, DType.F64, True),
        (DType.F32, Reduction.SUM, DType.BF16, False),
        (DType.F32, Reduction.MAX, DType.BF16, True),
        (DType.I64, Reduction.MAX, DType.I8, False),
        (DType.I8, Reduction.SUM, DType.I32, True),
        (DType.BF16, Reduction.PROD, DType.F16, False),
        (DType.F16, Reduction.AVG, DType.F32, True),
        (DType.F32, Reduction.AVG, DType.I32, False),
    ],
)
def test_casts_of_partial_values(dtype: DType, op: Reduction, to: DType, allowed: bool) -> None:
    x = tensor(8, partial=(GPU,), op=op, dtype=dtype)
    if allowed:
        assert local_rules.cast(M, x, to).dtype is to
    else:
        with pytest.raises(LayoutError):
            local_rules.cast(M, x, to)


def test_a_negative_factor_turns_a_maximum_into_a_minimum() -> None:
    x = tensor(8, partial=(GPU,), op=Reduction.MAX)
    assert local_rules.scale(M, x, -2).reduction is Reduction.MIN
    assert local_rules.scale(M, x, 2) == x


def test_adding_a_replicated_value_to_a_partial_maximum() -> None:
    x = tensor(8, partial=(GPU,), op=Reduction.MAX)
    assert local_rules.add(M, x, tensor(8)) == x
    assert local_rules.add(M, tensor(8), x) == x


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (tensor((66, (NODE,))), "does not divide into the 4 shards"),
        (tensor((64, (NODE,)), partial=(NODE,)), "used twice"),
        (tensor((64, ("pipe",))), "axis 'pipe' is not in mesh @m"),
        (tensor(0), "sizes are at least 1"),
        (tensor(2**62, 8), r"more than 2\^63 - 1 bytes"),
        (tensor(8, partial=(GPU,), op=Reduction.AVG, dtype=DType.I32), "not an integer"),
    ],
)
def test_types_that_cannot_exist(x: DistType, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        check_type(M, x)


def test_checking_looks_at_sub_axes_only_however_many_devices_there_are() -> None:
    small, large = mesh(2, 2, 2), mesh(1024, 8, 16)
    assert large.devices == 131_072
    for m in (small, large):
        x = tensor(131_072 * 8, partial=(NODE, GPU))
        y = rules.reduce_scatter(m, x, (GPU,), 0)
        y = rules.all_reduce(m, y, (NODE,))
        assert rules.all_gather(m, y, (GPU,), 0) == tensor(131_072 * 8)


def test_the_local_part_of_a_dimension_divides_into_blocks() -> None:
    x = tensor((64, (MODEL, NODE)), partial=(GPU,))
    assert rules.reduce_scatter(M, x, (GPU,), 0) == tensor((64, (MODEL, NODE, GPU)))
    with pytest.raises(LayoutError, match="which 2 does not divide"):
        rules.reduce_scatter(M, tensor((32, (MODEL, NODE)), partial=(GPU,)), (GPU,), 0)


def test_a_redistribute_keeps_the_reduction() -> None:
    x = tensor(64, partial=(NODE,))
    with pytest.raises(LayoutError, match="no step leads from one to the other"):
        rules.redistribute(M, x, tensor(64, partial=(NODE,), op=Reduction.PROD))
