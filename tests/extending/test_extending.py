"""Tests that extensions work, and need no more parts than docs/extending.md says.

The files beside this one add a collective, a pass, a target and a dialect. They are imported in a
process of their own, before the rest of collir, because the grammar is made from the tables.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.harness.lit_files import faults, run_lines, run_piped

from collir.cost.collectives.table import COSTS
from collir.dialects.tables import OPERATIONS
from collir.layout.coll import STEPS
from collir.layout.nn_rows import NN
from collir.semantics.local import groups
from collir.semantics.reference import exactness, nn
from collir.semantics.reference.steps import MEANINGS, Effect, meaning_of
from collir.semantics.symbolic import execution
from collir.synthesis.reorder import swap
from collir.targets.code import (
    c_file,
    c_host,
    c_models,
    jax_ops,
    mpi4py,
    mpi_method,
    nccl_method,
    numpy_ops,
    torch,
    torch_ops,
)

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SENDING = {name for name, kind in STEPS.items() if kind.sends}
LOCAL = {name for name, kind in STEPS.items() if kind.local}
COPIED = {"slice", "transpose", "pad", "concat", "assemble"}
COMPUTED = {name for name in LOCAL if not STEPS[name].is_view} - COPIED
ARITHMETIC = {"add", "scale", "cast"}
OF_TWO = {"mul", "div", "maximum", "minimum"}
COPYING = {name for name in LOCAL if not (STEPS[name].is_view or STEPS[name].computes)}


@pytest.mark.turns
def test_extensions_from_outside_work() -> None:
    paths = [str(HERE), str(HERE.parent), *sys.path]
    plugins = ["-p", "collective", "-p", "pass_", "-p", "target", "-p", "dialect"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--noconftest", *plugins, "-q", str(HERE / "cases.py")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_collective_is_one_entry_in_each_table() -> None:
    """Check the parts: a row, a cost entry, a rule per oracle, and a line per code target."""
    tree = ast.parse((HERE / "collective.py").read_text(encoding="utf-8"))
    assigned = [
        ast.unparse(target.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Subscript)
    ]
    assert assigned == [
        "COSTS",
        "MEANINGS",
        "execution.RULES",
        "GROUPS",
        "mpi.ARGUMENTS",
        "c_file.sections('mpi_runtime.c')",
        "nccl_method.CALLS",
        "mpi4py.Mpi4pyMethod.COLLECTIVES",
        "torch.TorchMethod.COLLECTIVES",
        "jax_ops.EXPRESSIONS",
    ]
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert sum(isinstance(name, ast.Name) and name.id == "row" for name in calls) == 1


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (OPERATIONS, {*STEPS, *NN}),
        (nn.FUNCTIONS | MEANINGS, {*STEPS, *NN}),
        (nn.FUNCTIONS | execution.RULES, {*STEPS, *NN}),
        (nn.FUNCTIONS, set(NN)),
        (groups.GROUPS, SENDING - {"permute"}),
        (
            exactness.GRIDS,
            {n for n in OPERATIONS if meaning_of(n).effect is Effect.VALUES},
        ),
        (COSTS, SENDING),
        (mpi_method.ARGUMENTS, SENDING - {"send"}),
        (c_host.HostMethod.ELEMENTS, ARITHMETIC),
        (nccl_method.NcclMethod.KERNELS, ARITHMETIC | OF_TWO),
        (nccl_method.CALLS, SENDING - {"send"}),
        (mpi4py.Mpi4pyMethod.COLLECTIVES, SENDING),
        (torch.TorchMethod.COLLECTIVES, SENDING),
        (jax_ops.EXPRESSIONS, {*SENDING, *LOCAL, *NN}),
        (numpy_ops.EXPRESSIONS, {*NN, *COMPUTED}),
        (torch_ops.EXPRESSIONS, {*NN, *COMPUTED}),
        (c_models.BODIES, {*NN, "add"}),
        (swap.HOPS, {name for name, kind in STEPS.items() if kind.maps}),
    ],
    ids=lambda _: "",
)
def test_tables_are_complete(table: Mapping[str, object], names: Collection[str]) -> None:
    """Check that no entry is missing from a table, because looking it up would be an error."""
    assert set(table) == set(names)


@pytest.mark.parametrize(
    ("table", "title"),
    [
        (nn.FUNCTIONS, "FUNCTIONS (collir.semantics.reference.nn)"),
        (exactness.GRIDS, "GRIDS (collir.semantics.reference.exactness)"),
        (numpy_ops.EXPRESSIONS, "EXPRESSIONS (collir.targets.code.numpy_ops)"),
        (torch_ops.EXPRESSIONS, "EXPRESSIONS (collir.targets.code.torch_ops)"),
        (jax_ops.EXPRESSIONS, "EXPRESSIONS (collir.targets.code.jax_ops)"),
        (c_models.BODIES, "BODIES (collir.targets.code.c_models)"),
    ],
)
def test_an_operation_that_a_table_lacks_is_named_with_the_table(
    table: Mapping[str, object], title: str
) -> None:
    with pytest.raises(KeyError) as error:
        table["hardtanh"]
    name = title.partition(" ")[0]
    assert str(error.value).startswith(f'hardtanh has no row in {title}: add {name}["hardtanh"], ')


def test_a_row_that_comes_too_late_is_an_error() -> None:
    """Check that no row is added to a dialect whose operations are made, where nothing sees it."""
    with pytest.raises(ValueError, match=r"barrier2 comes too late for STEPS .*dialect coll"):
        STEPS["barrier2"] = replace(STEPS["barrier"], name="barrier2")
    assert "barrier2" not in STEPS


def test_the_runtime_of_mpi_has_every_collective() -> None:
    sections = c_file.sections("mpi_runtime.c")
    assert set(sections) >= SENDING
    blocks = {name for name, row in mpi_method.ARGUMENTS.items() if row.blocks}
    assert set(sections) >= {f"{name}_blocks" for name in blocks}
    assert blocks == {name for name in SENDING if STEPS[name].ordered}


TABLES = {
    "layout/coll.py",
    "layout/rules.py",
    "layout/requirements.py",
    "semantics/reference/steps.py",
    "semantics/local/groups.py",
    "semantics/symbolic/execution.py",
    "cost/collectives/table.py",
    "targets/code/mpi_method.py",
    "targets/code/nccl_method.py",
    "targets/code/mpi4py.py",
    "targets/code/torch.py",
    "targets/code/jax_collectives.py",
}
"""The files that name every collective."""

SUBJECTS = {
    "algorithms/collectives.py": "what each makes of which chunks, written apart from the types",
    "synthesis/trees/program.py": "which of them go up trees, and which go down",
    "synthesis/trees/schedules.py": "which have trees both ways, or one alone",
    "synthesis/trees/declared.py": "the types of each, as a program has them",
    "importing/algorithms/msccl_xml.py": "what MSCCL calls them",
    "importing/algorithms/mscclpp.py": "what MSCCL++ calls them",
    "tools/synthesize_driver.py": "which have a root",
    "importing/models/by_hand.py": "what JAX calls them",
    "tools/settings_jax.py": "what flags of XLA call them",
    "importing/hlo/rules.py": "what XLA calls them",
    "importing/hlo/written.py": "what XLA calls them",
    "importing/chakra/program.py": "one name of Chakra is another one",
    "importing/measurements/deepspeed.py": "what DeepSpeed's benchmark counts of each",
    "importing/measurements/nvshmem.py": "what the benchmarks of NVSHMEM call them",
    "importing/measurements/torch_bench.py": "what scripts of people measure",
    "importing/measurements/imb.py": "what the Intel MPI Benchmarks call them",
    "importing/measurements/names.py": "what programs and people call them",
    "importing/measurements/nccl_run.py": "what the programs of nccl-tests print",
    "importing/measurements/osu.py": "what the benchmarks of OSU call them",
    "importing/traces/names.py": "what traces call them",
    "importing/traces/nsys_sqlite.py": "what NCCL's marks call them",
    "importing/traces/program.py": "the types of blocks of which only bytes are known",
    "importing/traces/xla_collectives.py": "what XLA calls them",
    "synthesis/programs/fixed.py": "fixed strategies, by the steps they are made of",
    "synthesis/programs/strategies.py": "fixed strategies, of an all_reduce",
    "synthesis/programs/accumulation.py": "sums in another element type, by the steps they are",
    "synthesis/programs/layouts.py": "the program that makes everything whole first",
    "transforms/stages/around.py": "values are brought to the places of a pipeline, and back",
    "transforms/stages/unstaging.py": "values are brought to the places of a pipeline, and back",
    "ir/origins.py": "what to write where only the order of shards is wrong",
    "targets/code/c_main.py": "a main reduces what it measures",
    "syntax/chakra/messages.py": "what Chakra calls them",
    "tools/measure.py": "those that are measured",
}
"""The files that are about particular collectives, with the reason."""

TELLING = SENDING - {"reduce", "scatter", "gather", "permute", "send", "shift"}
"""The names that have no other meaning in Python or English."""


def _naming(path: Path, names: Collection[str]) -> set[str]:
    """Return the operations that the code of a file names, as strings or as rows."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    strings = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    rows = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return {name for name in names if name in strings or name.upper() in rows}


def test_no_other_file_names_collectives() -> None:
    """Check that other files have no lists of operations, in which a new one could be missing."""
    for path in (ROOT / "collir").rglob("*.py"):
        file = str(path.relative_to(ROOT / "collir"))
        if file.startswith("algorithms/"):
            continue  # an algorithm is one of the collectives that it names
        if file not in TABLES and file not in SUBJECTS:
            named = _naming(path, TELLING)
            assert not named, f"{file} names {', '.join(sorted(named))}"


@pytest.mark.parametrize("file", sorted([*TABLES, *SUBJECTS]))
def test_files_that_are_listed_name_collectives(file: str) -> None:
    """Check that the lists above have no file that names no collective any more."""
    assert _naming(ROOT / "collir" / file, TELLING)


def test_the_page_shows_the_files_as_they_are() -> None:
    """Check that each block of the page that names a file is a part of that file."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```text\n# ([a-z]+/\S+)\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 7
    for name, block in blocks:
        text = (ROOT / name).read_text(encoding="utf-8")
        for part in block.split("...\n"):
            assert part.strip("\n") in text, f"{name}: {part}"


def test_the_lit_files_of_the_page_pass(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```text\n(// RUN: .*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    machine = "machine @p { level gpu[2] { port = 8 GB/s, latency = 3 us } }\n"
    for block in blocks:
        file = tmp_path / "page.coll"
        run, _, rest = block.partition("\n")
        file.write_text(f"{run}\n{machine}mesh @m on @p {{ data = gpu:2 }}\n{rest}")
        assert not list(faults(file.read_text()))
        for command in run_lines(block):
            run_piped(command, file)
