"""Tests that what contributors rely on is complete: pages, versions, workflows, forms."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import collir

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CI = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)$", text, re.MULTILINE)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    reached = {page for page in pages if re.match(r"decisions/\d", page)}  # from their list
    outside = {page for page in listed if page.startswith("files/")}
    assert sorted(listed) == sorted({"index.md", *outside, *(pages - reached)})
    assert all((ROOT / page.removeprefix("files/")).exists() for page in outside)


@pytest.mark.slow
def test_the_site_has_no_warnings(tmp_path: Path) -> None:
    if not (importlib.util.find_spec("material") and importlib.util.find_spec("mkdocstrings")):
        pytest.skip("mkdocs is not installed: pip install 'collir[site]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    assert (tmp_path / "files" / "examples" / "sync_gradients.coll.html").exists()


def test_the_version_is_the_same_everywhere() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\d\S+)", changes, re.MULTILINE)[0] == collir.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {collir.__version__}\n" in citation


def test_every_python_that_is_claimed_is_tested() -> None:
    matrix = re.search(r"python: \[(.*)\]", CI)
    assert matrix
    claimed = [x for x in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", x)]
    assert [x.rpartition(" ")[2] for x in claimed] == matrix[1].replace('"', "").split(", ")
    assert PROJECT["requires-python"] == ">=" + claimed[0].rpartition(" ")[2]


def test_the_page_of_what_is_stable_lists_what_is_exported() -> None:
    page = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    rows = "".join(re.findall(r"^\|(.*?)\|", page, re.MULTILINE))
    assert sorted(re.findall(r"`collir\.(\w+)`", rows)) == sorted(collir.__all__)


def test_workflows_and_forms_are_yaml() -> None:
    yaml: Any = pytest.importorskip("yaml")
    for path in (ROOT / ".github").rglob("*.yml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        body = yaml.safe_load(path.read_text(encoding="utf-8"))["body"]
        labels = " ".join(field["attributes"]["label"] for field in body)
        assert all(word in labels for word in (".coll", "command", "expect", "collopt --version"))


def test_actions_have_the_tag_of_a_version() -> None:
    actions = re.findall(r"uses: (.*)", CI)
    assert actions
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in actions)
