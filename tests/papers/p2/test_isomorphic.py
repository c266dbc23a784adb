"""Placements that differ in names only cost the same, and are costed once."""

from dataclasses import replace

import pytest
from p2 import candidates
from p2 import enumerate as enumeration
from p2.candidates import p2_candidates
from support.harness.seeds import fresh

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, step_cost
from collir.layout import Axis, Mesh
from collir.machine import Level, LinkKind, Machine
from collir.synthesis.placement.meshes import mesh_of_matrix


def machine(kind: LinkKind = LinkKind.SWITCH) -> Machine:
    sizes = {"node": (4, 8e9, 2e-5), "gpu": (4, 1e11, 3e-6)}
    levels = (Level(name, *numbers, kind=kind) for name, numbers in sizes.items())
    return Machine("c", tuple(levels))


def reduction(matrix: tuple[tuple[int, ...], ...], axis: int, on: Machine) -> Collective:
    axes = tuple(Axis(f"x{number}", row[0] * row[1]) for number, row in enumerate(matrix))
    mesh = mesh_of_matrix(Mesh("m", on, axes), matrix)
    over = tuple(sub.name for sub in mesh.sub_axes if sub.axis == f"x{axis}")
    idle = frozenset(sub.name for sub in mesh.sub_axes) - frozenset(over)
    return Collective(
        "all_reduce", mesh, over, 1e8, replicated=fresh(2).choice([idle, frozenset()])
    )


MATRICES = [
    ((2, 4), (2, 1)),
    ((2, 1), (2, 4)),
    ((2, 2), (2, 2)),
    ((1, 4), (4, 1)),
    ((4, 2), (1, 2)),
]


@pytest.mark.turns
@pytest.mark.parametrize("model", ["alpha-beta", "p2", "nccl"])
@pytest.mark.parametrize("kind", [LinkKind.SWITCH, LinkKind.BUS, LinkKind.RING])
def test_what_is_known_of_one_placement_is_right_for_another(model: str, kind: LinkKind) -> None:
    """Every cost, phases included, is that of the step when it is costed alone."""
    on = machine(kind)
    for matrix in MATRICES:
        for axis in range(2):
            listed = p2_candidates(reduction(matrix, axis, on), CostModel(model), 3)
            assert listed
            for candidate in listed:
                for paid in candidate.costs:
                    alone = step_cost(paid.collective, CostModel(model))
                    assert paid.time == pytest.approx(alone.time, rel=1e-12)
                    assert (paid.bound, paid.shared_bound) == pytest.approx(
                        (alone.bound, alone.shared_bound), rel=1e-12
                    )
                    assert [len(phase.uses) for phase in paid.phases] == [
                        len(phase.uses) for phase in alone.phases
                    ]


def test_placements_that_are_alike_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Collective] = []

    def counted(step: Collective, model: CostModel) -> object:
        asked.append(step)
        return step_cost(step, model)

    monkeypatch.setattr(candidates, "step_cost", counted)
    on = replace(machine(), name="of this test alone")
    first = p2_candidates(reduction(((2, 4), (2, 1)), 0, on), CostModel("p2"))
    assert (known := len(asked))
    listed = enumeration.known_programs(
        (1, 2, 9), 5, enumeration.RuleReading.MASTER_ALL_REDUCE, 0.0
    )
    assert sum(1 for _ in listed) == len(
        first
    )  # they are known already: there is no time to enumerate them
    second = p2_candidates(reduction(((2, 1), (2, 4)), 1, on), CostModel("p2"))
    assert len(asked) == known
    assert [c.time for c in second] == [c.time for c in first]
    assert [c.steps for c in second] != [c.steps for c in first]
