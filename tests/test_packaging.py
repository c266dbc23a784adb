"""Tests that wheel and sdist are complete, and work in an environment that has nothing else."""

import os
import re
import subprocess
import sys
import tarfile
import venv
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
    assert {"mkdocs.yml", "CONTRIBUTING.md", ".github/workflows/ci.yml"} <= names


def test_the_passes_are_linked_to_the_top() -> None:
    link = ROOT / "passes"
    assert link.is_symlink()
    assert link.readlink() == Path("collir/passes")


EXTRAS = (
    "argcomplete", "distributed", "jax", "jinja2", "matplotlib", "mpi4py", "numba", "rich", "sympy",
    "torch", "transformers",
)  # fmt: skip
"""The modules of packages that only extras bring."""

WITHOUT_EXTRAS = f"""
import sys
sys.modules |= dict.fromkeys({EXTRAS})
from collir.tools import collopt, collrun
assert collrun.main(["x.coll", "-p", "decompose"]) == 0
for target in sys.argv[1:]:
    assert collopt.main(["x.coll", "-p", "decompose", "-t", target, "-o", "out"]) == 0, target
"""
"""Runs a program, and prints targets of it, where no extra is installed."""


def session() -> list[tuple[str, str]]:
    """Return the commands of the first session of README.md, each with its output."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert block
    return re.findall(r"^\$ ([^\n]*)\n(.*?)(?=^\$ |\Z)", block[1], re.MULTILINE | re.DOTALL)


def test_programs_run_and_are_printed_without_extras(tmp_path: Path) -> None:
    (tmp_path / "x.coll").write_text(session()[0][1], encoding="utf-8")
    targets = "coll mlir local mpi nccl mpi4py torch jax cost cost-json explain simulate sizes"
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *targets.split()]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.slow
def test_the_first_session_of_the_readme_works_in_a_clean_environment(
    built: Path, tmp_path: Path
) -> None:
    (wheel,) = built.glob("*.whl")
    (tmp_path / "examples").mkdir()
    venv.create(tmp_path / "venv", with_pip=True)
    folder = tmp_path / "venv" / "bin"
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PATH": path}

    def run(*command: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    for extra in ("", "[mpi]"):
        installed = run(folder / "pip", "install", "--quiet", f"{wheel}{extra}")
        assert installed.returncode == 0, installed.stderr
        (_, program), *commands = session()
        (tmp_path / "examples" / "sync_gradients.coll").write_text(program, encoding="utf-8")
        for command, output in commands:
            if extra or "mpi" not in command:
                done = run(*command.split())
                assert done.returncode == 0, f"$ {command}\n{done.stderr}"
                assert all(x.partition("...")[0] in done.stdout for x in output.splitlines())
