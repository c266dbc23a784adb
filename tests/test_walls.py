"""Imports run one way, and the oracles know nothing of the typing rules."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

ORDER = [
    "machine",
    "layout",
    "dialects",
    "syntax",
    ("cost", "semantics", "search"),
    "synthesis",
    ("passes", "targets"),
    "tools",
]
"""Every package may import from itself and from those before it (not from those beside it)."""


def level(package: str) -> int:
    for index, entry in enumerate(ORDER):
        if package == entry or (package in entry and isinstance(entry, tuple)):
            return index
    raise AssertionError(f"collir.{package} has no place in the walls")


def files() -> Iterator[tuple[str, Path]]:
    """(package, file) of all our code; the passes live beside the package."""
    for folder in (ROOT / "collir").iterdir():
        if folder.is_dir() and folder.name not in ("__pycache__", "passes"):
            yield from ((folder.name, path) for path in folder.rglob("*.py"))
    yield from (("passes", path) for path in (ROOT / "passes").rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """The modules of collir that a file imports anywhere, as ``package.module``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "collir":
                yield from (alias.name for alias in node.names)
            elif node.module.startswith("collir."):
                base = node.module.removeprefix("collir.")
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (
                alias.name.removeprefix("collir.")
                for alias in node.names
                if alias.name.startswith("collir.")
            )


@pytest.mark.parametrize(("package", "path"), list(files()), ids=lambda x: str(x)[-40:])
def test_imports_run_one_way(package: str, path: Path) -> None:
    for name in imports(path):
        other = name.partition(".")[0]
        if not (ROOT / "collir" / other).is_dir():
            continue  # a name in collir/__init__.py itself
        assert other == package or level(other) < level(package), f"{path} imports collir.{name}"


def test_the_oracles_import_none_of_the_rules() -> None:
    """Nor the table of steps, directly or by any file of theirs; they may use layout's values."""
    for path in (ROOT / "collir" / "semantics").glob("*.py"):
        for name in imports(path):
            assert "rules" not in name, f"{path} imports collir.{name}"
            assert name not in ("layout.check_type", "layout.steps", "syntax.mlir"), path
        text = path.read_text(encoding="utf-8")
        for word in (
            ".make(",
            ".infer(",
            ".result_type(",
            "LayoutError",
            "check_type",
            "op.kind",
            "op.flops",
            ".fold(",
        ):
            assert word not in text, f"{path} uses {word}"


def test_machine_and_layout_know_nothing_of_xdsl() -> None:
    for package in ("machine", "layout"):
        for path in (ROOT / "collir" / package).rglob("*.py"):
            assert "xdsl" not in path.read_text(encoding="utf-8")


def test_search_knows_nothing_of_collectives() -> None:
    """Its readers of files report errors as all readers do; nothing else is imported."""
    for path in (ROOT / "collir" / "search").rglob("*.py"):
        reader = path.parent.name == "problems"
        allowed = ("search", "syntax.diagnostics", "syntax.parsing") if reader else ("search",)
        for name in imports(path):
            assert name.startswith(allowed), f"{path} imports {name}"


def test_passes_cannot_be_imported_twice() -> None:
    source = (ROOT / "passes" / "__init__.py").read_text(encoding="utf-8")
    with pytest.raises(ImportError, match=r"import collir\.passes"):
        exec(compile(source, "passes/__init__.py", "exec"), {"__name__": "passes"})
