"""Execution plans of MSCCL++ by hand: of the kinds that its own tests have."""

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
Local = tuple[str, int]
"""A buffer and a chunk."""
Remote = tuple[int, str, int]


class PlanMaker:
    """A plan as it is made: operations name ranks and buffers, and get the format's numbers."""

    def __init__(self, name: str, collective: str, sizes: tuple[int, int, int], ranks: int):
        self.name, self.collective, self.ranks = name, collective, ranks
        self.inplace, self.packets, self.double = True, False, False
        self.gpus: list[Json] = [
            {
                "id": rank, "input_chunks": sizes[0], "output_chunks": sizes[1],
                "scratch_chunks": sizes[2], "threadblocks": [], "channels": [],
                "remote_buffers": [], "semaphores": [],
            }
            for rank in range(ranks)
        ]  # fmt: skip
        self.numbers: dict[object, int] = {}
        self.counts: dict[tuple[int, str], int] = {}

    def others(self, rank: int) -> list[int]:
        """Return all ranks but one."""
        return [x for x in range(self.ranks) if x != rank]

    def block(self, rank: int) -> "BlockMaker":
        """Add a thread block."""
        blocks: list[Json] = self.gpus[rank]["threadblocks"]
        made: Json = {"id": len(blocks), "ops": [], "channels": [], "remote_buffer_refs": []}
        blocks.append(made)
        return BlockMaker(self, rank, made, made["ops"])

    def semaphore(self, rank: int, value: int = 0) -> int:
        """Add a semaphore."""
        self.gpus[rank]["semaphores"].append({"init_value": value})
        return len(self.gpus[rank]["semaphores"]) - 1

    def channel(self, rank: int, kind: str, peer: int, copy: int) -> int:
        """Return the number of a channel of a rank: the first, second... one to its peer."""
        key = rank, kind, peer, copy
        if key not in self.numbers:
            if copy:
                _ = self.channel(rank, kind, peer, copy - 1)
            self.numbers[key] = self.counts.get((rank, kind), 0)
            self.counts[rank, kind] = self.numbers[key] + 1
            self.gpus[rank]["channels"].append({"channel_type": kind, "connected_to": [peer]})
        return self.numbers[key]

    def switch(self, rank: int, buffer: str) -> int:
        """Return the number of the switch channel of all ranks for a buffer."""
        key = rank, "switch", buffer
        if key not in self.numbers:
            self.numbers[key] = self.counts.get((rank, "switch"), 0)
            self.counts[rank, "switch"] = self.numbers[key] + 1
            groups = [{"size": 1, "ranks": [*range(self.ranks)]}]
            self.gpus[rank]["channels"].append(
                {"channel_type": "switch", "buffer_type": buffer, "rank_groups": groups}
            )
        return self.numbers[key]

    def buffer(self, rank: int, other: int, buffer: str, kind: str) -> int:
        """Return the number of a buffer of another rank."""
        key = rank, other, buffer, kind
        if key not in self.numbers:
            self.numbers[key] = len(self.gpus[rank]["remote_buffers"])
            self.gpus[rank]["remote_buffers"].append(
                {"rank": other, "type": buffer, "access_channel_types": [kind]}
            )
        return self.numbers[key]

    def made(self) -> Json:
        """Return the plan."""
        return {
            "name": self.name, "collective": self.collective,
            "protocol": "LL" if self.packets else "Simple", "inplace": self.inplace,
            "reuse_resources": False, "gpus": self.gpus, "num_threads_per_block": 1024,
            "use_double_scratch_buffer": self.double, "buffer_alignment": 16,
            "min_message_size": 0, "max_message_size": 2**64 - 1,
        }  # fmt: skip


class BlockMaker:
    """A thread block as it is made."""

    def __init__(self, plan: PlanMaker, rank: int, made: Json, ops: list[Json]):
        self.plan, self.rank, self.made, self.ops = plan, rank, made, ops
        self.group: Json = {}

    def _numbered(self, listed: str, kind_key: str, ids_key: str, kind: str, number: int) -> int:
        for each in self.made[listed]:
            if each[kind_key] == kind:
                ids: list[int] = each[ids_key]
                break
        else:
            ids = []
            self.made[listed].append({kind_key: kind, ids_key: ids})
        if number not in ids:
            ids.append(number)
        return ids.index(number)

    def channels(self, peers: list[int], kind: str, copy: int) -> list[int]:
        """Return the numbers of channels in the block."""
        return [
            self._numbered("channels", "channel_type", "channel_ids", kind,
                           self.plan.channel(self.rank, kind, peer, copy))
            for peer in peers
        ]  # fmt: skip

    def _part(self, part: Local | Remote, size: int, kind: str) -> Json:
        if len(part) == 2:
            buffer, index = part
            if kind == "switch":
                number = self.plan.switch(self.rank, buffer)
                at = self._numbered("channels", "channel_type", "channel_ids", kind, number)
                return {"switch_channel_id": at, "index": index, "size": size}
            return {"type": buffer, "index": index, "size": size}
        rank, buffer, index = part
        number = self.plan.buffer(self.rank, rank, buffer, kind)
        at = self._numbered(
            "remote_buffer_refs", "access_channel_type", "remote_buffer_ids", kind, number
        )
        return {"buffer_id": at, "index": index, "size": size}

    def move(
        self, name: str, sources: list[Local | Remote], targets: list[Local | Remote],
        size: int = 1, kind: str = "memory", copy: int = 0,
    ) -> "BlockMaker":  # fmt: skip
        """Add an operation that moves data."""
        op: Json = {
            "name": name,
            "src_buff": [self._part(x, size, kind) for x in sources],
            "dst_buff": [self._part(x, size, kind) for x in targets],
        }
        if kind == "port":
            peers = [x[0] for x in targets if len(x) == 3]
            op["channel_ids"] = self.channels(peers, kind, copy)  # pyright: ignore[reportArgumentType]
        if name not in ("copy", "cpkt", "upkt"):
            op["channel_type"] = kind
        if name.startswith(("r", "gl")) and name != "rppkt":
            op["reduce_op"] = "sum"
        self.ops.append({**op, **self.group})
        return self

    def nop(self) -> "BlockMaker":
        """Add a synchronisation of the threads."""
        self.ops.append({"name": "nop"})
        return self

    def order(
        self, name: str, peers: list[int], kind: str = "memory", copy: int = 0
    ) -> "BlockMaker":
        """Add a signal or wait."""
        ids = self.channels(peers, kind, copy)
        self.ops.append({"name": name, "channel_ids": ids, "channel_type": kind})
        return self

    def meet(self, kind: str = "memory", copy: int = 0) -> "BlockMaker":
        """Let all ranks wait for each other, and then the threads."""
        others = self.plan.others(self.rank)
        return (
            self.nop().order("signal", others, kind, copy).order("wait", others, kind, copy).nop()
        )

    def semaphores(self, name: str, *numbers: int) -> "BlockMaker":
        """Add an acquire or release."""
        self.ops.append({"name": name, "semaphore_ids": [*numbers]})
        return self

    def barrier(self, number: int, blocks: int) -> "BlockMaker":
        """Add a barrier."""
        self.ops.append({"name": "barrier", "barrier_id": number, "num_threadblocks": blocks})
        return self

    def pipeline(self, unit: int, chunks: int) -> "BlockMaker":
        """Add a pipeline; return what adds operations to it."""
        loop: Json = {
            "name": "pipeline", "iter_context": {"unit_size": unit, "num_chunks": chunks},
            "ops": [],
        }  # fmt: skip
        self.ops.append(loop)
        return BlockMaker(self.plan, self.rank, self.made, loop["ops"])


def all_pairs(ranks: int) -> Json:
    """Each rank reads its chunk of all, adds, and writes the sum to all."""
    plan = PlanMaker("all pairs", "allreduce", (ranks, ranks, 0), ranks)
    for r in range(ranks):
        block = plan.block(r).meet()
        sources: list[Local | Remote] = [("i", r), *((p, "i", r) for p in plan.others(r))]
        _ = block.move("rres", sources, sources).meet()
    return plan.made()


def packets(ranks: int) -> Json:
    """Each rank sends its chunks as packets, adds what comes, and sends the sum as packets."""
    plan = PlanMaker("packets", "allreduce", (ranks, ranks, 2 * ranks), ranks)
    plan.packets = plan.double = True
    for r in range(ranks):
        others = plan.others(r)
        for p in others:
            _ = plan.block(r).move("ppkt", [("i", p)], [(p, "s", r)])
        _ = plan.block(r).move(
            "respkt", [("i", r), *(("s", p) for p in others)],
            [("i", r), *((p, "s", ranks + r) for p in others)],
        )  # fmt: skip
        for p in others:
            _ = plan.block(r).move("upkt", [("s", ranks + p)], [("i", p)])
    return plan.made()


def forwarded_packets(ranks: int) -> Json:
    """The first rank's chunk goes from rank to rank as packets."""
    plan = PlanMaker("forwarded packets", "broadcast", (1, 1, 1), ranks)
    plan.inplace, plan.packets, plan.double = False, True, True
    for r in range(ranks):
        block = plan.block(r)
        if r == 0:
            _ = block.move("cpkt", [("i", 0)], [("s", 0)])
        if r + 1 < ranks:
            _ = block.move("rppkt", [("s", 0)], [(r + 1, "s", 0)])
        _ = block.move("upkt", [("s", 0)], [("o", 0)])
        # A rank tells the one before when it has started: after two launches its scratch is free.
        peers = [p for p in (r - 1, r + 1) if 0 <= p < ranks]
        _ = block.order("rlxsignal", peers).order("rlxwait", peers)
    return plan.made()


def groups(ranks: int) -> Json:
    """Two blocks share each transfer; one of them speaks for both."""
    plan = PlanMaker("groups", "allgather", (1, ranks, 0), ranks)
    for r in range(ranks):
        others = plan.others(r)
        for part in range(2):
            block = plan.block(r)
            if part == 0:
                _ = block.meet()
            _ = block.barrier(0, 2)
            block.group = {"tbg_info": {"tb_id": part, "tbg_size": 2}}
            _ = block.move("put", [("o", r)] * len(others), [(p, "o", r) for p in others])
            block.group = {}
            _ = block.barrier(0, 2)
            if part == 0:
                _ = block.meet()
    return plan.made()


def pipelined(ranks: int) -> Json:
    """One block copies to scratch, piece by piece, and another one adds the pieces of all."""
    plan = PlanMaker("pipelined", "allreduce", (1, 1, 1), ranks)
    plan.inplace = False
    for r in range(ranks):
        semaphore, others = plan.semaphore(r), plan.others(r)
        loop = plan.block(r).pipeline(2**20, 1)
        _ = loop.move("copy", [("i", 0)], [("s", 0)]).meet().semaphores("sem_release", semaphore)
        loop = plan.block(r).pipeline(2**20, 1)
        sources: list[Local | Remote] = [("s", 0), *((p, "s", 0) for p in others)]
        _ = loop.semaphores("sem_acquire", semaphore).nop().move("rre", sources, [("o", 0)])
        _ = loop.meet("memory", 1)
    return plan.made()


def several_releases(ranks: int) -> Json:
    """Two blocks put a chunk each, and a third one waits for both by one semaphore."""
    plan = PlanMaker("several releases", "allgather", (2, 2 * ranks, 0), ranks)
    for r in range(ranks):
        done, begins = plan.semaphore(r), [plan.semaphore(r), plan.semaphore(r)]
        others = plan.others(r)
        for part in range(2):
            block = plan.block(r).semaphores("sem_acquire", begins[part]).nop()
            at = 2 * r + part
            _ = block.move("put", [("o", at)] * len(others), [(p, "o", at) for p in others])
            _ = block.nop().semaphores("sem_release", done)
        block = plan.block(r).meet().semaphores("sem_release", *begins)
        _ = block.semaphores("sem_acquire", done).semaphores("sem_acquire", done).meet()
    return plan.made()


def switched(ranks: int) -> Json:
    """A switch adds the chunk of each rank, and stores the sum everywhere."""
    plan = PlanMaker("switched", "allreduce", (ranks, ranks, 0), ranks)
    for r in range(ranks):
        block = plan.block(r).meet()
        _ = block.move("glres", [("i", r)], [("i", r)], kind="switch").meet()
    return plan.made()


def over_ports(ranks: int) -> Json:
    """Each rank puts its chunk to all over ports, with a signal, and flushes."""
    plan = PlanMaker("over ports", "allgather", (1, ranks, 0), ranks)
    for r in range(ranks):
        others = plan.others(r)
        block = plan.block(r).meet("port")
        _ = block.move("pws", [("o", r)] * len(others), [(p, "o", r) for p in others], kind="port")
        _ = block.nop().order("wait", others, "port").order("flush", others, "port").nop()
    return plan.made()


def fetched(ranks: int) -> Json:
    """Each rank gets the chunks of all others."""
    plan = PlanMaker("fetched", "allgather", (1, ranks, 0), ranks)
    for r in range(ranks):
        others = plan.others(r)
        block = plan.block(r).meet()
        _ = block.move("get", [(p, "o", p) for p in others], [("o", p) for p in others]).meet()
    return plan.made()


def exchanged(ranks: int) -> Json:
    """Each rank sends its packets from scratch over ports to all, and adds what comes."""
    plan = PlanMaker("exchanged", "allreduce", (1, 1, 2 * ranks), ranks)
    plan.packets = plan.double = True
    for r in range(ranks):
        others = plan.others(r)
        _ = (
            plan.block(r)
            .move("cpkt", [("i", 0)], [("s", r)])
            .nop()
            .move("repkt", [("i", 0), *(("s", ranks + p) for p in others)], [("i", 0)])
        )
        _ = plan.block(r).move(
            "rppkt", [("s", r)] * len(others), [(p, "s", ranks + r) for p in others], kind="port"
        )
    return plan.made()


MADE: tuple[Callable[[int], Json], ...] = (
    all_pairs, packets, forwarded_packets, groups, pipelined, several_releases, switched,
    over_ports, fetched, exchanged,
)  # fmt: skip
