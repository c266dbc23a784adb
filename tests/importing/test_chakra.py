"""Execution traces as programs, and files that are none."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, random_module

import collir
from collir.cost.model import CostModel
from collir.importing.chakra.program import program_of
from collir.importing.chakra.traces import Traces, read_groups, read_trace, read_traces
from collir.ir.diagnostics import DiagnosticError
from collir.syntax.chakra.messages import ChakraNode, CommType, NodeType, Value, written_trace
from collir.targets.traces.chakra import traces_of
from collir.tools import collir as tool

MACHINE = """\
machine @c {
  device { compute f32 = 1 TFLOP/s, bf16 = 8 TFLOP/s; memory = 1 GB @ 1 TB/s }
  level node[2] { port = 8 GB/s, latency = 20 us }
  level gpu[4]  { port = 80 GB/s, latency = 3 us }
}
"""

PROGRAM = """
mesh @m on @c { data = node:2 * gpu:2, model = gpu:2 }
func @f(%g: f32[1048576] partial(sum: data), %h: f32[1024, 8@model], %z: f32[4096] root(model))
    -> (f32[1048576], f32[1024, 8], f32[1024@model, 8], f32[4096], f32[4096@data]) on @m {
  %0 = reduce_scatter %g over data.gpu dim 0
  %1 = all_reduce %0 over data.node async
  %a = compute %h flops 4e8
  %2 = all_gather %1 over data.gpu dim 0 async
  %b = all_gather %a over model dim 1
  %c = all_to_all %a over model dim 1 to 0
  %y = broadcast %z over model
  %w = slice %y over data dim 0
  %d = compute %b, %2 flops 2e8
  return %2, %d, %c, %y, %w
}
"""


def nodes_of(text: str) -> Traces:
    [traces] = traces_of(collir.parse(text), CostModel())
    ranks = tuple(
        read_trace(b"".join(written_trace(traces.nodes(rank)))) for rank in range(traces.ranks)
    )
    return Traces(ranks, {int(k): tuple(v) for k, v in traces.group_table().items()})


def test_a_program_comes_back(tmp_path: Path) -> None:
    """Its steps send the same over the same parts of the machine, and it takes the same time."""
    file = tmp_path / "c.coll"
    file.write_text(MACHINE, encoding="utf-8")
    made = program_of(nodes_of(MACHINE + PROGRAM), machine=f'@c from "{file}"')
    [before], [after] = (collir.simulate(collir.parse(x)) for x in (MACHINE + PROGRAM, made.text))
    assert [x.collective.kind for x in after.collectives] == [
        x.collective.kind for x in before.collectives
    ]
    for x, y in zip(before.collectives, after.collectives, strict=True):
        assert y.time == pytest.approx(x.time)
        assert y.port_bytes == x.port_bytes
    assert after.time == pytest.approx(before.time, abs=2e-6)
    assert not made.remarks


@given(rng=RANDOM)
@settings(max_examples=15)
def test_random_programs_come_back(rng: random.Random) -> None:
    """A program is made of all traces of ranks that run the same, and it is simulated."""
    module = random_module(rng, functions=1, steps=8, kinds=0)
    try:
        traces = traces_of(module, CostModel())
    except DiagnosticError:  # a mesh that is on no levels
        return
    for function in traces:
        ranks = tuple(
            read_trace(b"".join(written_trace(function.nodes(rank))))
            for rank in range(function.ranks)
        )
        groups = {int(k): tuple(v) for k, v in function.group_table().items()}
        try:
            made = program_of(Traces(ranks, groups))
        except DiagnosticError:  # of stages, with messages, or on 9 or 12 devices
            continue
        [simulation] = collir.simulate(collir.parse(made.text))
        own = [node for node in ranks[0].nodes if node.type is NodeType.COMM_COLL]
        assert len(simulation.collectives) == made.collectives == len(own)


# --- written by hand ------------------------------------------------------------------------------


def sent(number: int, kind: CommType, size: int, group: str = "", *needed: int) -> ChakraNode:
    attributes: dict[str, Value] = {"comm_type": int(kind), "comm_size": size, "pg_name": group}
    return ChakraNode(number, f"n{number}", NodeType.COMM_COLL, (), needed, attributes=attributes)


def computed(
    number: int, attributes: Mapping[str, Value], *needed: int, duration: int = 0
) -> ChakraNode:
    return ChakraNode(number, "c", NodeType.COMP, needed, (), 0, duration, attributes)


def files(
    folder: Path, ranks: Sequence[Sequence[ChakraNode]], groups: Mapping[str, Sequence[int]]
) -> str:
    for rank, nodes in enumerate(ranks):
        (folder / f"w.{rank}.et").write_bytes(b"".join(written_trace(nodes)))
    (folder / "w.json").write_text(json.dumps(groups), encoding="utf-8")
    return str(folder / "w")


def test_times_are_those_of_the_trace_or_of_operations(tmp_path: Path) -> None:
    file = tmp_path / "c.coll"
    file.write_text(MACHINE, encoding="utf-8")
    nodes = [
        computed(5, {"num_ops": 10**9, "tensor_size": 8}, duration=70),
        computed(7, {"num_ops": 10**9, "tensor_size": 8}),
        computed(9, {"num_ops": 1, "tensor_size": 10**9}),
        computed(11, {"is_cpu_op": True}, 5, 7),
        sent(12, CommType.REDUCE_SCATTER_BLOCK, 4096, "0", 11),
    ]
    made = program_of(read_traces([files(tmp_path, [nodes] * 8, {})]), machine=f'@c from "{file}"')
    body = made.text[made.text.index("func") :]
    assert (
        body
        == """\
func @step(
    %t: f32[1],
    %x1: f32[1024] partial(sum: a))
    -> (f32[1],
    f32[1024@a]) on @m {
  %c1 = compute %t flops 7e+07
  %c2 = compute %t flops 1e+09
  %c3 = compute %t flops 1e+09
  %c4 = compute %t, %c1, %c2 flops 0
  %p1 = compute %x1, %c4 flops 0
  %r1 = reduce_scatter %p1 over a dim 0 async
  return %c3, %r1
}
"""
    )
    assert made.remarks == ("1 nodes of hosts run on the devices",)


A, G = CommType.ALL_REDUCE, CommType.ALL_GATHER
GROUPS = {"1": [0, 1], "2": [2, 3]}


def ranks(*first: ChakraNode) -> list[list[ChakraNode]]:
    return [[*first], [sent(1, A, 8, "1")], [sent(1, A, 8, "2")], [sent(1, A, 8, "2")]]


@pytest.mark.parametrize(
    ("traces", "groups", "file", "message"),
    [
        (ranks(sent(1, A, 8, "1", 7)), GROUPS, "w.0.et",
         "node 1 waits for node 7, which is not there"),
        (ranks(sent(1, A, 8, "1", 2), sent(2, A, 8, "1", 1)), GROUPS, "w.0.et",
         "node 1 waits for nodes that wait for each other"),
        (ranks(sent(1, A, 8, "1", 1)), GROUPS, "w.0.et",
         "node 1 waits for nodes that wait for each other"),
        (ranks(sent(1, A, 8, "1"), sent(1, A, 8, "1")), GROUPS, "w.0.et",
         "this is no trace of Chakra: message 3: there is a node 1 already"),
        (ranks(sent(1, A, 8, "3")), GROUPS, "w.0.et",
         "node 1 is of group 3, which is in no table of groups"),
        (ranks(sent(1, A, 8, "2")), GROUPS, "w.0.et",
         "node 1 is of group 2, and rank 0 is not"),
        (ranks(sent(1, A, 8, "tp")), GROUPS, "w.0.et",
         "node 1 has the group 'tp', which is no number"),
        (ranks(sent(1, A, 9, "1")), GROUPS, "w.1.et",
         "node 1, collective 1 of group 1, is a ALL_REDUCE of 8 bytes, and a ALL_REDUCE of 9 "
         "bytes on rank 0"),
        (ranks(), GROUPS, "w.1.et", "group 1 has 1 collectives here, and 0 on rank 0"),
        (ranks(sent(1, A, 8, "1"), sent(2, G, 8, "1")), GROUPS, "w.1.et",
         "group 1 has 1 collectives here, and 2 on rank 0"),
        (ranks(sent(1, A, -8, "1")), GROUPS, "w.0.et",
         "node 1 has -8 for comm_size, which is a number of 0 or more"),
        (ranks(ChakraNode(1, "", NodeType.COMM_COLL)), GROUPS, "w.0.et",
         "node 1 has no comm_type, which is a number of 0 or more"),
        (ranks(ChakraNode(1, "", NodeType.COMM_SEND, attributes={"comm_dst": 1, "comm_size": 4,
                                                          "comm_tag": 2})), {}, "w.0.et", None),
        (ranks(sent(1, A, 8, "1")), {"1": [0, 9]}, "w.json",
         "group 1 has ranks other than those from 0 to 3"),
        (ranks(sent(1, A, 8, "1")), {"0": [0, 1]}, "w.json",
         "a group is called '0', and not a number from 1 on"),
        (ranks(sent(1, A, 8, "1")), {"1": [0, 0]}, "w.json",
         "group 1 has no ranks, or one of them twice"),
    ],
)  # fmt: skip
def test_ranks_that_do_not_fit_together(
    traces: Sequence[Sequence[ChakraNode]],
    groups: Mapping[str, Sequence[int]],
    file: str,
    message: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert tool.main(["import", "chakra", files(tmp_path, traces, groups)]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert "Traceback" not in err
    assert err.startswith(f"{tmp_path / file}:1:1: error: ") or message is None
    if message is not None:
        assert f"error: {message}\n" in err


def test_ranks_that_run_other_nodes_are_refused(tmp_path: Path) -> None:
    whole = [sent(1, A, 8, ""), computed(2, {})]
    traces = read_traces([files(tmp_path, [whole, [whole[0], sent(2, A, 8, "1")]], {"1": [1]})])
    with pytest.raises(DiagnosticError, match="node 2 of rank 1 is another one than node 2 of"):
        program_of(traces)
    message = ChakraNode(1, "", NodeType.COMM_SEND, attributes={
        "comm_src": 0, "comm_dst": 1, "comm_tag": 3, "comm_size": 4})  # fmt: skip
    got = ChakraNode(1, "", NodeType.COMM_RECV, attributes=message.attributes)
    traces = read_traces([files(tmp_path, [[message], [got]], {})])
    with pytest.raises(DiagnosticError, match="node 1 is a COMM_SEND_NODE: messages from rank"):
        program_of(traces)
    with pytest.raises(DiagnosticError, match="sends rank 1 4 bytes with tag 3, and it receives n"):
        read_traces([files(tmp_path, [[message], []], {})])


CHANGES: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda data: data[:-3], "message 3: "),
    (lambda data: data + b"\xff\xff\xff\xff\x7f", "message 4: 34359738367 bytes are announced"),
    (lambda _: b"", "it has no metadata"),
    (lambda _: b"\x00" * 1000, "message 3: there is a node 0 already"),
    (lambda _: b"\x80" * 100, "a number has more than 64 bits"),
    (lambda data: data[:8] + b"\x02\x0d\x00" + data[8:], "message 2: 4 bytes are announced"),
    (lambda _: b"\xde\xad\xbe\xef" * 50, "error"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_broken_files_are_errors(
    change: Callable[[bytes], bytes],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = files(tmp_path, [[sent(1, A, 8), sent(2, A, 8)]] * 2, {})
    file = tmp_path / "w.1.et"
    file.write_bytes(change(file.read_bytes()))
    assert tool.main(["import", "chakra", base]) == 1
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith(f"{file}:1:1: error: this is no trace of Chakra: ")


@given(rng=RANDOM)
@settings(max_examples=100)
def test_changed_files_are_read_or_refused(rng: random.Random) -> None:
    data = bytearray(b"".join(written_trace([sent(1, A, 8), computed(2, {"num_ops": 5}, 1)])))
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    try:
        trace = read_trace(bytes(data[: rng.randint(0, len(data))]))
        program_of(Traces((trace, trace), {}))
    except DiagnosticError:
        pass


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "this is nested too deeply"),
        ("{1: 2}", "this is no JSON"),
        ("[1]", "groups are written as"),
        ('{"1": 5}', "group 1 is no list of ranks"),
        ('{"1": [true]}', "group 1 has ranks other than those from 0 to 3"),
        ('{"1": []}', "group 1 has no ranks, or one of them twice"),
        ("\udcff", "this is no JSON"),
    ],
)
def test_tables_of_groups_that_are_none(text: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        read_groups(text.encode("utf-8", "surrogateescape"), "g.json", 4)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["x"], "there is no file x.0.et"),
        (["x.0.et"], "cannot read x.0.et: no such file or directory"),
        (["x.0.et", "y.0.et"], "y.0.et:1:1: error: rank 0 has x.0.et already"),
        (["x.1.et"], "x.1.et:1:1: error: there is a trace of rank 1, and none of rank 0"),
        (["x.json", "y.json"], "y.json:1:1: error: the groups are in x.json already"),
        (["x.0.et", "notes.txt"], "notes.txt:1:1: error: traces are called NAME.RANK.et"),
    ],
)
def test_names_of_files(names: Sequence[str], message: str) -> None:
    with pytest.raises(DiagnosticError) as error:
        read_traces(names)
    assert message in str(error.value)
