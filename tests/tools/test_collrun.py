"""Tests of the command collrun: engines, inputs and outputs, sizes, and refused input."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.executor import execute
from collir.tools import collrun, comparison, jax_run, mpi4py_run, mpi_run, processes, torch_run
from collir.tools.engines import CodeEngine

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "sync_gradients.coll")
SMALL = ["--set-size", "4096"]

TWO = """
machine @c {
  level node[2] { port = 1 GB/s, latency = 1 us }
  level gpu[2]  { port = 1 GB/s, latency = 0 s }
}
mesh @m on @c { data = node:2 * gpu:2 }
func @sum(%g: f32[4, 6] partial(sum: data)) -> f32[4, 6] on @m {
  %r = all_reduce %g over data
  return %r
}
func @rows(%x: i32[4@data.gpu, 6]) -> i32[4, 6@data.gpu] on @m {
  %y = all_to_all %x over data.gpu dim 0 to 1
  return %y
}
"""


@pytest.fixture
def two(tmp_path: Path) -> str:
    path = tmp_path / "two.coll"
    path.write_text(TWO)
    return str(path)


def test_the_numpy_engine_runs_every_function(two: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert collrun.main([two]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        "sum: ok on 4 devices",
        "rows: ok on 4 devices",
    ]


ROUNDED = """
machine @c { level gpu[4] { port = 1 GB/s, latency = 1 us } }
mesh @m on @c { data = gpu:4 }
func @thirds(%g: bf16[8] partial(sum: data)) -> bf16[8] on @m {
  %s = scale %g by 0.3
  %r = all_reduce %s over data
  return %r
}
"""


def test_a_mistake_below_a_rounding_of_bf16_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rounded.coll"
    path.write_text(ROUNDED)
    assert collrun.main([str(path)]) == 0
    assert capsys.readouterr().out.startswith("thirds: ok up to rounding")
    run = comparison.execute

    def execute(*arguments: Any) -> list[Buffers]:
        """Multiply the results by 1.00001 on several devices, as a wrong program might."""
        results = run(*arguments)
        wrong = [[x * x.dtype.type(1.00001) for x in r if x is not None] for r in results]
        return [x if len(r) > 1 else r for r, x in zip(results, wrong, strict=True)]

    monkeypatch.setattr(comparison, "execute", execute)
    assert collrun.main([str(path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("thirds: WRONG")
    assert re.search(r"\n  %r differs by .*e-0[56], and .*e-0[789] is allowed\n", out)


NOISE = """
machine @c { level gpu[4] { port = 1 GB/s, latency = 1 us } }
mesh @m on @c { data = gpu:4 }
func @signs(%x: f32[64@data, 32]) -> f32[32] on @m {
  %e = exp %x
  %s = sum %e dims [0]
  %t = all_reduce %s over data
  %r = div %e, %t
  %p = sum %r dims [0]
  %q = all_reduce %p over data
  %one = constant value 1 to f32[]
  %nothing = sub %q, %one
  %squares = mul %nothing, %nothing
  %least = constant value 1e-60 to f64[]
  %small = cast %least to f32
  %sizes = add %squares, %small
  %size = sqrt %sizes
  %y = div %nothing, %size
  return %y
}
"""


def test_results_that_are_noise_are_not_called_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Divide a sum that is 0 but for rounding by its size: the result is as wrong on one device as
    on all. In f32 the sum is 0 and the result NaN; the comparison is in f64."""
    path = tmp_path / "noise.coll"
    path.write_text(NOISE)
    assert collrun.main([str(path)]) == 0
    assert capsys.readouterr().out.startswith("signs: equal up to rounding, but with NaN")


ADAM = """
machine @c { level gpu[2] { port = 1 GB/s, latency = 1 us } }
mesh @m on @c { data = gpu:2 }
func @adamw = @adamw on any
func @step(%w: f32[8, 8] parameter, %g: f32[8, 8] partial(sum: data), %mean: f32[8, 8] state,
    %square: f32[8, 8] state, %rate: f32[], %count: f32[])
    -> (f32[8, 8], f32[8, 8], f32[8, 8]) on @m {
  %sum = all_reduce %g over data
  %new, %new_mean, %new_square = call @adamw(%w, %sum, %mean, %square, %rate, %count)
  return %new, %new_mean, %new_square
}
"""


@pytest.mark.parametrize("seed", range(4))
def test_states_and_scalars_that_are_generated_suit_adam(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that the mean of squares and the number of the step have no negative numbers."""
    path = tmp_path / "adam.coll"
    path.write_text(ADAM)
    assert collrun.main([str(path), "--function", "step", "--seed", str(seed)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("step: ok up to rounding")
    assert not captured.err


def test_results_that_are_nan_are_not_called_ok(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nan.coll"
    path.write_text(ADAM.replace("%square: f32[8, 8] state", "%square: f32[8, 8]"))
    assert collrun.main([str(path), "--function", "step", "--engine", "numpy"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("step: equal up to rounding, but with NaN on 2 devices (numpy")
    assert "%root is the first value with NaN" in captured.err


def test_one_function_by_name(two: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert collrun.main([two, "--function", "@rows"]) == 0
    assert capsys.readouterr().out.startswith("rows: ok")
    assert collrun.main([two, "--function", "colums"]) == 2


def test_a_function_that_is_called_does_not_run_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calls.coll"
    path.write_text(
        ROUNDED + "func @twice(%g: bf16[8] partial(sum: data)) -> bf16[8] on @m {\n"
        "  %a = call @thirds(%g)\n  %b = add %a, %a\n  return %b\n}\n"
    )
    assert collrun.main([str(path), "--function", "twice"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["twice"]


def test_a_gradient_that_a_called_function_has_does_not_run_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "step.coll"
    path.write_text("""
        machine @box { level gpu[2] { port = 300 GB/s, latency = 3 us } }
        mesh @m on @box { data = gpu:2 }
        func @loss(%x: f32[...], %w: f32[...]) -> f32[...] on any {
          %y = mul %x, %w
          %l = sum %y dims [0]
          return %l
        }
        func @train(%x: f32[...], %w: f32[...]) -> f32[...] on any {
          %l, %d = gradient @loss(%x, %w) wrt %w
          return %d
        }
        func @step(%x: f32[8@data], %w: f32[8]) -> f32[8] on @m auto {
          %d = call @train(%x, %w)
          return %d
        }""")
    assert collrun.main([str(path), "--function", "step"]) == 0
    assert capsys.readouterr().out.startswith("step: ok")


def test_the_mpi_engine_compares_every_rank(two: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert collrun.main([two, "--engine", "mpi", "-n", "4", "-p", "decompose"]) == 0
    out = capsys.readouterr().out
    assert out.count("every rank's buffers are equal on 4 ranks") == 2


@pytest.mark.turns
@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed: pip install '.[jax]'")
def test_the_jax_engine_compares_every_device(two: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert collrun.main([two, "--engine", "jax", "-p", "decompose"]) == 0
    out = capsys.readouterr().out
    assert out.count("every device's buffers are equal on 4 devices") == 2


@pytest.mark.slow
@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed: pip install '.[jax]'")
def test_the_jax_engine_compares_functions_that_round_in_f64(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rounded.coll"
    path.write_text(ROUNDED)
    assert collrun.main([str(path), "--engine", "jax"]) == 0
    assert "equal up to rounding on 4 devices (jax" in capsys.readouterr().out


def test_the_jax_engine_tells_the_devices_that_differ(
    two: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(module: Any, calls: Any, folder: Path) -> Any:
        done: list[tuple[list[Buffers], float]] = []
        for function, inputs in calls:
            results = execute(module, function, inputs)
            buffer = results[0][2]
            assert buffer is not None
            results[0][2] = buffer + 1
            done.append((results, 0.0))
        return done

    monkeypatch.setattr(jax_run, "run", run)
    assert collrun.main([two, "--engine", "jax"]) == 1
    out = capsys.readouterr().out
    assert out.count("WRONG on devices [2] on 4 devices (jax") == 2
    assert out.count(" differs by 1, and nothing is allowed\n") == 2


def test_a_jax_that_is_missing_is_an_error(
    two: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
    assert collrun.main([two, "--engine", "jax"]) == 1
    assert "jax is not installed: `pip install 'collir[jax]'`" in capsys.readouterr().err


def _nothing(_: CodeEngine) -> None:
    """Stand for the check that torch is installed, where torch itself is not run."""


@pytest.mark.parametrize("rounded", [False, True])
def test_the_torch_engine_tells_the_ranks_that_differ(
    rounded: bool,
    two: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Check it for functions that are compared bit by bit, and for one that is in f64."""

    def run(module: Any, calls: Any, folder: Path) -> Any:
        done: list[tuple[list[Buffers], float]] = []
        for function, inputs in calls:
            results = execute(module, function, inputs)
            buffer = results[0][2]
            assert buffer is not None
            assert not rounded or buffer.dtype == np.float64
            results[0][2] = buffer + 1
            done.append((results, 0.0))
        return done

    path = tmp_path / "rounded.coll"
    path.write_text(ROUNDED)
    monkeypatch.setattr(torch_run, "run", run)
    monkeypatch.setattr(CodeEngine, "check_installed", _nothing)
    assert collrun.main([str(path) if rounded else two, "--engine", "torch"]) == 1
    out = capsys.readouterr().out
    assert out.count("WRONG on ranks [2] on 4 ranks (torch, gloo") == 2 - rounded


def test_a_torch_that_is_missing_is_an_error(
    two: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
    assert collrun.main([two, "--engine", "torch"]) == 1
    assert "torch is not installed: `pip install 'collir[torch]'`" in capsys.readouterr().err


MODEL = """
machine @c { level gpu[2] { port = 1 GB/s, latency = 1 us } }
mesh @m on @c { data = gpu:2 }
func @positive(%x: f32[4@data, 6]) -> f32[4@data, 6] on @m {
  %y = relu %x
  return %y
}
func @shares(%x: f32[4@data, 6]) -> (f32[4@data, 6], f32[4@data, 6]) on @m {
  %y = softmax %x dims [1]
  %z = neg %x
  return %y, %z
}
func @nothing(%x: f32[4@data, 6]) on @m {
  %y = relu %x
  return
}
func @sum(%g: f32[4, 6] partial(sum: data)) -> f32[4, 6] on @m {
  %r = all_reduce %g over data
  return %r
}
"""


@pytest.mark.turns
@pytest.mark.skipif(find_spec("mpi4py") is None, reason="mpi4py is not installed")
def test_the_mpi4py_engine_runs_models_in_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.coll"
    path.write_text(MODEL)
    words = [str(path), "--engine", "mpi4py", "--time", "--repeats", "2"]
    assert collrun.main([*words, "--function", "positive", "--function", "shares"]) == 0
    out = capsys.readouterr().out
    assert "positive: ok, every rank's buffers are equal on 2 ranks (MPI, numpy, " in out
    assert "shares: ok, every rank's buffers are equal up to rounding on 2 ranks (MPI, nu" in out
    assert out.count("measured, ") == 2


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_the_torch_engine_runs_models_and_collectives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.coll"
    path.write_text(MODEL)
    assert collrun.main([str(path), "--engine", "torch"]) == 0
    out = capsys.readouterr().out
    for name in ("positive", "nothing", "sum"):
        assert f"{name}: ok, every rank's buffers are equal on 2 ranks (torch, gloo, " in out
    assert "shares: ok, every rank's buffers are equal up to rounding on 2 ranks (torch" in out


@pytest.mark.turns
def test_the_mpi_engine_runs_models_in_c(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.coll"
    path.write_text(MODEL)
    assert collrun.main([str(path), "--engine", "mpi", "--time", "--repeats", "2"]) == 0
    out = capsys.readouterr().out
    for name in ("positive", "nothing", "sum"):
        assert f"{name}: ok, every rank's buffers are equal on 2 ranks (MPI, " in out
    assert "shares: ok, every rank's buffers are equal up to rounding on 2 ranks (MPI, " in out
    assert out.count("measured, ") == 4


def test_the_mpi4py_engine_tells_the_ranks_that_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(module: Any, calls: Any, folder: Path, repeats: int) -> Any:
        done: list[tuple[list[Buffers], float]] = []
        for function, inputs in calls:
            results = execute(module, function, inputs)
            for buffers in results:
                assert buffers[1] is not None
                buffers[1] = buffers[1] + 1e-6
            done.append((results, 0.0))
        return done

    path = tmp_path / "model.coll"
    path.write_text(MODEL)
    monkeypatch.setattr(mpi4py_run, "run", run)
    words = ["--function", "positive", "--function", "shares"]
    assert collrun.main([str(path), "--engine", "mpi4py", *words]) == 1
    assert capsys.readouterr().out.count("WRONG on ranks [1] on 2 ranks (MPI, numpy") == 2


def test_an_mpi4py_that_is_missing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.coll"
    path.write_text(MODEL)
    monkeypatch.setattr(processes, "find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
    assert collrun.main([str(path), "--engine", "mpi4py", "--function", "positive"]) == 1
    assert "mpi4py is not installed: `pip install 'collir[mpi,mpi4py]'`" in capsys.readouterr().err


def test_a_wrong_number_of_ranks_is_refused(two: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert collrun.main([two, "-n", "8"]) == 1
    assert "meshes of 4 devices" in capsys.readouterr().err


def test_an_input_file_gives_the_global_tensor(two: str, tmp_path: Path) -> None:
    tensor = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.save(tmp_path / "g.npy", tensor)
    out = tmp_path / "out"
    arguments = [two, "--function", "sum", "--input", f"g={tmp_path / 'g.npy'}"]
    assert collrun.main([*arguments, "--output", str(out)]) == 0
    assert np.array_equal(np.load(out / "sum.r.npy"), tensor)


def test_a_folder_or_one_file_gives_all_tensors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, folder, packed = tmp_path / "adam.coll", tmp_path / "in", tmp_path / "in.npz"
    program.write_text(ADAM)
    rng = np.random.default_rng(0)
    tensors = {n: rng.uniform(size=(8, 8)).astype(np.float32) for n in ("w", "g", "mean", "square")}
    tensors |= {"rate": np.float32(0.1), "count": np.float32(3)}
    folder.mkdir()
    for name, tensor in tensors.items():
        np.save(folder / name, tensor)
    del tensors["rate"]
    np.savez(packed, **tensors)  # pyright: ignore[reportArgumentType]
    new: list[Any] = []
    for given in ([folder], [packed, f"rate={folder / 'rate.npy'}"]):
        out = tmp_path / f"out{len(new)}"
        words = [word for x in given for word in ("--input", str(x))]
        run = [str(program), "--function", "step", *words, "--output", str(out)]
        assert collrun.main(run) == 0
        new.append(np.load(out / "step.new.npy"))
    assert not capsys.readouterr().err
    assert np.array_equal(*new)
    assert np.abs(new[0] - tensors["w"]).max() < 0.2
    assert collrun.main([str(program), "--function", "step", "--input", str(packed)]) == 0
    assert capsys.readouterr().err == "collrun: remark: inputs are generated for rate\n"


@pytest.mark.parametrize(
    ("array", "message"),
    [(np.zeros((2, 2)), "has shape [2, 2], but [4, 6] is needed"), (None, "is not a .npy file")],
)
def test_an_input_file_that_does_not_fit(
    two: str,
    tmp_path: Path,
    array: np.ndarray | None,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "g.npy"
    path.write_text("no array") if array is None else np.save(path, array)
    assert collrun.main([two, "--function", "sum", "--input", f"g={path}"]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 6), complex), "holds complex128, not real numbers"),
        (np.full((4, 6), "one"), "holds <U3, not real numbers"),
        (np.full((4, 6), 0.5), "holds numbers that are not of type int32"),
        (np.full((4, 6), 2**40), "holds numbers that are not of type int32"),
    ],
    ids=["complex", "text", "fractions", "too large"],
)
def test_an_input_file_of_other_numbers(
    two: str, tmp_path: Path, array: np.ndarray, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", array)
    arguments = ["--function", "rows", "--input", f"x={tmp_path / 'x.npy'}"]
    assert collrun.main([two, *arguments]) == 1
    assert message in capsys.readouterr().err


def test_an_input_for_no_argument_is_a_usage_error(two: str) -> None:
    assert collrun.main([two, "--function", "sum", "--input", "h=x.npy"]) == 2


def test_the_seed_decides_the_inputs(two: str, tmp_path: Path) -> None:
    results: list[np.ndarray] = []
    for seed, name in ((1, "a"), (1, "b"), (2, "c")):
        out = tmp_path / name
        assert collrun.main([two, "--seed", str(seed), "--output", str(out)]) == 0
        results.append(np.load(out / "sum.r.npy"))
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])


def test_sizes_can_be_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert collrun.main([EXAMPLE, *SMALL, "-p", "decompose", "--output", str(out)]) == 0
    assert np.load(out / "sync_gradients.r.npy").shape == (4096,)
    assert collrun.main([EXAMPLE, "--set-size", "1048576=10", "-p", "decompose"]) == 0
    assert collrun.main([EXAMPLE, "--set-size", "many"]) == 2


def test_a_size_that_does_not_divide_is_a_diagnostic(
    two: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collrun.main([two, "--set-size", "4=5", "--function", "rows"]) == 1
    assert "does not divide" in capsys.readouterr().err


def test_what_does_not_fit_into_memory_is_refused_with_the_figure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert collrun.main([EXAMPLE, "--set-size", "1000000000000"]) == 1
    err = capsys.readouterr().err
    assert "GiB for the buffers of its 8 devices" in err
    assert "try --set-size" in err


def test_without_mpi_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mpi_run.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert collrun.main([EXAMPLE, *SMALL, "--engine", "mpi"]) == 1
    assert "pip install 'collir[mpi]'" in capsys.readouterr().err


def test_without_a_c_compiler_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = tmp_path / "mpicc"
    compiler.write_text("#!/bin/sh\necho 'mpicc: cc: not found' >&2\nexit 127\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(mpi_run.sys, "executable", str(tmp_path / "python"))
    assert collrun.main([EXAMPLE, *SMALL, "--engine", "mpi"]) == 1
    assert capsys.readouterr().err == "error: mpicc has no C compiler: mpicc: cc: not found\n"


@pytest.mark.parametrize(
    "arguments",
    [["--engine", "cuda"], ["--seed", "x"], ["--seed", "-1"], ["-p", "decompos"], ["--inptu", "x"]],
    ids=" ".join,
)
def test_wrong_use_is_one_line_and_status_2(
    two: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert collrun.main([two, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("collrun: error: ")
    assert len(captured.err.splitlines()) == 1


def test_results_cannot_be_written_where_a_file_is(
    two: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("")
    assert collrun.main([two, "--output", str(tmp_path / "out")]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_a_missing_file_is_a_diagnostic(capsys: pytest.CaptureFixture[str]) -> None:
    assert collrun.main(["nothing.coll"]) == 1
    assert "cannot read nothing.coll" in capsys.readouterr().err


INTEGERS = """
machine @c { level gpu[2] { port = 25 GB/s, latency = 1 us } }
mesh @m on @c { data = gpu:2 }
func @f(%p: i32[6] partial(sum: data), %x: f32[4@data]) -> (i32[2@data, 6], f32[4@data]) on @m {
  %t = terms %p over data dim 0
  STEP
  return %t, %y
}
"""


@pytest.mark.parametrize("step", ["%y = scale %x by 2", "%y = tanh %x"])
@pytest.mark.parametrize("seed", ["0", "1"])
def test_integers_are_compared_exactly_beside_what_rounds(
    step: str, seed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terms of a sum are not what its value says on one device."""
    path = tmp_path / "integers.coll"
    path.write_text(INTEGERS.replace("STEP", step))
    assert collrun.main([str(path), "--seed", seed]) == 1
    out = capsys.readouterr().out
    assert "WRONG" in out
    assert re.search(r"%t differs by \d+, and nothing is allowed", out)


JUMPS = """
machine @c { level gpu[4] { port = 25 GB/s, latency = 1 us } }
mesh @m on @c { data = gpu:4 }
func @f(%x: f32[64@data, 32]) -> (i32[32], f32[32]) on @m {
  %a = scale %x by 0.1
  %s = sum %a dims [0]
  %t = all_reduce %s over data
  %tens = scale %t by 10
  %i = cast %tens to i32
  return %i, %tens
}
"""


def test_integers_of_rounded_numbers_may_be_on_either_side_of_a_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jumps.coll"
    path.write_text(JUMPS)
    assert collrun.main([str(path), "--engine", "mpi"]) == 0
    assert capsys.readouterr().out.count("up to rounding") == 2


@pytest.mark.parametrize("passes", ["differentiate,propagate", "default"])
def test_functions_made_for_gradients_are_run_where_they_are_called(
    passes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gradient.coll"
    path.write_text(GRADIENT)
    assert collrun.main([str(path), "-p", passes, "--engine", "mpi"]) == 0
    lines = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["loss", "step", "loss", "step"]


GRADIENT = """
machine @box { level gpu[2] { port = 300 GB/s, latency = 3 us } }
mesh @m on @box { data = gpu:2 }
func @loss(%x: f32[4@data], %w: f32[3, 4]) -> f32[] on @m auto {
  %y = repeat 3 carry(%h = %x) slice(%w = %w) {
    %z = mul %h, %w
    yield %z
  }
  %l = mean %y dims [0]
  return %l
}
func @step(%x: f32[4@data], %w: f32[3, 4]) -> (f32[], f32[3, 4]) on @m auto {
  %l, %d = gradient @loss(%x, %w) wrt %w
  return %l, %d
}
"""
