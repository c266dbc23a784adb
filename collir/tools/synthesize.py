"""``collir synthesize MACHINE``: trees on the links of a machine, as an algorithm for a runtime."""

import argparse

from collir.syntax.machines import shipped
from collir.synthesis.trees.program import TREE_COLLECTIVES
from collir.tools.completion import listed


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    machine = parser.add_argument(
        "machine", help="a .coll file with the machine, or @NAME of a shipped one"
    )
    setattr(  # noqa: B010 - what argcomplete looks for
        machine, "completer", listed(lambda: [f"@{name}" for name in shipped()])
    )
    parser.add_argument(
        "--machine", dest="name", metavar="NAME", help="the machine, where the file has several"
    )
    parser.add_argument("--collective", required=True, choices=TREE_COLLECTIVES)
    parser.add_argument(
        "--level", metavar="NAME",
        help="only the children of one parent of this level, each as a rank (default: all devices)",
    )  # fmt: skip
    parser.add_argument(
        "--root", type=int, metavar="RANK", help="of a broadcast or reduce (default: 0)"
    )
    parser.add_argument(
        "--size", default="64MB", metavar="SIZE",
        help="the whole buffer, as nccl-tests count it: trees are chosen for it (default: 64MB)",
    )  # fmt: skip
    parser.add_argument(
        "--trees", type=int, metavar="K",
        help="trees of each root (default: as many as the bound takes, or those of least time)",
    )  # fmt: skip
    parser.add_argument(
        "--runtime", default="rccl", choices=("rccl", "msccl"),
        help="which runtime reads FILE (default: rccl)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the algorithm there, in MSCCL's XML, or in .coll as a program that uses it",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    # Imported here because the tools start fast.
    from collir.tools import synthesize_driver

    return synthesize_driver.run(options)
