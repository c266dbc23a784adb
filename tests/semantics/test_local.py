"""Programs of ranks: they compute what functions do, and the executor finds what is planted."""

import random
from collections.abc import Callable, Iterator
from functools import cache
from io import StringIO

import pytest
from hypothesis import given, settings
from support.programs.collectives import (
    RANDOM,
    module_of,
    random_function,
    random_mesh,
    random_module,
    values_that_fit,
)
from support.semantics.checks import functions_of
from support.semantics.local_programs import assert_runs, assert_same, inputs, lowered
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation
from xdsl.printer import Printer

import collir
from collir.dialects.local import (
    STEP,
    AllocOp,
    AtOp,
    ComputeOp,
    CopyOp,
    FreeOp,
    LocalFuncOp,
    LocalYieldOp,
    StartOp,
    WaitOp,
    local_functions,
)
from collir.dialects.local_types import RankNumberAttr
from collir.dialects.parameters import PARAMETERS, parameters_of
from collir.dialects.tensor import BindingsAttr
from collir.ir.diagnostics import DiagnosticError, Sources
from collir.ir.verification import verify
from collir.localize.localize import lower_functions
from collir.localize.writer import GroupRules
from collir.semantics.local.executor import execute_local
from collir.semantics.local.memory import LocalError
from collir.semantics.reference.executor import execute
from collir.syntax.mlir import read_mlir
from collir.syntax.reader import read
from collir.syntax.writer import settle_names, write
from collir.targets.code.c_file import for_code
from collir.tools.api import context
from collir.transforms.instantiation import instantiate


def check_module(module: ModuleOp, rng: random.Random) -> None:
    """Check that programs of ranks compute what the functions of a module do."""
    rules = GroupRules(ascending=rng.random() < 0.3, padded=rng.random() < 0.3)
    programs = lowered(module, rules)
    for function in functions_of(module):
        assert_runs(programs[function.sym_name.data], module, function, rng)


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=60)
def test_programs_of_ranks_compute_what_functions_do(rng: random.Random) -> None:
    check_module(random_module(rng, weights=0.3), rng)


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=30)
def test_so_do_those_of_models(rng: random.Random) -> None:
    check_module(random_module(rng, weights=0.2, models=True), rng)


def again(module: ModuleOp, rng: random.Random) -> ModuleOp:
    """Return a module of local functions, or the one that is read from one of its texts."""
    for op in module.walk():
        op.attributes.pop(STEP, None)  # a comment
    text = write(module)
    settle_names(module)
    stream = StringIO()
    Printer(stream).print_op(module)
    texts = [read(text), read_mlir(context(), stream.getvalue(), "<mlir>", Sources())]
    for other in texts:
        verify(other)
        assert write(other) == text
    return rng.choice([module, *texts])


def check_any_size(rng: random.Random) -> bool:
    """Check a program for values of any size at some values; return whether it has such a form."""
    mesh = random_mesh(rng)
    function = random_function(rng, mesh, 8, "f", parametric=1)
    module = module_of([mesh], [function])
    values = values_that_fit(rng, mesh, function, [])
    try:
        ready, _, _ = for_code(module, (), "MPI", sized=True, tasks=False)
    except DiagnosticError:
        return False
    lower_functions(ready, GroupRules(ascending=rng.random() < 0.3))
    ready.verify()
    ready = again(ready, rng)
    program = {f.sym_name.data: f for f in local_functions(ready)}["f"]
    if names := parameters_of(program):  # sizes of which none depends on a parameter have no names
        own = {**parameters_of(function), **values} or {"width": 1}
        program.attributes[PARAMETERS] = BindingsAttr(tuple(zip(names, own.values(), strict=True)))
    instantiate(module, values, "f")
    [fixed] = functions_of(module)
    arguments = inputs(fixed, rng.randrange(1000))
    expected = execute(module, fixed, arguments)
    program.verify()
    if "width" in names:
        arguments = [[x if x is None else x[..., None] for x in values] for values in arguments]
    got = execute_local(program, arguments, rng)
    if "width" in names:
        got = [[x if x is None else x[..., 0] for x in values] for values in got]
    assert_same(got, expected)
    return True


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=40)
def test_so_do_those_for_values_of_any_size(rng: random.Random) -> None:
    _ = check_any_size(rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_many_programs_of_ranks(seed: int) -> None:
    rng = random.Random(seed)
    for count in range(40):
        check_module(random_module(rng, weights=0.4, models=count % 2 == 0), rng)


# --- what the executor finds ----------------------------------------------------------------------

TEXT = """
machine @c { level node[2] { port = 8 GB/s, latency = 20 us }
             level gpu[2] { port = 80 GB/s, latency = 3 us } }
mesh @m on @c { data = node:2, model = gpu:2 }
func @f(%x: f32[4@data, 6], %y: f32[8] partial(sum: model)) -> (f32[4, 6], f32[8], f32[4@data, 6])
    on @m {
  %s = all_reduce %y over model async
  %a = relu %x
  %b = add %a, %x
  %g = all_gather %b over data dim 0
  %r = scale %s by 2
  return %g, %r, %b
}
"""


@cache
def example() -> tuple[ModuleOp, FuncOp]:
    module = collir.parse(TEXT)
    [function] = functions_of(module)
    return module, function


def run_with(change: Callable[[LocalFuncOp], None], seed: int = 0) -> None:
    """Run the example with a change of its program."""
    module, function = example()
    [program] = lowered(module).values()
    change(program)
    arguments = inputs(function, 0)
    got = execute_local(program, arguments, random.Random(seed))
    assert_same(got, execute(module, function, arguments))


def of_kind(program: LocalFuncOp, kind: type[Operation]) -> Iterator[Operation]:
    return (op for op in program.walk() if isinstance(op, kind))


def erase(op: Operation) -> None:
    op.detach()
    op.erase()


def test_the_example_runs() -> None:
    run_with(lambda program: None)


def test_a_wait_behind_a_read_is_found() -> None:
    def late(program: LocalFuncOp) -> None:
        """Wait behind the computation that reads the result."""
        wait = list(of_kind(program, WaitOp))[-1]
        last = [op for op in program.body.block.ops if isinstance(op, ComputeOp)][-1]
        wait.detach()
        program.body.block.insert_op_after(wait, last)

    with pytest.raises(LocalError, match=r"is (read|written) while a collective uses it"):
        run_with(late)


def test_memory_that_nothing_has_written_is_found() -> None:
    with pytest.raises(LocalError, match="is read before it is written"):
        run_with(lambda program: erase(next(of_kind(program, ComputeOp))))


def test_two_values_in_one_place_are_found() -> None:
    def crowd(program: LocalFuncOp) -> None:
        for op in of_kind(program, AllocOp):
            op.properties["start"] = RankNumberAttr(0)

    with pytest.raises(LocalError, match=r"lies where \S+ does"):
        run_with(crowd)


def test_an_arena_that_is_too_small_is_found() -> None:
    def shrink(program: LocalFuncOp) -> None:
        program.properties["arena"] = RankNumberAttr(4)

    with pytest.raises(LocalError, match="lies outside of the arena"):
        run_with(shrink)


def test_a_use_behind_the_end_is_found() -> None:
    def end_early(program: LocalFuncOp) -> None:
        free = next(of_kind(program, FreeOp))
        made = free.operands[0].owner
        assert isinstance(made, Operation)
        free.detach()
        program.body.block.insert_op_after(free, made)

    with pytest.raises(LocalError, match="behind its end"):
        run_with(end_early)


def test_a_result_that_is_not_written_is_found() -> None:
    def forget(program: LocalFuncOp) -> None:
        last = list(of_kind(program, CopyOp))
        erase(last[-1] if last else next(of_kind(program, ComputeOp)))

    with pytest.raises(LocalError, match="is read before it is written"):
        run_with(forget)


CROSSED = """
machine @c { level gpu[2] { port = 80 GB/s, latency = 3 us } }
mesh @m on @c { data = gpu:2 }
func @f(%x: f32[4] partial(sum: data), %y: f32[4@data]) -> (f32[4], f32[4]) on @m {
  %a = all_reduce %x over data
  %b = all_gather %y over data dim 0
  return %a, %b
}
"""


def test_a_collective_that_a_rank_leaves_out_is_found() -> None:
    """The others wait for it forever."""
    module = collir.parse(CROSSED)
    [program] = lowered(module).values()
    start, wait = next(of_kind(program, StartOp)), next(of_kind(program, WaitOp))
    start.detach()
    wait.detach()
    body = Block([start, wait, LocalYieldOp.create()])
    first = program.body.block.first_op
    assert first is not None
    program.body.block.insert_op_before(AtOp.of((("data.gpu", 1),), body), first)
    [original] = functions_of(module)
    with pytest.raises(LocalError, match=r"forever|where others"):
        execute_local(program, inputs(original, 0), random.Random(0))
