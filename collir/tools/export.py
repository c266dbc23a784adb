"""``collir export``: a program as other simulators read it."""

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    kinds = parser.add_subparsers(metavar="KIND", dest="kind", required=True)
    chakra = kinds.add_parser(
        "chakra", help="execution traces of all ranks, for ASTRA-sim",
        description="Execution traces of all ranks in the form of Chakra, and the groups of their "
        "collectives, which ASTRA-sim replays.",
    )  # fmt: skip
    chakra.add_argument("file", help="a .coll file")
    chakra.add_argument("-p", "--passes", default="", metavar="PASSES",
                        help="passes that run first, as in collopt -p")  # fmt: skip
    chakra.add_argument("--function", metavar="NAME", help="the function (default: all)")
    chakra.add_argument("-o", "--output", required=True, metavar="FOLDER",
                        help="the folder of the files NAME.0.et, NAME.1.et and so on, and of "
                        "NAME.json with the groups")  # fmt: skip
    for name in ("model", "algorithm", "order"):
        chakra.add_argument(f"--{name}", default="auto", metavar="NAME",
                            help="as the option of -t simulate (default: auto)")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    # Imported here because it is slow and the tools start fast.
    from collir.tools import export_driver

    return export_driver.run(options)
