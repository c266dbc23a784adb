"""Tests of P²'s programs (MLSys 2022) on devices: they reduce, and their groups are sub-axes."""

from math import prod

import pytest
from p2.dsl import CollectiveKind, DeviceGroup, span
from p2.enumerate import RuleReading, instructions, programs
from p2.lower import LoweredStep, Numbering, ReducedFactors, SubAxes, matrix_of
from support.harness.seeds import fresh

from collir.layout import Axis, Factor, Mesh, MeshError
from collir.machine import Level, Machine
from collir.semantics.reference.devices import coordinate, groups
from collir.synthesis.placement.matrices import Matrix, matrices

Buffer = dict[int, int]
"""The content of a device: values of chunks by their indices."""


def buffer_sum(buffers: list[Buffer]) -> Buffer:
    """Return the sum of buffers of equal chunks, chunk by chunk."""
    chunks = {frozenset(buffer) for buffer in buffers}
    assert len(chunks) == 1
    return {c: sum(buffer[c] for buffer in buffers) for c in buffers[0]}


def run(step: LoweredStep, devices: list[Buffer]) -> None:
    """Run a step on the buffers of all devices, by the definitions of the collectives."""
    for group in step.groups:
        held = [devices[rank] for rank in group]
        assert any(held)
        match step.collective:
            case CollectiveKind.ALL_REDUCE:
                after = [buffer_sum(held)] * len(group)
            case CollectiveKind.REDUCE:
                after = [buffer_sum(held), *[{} for _ in group[1:]]]
            case CollectiveKind.REDUCE_SCATTER:
                total = sorted(buffer_sum(held).items())
                share = len(total) // len(group)
                after = [dict(total[i * share : (i + 1) * share]) for i in range(len(group))]
            case CollectiveKind.ALL_GATHER:
                gathered = {c: v for buffer in held for c, v in buffer.items()}
                assert len(gathered) == sum(map(len, held))
                after = [gathered] * len(group)
            case CollectiveKind.BROADCAST:
                after = [held[0]] * len(group)
        for rank, buffer in zip(group, after, strict=True):
            devices[rank] = dict(buffer)


def reduction_groups(mesh: Mesh, axes: list[str]) -> list[DeviceGroup]:
    return [tuple(group) for group in groups(mesh, axes)]


def mesh_of(matrix: Matrix) -> Mesh:
    """Return a mesh with axes a, b, ... on levels l0, l1, ... by a matrix."""
    columns = list(zip(*matrix, strict=True))
    levels = tuple(Level(f"l{j}", prod(column), 1e9, 1e-6) for j, column in enumerate(columns))
    axes = (
        Axis.placed("abcd"[i], [Factor(f"l{j}", size) for j, size in enumerate(row)])
        for i, row in enumerate(matrix)
    )
    return Mesh("m", Machine("machine", levels), tuple(axes))


CASES = [
    (matrix, reduced)
    for hierarchy, axes, choices in [
        ((2, 4), (2, 4), [(0,), (1,), (0, 1)]),
        ((1, 2, 6), (3, 4), [(0,), (1,)]),
        ((2, 2, 2), (4, 2), [(0,), (0, 1)]),
        ((2, 8), (2, 2, 4), [(2,), (0, 2), (1,)]),
    ]
    for matrix in matrices(hierarchy, axes)
    for reduced in choices
]


@pytest.mark.turns
@pytest.mark.parametrize("numbering", Numbering)
@pytest.mark.parametrize(("matrix", "reduced"), CASES, ids=str)
def test_every_program_reduces(
    matrix: Matrix, reduced: tuple[int, ...], numbering: Numbering
) -> None:
    reduction = ReducedFactors.of_axes(matrix, reduced, numbering)
    mesh = mesh_of(matrix)
    sub_axes = [name for i in reduced for name in mesh.of_axis["abcd"[i]]]
    chunks = mesh.group_size(sub_axes)
    rng = fresh(7)
    inputs = [{c: rng.randrange(10**9) for c in range(chunks)} for _ in range(mesh.devices)]
    expected: list[Buffer] = [{} for _ in inputs]
    for group in reduction_groups(mesh, sub_axes):
        for rank in group:
            expected[rank] = buffer_sum([inputs[member] for member in group])
    size = 4 if len(matrix[0]) > 2 else 5
    for program in programs(reduction.hierarchy, size, RuleReading.LITERAL):
        devices = [dict(buffer) for buffer in inputs]
        for step in reduction.lower(program):
            run(step, devices)
        assert devices == expected, "; ".join(map(str, program))


@pytest.mark.parametrize("numbering", Numbering)
@pytest.mark.parametrize(("matrix", "reduced"), CASES, ids=str)
def test_sub_axes_are_the_groups(
    matrix: Matrix, reduced: tuple[int, ...], numbering: Numbering
) -> None:
    mesh = mesh_of(matrix)
    reduction = ReducedFactors.of_axes(matrix, reduced, numbering)
    for instruction in instructions(reduction.hierarchy, RuleReading.LITERAL):
        (step,) = reduction.lower((instruction,))
        sub_axes = reduction.over(instruction, mesh)
        if sub_axes is None:
            assert numbering is Numbering.AXES
            assert len(reduced) > 1
            continue
        expected = {
            group
            for group in reduction_groups(mesh, list(sub_axes.over))
            if not any(coordinate(mesh, group[0], axis) for axis in sub_axes.root)
        }
        assert set(step.groups) == expected
        assert len(step.groups) == len(expected)
        group_span = span(reduction.hierarchy, instruction.slice, instruction.form)
        assert bool(sub_axes.root) == group_span.master


@pytest.mark.parametrize(("matrix", "reduced"), CASES, ids=str)
def test_groups_that_are_no_sub_axes_are_none_of_any(
    matrix: Matrix, reduced: tuple[int, ...]
) -> None:
    """Check that groups lowered to no sub-axes are not the groups of any set of sub-axes."""
    mesh = mesh_of(matrix)
    reduction = ReducedFactors.of_axes(matrix, reduced, Numbering.AXES)
    for instruction in instructions(reduction.hierarchy, RuleReading.NO_MASTER):
        if reduction.over(instruction, mesh) is not None:
            continue
        (step,) = reduction.lower((instruction,))
        step_groups = {frozenset(group) for group in step.groups}
        names = list(mesh.by_name)
        for subset in range(1 << len(names)):
            axes = [name for i, name in enumerate(names) if subset >> i & 1]
            assert {frozenset(group) for group in reduction_groups(mesh, axes)} != step_groups


SCATTERED: Matrix = ((1, 4), (2, 1), (2, 4))


def test_numbering_by_hardware_finds_the_node() -> None:
    """Check that only the numbering by hardware has a node as a group, reducing axes 0 and 2."""
    mesh = mesh_of(SCATTERED)
    in_node = {tuple(group) for group in groups(mesh, ["a.l1", "c.l1"])}
    for numbering in Numbering:
        reduction = ReducedFactors.of_axes(SCATTERED, [0, 2], numbering)
        assert reduction.hierarchy == (1, 2, 16)
        steps = reduction.lower(instructions(reduction.hierarchy))
        blocks = [{tuple(sorted(group)) for group in step.groups} for step in steps]
        assert (in_node in blocks) == (numbering is Numbering.HARDWARE)


def test_sub_axes_and_roots_by_name() -> None:
    mesh = mesh_of(((1, 2, 2), (2, 1, 3)))
    reduction = ReducedFactors.of_mesh(mesh, ["a.l1", "a.l2", "b.l2"], Numbering.HARDWARE)
    assert reduction.hierarchy == (1, 1, 2, 6)
    sub_axes = {
        str(step.form): reduction.over(step, mesh)
        for step in instructions(reduction.hierarchy)
        if step.slice == 2 and step.collective is CollectiveKind.ALL_REDUCE
    }
    assert sub_axes == {
        "InsideGroup": SubAxes(("a.l2", "b.l2")),
        "Parallel(0)": SubAxes(("a.l1",)),
        "Master(0)": SubAxes(("a.l1",), ("a.l2", "b.l2")),
    }


def test_matrices_of_meshes() -> None:
    for matrix in matrices((2, 1, 6), (4, 3)):
        assert matrix_of(mesh_of(matrix)) == matrix


def test_a_sub_axis_that_does_not_exist_is_refused() -> None:
    with pytest.raises(MeshError, match=r"no sub-axis 'a\.l0'"):
        ReducedFactors.of_mesh(mesh_of(((1, 2),)), ["a.l1", "a.l0"])


def test_a_mesh_without_a_placement_is_refused() -> None:
    mesh = Mesh("m", Machine("machine", (Level("l0", 2, 1e9, 0.0),)), (Axis("a", 2),))
    with pytest.raises(MeshError, match="not placed"):
        ReducedFactors.of_mesh(mesh, ["a"])
    step = instructions((1, 2))[0]
    with pytest.raises(MeshError, match="not placed"):
        ReducedFactors.of_axes(((2,),), [0]).over(step, mesh)


MEASURED = [
    ((32,), 0, 47),
    ((2, 16), 0, 6),
    ((2, 16), 1, 50),
    ((4, 8), 0, 50),
    ((4, 8), 1, 50),
    ((16, 2), 0, 50),
    ((16, 2), 1, 6),
]
"""Axes, index of the reduced axis, and published number of programs on all placements on 2 x 16."""


@pytest.mark.parametrize(("axes", "reduced", "total"), MEASURED, ids=str)
def test_published_totals(axes: tuple[int, ...], reduced: int, total: int) -> None:
    counts = [
        sum(1 for _ in programs(ReducedFactors.of_axes(matrix, [reduced]).hierarchy))
        for matrix in matrices((2, 16), axes)
    ]
    assert sum(counts) == total
