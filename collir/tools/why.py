"""``collir why FILE``: each collective of a program, its cost, and changes to remove it."""

import argparse

from collir.tools.hlo_options import add_mesh


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("file", help="a .coll file, or the text of a program of XLA")
    parser.add_argument("-p", "--passes", default="", metavar="PASSES",
                        help="passes that run first, as in collopt -p")  # fmt: skip
    parser.add_argument("--function", metavar="NAME", help="the function (default: all)")
    parser.add_argument("--top", type=int, default=20, metavar="N",
                        help="how many collectives are listed (default: 20)")  # fmt: skip
    parser.add_argument("--html", default="", metavar="FILE",
                        help="write a page with that, the timeline and all steps")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    add_mesh(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    # Imported here because it is slow and the tools start fast.
    from collir.tools import why_driver

    return why_driver.run(options)
