"""Programs that were searched for, as operations: they are well typed and compute the same."""

import random
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh, some
from support.programs.collectives import (
    RANDOM,
    FunctionBuilder,
    Move,
    axis_moves,
    module_of,
    permutes,
    random_layout,
    random_mesh,
)
from support.semantics.checks import agree, functions_of, results_on_all_devices
from support.targets.on_ranks import arguments_of, results_on_ranks, same
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.printer import Printer

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate
from collir.dialects import coll
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp, is_placeholder
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.diagnostics import DiagnosticError, Sources
from collir.ir.verification import verify
from collir.layout import Dim, DistType, DType, Mesh, Reduction, at_root
from collir.semantics.reference.exactness import exact, roundings
from collir.semantics.reference.executor import execute
from collir.syntax.mlir import read_mlir
from collir.syntax.reader import read
from collir.syntax.writer import settle_names, write
from collir.synthesis.programs.cheapest import synthesise
from collir.synthesis.programs.decomposing import decompose_by_search
from collir.synthesis.programs.search_options import SearchOptions
from collir.tools.api import context, run_passes

MODELS = ("p2", "alpha-beta", "nccl")


# --- random operations ----------------------------------------------------------------------------


def placed_mesh(rng: random.Random, devices: int | None = None, name: str = "m") -> Mesh:
    """Return a mesh of several devices that is placed."""
    while True:
        mesh = random_mesh(rng, devices, name)
        if mesh.placed and mesh.by_name:
            return mesh


def other_layout(rng: random.Random, mesh: Mesh, x: DistType) -> DistType:
    """Return another type of the same shape and dtype."""
    dims = [Dim(dim.size) for dim in x.dims]
    sets: dict[str, set[str]] = {"P": set(), "M": set()}
    names = list(mesh.by_name)
    rng.shuffle(names)
    for axis in names:
        state = rng.choice("RRSSSSSMMP" if rng.random() < 0.3 else "RRSSSSM")
        if state in sets:
            sets[state].add(axis)
        elif state == "S" and dims:
            place = rng.randrange(len(dims))
            size, axes = dims[place].size, (*dims[place].axes, axis)
            if size % mesh.group_size(axes) == 0:
                dims[place] = Dim(size, axes)
    partial = frozenset(sets["P"])
    kept = x.reduction if partial & x.partial else None
    reduction = (kept or rng.choice([Reduction.SUM, Reduction.PROD])) if partial else None
    return DistType(x.dtype, tuple(dims), partial, reduction, at_root(sets["M"]))


def redistribution(rng: random.Random, mesh: Mesh, name: str, dtype: DType) -> FuncOp:
    """Return a function of one redistribute."""
    while True:
        x = random_layout(rng, mesh, dtype)
        builder = FunctionBuilder(mesh, [x], name)
        to = DistTensorType(other_layout(rng, mesh, x))
        value = builder.try_op(OPERATIONS["redistribute"], builder.values, {"to": to})
        if value is not None and x.elements <= 4096 and dist_type(value) != x:
            return builder.function([value])


def collective(rng: random.Random, mesh: Mesh, name: str, dtype: DType) -> FuncOp:
    """Return a function of one collective of any kind; its shape seldom divides further."""
    kinds = [
        op
        for op in coll.COLLECTIVES
        if op.KIND.is_searched or (op.KIND.layout_only and op.KIND.before is None)
    ]
    while True:
        x = random_layout(rng, mesh, dtype)
        if x.elements > 4096:
            continue
        kind = rng.choice(kinds)
        moves: list[Move] = [m for m in axis_moves(mesh, len(x.dims)) if m.op is kind]
        if kind is OPERATIONS["permute"]:
            moves = list(permutes(mesh, x))
        rng.shuffle(moves)
        builder = FunctionBuilder(mesh, [x], name)
        for move in moves:
            value = builder.try_move(builder.values[0], move)
            if value is not None:
                return builder.function([value])


def any_function(rng: random.Random, mesh: Mesh, name: str, dtype: DType) -> FuncOp:
    """Return a function of one redistribute or collective."""
    make = redistribution if rng.random() < 0.5 else collective
    return make(rng, mesh, name, dtype)


def decomposed(module: ModuleOp, rng: random.Random, options: str = "") -> ModuleOp:
    """Return a copy with the cheapest programs under a model; ``options`` begins with a space."""
    return run_passes(module.clone(), f"decompose{{model={rng.choice(MODELS)}{options}}}")


# --- in the numpy executor ------------------------------------------------------------------------


def assert_round_trips(module: ModuleOp) -> None:
    """Check that a module survives printing and parsing, as ``.coll`` and as MLIR."""
    text = write(module)
    assert write(read(text)) == text
    settle_names(module)
    output = StringIO()
    Printer(output).print_op(module)
    parsed = read_mlir(context(), output.getvalue(), "<mlir>", Sources())
    verify(parsed)
    assert write(parsed) == text


def assert_decomposed(rng: random.Random, dtype: DType) -> int:
    """Check the best programs for one operation; return how many there are."""
    mesh = placed_mesh(rng)
    module = module_of([mesh], [any_function(rng, mesh, "f", dtype)])
    after = decomposed(module, rng, " top=3")
    verify(after)
    assert not any(isinstance(op, OPERATIONS["redistribute"]) for op in after.walk())
    assert_round_trips(after)
    [before] = functions_of(module)
    expected = results_on_all_devices(module, before, seed=4)
    programs = functions_of(after)
    for program in programs:
        assert program.function_type == before.function_type
        results = results_on_all_devices(after, program, seed=4)
        assert agree(results, expected, mesh.devices), write(after)
    return len(programs)


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=20)
def test_the_best_programs_compute_the_same(rng: random.Random) -> None:
    assert_decomposed(rng, rng.choice([DType.I32, DType.I32, DType.F32, DType.BF16]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_best_programs_of_more_operations_compute_the_same(seed: int) -> None:
    rng = fresh(seed)
    counted = Counter(assert_decomposed(rng, rng.choice(list(DType))) for _ in range(2000))
    assert counted[3] > 500


# --- what they cost, and need ---------------------------------------------------------------------


@given(rng=RANDOM)
@settings(max_examples=36)
def test_nothing_costs_more_than_before(rng: random.Random) -> None:
    """Costs include padding, of small values of odd sizes too."""
    mesh = placed_mesh(rng)
    module = module_of([mesh], [collective(rng, mesh, "f", DType.F32)])
    name = rng.choice(MODELS)
    model = CostModel(name)
    try:
        [before] = simulate(module, model)
    except DiagnosticError:  # the model has no cost for it
        return
    [after] = simulate(run_passes(module.clone(), f"decompose{{model={name}}}"), model)
    assert after.time <= before.time * (1 + 1e-9)


ROOTED = """\
machine @k { level l0[15] { port = 1 GB/s, latency = 0 s, kind = ring } }
mesh @m on @k { x = l0:15 }
func @f(%0: bf16[] root(x)) -> bf16[] on @m {
  %1 = broadcast %0 over x
  return %1
}
"""

REDUCED = """\
machine @k {
  level l0[6] { port = 12.5 GB/s, latency = 1 us }
  level l1[2] { port = 1 GB/s, latency = 1 us }
}
mesh @m on @k { x = l0:3 * l1:2, z = l0:2 }
func @f(%0: f32[2] partial(max: x)) -> f32[2] on @m {
  %1 = all_reduce %0 over x
  return %1
}
"""


@pytest.mark.parametrize(("text", "model"), [(ROOTED, "alpha-beta"), (REDUCED, "p2")])
def test_padding_is_no_way_to_save(text: str, model: str) -> None:
    """Padding is sent too: an element that becomes fifteen is no cheaper."""
    module = read(text)
    [before] = simulate(module, CostModel(model))
    [after] = simulate(run_passes(module, f"decompose{{model={model}}}"), CostModel(model))
    assert after.time <= before.time * (1 + 1e-9)


PADDING = (OPERATIONS["pad"], OPERATIONS["reshape"])


@given(rng=RANDOM)
@settings(max_examples=27)
def test_operations_cost_and_need_what_was_found(rng: random.Random) -> None:
    """The time of the search is that of the operations, where nothing is padded.

    No step that sends or cuts needs more memory than the limit; a keep_root needs none.
    """
    mesh = placed_mesh(rng)
    function = any_function(rng, mesh, "f", DType.F32)
    source, target = dist_type(function.args[0]), DistType(DType.F32, ())
    for op in function.body.ops:
        if isinstance(op, DistOp):
            target = dist_type(op.result)
    share = rng.choice([0.5, 1.0, 1.0, 1.5, 2.0, 4.0])
    limit = share * (source.local_bytes(mesh) + target.local_bytes(mesh))
    name = rng.choice(MODELS)
    module = module_of([mesh], [function])
    options = f"model={name} top=2 memory={share}"
    try:
        after = run_passes(module, f"decompose{{{options}}}")
    except DiagnosticError:  # there is no program within so much
        assert synthesise(mesh, source, target, CostModel(name), memory=limit).candidates == ()
        return
    candidates = synthesise(mesh, source, target, CostModel(name), 2, limit).candidates
    if not candidates or any(isinstance(op, PADDING) for op in after.walk()):
        return
    for function in functions_of(after):
        ops = [op for op in function.body.ops if isinstance(op, DistOp)]
        sending = [op for op in ops if isinstance(op, coll.COLLECTIVES)]
        if len(sending) == 1:  # it may be as it was written, whatever it needs
            continue
        for op in ops:
            if isinstance(op, (*coll.COLLECTIVES, OPERATIONS["slice"])):
                ends = (dist_type(op.operands[0]), dist_type(op.result))
                assert sum(x.local_bytes(mesh) for x in ends) <= limit, write(after)
    best, *_ = simulate(after, CostModel(name))
    if len(best.collectives) != 1:
        assert best.time == pytest.approx(candidates[0].time, rel=1e-9)


# --- on real ranks --------------------------------------------------------------------------------


def assert_right_on_ranks(ranks: int, seed: int, count: int, folder: Path) -> None:
    """Check the best programs of all models for some operations, in one launch."""
    rng = fresh(seed)
    meshes = [placed_mesh(rng, ranks, f"m{index}") for index in range(3)]
    dtypes = [DType.I32, DType.I64, DType.F32, DType.F64]
    functions = [
        any_function(rng, rng.choice(meshes), f"f{index}", rng.choice(dtypes))
        for index in range(count)
    ]
    original = module_of(meshes, functions)
    programs = module_of(meshes, [])
    listed: list[tuple[FuncOp, FuncOp]] = []
    for model in MODELS:
        after = run_passes(original.clone(), f"decompose{{model={model}}}")
        for before, function in zip(functions, functions_of(after), strict=True):
            name = f"{before.sym_name.data}_{model.replace('-', '_')}"
            function.properties["sym_name"] = StringAttr(name)
            function.detach()
            programs.body.block.add_op(function)
            listed.append((before, function))
    all_results = results_on_ranks(programs, [function for _, function in listed], folder)
    for (before, function), results in zip(listed, all_results, strict=True):
        expected = execute(original, before, arguments_of(before))
        rounded = 0 if exact(function) and exact(before) else roundings(function)
        for result, right in zip(results, expected, strict=True):
            pairs = zip(result, right, strict=True)
            wrong = [rank for rank, pair in enumerate(pairs) if not same(*pair, rounded)]
            assert wrong == [], f"{write(module_of([mesh_of(before)], [function.clone()]))}"


@pytest.mark.turns
@pytest.mark.parametrize(
    ("ranks", "seed"),
    some([(4, 0), (6, 1), (8, 2), (12, 3), (16, 4)], 1, "ranks"),
)
def test_on_real_ranks(ranks: int, seed: int, tmp_path: Path) -> None:
    assert_right_on_ranks(ranks, seed, 60, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16])
@pytest.mark.parametrize("seed", [100, 101])
def test_more_on_real_ranks(ranks: int, seed: int, tmp_path: Path) -> None:
    assert_right_on_ranks(ranks, seed, 100, tmp_path)


MANY = """\
machine @c {
  level pod[2]  { port =   6 GB/s, latency = 30 us }
  level node[4] { port =  25 GB/s, latency = 15 us }
  level gpu[8]  { port = 300 GB/s, latency =  3 us }
}
mesh @m on @c { a = pod:2 * node:2 * gpu:2, b = node:2 * gpu:2, c = gpu:2 }
"""


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("bf16[64@(a, b), 64@c]", "bf16[64@b, 64@(c, a)]"),
        (
            "f32[64@a.pod, 64@a.node] partial(sum: c, b.gpu) root(b.node)",
            "f32[64@(c, a.pod), 64@a.gpu] root(a.node)",
        ),
        ("f32[64@(a.pod, a.gpu), 64@(a.node, b)]", "f32[64@b, 64]"),
        ("i32[64@(a, b, c)]", "i32[64@(c, b, a)]"),
    ],
)
@pytest.mark.parametrize("limit", ["0.2", pytest.param("1", marks=pytest.mark.slow)])
def test_redistributions_over_many_sub_axes_end_in_time(
    source: str, target: str, limit: str
) -> None:
    """With more sub-axes than a search sees the end of, what is found in time is right; there is
    always something."""
    text = f"{MANY}func @f(%x: {source}) -> {target} on @m {{\n"
    before = read(f"{text}  %r = redistribute %x to {target}\n  return %r\n}}\n")
    wanted = SearchOptions(CostModel("alpha-beta", order="written"), seconds=float(limit))
    after = before.clone()
    decompose_by_search(after, wanted)
    verify(after)
    [old], [new] = functions_of(before), functions_of(after)
    assert agree(
        results_on_all_devices(after, new, seed=3),
        results_on_all_devices(before, old, seed=3),
        mesh_of(old).devices,
    )


@pytest.mark.turns
def test_every_function_gets_programs_for_larger_values() -> None:
    """Functions that are added for larger values do not take the turn of those behind them."""
    text = (Path(__file__).parents[2] / "examples" / "redistribute.coll").read_text()
    module = read(text, "redistribute.coll", Sources())
    names = [function.sym_name.data for function in functions_of(module)]
    run_passes(module, "decompose{up_to=64}")
    decomposed = [f for f in functions_of(module) if f.sym_name.data in names]
    assert [function.sym_name.data for function in decomposed] == names
    assert not any(map(is_placeholder, module.walk()))
