"""Tests that the page on DistIR has the tables that its script makes."""

import pytest
from distir.page import BLOCKS, PAGE, page


@pytest.mark.turns
@pytest.mark.parametrize("block", ["plans", "measured", "differences"])
def test_the_page_is_not_stale(block: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, [block]) == text


def test_every_block_of_the_page_is_written() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for block in BLOCKS:
        assert text.count(f"<!-- {block} -->") == text.count(f"<!-- end of {block} -->") == 1
