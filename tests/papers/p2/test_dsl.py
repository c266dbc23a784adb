"""Tests of slices and forms of P²'s reduction language (MLSys 2022), on the paper's example."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from p2.dsl import (
    CollectiveKind,
    DslError,
    Form,
    InsideGroup,
    Instruction,
    Master,
    Parallel,
    forms,
    groups,
)

EXAMPLE = (1, 2, 2, 4)
"""(rack, 1), (server, 2), (CPU, 2), (GPU, 4): devices A0..A3, B0..B3, C0..C3, D0..D3."""

RACK, SERVER, CPU, GPU = range(4)


def named(slice_: int, form: Form) -> str:
    """Return the groups by the names of the paper."""
    return " ".join(
        "{" + " ".join(f"{'ABCD'[device // 4]}{device % 4}" for device in group) + "}"
        for group in groups(EXAMPLE, slice_, form)
    )


def test_inside() -> None:
    cpus = "{A0 A1 A2 A3} {B0 B1 B2 B3} {C0 C1 C2 C3} {D0 D1 D2 D3}"
    assert named(CPU, InsideGroup()) == cpus
    assert named(SERVER, InsideGroup()) == ("{A0 A1 A2 A3 B0 B1 B2 B3} {C0 C1 C2 C3 D0 D1 D2 D3}")
    assert named(RACK, InsideGroup()) == ("{A0 A1 A2 A3 B0 B1 B2 B3 C0 C1 C2 C3 D0 D1 D2 D3}")
    assert named(GPU, InsideGroup()) == ""


def test_parallel() -> None:
    assert named(CPU, Parallel(SERVER)) == (
        "{A0 B0} {A1 B1} {A2 B2} {A3 B3} {C0 D0} {C1 D1} {C2 D2} {C3 D3}"
    )
    assert named(CPU, Parallel(RACK)) == ("{A0 B0 C0 D0} {A1 B1 C1 D1} {A2 B2 C2 D2} {A3 B3 C3 D3}")
    assert named(SERVER, Parallel(RACK)) == (
        "{A0 C0} {A1 C1} {A2 C2} {A3 C3} {B0 D0} {B1 D1} {B2 D2} {B3 D3}"
    )


def test_master() -> None:
    assert named(CPU, Master(RACK)) == "{A0 B0 C0 D0}"
    assert named(CPU, Master(SERVER)) == "{A0 B0} {C0 D0}"
    assert named(GPU, Master(CPU)) == named(CPU, InsideGroup())


def test_forms() -> None:
    assert list(forms(2)) == [InsideGroup(), Parallel(0), Parallel(1), Master(0), Master(1)]
    step = Instruction(2, Master(0), CollectiveKind.ALL_REDUCE)
    assert str(step) == "(2, Master(0), all_reduce)"
    assert str(Instruction(1, InsideGroup(), CollectiveKind.REDUCE)) == "(1, InsideGroup, reduce)"


@pytest.mark.parametrize(
    ("slice_", "form", "message"),
    [
        (4, InsideGroup(), "no level 4: its levels are 0 to 3"),
        (-1, InsideGroup(), "no level -1"),
        (2, Parallel(2), "no strict ancestor"),
        (1, Master(3), "no strict ancestor"),
        (1, Parallel(-1), "no strict ancestor"),
    ],
)
def test_levels_that_cannot_be(slice_: int, form: Form, message: str) -> None:
    with pytest.raises(DslError, match=message):
        groups(EXAMPLE, slice_, form)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_groups_by_the_rules(sizes: list[int]) -> None:
    """Check groups against the rules of the paper, applied to coordinates of devices."""
    coordinates: list[tuple[int, ...]] = [()]
    for size in sizes:
        coordinates = [(*c, i) for c in coordinates for i in range(size)]
    for slice_ in range(len(sizes)):
        for form in forms(slice_):
            members: dict[tuple[int, ...], list[int]] = {}
            for device, coordinate in enumerate(coordinates):
                position = coordinate[slice_ + 1 :]
                if isinstance(form, InsideGroup):
                    members.setdefault(coordinate[: slice_ + 1], []).append(device)
                elif isinstance(form, Parallel) or not any(position):
                    key = (*coordinate[: form.ancestor + 1], *position)
                    members.setdefault(key, []).append(device)
            expected = {tuple(group) for group in members.values() if len(group) > 1}
            assert set(groups(sizes, slice_, form)) == expected
