"""Help pages of passes, pipelines and targets, for the command and the documentation."""

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from itertools import pairwise
from shutil import get_terminal_size
from textwrap import dedent, wrap

from xdsl.passes import ModulePass, PassOptionInfo
from xdsl.utils.hints import type_repr
from xdsl.utils.target import Target

from collir.passes.pipelines import Known, PassPipeline, options_of

XDSL_PASSES = {
    "cse": "Merge operations that compute the same.",
    "dce": "Drop operations whose results nothing uses.",
}
"""The passes of xDSL that are useful here, with their summaries."""

XDSL_TARGETS = {"mlir": "The module in MLIR's syntax."}
"""The targets of xDSL that are useful here, with their summaries."""


def summary(docstring: str) -> str:
    """Return the first sentence of a docstring."""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence = re.match(r".*?[.?](?= |$)", paragraph)
    return sentence[0] if sentence else paragraph


def listing(rows: Mapping[str, str]) -> list[str]:
    """Return the lines of a list of names with their texts, as wide as the terminal."""
    indent = max(map(len, rows)) + 4
    width = max(get_terminal_size().columns - 2, indent + 40)
    return [
        line
        for name, text in rows.items()
        for line in wrap(
            text or "(no docstring)",
            width,
            initial_indent=f"  {name}".ljust(indent),
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
        )
    ]


def pass_page(pass_class: type[ModulePass]) -> str:
    """Return the page of a pass: its module's docstring and its options."""
    module = inspect.getmodule(pass_class)
    # A pass of xDSL may inherit a docstring that says nothing.
    text = (module and inspect.getdoc(module)) or XDSL_PASSES.get(pass_class.name)
    return _page(pass_class, text or own_doc(pass_class))


def target_page(target_class: type[Target]) -> str:
    """Return the page of a target: its docstring and its options."""
    return _page(target_class, XDSL_TARGETS.get(target_class.name) or own_doc(target_class))


def _page(item: type[ModulePass] | type[Target], text: str) -> str:
    """Return a page: a name, a text, and each option with the docstring of its field, the item's
    own options first."""
    docs = field_docs(item)
    options = [
        PassOptionInfo(field.name, type_repr(field.type).strip("'"), _default(field))
        for field in fields(item)
    ]
    lines = [f"{item.name}: {text}".rstrip(), ""]
    lines.append("Options:" if options else "It has no options.")
    for option in sorted(options, key=lambda option: option.name not in item.__annotations__):
        indent = " " * 6
        doc = docs.get(option.name, "")
        lines.append(f"  {_option(option)}")
        lines += wrap(
            doc, 100, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
    return "\n".join(lines) + "\n"


def own_doc(item: type) -> str:
    """Return the docstring that a class itself has; dataclasses are given or inherit others."""
    given = f"{item.__name__}{inspect.signature(item)}".replace(" -> None", "")
    return "" if item.__doc__ == given else inspect.cleandoc(item.__doc__ or "")


def _default(field: Field[object]) -> str | None:
    """Return the default of an option as it is written, or None if it has none."""
    if field.default_factory is not MISSING:
        return str(field.default_factory())
    if field.default is MISSING:
        return None
    return (
        str(field.default).lower() if field.default in (True, False, None) else str(field.default)
    )


@cache
def field_docs(item: type) -> dict[str, str]:
    """Return the docstring of each field of a class and of its base classes, by name."""
    docs: dict[str, str] = {}
    for base in reversed(item.__mro__[:-1]):
        if not is_dataclass(base):
            continue
        try:
            (tree,) = ast.parse(dedent(inspect.getsource(base))).body
        except OSError:  # the source of the class is not available
            continue
        assert isinstance(tree, ast.ClassDef)
        for field, string in pairwise(tree.body):
            match field, string:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str() as text)),
                ):
                    docs[name] = " ".join(text.split())
                case _:
                    pass
    return docs


def pipeline_page(pipeline: PassPipeline, known: Known) -> str:
    """Return the page of a pipeline: its passes, each with its reason, and its options."""
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
