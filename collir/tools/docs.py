"""Writer of the generated blocks of the documentation: ``python -m collir.tools.docs [DIR]``.

Pages have generated blocks between two comments: the output of ``collopt --help-pass`` and
``--help-target``, the machines that ship with collir, and tables. A test fails if a block in
``docs/`` differs.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import wrap

from collir.ir.diagnostics import Sources
from collir.layout.pipelines.rules import RULES
from collir.passes.pipelines import PIPELINES
from collir.passes.table import PASSES
from collir.synthesis.options import ParallelOptions, SendingOptions
from collir.targets.table import TARGETS
from collir.tools.machine import Preset, presets, rows
from collir.tools.pass_pages import field_docs, pass_page, summary, target_page
from collir.tools.shell import run_tool, write_whole

FAMILIES = {
    "layouts": ("propagate", "shard", "unshard", "place", "split-level"),
    "collectives": ("decompose", "fuse", "reorder-by-hierarchy", "bucket", "accumulate"),
    "schedules": ("overlap", "prefetch", "rotate"),
    "training": ("differentiate", "microbatch", "pipeline", "split-backward", "sum-in-place"),
    "operations": ("expand", "ring-attention"),
    "programs": ("canonicalize", "inline", "unroll", "instantiate", "localize", "validate"),
}
"""The passes of each page of ``docs/passes/``."""

_SHARED = field_docs(ParallelOptions) | field_docs(SendingOptions)
"""The texts of the options that several passes and targets have, by name."""


def blocks() -> dict[str, dict[str, str]]:
    """Return the text of every generated block, by the name of its page and its own."""
    families = {
        f"passes/{family}.md": {"passes": _sections(pass_page(PASSES[name]()) for name in names)}
        for family, names in FAMILIES.items()
    }
    return {
        **families,
        "passes/index.md": {"table": _pass_table(), "options": _shared_options()},
        "pipelines.md": {"pipelines": _pipelines()},
        "targets.md": {
            "table": _table(
                ("target", ""), (_row(target_page(make()), "") for make in TARGETS.values())
            ),
            "targets": _sections((target_page(make()) for make in TARGETS.values()), ""),
        },
        "machines.md": {"machines": _machines()},
        "stages.md": {"schedules": _schedules()},
    }


def filled(text: str, texts: Mapping[str, str]) -> str:
    """Return a page with its generated blocks written anew.

    Args:
        texts: the text of each block by its name.

    Raises:
        ValueError: the page does not have the two comments of a block once.
    """
    for name, block in texts.items():
        begin = f"<!-- {name}: written by `make docs`. Do not edit this block. -->"
        end = f"<!-- end of {name} -->"
        before, opened, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not opened or not closed or begin in rest or end in before + after:
            raise ValueError(f"the page does not have {begin} and {end} once")
        text = f"{before}{begin}\n\n{block}\n\n{end}{after}"
    return text


def _sections(texts: Iterable[str], docs: str = "../") -> str:
    """Return the pages of passes or targets as sections of a page from which ``docs`` leads up."""
    return "\n\n".join(_section(text, docs) for text in texts)


def _pass_table() -> str:
    return _table(
        ("page", "pass", ""),
        (
            (
                f"[{family.capitalize()}]({family}.md)" if name == names[0] else "",
                *_row(pass_page(PASSES[name]()), f"{family}.md"),
            )
            for family, names in FAMILIES.items()
            for name in names
        ),
    )


def _row(text: str, page: str) -> tuple[str, str]:
    """Return a link to the section of a pass or target on a page, and its summary."""
    name, _, about = text.partition(": ")
    return f"[`{name}`]({page}#{name})", summary(about).replace("``", "`")


def _shared_options() -> str:
    return _table(("option", ""), ((f"`{name}`", text) for name, text in _SHARED.items()))


def _pipelines() -> str:
    """Return a section for each pipeline; a reason that an earlier one gave is left out."""
    given: set[tuple[str, str]] = set()
    sections: list[str] = []
    for pipeline in PIPELINES.values():
        lines = [f"### {pipeline.name}", "", pipeline.summary, "", *wrap(pipeline.about, 100), ""]
        for number, position in enumerate(pipeline.positions, 1):
            key = (position.written, position.why)
            reason = "" if key in given else f": {position.why}"
            lines += wrap(f"{number}. `{position.written}`{reason}", 100, subsequent_indent="   ")
            given.add(key)
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


def _machines() -> str:
    machines = list(presets().values())
    table = _table(
        ("machine", "parameters", "devices", "levels"),
        (
            (f"[{name}](#{name})", f"`{parameters}`", devices, f"`{levels}`")
            for name, parameters, devices, levels, _ in rows(machines)
        ),
    )
    return "\n\n".join([table, *map(_machine, machines)])


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [head, ("---",) * len(head), *body]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def _schedules() -> str:
    return _table(
        ("schedule", "chunks at a place", "tasks", "needs", "source"),
        (
            (
                f"`{rule.name}`",
                str(rule.chunks or "v"),
                rule.summary,
                ", ".join(need.text for need in rule.needs),
                rule.source,
            )
            for rule in RULES.values()
        ),
    )


def _machine(machine: Preset) -> str:
    """Return a section: the first line of the file, and the rest of the file as code."""
    _, _, rest = machine.text.rstrip().partition("\n")
    return f"## {machine.name}\n\n{machine.summary}\n\n```coll\n{rest}\n```"


def _section(text: str, docs: str) -> str:
    """Return the page of a pass or target as Markdown: a heading, and indented lines as code."""
    first, _, rest = text.strip().replace("``", "`").partition("\n")
    name, _, first_line = first.partition(": ")
    body, _, options = rest.partition("\nOptions:\n")
    body = body.replace("It has no options.", "").strip()
    lines = [f"## {name}", "", first_line, ""]
    for code, group in groupby(body.splitlines(), lambda line: line.startswith("    ")):
        plain = [line.removeprefix("    ") if code else _linked(line, docs) for line in group]
        lines += _fenced(plain, lines) if code else plain
    if base := re.fullmatch("(.*)-json", name):
        lines += ["", f"Its options are those of [`{base[1]}`](#{base[1]})."]
    else:
        lines += _options(options, docs)
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip()


def _linked(line: str, docs: str) -> str:
    """Return a line of a docstring with its label in bold and pages as links."""
    line = re.sub(r"^(What|Why|When not|Cost)(?=: )", r"**\1**", line)
    return re.sub(r"docs/([\w/-]*?([\w-]+)\.md)", rf"[\2]({docs}\1)", line)


def _options(text: str, docs: str) -> list[str]:
    """Return the lines about the options; shared options are named only."""
    own: list[str] = []
    shared: list[str] = []
    for option in re.split(r"^  (?! )", text, flags=re.MULTILINE)[1:]:
        declared, _, about = option.partition("\n")
        name = declared.partition(":")[0]
        if _SHARED.get(name) == (about := " ".join(about.split())):
            shared.append(f"`{name}`")
        else:
            line = f"- `{declared}`: {about}"
            own += wrap(line, 100, subsequent_indent="  ", break_on_hyphens=False)
    lines = ["", "Options:", "", *own] if own else []
    if shared:
        link = f"[Shared options]({docs}passes/index.md#shared-options)"
        lines += ["", f"{link}: {', '.join(shared)}."]
    return lines


def _fenced(code: list[str], before: list[str]) -> list[str]:
    gap = [""] if before[-1] else []
    return [*gap, "```text", *code, "```", ""]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the blocks into the pages of a folder, ``docs`` by default."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    folder = Path(words[0] if words else "docs")

    def work() -> int:
        for name, texts in blocks().items():
            if (page := folder / name).exists():
                write_whole(str(page), filled(page.read_text(encoding="utf-8"), texts))
        return 0

    return run_tool("docs", Sources(), False, work)


if __name__ == "__main__":
    sys.exit(main())
