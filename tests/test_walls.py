"""Tests that imports run one way, and that the oracles know nothing of the typing rules."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

ORDER = [
    "machine",
    "algorithms",
    "layout",
    "dialects",
    "ir",
    "syntax",
    "transforms",
    "localize",
    ("cost", "semantics", "search"),
    ("synthesis", "problems"),
    ("passes", "targets", "importing", "models"),
    "tools",
]
"""The packages in order: each may import from itself and from those before its entry only."""


def level(package: str) -> int:
    for index, entry in enumerate(ORDER):
        if package == entry or (package in entry and isinstance(entry, tuple)):
            return index
    raise AssertionError(f"collir.{package} has no place in the walls")


def files() -> Iterator[tuple[str, Path]]:
    """Yield (package, file) of all our code."""
    for folder in (ROOT / "collir").iterdir():
        if folder.is_dir() and folder.name != "__pycache__":
            yield from ((folder.name, path) for path in folder.rglob("*.py"))


@cache
def named_imports(path: Path) -> tuple[tuple[str, str], ...]:
    """Return the imports of a file from collir, in functions too: ``package.module`` and a name."""
    return tuple(_named_imports(path))


def _named_imports(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "collir":
            base = str(node.module).removeprefix("collir").removeprefix(".")
            yield from ((base, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("collir."):
                    yield alias.name.removeprefix("collir."), ""


def imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file may import, as ``package.module``, and with names behind."""
    for base, name in named_imports(path):
        yield from (text for text in (base, f"{base}.{name}".strip(".")) if text)


def test_imports_run_one_way() -> None:
    packages = {package for package, _ in files()}
    upward = [
        f"{path} imports collir.{name}"
        for package, path in files()
        for name in imports(path)
        if (target := name.partition(".")[0]) in packages - {package}
        and level(target) >= level(package)
    ]
    assert upward == []


@cache
def module_graph() -> dict[str, set[str]]:
    """Return the imports of every module of collir, imports inside functions included."""
    modules = {"__init__": ROOT / "collir" / "__init__.py"}
    for package, path in files():
        base = ROOT / "collir" / package
        inside = path.relative_to(base).with_suffix("").parts
        name = ".".join((package, *(part for part in inside if part != "__init__")))
        modules[name] = path
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        # `from package import module` needs the module, not what the package's face hands on.
        targets = {(base, f"{base}.{target}".strip(".")) for base, target in named_imports(path)}
        imported = {full if full in modules else base for base, full in targets}
        graph[name] = imported & modules.keys() - {name}
    return graph


def in_circles(graph: dict[str, set[str]]) -> list[str]:
    """Return a circle of a graph, or an empty list."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_files_import_each_other() -> None:
    assert not in_circles(module_graph())


def test_no_folders_import_each_other() -> None:
    """A folder and a file beside it do not import each other either, at any depth."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for name, imported in module_graph().items():
        for target in imported:
            importer, imported_path = name.split("."), target.split(".")
            shared = sum(
                1
                for _ in takewhile(
                    lambda pair: pair[0] == pair[1], zip(importer, imported_path, strict=False)
                )
            )
            if shared < min(len(importer), len(imported_path)):
                rooms[".".join(importer[: shared + 1])].add(".".join(imported_path[: shared + 1]))
    assert not in_circles(rooms)


def test_the_oracles_import_none_of_the_rules() -> None:
    """The table of steps is not imported either; the values of layout may be."""
    for path in (ROOT / "collir" / "semantics").rglob("*.py"):
        for name in imports(path):
            assert "rules" not in name, f"{path} imports collir.{name}"
            assert name not in (
                "layout.check_type",
                "layout.steps",
                "layout.coll",
                "ir.verification",
            ), path
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
    for path in (ROOT / "collir" / "search").rglob("*.py"):
        for name in imports(path):
            assert name.startswith("search"), f"{path} imports {name}"


def test_problems_know_nothing_of_collectives() -> None:
    """Readers of files report errors as all readers do; the rest is exact search."""
    for path in (ROOT / "collir" / "problems").rglob("*.py"):
        for name in imports(path):
            allowed = ("search", "problems", "ir.diagnostics", "syntax.encoding")
            assert name.startswith(allowed), f"{path} imports {name}"


def test_nothing_imports_the_benchmarks() -> None:
    """The papers of benchmarks/papers are packages for tests and scripts alone."""
    papers = {path.parent.name for path in ROOT.glob("benchmarks/papers/*/__init__.py")}
    assert papers == {"p2", "distir", "hap", "d_rec"}
    statement = re.compile(rf"^\s*(?:from|import) (?:benchmarks|{'|'.join(papers)})\b", re.M)
    for path in (ROOT / "collir").rglob("*.py"):
        assert not statement.search(path.read_text(encoding="utf-8")), path


def test_passes_cannot_be_imported_twice() -> None:
    source = (ROOT / "collir" / "passes" / "__init__.py").read_text(encoding="utf-8")
    with pytest.raises(ImportError, match=r"import collir\.passes"):
        exec(compile(source, "passes/__init__.py", "exec"), {"__name__": "passes"})


RATES = re.compile(
    r"\.(memory_bandwidth|efficiency|execution|launch|seconds_of_element)\b|\bdevice\)?\.compute\b"
)
"""What reads the rates of a device: all but the cost models ask these for times."""


def test_passes_and_searches_read_no_rates_of_a_device() -> None:
    for folder in ("collir/synthesis", "collir/passes"):
        for path in (ROOT / folder).rglob("*.py"):
            named = {match[0] for match in RATES.finditer(path.read_text(encoding="utf-8"))}
            assert not named, f"{path.relative_to(ROOT)} reads {', '.join(sorted(named))}"


def test_types_are_checked_without_torch() -> None:
    # The check runs before torch is installed; where it is installed, nothing else would notice.
    for path in (file for folder in ("collir", "tests") for file in ROOT.glob(f"{folder}/**/*.py")):
        text = path.read_text(encoding="utf-8")
        if "torch" not in text or "golden" in path.parts:
            continue
        for node in ast.walk(ast.parse(text)):
            listed = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                listed = [node.module or ""]
            for module in (name for name in listed if name.partition(".")[0] == "torch"):
                stub = ROOT / "typings" / module.replace(".", "/") / "__init__.pyi"
                assert stub.exists(), f"{path} imports {module}, which has no stub in typings/"
