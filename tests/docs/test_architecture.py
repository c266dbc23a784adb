"""Tests that docs/architecture.md names what there is, where it is."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PLACES = re.findall(r"`(collir/\S+\.py)`: `(\w+)`", PAGE)


def _defined(path: Path) -> set[str]:
    """Return the names of functions and classes, methods among them, and of values of a file."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    named = {x.name for x in nodes if isinstance(x, (ast.FunctionDef, ast.ClassDef))}
    assigned = [
        target
        for x in nodes
        for target in (x.targets if isinstance(x, ast.Assign) else [getattr(x, "target", None)])
    ]
    return named | {x.id for x in assigned if isinstance(x, ast.Name)}


@pytest.mark.parametrize(("file", "name"), PLACES)
def test_what_is_named_is_there(file: str, name: str) -> None:
    assert name in _defined(ROOT / file)


def test_all_rooms_are_named() -> None:
    table = PAGE.partition("## Rooms")[2].partition("##")[0]
    named = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    folders = {x.name for x in (ROOT / "collir").iterdir() if (x / "__init__.py").exists()}
    assert len(named) == len(set(named))
    assert set(named) == folders


def test_the_forms_of_a_step_are_classes() -> None:
    table = PAGE.partition("## A step on its way")[2]
    classes = {
        x.name
        for path in (ROOT / "collir").rglob("*.py")
        for x in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(x, ast.ClassDef)
    }
    forms = re.findall(r"^\| \w+ \| `(\w+)` \|", table, re.MULTILINE)
    assert len(forms) >= 8
    assert set(forms) <= classes
