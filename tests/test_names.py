"""Tests that a name has one meaning."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_no_two_public_classes_share_a_name() -> None:
    files: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "collir").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(str(path.relative_to(ROOT)))
    assert len(files) > 500
    doubles = {name: found for name, found in files.items() if len(found) > 1}
    assert not doubles, "say in the name what each is of"
