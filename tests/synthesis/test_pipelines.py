"""Programs in chunks: against all paths of the graph, in the numpy executor, and on ranks."""

import random
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh, some
from support.programs.collectives import RANDOM, FunctionBuilder, module_of, random_function
from support.semantics.checks import agree, functions_of, results_on_all_devices
from support.synthesis.plain_pipelines import (
    TooManyError,
    Way,
    all_paths,
    collective,
    formula,
    further,
    loads,
    quick_mesh,
    random_shape,
    redistribution,
    states,
)
from support.targets import on_fake_nccl, on_ranks
from support.targets.async_code import hazards, marked
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel, step_cost
from collir.cost.programs.simulate import simulate
from collir.dialects import coll
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.verification import verify
from collir.layout import DistType, DType, Mesh
from collir.search import k_best
from collir.semantics.reference.exactness import exact, roundings
from collir.semantics.reference.executor import execute
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.synthesis.programs import pipelines
from collir.synthesis.programs.build import planned
from collir.synthesis.programs.cheapest import synthesise
from collir.synthesis.programs.choices import search_programs
from collir.synthesis.programs.paths import candidate_of
from collir.synthesis.programs.pipelines import (
    Pipelines,
    chunk_counts,
    in_chunks,
    least_on,
    pipelined,
)
from collir.synthesis.programs.search_options import SearchOptions
from collir.synthesis.programs.states import StatePaths, is_unordered
from collir.synthesis.programs.steps import StepSequence
from collir.tools.api import run_passes

MODELS = ("alpha-beta", "p2", "nccl")


# --- against all paths --------------------------------------------------------------------------


class Case(NamedTuple):
    """Two layouts between which the order of shards is kept."""

    mesh: Mesh
    source: DistType
    target: DistType
    model: CostModel
    scale: float

    def paths(self, chunks: int) -> StatePaths:
        """Return the programs on one of so many chunks."""
        scale = self.scale / chunks
        return StatePaths(self.mesh, self.source, self.target, self.model, scale=scale)


def random_case(rng: random.Random) -> Case:
    """Return a case on a mesh that is mostly of switches without latencies."""
    while True:
        mesh = quick_mesh(rng)
        x = states(rng, mesh, random_shape(rng), DType.F32)
        y = further(rng, mesh, x)
        if x != y and is_unordered(x, y):
            model = CostModel(rng.choice(MODELS))
            return Case(mesh, x, y, model, rng.choice([1.0, 1e3, 1e6]))


def ways_of(paths: StatePaths, most: int = 2000) -> list[Way]:
    """Return all paths; none if there are too many."""
    try:
        return all_paths(paths, most)
    except TooManyError:
        return []


def assert_best(rng: random.Random) -> int:
    """Check that the first program has the best formula of all paths; return their number."""
    case = random_case(rng)
    chunks = rng.choice([2, 3, 4, 6, 8, 16, 64])
    paths = case.paths(chunks)
    ways = ways_of(paths)
    if not ways:
        return 0
    best = min(formula(way.costs, chunks) for way in ways)
    problem = Pipelines(paths, chunks)
    solutions = k_best(problem, 3, order="best-first", progress=False).solutions
    programs = [candidate_of(paths, solution.node) for solution in solutions]
    values = [formula(program.costs, chunks) for program in programs]
    assert values[0] == pytest.approx(best, rel=1e-6, abs=0), case
    for solution, value in zip(solutions, values, strict=True):
        assert solution.node.bound == pytest.approx(value, rel=1e-6, abs=0), case
    assert values == pytest.approx(sorted(values), rel=1e-6, abs=0)
    known = {way.steps for way in ways}
    assert all(program.steps in known for program in programs)
    return len(ways)


@given(rng=RANDOM)
@settings(max_examples=12)
def test_the_first_is_the_best_of_all_paths(rng: random.Random) -> None:
    assert_best(rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_first_is_the_best_of_all_paths_of_more_cases(seed: int) -> None:
    rng = fresh(seed)
    assert sum(assert_best(rng) > 1 for _ in range(1000)) > 500


def assert_bounds(rng: random.Random) -> None:
    """Check that no program is below ``least``, on one or more chunks.

    Programs that the search would not choose are checked too.
    """
    case = random_case(rng)
    most = rng.choice([2, 4, 16])
    synthesis = synthesise(*case[:4], chunks=most, top=5, scale=case.scale)
    times = [candidate.time for candidate in synthesis.candidates]
    assert times == pytest.approx(sorted(times), rel=1e-8, abs=0)
    paths = case.paths(1)
    least = synthesis.least * (1 - 1e-8)
    assert all(time >= least for time in times), case
    for chunks in (1, *chunk_counts(most, paths.most_chunks())):
        ways = [way for way in ways_of(case.paths(chunks), 300) if way.costs]
        for way in rng.sample(ways, min(20, len(ways))):
            time = in_chunks(StepSequence(case.mesh, way.steps, way.costs), chunks).time
            assert time >= least, (case, chunks, way.steps)
            assert time <= chunks * sum(cost.time for cost in way.costs) * (1 + 1e-9)


@given(rng=RANDOM)
@settings(max_examples=9)
def test_no_program_takes_less_than_the_least(rng: random.Random) -> None:
    assert_bounds(rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_program_of_more_cases_takes_less_than_the_least(seed: int) -> None:
    rng = fresh(seed)
    for _ in range(300):
        assert_bounds(rng)


def assert_busy(case: Case) -> int:
    """Check that no bound on the load of a port is above its load; return how many steps there are.

    For NCCL's trees, the bound is no more than the time of the step.
    """
    paths, count = case.paths(1), 0
    ports = paths.ports
    for state in (paths.start(), *paths.graph.first):
        for least, edge in paths.edges(state):
            costed = paths.costed(edge) if edge.kind else None
            if costed is None:
                continue
            _, collective, time = costed
            assert least <= time * (1 + 1e-7)
            known = step_cost(collective, case.model)
            real = loads(known)
            if known.algorithm.startswith("double_binary_tree") and case.model.model == "nccl":
                real = [known.time for _ in real]
            busy = ports.busy(edge.kind, edge.group, edge.at_root, edge.size).tolist()
            for level, bound in zip(ports.levels, busy, strict=True):
                assert bound <= real[level] * (1 + 1e-9), (case, edge)
            count += 1
    return count


@given(rng=RANDOM)
@settings(max_examples=12)
def test_ports_are_busy_for_as_long_as_the_search_says(rng: random.Random) -> None:
    assert_busy(random_case(rng))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_ports_of_more_steps_are_busy_for_as_long_as_the_search_says(seed: int) -> None:
    rng = fresh(seed)
    assert sum(assert_busy(random_case(rng)) for _ in range(500)) > 5000


@pytest.mark.parametrize(
    ("most", "units", "counts"),
    [
        (1, 100, []),
        (16, 1, []),
        (5, 7, [2, 3, 4]),
        (16, 2**20, [2, 4, 8, 16]),
        (16, 3 * 2**20, [2, 3, 4, 6, 8, 12, 16]),
        (16, 5, [2, 3, 4]),
        (16, 10, [2]),
    ],
)
def test_numbers_of_chunks_divide_if_any_does(most: int, units: int, counts: list[int]) -> None:
    assert chunk_counts(most, units) == counts


@given(rng=RANDOM)
@settings(max_examples=12)
def test_every_step_of_every_chunk_is_written_once_and_in_its_order(rng: random.Random) -> None:
    """The steps of a chunk keep the order of the program."""
    case = random_case(rng)
    chunks = rng.choice([2, 3, 4])
    for candidate in pipelined(case.paths(chunks), chunks).candidates:
        assert candidate.pipeline is not None
        assert sorted(candidate.pipeline.order) == [
            (chunk, place) for chunk in range(chunks) for place in range(len(candidate.steps))
        ]
        for chunk in range(chunks):
            own = [place for number, place in candidate.pipeline.order if number == chunk]
            assert own == sorted(own)


# --- as operations ------------------------------------------------------------------------------


PACKING = (
    OPERATIONS["transpose"],
    OPERATIONS["concat"],
    OPERATIONS["pad"],
    OPERATIONS["slice"],
)


def parts_of(module: ModuleOp) -> list[int]:
    """Return the number of elements of each chunk that is concatenated; none if there are none."""
    [function] = functions_of(module)
    joins = [op for op in function.body.ops if isinstance(op, OPERATIONS["concat"])]
    return [dist_type(value).elements for op in joins for value in op.operands]


def built(case: Case, way: Way, chunks: int) -> tuple[ModuleOp, float]:
    """Return a path on chunks as a function, and the seconds of its schedule."""
    candidate = in_chunks(StepSequence(case.mesh, way.steps, way.costs), chunks)
    builder = FunctionBuilder(case.mesh, [case.source])
    steps, pipeline = candidate.steps, candidate.pipeline
    plan = planned(case.mesh, case.source, steps, case.target, pipeline)
    ops, value = plan.built_on(builder.values[0])
    for op in ops:
        builder.block.add_op(op)
    module = module_of([case.mesh], [builder.function([value])])
    verify(module)
    return module, candidate.time


def as_redistribute(case: Case) -> ModuleOp:
    """Return the case as a function of one redistribute."""
    builder = FunctionBuilder(case.mesh, [case.source])
    to = coll.DistTensorType(case.target)
    value = builder.try_op(OPERATIONS["redistribute"], builder.values, {"to": to})
    assert value is not None
    return module_of([case.mesh], [builder.function([value])])


def assert_same(after: ModuleOp, before: ModuleOp) -> None:
    [new], [old] = functions_of(after), functions_of(before)
    assert agree(
        results_on_all_devices(after, new, seed=4),
        results_on_all_devices(before, old, seed=4),
        mesh_of(old).devices,
    ), write(after)


def assert_built(rng: random.Random) -> int:
    """Check that any paths on any number of chunks compute the right result; return how many."""
    case = random_case(rng)._replace(scale=1.0)
    most = case.paths(1).most_chunks()
    if most < 2:
        return 0
    chunks = rng.randint(2, min(most, 9))
    ways = [way for way in ways_of(case.paths(chunks)) if way.costs]
    chosen = rng.sample(ways, min(2, len(ways)))
    for way in chosen:
        module, time = built(case, way, chunks)
        assert_same(module, as_redistribute(case))
        sending = [step for step in way.steps if step.does.sends]
        assert marked(module) == chunks * len(sending)
        parts = parts_of(module)
        assert len(parts) == chunks
        assert len(set(parts)) == 1
        packed = any(isinstance(op, OPERATIONS["transpose"]) for op in module.walk())
        padded = case.paths(1).padding > 1 or most % chunks
        if not padded and not packed:
            [simulation] = simulate(module, case.model)
            assert simulation.time_before_copies == pytest.approx(time, rel=1e-9, abs=0), write(
                module
            )
    return len(chosen)


@given(rng=RANDOM)
@settings(max_examples=12)
def test_any_path_on_any_number_of_chunks_is_right(rng: random.Random) -> None:
    """Paths that no search would choose are right too.

    Where chunks are even, and nothing is packed between the steps, a path costs what its schedule
    says.
    """
    assert_built(rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_more_paths_on_any_number_of_chunks_are_right(seed: int) -> None:
    rng = fresh(seed)
    assert sum(assert_built(rng) for _ in range(600)) > 600


# --- decomposed ---------------------------------------------------------------------------------


def assert_decomposed(rng: random.Random, dtype: DType) -> bool:
    """Check the best program of one operation; return whether it is in chunks."""
    mesh = quick_mesh(rng)
    make = rng.choice([redistribution, collective])
    before = module_of([mesh], [make(rng, mesh, "f", dtype)])
    model = rng.choice(["p2", "p2", *MODELS])
    plain = run_passes(before.clone(), f"decompose{{model={model}}}")
    chunks = rng.choice([2, 3, 4, 8, 16, 64])
    after = run_passes(before.clone(), f"decompose{{model={model} chunks={chunks}}}")
    verify(after)
    if not marked(after):
        assert write(after) == write(plain)
        return False
    assert_same(after, before)
    assert 2 <= len(parts_of(after)) <= chunks
    [chunked], [unchunked] = (simulate(x, CostModel(model)) for x in (after, plain))
    assert chunked.time <= unchunked.time * (1 + 1e-9), write(before)
    assert chunked.bound <= chunked.time * (1 + 1e-9)
    return True


@given(rng=RANDOM)
@settings(max_examples=12)
def test_decomposed_operations_compute_the_same_and_cost_no_more(rng: random.Random) -> None:
    assert_decomposed(rng, rng.choice([DType.I32, DType.I32, DType.F32, DType.BF16]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_more_decomposed_operations_compute_the_same_and_cost_no_more(seed: int) -> None:
    rng = fresh(seed)
    assert sum(assert_decomposed(rng, rng.choice(list(DType))) for _ in range(1500)) > 50


def assert_programs(rng: random.Random) -> int:
    """Check programs whose values come from chunks and go into chunks, also when cleaned up.

    Returns: how many collectives are in chunks.
    """
    mesh = quick_mesh(rng)
    functions = [random_function(rng, mesh, 5, f"f{index}", nested=False) for index in range(2)]
    before = module_of([mesh], functions)
    chunks = rng.choice([2, 3, 4, 8])
    passes = f"decompose{{model=p2 chunks={chunks} top={rng.choice([1, 2])}}}"
    after = run_passes(before.clone(), passes)
    clean = run_passes(after.clone(), "canonicalize,cse,dce")
    for module in (after, clean) if marked(after) else ():
        verify(module)
        assert write(read(write(module))) == write(module)
        assert hazards(module) == [], write(module)
        for old in functions_of(before):
            name = old.sym_name.data
            for new in functions_of(module):
                if new.sym_name.data.partition("_")[0] == name:
                    results = results_on_all_devices(module, new, seed=6)
                    expected = results_on_all_devices(before, old, seed=6)
                    assert agree(results, expected, mesh.devices), write(module)
    return marked(after)


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=8)
def test_whole_programs_compute_the_same(rng: random.Random) -> None:
    assert_programs(rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_more_whole_programs_compute_the_same(seed: int) -> None:
    rng = fresh(seed)
    assert sum(assert_programs(rng) > 0 for _ in range(300)) > 20


TWO_AND_THREE = """\
machine @k {
  level a[2] { port = 1 GB/s, latency = 1 us }
  level b[4] { port = 3 GB/s, latency = 1 us }
}
mesh @m on @k { x = a:2 * b:4 }
func @f(%x: f32[SHAPE] partial(sum: x)) -> f32[SHAPE] on @m {
  %r = all_reduce %x over x
  return %r
}
"""


def nothing(*_: object) -> float:
    """Return a bound that excludes nothing."""
    return 0.0


@pytest.mark.turns
def test_a_program_that_cannot_be_the_best_is_not_scheduled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No schedule is below the bound of its busiest stream.

    The best programs are those that are found if all are scheduled.
    """
    scheduled: list[int] = []

    def counted(candidate: StepSequence, chunks: int) -> StepSequence:
        scheduled.append(chunks)
        on_chunks = in_chunks(candidate, chunks)
        assert on_chunks.pipeline is not None
        assert least_on(candidate.costs, chunks) <= on_chunks.pipeline.time * (1 + 1e-9)
        return on_chunks

    monkeypatch.setattr(pipelines, "in_chunks", counted)
    [function] = functions_of(collir.parse(TWO_AND_THREE.replace("SHAPE", "786432")))
    op = next(op for op in function.body.ops if isinstance(op, DistOp))
    pruned = search_programs(op, SearchOptions(CostModel("alpha-beta"), chunks=512)).candidates
    few = len(scheduled)
    monkeypatch.setattr(pipelines, "least_on", nothing)
    assert (
        search_programs(op, SearchOptions(CostModel("alpha-beta"), chunks=512)).candidates == pruned
    )
    assert few < (len(scheduled) - few) / 2


@pytest.mark.turns
@pytest.mark.parametrize("shape", ["3, 65536", "20, 4096", "786432", "1000003", "7, 11, 13, 17"])
@pytest.mark.parametrize("model", MODELS)
def test_more_chunks_are_no_worse(shape: str, model: str) -> None:
    """A larger limit on chunks never makes a program slower."""
    before = collir.parse(TWO_AND_THREE.replace("SHAPE", shape))
    times: list[float] = []
    for chunks in (1, 2, 4, 6, 16):
        after = run_passes(before.clone(), f"decompose{{model={model} chunks={chunks}}}")
        [simulation] = simulate(after, CostModel(model))
        times.append(simulation.time)
    assert times == pytest.approx(sorted(times, reverse=True), rel=1e-9, abs=0)


@pytest.mark.parametrize(("chunks", "expected"), [(1, 18.0e-3), (2, 15.0e-3)])
def test_the_time_of_chunks_is_that_of_a_pipeline(chunks: int, expected: float) -> None:
    """The time is computed by hand, for 12 MB.

    Inside a node, 3/4 of the bytes are sent at 3 GB/s. Outside, a fourth of the bytes of each of
    four devices goes through one port of 1 GB/s, and keeps 1/12 of each device's own port busy.

    In two chunks the steps of each take 1.5, 6 and 1.5 ms. A step inside that runs beside one
    outside gets the other 11/12 of a port: the messages of the outer step wait for the port
    outside, so the inner step is not slowed down. So the steps outside follow each other, and the
    steps end at 1.5, 1.5 + 6, 7.5 + 6, and 1.5 more.
    """
    text = TWO_AND_THREE.replace("SHAPE", "3000000").replace("1 us", "0 s")
    after = run_passes(collir.parse(text), f"decompose{{model=p2 chunks={chunks}}}")
    [simulation] = simulate(after, CostModel("p2"))
    assert [step.collective.kind for step in simulation.collectives].count("all_reduce") == chunks
    assert marked(after) == (3 * chunks if chunks > 1 else 0)
    assert simulation.time == pytest.approx(expected, rel=1e-9)


# --- on ranks -----------------------------------------------------------------------------------


def in_chunks_on(ranks: int, seed: int, count: int) -> tuple[ModuleOp, list[FuncOp], list[FuncOp]]:
    """Return operations whose best programs are in chunks.

    Returns: a module of the programs, the operations as they were, and their programs.
    """
    rng = fresh(seed)
    meshes = [quick_mesh(rng, ranks, f"m{index}") for index in range(4)]
    programs = module_of(meshes, [])
    before: list[FuncOp] = []
    after: list[FuncOp] = []
    dtypes = [DType.I32, DType.I64, DType.F32, DType.F64, DType.BF16]
    while len(after) < count:
        mesh = rng.choice(meshes)
        make = rng.choice([redistribution, collective])
        original = make(rng, mesh, f"f{len(after)}", rng.choice(dtypes))
        module = module_of([mesh], [original])
        options = f"model=p2 chunks={rng.choice([2, 3, 4, 8])}"
        try:
            changed = run_passes(module.clone(), f"decompose{{{options}}}")
        except DiagnosticError:
            continue
        if not marked(changed):
            continue
        [function] = functions_of(changed)
        function.detach()
        programs.body.block.add_op(function)
        after.append(function)
        before.append(original)
    return programs, before, after


def assert_right_on_ranks(ranks: int, seed: int, count: int, target: str, folder: Path) -> None:
    """Check code on ranks against the executor on the operations, and on their programs."""
    module, before, after = in_chunks_on(ranks, seed, count)
    assert hazards(module) == []
    if target == "mpi":
        assert on_ranks.differences(module, after, folder) == []
    else:
        assert on_fake_nccl.differences(module, after, folder, target) == []
    for old, new in zip(before, after, strict=True):
        arguments = on_ranks.arguments_of(old)
        own = module_of([mesh_of(old)], [old.clone()])
        expected = execute(own, functions_of(own)[0], arguments)
        results = execute(module, new, arguments)
        rounded = 0 if exact(new) and exact(old) else roundings(new) + roundings(old)
        for result, right in zip(results, expected, strict=True):
            pairs = zip(result, right, strict=True)
            assert all(on_ranks.same(a, b, rounded) for a, b in pairs), write(own)


@pytest.mark.turns
@pytest.mark.parametrize(
    ("ranks", "seed", "target"),
    some([(8, 0, "mpi"), (6, 2, "nccl"), (4, 3, "nccl{symmetric=true}")], 1, "on ranks"),
)
def test_on_ranks(ranks: int, seed: int, target: str, tmp_path: Path) -> None:
    assert_right_on_ranks(ranks, seed, 5, target, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [4, 6, 8, 9, 12, 16])
@pytest.mark.parametrize("target", ["mpi", "nccl", "nccl{symmetric=true}"])
def test_more_on_ranks(ranks: int, target: str, tmp_path: Path) -> None:
    assert_right_on_ranks(ranks, 100 + ranks, 60, target, tmp_path)


def test_on_one_device_nothing_is_sent() -> None:
    module = collir.parse("""\
machine @c { level gpu[1] { port = 1 GB/s, latency = 1 us } }
mesh @m on @c { x = gpu:1 }
func @f(%x: f32[2]) -> f32[2] on @m {
  %0 = redistribute %x to f32[2]
  return %0
}
""")
    collir.run_passes(module, "decompose{chunks=4}")
    (simulation,) = collir.simulate(module)
    assert simulation.time == 0.0
