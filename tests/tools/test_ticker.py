"""Tests of the line on a terminal that names the activity of a command."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.harness.hanging import HANG

from collir.passes.overlap import OverlapPass
from collir.tools import ticker
from collir.tools.collopt import main

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "sync_gradients.coll")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_pass_that_takes_long_is_named_on_a_terminal(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def slow(*_: Any) -> None:
        until = time.monotonic() + HANG
        while terminal and "overlap" not in shown and time.monotonic() < until:
            time.sleep(0.005)

    shown: list[str] = []
    writing = ticker.Ticker.tick

    def tick(self: ticker.Ticker, *arguments: Any) -> None:
        writing(self, *arguments)
        shown.append(self.doing())

    monkeypatch.setattr(OverlapPass, "apply", slow)
    monkeypatch.setattr(ticker.Ticker, "tick", tick)
    monkeypatch.setattr(ticker, "EVERY", 0.01)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert main([EXAMPLE, "-p", "overlap"]) == 0
    err = capsys.readouterr().err
    if terminal:
        assert "0 s  overlap" in err
        assert err.endswith("\r") and not err.rsplit("\r", 2)[1].strip()
    else:
        assert err == ""
