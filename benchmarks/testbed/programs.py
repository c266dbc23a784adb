"""Cases, their placements and programs, and their predicted costs."""

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from library import modelled
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.programs.collectives import collective_of
from collir.cost.programs.simulate import simulate_function
from collir.dialects.machine import MachineOp, mesh_of, meshes_remembered
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.layout import Axis, LayoutError, Mesh
from collir.machine import Machine
from collir.syntax.reader import read
from collir.synthesis.placement.matrices import Matrix, matrices
from collir.synthesis.placement.meshes import mesh_of_matrix
from collir.synthesis.programs.build import planned
from collir.synthesis.programs.choices import search_programs
from collir.synthesis.programs.rewriting import rewrite, searched_in
from collir.synthesis.programs.search_options import SearchOptions
from collir.synthesis.programs.steps import CollectiveStep, Program, StepSequence

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
from p2.candidates import p2_candidates

MACHINES = Path(__file__).parent / "machines"
SEARCHED = 100
"""Number of programs from the search, besides those of P²."""
MODEL = CostModel("alpha-beta", order="written")

Steps = tuple[tuple[str, tuple[str, ...]], ...]
"""A program: collectives and their sub-axes."""


@dataclass(frozen=True)
class Case:
    """The axes of a mesh, and the indices of the reduced axes."""

    axes: tuple[int, ...]
    reduced: tuple[int, ...]

    @property
    def name(self) -> str:
        """Name of the case in file names."""
        return f"{'x'.join(map(str, self.axes))}-{''.join(map(str, self.reduced))}"

    @property
    def text(self) -> str:
        """Name of the case in tables."""
        return f"[{' '.join(map(str, self.axes))}] over {', '.join(map(str, self.reduced))}"


CASES = {
    8: [
        Case((8,), (0,)),
        Case((2, 4), (0,)),
        Case((2, 4), (1,)),
        Case((2, 4), (0, 1)),
        Case((4, 2), (0,)),
        Case((2, 2, 2), (0,)),
        Case((2, 2, 2), (0, 1)),
        Case((2, 2, 2), (0, 2)),
    ],
    16: [
        Case((16,), (0,)),
        Case((4, 4), (0,)),
        Case((2, 8), (1,)),
        Case((2, 8), (0,)),
        Case((4, 4), (0, 1)),
        Case((2, 2, 4), (0, 2)),
    ],
}
"""The cases, by number of ranks."""


def machine(name: str) -> Machine:
    """Return the machine of the file with this name."""
    text = (MACHINES / f"{name}.coll").read_text(encoding="utf-8")
    [value] = [op.value() for op in read(text).ops if isinstance(op, MachineOp)]
    return value


def placements(case: Case, machine: Machine) -> list[Matrix]:
    """Return all placements of a case, without those that differ only in idle axes."""
    by_view: dict[tuple[object, ...], Matrix] = {}
    for matrix in matrices([level.size for level in machine.levels], case.axes):
        by_view.setdefault(_seen(case, machine, matrix), matrix)
    return list(by_view.values())


def _seen(case: Case, machine: Machine, matrix: Matrix) -> tuple[object, ...]:
    """Return the sub-axes of a reduction on a placement, in the machine's order."""
    mesh = mesh_on(case, machine, matrix)
    own = {mesh.axes[index].name for index in case.reduced}
    return tuple((sub.level, sub.size, sub.stride) for sub in mesh.sub_axes if sub.axis in own)


def mesh_on(case: Case, machine: Machine, matrix: Matrix, name: str = "m") -> Mesh:
    """Return the mesh of a placement."""
    axes = tuple(Axis(f"a{index}", size) for index, size in enumerate(case.axes))
    return mesh_of_matrix(Mesh(name, machine, axes), matrix)


@dataclass(frozen=True)
class Wish:
    """A program to be measured."""

    case: Case
    matrix: Matrix
    steps: Steps


Timed = tuple[Wish, float]
"""A program, and its predicted seconds."""


def flat(case: Case, machine: Machine, matrix: Matrix) -> Wish:
    """Return the all_reduce as one step."""
    mesh = mesh_on(case, machine, matrix)
    own = {mesh.axes[index].name for index in case.reduced}
    axes = tuple(sub.name for sub in mesh.sub_axes if sub.axis in own)
    return Wish(case, matrix, (("all_reduce", mesh.ordered(axes)),))


def module_of(wishes: Sequence[Wish], machine: Machine, elements: int) -> ModuleOp:
    """Return a module with a function per program, on ``elements`` 4-byte numbers per rank."""
    module = _written(wishes, machine, elements)
    with meshes_remembered():
        for function, wish in zip(functions_of(module), wishes, strict=True):
            steps = tuple(CollectiveStep(kind, axes) for kind, axes in wish.steps)
            rewrite(function, (Program(steps),), None)
    return module


def _written(wishes: Sequence[Wish], machine: Machine, elements: int) -> ModuleOp:
    """Return the module before all_reduces become programs."""
    meshes = list(dict.fromkeys((wish.case, wish.matrix) for wish in wishes))
    names = {key: f"m{number}" for number, key in enumerate(meshes)}
    lines = [_machine_text(machine)]
    lines += [_mesh_text(*key, machine, name) for key, name in names.items()]
    for number, wish in enumerate(wishes):
        lines.append(_function_text(number, wish, names[wish.case, wish.matrix], elements))
    return read("\n".join(lines))


def _machine_text(machine: Machine) -> str:
    return (MACHINES / f"{machine.name}.coll").read_text(encoding="utf-8")


def _mesh_text(case: Case, matrix: Matrix, machine: Machine, name: str) -> str:
    mesh = mesh_on(case, machine, matrix, name)
    axes = []
    for axis in mesh.axes:
        subs = [sub for sub in mesh.sub_axes if sub.axis == axis.name]
        axes.append(f"{axis.name} = " + " * ".join(f"{sub.level}:{sub.size}" for sub in subs))
    return f"mesh @{name} on @{machine.name} {{ {', '.join(axes)} }}"


def _function_text(number: int, wish: Wish, mesh: str, elements: int) -> str:
    """Return the text of the all_reduce of a case; every group reduces its own data."""
    case = wish.case
    idle = [index for index in range(len(case.axes)) if index not in case.reduced]
    total = elements
    for index in idle:
        total *= case.axes[index]
    dim = f"{total}@({', '.join(f'a{index}' for index in idle)})" if idle else str(total)
    over = ", ".join(f"a{index}" for index in case.reduced)
    return (
        f"func @f{number}(%g: f32[{dim}] partial(sum: {over})) -> f32[{dim}] on @{mesh} {{\n"
        f"  %r = all_reduce %g over {over}\n  return %r\n}}"
    )


def candidates(case: Case, machine: Machine, matrix: Matrix, elements: int) -> list[Wish]:
    """Return the programs for a placement: those of P², and the best of a search.

    The flat all_reduce is first.
    """
    whole = flat(case, machine, matrix)
    [op] = searched_in(functions_of(_written([whole], machine, elements))[0])
    listed: list[StepSequence] = p2_candidates(collective_of(op, mesh_of(op)), MODEL)
    listed += search_programs(op, SearchOptions(MODEL, top=SEARCHED)).candidates
    typed = (candidate.steps for candidate in listed if _has_type(op, candidate.steps))
    plain = (tuple((step.kind, tuple(step.axes)) for step in steps) for steps in typed)
    return list(dict.fromkeys([whole, *(Wish(case, matrix, steps) for steps in plain)]))


def _has_type(op: DistOp, steps: Sequence[CollectiveStep]) -> bool:
    """Return whether steps are well typed: some programs of P² send data to ranks that have it."""
    try:
        planned(mesh_of(op), dist_type(op.operands[0]), steps, dist_type(op.result))
    except LayoutError:
        return False
    return True


def costs(wishes: Sequence[Wish], machine: Machine, elements: int) -> list[tuple[StepCost, ...]]:
    """Return the cost of each step of each program, by the library's configured algorithms."""
    module = module_of(wishes, machine, elements)
    with meshes_remembered():
        return [function_costs(function, machine) for function in functions_of(module)]


def function_costs(function: FuncOp, machine: Machine) -> tuple[StepCost, ...]:
    steps = simulate_function(function, MODEL).collectives
    return tuple(step_cost(on(modelled(step.collective), machine), MODEL) for step in steps)


def on(collective: Collective, machine: Machine) -> Collective:
    """Return a collective on a machine of the same shape with other numbers."""
    return replace(collective, mesh=replace(collective.mesh, machine=machine))


def ordered(case: Case, machine: Machine, matrix: Matrix, elements: int) -> list[Timed]:
    """Return the programs of a placement, each with its predicted seconds.

    The flat all_reduce is first, then the others, best first.
    """
    known = candidates(case, machine, matrix, elements)
    times = [sum(step.time for step in steps) for steps in costs(known, machine, elements)]
    timed = list(zip(known, times, strict=True))
    return [
        timed[0],
        *sorted(
            timed[1:], key=lambda timed_program: (timed_program[1], len(timed_program[0].steps))
        ),
    ]


def chosen(listed: Sequence[Timed], most: int) -> list[Timed]:
    """Return the programs of a placement to measure.

    Of more than ``most``, half are the best predicted ones, and half are drawn from the others.
    """
    whole, *others = listed
    if len(others) > most:
        rest = random.Random(str(whole)).sample(range(most // 2, len(others)), most - most // 2)
        others = others[: most // 2] + [others[index] for index in sorted(rest)]
    return [whole, *others]
