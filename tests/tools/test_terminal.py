"""Tables on a terminal have styles and fit it; everywhere else they are plain text."""

import os
import re
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import TextIO

import pytest

from collir.targets.reports import terminal
from collir.targets.reports.text import table, table_rows
from collir.tools import collir, collopt

pty = pytest.importorskip("pty")
termios = pytest.importorskip("termios")
pytest.importorskip("rich")

ROOT = Path(__file__).parents[2]
TOOLS = {"collir": collir.main, "collopt": collopt.main}
COST = ["collopt", "examples/sync_gradients.coll", "-p", "decompose", "-t", "cost"]
WHY = ["collir", "why", "examples/models/fsdp.hlo.txt", "--mesh", "data=2,fsdp=4", "--top", "2"]
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def run(words: list[str], stream: TextIO) -> None:
    """Run a command in this process, with a stream as its output."""
    with chdir(ROOT), redirect_stdout(stream), redirect_stderr(StringIO()):
        assert TOOLS[words[0]](words[1:]) == 0


def shown(words: list[str], columns: int, **environment: str) -> str:
    """Return what a command prints on a terminal."""
    own, other = pty.openpty()
    termios.tcsetwinsize(other, (50, columns))
    parts: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # the terminal is closed
            while part := os.read(own, 2**16):
                parts.append(part)

    reader = Thread(target=read)
    reader.start()
    with pytest.MonkeyPatch.context() as patch, os.fdopen(other, "w") as stream:
        patch.delenv("COLUMNS", raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        run(words, stream)
    reader.join()
    os.close(own)
    return b"".join(parts).decode().replace("\r\n", "\n")


def piped(words: list[str]) -> str:
    """Return what a command prints elsewhere."""
    stream = StringIO()
    run(words, stream)
    return stream.getvalue()


def words_of(text: str) -> list[str]:
    return ESCAPE.sub("", text).replace("─", "").split()


@pytest.mark.parametrize("words", [COST, WHY], ids=["cost", "why"])
def test_a_terminal_shows_the_words_of_a_pipe_with_styles(words: list[str]) -> None:
    plain, styled = piped(words), shown(words, 200)
    assert "\x1b" not in plain
    assert "\x1b[1m" in styled and "\x1b[36m" in styled and "──" in styled
    assert words_of(styled) == words_of(plain)


def test_a_terminal_that_is_narrow_is_filled_and_not_exceeded() -> None:
    lines = ESCAPE.sub("", shown(COST, 90)).splitlines()
    assert 80 <= max(map(len, lines)) <= 90


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_a_terminal_without_styles_shows_plain_text(variable: dict[str, str]) -> None:
    assert shown(COST, 200, **variable) == piped(COST)


def test_files_and_pages_are_plain(tmp_path: Path) -> None:
    page, report, costs = (tmp_path / name for name in ("why.html", "page.html", "costs.txt"))
    shown([*WHY, "--html", str(page)], 200)
    shown([*COST[:-1], "html", "-o", str(report)], 200)
    shown([*COST, "-o", str(costs)], 200)
    assert costs.read_text() == piped(COST)
    text = shown([*COST[:-1], "html"], 200)
    for shown_text in (text, page.read_text(), report.read_text()):
        assert "\x1b" not in shown_text and "\\u001b" not in shown_text


def test_a_pipe_does_not_load_rich() -> None:
    text = (
        "import sys; from collir.tools.collopt import main; "
        f"assert main({COST[1:]!r}) == 0; assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True, capture_output=True)


# --- tables -------------------------------------------------------------------------------------


class Screen(StringIO):
    """A terminal that does not say how wide it is."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_words_of_users_are_no_markup() -> None:
    name = "[red]%a[/red] :smile: [link=x]"
    with terminal.drawn_on(Screen()):
        lines = table(["step", "[b]"], [[name, "1 us"]], 1)
    assert ESCAPE.sub("", lines[2]).split("  ")[0] == name
    assert ESCAPE.sub("", lines[0]).split() == ["step", "[b]"]
    assert lines[2].startswith("\x1b[36m")


def test_each_row_has_its_own_lines() -> None:
    """Check that cells on several lines, and a rule below the head, are counted."""
    rows = [["one, two, " * 12, "1"], ["- three", "2"], ["four, " * 20, "3"]]
    with terminal.drawn_on(Screen()):
        head, *body = table_rows(["of step", "n"], rows, 1)
        without = table_rows([], rows, 1)
    assert len(head) == 2
    assert without == body
    for row, lines in zip(rows, body, strict=True):
        first, *rest = [ESCAPE.sub("", line) for line in lines]
        assert first.split()[-1] == row[1]
        words = [*first.split()[:-1], *(word for line in rest for word in line.split())]
        assert words == row[0].split()
        assert max(map(len, (first, *rest))) <= 78


def test_tables_are_plain_without_rich_and_behind_the_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = ["step", "time"], [["add", "1 us"]], 1
    plain = table(*rows)
    with terminal.drawn_on(Screen()), terminal.drawn_on(None):
        assert table(*rows) == plain
    assert table(*rows) == plain
    monkeypatch.setattr(terminal, "find_spec", lambda name: None)  # pyright: ignore
    with terminal.drawn_on(Screen()):
        assert table(*rows) == plain
