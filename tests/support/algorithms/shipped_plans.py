"""Plans that MSCCL++ ships for its tests, from test/executor-tests/execution-plans."""

from typing import Any

from support.algorithms.execution_plans import BlockMaker, Json, PlanMaker


def _part(block: BlockMaker, part: int, parts: int) -> BlockMaker:
    block.group = {"tbg_info": {"tb_id": part, "tbg_size": parts}} if parts > 1 else {}
    return block


def transfer_pack(parts: int = 1) -> Json:
    """transfer_pack.json, and transfer_pack_tbg.json with two parts."""
    plan = PlanMaker("transfer_pack", "allgather", (1, 2, 2), 2)
    plan.packets = plan.double = True
    moves: list[tuple[int, str, list[Any], list[Any]]] = [
        (0, "ppkt", [("o", 0)], [(1, "s", 0)]), (0, "upkt", [("s", 1)], [("o", 1)]),
        (1, "cpkt", [("o", 1)], [("s", 1)]), (1, "rppkt", [("s", 1)], [(0, "s", 1)]),
        (1, "upkt", [("s", 0)], [("o", 0)]),
    ]  # fmt: skip
    for rank, name, sources, targets in moves:
        for part in range(parts):
            _ = _part(plan.block(rank), part, parts).move(name, sources, targets)
    return plan.made()


def reduce_pack() -> Json:
    """reduce_pack.json."""
    plan = PlanMaker("reduce_pack", "allreduce", (2, 2, 3), 2)
    plan.packets = plan.double = True
    _ = plan.block(0).move("ppkt", [("i", 1)], [(1, "s", 1)])
    _ = plan.block(0).move("respkt", [("i", 0), ("s", 0)], [("i", 0), (1, "s", 0)])
    _ = plan.block(0).move("upkt", [("s", 1)], [("i", 1)])
    _ = plan.block(1).move("ppkt", [("i", 0)], [(0, "s", 0)])
    _ = plan.block(1).move("recspkt", [("i", 1), ("s", 1)], [("i", 1), ("s", 2), (0, "s", 1)])
    _ = plan.block(1).move("upkt", [("s", 0)], [("i", 0)])
    return plan.made()


def multi_node_transfer() -> Json:
    """multi_node_transfer.json."""
    plan = PlanMaker("multi_node_transfer", "allgather", (2, 4, 0), 2)

    def begun(rank: int, copy: int) -> BlockMaker:
        block = plan.block(rank).nop().order("signal", [1 - rank], "port", copy).nop()
        return block.order("wait", [1 - rank], "port", copy).nop()

    block = begun(0, 0).move("put", [("o", 0)], [(1, "o", 0)], kind="port").nop()
    block = block.order("signal", [1], "port").nop().order("flush", [1], "port").nop()
    _ = block.order("wait", [1], "port").nop()
    block = begun(0, 1).move("pws", [("o", 1)], [(1, "o", 1)], kind="port", copy=1).nop()
    _ = block.order("flush", [1], "port", 1).nop()
    block = begun(1, 0).move("pwsf", [("o", 2)], [(0, "o", 2)], 2, "port").nop()
    _ = block.order("wait", [0], "port").nop()
    _ = begun(1, 1).order("wait", [0], "port", 1).nop()
    return plan.made()


def multi_node_transfer_pkt() -> Json:
    """multi_node_transfer_pkt.json: between its first two operations there is no nop."""
    plan = PlanMaker("multi_node_transfer_pkt", "allgather", (1, 2, 2), 2)
    plan.packets = plan.double = True
    block = plan.block(0).move("cpkt", [("o", 0)], [("s", 0)])
    _ = block.move("ppkt", [("s", 0)], [(1, "s", 0)], kind="port")
    _ = plan.block(0).move("upkt", [("s", 1)], [("o", 1)])
    _ = plan.block(1).move("cpkt", [("o", 1)], [("s", 1)])
    _ = plan.block(1).move("rppkt", [("s", 1)], [(0, "s", 1)], kind="port")
    _ = plan.block(1).move("upkt", [("s", 0)], [("o", 0)])
    return plan.made()


def reduce_nvls_pipeline() -> Json:
    """reduce_nvls_pipeline.json: its last signals are relaxed."""
    plan = PlanMaker("reduce_nvls_pipeline", "allreduce", (2, 2, 0), 2)
    for rank in range(2):
        block, peer = plan.block(rank).nop(), [1 - rank]
        _ = block.order("rlxsignal", peer).nop().order("rlxwait", peer).nop()
        loop = block.pipeline(2**20, 1)
        _ = loop.move("glres", [("i", rank)], [("i", rank)], kind="switch")
        _ = block.nop().order("rlxsignal", peer).nop().order("rlxwait", peer).nop()
    return plan.made()


def reduce_tbg() -> Json:
    """reduce_tbg.json: a block of rank 1 copies whole chunks, of which rank 0 reads halves."""
    plan = PlanMaker("reduce_tbg", "allreduce", (4, 4, 4), 2)

    def meet(block: BlockMaker, part: int) -> None:
        peer = [1 - block.rank]
        _ = block.nop().order("signal", peer, copy=part).nop()
        _ = block.order("wait", peer, copy=part).nop()

    for part in range(2):
        block = _part(plan.block(0), part, 2).move("copy", [("i", 2)], [("s", 2)], 2)
        meet(block, part)
        _ = block.move("rres", [("i", 0), (1, "s", 0)], [("i", 0), (1, "i", 0)])
        _ = block.move("get", [(1, "s", 1)], [("s", 1)]).nop()
        _ = block.move("res", [("i", 1), ("s", 1)], [("i", 1), (1, "i", 1)])
        meet(block, part)
    for part in range(2):
        block = _part(plan.block(1), part, 2).move("copy", [("i", 0)], [("s", 0)], 2)
        meet(block, part)
        _ = block.move("rre", [("i", 2), (0, "s", 2)], [("i", 2)], 2).nop()
        _ = block.move("copy", [("i", 2)], [("s", 2)], 2).nop()
        _ = block.move("put", [("s", 2)], [(0, "i", 2)], 2)
        meet(block, part)
    return plan.made()
