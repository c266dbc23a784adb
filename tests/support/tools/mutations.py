"""Mutations of texts: tokens, numbers, names, lines, declarations and bytes."""

import random
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[3]
MODELS = sorted((ROOT / "examples/models").glob("*.coll"))
EXAMPLES = sorted((ROOT / "examples").glob("*.coll"))


_TOKEN = re.compile(r"[%@]?\w+|\s+|.", re.DOTALL)
NUMBERS = ["0", "-1", "1", "2", "3", "7", "2147483647", "2147483648", "9223372036854775807",
           "9223372036854775808", str(10**19), "9" * 400, "1e308", "1e999", "-1e308", "1e-320",
           "nan",
           "inf", "-inf", "0.1", "-0", "00", "0x10", "1_000", "1e3", "3.0", "٣", ""]  # fmt: skip
NAMES = ["é", "", "a" * 5000, "for", "int", "main", "__init__", "__class__", "self", "None",
         "numpy",
         "auto", "on", "any", "func", "x y", "\N{SNOWMAN}", "ａ", "0", "_", "ſ", "MPI_Init", "e1",
         "f32", "NULL", "data", "gpu", "batch", "torch", "lambda", "a.b", "%", "@",
         "x-y"]  # fmt: skip
STRANGE = [*NUMBERS, *NAMES, "%g", "@m", "data.gpu", "partial(sum: data)", "partial(max: data)",
           "root(data)", "at(data = 1)", "f32[]", "f32[...]", "[", "]", "(", ")", "{", "}", ":",
           ",",
           "=", "*", "/", '"', '""', "//", "\x00", "\ufeff", "over", "dim", "return", "machine",
           "mesh",
           "call @f()", "repeat 3", "gradient @f() wrt", "from", "GB/s", "us", "bf16", "i8", "f64",
           "i64", "avg", "parameter", "state", "yield", "carry()", "slice()", "with()",
           "->", '"b i -> b"', "weights [1, 2]", "stream s", "wait"]  # fmt: skip


def change_tokens(rng: random.Random, text: str) -> str:
    """Return a text with a few tokens dropped, doubled, swapped, replaced or moved."""
    tokens = _TOKEN.findall(text)
    if not tokens:
        return text
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(5):
            case 0:
                tokens[i] = ""
            case 1:
                tokens[i] += tokens[i]
            case 2:
                tokens[i], tokens[j] = tokens[j], tokens[i]
            case 3:
                tokens[i] = tokens[j]
            case _:
                tokens[i] = rng.choice(STRANGE)
    return "".join(tokens)


def change_numbers(rng: random.Random, text: str) -> str:
    """Return a text with one or two numbers replaced by extreme ones."""
    places = [
        m for m in re.finditer(r"\b\d[\d.]*(?:e-?\d+)?", text) if not in_comment(text, m.start())
    ]
    return _replaced(rng, text, places, NUMBERS)


def change_names(rng: random.Random, text: str) -> str:
    """Return a text in which a name has another spelling, everywhere or once."""
    names = sorted(set(re.findall(r"[%@]?\b[A-Za-z_]\w*", text)))
    if not names:
        return text
    name, new = rng.choice(names), rng.choice(NAMES + names)
    if name[0] in "%@" and new[:1] not in ("%", "@"):
        new = name[0] + new
    pattern = re.escape(name) + r"\b"
    return re.sub(pattern, lambda _: new, text, count=rng.choice([0, 0, 1]))


def exchange_words(rng: random.Random, text: str) -> str:
    """Return a text with a word or sign replaced by another of the same kind: it may well parse."""
    for _ in range(rng.choice([1, 1, 2])):
        kind = rng.choice([r"%\w+", r"@\w+", r"\b[a-z_]{2,}\b", r"\b\d+\b", r"[,:=*/()\[\]{}@]"])
        places = [m for m in re.finditer(kind, text) if not in_comment(text, m.start())]
        text = _replaced(rng, text, places, sorted({m.group() for m in places}), 1)
    return text


def in_comment(text: str, place: int) -> bool:
    return "//" in text[text.rfind("\n", 0, place) + 1 : place]


def _replaced(
    rng: random.Random, text: str, places: list[re.Match[str]], by: list[str], most: int = 2
) -> str:
    chosen = rng.sample(places, min(len(places), rng.randint(1, most)))
    for place in sorted(chosen, key=lambda m: -m.start()):
        text = text[: place.start()] + rng.choice(by) + text[place.end() :]
    return text


def change_lines(rng: random.Random, text: str) -> str:
    """Return a text with lines dropped, doubled, swapped, or cut off."""
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    i, j = sorted([rng.randrange(len(lines)), rng.randrange(len(lines))])
    match rng.randrange(5):
        case 0:
            del lines[i : i + rng.choice([1, 1, j - i])]
        case 1:
            lines[i:i] = lines[i : i + rng.choice([1, 1, 5])]
        case 2:
            lines[i], lines[j] = lines[j], lines[i]
        case 3:
            return text[: rng.randrange(len(text))]
        case _:
            lines[i] = lines[i] * 200
    return "".join(lines)


def change_blocks(rng: random.Random, text: str) -> str:
    """Return a text with a machine, mesh or function doubled, moved or of another text."""
    blocks = re.split(r"(?m)^(?=machine |mesh |func )", text)
    i = rng.randrange(len(blocks))
    match rng.randrange(4):
        case 0:
            blocks.insert(rng.randrange(len(blocks) + 1), blocks[i])
        case 1:
            blocks[i], blocks[0] = blocks[0], blocks[i]
        case 2:
            del blocks[i]
        case _:
            other = rng.choice([*MODELS, *EXAMPLES]).read_text(encoding="utf-8")
            blocks += re.split(r"(?m)^(?=machine |mesh |func )", other)[1:]
    return "\n".join(blocks)


TEXTS: list[Callable[[random.Random, str], str]] = [
    change_tokens, change_tokens, change_numbers, change_numbers, change_names, exchange_words,
    exchange_words, change_lines,
    change_blocks,
]  # fmt: skip


def change_bytes(rng: random.Random, text: str) -> bytes:
    """Return the bytes of a text in another encoding, or with bytes that belong to none."""
    data = text.encode()
    place = rng.randrange(len(data) + 1)
    match rng.randrange(11):
        case 0:
            return data[:place] + b"\x00" + data[place:]
        case 1:
            return b"\xef\xbb\xbf" + data
        case 2:
            return data.replace(b"\n", b"\r\n")
        case 3:
            return data.replace(b"\n", b"\r")
        case 4:
            return text.encode("utf-16")
        case 5:
            return data[:place] + rng.randbytes(20) + data[place:]
        case 6:
            return data[:place] + "é".encode("latin-1") + data[place:]
        case 7:
            return data[:place]
        case 8:
            return rng.randbytes(2000)
        case 9:
            return data[:place] + "\u2028\x85\x0b\x0c\u202e".encode() + data[place:]
        case _:
            return data.replace(b" ", b"\t").rstrip(b"\n")
