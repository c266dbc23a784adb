"""Tests that the generated pages are not stale."""

from pathlib import Path

import pytest

from collir.layout.pipelines.rules import RULES
from collir.passes.table import PASSES
from collir.targets.table import TARGETS
from collir.tools.docs import blocks, filled, main, pages

DOCS = Path(__file__).parents[2] / "docs"


def test_pages_are_what_make_docs_writes() -> None:
    for name, text in pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, "run `make docs`"


def test_blocks_are_what_make_docs_writes() -> None:
    for name, texts in blocks().items():
        text = (DOCS / name).read_text(encoding="utf-8")
        assert text == filled(text, texts), "run `make docs`"


def test_blocks_are_written_anew(tmp_path: Path) -> None:
    page, text = tmp_path / "stages.md", (DOCS / "stages.md").read_text(encoding="utf-8")
    page.write_text(text.replace(RULES["zb-v"].source, "nobody"), "utf-8")
    assert main([str(tmp_path)]) == 0
    assert page.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("times", [0, 2])
def test_a_block_is_on_its_page_once(times: int) -> None:
    text = (DOCS / "stages.md").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="once"):
        filled(text * times, blocks()["stages.md"])


def test_pages_have_every_pass_and_target() -> None:
    written = pages()
    for name, table in (("passes.md", PASSES), ("targets.md", TARGETS)):
        for item in table:
            assert f"\n## {item}\n" in written[name]


def test_options_and_code_are_marked(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 0
    text = (tmp_path / "passes.md").read_text(encoding="utf-8")
    assert "- `model: str (default auto)`" in text
    assert "```text\n%r = all_reduce %g over data\n```" in text
