"""Plant mistakes in collir, one at a time, and see whether the tests find them.

``python benchmarks/mutants/run.py`` copies the tree, and for each mutant of ``mutants.py`` and
the files
``of_...`` changes one place of the copy and runs the tests named with it. A mutant is killed if
a test fails. The tests must pass on the tree as it is. ``--all`` runs ``make test``'s tests on
those that survive.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import of_choices  # noqa: F401
import of_code  # noqa: F401
from mutants import MUTANTS, Mutant
from of_models import MODELS

ROOT = Path(__file__).parents[2]
EVERY = [*MUTANTS, *MODELS]
SKIPPED = shutil.ignore_patterns(".venv", ".git", "build", "__pycache__", ".*_cache", ".hypothesis")


def failure(tree: Path, tests: Sequence[str], processes: int) -> str:
    """Run tests on a tree until one fails, and return its name, or "" if all pass."""
    there = [test for test in tests if (tree / test.partition("::")[0]).exists()]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        str(processes),
        "--dist",
        "loadfile",
    ]
    command += ["-p", "no:cacheprovider", "-m", "not slow", *there]
    done = subprocess.run(
        command,
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1, 2):  # 1: tests fail, 2: they cannot be collected
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    if not done.returncode:
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split()[1] if failed else "a file that cannot be imported"


def planted(tree: Path, mutant: Mutant) -> str:
    """Change the one place of a mutant in a tree, and return the file as it was.

    Raises:
        SystemExit: the place is not there, or there are several.
    """
    path = tree / mutant.file
    text = path.read_text(encoding="utf-8")
    if (count := text.count(mutant.before)) != 1:
        raise SystemExit(f"{mutant.name}: {mutant.file} has its place {count} times")
    path.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
    return text


def main() -> None:
    """Run the mutants that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants, or areas of them, to run (all)")
    parser.add_argument("-n", type=int, default=2, help="processes that run tests (2)")
    parser.add_argument("--all", action="store_true", help="run all tests on those that survive")
    arguments = parser.parse_args()
    named = {*arguments.names}
    chosen = [m for m in EVERY if not named or named.intersection((m.name, m.area))]
    killed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="mutants_") as folder:
        tree = Path(folder) / "collir"
        shutil.copytree(ROOT, tree, ignore=SKIPPED, symlinks=True)
        every_test = sorted({test for mutant in chosen for test in mutant.tests})
        if broken := failure(tree, every_test, arguments.n):
            raise SystemExit(f"{broken} fails on the tree as it is")
        for mutant in chosen:
            start = time.monotonic()
            text = planted(tree, mutant)
            by = failure(tree, mutant.tests, arguments.n)
            if not by and arguments.all:
                by = failure(tree, ["tests"], arguments.n)
            (tree / mutant.file).write_text(text, encoding="utf-8")
            killed[mutant.area] += bool(by)
            seconds = time.monotonic() - start
            verdict = f"killed by {by}" if by else "SURVIVED"
            print(f"{seconds:5.0f} s  {mutant.area}: {mutant.name}: {verdict}", flush=True)
    print()
    for area, count in Counter(mutant.area for mutant in chosen).items():
        print(f"{area:10} {killed[area]:3} of {count} killed")
    print(f"{'all':10} {killed.total():3} of {len(chosen)} killed")


if __name__ == "__main__":
    main()
