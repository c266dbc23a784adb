"""Tests that mistakes of packages are diagnostics that name the package, and what is to be mended.

Each test runs commands in one process, which has a package of its own on its path.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """\
machine @box { level node[4] { port = 8 GB/s, latency = 20 us } }
mesh @m on @box { data = node:4 }
func @f(%g: f32[64] partial(sum: data)) -> f32[64] on @m {
  %0 = scale %g by 0.5
  %r = STEP %0 over data
  return %r
}
"""

WRONG = '''\
from xdsl.passes import ModulePass
from xdsl.universe import Universe
from xdsl.utils.target import Target


class Forget(ModulePass):
    """Forget all scales."""

    name = "forget"

    def apply(self, ctx, op):
        for step in list(op.walk()):
            if step.name == "coll.scale":
                step.result.replace_all_uses_with(step.input)
                step.detach()
                step.erase()


class Drop(ModulePass):
    name = "drop"

    def apply(self, ctx, op):
        for step in list(op.walk()):
            if step.name == "func.return":
                step.operands = [step.parent.args[0]]


class Raise(ModulePass):
    name = "raise"

    def apply(self, ctx, op):
        op.no_such_attribute


class Fail(Target):
    """Print nothing."""

    name = "fail"

    def emit(self, ctx, module, output):
        [][0]


UNIVERSE = Universe(
    all_passes={"forget": lambda: Forget, "drop": lambda: Drop, "raise": lambda: Raise},
    all_targets={"fail": lambda: Fail},
)
'''

RUN = """\
import contextlib, io, json, sys
from collir.tools import collopt, collrun

def run(tool, *words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = {"collopt": collopt, "collrun": collrun}[tool].main(words)
    return status, out.getvalue(), err.getvalue()
"""


def outcomes(script: str, *arguments: str, path: Path) -> dict[str, list[str | int]]:
    """Return what a script prints as JSON, with the packages of a folder on its path."""
    done = subprocess.run(
        [sys.executable, "-c", RUN + script, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str | int]]:
    """Return what commands that run the parts of a wrong package do."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "wrong.py").write_text(WRONG)
    info = folder / "wrong-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[xdsl.universe]\nwrong = wrong:UNIVERSE\n")
    program = folder / "program.coll"
    program.write_text(PROGRAM.replace("STEP", "all_reduce"))
    script = """\
file = sys.argv[1]
commands = {
    "forget": ["-p", "forget", "--validate-passes"],
    "drop": ["-p", "drop"],
    "raise": ["-p", "raise"],
    "fail": ["-t", "fail"],
}
results = {name: run("collopt", file, *words) for name, words in commands.items()}
with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
    collopt.main(["--help"])
print(json.dumps(results | {"help": [0, out.getvalue(), ""]}))
"""
    return outcomes(script, str(program), path=folder)


@pytest.mark.turns
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("forget", "error: pass forget of the package wrong changed the program: @f computes"),
        ("drop", "error: pass drop of the package wrong left an invalid module: "),
        (
            "raise",
            "AttributeError: 'ModuleOp' object has no attribute 'no_such_attribute'",
        ),
        ("fail", "collopt: error: IndexError: list index out of range, in the package wrong ("),
    ],
)
def test_a_mistake_names_its_package(
    name: str, message: str, wrong: dict[str, list[str | int]]
) -> None:
    status, output, error = wrong[name]
    assert (status, output) == (1, "")
    assert isinstance(error, str)
    assert message in error
    assert "internal" not in error
    assert "the package wrong" in error
    if name in ("forget", "drop"):
        assert "program.coll:" in error
    else:
        assert "wrong.py:" in error


def test_help_lists_passes_and_targets_of_packages(wrong: dict[str, list[str | int]]) -> None:
    """Check that each is in its list, also where it has no docstring."""
    passes, _, targets = str(wrong["help"][1]).partition("\ntargets:\n")
    assert re.search(r"^  forget +Forget all scales\.$", passes, re.MULTILINE)
    assert re.search(r"^  drop +\(no docstring\)$", passes, re.MULTILINE)
    assert re.search(r"^  fail +Print nothing\.$", targets, re.MULTILINE)


MISSING = """\
import gc

import collir
from collir.layout.operation_table import OperationTable

program = sys.argv[1]
collir.parse(open(program).read())
tables = [x for x in gc.get_objects() if isinstance(x, OperationTable)]
commands = {"COSTS": ["collopt", "-t", "cost"], "MEANINGS": ["collrun"]}
commands["GROUPS"] = ["collrun", "--engine", "local"]
commands |= {
    table: ["collopt", "-t", target]
    for table, target in [
        ('sections("mpi_runtime.c")', "mpi"),
        ("ARGUMENTS", "mpi"),
        ("CALLS", "nccl"),
        ("Mpi4pyMethod.COLLECTIVES", "mpi4py"),
        ("TorchMethod.COLLECTIVES", "torch"),
        ("EXPRESSIONS", "jax"),
        ("RULES", "coll"),
    ]
}
outcomes = {}
for table in tables:
    if "rooted_all_reduce" in table and not table.title.startswith("ROWS"):
        tool, *words = commands.pop(table.title.partition(" ")[0])
        if table.title.startswith("RULES"):
            words = ["-p", "canonicalize", "--validate-passes"]
        row = table.pop("rooted_all_reduce")
        outcomes[table.title] = run(tool, program, *words)
        table["rooted_all_reduce"] = row
assert not commands, commands
print(json.dumps(outcomes))
"""


@pytest.mark.turns
def test_a_collective_without_a_row_is_told_which(tmp_path: Path) -> None:
    """Check the tables of the collective of examples/plugin, without each row in turn."""
    info = tmp_path / "collir_split-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: collir-split\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[xdsl.universe]\nsplit = collir_split:UNIVERSE\n")
    (tmp_path / "collir_split").symlink_to(ROOT / "examples" / "plugin" / "collir_split")
    program = tmp_path / "program.coll"
    program.write_text(PROGRAM.replace("STEP", "rooted_all_reduce"))
    found = outcomes(MISSING, str(program), path=tmp_path)
    assert len(found) == 10
    for title, (status, _, error) in found.items():
        assert isinstance(error, str)
        message = f"rooted_all_reduce has no row in {title}: add "
        assert message in error, title
        if title.startswith("RULES"):  # it is run where it cannot be proven
            assert status == 0
        else:
            assert status == 1
            assert error.startswith(f"{program}:5:8: error: {message}")
