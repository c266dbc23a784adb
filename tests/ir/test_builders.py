"""Programs that are built in Python equal those that are read from text."""

import pytest
from support.harness.seeds import fresh
from support.programs.collectives import module_of, random_function, random_mesh
from xdsl.ir import SSAValue

import collir
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import PlaceAttr, dist_type
from collir.ir.builders import FunctionBuilder
from collir.ir.functions import functions_of
from collir.ir.parameters import parameters_of
from collir.ir.renaming import rename_sub_axes
from collir.layout import Axis, Dim, DistType, DType, Factor, Mesh, Reduction
from collir.machine import Level, Machine

BOX = Machine("box", (Level("node", 2, 8e9, 20e-6), Level("gpu", 4, 270e9, 3e-6)))
MESH = Mesh("m", BOX, (Axis.placed("data", [Factor("node", 2), Factor("gpu", 4)]),))


@pytest.mark.parametrize("seed", range(20))
def test_random_functions_are_built_again_from_their_arguments(seed: int) -> None:
    rng = fresh(seed)
    mesh = random_mesh(rng)
    written = random_function(rng, mesh, 8, nested=False)
    module = collir.module_of(mesh)
    f = FunctionBuilder(module, mesh.name, written.sym_name.data)
    for name, default in parameters_of(written).items():
        f.parameter(name, default)
    values: dict[SSAValue, SSAValue] = {}
    for arg in written.args:
        values[arg] = f.argument(arg.name_hint or "", dist_type(arg))
    *steps, end = written.body.ops
    for op in steps:
        assert isinstance(op, DistOp)
        keywords = {parameter.name: parameter.keyword for parameter in op.kind.parameters}
        arguments = {f"{keywords[name]}_": value for name, value in op.arguments.items()}
        operands = [values[operand] for operand in op.operands]
        values[op.result] = f.step(op.mnemonic, *operands, name=op.result.name_hint, **arguments)
    f.results(*(values[value] for value in end.operands))
    module.verify()
    assert collir.emit(module) == collir.emit(module_of([mesh], [written]))


def test_no_operation_is_hidden_by_a_method() -> None:
    f = FunctionBuilder(collir.module_of(MESH), "m", "f")
    for name in OPERATIONS:
        assert not hasattr(FunctionBuilder, name)
        assert name in dir(f)


def test_a_place_is_named_by_axes() -> None:
    module = collir.module_of(MESH)
    f = FunctionBuilder(module, "m", "f")
    x = f.keep(f.argument("x", DistType.make(DType.F32, [8])), at={"data": 5})
    assert dist_type(x) == DistType.make(DType.F32, [8], at={"data.node": 1, "data.gpu": 1})
    y = f.send(x, over="data", from_=5, to=4)
    assert dist_type(y) == DistType.make(DType.F32, [8], root=["data.gpu"], at={"data.node": 1})
    with pytest.raises(ValueError, match="data has no coordinate 8"):
        f.keep(f.argument("y", DistType.make(DType.F32, [8])), at={"data": 8})


def test_axes_may_be_lists_and_names_of_axes() -> None:
    module = collir.module_of(MESH)
    f = FunctionBuilder(module, "m", "f")
    axes = f.axes("data")
    g = f.argument("g", DistType.make(DType.F32, [8], partial=axes, reduction=Reduction.SUM))
    for over in ("data", ["data.node", "data.gpu"], ("data.node", "data.gpu")):
        y = f.all_reduce(g, over=over)
    f.results(y)
    (function,) = functions_of(module)
    assert {op.over for op in function.body.ops if isinstance(op, DistOp)} == {axes}


def test_what_is_wrong_is_said() -> None:
    f = FunctionBuilder(collir.module_of(MESH), "m", "f")
    x = f.argument("x", DistType.make(DType.F32, [8]))
    with pytest.raises(ValueError, match="mesh @m has no axis model"):
        f.slice(x, over="model", dim=0)
    with pytest.raises(ValueError, match=r"^%x is replicated over data here"):
        f.all_gather(x, over="data", dim=0)
    with pytest.raises(ValueError, match="model"):
        f.argument("y", DistType.make(DType.F32, [8], partial=["model"], reduction=Reduction.SUM))
    with pytest.raises(TypeError, match="slice needs dim="):
        f.slice(x, over="data")
    with pytest.raises(TypeError, match=r"slice has no argument to \(there are over, dim\)"):
        f.slice(x, over="data", dim=0, to=1)
    with pytest.raises(TypeError, match="by='two': number is wanted here"):
        f.scale(x, by="two")
    with pytest.raises(AttributeError, match="there is no operation 'all_redcue'"):
        f.all_redcue(x, over="data")
    with pytest.raises(KeyError, match="the module has no mesh @k"):
        FunctionBuilder(collir.module_of(MESH), "k", "f")


def test_axes_of_size_1_vanish() -> None:
    axes = (
        Axis.placed("data", [Factor("node", 2), Factor("gpu", 1)]),
        Axis.placed("model", [Factor("gpu", 4)]),
        Axis.placed("pipe", [Factor("node", 1)]),
    )
    module = collir.module_of(Mesh("m", BOX, axes))
    f = FunctionBuilder(module, "m", "f")
    named = DistType(DType.F32, (Dim(8, ("data.node", "data.gpu")), Dim(4, ("pipe",))))
    x = f.argument("x", named)
    assert dist_type(x) == DistType(DType.F32, (Dim(8, ("data.node",)), Dim(4)))
    assert f.all_gather(x, over="pipe", dim=1) is x
    assert f.all_to_all(x, over=["pipe.node", "data.gpu"], dim=1, to=0) is x
    with pytest.raises(ValueError, match="slice has no dimension 2 to work on"):
        f.slice(x, over="pipe", dim=2)
    with pytest.raises(TypeError, match="axes is wanted here"):
        f.slice(x, over=[], dim=0)
    y = f.redistribute(f.all_gather(x, over=["data", "pipe"], dim=0), to=named)
    assert dist_type(y) == dist_type(x)
    f.results(y)
    module.verify()
    (function,) = functions_of(module)
    assert [op.over for op in function.body.ops if isinstance(op, DistOp)] == [("data.node",), ()]


def named_by(op: DistOp) -> tuple[str, ...]:
    """Return the sub-axes that a step names, in a place or in order."""
    place = op.properties.get("place")
    return tuple(axis for axis, _ in place.data) if isinstance(place, PlaceAttr) else op.over


@pytest.mark.parametrize("seed", range(5))
def test_steps_vanish_whose_sub_axes_are_renamed_to_nothing(seed: int) -> None:
    rng = fresh(seed)
    while True:  # the coordinates of places have no meaning without their sub-axes
        mesh = random_mesh(rng)
        module = module_of([mesh], [random_function(rng, mesh, 8)])
        (function,) = functions_of(module)
        values = [*function.args, *(r for op in function.body.ops for r in op.results)]
        if not any(dist_type(value).place for value in values):
            break
    gone = rng.sample(sorted(mesh.by_name), rng.randint(0, len(mesh.by_name)))
    before = [named_by(op) for op in function.body.ops if isinstance(op, DistOp)]
    rename_sub_axes(function, dict.fromkeys(gone, ()), mesh, mesh)
    after = [named_by(op) for op in function.body.ops if isinstance(op, DistOp)]
    kept = [tuple(axis for axis in over if axis not in gone) for over in before]
    assert after == [over for over, old in zip(kept, before, strict=True) if over or not old]
    values = [*function.args, *(r for op in function.body.ops for r in op.results)]
    assert not {axis for value in values for axis in dist_type(value).axes}.intersection(gone)


LOOP = """
func @half(%x: f32[8]) -> (f32[8], f32[8]) on @m {
  %a = scale %x by 0.5
  return %a, %x
}

func @f(%x: f32[8], %w: f32[6, 8@data], %k: f32[8]) -> (f32[8], f32[6, 8]) on @m {
  %a, %b = repeat 6 carry(%c = %x) slice(%v = %w) with(%l = %k) reverse {
    %g = all_gather %v over data dim 0
    %s = add %g, %c
    %t = add %s, %l
    yield %t, %g
  }
  %p, %q = call @half(%a)
  return %p, %b
}
"""


def test_a_loop_and_a_call_are_built_as_they_are_written() -> None:
    module = collir.module_of(MESH)
    f = FunctionBuilder(module, "m", "half")
    x = f.argument("x", DistType.make(DType.F32, [8]))
    f.results(f.scale(x, by=0.5), x, names=["a", "x"])
    f = FunctionBuilder(module, "m", "f")
    x = f.argument("x", DistType.make(DType.F32, [8]))
    w = f.argument("w", DistType(DType.F32, (Dim(6), Dim(8, f.axes("data")))))
    k = f.argument("k", DistType.make(DType.F32, [8]))

    def body(c: SSAValue, v: SSAValue, k: SSAValue) -> list[SSAValue]:
        gathered = f.all_gather(v, over="data", dim=0)
        return [f.add(f.add(gathered, c), k), gathered]

    last, stacked = f.repeat(6, body, carry=[x], slice_=[w], with_=[k], reverse=True)
    halved, _ = f.call("half", last)
    f.results(halved, stacked, names=["p", "b"])
    module.verify()
    written = collir.parse(collir.emit(collir.module_of(MESH)) + LOOP)
    assert module.is_structurally_equivalent(written)


AT_VALUES = """
func @first(batch = 3, more = 1)(%x: f32[2 * batch]) -> f32[batch + more] on @m {
  %y = pad %x dim 0 high more - batch
  return %y
}

func @f(n = 4)(%x: f32[4 * n]) -> f32[2 * n + 1] on @m {
  %y = call @first(batch = 2 * n)(%x)
  return %y
}
"""


def test_a_call_is_built_at_values_of_parameters() -> None:
    module = collir.module_of(MESH)
    f = FunctionBuilder(module, "m", "first")
    batch, more = f.parameter("batch", 3), f.parameter("more", 1)
    x = f.argument("x", DistType.make(DType.F32, [2 * batch]))
    f.results(f.pad(x, dim=0, high=more - batch, name="y"))
    f = FunctionBuilder(module, "m", "f")
    n = f.parameter("n", 4)
    x = f.argument("x", DistType.make(DType.F32, [4 * n]))
    with pytest.raises(ValueError, match="@first has no parameter 'size': its parameters are"):
        f.call("first", x, size=2)
    with pytest.raises(ValueError, match="'more' needs a value from 1 to"):
        f.call("first", x, more=n - 4)
    with pytest.raises(
        ValueError, match=r"@first takes f32\[6\] here \(f32\[2 \* batch\]\), and %x"
    ):
        f.call("first", x)
    f.results(*f.call("first", x, batch=2 * n), names=["y"])
    module.verify()
    written = collir.parse(collir.emit(collir.module_of(MESH)) + AT_VALUES)
    assert module.is_structurally_equivalent(written)


def test_what_a_loop_or_a_call_does_not_take_is_refused() -> None:
    module = collir.module_of(MESH)
    f = FunctionBuilder(module, "m", "f")
    x = f.argument("x", DistType.make(DType.F32, [8]))
    with pytest.raises(KeyError, match="no function @g"):
        f.call("g", x)
    with pytest.raises(ValueError, match="dimension 0 of %x has size 8, but there are 6"):
        f.repeat(6, lambda *values: values, slice_=[x])
    with pytest.raises(ValueError, match="a carry has one type"):
        f.repeat(6, lambda *values: [f.cast(values[0], to="f64")], carry=[x])
    f.results(f.scale(x, by=2))
    g = FunctionBuilder(module, "m", "g")
    y = g.argument("y", DistType.make(DType.F64, [8]))
    with pytest.raises(ValueError, match="@f takes"):
        g.call("f", y)
