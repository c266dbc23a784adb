"""Groups of devices as digits: a device is a number in a mixed radix, and a group is what some of
its digits run over.

XLA writes groups in three ways: as lists, as the numbers from 0 on in another order
(``[4,2]<=[2,4]T(1,0)``), and by axes of a mesh. None is looked at device by device but the lists.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from collir.importing.hlo.text import split


@dataclass(frozen=True, order=True)
class Digit:
    """A digit of the numbers of devices: the distance of neighbours, and how many there are."""

    stride: int
    size: int

    @property
    def end(self) -> int:
        """The distance between devices that differ by the size of the digit."""
        return self.stride * self.size


Digits = tuple[Digit, ...]
"""Digits of a group, the most significant first: the order of its members."""


class GroupsError(Exception):
    """Groups over which no digits run, with the reason."""


def merged(digits: Iterable[Digit]) -> Digits:
    """Return digits without those of size 1, and with neighbours as one."""
    made: list[Digit] = []
    for digit in digits:
        if digit.size == 1:
            continue
        if made and made[-1].stride == digit.end:
            made[-1] = Digit(digit.stride, made[-1].size * digit.size)
        else:
            made.append(digit)
    return tuple(made)


def groups_of(text: str, devices: int) -> Digits:
    """Return the digits that groups run over, in the order of their members.

    Raises:
        GroupsError: they are no product of digits.
    """
    text = text.strip()
    if text in ("", "{}"):
        return merged([Digit(1, devices)])
    if text.startswith("{"):
        lists = re.findall(r"\{([\d,\s]*)\}", text[1:-1])
        return of_lists([_numbers(x) for x in lists], devices)
    if "mesh" in text:
        return _of_mesh(text, devices)
    made = re.fullmatch(r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    if made is None:
        raise GroupsError(f"groups are not written as {text[:80]}")
    count, size = int(made[1]), int(made[2])
    dims = _table(made[3], made[4])
    if count * size != math.prod(x.size for x in dims) or count * size != devices:
        raise GroupsError(f"the groups {text} are not of {devices} devices")
    return merged(_through([Digit(1, size)], dims))


def _numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


def _table(sizes: str, order: str | None) -> list[Digit]:
    """Return the digits of positions in a transposed array of numbers, the first one outermost."""
    shape = _numbers(sizes)
    strides = [math.prod(shape[n + 1 :]) for n in range(len(shape))]
    dims = [Digit(stride, size) for stride, size in zip(strides, shape, strict=True)]
    places = _numbers(order) if order else list(range(len(shape)))
    if sorted(places) != list(range(len(shape))):
        raise GroupsError(f"T({order}) is no order of {len(shape)} dimensions")
    return [dims[n] for n in places]


def _through(digits: Iterable[Digit], table: Sequence[Digit]) -> list[Digit]:
    """Return digits of positions in an array as digits of the numbers in it.

    Raises:
        GroupsError: a digit cuts one of the array where it does not divide it.
    """
    made: list[Digit] = []
    for digit in digits:
        inner = math.prod(x.size for x in table)
        for place in table:
            end, inner = inner, inner // place.size
            low, high = max(digit.stride, inner), min(digit.end, end)
            if low >= high:
                continue
            if low % inner or high % low or end % high:
                raise GroupsError(
                    f"a run of {digit.size} with stride {digit.stride} cuts {place.size} devices "
                    "where it does not divide them"
                )
            made.append(Digit(place.stride * (low // inner), high // low))
    return made


def of_lists(groups: Sequence[Sequence[int]], devices: int) -> Digits:
    """Return the digits of groups that are listed.

    Raises:
        GroupsError: they are no product of digits.
    """
    if not groups or not groups[0]:
        return merged([Digit(1, devices)])
    first = groups[0]
    sizes = sorted({len(group) for group in groups})
    if len(sizes) > 1:
        raise GroupsError(f"the groups have different sizes {sizes}")
    if sorted(x for group in groups for x in group) != list(range(devices)):
        raise GroupsError(f"the groups are not all of {devices} devices, each once")
    offsets = [x - first[0] for x in first]
    for group in groups:
        if [x - group[0] for x in group] != offsets:
            raise GroupsError(f"groups {[*first]} and {[*group]} are not translates of each other")
    return _factored(offsets, [*first])


def digits_of_group(ranks: Sequence[int]) -> Digits:
    """Return the digits that a single group runs over.

    Raises:
        GroupsError: it is no product of digits.
    """
    return _factored([x - ranks[0] for x in ranks], ranks)


def _factored(offsets: Sequence[int], group: Sequence[int]) -> Digits:
    made: list[Digit] = []
    rest = list(offsets)
    while len(rest) > 1:
        step = rest[1]
        size = 1
        while size < len(rest) and rest[size] == size * step:
            size += 1
        blocks = [rest[at : at + size] for at in range(0, len(rest), size)]
        if step <= 0 or len(rest) % size or any(
            [x - block[0] for x in block] != rest[:size] for block in blocks
        ):  # fmt: skip
            raise GroupsError(f"the group {[*group]} is no product of digits")
        made.insert(0, Digit(step, size))
        rest = [block[0] for block in blocks]
    factored = merged(made)
    spans = sorted(factored)
    if any(a.end > b.stride or b.stride % a.end for a, b in pairwise(spans)):
        raise GroupsError(f"the group {[*group]} is no product of digits")
    return factored


def permuted_digits(pairs: Sequence[tuple[int, int]], devices: int) -> dict[Digit, Digit]:
    """Return the digit that each digit becomes where blocks go to devices with the same digits in
    another order, as ``{{0,0},{2,1},{1,2},{3,3}}``; empty if they go elsewhere."""
    target = dict(pairs)
    made: dict[Digit, Digit] = {}
    stride = 1
    if len(target) != devices or target.get(0) != 0:
        return {}
    while stride < devices:
        step, size = target.get(stride, 0), 2
        while stride * size < devices and target.get(stride * size) == step * size:
            size += 1
        if devices // stride % size:
            return {}
        made[Digit(stride, size)] = Digit(step, size)
        stride *= size
    for source, image in pairs:
        if image != sum(source // a.stride % a.size * b.stride for a, b in made.items()):
            return {}
    return made


def _of_mesh(text: str, devices: int) -> Digits:
    """Return the digits of ``mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}``, or of the older
    ``@mesh<a=4,b=2>(devices=[...]) {a}``."""
    sizes = re.search(r"mesh\s*[\[<]([^\]>]*)[\]>]", text)
    axes = re.search(r"\{([^{}]*)\}\s*$", text)
    if sizes is None or axes is None:
        raise GroupsError(f"groups are not written as {text[:80]}")
    names: dict[str, int] = {}
    for part in split(sizes[1]):
        name, _, size = part.replace("'", "").replace('"', "").partition("=")
        if not size.strip().isdigit():
            raise GroupsError(f"the mesh has an axis {part}")
        names[name.strip()] = int(size)
    total = math.prod(names.values())
    if total != devices:
        raise GroupsError(f"the mesh has {total} devices, not {devices}")
    order = re.search(r"\[([\d,]+)\](?:\s*<=\s*\[([\d,]+)\])?(?:T\(([\d,]+)\))?\s*\)", text)
    flat = re.search(r"device_ids\s*=\s*\((\d[\d,\s]*)\)", text)
    strides: dict[str, Digit] = {}
    inner = total
    for name, size in names.items():
        inner //= size
        strides[name] = Digit(inner, size)
    chosen: list[Digit] = []
    for part in split(axes[1]):
        name, _, piece = part.replace("'", "").replace('"', "").partition(":")
        if name.strip() not in strides:
            raise GroupsError(f"the mesh has no axis {name}")
        whole = strides[name.strip()]
        if piece:
            numbers = _numbers(piece)
            if len(numbers) != 2 or whole.size % max(1, numbers[0] * numbers[1]):
                raise GroupsError(f"{part} is no part of an axis of {whole.size}")
            before, size = numbers
            whole = Digit(whole.stride * (whole.size // (before * size)), size)
        chosen.append(whole)
    if flat is not None:
        numbers = _numbers(flat[1])
        return of_lists(_listed(chosen, numbers, total), devices)
    table = _table(order[2] or order[1], order[3]) if order else [Digit(1, total)]
    return merged(_through(chosen, table))


def _listed(chosen: Sequence[Digit], numbers: Sequence[int], total: int) -> list[list[int]]:
    """Return the groups of digits of positions in a list of devices."""
    if len(numbers) != total:
        raise GroupsError(f"the mesh has {total} devices, and {len(numbers)} are listed")
    offsets = [0]
    for digit in chosen:
        offsets = [x + digit.stride * k for x in offsets for k in range(digit.size)]
    inside = {digit.stride * k for digit in chosen for k in range(1, digit.size)}
    heads = [p for p in range(total) if not any(p // d.stride % d.size for d in chosen)]
    assert len(heads) * len(offsets) == total or not inside
    return [[numbers[head + x] for x in offsets] for head in heads]


@dataclass(frozen=True)
class Tiles:
    """The division of an array: the digits of each dimension.

    Attributes:
        dims: for each dimension, the digits that number its blocks.
    """

    dims: tuple[Digits, ...]


def tiles_of(text: str, rank: int, devices: int) -> Tiles | None:
    """Return how a ``sharding={...}`` divides an array of some dimensions; None if it does not say.

    Raises:
        GroupsError: the tiles are no product of digits.
    """
    text = text.strip()
    if re.search(r"\breplicated\b", text) and "devices=" not in text:
        return Tiles(((),) * rank)
    made = re.search(
        r"devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|(\d+(?:,\d+)*))", text
    )
    if made is None or "manual" in text:
        return None
    sizes = _numbers(made[1])
    if math.prod(sizes) != devices or len(sizes) < rank:
        raise GroupsError(f"the sharding {text[:80]} is not of {devices} devices")
    strides = [math.prod(sizes[n + 1 :]) for n in range(len(sizes))]
    digits = [Digit(stride, size) for stride, size in zip(strides, sizes, strict=True)]
    if made[4] is not None:
        numbers = _numbers(made[4])
        groups = (of_lists(_listed([x], numbers, devices), devices) for x in digits[:rank])
        return Tiles(tuple(groups))
    table = _table(made[2], made[3])
    return Tiles(tuple(merged(_through([x], table)) for x in digits[:rank]))
