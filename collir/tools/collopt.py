"""collopt: read a module, run passes over it, and print it for a target.

The tool is built on xDSL's driver, so that its options work. It differs in that ``.coll`` is
read and printed by default, that bad input gives diagnostics instead of tracebacks, and that an
output file appears whole or not at all.
"""

import sys
from collections.abc import Sequence

from collir.ir.diagnostics import Sources
from collir.tools.collopt_arguments import CommandLine
from collir.tools.shell import run_tool


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sources = Sources()

    def work() -> int:
        command = CommandLine(words)
        if command.show_help():
            return 0
        # Imported here because it is slow and the tools start fast.
        from collir.tools.collopt_driver import CollOpt

        return CollOpt(command, sources).run()

    return run_tool("collopt", sources, "--debug" in words, work)


def script() -> None:
    """Run the console script."""
    sys.exit(main())
