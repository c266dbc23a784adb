"""Reader of the execution traces of all ranks, which checks that the ranks fit together.

A trace is a file for each rank, ``NAME.RANK.et``; the groups of collectives are in a file of JSON.
A collective is the same one on the ranks of its group if it has the same place among the
collectives of the group there, in the order in which ASTRA-sim issues them.
"""

import heapq
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.syntax.chakra import wire
from collir.syntax.chakra.messages import ChakraNode, CommType, NodeType, read_node, read_version
from collir.syntax.chakra.wire import WireError

MOST_BYTES = 2**28
"""The most bytes of a file."""

ALL_RANKS = 0
"""The number of the group of all ranks, which no table lists."""


@dataclass(frozen=True)
class ChakraTrace:
    """The trace of a rank.

    Attributes:
        file: its name.
        nodes: its nodes in the order of issue: each behind the nodes it waits for; of several ready
            nodes, the smallest id is first.
    """

    file: str
    version: str
    nodes: tuple[ChakraNode, ...]

    def fault(self, message: str) -> DiagnosticError:
        """Return an error in the file."""
        return fault(self.file, message)


@dataclass(frozen=True)
class Traces:
    """The traces of all ranks.

    Attributes:
        ranks: that of each rank.
        groups: the ranks of each group, by its number.
    """

    ranks: tuple[ChakraTrace, ...]
    groups: Mapping[int, tuple[int, ...]]

    def collectives(self, rank: int) -> Iterator[tuple[int, ChakraNode]]:
        """Yield the collectives of a rank, each with the number of its group."""
        for node in self.ranks[rank].nodes:
            if node.type is NodeType.COMM_COLL:
                yield self.group_of(rank, node), node

    def group_of(self, rank: int, node: ChakraNode) -> int:
        """Return the number of the group of a collective.

        Raises:
            DiagnosticError: there is no such group, or the rank is not one of it.
        """
        trace, name = self.ranks[rank], node.attributes.get("pg_name", "")
        if name in ("", "0"):
            return ALL_RANKS
        if not isinstance(name, str) or not re.fullmatch(r"[1-9]\d{0,8}", name):
            raise trace.fault(f"node {node.id} has the group {_shown(name)}, which is no number")
        if (group := self.groups.get(int(name))) is None:
            raise trace.fault(f"node {node.id} is of group {name}, which is in no table of groups")
        if rank not in group:
            raise trace.fault(f"node {node.id} is of group {name}, and rank {rank} is not")
        return int(name)

    def members(self, group: int) -> tuple[int, ...]:
        """Return the ranks of a group."""
        return self.groups[group] if group else self._all

    @cached_property
    def _all(self) -> tuple[int, ...]:
        return tuple(range(len(self.ranks)))


def fault(file: str, message: str) -> DiagnosticError:
    """Return an error in a file."""
    return DiagnosticError(Diagnostic(message, Position(file, 1, 1)))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


# --- files --------------------------------------------------------------------------------------


def read_traces(files: Sequence[str]) -> Traces:
    """Return the traces of files: of each rank one, and at most one of groups; or of what
    ASTRA-sim calls a workload, the beginning of their names.

    Raises:
        DiagnosticError: a file cannot be read, or is no trace; a rank has none or two; ranks do not
            fit together.
    """
    names = [*_found(files[0])] if len(files) == 1 and not _is_named(files[0]) else [*files]
    tables = [name for name in names if name.endswith(".json")]
    if len(tables) > 1:
        raise fault(tables[1], f"the groups are in {tables[0]} already")
    by_rank: dict[int, str] = {}
    for name in names:
        if name in tables:
            continue
        match = re.search(r"\.(\d{1,9})\.et$", name)
        if match is None:
            raise fault(name, "traces are called NAME.RANK.et, and a table of groups NAME.json")
        if (rank := int(match[1])) in by_rank:
            raise fault(name, f"rank {rank} has {by_rank[rank]} already")
        by_rank[rank] = name
    for rank in range(len(by_rank)):
        if rank not in by_rank:
            last = by_rank[max(by_rank)]
            raise fault(last, f"there is a trace of rank {max(by_rank)}, and none of rank {rank}")
    traces = tuple(read_trace(_bytes(by_rank[n]), by_rank[n]) for n in range(len(by_rank)))
    groups = read_groups(_bytes(tables[0]), tables[0], len(traces)) if tables else {}
    made = Traces(traces, groups)
    check_collectives(made)
    check_messages(made)
    return made


def _is_named(file: str) -> bool:
    return file.endswith((".et", ".json"))


def _found(workload: str) -> Iterator[str]:
    """Yield the files of a workload.

    Raises:
        DiagnosticError: there are none.
    """
    base = Path(workload)
    form = re.compile(rf"{re.escape(base.name)}\.(\d{{1,9}}\.et|json)")
    try:
        paths = [path for path in base.parent.iterdir() if form.fullmatch(path.name)]
    except OSError:
        paths = []
    if not any(path.suffix == ".et" for path in paths):
        raise DiagnosticError(Diagnostic(f"there is no file {workload}.0.et"))
    yield from map(str, sorted(paths))


def _bytes(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot read {file}: {reason}")) from error
    if len(data) > MOST_BYTES:
        message = f"cannot read {file}: it has more than {MOST_BYTES} bytes"
        raise DiagnosticError(Diagnostic(message))
    return data


def read_trace(data: bytes, file: str = "<trace>") -> ChakraTrace:
    """Return the trace of a rank.

    Raises:
        DiagnosticError: it is no trace; two nodes have one id; or a node waits for itself or for
            none.
    """
    nodes: dict[int, ChakraNode] = {}
    version, number = "", 1
    try:
        for message in wire.messages(data):
            if number == 1:
                version = read_version(message)
            else:
                node = read_node(message)
                if node.id in nodes:
                    raise WireError(f"there is a node {node.id} already")
                nodes[node.id] = node
            number += 1
    except WireError as error:
        message = f"this is no trace of Chakra: message {number}: {error}"
        raise fault(file, message) from None
    if number == 1:
        raise fault(file, "this is no trace of Chakra: it has no metadata")
    return ChakraTrace(file, version, tuple(_in_order(nodes, file)))


def _in_order(nodes: Mapping[int, ChakraNode], file: str) -> Iterator[ChakraNode]:
    """Yield nodes in the order in which they are issued.

    Raises:
        DiagnosticError: one waits for a node that is not there, or nodes wait for each other.
    """
    waiting = {node.id: len({*node.needed}) for node in nodes.values()}
    behind: dict[int, list[int]] = defaultdict(list)
    for node in nodes.values():
        for needed in {*node.needed}:
            if needed not in nodes:
                raise fault(file, f"node {node.id} waits for node {needed}, which is not there")
            behind[needed].append(node.id)
    ready = [number for number, count in waiting.items() if not count]
    heapq.heapify(ready)
    issued = 0
    while ready:
        number = heapq.heappop(ready)
        issued += 1
        yield nodes[number]
        for following in behind[number]:
            waiting[following] -= 1
            if not waiting[following]:
                heapq.heappush(ready, following)
    if issued < len(nodes):
        number = min(number for number, count in waiting.items() if count)
        raise fault(file, f"node {number} waits for nodes that wait for each other")


def read_groups(data: bytes, file: str, ranks: int) -> dict[int, tuple[int, ...]]:
    """Return the groups of a table, by their numbers.

    Raises:
        DiagnosticError: it is no table of groups of these ranks.
    """
    try:
        table: Any = json.loads(data)
    except RecursionError:
        raise fault(file, "this is nested too deeply") from None
    except ValueError as error:
        line = min(getattr(error, "lineno", 1), 1 + data.count(b"\n"))
        position = Position(file, line, getattr(error, "colno", 1))
        raise DiagnosticError(Diagnostic(f"this is no JSON: {error}", position)) from None
    if not isinstance(table, dict):
        raise fault(file, 'groups are written as {"1": [0, 1], "2": [2, 3]}')
    groups: dict[int, tuple[int, ...]] = {}
    for name, members in cast(dict[str, object], table).items():
        if not re.fullmatch(r"[1-9]\d{0,8}", name):
            raise fault(file, f"a group is called {_shown(name)}, and not a number from 1 on")
        if not isinstance(members, list):
            raise fault(file, f"group {name} is no list of ranks")
        values = cast(list[object], members)
        listed = [x for x in values if type(x) is int and 0 <= x < ranks]
        if len(listed) < len(values):
            raise fault(file, f"group {name} has ranks other than those from 0 to {ranks - 1}")
        if not listed or len({*listed}) < len(listed):
            raise fault(file, f"group {name} has no ranks, or one of them twice")
        groups[int(name)] = tuple(listed)
    return groups


# --- checks -------------------------------------------------------------------------------------


def number_of(node: ChakraNode, name: str, trace: ChakraTrace) -> int:
    """Return an attribute that is a number of at least 0.

    Raises:
        DiagnosticError: it is none.
    """
    value = node.attributes.get(name)
    if type(value) is not int or value < 0:
        has = "no" if value is None else f"{_shown(value)} for"
        raise trace.fault(f"node {node.id} has {has} {name}, which is a number of 0 or more")
    return value


def comm_type_of(node: ChakraNode, trace: ChakraTrace) -> CommType:
    """Return the kind of a collective.

    Raises:
        DiagnosticError: there is no such kind.
    """
    number = number_of(node, "comm_type", trace)
    if number not in set(CommType):
        raise trace.fault(f"node {node.id} has comm_type {number}, which is no collective")
    return CommType(number)


def check_collectives(traces: Traces) -> None:
    """Check that the ranks of each group run the same collectives on it, in the same order.

    Raises:
        DiagnosticError: they do not, and would wait for each other forever.
    """
    of_groups: dict[int, dict[int, list[_Sent]]] = defaultdict(lambda: defaultdict(list))
    for rank, trace in enumerate(traces.ranks):
        for group, node in traces.collectives(rank):
            kind, size = comm_type_of(node, trace), number_of(node, "comm_size", trace)
            of_groups[group][rank].append((kind, size, node.id))
    for group, of_rank in of_groups.items():
        first, *others = traces.members(group)
        for rank in others:
            _compare(traces.ranks[rank], group, of_rank[rank], first, of_rank[first])


_Sent = tuple[CommType, int, int]
"""The kind and the bytes of a collective, and the id of its node."""


def _compare(
    trace: ChakraTrace,
    group: int,
    own: Sequence[_Sent],
    other: int,
    expected: Sequence[_Sent],
) -> None:
    for number, (x, y) in enumerate(zip(own, expected, strict=False), 1):
        if x[:2] != y[:2]:
            words = [f"a {kind.name} of {size} bytes" for kind, size, _ in (x, y)]
            raise trace.fault(
                f"node {x[2]}, collective {number} of group {group}, is {words[0]}, and "
                f"{words[1]} on rank {other}"
            )
    if len(own) != len(expected):
        raise trace.fault(
            f"group {group} has {len(own)} collectives here, and {len(expected)} on rank {other}"
        )


def check_messages(traces: Traces) -> None:
    """Check that received messages are sent, with the same sizes.

    Raises:
        DiagnosticError: a message is sent and not received, or of another size.
    """
    sent: dict[tuple[int, ...], list[int]] = defaultdict(list)
    received: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank, trace in enumerate(traces.ranks):
        for node in trace.nodes:
            if node.type not in (NodeType.COMM_SEND, NodeType.COMM_RECV):
                continue
            sends = node.type is NodeType.COMM_SEND
            own, partner = ("comm_src", "comm_dst") if sends else ("comm_dst", "comm_src")
            at = number_of(node, own, trace) if own in node.attributes else rank
            if at != rank:
                raise trace.fault(f"node {node.id} has {own} {at}, and this is rank {rank}")
            ends = {own: rank, partner: number_of(node, partner, trace)}
            key = ends["comm_src"], ends["comm_dst"], number_of(node, "comm_tag", trace)
            sizes = sent if sends else received
            sizes[key].append(number_of(node, "comm_size", trace))
    for key in sorted({*sent, *received}):
        source, target, tag = key
        if sent[key] != received[key]:
            raise traces.ranks[min(source, len(traces.ranks) - 1)].fault(
                f"rank {source} sends rank {target} {_listed(sent[key])} with tag {tag}, and it "
                f"receives {_listed(received[key])}"
            )


def _listed(sizes: Sequence[int]) -> str:
    return f"{', '.join(map(str, sizes[:4]))} bytes" if sizes else "nothing"
