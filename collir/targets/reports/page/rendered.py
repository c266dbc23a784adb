"""A page of a template, its styles and scripts, and data."""

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.util import find_spec
from typing import Any

import collir
from collir.ir.diagnostics import Diagnostic, DiagnosticError


def check_installed() -> None:
    """Check that jinja2 is installed.

    Raises:
        DiagnosticError: it is not.
    """
    if find_spec("jinja2") is None:
        message = "a page needs jinja2: install it with `pip install 'collir[html]'`"
        raise DiagnosticError(Diagnostic(message))


def rendered(
    name: str,
    data: Mapping[str, Any],
    *,
    script: str = "",
    styles: Sequence[str] = (),
    **more: Any,
) -> str:
    """Return a page, with everything that it needs inside.

    Args:
        name: its template.
        data: what the script and the template show.
        script: its script, by default the one with the name of the template.
        styles: its style sheets, besides those of all pages.
        more: what the template shows besides.

    Raises:
        DiagnosticError: jinja2 is not installed.
    """
    check_installed()
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_static),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(f"{name}.html").render(
        data=data,
        json=_json(data),
        version=collir.__version__,
        styles=[_static(f"{style}.css") for style in ("uplot.min", "page", *styles)],
        scripts=[_static(f"{file}.js") for file in ("uplot.min", "texts", script or name)],
        **more,
    )


def _json(data: Any) -> str:
    """Return data as JSON that may stand in a script: no tag can begin in it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _static(name: str) -> str:
    return (resources.files(__package__ or "") / "static" / name).read_text(encoding="utf-8")
