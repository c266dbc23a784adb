"""Tests of commands with hostile files and options: a result or a diagnostic, in bounded memory.

``PYTHONPATH=tests python tests/support/tools/hostile.py`` runs a campaign, and prints what is slow
too: a mutated program may be a large one, so time is no fault here.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest
from support.harness import limited, seeds
from support.harness.limited import Case
from support.tools import hostile


def faults(cases: Iterable[Case], folder: Path) -> list[tuple[tuple[str, ...], str, str]]:
    """Return the command, the fault and the last messages of each case that fails."""
    return [
        (case.words, verdict.fault, verdict.err[-500:])
        for case, verdict in limited.run_all(cases, folder)
        if verdict.fault not in ("", "hang")
    ]


@pytest.mark.turns
def test_some_hostile_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "SECONDS", 1)
    assert faults(hostile.cases(15, seeds.SEED), tmp_path) == []


@pytest.mark.slow
def test_many_hostile_commands(tmp_path: Path) -> None:
    hostile.preload()
    assert faults(hostile.cases(5000, seeds.SEED), tmp_path) == []


class Deaf:
    """An object whose finalizer runs until it is interrupted, which Python swallows there."""

    def __del__(self) -> None:
        while True:
            pass


def broken(words: tuple[str, ...]) -> str:
    """Do what no command may do, by its first word."""
    if words[0] == "swallow":
        Deaf()
    if words[0] == "raise":
        raise ValueError("a bug")
    if words[0] == "allocate":
        return "x" * (3 * 2**30)
    while words[0] in ("loop", "swallow"):
        pass
    return ""


@pytest.mark.turns
@pytest.mark.parametrize(
    ("word", "fault"),
    [
        ("raise", "escaped ValueError"),
        ("loop", "hang"),
        ("swallow", "hang"),
        ("allocate", "escaped"),
    ],
)
def test_faults_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, fault: str
) -> None:
    if fault == "hang":
        monkeypatch.setattr(limited, "SECONDS", 0.1)
    monkeypatch.setitem(limited.TOOLS, "collopt", lambda words: print(broken(tuple(words))) or 0)
    [(_, verdict)] = limited.run_all([Case("", ("collopt", word))], tmp_path)
    assert verdict.fault.startswith(fault)
