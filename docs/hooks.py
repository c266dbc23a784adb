"""Hooks of mkdocs: pages of the site for what docs/ links to in the rest of the repository.

README.md is the first page; another file is a page under files/ that shows its text, and a folder
a page that lists it.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
SHOWN = (".c", ".coll", ".md", ".py", ".toml")
"""The files that the page of a folder lists."""
UNSEARCHED = "---\nsearch: { exclude: true }\n---\n"
"""The head of a page that shows code: the search of the site finds what is explained."""
FENCE_OR_LINK = re.compile(
    r"(?P<fence>^(?P<marks>```|~~~~~~)[^\n`]*\n.*?^(?P=marks)$)|(?<=\]\()(?P<link>(?![a-z]+:|#)[^)#\s]+)",
    re.MULTILINE | re.DOTALL,
)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the first page, and a page for every file that pages link to."""
    paths = ["README.md", *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    for path in paths:  # the loop appends to the paths
        text = _text(path)
        if not path.startswith("docs/"):
            files.append(File.generated(config, _uri(path), content=text))
        links = (match["link"] for match in FENCE_OR_LINK.finditer(text) if match["link"])
        targets = {_target(path, link) for link in links}
        paths += sorted(x for x in targets - {*paths} if not x.startswith("docs/"))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to pages of the site, and fences have a language in one word."""
    path = _path(page.file.src_uri)

    def changed(match: re.Match[str]) -> str:
        if match["fence"]:
            return match["fence"].replace("```coll error\n", "```coll\n", 1)
        return posixpath.relpath(_uri(_target(path, match["link"])), page.file.src_uri + "/..")

    return FENCE_OR_LINK.sub(changed, markdown)


def _target(path: str, link: str) -> str:
    """Return the path in the repository that a link of a file leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _uri(path: str) -> str:
    """Return where the site has a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return "index.md" if path == "README.md" else f"files/{path.removesuffix('.md')}.md"


def _path(uri: str) -> str:
    """Return the file of the repository that a page of the site shows."""
    if not uri.startswith("files/"):
        return "README.md" if uri == "index.md" else f"docs/{uri}"
    path = uri.removeprefix("files/")
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def _text(path: str) -> str:
    """Return the text of a page that shows a file or lists a folder."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(x.name for x in file.iterdir() if _is_listed(x))
        return f"# {path}\n\n" + "".join(f"- [{x}]({file.name}/{x})\n" for x in names)
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    return f"{UNSEARCHED}# {path}\n\n~~~~~~{file.suffix.lstrip('.')}\n{text}\n~~~~~~\n"


def _is_listed(path: Path) -> bool:
    return path.suffix in SHOWN or (path.is_dir() and path.name != "__pycache__")
