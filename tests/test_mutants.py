"""The mutants of the benchmark can be planted, so that a run of it is not in vain."""

import ast
import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_mutant_has_its_place() -> None:
    mutants = runpy.run_path(str(ROOT / "benchmarks" / "mutants" / "mutants.py"))["MUTANTS"]
    assert len({mutant.name for mutant in mutants}) == len(mutants) > 50
    for mutant in mutants:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.before) == 1, f"{mutant.name}: {mutant.file}"
        planted = text.replace(mutant.before, mutant.after)
        assert planted != text
        if mutant.file.endswith(".py"):
            ast.parse(planted)
