"""Operations of models and whole models in the target mpi, on real ranks beside the numpy
executor."""

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from support.harness.seeds import fresh, some
from support.programs import corners
from support.programs.collectives import module_of, random_function, random_mesh
from support.programs.model_operations import random_operation
from support.programs.model_pages import PAGES, SMALL, function_of, page
from support.targets.on_ranks import differences
from support.targets.training_steps import STEPS, arguments_of, assert_same, step_in_double
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.tensor import DistTensorType
from collir.ir.functions import functions_of
from collir.layout import Mesh
from collir.layout.nn_rows import NN
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.double import module_in_double
from collir.semantics.reference.executor import execute
from collir.synthesis.propagation.propagate import make_explicit
from collir.tools.mpi_run import run

WARNINGS = ("-O1", "-Wall", "-Wextra", "-Werror")


MANY = [pytest.param(n, seed, marks=pytest.mark.slow) for n in (1, 6, 8) for seed in range(3)]


@pytest.mark.turns
@pytest.mark.parametrize(("ranks", "seed"), [*some([(4, seed) for seed in range(3)], 1), *MANY])
def test_every_operation(ranks: int, seed: int, tmp_path: Path) -> None:
    """Check every row of the table on operands of random types, sharded, partial and placed."""
    rng = fresh("operations in C", ranks, seed)
    meshes = [random_mesh(rng, ranks, f"n{n}", weights=0.3 * (seed > 0)) for n in range(3)]
    functions = [
        random_operation(rng, rng.choice(meshes), name, f"{name}_{number}_")
        for number, name in enumerate([*NN, "add"])
    ]
    assert differences(module_of(meshes, functions), functions, tmp_path, WARNINGS) == []


@pytest.mark.parametrize("text", [corners.TEXT, corners.UNEVEN], ids=["alone", "uneven"])
def test_corners(text: str, tmp_path: Path) -> None:
    module = collir.parse(text)
    assert differences(module, functions_of(module), tmp_path, WARNINGS) == []


def is_printed(mesh: Mesh, function: FuncOp) -> bool:
    """Return whether a function has a form: some steps have none on axes with weights."""
    try:
        collir.emit(module_of([mesh], [function.clone()]), "mpi")
    except collir.DiagnosticError as error:
        assert mesh.uneven, error
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "weights"), [(1, 0.0), (4, 0.0), (4, 0.5), (6, 0.5), (8, 0.0), (8, 0.5)]
)
def test_random_programs(ranks: int, weights: float, tmp_path: Path) -> None:
    """Check programs with loops and collectives between operations of models."""
    rng = fresh("programs of models in C", ranks, weights)
    meshes = [random_mesh(rng, ranks, f"m{n}", weights=weights) for n in range(3)]
    functions: list[FuncOp] = []
    for number in range(24):
        mesh = rng.choice(meshes)
        function = random_function(rng, mesh, 8, f"f{number}", models=True)
        functions += [function] if is_printed(mesh, function) else []
    assert differences(module_of(meshes, functions), functions, tmp_path, WARNINGS) == []


PRODUCTS = """
machine @k {{ level a[1] {{ port = 1 GB/s, latency = 1 us }} }}
mesh @m on @k {{ x = a:1 }}
func @f(%x: {dtype}[{x}], %y: {dtype}[{y}]) -> {dtype}[{z}] on @m {{
  %z = einsum "{equation}" %x, %y
  return %z
}}
"""

SHAPES = {"b": 2, "h": 3, "i": 70, "j": 65, "d": 130}
"""Sizes of which some are larger than the blocks of a product."""


def products(number: int) -> ModuleOp:
    """Return functions that multiply matrices, with dimensions in any order."""
    rng = fresh("products in C", number)
    texts: list[ModuleOp] = []
    for name in range(6):
        batch = rng.choice(["", "b", "bh"])
        over = [rng.sample(batch + own, len(batch) + 2) for own in ("id", "dj", "ij")]
        x, y, z = (", ".join(str(SHAPES[index]) for index in part) for part in over)
        left, right, result = map(" ".join, over)
        text = PRODUCTS.format(
            dtype=rng.choice(["f32", "f64", "bf16", "i32"]),
            x=x,
            y=y,
            z=z,
            equation=f"{left}, {right} -> {result}",
        )
        texts.append(collir.parse(text.replace("@f(", f"@f{name}(")))
    first, *others = texts
    for other in others:
        for function in functions_of(other):
            function.detach()
            first.body.block.add_op(function)
    code = collir.emit(first, "mpi")
    for kernel in re.findall(r"static void collir_einsum_\d+\(.*?\n}", code, re.DOTALL):
        assert " product_" in kernel
    return first


@pytest.mark.parametrize("number", some(list(range(4)), 1))
def test_products_in_blocks(number: int, tmp_path: Path) -> None:
    module = products(number)
    assert differences(module, functions_of(module), tmp_path, WARNINGS) == []


CBLAS = """
enum { CblasRowMajor = 101, CblasNoTrans = 111, CblasTrans = 112 };
#define cblas_sgemm scipy_cblas_sgemm
#define cblas_dgemm scipy_cblas_dgemm
void cblas_sgemm(int, int, int, int, int, int, float, const float *, int, const float *, int,
                 float, float *, int);
void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int,
                 double, double *, int);
"""
"""What a cblas.h declares, for the BLAS in scipy."""


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_products_by_blas(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = find_spec("scipy")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parents[1] / "scipy.libs"
    libraries = sorted(folder.glob("libscipy_openblas-*.so"))
    if not libraries:
        pytest.skip("this scipy has no OpenBLAS of its own")
    (tmp_path / "cblas.h").write_text(CBLAS, encoding="ascii")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    flags = ("-DCOLLIR_CBLAS", f"-I{tmp_path}", f"-Wl,--no-as-needed,-rpath,{folder}")
    module = products(number)
    wrong = differences(
        module, functions_of(module), tmp_path, (*WARNINGS, *flags, str(libraries[0]))
    )
    assert wrong == []
    assert b"scipy_cblas_" in (tmp_path / "program").read_bytes()


# --- models -------------------------------------------------------------------------------------


def assert_step_runs(module: ModuleOp, function: FuncOp, folder: Path) -> None:
    """Check the results of a training step in f64."""
    arguments = arguments_of(function)
    [(results, _)] = run(module, [(function, arguments)], folder, WARNINGS)
    assert_same(module, function, arguments, results)


FEW = """
machine @box { level node[2] { port = 8 GB/s, latency = 20 us }
               level gpu[2] { port = 270 GB/s, latency = 3 us } }
mesh @m on @box { data = node:2, model = gpu:2 }
func @step = @step(batch = 4, width = 8, layers = 4) on @m from "mlp.coll"
"""


def page_in_double(text: str, folder: Path) -> tuple[ModuleOp, list[FuncOp]]:
    """Return a page that takes its functions from those in examples/models, in f64."""
    path = folder / "page.coll"
    path.write_text(text.replace('from "', f'from "{PAGES}/'), encoding="utf-8")
    module = collir.parse(path)
    make_explicit(module)
    module = module_in_double(module)
    return module, functions_of(module)


def test_a_training_step_on_four_ranks(tmp_path: Path) -> None:
    module, _ = page_in_double(FEW, tmp_path)
    assert_step_runs(module, function_of(module, "step"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "function_name"), STEPS)
def test_a_training_step(name: str, function_name: str, tmp_path: Path) -> None:
    """Check the loss and the new weights and states of an optimiser's step, on 8 ranks."""
    assert_step_runs(*step_in_double(name, function_name), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "gpt", "llama", "switch"])
def test_a_training_step_in_its_own_types(name: str, tmp_path: Path) -> None:
    """Check that C is as near to the step in f64 as the executor is, in f32 and bf16."""
    module = page(name, **SMALL[name])
    make_explicit(module)
    function = function_of(module, "step")
    arguments = arguments_of(function)
    [(results, _)] = run(module, [(function, arguments)], tmp_path, WARNINGS)
    expected = execute(module, function, arguments)
    double = module_in_double(module)
    wide = [[None if x is None else _wide(x) for x in buffers] for buffers in arguments]
    exact = execute(double, function_of(double, "step"), wide)
    values = (result for op in module.walk() for result in op.results)
    types = [value.type.data for value in values if isinstance(value.type, DistTensorType)]
    epsilon = max(x.dtype.epsilon for x in types)  # of the shortest type
    for every in zip(results, expected, exact, strict=True):
        for own, theirs, truth in zip(*every, strict=True):
            assert own is not None and theirs is not None and truth is not None
            scale = max(1e-3, float(np.abs(truth).max(initial=0)))
            allowed = 8 * float(np.abs(_wide(theirs) - truth).max(initial=0))
            off = float(np.abs(_wide(own) - truth).max(initial=0))
            assert off <= allowed + 4 * epsilon * scale


def _wide(x: Array) -> Array:
    """Return floating-point numbers in f64, and integers as they are."""
    return x if x.dtype.kind in "ib" else x.astype(np.float64)


def small(page: str, function: str, **sizes: int) -> str:
    """Return a function of a page for 64 devices on 8."""
    axes = "data = node:2, expert = gpu:4" if page == "mixtral" else "data = node:2 * gpu:4"
    listed = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    return f"""
machine @box {{ level node[2] {{ port = 8 GB/s, latency = 20 us }}
               level gpu[4] {{ port = 270 GB/s, latency = 3 us }} }}
mesh @m on @box {{ {axes} }}
func @{function} = @{function}({listed}) on @m from "{page}.coll"
"""


ZERO = {"batch": 16, "width": 16, "layers": 2}
LARGE = [
    ("mixtral", "step", {**SMALL["mixtral"], "batch": 16, "experts": 4}),
    ("resnet50", "step", {**SMALL["resnet50"], "batch": 8}),
    *(("zero", name, ZERO) for name in ("data_parallel", "zero_1", "zero_2", "zero_3")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "function", "sizes"), LARGE)
def test_a_training_step_of_a_large_model(
    page: str, function: str, sizes: dict[str, int], tmp_path: Path
) -> None:
    module, _ = page_in_double(small(page, function, **sizes), tmp_path)
    assert_step_runs(module, function_of(module, function), tmp_path)
