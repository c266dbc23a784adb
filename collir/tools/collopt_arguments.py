# pyright: basic
"""The arguments of collopt: xDSL's options with help texts of our own, and our own options."""

import argparse
from typing import NoReturn

import collir
from collir.tools.api import UsageError

_HELP = {
    "passes": "passes and pipelines to run, in order: 'canonicalize,ddp{model=p2}'",
    "target": "what to print, with options in braces (default: coll)",
    "output_file": "file to write, whole or not at all (default: standard output)",
    "input_file": "file to read (default: standard input)",
    "print_between_passes": "print the program between each two passes, on standard error",
    "time_passes": "print how long each pass takes, on standard error",
    "verify_diagnostics": (
        "check that the input gives the diagnostics that its comments announce, "
        "as in `// expected-error@+1 {{message}}`, and no others"
    ),
    "parsing_diagnostics": "print diagnostics on standard output and exit with 0",
    "frontend": (
        "language of the input, where its name does not say; standard input is MLIR if it begins so"
    ),
    "disable_verify": "do not verify the program before and after each pass",
    "shrink": "exit with 0 if a pass says that the input can be shrunk",
    "version": "print the versions of collopt and of xDSL",
}
"""Destination of an option of xDSL's driver -> its help text."""

OF_MLIR = ("print_op_generic", "print_no_properties", "print_debuginfo", "syntax_highlight")
"""The destinations of the options of xDSL's driver that say how MLIR is printed."""


def adapt_options(parser: argparse.ArgumentParser) -> None:
    """Give the options of xDSL's driver the name, help texts and errors of collopt."""
    parser.prog = "collopt"
    setattr(parser, "error", _usage)  # noqa: B010 - one line instead of the usage
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(target="coll")
    for action in parser._actions:
        action.help = _HELP.get(action.dest, action.help)
        if action.dest == "version":
            version = f"collopt {collir.__version__} (xDSL {{xdsl_version}})"
            setattr(action, "version_format", version)  # noqa: B010


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that xDSL's driver does not have."""
    parser.add_argument(
        "--help-op",
        metavar="OP",
        help="print what an operation does and how it is written",
    )
    parser.add_argument(
        "--help-pass",
        metavar="PASS",
        help="print what a pass or a pipeline does and its options",
    )
    parser.add_argument(
        "--help-target",
        metavar="TARGET",
        help="print what a target prints and its options",
    )
    parser.add_argument(
        "--function",
        metavar="NAME",
        action="append",
        default=[],
        help="read this function only; may be given several times (default: all)",
    )
    parser.add_argument(
        "--cost-between-passes",
        action="store_true",
        help="print what each function costs after each pass, and what each pass saved, on "
        "standard error",
    )
    parser.add_argument(
        "--validate-passes",
        action="store_true",
        help="compare what each function computes before and after each pass",
    )
    parser.add_argument(
        "--debug", action="store_true", help="show the traceback of an internal error"
    )


def _usage(message: str) -> NoReturn:
    raise UsageError(message)
