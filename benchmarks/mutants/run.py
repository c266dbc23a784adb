"""Plant mistakes in collir, one at a time, and see whether the tests find them.

``python benchmarks/mutants/run.py`` copies the tree, and for each mutant of ``mutants.py`` changes
one place of the copy and runs the tests named with it. A mutant is killed if a test fails. The
tests must pass on the tree as it is. ``--all`` runs ``make test``'s tests on those that survive,
``--tests FOLDER`` takes the tests of another tree, to compare with.
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

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
SKIPPED = shutil.ignore_patterns(".venv", ".git", "build", "__pycache__", ".*_cache", ".hypothesis")


def passes(tree: Path, tests: Sequence[str]) -> bool:
    """Run tests on a tree until one fails, and return whether all pass."""
    there = [test for test in tests if (tree / test.partition("::")[0]).exists()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "--dist", "loadfile"]
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
    return done.returncode == 0


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
    parser.add_argument("names", nargs="*", help="mutants to run (all)")
    parser.add_argument("--all", action="store_true", help="run all tests on those that survive")
    parser.add_argument("--tests", type=Path, help="a tree whose tests/ to use instead")
    arguments = parser.parse_args()
    chosen = [m for m in MUTANTS if not arguments.names or m.name in arguments.names]
    killed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="mutants_") as folder:
        tree = Path(folder) / "collir"
        shutil.copytree(ROOT, tree, ignore=SKIPPED, symlinks=True)
        if arguments.tests:
            shutil.rmtree(tree / "tests")
            shutil.copytree(arguments.tests / "tests", tree / "tests", ignore=SKIPPED)
        if not passes(tree, sorted({test for mutant in chosen for test in mutant.tests})):
            raise SystemExit("the tests fail on the tree as it is")
        for mutant in chosen:
            start = time.monotonic()
            text = planted(tree, mutant)
            survives = passes(tree, mutant.tests)
            if survives and arguments.all:
                survives = passes(tree, ["tests"])
            (tree / mutant.file).write_text(text, encoding="utf-8")
            killed[mutant.area] += not survives
            verdict = "SURVIVED" if survives else "killed"
            seconds = time.monotonic() - start
            print(f"{verdict:9} {seconds:5.0f} s  {mutant.area}: {mutant.name}", flush=True)
    print()
    for area, count in Counter(mutant.area for mutant in chosen).items():
        print(f"{area:10} {killed[area]:3} of {count} killed")
    print(f"{'all':10} {killed.total():3} of {len(chosen)} killed")


if __name__ == "__main__":
    main()
