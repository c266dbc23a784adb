"""The problems of ``collir search``: their arguments, and the values they count."""

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from collir.problems.clique import KClique, MaxClique
from collir.problems.graph_files import read_dimacs, read_lad
from collir.problems.graphs import UndirectedGraph
from collir.problems.knapsack import read_knapsack
from collir.problems.queens import Queens
from collir.problems.semigroups import NumericalSemigroups
from collir.problems.subgraph import SubgraphIsomorphism
from collir.problems.tsplib import read_tsp
from collir.problems.uts import SAMPLES, UTS, TreeKind, TreeShape
from collir.search.core.goals import Fold, Nodes, NodesByDepth, Solutions
from collir.search.core.problem import Problem

Parser = argparse.ArgumentParser
Options = argparse.Namespace


@dataclass(frozen=True)
class Subject:
    """A problem that can be searched from the command line.

    Attributes:
        summary: a few words on the problem.
        configure: adds the arguments of the problem to a parser.
        problem: makes the problem from the options.
        fold: makes the fold that counts, from the options; None to optimise or decide.
        noun: the counted things, in the plural.
    """

    summary: str
    configure: Callable[[Parser], None]
    problem: Callable[[Options], Problem[Any]]
    fold: Callable[[Options], Fold[Any] | None] = lambda options: None
    noun: str = "solutions"


def _graph(path: Path) -> UndirectedGraph:
    """Read a graph: LAD if the file's name ends so, else DIMACS."""
    return read_lad(path) if path.suffix == ".lad" else read_dimacs(path)


def _clique(parser: Parser) -> None:
    parser.add_argument("graph", type=Path, help="a graph: DIMACS (.clq), or LAD (.lad)")
    _best(parser)
    _kernel(parser)


def _kclique(parser: Parser) -> None:
    parser.add_argument("graph", type=Path, help="a graph: DIMACS (.clq), or LAD (.lad)")
    parser.add_argument("size", type=int, metavar="K", help="the number of vertices to look for")
    _kernel(parser)


def _subgraph(parser: Parser) -> None:
    parser.add_argument("pattern", type=Path, help="what to look for: LAD (.lad), or DIMACS")
    parser.add_argument("target", type=Path, help="where to look for it")
    parser.add_argument(
        "--induced", action="store_true", help="allow no other edges between its vertices"
    )
    _all(parser)


def _queens(parser: Parser) -> None:
    parser.add_argument("n", type=int, help="the number of queens")
    _all(parser)


def _semigroups(parser: Parser) -> None:
    parser.add_argument("genus", type=int, help="count those of all genera up to this one")


def _knapsack(parser: Parser) -> None:
    parser.add_argument(
        "file", type=Path, help="the items: a line `count capacity`, lines `value weight`"
    )
    _best(parser)
    _target(parser)
    parser.add_argument(
        "--dominance", action="store_true", help="remember what was reached at what cost"
    )


def _tsp(parser: Parser) -> None:
    parser.add_argument("file", type=Path, help="the cities, in the format of TSPLIB")
    _best(parser)
    _target(parser)
    parser.add_argument(
        "--no-dominance", action="store_true", help="do not remember ways, to save memory"
    )


def _uts(parser: Parser) -> None:
    parser.add_argument("--sample", choices=SAMPLES, help="a tree that the benchmark publishes")
    parser.add_argument("--depth", type=int, default=10, help="the depth of a geometric tree")
    parser.add_argument(
        "--b0", type=float, default=4.0, help="the (mean) number of children of the root"
    )
    parser.add_argument("--root-seed", type=int, default=19, help="what the random bits come from")
    parser.add_argument(
        "--tree",
        choices=get_args(TreeKind),
        default="geometric",
        help="how the tree grows (default: geometric)",
    )
    parser.add_argument(
        "--shape",
        choices=get_args(TreeShape),
        default="fixed",
        help="geometric: how the branching changes with depth",
    )
    parser.add_argument("--q", type=float, default=15 / 64, help="binomial: the chance of children")
    parser.add_argument("--m", type=int, default=4, help="binomial: how many children then")
    parser.add_argument(
        "--shift", type=float, default=0.5, help="hybrid: where it becomes binomial"
    )
    _kernel(parser)


def _uts_problem(options: Options) -> UTS:
    if options.sample:
        return UTS(**SAMPLES[options.sample].settings, kernel=options.kernel)  # pyright: ignore[reportArgumentType]
    names = ("depth", "b0", "tree", "shape", "q", "m", "shift", "kernel")
    return UTS(seed=options.root_seed, **{name: getattr(options, name) for name in names})


SUBJECTS: dict[str, Subject] = {
    "clique": Subject(
        "the greatest clique of a graph",
        _clique,
        lambda o: MaxClique(_graph(o.graph), kernel=o.kernel),
    ),
    "kclique": Subject(
        "whether a graph has a clique of k vertices",
        _kclique,
        lambda o: KClique(_graph(o.graph), o.size, kernel=o.kernel),
    ),
    "subgraph": Subject(
        "whether, or how often, a graph is part of another",
        _subgraph,
        lambda o: SubgraphIsomorphism(_graph(o.pattern), _graph(o.target), induced=o.induced),
        lambda o: Solutions() if o.all else None,
    ),
    "knapsack": Subject(
        "the most valuable items that fit",
        _knapsack,
        lambda o: read_knapsack(o.file, o.target, o.dominance),
    ),
    "tsp": Subject(
        "the shortest tour of all cities",
        _tsp,
        lambda o: read_tsp(o.file, o.target, not o.no_dominance),
    ),
    "queens": Subject(
        "queens on a board, none attacking another",
        _queens,
        lambda o: Queens(o.n),
        lambda o: Solutions() if o.all else None,
    ),
    "semigroups": Subject(
        "how many numerical semigroups there are of each genus",
        _semigroups,
        lambda o: NumericalSemigroups(o.genus),
        lambda o: NodesByDepth(),
        "semigroups of genus 0, 1, ...",
    ),
    "uts": Subject(
        "how many nodes an unbalanced random tree has",
        _uts,
        _uts_problem,
        lambda o: Nodes(),
        "nodes",
    ),
}
"""The problems, by name."""


def _all(parser: Parser) -> None:
    parser.add_argument("--all", action="store_true", help="count all solutions")


def _best(parser: Parser) -> None:
    parser.add_argument("--k", type=at_least_one, default=1, help="the k best solutions")


def _target(parser: Parser) -> None:
    parser.add_argument(
        "--target", type=int, help="whether a solution is as good as this, or better"
    )


def _kernel(parser: Parser) -> None:
    parser.add_argument("--kernel", action="store_true", help="use the faster inner loop")


def at_least_one(text: str) -> int:
    """Return the integer above 0 of an argument."""
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"a whole number above 0, not '{text}'")
    return int(text)
