"""Tests that execute the fenced blocks of README.md, the pages beside it, docs/ and
benchmarks/papers/.

- ``coll`` is parsed, verified and printed to a fixed point. A block without a machine of its own is
  read with the machines and meshes of the page's first block.
- ``coll error`` is rejected; a ``text`` block right behind it holds the diagnostics of ``x.coll``.
- ``console`` is run, in a folder of the page that holds the examples. The output is compared;
  ``...`` stands for anything in a line, or alone for any lines. Commands that install or build
  (``make``, ``pip``, ``git``) are not run. A command must succeed unless the expected output has
  an ``error:``.
- ``python`` is executed, as doctest where it starts with ``>>>``; the blocks of a page share names.
- ``text`` and ``sh`` are not executed.
"""

import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from support.harness.commands import tool_of

from collir.dialects.tables import OPERATIONS
from collir.ir.diagnostics import DiagnosticError, Sources, render_all
from collir.ir.verification import verify
from collir.syntax.machines import PRESETS
from collir.syntax.operations import usage
from collir.syntax.reader import read
from collir.syntax.writer import write

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "docs", ROOT / "benchmarks" / "papers")
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for folder in FOLDERS for page in sorted(folder.rglob("*.md"))),
]
LONG = ("calibration", "imports", "stages", "sweep", "symbolic")
"""The pages whose commands take 10 seconds and more: they are run by turns."""
LANGUAGES = ("coll", "coll error", "console", "python", "text", "sh")
NOT_RUN = ("make", "pip", "git")


@dataclass(frozen=True)
class Block:
    """A fenced block: its place, its language, its text, and the text block behind it."""

    page: Path
    line: int
    language: str
    text: str
    output: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}-{self.language.replace(' ', '-')}"


_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@cache
def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    fences = list(_FENCE.finditer(text))
    blocks: list[Block] = []
    for match, following in zip(fences, [*fences, None][1:], strict=True):
        adjoins = following and not text[match.end() : following.start()].strip()
        output = following[2] if following and adjoins and following[1] == "text" else None
        line = text.count("\n", 0, match.start()) + 1
        blocks.append(Block(page, line, match[1], match[2], output))
    return blocks


def blocks(language: str) -> list[Block]:
    """Return the blocks of all pages in a language."""
    return [block for page in PAGES for block in blocks_of(page) if block.language == language]


def by_turns(listed: list[Block]) -> list[object]:
    """Return blocks as parameters; those of a long page have their turn together."""
    marks = [[pytest.mark.turns(x.page.name)] if x.page.stem in LONG else [] for x in listed]
    return [pytest.param(x, marks=own) for x, own in zip(listed, marks, strict=True)]


def test_every_block_has_a_language_that_is_checked() -> None:
    for page in PAGES:
        for block in blocks_of(page):
            assert block.language in LANGUAGES, f"{block}: use one of {', '.join(LANGUAGES)}"


# --- programs -----------------------------------------------------------------------------------


def complete(block: Block) -> str:
    """Return the text of a block, followed by the machines of its page if it has none."""
    if re.search(r"^machine ", block.text, re.MULTILINE):
        return block.text
    first = next(
        candidate.text
        for candidate in blocks_of(block.page)
        if candidate.language == "coll" and "machine " in candidate.text
    )
    return block.text + re.split(r"^func ", first, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("block", blocks("coll"), ids=str)
def test_programs(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples")
    module = read(complete(block), "x.coll")
    verify(module)
    printed = write(module)
    assert write(read(printed, "x.coll")) == printed


@pytest.mark.parametrize("block", blocks("coll error"), ids=str)
def test_programs_that_are_rejected(block: Block) -> None:
    sources = Sources()
    with pytest.raises(DiagnosticError) as raised:
        verify(read(complete(block), "x.coll", sources))
    if block.output is not None:
        assert render_all(raised.value.diagnostics, sources) == block.output


# --- commands -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Return a function from a page to its folder, which holds the examples."""

    @cache
    def folder_of(page: Path) -> Path:
        folder = tmp_path_factory.mktemp(page.stem)
        shutil.copytree(ROOT / "examples", folder / "examples")
        return folder

    return folder_of


def commands_of(block: Block) -> Iterator[tuple[str, str]]:
    """Yield the commands of a console block, each with the output that is shown."""
    assert block.text.startswith("$ "), f"{block} does not start with a command"
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        head = re.match(r"(?:[^\n]*\\\n)*[^\n]*\n", part)
        assert head
        yield head.group().replace("\\\n", " ").strip(), part[head.end() :]


def run(command: str) -> tuple[int, str]:
    """Run a command, our own tools in this process; return its status and its whole output."""
    words = shlex.split(command)
    apart = re.search(r"[|<>&;]", command) or words[:3] == ["collir", "import", "jax"]
    if (tool := tool_of(words)) and not apart:  # a process with JAX has threads
        output = io.StringIO()
        with redirect_stdout(output), redirect_stderr(output):
            try:
                status = tool[0](tool[1])
            except SystemExit as stop:  # argparse
                status = int(stop.code or 0)
        return status, output.getvalue()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def matches(expected: str, output: str) -> bool:
    """Return whether an output is the expected one, in which ``...`` stands for anything."""
    pattern = ""
    for line in expected.rstrip("\n").split("\n"):
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*".join(map(re.escape, line.split("..."))) + r"[ ]*\n"
    return re.fullmatch(pattern, output.rstrip("\n") + "\n") is not None


@pytest.mark.parametrize("block", by_turns(blocks("console")), ids=str)
def test_commands(block: Block, folder_of: Callable[[Path], Path]) -> None:
    with chdir(folder_of(block.page)):
        for command, expected in commands_of(block):
            if command.split()[0] in NOT_RUN:
                continue
            status, output = run(command)
            assert matches(expected, output), f"$ {command}\n{output}"
            assert (status != 0) == ("error:" in expected), f"$ {command}\nexited with {status}"


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        ("a ... c\n", "a b c\n", True),
        ("a\n...\nc\n", "a\nx\ny\nc\n", True),
        ("a\n...\nc\n", "a\nc\n", True),
        ("a\n...\n", "a\nb\nc\n", True),
        ("a\n", "a\nb\n", False),
        ("a ... c\n", "a b\nb c\n", False),
        ("a.c\n", "abc\n", False),
        ("", "", True),
    ],
)
def test_three_dots_stand_for_anything(expected: str, output: str, same: bool) -> None:
    assert matches(expected, output) == same


# --- Python -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def names() -> dict[Path, dict[str, object]]:
    """Return the names that the Python blocks of each page have defined."""
    return {page: {"__name__": "__main__"} for page in PAGES}


@pytest.mark.parametrize("block", by_turns(blocks("python")), ids=str)
def test_python(
    block: Block,
    folder_of: Callable[[Path], Path],
    names: dict[Path, dict[str, object]],
) -> None:
    with chdir(folder_of(block.page)):
        if not block.text.startswith(">>>"):
            exec(compile(block.text, str(block), "exec"), names[block.page])
            return
        test = doctest.DocTestParser().get_doctest(
            block.text, names[block.page], str(block), str(block.page), block.line
        )
        output = io.StringIO()
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test, out=output.write, clear_globs=False)
        names[block.page].update(test.globs)
        assert runner.failures == 0, output.getvalue()


# --- what a page must say -------------------------------------------------------------------------


def test_the_reference_has_every_operation_as_it_is_written() -> None:
    pages = sorted((ROOT / "docs" / "language").glob("*.md"))
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for mnemonic, operation in OPERATIONS.items():
        assert f"`{usage(operation.KIND)}`" in text
        first = "[a-z]" if operation.KIND.operands == 0 else "%"
        assert re.search(rf'= {mnemonic} ("[^"]*" )?{first}', text), f"no example of {mnemonic}"


def test_the_reference_has_every_shipped_machine() -> None:
    page = (ROOT / "docs" / "language" / "machines.md").read_text(encoding="utf-8")
    for path in PRESETS.glob("*.coll"):
        assert f"`@{path.stem}`" in page


def _anchors(page: Path) -> set[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page}: there is no {link}"
        if anchor:
            assert anchor in _anchors(target), f"{page}: {name} has no heading #{anchor}"


def test_pages_that_code_names_exist() -> None:
    for file in [*(ROOT / "collir").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b", file.read_text(encoding="utf-8")):
            assert (ROOT / page).exists(), f"{file}: there is no {page}"


def test_every_decision_is_listed() -> None:
    page = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"):
        assert f"({path.name})" in page
