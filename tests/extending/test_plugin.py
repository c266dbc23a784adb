"""Tests of packages for xDSL: xdsl-opt loads collir, and collopt loads other packages."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "sync_gradients.coll"
BROKEN = {
    "missing": (
        "nothing_of_this_name:UNIVERSE",
        "the package missing (nothing_of_this_name:UNIVERSE) cannot be loaded: ModuleNotFoundError",
    ),
    "twice": (
        "collir.tools.universe:COLLIR",
        "the packages collir and twice both have a pass accumulate",
    ),
    "other": ("collir.passes.table:PASSES", "cannot be loaded: that is no xdsl.universe.Universe"),
}


def run(
    tool: str, *arguments: str, folder: Path, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a command with the packages of a folder installed, and check its exit status."""
    bin_ = Path(sys.executable).parent
    done = subprocess.run(
        [str(bin_ / tool), *arguments],
        env={**os.environ, "PYTHONPATH": str(folder), "PATH": f"{bin_}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of examples/plugin, because pip and lit write into it."""
    folder = tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(ROOT / "examples" / "plugin", folder)
    return folder


@pytest.fixture(scope="module")
def installed(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with that package as pip installs it."""
    folder = tmp_path_factory.mktemp("installed")
    options = "--quiet --no-index --no-deps --no-build-isolation --target"
    command = [sys.executable, "-m", "pip", "install", *options.split(), str(folder)]
    subprocess.run([*command, str(plugin)], check=True, capture_output=True)
    return folder


@pytest.mark.turns
def test_xdsl_opt_knows_our_dialects_passes_and_targets(tmp_path: Path) -> None:
    module = tmp_path / "module.mlir"
    module.write_text(run("collopt", str(EXAMPLE), "-t", "mlir", folder=tmp_path).stdout)
    passes = "decompose{strategy=rs-ar-ag},canonicalize"
    done = run("xdsl-opt", str(module), "-p", passes, "-t", "coll", folder=tmp_path)
    ours = run("collopt", str(EXAMPLE), "-p", passes, folder=tmp_path)
    assert done.stdout == ours.stdout
    assert "reduce_scatter %g over data.gpu dim 0" in ours.stdout


BUILT = """\
import collir
from collir.layout import Axis, DistType, DType, Factor, Mesh
from collir.machine import Level, Machine

box = Machine("box", (Level("node", 2, 8e9, 20e-6),))
module = collir.module_of(Mesh("m", box, (Axis.placed("data", [Factor("node", 2)]),)))
f = collir.FunctionBuilder(module, "m", "f")
f.results(f.leaky_relu(f.argument("x", DistType.make(DType.F32, [8, 4])), slope=0.5, name="y"))
print(collir.emit(module, "mlir"))
"""


@pytest.mark.turns
def test_its_operations_are_built_and_xdsl_opt_reads_them(installed: Path, tmp_path: Path) -> None:
    """Check that the builder knows them before anything is read, and that no package comes too
    early for xdsl-opt, which loads this one before collir."""
    module = tmp_path / "module.mlir"
    module.write_text(run("python", "-c", BUILT, folder=installed).stdout)
    text = run("xdsl-opt", str(module), "-t", "coll", folder=installed).stdout
    assert "  %y = leaky_relu %x slope 0.5\n" in text


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["mpi4py", "torch"])
def test_its_operations_run_on_every_engine(engine: str, installed: Path, plugin: Path) -> None:
    pytest.importorskip(engine)
    file = plugin / "tests" / "leaky_relu.coll"
    text = run("collrun", str(file), "--engine", engine, "-n", "2", folder=installed).stdout
    assert text.count("ok, every rank's buffers are equal") == 2
    run("collopt", str(file), "-t", "jax", folder=installed)


@pytest.mark.slow
def test_collopt_knows_the_parts_of_another_package(plugin: Path, installed: Path) -> None:
    run("lit", "-v", str(plugin), folder=installed)
    listed = run("collopt", "--help", folder=installed).stdout
    assert re.search(r"  split-all-reduce +Split large all_reduces", " ".join(listed.split("\n")))


@pytest.mark.turns
def test_so_does_the_api(installed: Path, plugin: Path) -> None:
    """Check that the first program that is read may use the operations of the package."""
    code = (
        "import collir, pathlib; collir.parse(pathlib.Path('{}')); "
        "module = collir.parse(pathlib.Path('{}')); "
        "collir.run_passes(module, 'split-all-reduce', validate=True); print(collir.emit(module))"
    )
    first = plugin / "tests" / "leaky_relu.coll"
    done = run("python", "-c", code.format(first, EXAMPLE), folder=installed)
    assert "all_gather" in done.stdout


@pytest.mark.parametrize("name", BROKEN)
def test_a_package_that_cannot_be_loaded_is_named(name: str, tmp_path: Path) -> None:
    entry, message = BROKEN[name]
    info = tmp_path / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[xdsl.universe]\n{name} = {entry}\n")
    done = run("collopt", str(EXAMPLE), folder=tmp_path, status=1)
    assert done.stderr.startswith("error: the package")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
