"""The emitted NCCL code has safe names, and compiles and links against the real NCCL and CUDA."""

import re
import subprocess
from pathlib import Path

import pytest
from support.harness.hanging import HANG
from support.harness.seeds import fresh
from support.programs.collectives import module_of, random_function, random_mesh
from support.programs.one_step import collectives, local_operations, meshes_of
from support.targets.real_nccl import compile_with_gcc, compile_with_nvcc, needs_nccl, needs_nvcc
from xdsl.dialects.func import FuncOp

import collir
from collir.ir.functions import functions_of
from collir.targets.code.c_text import name_problem
from collir.targets.code.nccl_main import traffic
from collir.targets.code.nccl_text import CPP
from collir.tools.mpi_run import mpiexec

HERE = Path(__file__).parent
FIXED = "decompose{strategy=rs-ar-ag}"
EXAMPLES = HERE.parent.parent / "examples"
VERSION = """
#include <cstdio>
int main()
{
  int version = 0;
  ncclResult_t err = ncclGetVersion(&version);
  printf("%d %d", (int)err, version);
  return version < 21800;
}
"""


def example(name: str, passes: str = "decompose{strategy=rs-ar-ag}") -> str:
    """Return the code of an example."""
    module = collir.run_passes(collir.parse(EXAMPLES / f"{name}.coll"), passes)
    return collir.emit(module, "nccl")


# --- against the real NCCL ----------------------------------------------------------------------


@needs_nccl
def test_an_example_compiles_links_and_calls_nccl(tmp_path: Path) -> None:
    program = compile_with_gcc(example("sync_gradients") + VERSION, tmp_path)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert int(done.stdout.split()[1]) >= 21800


@pytest.mark.turns
@needs_nccl
def test_every_collective_on_every_dtype_compiles(tmp_path: Path) -> None:
    """No kernel computes anything: NCCL has averages and bf16. Those that there are copy blocks of
    single elements; without such blocks any compiler takes the file."""
    functions = list(collectives(12))
    every = module_of(meshes_of(12), [f.clone() for f in functions])
    text = collir.emit(every, "nccl{symmetric=true}")
    assert set(re.findall(r"void kernel_([a-z]+)", text)) <= {"copy"}
    functions = [f for f in functions if not any("__global__" in x for x in code_of(f))]
    text = collir.emit(module_of(meshes_of(12), functions), "nccl{symmetric=true}")
    assert len(functions) > 20
    assert "any C++" in text
    compile_with_gcc(text + VERSION, tmp_path)


def code_of(function: FuncOp) -> list[str]:
    """Return the lines of the code of a function."""
    return collir.emit(module_of(meshes_of(12), [function.clone()]), "nccl").splitlines()


@pytest.mark.turns
@needs_nccl
@needs_nvcc
def test_every_local_operation_on_every_dtype_compiles(tmp_path: Path) -> None:
    functions = [*local_operations(6), *list(collectives(6))[::4]]
    text = collir.emit(module_of(meshes_of(6), functions), "nccl")
    assert "compile it with nvcc" in text
    compile_with_nvcc(text + VERSION, tmp_path)


@pytest.mark.slow
@needs_nccl
@needs_nvcc
@pytest.mark.parametrize("options", ["main=true", "main=true processes=false symmetric=true"])
def test_random_programs_with_a_main_compile(options: str, tmp_path: Path) -> None:
    rng = fresh(0)
    meshes = [random_mesh(rng, 8, f"m{index}", weights=0.3) for index in range(4)]
    functions = [random_function(rng, rng.choice(meshes), 8, f"f{index}") for index in range(20)]
    text = collir.emit(module_of(meshes, functions), f"nccl{{{options}}}")
    compile_with_nvcc(text, tmp_path, mpi="processes" not in options)


@needs_nccl
@pytest.mark.parametrize(
    ("name", "options"),
    [("sync_gradients", "main=true"), ("train", "main=true symmetric=true")],
)
def test_an_example_with_a_main_says_that_it_finds_no_gpu(
    name: str, options: str, tmp_path: Path
) -> None:
    """The program runs instead on a machine with GPUs."""
    module = collir.run_passes(
        collir.parse(EXAMPLES / f"{name}.coll"), "decompose{strategy=rs-ar-ag}"
    )
    program = compile_with_gcc(collir.emit(module, f"nccl{{{options}}}"), tmp_path)
    try:
        output = mpiexec(8, [program, "2"], HANG)
    except RuntimeError as error:
        output = str(error)
    assert re.search(r": ok on 8 ranks|\na rank has no GPU: |ncclCommInitRank: ", output)


@needs_nccl
def test_in_one_process_it_says_that_it_finds_no_gpus(tmp_path: Path) -> None:
    module = collir.parse(EXAMPLES / "sync_gradients.coll")
    program = compile_with_gcc(collir.emit(module, "nccl{main=true processes=false}"), tmp_path)
    done = subprocess.run([program, "1"], capture_output=True, text=True, check=False, timeout=HANG)
    assert "this needs 8 GPUs: " in done.stderr if done.returncode else ": ok on" in done.stdout


# --- sizes --------------------------------------------------------------------------------------

LARGE = """
machine @four { level a[2] { port = 1 GB/s, latency = 1 us }
                level b[2] { port = 1 GB/s, latency = 1 us } }
mesh @m on @four { x = a:2 * b:2 }

func @f(%g: i8[4, 8589934592] partial(sum: x)) -> (i8[4, 8589934592], i8[8589934592, 4@x]) on @m {
  %s = reduce_scatter %g over x.b dim 1
  %r = all_reduce %s over x.a
  %m = mask %r over x.a op sum
  %q = all_reduce %m over x.a
  %a = slice %q over x.a dim 1
  %b = all_gather %a over x.a dim 1
  %c = all_gather %b over x.b dim 1
  %p = pad %c dim 1 low -4294967296 high 4294967296 value 1
  %d = concat %c, %p dim 1
  %e = pad %d dim 1 high -8589934592
  %t = transpose %e order [1, 0]
  %u = slice %t over x dim 0
  %v = all_to_all %u over x dim 0 to 1
  %k = add %v, %v
  %w = scale %k by 3
  return %e, %w
}
func @largest(%g: f16[1152921504606846976] partial(max: x)) -> f16[1152921504606846976] on @m {
  %r = all_reduce %g over x
  return %r
}
"""


def test_every_size_beyond_an_int_is_a_size_t() -> None:
    text = collir.emit(collir.parse(LARGE), "nccl")
    code = re.sub(r"/\*(.|\n)*?\*/|//.*|kernel_transpose_\w+", "", text)
    code = re.sub(r"\d+ \* \(size_t\)", "", code)
    numbers = re.findall(r"(\(size_t\))?-?\b(\d{10,})\b", code)
    wide = [cast for cast, number in numbers if int(number) >= 2**31]
    assert len(wide) > 20
    assert all(wide)


@pytest.mark.turns
@needs_nccl
@needs_nvcc
def test_sizes_beyond_an_int_compile(tmp_path: Path) -> None:
    compile_with_nvcc(collir.emit(collir.parse(LARGE), "nccl") + VERSION, tmp_path)


def test_devices_of_a_large_mesh_cost_no_code() -> None:
    """The text for 131,072 devices is as long as for 8, up to the numbers in it."""
    small = (EXAMPLES / "sync_gradients.coll").read_text(encoding="utf-8")
    large = small.replace("node[2]", "node[16384]").replace("gpu[4]", "gpu[8]")
    large = large.replace("node:2 * gpu:4", "node:16384 * gpu:8")
    texts = [
        collir.emit(collir.run_passes(collir.parse(text), FIXED), "nccl") for text in (small, large)
    ]
    assert len(re.sub(r"\d+", "", texts[0])) == len(re.sub(r"\d+", "", texts[1]))


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("class", "keyword of C++"),
        ("and", "keyword of C++"),
        ("for", "keyword of C++"),
        ("stream", "name of the emitted code"),
        ("blockIdx", "name of the emitted code"),
        ("send", "name of the C library"),
        ("float4", "names that start with 'float4' are reserved"),
        ("ncclSend", "names that start with 'nccl' are reserved"),
        ("cudaFree", "names that start with 'cuda' are reserved"),
        ("cuInit", "names that start with 'cuI' are reserved"),
        ("kernel_f", "names that start with 'kernel_' are reserved"),
        ("größe", "names in C++ are letters, digits and _"),
    ],
)
def test_names_that_no_function_can_have(name: str, problem: str) -> None:
    assert problem in (name_problem(name, CPP) or "")


@pytest.mark.parametrize("name", ["sync", "float_sum", "cut", "custom", "kernels", "make", "x"])
def test_names_that_a_function_can_have(name: str) -> None:
    assert name_problem(name, CPP) is None


def test_no_name_ends_a_comment(tmp_path: Path) -> None:
    """MLIR allows any name for a machine, an axis or a level."""
    odd = "x */ int evil; /* \\\\ // \\22"
    source = "machine @k { level a[2] { port = 1 GB/s, latency = 1 us }\n"
    source += "level b[2] { port = 1 GB/s, latency = 1 us } }\n"
    source += "mesh @m on @k { x = a:2, y = b:2 }\n"
    source += "func @f(%x: f32[4@x]) -> f32[4] on @m {\n  %r = all_gather %x over x dim 0\n"
    source += "  return %r\n}\n"
    text = collir.emit(collir.parse(source), "mlir").replace("@k", f'@"{odd}"')
    path = tmp_path / "odd.mlir"
    path.write_text(text.replace('<"y"', f'<"{odd}y"'), encoding="utf-8")
    code = collir.emit(collir.parse(path), "nccl")
    assert "evil" in code
    assert "*/ int evil" not in code


# --- bandwidths ---------------------------------------------------------------------------------

STEPS = """
machine @k { level l[4] { port = 1 GB/s, latency = 1 us } }
mesh @m on @k { x = 4 }
func @f(%x: f32[STATE]) -> f32[RESULT] on @m {
  %r = STEP
  return %r
}
"""


@pytest.mark.parametrize(
    ("state", "result", "step", "size", "factor"),
    [
        ("16] partial(sum: x)", "16]", "all_reduce %x over x", 64, 1.5),
        ("16] partial(sum: x)", "16@x]", "reduce_scatter %x over x dim 0", 64, 0.75),
        ("16@x]", "16]", "all_gather %x over x dim 0", 64, 0.75),
        ("16] root(x)", "16]", "broadcast %x over x", 64, 1.0),
        ("16] partial(sum: x)", "16] root(x)", "reduce %x over x", 64, 1.0),
        ("16@x, 4]", "16, 4@x]", "all_to_all %x over x dim 0 to 1", 64, 0.75),
        ("16]", "16]", "add %x, %x", None, None),
    ],
)
def test_bandwidths_are_those_of_nccl_tests(
    state: str, result: str, step: str, size: int | None, factor: float | None
) -> None:
    text = STEPS.replace("STATE]", state).replace("RESULT]", result).replace("STEP", step)
    (function,) = functions_of(collir.parse(text))
    assert traffic(function) == (None if size is None else (size, factor))
