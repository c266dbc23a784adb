"""Algorithms in MSCCL's XML, as msccl-tools, RCCL and others write them.

Attributes and limits are taken from the parsers of two runtimes: microsoft/msccl
(src/graph/topo.cc) and ROCm/rccl (src/misc/msccl/msccl_parser.cc).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from collir.algorithms.collectives import divisions
from collir.algorithms.msccl_xml import BUFFERS, COLLECTIVES, KINDS
from collir.algorithms.program import (
    DOES,
    ChunkProgram,
    ChunkRange,
    ChunkStep,
    RankProgram,
    ThreadBlock,
)
from collir.importing.values import ReadError, TextPlace, shown

MOST_BYTES = 2**28
"""The longest text that is read."""

_MOST_STEPS = 5_000_000
_MOST_CHUNKS = 2**20

_PARENTS = {"algo": "", "gpu": "algo", "tb": "gpu", "step": "tb"}


@dataclass(frozen=True)
class RuntimeLimits:
    """The limits of a runtime.

    Attributes:
        steps: of a thread block; ``blocks``: of a rank; ``per_channel``: connections of a rank on a
            channel; ``size``: chunks of a step; ``elements``: of the file, or None.
        needed: the attributes that an algorithm has to have.
    """

    name: str
    steps: int
    blocks: int
    per_channel: int
    size: int
    elements: int | None
    needed: tuple[str, ...]
    collectives: frozenset[str]


RUNTIMES = (
    RuntimeLimits("msccl", 256, 216, 32, 71, None, (),
            frozenset({"allreduce", "allgather", "reduce", "broadcast", "alltoall",
                       "reduce_scatter", "custom"})),
    RuntimeLimits("rccl", 64, 64, 32, 71, 4096, ("minBytes", "maxBytes", "inplace", "outofplace"),
            frozenset({"reduce", "broadcast", "allreduce", "reducescatter", "allgather", "gather",
                       "scatter", "alltoall"})),
)  # fmt: skip
"""The runtimes that read such files, with their limits."""


@dataclass
class _Element:
    """An element of a file, with those in it."""

    name: str
    values: Mapping[str, str]
    place: TextPlace
    children: list["_Element"] = field(default_factory=list["_Element"])

    def number(self, name: str, default: int | None = None, low: int = -1) -> int:
        """Return a number.

        Raises:
            ReadError: it is not there, or none.
        """
        text = self.values.get(name)
        if text is None:
            if default is not None:
                return default
            raise ReadError(f"`{self.name}` has no `{name}`", self.place)
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value < 2**31:
            what = f"`{name}` is a number from {low} on, not '{shown(text)}'"
            raise ReadError(what, self.place)
        return value


@dataclass(frozen=True)
class MscclFile:
    """A program, and why runtimes do not take it.

    Attributes:
        refused: for each runtime the reasons, some of them; none if it takes the file.
    """

    program: ChunkProgram
    refused: Mapping[str, list[str]]


def read_msccl_xml(text: bytes, collective: str = "") -> MscclFile:
    """Return the algorithm of a file.

    Args:
        collective: the collective that it implements, in collir's names; by default, the file's.

    Raises:
        ReadError: the text is no such file; with its place.
    """
    if len(text) > MOST_BYTES:
        raise ReadError(f"the file is longer than {MOST_BYTES // 2**20} MB", TextPlace(1))
    algorithm, count = _parsed(text)
    program = _program(algorithm, collective)
    return MscclFile(program, {x.name: [*_refused(x, algorithm, program, count)] for x in RUNTIMES})


def _parsed(text: bytes) -> tuple[_Element, int]:
    """Return the outermost element, and the number of all."""
    parser = expat.ParserCreate()
    stack: list[_Element] = []
    roots: list[_Element] = []
    count = 0

    def begins(name: str, values: dict[str, str]) -> None:
        nonlocal count
        count += 1
        place = TextPlace(parser.CurrentLineNumber, parser.CurrentColumnNumber + 1)
        parent = _PARENTS.get(name)
        if parent is None:
            raise ReadError(f"there is no element `{shown(name)}` in an algorithm", place)
        if parent != (stack[-1].name if stack else ""):
            inside = f"in `{stack[-1].name}`" if stack else "by itself"
            raise ReadError(f"`{name}` stands {inside}", place)
        if count > _MOST_STEPS:
            raise ReadError(f"there are more than {_MOST_STEPS:,} elements", place)
        made = _Element(name, values, place)
        (stack[-1].children if stack else roots).append(made)
        stack.append(made)

    def refuses(*_: object) -> None:
        place = TextPlace(parser.CurrentLineNumber, parser.CurrentColumnNumber + 1)
        raise ReadError("an algorithm declares no entities", place)

    parser.StartElementHandler = begins
    parser.EndElementHandler = lambda _: stack.pop()
    parser.StartDoctypeDeclHandler = refuses
    parser.EntityDeclHandler = refuses
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        message = f"this is no XML: {expat.ErrorString(error.code)}"
        raise ReadError(message, TextPlace(error.lineno, error.offset + 1)) from error
    return roots[0], count


def _program(algorithm: _Element, collective: str) -> ChunkProgram:
    name = algorithm.values.get("coll", "")
    known = COLLECTIVES.get(name)
    if known is None:
        listed = ", ".join(COLLECTIVES)
        message = f"`coll` is one of {listed}, not '{shown(name)}'"
        raise ReadError(message, algorithm.place)
    if known == "custom" and not collective:
        message = "the collective is 'custom': say which it is, as in --collective all_reduce"
        raise ReadError(message, algorithm.place)
    collective = collective or known
    gpus = sorted(algorithm.children, key=lambda x: x.number("id", low=0))
    count = algorithm.number("ngpus", len(gpus), low=1)
    if not gpus:
        raise ReadError("the algorithm has no ranks", algorithm.place)
    for number, gpu in enumerate(gpus):
        if (own := gpu.number("id", low=0)) != number:
            raise ReadError(
                f"the ranks are numbered from 0 on, and {own} is not {number}", gpu.place
            )
    if len(gpus) != count:
        message = f"`ngpus` is {count}, and there are {len(gpus)} ranks"
        raise ReadError(message, algorithm.place)
    ranks = [_rank(x) for x in gpus]
    whole = algorithm.number("nchunksperloop", low=1)
    if max(whole, *(n for x in ranks for n in x.sizes.values())) > _MOST_CHUNKS:
        raise ReadError(f"a buffer has more than {_MOST_CHUNKS:,} chunks", algorithm.place)
    chunks, left = divmod(whole, divisions(collective, count))
    if left:
        message = f"`nchunksperloop` is {whole}, which {count} ranks do not divide"
        raise ReadError(message, algorithm.place)
    in_place = bool(algorithm.number("inplace", 0, low=0))
    root = algorithm.number("root", 0, low=0)
    if root >= count:
        raise ReadError(f"`root` is {root}, and there are {count} ranks", algorithm.place)
    return ChunkProgram(algorithm.values.get("name", ""), collective, ranks, chunks, in_place, root)


def _rank(gpu: _Element) -> RankProgram:
    sizes = {BUFFERS[letter]: gpu.number(f"{letter}_chunks", 0, low=0) for letter in "ios"}
    blocks = [_block(x) for x in gpu.children]
    for number, block in enumerate(sorted(blocks, key=lambda x: x.number)):
        if block.number != number:
            message = (
                f"the thread blocks are numbered from 0 on, and {block.number} is not {number}"
            )
            raise ReadError(message, TextPlace(block.line))
    return RankProgram(tuple(blocks), sizes, gpu.place.line)


def _block(tb: _Element) -> ThreadBlock:
    steps: list[ChunkStep] = []
    for number, element in enumerate(tb.children):
        if (own := element.number("s", low=0)) != number:
            message = f"the steps are numbered from 0 on, and {own} is not {number}"
            raise ReadError(message, element.place)
        steps.append(_step(element))
    ends = tb.number("send", -1), tb.number("recv", -1)
    number, channel = tb.number("id", low=0), tb.number("chan", 0, low=0)
    return ThreadBlock(number, tuple(steps), *ends, channel, tb.place.line)


def _step(element: _Element) -> ChunkStep:
    name = element.values.get("type", "")
    kind = KINDS.get(name)
    if kind is None:
        message = f"`type` is one of {', '.join(KINDS)}, not '{shown(name)}'"
        raise ReadError(message, element.place)
    depends = element.number("depid", -1), element.number("deps", -1)
    after = (depends,) if min(depends) >= 0 else ()
    if after == () and max(depends) >= 0:
        raise ReadError("`depid` and `deps` are both -1, or neither is", element.place)
    if kind == "nop":
        return ChunkStep(kind, after=after, line=element.place.line)
    count = element.number("cnt", low=0)
    does = DOES[kind]
    takes = does.reduces or not does.receives
    source = _chunks(element, "srcbuf", "srcoff", count) if takes else None
    target = _chunks(element, "dstbuf", "dstoff", count) if does.keeps else None
    return ChunkStep(kind, source, target, after, element.place.line)


def _chunks(element: _Element, buffer: str, offset: str, count: int) -> ChunkRange | None:
    letter = element.values.get(buffer, "")
    if letter not in BUFFERS:
        if letter:
            raise ReadError(f"`{buffer}` is i, o or s, not '{shown(letter)}'", element.place)
        return None
    return ChunkRange(BUFFERS[letter], element.number(offset), count)


def _refused(
    runtime: RuntimeLimits, algorithm: _Element, program: ChunkProgram, elements: int
) -> Iterator[str]:
    """Yield why a runtime does not take a file."""
    for name in runtime.needed:
        if name not in algorithm.values:
            yield f"it wants the attribute {name}"
    if (name := algorithm.values.get("coll", "")) not in runtime.collectives:
        yield f"it has no collective '{name}'"
    if runtime.elements and elements > runtime.elements:
        yield f"it reads {runtime.elements} elements, and there are {elements}"
    longest = max((len(b.steps) for r in program.ranks for b in r.blocks), default=0)
    if longest > runtime.steps:
        yield f"a thread block has {runtime.steps} steps at most, and one has {longest}"
    most = max((len(rank.blocks) for rank in program.ranks), default=0)
    if most > runtime.blocks:
        yield f"a rank has {runtime.blocks} thread blocks at most, and one has {most}"
    largest = max((x.count for r in program.ranks for b in r.blocks for x in b.steps), default=0)
    if largest > runtime.size:
        yield f"a step moves {runtime.size} chunks at most, and one moves {largest}"
    sends = Counter((n, b.channel) for n, r in enumerate(program.ranks) for b in r.blocks
                    if b.sends_to >= 0)  # fmt: skip
    if sends and max(sends.values()) > runtime.per_channel:
        yield (
            f"a rank sends over {runtime.per_channel} connections of a channel at most, and one "
            f"over {max(sends.values())}"
        )
    yield from _unmarked(algorithm)


def _unmarked(algorithm: _Element) -> Iterator[str]:
    """Yield a step that others wait for but that does not say so, if there is one."""
    for gpu in algorithm.children:
        depended = {
            (x.number("depid", -1), x.number("deps", -1)) for tb in gpu.children
            for x in tb.children
        }  # fmt: skip
        for tb in gpu.children:
            for number, x in enumerate(tb.children):
                if (tb.number("id"), number) in depended and not x.number("hasdep", 0):
                    at = f"step {number} of block {tb.number('id')} of rank {gpu.number('id')}"
                    yield f"{at} is waited for, and has no hasdep=1"
                    return
