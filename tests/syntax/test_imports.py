"""Functions that are taken from another file are those that stand in the file itself."""

from pathlib import Path

import pytest
from programs import module_of, random_function, random_mesh
from seeds import fresh

import collir
from collir.ir.functions import functions_of
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
