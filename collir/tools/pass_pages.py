"""What the command and the documentation say of a pass, and of a pipeline."""

import inspect
import re
from collections.abc import Iterable, Mapping
from shutil import get_terminal_size
from textwrap import wrap

from xdsl.passes import ModulePass, PassOptionInfo, get_pass_option_infos

from collir.passes.pipelines import Known, Pipeline, options_of

XDSL_PASSES = {
    "cse": "Merge operations that compute the same.",
    "dce": "Drop operations whose results nothing uses.",
}
"""Those of xDSL's passes that are of use here, with what they do."""


def summary(item: type) -> str:
    """Return the first sentence of a docstring."""
    paragraph = " ".join((inspect.getdoc(item) or "").partition("\n\n")[0].split())
    sentence = re.match(r".*?[.?](?= |$)", paragraph)
    return sentence[0] if sentence else paragraph


def listing(rows: Mapping[str, str]) -> list[str]:
    """Return the lines of a list of names and what is said of each, as wide as the terminal."""
    indent = max(map(len, rows)) + 4
    width = max(get_terminal_size().columns - 2, indent + 40)
    return [
        line
        for name, text in rows.items()
        for line in wrap(
            text,
            width,
            initial_indent=f"  {name}".ljust(indent),
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
        )
    ]


def pass_page(found: type[ModulePass]) -> str:
    """The page of a pass: its module's docstring and its options."""
    module = inspect.getmodule(found)
    own = inspect.cleandoc(found.__doc__ or "")  # xDSL's passes may inherit one that says nothing
    text = (module and inspect.getdoc(module)) or XDSL_PASSES.get(found.name) or own
    lines = [f"{found.name}: {text}".rstrip(), ""]
    if options := get_pass_option_infos(found):
        lines.append("Options:")
        lines += [f"  {_option(option)}" for option in options]
    else:
        lines.append("It has no options.")
    return "\n".join(lines) + "\n"


def pipeline_page(pipeline: Pipeline, known: Known) -> str:
    """The page of a pipeline: its passes, each with its reason, and its options."""
    lines = [f"{pipeline.name}: {pipeline.summary}", ""]
    if pipeline.about:
        lines += [*wrap(pipeline.about, 100, break_on_hyphens=False), ""]
    for number, position in enumerate(pipeline.positions, 1):
        text = f"{number}. `{position.written}`: {position.why}."
        lines += wrap(text, 100, subsequent_indent="   ", break_on_hyphens=False)
    lines += ["", "Options:"]
    for option in options_of(pipeline, known).values():
        lines.append(f"  {_option(option.info)}, of {_listed(option.passes)}")
    return "\n".join(lines) + "\n"


def _option(option: PassOptionInfo) -> str:
    default = f" (default {option.default_value})" if option.default_value else ""
    return f"{option.name}: {option.expected_type}{default}"


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
