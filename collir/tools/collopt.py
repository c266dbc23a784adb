# pyright: basic
"""collopt: read a module, run passes over it, and print it for a target.

The tool is built on xDSL's driver, so that its options work. It differs in that ``.coll`` is
read and printed by default, that bad input gives diagnostics instead of tracebacks, and that an
output file appears whole or not at all.
"""

import argparse
import inspect
import sys
import time
from collections.abc import Callable, Sequence
from io import BytesIO, StringIO
from itertools import pairwise
from pathlib import Path
from typing import IO, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.utils.arg_spec import parse_spec
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException, ShrinkException
from xdsl.utils.target import Target
from xdsl.xdsl_opt_main import xDSLOptMain

from collir.cost.options import CostOptions
from collir.ir.diagnostics import (
    MAX_ERRORS,
    Diagnostic,
    DiagnosticError,
    Position,
    Sources,
    render_all,
    single_line,
)
from collir.ir.fusion import kernel_name
from collir.ir.progress import activity, passes_run
from collir.ir.remarks import listening
from collir.ir.verification import verify
from collir.passes.pipelines import PIPELINES
from collir.passes.table import PASSES
from collir.syntax.mlir import read_mlir
from collir.syntax.parsing import decode
from collir.syntax.reader import is_mlir, read
from collir.syntax.writer import settle_names, write
from collir.synthesis.propagation.propagate import make_explicit
from collir.synthesis.searching import session
from collir.targets.reports.text import seconds_text
from collir.targets.table import TARGETS
from collir.tools import completion
from collir.tools.api import (
    LANGUAGES,
    UsageError,
    naming,
    pass_pipeline,
    unknown_target,
    usage_error,
    validate_after,
    verify_after,
)
from collir.tools.collopt_arguments import OF_MLIR, adapt_options, add_options
from collir.tools.expected import check_expected
from collir.tools.functions import for_code, for_report, keep_functions, reported
from collir.tools.operation_pages import operation_page
from collir.tools.pass_costs import WRITTEN, PassCosts, model_of
from collir.tools.pass_pages import (
    XDSL_PASSES,
    XDSL_TARGETS,
    listing,
    pass_page,
    pipeline_page,
    summary,
    target_page,
)
from collir.tools.shell import BAD_INPUT, Once, run_tool, write_whole
from collir.tools.specifications import check_text, configured
from collir.tools.ticker import Ticker
from collir.tools.universe import known_dialects, known_passes, known_targets, of_other_packages

_DESCRIPTION = """\
Reads a module (.coll or .mlir), runs passes over it, and prints it for a target.
"""


class CollOpt(xDSLOptMain):
    """The driver: xDSL's, extended by the dialects, passes, targets and options of collir."""

    def __init__(self, args: Sequence[str] | None = None, sources: Sources | None = None):
        self.sources = sources or Sources()
        self._ticker = Ticker(
            lambda: ": ".join(filter(None, (self._running or "reads", activity.get())))
        )
        super().__init__(_DESCRIPTION, args)

    # --- what there is ----------------------------------------------------------------------

    def register_all_dialects(self):
        for name, factory in known_dialects().items():
            self.ctx.register_dialect(name, factory)

    def register_all_frontends(self):
        super().register_all_frontends()
        self.available_frontends["coll"] = lambda stream: self._read_coll(self._read_text(stream))
        self.available_frontends["mlir"] = lambda stream: self._read_mlir(self._read_text(stream))

    def _read_coll(self, text: str) -> ModuleOp:
        """Return the module of a text, which may be MLIR if nothing names its language."""
        unnamed = self.args.frontend is None and self.args.input_file in (None, "-")
        if unnamed and is_mlir(text):
            return self._read_mlir(text)
        functions = [name.removeprefix("@") for name in self.args.function]
        return read(text, self.get_input_name(), self.sources, functions)

    def _read_mlir(self, text: str) -> ModuleOp:
        return read_mlir(
            self.ctx,
            text,
            self.get_input_name(),
            self.sources,
            implicit_module=not self.args.no_implicit_module,
        )

    def register_all_passes(self):
        self.available_passes |= known_passes()

    def register_all_targets(self):
        self.available_targets |= known_targets()

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser):
        arg_parser.register("action", None, Once)
        super().register_all_arguments(arg_parser)
        adapt_options(arg_parser)
        for action in arg_parser._actions:
            if action.dest == "target":
                action.type = self._target
        add_options(arg_parser)
        self._complete(arg_parser)
        plain_help = arg_parser.format_help
        # The list needs the docstrings, so the passes are imported only for --help.
        arg_parser.format_help = lambda: plain_help() + self._catalogue()  # type: ignore

    def _complete(self, arg_parser: argparse.ArgumentParser) -> None:
        """Answer a shell that asks for completions."""
        passes = completion.pass_list(self.available_passes)
        targets = completion.specifications(self.available_targets, self._target_class)
        completion.complete(
            arg_parser, passes=passes, help_pass=passes, target=targets, help_target=targets
        )

    def _target_class(self, name: str) -> type[Target] | None:
        """Return the class of a target; None if it is one of xDSL's old kind."""
        factory = self.available_targets[name]
        if inspect.signature(factory).parameters:
            return None
        return cast(Callable[[], type[Target]], factory)()

    def _catalogue(self) -> str:
        added = of_other_packages()
        remaining = set(self.available_passes) - set(PASSES) - set(added)
        passes = {name: self._pass_summary(name) for name in (*PASSES, *added)}
        targets = {name: summary(factory()) for name, factory in TARGETS.items()}
        lines = ["", "passes:", *listing(passes | XDSL_PASSES)]
        lines += [f"  and {len(remaining) - len(XDSL_PASSES)} more of xDSL (xdsl-opt --help)", ""]
        lines += ["pipelines, each in place of its passes:"]
        lines += listing({name: pipeline.summary for name, pipeline in PIPELINES.items()})
        lines += ["", "targets:"]
        lines += listing(targets | XDSL_TARGETS)
        return "\n".join([*lines, ""])

    def _pass_summary(self, name: str) -> str:
        try:
            return summary(self.available_passes[name]())
        except DiagnosticError as error:
            return f"({error.diagnostics[0].message})"

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

    # --- the pipeline -----------------------------------------------------------------------

    def setup_pipeline(self):
        pages = self.args.help_op, self.args.help_pass, self.args.help_target
        if any(page is not None for page in pages):
            return
        try:
            self.pipeline = pass_pipeline(self.args.passes, self.available_passes)
        except UsageError as error:
            raise UsageError(f"-p '{self.args.passes}': {error}") from None

    def _between(
        self, previous: ModulePass | None, module: ModuleOp, following: ModulePass | None
    ) -> None:
        if previous and self.args.time_passes:
            took = time.perf_counter() - self._started
            sys.stderr.write(f"{previous.name} took {seconds_text(took)}\n")
        if not self.args.disable_verify:
            if previous is None:
                verify(module)
            else:
                verify_after(previous, module)
        if self.args.validate_passes:
            for message in validate_after(previous, self._before, module) if previous else ():
                self._report_remark(Diagnostic(message, severity="remark"))
            self._before = module.clone()
        if self._costs:
            names = reported(module, self.args.function)
            self._costs.measure(previous.name if previous else WRITTEN, module, names)
        if previous and following and self.args.print_between_passes:
            sys.stderr.write(f"// -----// IR Dump After {previous.name} //----- //\n")
            if parse_spec(self.args.target).name == "mlir":
                Printer(stream=sys.stderr).print_op(module)
                sys.stderr.write("\n\n")
            else:
                sys.stderr.write(f"{write(module)}\n")
        self._begin(following.name if following else "")
        self._started = time.perf_counter()

    def _begin(self, name: str) -> None:
        """Record the pass or target that has begun."""
        self._running = name
        activity.set("")

    _running = ""
    _started = 0.0
    _before: ModuleOp
    _emitted: list[Diagnostic] | None = None  # the diagnostics that --verify-diagnostics compares

    def _report_remark(self, remark: Diagnostic) -> None:
        """Print a remark in a line, or keep it for --verify-diagnostics."""
        if self._emitted is not None:
            self._emitted.append(remark)
            return
        self._remark_count += 1
        self._ticker.clear()
        if self._remark_count <= MAX_ERRORS:
            sys.stderr.write(
                f"{remark.position or 'collopt'}: remark: {single_line(remark.message)}\n"
            )

    _remark_count = 0

    _costs: PassCosts | None = None

    def apply_passes(self, prog: ModuleOp) -> None:
        """Run the passes, and report what they save even if one of them fails."""
        if self.args.cost_between_passes:
            self._costs = PassCosts(model_of(self.pipeline.passes))
        try:
            with listening(self._report_remark):
                for done, following in pairwise((None, *self.pipeline.passes, None)):
                    if done:
                        with naming(done.name):
                            done.apply(self.ctx, prog)
                    self._between(done, prog, following)
        finally:
            if self._costs:
                sys.stderr.write(self._costs.text)

    # --- input and output -------------------------------------------------------------------

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

    def _read_text(self, stream: IO[bytes]) -> str:
        try:
            data = stream.read()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            name = self.get_input_name()
            raise DiagnosticError(Diagnostic(f"cannot read {name}: {reason}")) from error
        # A chunk of a split file starts at its own line.
        return decode(b"\n" * self._line_offset + data, self.get_input_name())

    _line_offset = 0

    def parse_chunk(
        self, chunk: IO[bytes], file_extension: str, start_offset: int = 0
    ) -> ModuleOp | None:
        self._line_offset = start_offset
        module = super().parse_chunk(chunk, file_extension, start_offset)
        if module is not None:
            keep_functions(module, self.args.function)
        return module

    def run(self) -> int:
        """Read, transform and print the input, and return the exit status."""
        if self.args.help_op is not None:
            sys.stdout.write(operation_page(self.args.help_op))
            return 0
        if self.args.help_pass is not None:
            return self._help_pass()
        if self.args.help_target is not None:
            return self._help_target()
        target = self._target_name()
        try:
            chunks, language = self.prepare_input()
        except ValueError as error:
            known = ", ".join(self.available_frontends)
            raise UsageError(f"{error}: use -f, with one of {known}") from None
        output = StringIO()
        failed = StringIO()
        for index, (chunk, offset) in enumerate(chunks):
            if index:
                output.write("// -----\n")
            try:
                convert = self._output_if_expected if self.args.verify_diagnostics else self._output
                with listening(self._report_remark), session(), self._ticker.ticking():
                    output.write(convert(chunk, language, offset, target))
            except DiagnosticError as error:
                report = output if self.args.parsing_diagnostics else failed
                report.write(render_all(error.diagnostics, self.sources))
            except ShrinkException:
                print("Success, can shrink")
                return 0
            except DiagnosticException as error:
                raise DiagnosticError(Diagnostic(str(error).partition("\n\n")[0])) from error
            finally:
                chunk.close()
        if self._remark_count > MAX_ERRORS:
            sys.stderr.write(f"{self._remark_count - MAX_ERRORS} more remarks are not shown\n")
        if failed.getvalue():
            sys.stderr.write(failed.getvalue())
            return BAD_INPUT
        if self.args.shrink:
            print("Failure, can't shrink")
            return 1
        if self.args.output_file is None:
            sys.stdout.write(output.getvalue())
            sys.stdout.flush()
        else:
            write_whole(self.args.output_file, output.getvalue())
        return 0

    def _output(self, chunk: IO[bytes], language: str, offset: int, target: str) -> str:
        """Return a chunk of the input as the target prints it."""
        module = self.parse_chunk(chunk, language, offset)
        assert module is not None
        self.apply_passes(module)
        return self._printed(module, target)

    def _output_if_expected(self, chunk: IO[bytes], language: str, offset: int, target: str) -> str:
        """Return the text after checking that its diagnostics are those its comments expect."""
        data = chunk.read()
        self._emitted = []
        text = ""
        try:
            text = self._output(BytesIO(data), language, offset, target)
        except DiagnosticError as error:
            self._emitted += error.diagnostics
        name = self.get_input_name()
        check_expected(decode(data, name), name, offset + 1, self._emitted)
        return text

    def _help_pass(self) -> int:
        name = self.args.help_pass
        if name in PIPELINES:
            try:
                sys.stdout.write(pipeline_page(PIPELINES[name], self.available_passes))
            except ValueError as error:
                raise usage_error(error) from error
            return 0
        if name not in self.available_passes:
            raise usage_error(ValueError(f"Unrecognized passes: ['{name}']"), self.available_passes)
        sys.stdout.write(pass_page(self.available_passes[name]()))
        return 0

    def _help_target(self) -> int:
        name = self.args.help_target
        if name not in self.available_targets:
            raise UsageError(unknown_target(name, self.available_targets))
        target_class = self._target_class(name)
        if target_class is None:
            raise UsageError(f"xDSL's target {name} is of an old kind: it has no options")
        sys.stdout.write(target_page(target_class))
        return 0

    def _target_name(self) -> str:
        """Return the name of the target; its options are checked before anything is read."""
        spec = parse_spec(self.args.target)
        try:
            if target_class := self._target_class(spec.name):
                configured(target_class, spec)
        except (ValueError, ImportError) as error:
            raise UsageError(f"-t '{self.args.target}': {usage_error(error)}") from None
        if spec.name != "mlir" and (unused := [x for x in OF_MLIR if getattr(self.args, x)]):
            raise UsageError(f"--{unused[0].replace('_', '-')} goes with -t mlir")
        return spec.name

    def _chosen(self, module: ModuleOp, target: str) -> ModuleOp:
        """Return the module that a target gets: with the functions that it is about."""
        if target not in TARGETS:
            return module
        names = reported(module, self.args.function)
        if issubclass(TARGETS[target](), CostOptions):
            return for_report(module, names)
        return for_code(module, names) if self.args.function else module

    def _printed(self, module: ModuleOp, target: str) -> str:
        if target not in LANGUAGES:
            make_explicit(module)
            module = self._chosen(module, target)
        if target == "mlir":
            settle_names(module)
        elif target == "coll" and (op := next(filter(kernel_name, module.walk()), None)):
            text = (
                "the steps of fused calls are printed one by one, and cost more when read again; "
                "-t mlir keeps them together"
            )
            self._report_remark(Diagnostic(text, Position.of(op), severity="remark"))
        passes_run.set(self.args.passes)
        self._begin(f"-t {target}")
        try:
            text = self.output_resulting_program(module).rstrip("\n")
        except Exception as error:
            if target in TARGETS or target == "mlir" or isinstance(error, DiagnosticError):
                raise
            reason = str(error).partition("\n")[0]
            message = f"xDSL's target {target} cannot print this ({type(error).__name__}: {reason})"
            raise DiagnosticError(Diagnostic(message)) from error
        return f"{text}\n" if text else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sources = Sources()

    def work() -> int:
        return CollOpt(words, sources).run()

    return run_tool("collopt", sources, "--debug" in words, work)


def script() -> None:
    """Run the console script."""
    sys.exit(main())
