"""``collir export``: programs and algorithms as other tools read them."""

import argparse

from collir.algorithms.table import ALGORITHMS
from collir.syntax.machines import shipped
from collir.tools.completion import listed


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
    msccl = kinds.add_parser(
        "msccl", help="an algorithm of a collective, for NCCL's and RCCL's runtimes of MSCCL",
        description="An algorithm in MSCCL's XML, which is read back and proven before it is "
        "written.",
    )  # fmt: skip
    _add_algorithm(msccl)
    msccl.add_argument("--runtime", default="rccl", choices=("rccl", "msccl"),
                       help="which parser reads it: names differ (default: rccl)")  # fmt: skip
    mscclpp = kinds.add_parser(
        "mscclpp", help="an algorithm of a collective, for the executor of MSCCL++",
        description="An algorithm as a plan in MSCCL++'s JSON, which is read back and proven "
        "before it is written.",
    )  # fmt: skip
    _add_algorithm(mscclpp)
    mscclpp.add_argument("--channel", default="memory", choices=("memory", "port"),
                         help="what ranks write to each other over: the memory of a host, or a "
                         "network (default: memory)")  # fmt: skip
    tuner = kinds.add_parser(
        "tuner", help="algorithms and protocols by message size, for NCCL's example tuner plugin",
        description="The algorithm and protocol of NCCL that is the fastest on a machine, for each "
        "range of message sizes, as NCCL's example tuner plugin reads it "
        "(NCCL_TUNER_CONFIG_FILE). What that gains over NCCL's own choice is told on stderr.",
    )  # fmt: skip
    _add_tuner(tuner)


def _add_tuner(parser: argparse.ArgumentParser) -> None:
    """Add the options of the file of the tuner plugin."""
    machine = parser.add_argument(
        "machine", help="a .coll file with the machine, or @NAME of a shipped one"
    )
    setattr(  # noqa: B010 - what argcomplete looks for
        machine, "completer", listed(lambda: [f"@{name}" for name in shipped()])
    )
    parser.add_argument("--machine", dest="name", metavar="NAME",
                        help="the machine, where the file has several")  # fmt: skip
    parser.add_argument("--ranks", type=int, nargs="+", metavar="N",
                        help="the sizes of communicators (default: all devices)")  # fmt: skip
    parser.add_argument("--collective", nargs="+", metavar="NAME",
                        help="the collectives (default: all that NCCL chooses for)")  # fmt: skip
    parser.add_argument("--sizes", metavar="FROM..TO",
                        help="message sizes, such as 1KiB..1GiB (default: all)")  # fmt: skip
    parser.add_argument("--check", metavar="FILE",
                        help="write nothing: check that a file has one line for each size, with "
                        "the fastest choice")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")


def _add_algorithm(parser: argparse.ArgumentParser) -> None:
    """Add the options that name an algorithm, and the file."""
    parser.add_argument("file", nargs="?", help="a .coll file that declares the algorithm")
    parser.add_argument("--collective", choices=sorted({c for c, _ in ALGORITHMS}))
    parser.add_argument("--algorithm", metavar="NAME",
                        help="one of collir's (default: ring), or @NAME of the file: "
                        f"{', '.join(sorted({a for _, a in ALGORITHMS}))}")  # fmt: skip
    parser.add_argument("--ranks", required=True, type=int, metavar="N", help="how many ranks")
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    # Imported here because they are slow and the tools start fast.
    if options.kind == "msccl":
        from collir.tools import export_msccl

        return export_msccl.run(options)
    if options.kind == "tuner":
        from collir.tools import export_tuner

        return export_tuner.run(options)
    if options.kind == "mscclpp":
        from collir.tools import export_mscclpp

        return export_mscclpp.run(options)
    from collir.tools import export_driver

    return export_driver.run(options)
