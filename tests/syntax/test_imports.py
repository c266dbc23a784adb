"""Functions that are taken from another file are those that stand in the file itself."""

from pathlib import Path

import pytest
from support.harness.seeds import fresh
from support.programs.collectives import module_of, random_function, random_mesh, random_module
from support.semantics.checks import agree, results_on_all_devices
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import MeshOp, mesh_of
from collir.dialects.nested import CallOp
from collir.ir.functions import functions_of
from collir.ir.parameters import parameters_of
from collir.syntax.writer import write

BOX = "machine @box { level gpu[4] { port = 8 GB/s, latency = 20 us } }\n"


@pytest.mark.parametrize("seed", range(12))
def test_imported_functions_are_those_of_the_file(seed: int, tmp_path: Path) -> None:
    rng = fresh(seed)
    mesh = random_mesh(rng)
    names = ("f", "g")
    module = module_of([mesh], [random_function(rng, mesh, 6, name) for name in names])
    text = write(module)
    head = write(module_of([mesh], []))
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / "library.coll"
    library.write_text(text, encoding="utf-8")
    way = tmp_path / "way.coll"
    way.write_text('func @k = @g on @x from "lib/library.coll"\n', encoding="utf-8")
    main = tmp_path / "main.coll"
    taken = 'func @f = @f on @m from "lib/library.coll"\nfunc @g = @k on @m from "way.coll"\n'
    main.write_text(head + taken, encoding="utf-8")
    imported = collir.parse(main)
    assert write(imported) == text
    assert write(collir.parse(write(imported))) == text


def calls_in(function: FuncOp) -> set[str]:
    return {op.symbol for op in function.walk() if isinstance(op, CallOp)}


@pytest.mark.parametrize("seed", range(8))
def test_what_a_taken_function_calls_comes_along(seed: int, tmp_path: Path) -> None:
    """It computes the same as in its own file, whatever this file calls its functions."""
    rng = fresh(seed)
    library: ModuleOp | None = None
    while library is None or not any(map(calls_in, functions_of(library))):
        library = random_module(rng, 4, 5)
    functions = {function.sym_name.data: function for function in functions_of(library)}
    callers = [name for name, function in functions.items() if calls_in(function)]
    (tmp_path / "library.coll").write_text(write(library), encoding="utf-8")
    by_way = "".join(f'func @{name} = @{name} on @any from "library.coll"\n' for name in callers)
    (tmp_path / "way.coll").write_text(by_way, encoding="utf-8")
    taken: list[str] = []
    names: list[str] = []
    for name in callers:
        mesh, file = mesh_of(functions[name]).name, rng.choice(["library", "way"])
        own = rng.choice([name, f"my_{name}"])
        names.append(own)
        taken.append(f'func @{own} = @{name} on @{mesh} from "{file}.coll"\n')
    meshes = [op.value() for op in library.ops if isinstance(op, MeshOp)]
    (tmp_path / "main.coll").write_text(
        write(module_of(meshes, [])) + "".join(taken), encoding="utf-8"
    )
    imported = collir.parse(tmp_path / "main.coll")
    text = write(imported)
    assert write(collir.parse(text)) == text
    by_name = {function.sym_name.data: function for function in functions_of(imported)}
    for name, own in zip(callers, names, strict=True):
        expected = results_on_all_devices(library, functions[name], 1)
        actual = results_on_all_devices(imported, by_name[own], 1)
        assert agree(actual, expected, mesh_of(by_name[own]).devices)


LIBRARY = """\
func @outer(size = 8)(%x: f32[size]) -> f32[size] on @any {
  %y = call @inner(size = size)(%x)
  return %y
}
func @inner(size = 4)(%x: f32[size]) -> f32[size] on @any {
  %y = call @last(%x)
  %z = call @half(size = size)(%y)
  return %z
}
func @half(size = 4)(%x: f32[size]) -> f32[size] on @any {
  %y = scale %x by 0.5
  return %y
}
func @last = @half(size = 8) on @any
"""


def test_functions_that_come_along_get_names_that_are_free(tmp_path: Path) -> None:
    (tmp_path / "library.coll").write_text(LIBRARY.replace("call @last", "call @half(size = size)"))
    main = tmp_path / "main.coll"
    main.write_text(
        BOX
        + """mesh @m on @box { data = gpu:4 }
        mesh @half on @box { data = 2, other = 2 }
        func @f = @outer on @m from "library.coll"
        func @inner_2(%x: f32[8]) -> f32[8] on @m { return %x }
        func @inner(%x: f32[8]) -> f32[8] on @m { %y = call @f(%x) return %y }
        func @g = @outer on @half from "library.coll"
        func @h = @outer(size = 12) on @m from "library.coll"
        """
    )
    module = collir.parse(main)
    names = [function.sym_name.data for function in functions_of(module)]
    # Those on one mesh come along once; each stands behind the first function that takes it.
    assert names == ["f", "inner_3", "half_2", "inner_2", "inner", "g", "inner_4", "half_3", "h"]
    calls = {f.sym_name.data: calls_in(f) for f in functions_of(module)}
    assert calls["f"] == calls["h"] == {"inner_3"}
    assert calls["inner_3"] == {"half_2"}
    assert calls["g"] == {"inner_4"}
    half = next(f for f in functions_of(module) if f.sym_name.data == "half_2")
    assert str(half.location).startswith(f'loc("{tmp_path / "library.coll"}":10:6')


def test_a_function_of_this_file_is_called_itself(tmp_path: Path) -> None:
    """On its own mesh nothing comes along; on another mesh everything does."""
    head = BOX + "mesh @any on @box { data = 4 }\nmesh @m on @box { data = gpu:4 }\n"
    module = collir.parse(
        head
        + LIBRARY.replace("(size = 4)", "(size = 8)")
        + "func @a = @inner on @any\nfunc @b = @inner on @m\n"
    )
    calls = {f.sym_name.data: calls_in(f) for f in functions_of(module)}
    assert calls["a"] == {"last", "half"}
    assert calls["b"] == {"last_2", "half_2"}
    assert [*calls] == ["outer", "inner", "half", "last", "a", "b", "last_2", "half_2"]


def test_steps_keep_the_positions_of_their_file(tmp_path: Path) -> None:
    library = tmp_path / "library.coll"
    library.write_text(
        "func @sum(%x: f32[8] partial(sum: data)) -> f32[8] on @m {\n"
        "  %y = all_reduce %x over data\n  return %y\n}\n",
        encoding="utf-8",
    )
    main = tmp_path / "main.coll"
    text = "mesh @m on @box { data = gpu:4 }\nfunc @g = @h on @m\n"
    taken = 'func @h = @sum on @m from "library.coll"\n'
    main.write_text(BOX + text + taken, encoding="utf-8")
    for function, line in zip(functions_of(collir.parse(main)), (3, 4), strict=True):
        step = function.body.block.first_op
        assert step is not None
        assert str(step.location).startswith(f'loc("{library}":2:8')
        assert str(function.location).startswith(f'loc("{main}":{line}:6')


def test_an_import_names_axes_of_the_mesh_it_is_on(tmp_path: Path) -> None:
    """A function over three axes is taken on a mesh where one of them has size 1."""
    library = tmp_path / "library.coll"
    library.write_text(
        "func @sum(%x: f32[8@tensor] partial(sum: data, pipe)) -> f32[8@tensor] on @any {\n"
        "  %0 = all_reduce %x over pipe\n  %y = all_reduce %0 over data\n  return %y\n}\n",
        encoding="utf-8",
    )
    main = tmp_path / "main.coll"
    mesh = "mesh @m on @box { data = gpu:2, tensor = gpu:2, pipe = gpu:1 }\n"
    main.write_text(f'{BOX}{mesh}func @f = @sum on @m from "library.coll"\n', encoding="utf-8")
    assert write(collir.parse(main)).split("\n\n")[-1] == (
        "func @f(%x: f32[8@tensor] partial(sum: data)) -> f32[8@tensor] on @m {\n"
        "  %y = all_reduce %x over data\n  return %y\n}\n"
    )


def test_what_comes_along_is_checked_at_the_sizes_of_its_calls(tmp_path: Path) -> None:
    """The defaults of the library do not divide over eight devices; those of the calls do."""
    (tmp_path / "library.coll").write_text(
        """\
        func @outer(n = 2)(%x: f32[2 * n@data]) -> f32[2 * n@data] on @any {
          %y = repeat 2 carry(%h = %x) {
            %a = call @inner(size = 2 * n, times = 3)(%h)
            yield %a
          }
          return %y
        }
        func @other(n = 4)(%x: f32[n@data]) -> f32[n@data] on @any {
          %y = call @inner(size = n)(%x)
          return %y
        }
        func @inner(size = 4, times = 5)(%x: f32[size@data]) -> f32[size@data] on @any {
          %y = compute %x flops times
          return %y
        }
        """
    )
    main = tmp_path / "main.coll"
    main.write_text(
        "machine @box { level gpu[8] { port = 300 GB/s, latency = 3 us } }\n"
        "mesh @m on @box { data = gpu:8 }\n"
        'func @f = @outer(n = 12) on @m from "library.coll"\n'
    )
    module = collir.parse(main)
    inner = functions_of(module)[1]
    # Not every call names `times`, so it keeps its default.
    assert dict(parameters_of(inner)) == {"size": 24, "times": 5}
    assert write(collir.parse(write(module))) == write(module)
