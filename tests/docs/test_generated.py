"""Tests that the generated blocks of pages are not stale."""

from itertools import chain
from pathlib import Path

import pytest

from collir.layout.pipelines.rules import RULES
from collir.passes.pipelines import PIPELINES
from collir.passes.table import PASSES
from collir.targets.table import TARGETS
from collir.tools.docs import FAMILIES, blocks, filled, main

DOCS = Path(__file__).parents[2] / "docs"


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


def test_every_pass_is_on_one_page() -> None:
    assert sorted(chain(*FAMILIES.values())) == sorted(PASSES)
    for family, names in FAMILIES.items():
        text = (DOCS / "passes" / f"{family}.md").read_text(encoding="utf-8")
        assert all(f"\n## {name}\n" in text for name in names)


def test_every_target_and_pipeline_has_a_section() -> None:
    for page, heading, names in (("targets", "##", TARGETS), ("pipelines", "###", PIPELINES)):
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert all(f"\n{heading} {name}\n" in text for name in names)


def test_options_and_code_are_marked() -> None:
    text = blocks()["passes/collectives.md"]["passes"]
    assert "- `top: int (default 1)`: The number of programs to keep." in text
    assert "[Shared options](../passes/index.md#shared-options): `model`, `algorithm`" in text
    assert "```text\n%r = all_reduce %g over data\n```" in text
