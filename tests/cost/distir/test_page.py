"""Tests that docs/distir.md has the tables that benchmarks/distir.py makes."""

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "distir.py"))


@pytest.mark.turns
@pytest.mark.parametrize("block", ["plans", "measured", "differences"])
def test_the_page_is_not_stale(block: str) -> None:
    text = SCRIPT["PAGE"].read_text(encoding="utf-8")
    assert SCRIPT["page"](text, [block]) == text


def test_every_block_of_the_page_is_written() -> None:
    text = SCRIPT["PAGE"].read_text(encoding="utf-8")
    for block in SCRIPT["BLOCKS"]:
        assert text.count(f"<!-- {block} -->") == text.count(f"<!-- end of {block} -->") == 1
