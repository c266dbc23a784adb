"""Tests that wheel and sdist are complete: the passes, the grammar, the machines, the C code."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

REQUIRED = [
    "collir/passes/decompose.py",
    "collir/syntax/grammar.lark",
    "collir/machine/presets/gcp_a2.coll",
    "collir/syntax/library/optimisers.coll",
    "collir/importing/machines/slurm.py",
    "collir/targets/code/mpi_runtime.c",
    "collir/py.typed",
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.mark.slow
def test_the_wheel_is_complete(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert set(REQUIRED) <= names
    assert not [n for n in names if n.startswith(("passes/", "tests/"))]


@pytest.mark.slow
def test_the_sdist_holds_the_passes_at_the_top_too(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"passes/decompose.py", "Makefile", "examples/sync_gradients.coll"} <= names


def test_the_passes_are_linked_to_the_top() -> None:
    link = ROOT / "passes"
    assert link.is_symlink()
    assert link.readlink() == Path("collir/passes")
