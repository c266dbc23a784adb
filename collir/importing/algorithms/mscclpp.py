"""Execution plans in the JSON of MSCCL++, as its language and its executor have them.

Keys are those of src/core/executor/execution_plan.cc. The older form of this file, with keys such
as ``inputChunks`` and ``o_buff``, is told and refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from collir.algorithms.collectives import divisions, sizes_of
from collir.algorithms.mscclpp.operations import (
    MOVES,
    NAMES,
    SIGNALS,
    WAITS,
    WITHOUT_CODE,
    Operand,
)
from collir.algorithms.mscclpp.plan import (
    ExecutionPlan,
    PlanBlock,
    PlanOperation,
    PlanRange,
    PlanRank,
)
from collir.algorithms.program import ChunkBuffer, ChunkProgram, RankProgram
from collir.importing.json_values import JsonDocument, JsonValue
from collir.importing.values import shown

COLLECTIVES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
    "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all", "broadcast": "broadcast",
    "reduce": "reduce", "gather": "gather", "scatter": "scatter",
}  # fmt: skip
"""The collectives by their names in a file."""

BUFFERS = {"i": ChunkBuffer.INPUT, "o": ChunkBuffer.OUTPUT, "s": ChunkBuffer.SCRATCH}

_TYPES = ("memory", "port", "switch")
_OP_TYPES = ("none", *_TYPES)
_MOST_RANKS = 4096
_MOST_CHUNKS = 2**20
_MOST_BYTES = 2**64 - 1


@dataclass(frozen=True)
class MscclppFile:
    """A plan, and what its reader should know of it.

    Attributes:
        remarks: where the executor of today does not do what an operation is for.
    """

    plan: ExecutionPlan
    remarks: tuple[str, ...] = ()


@dataclass
class _Switch:
    """A buffer of several ranks that a switch serves."""

    buffer: ChunkBuffer
    ranks: tuple[int, ...]


@dataclass
class _Gpu:
    """The tables of a rank to which its operations refer."""

    rank: int
    remote_buffers: list[tuple[int, ChunkBuffer, tuple[str, ...]]]
    switches: list[_Switch]
    semaphores: int


@dataclass
class _Names:
    """The meaning of the numbers in the operations of a thread block."""

    gpu: _Gpu
    channels: dict[str, tuple[int, ...]]
    remote_buffers: dict[str, list[tuple[int, ChunkBuffer]]]


def read_mscclpp(data: bytes, collective: str = "") -> MscclppFile:
    """Return the plan of a file.

    Args:
        collective: the collective that it implements, in collir's names; by default, the file's.

    Raises:
        ReadError: the text is no such file, or has unknown parts; with its place.
    """
    root = JsonDocument(data).root
    _ = root.members()
    gpus = root.items("gpus")
    if not gpus:
        raise root.member("gpus").fault("the plan has no ranks")
    if len(gpus) > _MOST_RANKS:
        raise root.member("gpus").fault(f"the plan has more than {_MOST_RANKS} ranks")
    for number, gpu in enumerate(gpus):
        if "inputChunks" in gpu:
            raise gpu.fault("this is the form that MSCCL++ had before 2025: make the plan anew")
        if (own := gpu.integer("id")) != number:
            raise gpu.member("id").fault(f"the ranks are numbered from 0 on: {own} is {number}")
    ranks = [_rank(gpu, len(gpus)) for gpu in gpus]
    outline = _outline(root, gpus, ranks, collective)
    protocol = root.text("protocol")
    if protocol not in ("Simple", "LL"):
        raise root.member("protocol").fault("`protocol` is 'Simple' or 'LL'")
    plan = ExecutionPlan(
        outline, ranks, protocol == "LL",
        root.flag("use_double_scratch_buffer", False), root.flag("reuse_resources", False),
        root.integer("num_threads_per_block", default=1024),
        root.integer("buffer_alignment", low=1, default=16),
    )  # fmt: skip
    for name in ("min_message_size", "max_message_size"):
        _ = root.integer(name, high=_MOST_BYTES, default=0)
    return MscclppFile(plan, tuple(_remarks(plan)))


def _outline(
    root: JsonValue, gpus: list[JsonValue], ranks: list[PlanRank], collective: str
) -> ChunkProgram:
    """Return the collective of a plan, with the chunks of its buffers."""
    name = root.text("collective")
    known = collective or COLLECTIVES.get(name)
    if known is None:
        message = f"the collective '{shown(name)}' is none of {', '.join(COLLECTIVES)}: say which "
        raise root.member("collective").fault(f"{message}it is, as in --collective all_reduce")
    in_place = root.flag("inplace")
    count = len(ranks)
    taken, given = (ranks[0].sizes[x] for x in (ChunkBuffer.INPUT, ChunkBuffer.OUTPUT))
    parts = divisions(known, count)
    per_rank = sizes_of(known, parts, 1)
    chunks = taken // per_rank[0] if taken else given // per_rank[1]
    sizes = sizes_of(known, count, chunks)
    for gpu, rank in zip(gpus, ranks, strict=True):
        for key, own, size in zip(
            ("input_chunks", "output_chunks"),
            (rank.sizes[ChunkBuffer.INPUT], rank.sizes[ChunkBuffer.OUTPUT]), sizes, strict=True,
        ):  # fmt: skip
            if own != size and not (own == 0 and in_place):
                where = gpu.member(key)
                at = f"{known} of {count} ranks" + f" with {chunks} chunks" * bool(chunks)
                raise where.fault(f"`{key}` is {size} in an {at}, not {own}")
    if not chunks:
        raise gpus[0].fault("a rank has no chunks")
    outlines = [RankProgram((), dict(x.sizes), x.line) for x in ranks]
    return ChunkProgram(root.text("name"), known, outlines, chunks, in_place)


def _rank(gpu: JsonValue, count: int) -> PlanRank:
    sizes = {
        BUFFERS[key[0]]: gpu.integer(key, high=_MOST_CHUNKS)
        for key in ("input_chunks", "output_chunks", "scratch_chunks")
    }
    peers: dict[str, list[int]] = {"memory": [], "port": []}
    switches: list[_Switch] = []
    rank = gpu.integer("id")
    for channel in gpu.items("channels", optional=True):
        kind = _type(channel, "channel_type", _TYPES)
        if kind == "switch":
            buffer = _buffer(channel, "buffer_type")
            for group in channel.items("rank_groups"):
                members = tuple(x.integer(high=count - 1) for x in group.items("ranks"))
                if rank not in members or len({*members}) < len(members):
                    raise group.fault(f"the ranks of a switch's group have rank {rank} once")
                switches.append(_Switch(buffer, members))
            continue
        for peer in channel.items("connected_to"):
            if (peer_rank := peer.integer(high=count - 1)) == rank:
                raise peer.fault(f"a channel of rank {rank} leads to itself")
            peers[kind].append(peer_rank)
    buffers: list[tuple[int, ChunkBuffer, tuple[str, ...]]] = []
    for remote in gpu.items("remote_buffers", optional=True):
        kinds = tuple(
            _type(x, "", ("memory", "port")) for x in remote.items("access_channel_types")
        )
        if (peer_rank := remote.integer("rank", high=count - 1)) == rank:
            raise remote.member("rank").fault(f"a remote buffer of rank {rank} is its own")
        buffers.append((peer_rank, _buffer(remote, "type"), kinds))
    semaphores = tuple(
        x.integer("init_value", high=2**16) for x in gpu.items("semaphores", optional=True)
    )
    known = _Gpu(rank, buffers, switches, len(semaphores))
    blocks: list[PlanBlock] = []
    for number, block in enumerate(gpu.items("threadblocks")):
        if (own := block.integer("id")) != number:
            message = f"the thread blocks are numbered from 0 on: {own} is {number}"
            raise block.member("id").fault(message)
        blocks.append(_block(block, known, {x: len(y) for x, y in peers.items()}))
    connected = {kind: tuple(x) for kind, x in peers.items()}
    joined = tuple((x.buffer, x.ranks) for x in switches)
    return PlanRank(tuple(blocks), sizes, connected, semaphores, joined, gpu.place.line)


def _block(block: JsonValue, gpu: _Gpu, channels: dict[str, int]) -> PlanBlock:
    counts = {**channels, "switch": len(gpu.switches)}
    own: dict[str, list[int]] = {kind: [] for kind in _TYPES}
    for group in block.items("channels", optional=True):
        kind = _type(group, "channel_type", _TYPES)
        for number in group.items("channel_ids"):
            own[kind].append(_number(number, counts[kind], f"{kind} channels of the rank"))
    buffers: dict[str, list[tuple[int, ChunkBuffer]]] = {"memory": [], "port": []}
    for group in block.items("remote_buffer_refs", optional=True):
        kind = _type(group, "access_channel_type", ("memory", "port"))
        for number in group.items("remote_buffer_ids"):
            at = _number(number, len(gpu.remote_buffers), "remote buffers of the rank")
            rank, buffer, kinds = gpu.remote_buffers[at]
            if kind not in kinds:
                raise number.fault(f"remote buffer {at} is not for {kind} channels")
            buffers[kind].append((rank, buffer))
    names = _Names(gpu, {kind: tuple(x) for kind, x in own.items()}, buffers)
    operations = tuple(_operation(x, names) for x in block.items("ops"))
    return PlanBlock(
        block.integer("id"), operations, names.channels,
        {kind: len(x) for kind, x in buffers.items()}, block.place.line,
    )  # fmt: skip


def _operation(op: JsonValue, names: _Names, inside: bool = False) -> PlanOperation:
    name = op.text("name")
    if name not in NAMES:
        raise op.member("name").fault(f"there is no operation '{shown(name)}' in MSCCL++")
    if name in WITHOUT_CODE:
        raise op.member("name").fault(f"{name}: {WITHOUT_CODE[name]}")
    line = op.place.line
    if name == "pipeline":
        if inside:
            raise op.fault("a pipeline in a pipeline")
        loop = op.member("iter_context")
        unit, chunks = loop.integer("unit_size", low=1), loop.integer("num_chunks", low=1)
        body = tuple(_operation(x, names, True) for x in op.items("ops"))
        return PlanOperation(name, unit=unit, chunks=chunks, body=body, line=line)
    if name == "nop":
        return PlanOperation(name, line=line)
    if name == "barrier":
        number, blocks = op.integer("barrier_id"), op.integer("num_threadblocks", low=1)
        return PlanOperation(name, barrier=number, blocks=blocks, line=line)
    if name in ("sem_acquire", "sem_release"):
        semaphores = tuple(
            _number(x, names.gpu.semaphores, "semaphores of the rank")
            for x in op.items("semaphore_ids")
        )
        return PlanOperation(name, semaphores=semaphores, line=line)
    if name in (*SIGNALS, *WAITS, "flush"):
        kind = _type(op, "channel_type", ("port",) if name == "flush" else ("memory", "port"))
        return PlanOperation(name, channel_type=kind, channels=_channels(op, names, kind),
                             line=line)  # fmt: skip
    return _move(op, names, name)


def _move(op: JsonValue, names: _Names, name: str) -> PlanOperation:
    """Return an operation that moves data."""
    known = MOVES[name]
    kind = _type(op, "channel_type", _OP_TYPES) if "channel_type" in op else "none"
    if kind not in known.channels:
        where = op.member("channel_type") if "channel_type" in op else op
        listed = " or ".join(x for x in known.channels if x != "none")
        raise where.fault(f"`channel_type` of {name} is {listed}, not {kind}")
    if "reduce_op" in op and op.text("reduce_op") != "sum":
        raise op.member("reduce_op").fault("the kernel computes sums, whatever `reduce_op` says")
    ranges: list[tuple[PlanRange, ...]] = []
    for key, first, more in (("src_buff", known.sources, known.more_sources),
                             ("dst_buff", known.targets, known.more_targets)):  # fmt: skip
        items = op.items(key)
        most = len(first) if more is None else len(items)
        if not len(first) <= len(items) <= most:
            raise op.member(key).fault(f"{name} has {len(first)} ranges here, not {len(items)}")
        ranges.append(
            tuple(_ranges(items, [*first, *[more] * (len(items) - len(first))], names, kind))
        )
    sources, targets = ranges
    if known.paired and len(sources) != len(targets):
        message = f"{name} has {len(sources)} sources and {len(targets)} targets"
        raise op.fault(f"{message}: each source goes to one")
    sizes = {x.size for x in (*sources, *targets)}
    if len(sizes) > 1:
        raise op.fault(f"{name} has ranges of unlike sizes: {', '.join(map(str, sorted(sizes)))}")
    if kind == "memory" and known.paired and len({x.buffer for x in sources}) > 1 and name != "get":
        raise op.fault(f"the kernel takes all sources of a {name} from the buffer of the first")
    channels = _channels(op, names, kind) if kind == "port" else ()
    if kind == "port" and len(channels) != len(targets):
        raise op.fault(f"{name} has {len(targets)} targets and {len(channels)} channels")
    part, parts = 0, 1
    if "tbg_info" in op:
        group = op.member("tbg_info")
        parts = group.integer("tbg_size", low=1)
        part = group.integer("tb_id", high=parts - 1)
    return PlanOperation(
        name, sources, targets, kind, channels, slice=part, slices=parts, line=op.place.line
    )


def _ranges(
    items: list[JsonValue], kinds: list[Operand | None], names: _Names, channel: str
) -> Iterator[PlanRange]:
    for item, kind in zip(items, kinds, strict=True):
        offset, size = item.integer("index"), item.integer("size", low=1)
        match kind:
            case Operand.LOCAL | Operand.PACKETS | None:
                ranks, buffer = (names.gpu.rank,), _buffer(item, "type")
            case Operand.SWITCH:
                own = names.channels["switch"]
                at = _number(item.member("switch_channel_id"), len(own), "switch channels here")
                switch = names.gpu.switches[own[at]]
                ranks, buffer = switch.ranks, switch.buffer
            case _:
                known = names.remote_buffers[channel]
                noun = f"remote buffers of the block for {channel} channels"
                rank, buffer = known[_number(item.member("buffer_id"), len(known), noun)]
                ranks = (rank,)
        if kind in (Operand.PACKETS, Operand.REMOTE_PACKETS) and buffer != ChunkBuffer.SCRATCH:
            raise item.fault("packets lie in scratch buffers: elsewhere they have no room")
        yield PlanRange(ranks, buffer, offset, size)


def _channels(op: JsonValue, names: _Names, kind: str) -> tuple[int, ...]:
    own = names.channels[kind]
    noun = f"{kind} channels of the block"
    return tuple(own[_number(x, len(own), noun)] for x in op.items("channel_ids"))


def _number(value: JsonValue, count: int, noun: str) -> int:
    number = value.integer()
    if number >= count:
        raise value.fault(f"{number} is not among the {count} {noun}")
    return number


def _type(value: JsonValue, name: str, allowed: tuple[str, ...]) -> str:
    it = value.member(name) if name else value
    if not isinstance(it.value, str) or it.value not in allowed:
        noun = f"`{name}`" if name else "this"
        raise it.fault(f"{noun} is {', '.join(allowed)}, not {it.what}")
    return it.value


def _buffer(value: JsonValue, name: str) -> ChunkBuffer:
    letter = _type(value, name, tuple(BUFFERS))
    return BUFFERS[letter]


def _remarks(plan: ExecutionPlan) -> Iterator[str]:
    """Yield where the executor of today does something else than an operation is for."""
    used = [operation for rank in plan.ranks for block in rank.blocks for op in block.operations
            for operation in op.flat]  # fmt: skip
    names = {operation.name for operation in used}
    if "flush" in names:
        yield "the kernel of today flushes as many channels as a flush has targets: none"
    if "pwsf" in names:
        yield "the kernel of today gives pwsf a pointer as offset of its source: use pws"
    swapped = (x.offset != y.offset for operation in used if operation.name == "get"
               for x, y in zip(operation.sources, operation.targets, strict=False))  # fmt: skip
    if any(swapped):
        yield "the kernel of today swaps the offsets of a get's source and target: make them equal"
    if plan.reuses_scratch and any(operation.name == "pipeline" for operation in used):
        yield "chunks that are larger than 64 MB / `scratch_chunks` share scratch: not checked"
