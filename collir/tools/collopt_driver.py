"""The work of collopt: read a module, run passes over it, and print it for a target."""

import sys
import time
from io import BytesIO, StringIO
from itertools import pairwise
from typing import IO, TextIO

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.utils.arg_spec import parse_spec
from xdsl.utils.exceptions import DiagnosticException, ShrinkException

from collir.cost.options import CostOptions
from collir.dialects.local import local_functions
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
from collir.ir.names import keep_names
from collir.ir.progress import activity, history, passes_run
from collir.ir.remarks import listening
from collir.ir.verification import verify
from collir.layout.operation_table import MissingRowError
from collir.syntax.encoding import decode
from collir.syntax.mlir import read_mlir
from collir.syntax.reader import is_mlir, read
from collir.syntax.writer import settle_names, write
from collir.synthesis.propagation.propagate import make_explicit
from collir.synthesis.searching import session
from collir.targets.reports.pass_costs import WRITTEN, PassCosts, model_of
from collir.targets.reports.terminal import drawn_on
from collir.targets.reports.text import seconds_text
from collir.targets.table import REMEMBERING, TARGETS
from collir.tools.api import LANGUAGES, naming, pass_pipeline, validate_after, verify_after
from collir.tools.collopt_arguments import OF_MLIR, CommandLine
from collir.tools.expected import check_expected
from collir.tools.functions import for_code, for_report, keep_functions, reported
from collir.tools.missing_rows import locating_missing_rows
from collir.tools.shell import UsageError, report, write_whole
from collir.tools.specifications import configured, usage_error
from collir.tools.ticker import Ticker
from collir.tools.universe import added_targets, known_dialects


class CollOpt:
    """The driver, which carries out a command line.

    Raises:
        UsageError: a pass that does not exist, or an option it does not have.
    """

    def __init__(self, command: CommandLine, sources: Sources):
        self.command = command
        self.args = command.args
        self.sources = sources
        self._ticker = Ticker(
            lambda: ": ".join(filter(None, (self._running or "reads", activity.get())))
        )
        for name, factory in known_dialects().items():
            command.ctx.register_dialect(name, factory)
        try:
            self.pipeline = pass_pipeline(self.args.passes, command.available_passes)
        except UsageError as error:
            raise UsageError(f"-p '{self.args.passes}': {error}") from None

    # --- the pipeline -----------------------------------------------------------------------

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
        keep_names(module)
        if self.args.validate_passes:
            for message in validate_after(previous, self._before, module) if previous else ():
                self._report_remark(Diagnostic(message, severity="remark"))
            self._before = module.clone()
        if self._remembers:
            done = previous.name if previous else WRITTEN
            history.set((*history.get(), (done, module.clone())))
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

    @property
    def _remembers(self) -> bool:
        """True if the target shows the changes of each pass."""
        return bool(self.pipeline.passes) and parse_spec(self.args.target).name in REMEMBERING

    def apply_passes(self, prog: ModuleOp) -> None:
        """Run the passes, and report what they save even if one of them fails."""
        history.set(())
        if self.args.cost_between_passes:
            self._costs = PassCosts(model_of(self.pipeline.passes))
        try:
            with listening(self._report_remark):
                for done, following in pairwise((None, *self.pipeline.passes, None)):
                    if done:
                        with naming(done.name):
                            done.apply(self.command.ctx, prog)
                    self._between(done, prog, following)
        finally:
            if self._costs:
                with drawn_on(sys.stderr):
                    sys.stderr.write(self._costs.text)

    # --- input and output -------------------------------------------------------------------

    def _parsed(self, chunk: IO[bytes], language: str, offset: int) -> ModuleOp:
        """Return the module of a chunk of the input, which begins at a line of a file."""
        text = self._read_text(chunk, offset)
        module = self._read_coll(text) if language == "coll" else self._read_mlir(text)
        keep_functions(module, self.args.function)
        return module

    def _read_coll(self, text: str) -> ModuleOp:
        """Return the module of a text, which may be MLIR if nothing names its language."""
        unnamed = self.args.frontend is None and self.args.input_file in (None, "-")
        if unnamed and is_mlir(text):
            return self._read_mlir(text)
        return read(text, self.command.get_input_name(), self.sources, self.args.function)

    def _read_mlir(self, text: str) -> ModuleOp:
        return read_mlir(
            self.command.ctx,
            text,
            self.command.get_input_name(),
            self.sources,
            implicit_module=not self.args.no_implicit_module,
        )

    def _read_text(self, stream: IO[bytes], offset: int) -> str:
        try:
            data = stream.read()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            name = self.command.get_input_name()
            raise DiagnosticError(Diagnostic(f"cannot read {name}: {reason}")) from error
        # A chunk of a split file starts at its own line.
        return decode(b"\n" * offset + data, self.command.get_input_name())

    def run(self) -> int:
        """Read, transform and print the input, and return the exit status."""
        target = self._target_name()
        try:
            chunks, language = self.command.prepare_input()
        except ValueError as error:
            known = ", ".join(self.command.available_frontends)
            raise UsageError(f"{error}: use -f, with one of {known}") from None
        output = StringIO()
        status = 0
        for index, (chunk, offset) in enumerate(chunks):
            if index:
                output.write("// -----\n")
            try:
                convert = self._output_if_expected if self.args.verify_diagnostics else self._output
                with (
                    listening(self._report_remark), session(), self._ticker.ticking(),
                    drawn_on(self._shown_on(target)),
                ):  # fmt: skip
                    output.write(convert(chunk, language, offset, target))
            except ShrinkException:
                print("Success, can shrink")
                return 0
            except Exception as error:  # the other chunks are printed
                status = max(status, self._report_error(error, output))
            finally:
                chunk.close()
        if self._remark_count > MAX_ERRORS:
            sys.stderr.write(f"{self._remark_count - MAX_ERRORS} more remarks are not shown\n")
        if self.args.shrink and not status:
            print("Failure, can't shrink")
            return 1
        if self.args.output_file is None:
            sys.stdout.write(output.getvalue())
            sys.stdout.flush()
        elif not status:
            write_whole(self.args.output_file, output.getvalue())
        return status

    def _shown_on(self, target: str) -> TextIO | None:
        """Return the stream that people read reports on; None for a file, and for a page."""
        return None if self.args.output_file or target == "html" else sys.stdout

    def _report_error(self, error: Exception, output: IO[str]) -> int:
        """Report why a chunk of the input is not printed, and return the exit status for it."""
        if isinstance(error, DiagnosticException):
            error = DiagnosticError(Diagnostic(str(error).partition("\n\n")[0]))
        if isinstance(error, DiagnosticError) and self.args.parsing_diagnostics:
            output.write(render_all(error.diagnostics, self.sources))
            return 0
        return report("collopt", error, self.sources, self.args.debug)

    def _output(self, chunk: IO[bytes], language: str, offset: int, target: str) -> str:
        """Return a chunk of the input as the target prints it."""
        module = self._parsed(chunk, language, offset)
        with locating_missing_rows(module):
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
        name = self.command.get_input_name()
        check_expected(decode(data, name), name, offset + 1, self._emitted)
        return text

    def _target_name(self) -> str:
        """Return the name of the target; its options are checked before anything is read."""
        spec = parse_spec(self.args.target)
        try:
            if target_class := self.command.target_class(spec.name):
                configured(target_class, spec)
        except (ValueError, ImportError) as error:
            raise UsageError(f"-t '{self.args.target}': {usage_error(error)}") from None
        if spec.name != "mlir" and (unused := [x for x in OF_MLIR if getattr(self.args, x)]):
            raise UsageError(f"--{unused[0].replace('_', '-')} goes with -t mlir")
        return spec.name

    def _chosen(self, module: ModuleOp, target: str) -> ModuleOp:
        """Return the module that a target gets: with the functions that it is about."""
        is_lowered = target == "local" and any(local_functions(module))
        if target not in TARGETS or is_lowered:
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
            text = self.command.output_resulting_program(module).rstrip("\n")
        except Exception as error:
            ours = target in (*TARGETS, *added_targets(), "mlir")
            if ours or isinstance(error, DiagnosticError | MissingRowError):
                raise
            reason = str(error).partition("\n")[0]
            message = f"xDSL's target {target} cannot print this ({type(error).__name__}: {reason})"
            raise DiagnosticError(Diagnostic(message)) from error
        return f"{text}\n" if text else ""
