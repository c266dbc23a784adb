"""The command line of collopt: xDSL's options with help texts of our own, and our own options.

Nothing is imported here that only the work needs, so that the tool starts fast.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import IO, NoReturn, cast

from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import parse_spec
from xdsl.utils.exceptions import ArgSpecParseError
from xdsl.utils.target import Target
from xdsl.xdsl_opt_main import xDSLOptMain

import collir
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.lazy import Lazy
from collir.passes.pipelines import PIPELINES
from collir.passes.table import PASSES
from collir.targets.table import TARGETS
from collir.tools import completion
from collir.tools.pass_pages import (
    XDSL_PASSES,
    XDSL_TARGETS,
    listing,
    own_doc,
    pass_page,
    pipeline_page,
    summary,
    target_page,
)
from collir.tools.shell import Once, UsageError, function_name
from collir.tools.specifications import check_text, unknown_target, usage_error
from collir.tools.universe import added_passes, added_targets, known_passes, known_targets

_DESCRIPTION = """\
Reads a module (.coll or .mlir), runs passes over it, and prints it for a target.
"""

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


class CommandLine(xDSLOptMain):
    """The words behind ``collopt``: the options, and the passes and targets that there are."""

    def __init__(self, words: Sequence[str]):
        super().__init__(_DESCRIPTION, words)

    # --- what there is ----------------------------------------------------------------------

    def register_all_dialects(self):
        """Register none: the driver does when it begins to work."""

    def register_all_frontends(self):
        """Name the languages, which the driver reads."""
        super().register_all_frontends()
        self.available_frontends["coll"] = self.available_frontends["mlir"]

    def register_all_passes(self):
        self.available_passes |= known_passes()

    def register_all_targets(self):
        self.available_targets |= known_targets()

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser):
        arg_parser.register("action", None, Once)
        super().register_all_arguments(arg_parser)
        _adapt_options(arg_parser)
        for action in arg_parser._actions:
            if action.dest == "target":
                action.type = self._target
        _add_options(arg_parser)
        self._complete(arg_parser)
        plain_help = arg_parser.format_help
        arg_parser.format_help = lambda: plain_help() + self._catalogue()  # type: ignore

    def _complete(self, arg_parser: argparse.ArgumentParser) -> None:
        """Answer a shell that asks for completions."""
        passes = completion.pass_list(self.available_passes)
        targets = completion.specifications(self.available_targets, self.target_class)
        completion.complete(
            arg_parser, passes=passes, help_pass=passes, target=targets, help_target=targets
        )

    def target_class(self, name: str) -> type[Target] | None:
        """Return the class of a target; None if it is one of xDSL's old kind."""
        factory = self.available_targets[name]
        if inspect.signature(factory).parameters:
            return None
        return cast(Callable[[], type[Target]], factory)()

    def _catalogue(self) -> str:
        ours, printed = (*PASSES, *added_passes()), (*TARGETS, *added_targets())
        factories = known_targets()
        remaining = set(self.available_passes) - set(ours)
        passes = {name: _summary(self.available_passes[name]) for name in ours}
        targets = {name: _summary(factories[name]) for name in printed}
        lines = ["", "passes:", *listing(passes | XDSL_PASSES)]
        lines += [f"  and {len(remaining) - len(XDSL_PASSES)} more of xDSL (xdsl-opt --help)", ""]
        lines += ["pipelines, each in place of its passes:"]
        lines += listing({name: pipeline.summary for name, pipeline in PIPELINES.items()})
        lines += ["", "targets:"]
        lines += listing(targets | XDSL_TARGETS)
        return "\n".join([*lines, ""])

    def _target(self, text: str) -> str:
        """Check a target with options, as given with -t, and return it."""
        try:
            check_text(text)
            name = parse_spec(text).name
        except (ArgSpecParseError, ValueError) as error:
            raise argparse.ArgumentTypeError(f"'{text}': {usage_error(error)}") from None
        if name not in self.available_targets:
            raise argparse.ArgumentTypeError(unknown_target(name, self.available_targets))
        return text

    def setup_pipeline(self):
        """Leave the passes to the driver, which imports them."""

    # --- help and input ---------------------------------------------------------------------

    def show_help(self) -> bool:
        """Print the page that ``--help-op`` and the like ask for; return whether there is one."""
        if self.args.help_op is not None:
            # Imported here because it is slow and the tools start fast.
            from collir.tools.operation_pages import operation_page

            sys.stdout.write(operation_page(self.args.help_op))
        elif self.args.help_pass is not None:
            self._help_pass()
        elif self.args.help_target is not None:
            self._help_target()
        else:
            return False
        return True

    def _help_pass(self) -> None:
        name = self.args.help_pass
        if name in PIPELINES:
            try:
                sys.stdout.write(pipeline_page(PIPELINES[name], self.available_passes))
            except ValueError as error:
                raise usage_error(error) from error
            return
        if name not in self.available_passes:
            raise usage_error(ValueError(f"Unrecognized passes: ['{name}']"), self.available_passes)
        sys.stdout.write(pass_page(self.available_passes[name]()))

    def _help_target(self) -> None:
        name = self.args.help_target
        if name not in self.available_targets:
            raise UsageError(unknown_target(name, self.available_targets))
        target_class = self.target_class(name)
        if target_class is None:
            raise UsageError(f"xDSL's target {name} is of an old kind: it has no options")
        sys.stdout.write(target_page(target_class))

    def prepare_input(self) -> tuple[list[tuple[IO[bytes], int]], str]:
        """Return the chunks of the input, each with the number of lines before it, and the
        language; only a whole line ``// -----`` divides chunks."""
        chunks, language = super().prepare_input()
        if not self.args.split_input_file:
            return chunks, language
        text = b"// -----".join(chunk.read() for chunk, _ in chunks)  # xDSL divides in lines too
        parts = re.split(rb"(?m)^// -----[ \t\r]*$", text)
        before = accumulate((part.count(b"\n") for part in parts[:-1]), initial=0)
        return list(zip(map(BytesIO, parts), before, strict=True)), language

    def get_input_name(self) -> str:
        name = self.args.input_file
        return "<stdin>" if name in (None, "-") else name

    def get_input_stream(self) -> tuple[IO[bytes], str]:
        if self.args.input_file is None or self.args.input_file == "-":
            return sys.stdin.buffer, "coll"
        path = Path(self.args.input_file)
        try:
            return path.open("rb"), path.suffix.removeprefix(".")
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DiagnosticError(Diagnostic(f"cannot read {path}: {reason}")) from error


def _adapt_options(parser: argparse.ArgumentParser) -> None:
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


def _add_options(parser: argparse.ArgumentParser) -> None:
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
        type=function_name,
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


def _summary(factory: Callable[[], type[ModulePass] | type[Target]]) -> str:
    """Return the summary of a pass or target, which is imported only if it must be."""
    if isinstance(factory, Lazy):
        return summary(factory.docstring())
    try:
        item = factory()
        return summary(own_doc(item) or inspect.getdoc(inspect.getmodule(item)) or "")
    except DiagnosticError as error:
        return f"({error.diagnostics[0].message})"


def _usage(message: str) -> NoReturn:
    raise UsageError(message)
