"""Plant one mistake in a program: what it says is still well typed, but may be something else."""

import random
import re

SWAPS = [
    {"sub", "add", "mul", "div", "maximum", "minimum"},
    {"sum", "max", "min", "mean"},
    {"greater", "greater_equal", "less", "less_equal", "equal", "not_equal"},
    {
        "exp",
        "tanh",
        "erf",
        "sigmoid",
        "sin",
        "cos",
        "silu",
        "gelu",
        "relu",
        "neg",
        "barrier",
        "sqrt",
    },
    {"softmax", "log_softmax"},
    {"max_pool", "avg_pool"},
    {"reduce_scatter", "all_to_all", "scatter"},
]
"""Operations of one form."""

NUMBER = re.compile(r"(?<![%@\w.])-?\d+(\.\d+)?(e-?\d+)?(?![\w.])")
VALUE = re.compile(r"%\w+")


def other_number(rng: random.Random, line: str) -> str:
    """Change a number: an offset, a dimension, a factor, a coordinate."""
    matches = list(NUMBER.finditer(line))
    if not matches:
        return line
    match = rng.choice(matches)
    if "." in match[0] or "e" in match[0]:
        text = rng.choice([f"{float(match[0]) * 2:g}", f"{-float(match[0]):g}", "1"])
    else:
        text = str(int(match[0]) + rng.choice([-1, 1, 1, 2]))
    return line[: match.start()] + text + line[match.end() :]


def moved_window(rng: random.Random, line: str) -> str:
    """Cut or pad one element earlier, with the same size."""
    low, high = re.search(r"low (-?\d+)", line), re.search(r"high (-?\d+)", line)
    if "pad" not in line.split():
        return line
    a, b = int(low[1]) if low else 0, int(high[1]) if high else 0
    step = rng.choice([-1, 1])
    line = re.sub(r" (low|high) -?\d+", "", line)
    return f"{line} low {a + step} high {b - step}"


def other_value(rng: random.Random, line: str, names: list[str]) -> str:
    """Use another value."""
    left, equals, right = line.partition("=")
    matches = list(VALUE.finditer(right))
    if not matches or not names:
        return line
    match = rng.choice(matches)
    return left + equals + right[: match.start()] + rng.choice(names) + right[match.end() :]


def swapped_values(rng: random.Random, line: str) -> str:
    """Swap two operands."""
    left, equals, right = line.partition("=")
    matches = list(VALUE.finditer(right))
    if len(matches) < 2:
        return line
    i, j = sorted(rng.sample(range(len(matches)), 2))
    a, b = matches[i], matches[j]
    right = right[: a.start()] + b[0] + right[a.end() : b.start()] + a[0] + right[b.end() :]
    return left + equals + right


def other_operation(rng: random.Random, line: str) -> str:
    """Put an operation of the same form in the place of one."""
    left, equals, right = line.partition("=")
    op = right.split()[0] if right.split() else ""
    rows = [sorted(row - {op}) for row in SWAPS if op in row]
    if not rows:
        return line
    return left + equals + right.replace(op, rng.choice(rng.choice(rows)), 1)


def dropped(rng: random.Random, line: str) -> str:
    """Leave out what a step does: its operand goes on."""
    left, equals, right = line.partition("=")
    match = VALUE.search(right)
    return f"{left}{equals} barrier {match[0]}" if match and equals else line


def other_order(rng: random.Random, line: str) -> str:
    """Swap two items of a list: dimensions, axes."""
    lists = list(re.finditer(r"\[([\d, ]+)\]|over ([\w., ]+?)(?= dim| at| by| from| op|$)", line))
    if not lists:
        return line
    match = rng.choice(lists)
    part = 1 if match[1] is not None else 2
    items = match[part].split(", ")
    rng.shuffle(items)
    return line[: match.start(part)] + ", ".join(items) + line[match.end(part) :]


def other_axis(rng: random.Random, line: str, axes: list[str]) -> str:
    """Put another axis in the place of one."""
    matches = [
        m for axis in axes for m in re.finditer(rf"(?<![\w.%@]){re.escape(axis)}(?![\w.])", line)
    ]
    if not matches:
        return line
    match = rng.choice(matches)
    return line[: match.start()] + rng.choice(axes) + line[match.end() :]


def other_indices(rng: random.Random, line: str) -> str:
    """Swap two indices of an einsum."""
    match = re.search(r'"([^"]*)"', line)
    if not match:
        return line
    words = list(re.finditer(r"\w+", match[1]))
    a, b = sorted(rng.sample(range(len(words)), 2)) if len(words) > 1 else (0, 0)
    text = match[1]
    if a != b:
        x, y = words[a], words[b]
        text = text[: x.start()] + y[0] + text[x.end() : y.start()] + x[0] + text[y.end() :]
    return line[: match.start(1)] + text + line[match.end(1) :]


def toggled(rng: random.Random, line: str) -> str:
    """Put a word in, or leave it out."""
    word = rng.choice(["open", "reverse", "keepdims"])
    if word == "reverse" and " repeat " in line:
        end = " recompute {" if " recompute {" in line else " {"
        with_it = f" reverse{end}"
        return line.replace(with_it, end) if with_it in line else line.replace(end, with_it)
    return line.replace(f" {word}", "") if word in line.split() else f"{line} {word}"


def other_reduction(rng: random.Random, line: str) -> str:
    """Mask for another reduction."""
    return re.sub(r"op (sum|prod)", lambda m: "op prod" if m[1] == "sum" else "op sum", line)


def planted(rng: random.Random, source: str) -> str:
    """Return a program with a mistake in one line of a body, or the same text if none fits."""
    lines = source.splitlines()
    body = [i for i, line in enumerate(lines) if line.startswith("  ")]
    live = set(VALUE.findall(lines[body[-1]]))
    for i in reversed(body[:-1]):
        if live & set(VALUE.findall(lines[i].partition("=")[0])) or "yield" in lines[i]:
            live |= set(VALUE.findall(lines[i]))
    i = rng.choice([i for i in body if set(VALUE.findall(lines[i].partition("=")[0])) & live])
    line = lines[i]
    names = VALUE.findall(" ".join(lines[max(0, i - 12) : i]))
    axes = re.findall(r"[\w.]+", " ".join(re.findall(r"(?:over|@\(?)\s*([\w.]+)", source)))
    kinds = [
        lambda: other_number(rng, line),
        lambda: other_value(rng, line, names),
        lambda: other_value(rng, line, names),
        lambda: swapped_values(rng, line),
        lambda: other_operation(rng, line),
        lambda: dropped(rng, line),
        lambda: other_order(rng, line),
        lambda: other_axis(rng, line, sorted(set(axes))),
        lambda: moved_window(rng, line),
        lambda: toggled(rng, line),
        lambda: other_indices(rng, line),
        lambda: other_reduction(rng, line),
    ]
    lines[i] = rng.choice(kinds)()
    return "\n".join(lines) + "\n"
