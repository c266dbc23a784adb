"""Random programs of models with loops and roles, and what running them takes, counted plainly.

A program is a list of plain steps, from which its text is written. The count knows nothing of the
compiler's rules: it merges maps until nothing changes, runs all iterations one after the other, and
looks at every moment at what is held.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

HEAD = """\
machine @box {
  device { compute f32 = 1e18 FLOP/s; memory = 1 TB @ 1 B/s; launch = 500 s }
  level gpu[4] { port = 1 GB/s, latency = 1 us }
}
mesh @m on @box { data = gpu:2, model = gpu:2 }
"""

SHAPES = {"wide": "8@data, 6", "narrow": "8@data, 1", "deep": "8@data, 2, 3"}
ELEMENTS = {"wide": 24, "narrow": 4, "deep": 24, "weight": 36}
"""The elements of a value on a device."""

MAPS = ("exp", "neg", "relu", "scale")
PAIRS = ("mul", "sub", "maximum")
USES = {
    "parameter": "parameters",
    "state": "optimiser state",
    "gradient": "gradients",
    "activation": "activations",
    "": "temporaries",
}


@dataclass
class Step:
    """A step: ``op`` is its operation, ``form`` the shape of its result."""

    name: str
    op: str
    reads: list[str]
    form: str
    role: str = ""
    times: int = 1
    body: "list[Step]" = field(default_factory=list["Step"])
    yields: list[str] = field(default_factory=list[str])

    @property
    def is_map(self) -> bool:
        return self.op in (*MAPS, *PAIRS, "add", "mask")

    @property
    def is_view(self) -> bool:
        return self.op in ("reshape", "barrier")


@dataclass
class Program:
    """A function: the roles and shapes of its arguments, its steps, and what it returns."""

    arguments: dict[str, tuple[str, str]]
    steps: list[Step]
    returned: list[tuple[str, str]]

    def text(self) -> str:
        shown = [
            f"%{n}: {_type(form)} {role}".rstrip() for n, (form, role) in self.arguments.items()
        ]
        forms = {step.name: step.form for step in self.steps}
        results = [f"{_type(forms[name])} {role}".rstrip() for name, role in self.returned]
        lines = "\n".join(_lines(self.steps, "  "))
        names = ", ".join(f"%{name}" for name, _ in self.returned)
        head = f"func @f({', '.join(shown)}) -> ({', '.join(results)}) on @m {{"
        return f"{HEAD}\n{head}\n{lines}\n  return {names}\n}}\n"


def _type(form: str) -> str:
    return f"f32[{SHAPES.get(form, '6, 6')}]"


def _lines(steps: list[Step], indent: str) -> Iterator[str]:
    for step in steps:
        name = f"%{step.name}" + (f": {step.role}" if step.role else "")
        reads = ", ".join(f"%{read}" for read in step.reads)
        match step.op:
            case "scale":
                yield f"{indent}{name} = scale {reads} by 0.5"
            case "mask":
                yield f"{indent}{name} = mask {reads} over model op sum"
            case "all_reduce":
                yield f"{indent}{name} = all_reduce {reads} over model"
            case "sum":
                yield f"{indent}{name} = sum {reads} dims [1] keepdims"
            case "softmax":
                yield f"{indent}{name} = softmax {reads} dims [1]"
            case "reshape":
                sizes = "8, 2, 3" if step.form == "deep" else "8, 6"
                yield f"{indent}{name} = reshape {reads} to [{sizes}]"
            case "einsum":
                yield f'{indent}{name} = einsum "a b, b c -> a c" {reads}'
            case "repeat":
                start, weight = step.reads
                bound = f"carry(%c_{step.name} = %{start}) with(%w_{step.name} = %{weight})"
                yield f"{indent}{name} = repeat {step.times} {bound} {{"
                yield from _lines(step.body, f"{indent}  ")
                yield f"{indent}  yield {', '.join(f'%{x}' for x in step.yields)}"
                yield f"{indent}}}"
            case _:
                yield f"{indent}{name} = {step.op} {reads}"


# ---------------------------------------------------------------------------------------------
# Random programs
# ---------------------------------------------------------------------------------------------


def random_program(rng: random.Random) -> Program:
    """Return a program with about a dozen steps."""
    arguments = {"x": ("wide", ""), "w": ("weight", "parameter")}
    arguments |= {"s": ("wide", "state")} if rng.random() < 0.7 else {}
    steps = list(_steps(rng, {n: form for n, (form, _) in arguments.items()}, 12, "v", True))
    last: list[str] = []
    if "s" in arguments:
        wide = [s.name for s in steps if s.form == "wide" and s.op not in ("barrier", "mask")]
        steps.append(Step("new", rng.choice(PAIRS), ["s", rng.choice([*wide, "x"])], "wide"))
        if rng.random() < 0.3:
            steps.append(Step("late", "exp", ["s"], "wide"))
            last.append("late")
        last.append("new")
    own = [step.name for step in steps if not step.is_view and step.op != "mask"]
    chosen = rng.sample(own, min(len(own), rng.randint(1, 2)))
    returned = [(name, "") for name in dict.fromkeys(chosen) if name not in last]
    returned += [(name, "state" if name == "new" else "") for name in last]
    return Program(arguments, steps, returned)


def _steps(
    rng: random.Random, forms: dict[str, str], count: int, prefix: str, loops: bool
) -> Iterator[Step]:
    """Yield steps on values of some shapes, and add the results to these."""
    for number in range(count):
        name = f"{prefix}{number}"
        wide = [value for value, form in forms.items() if form == "wide"]
        narrow = [value for value, form in forms.items() if form == "narrow"]
        deep = [value for value, form in forms.items() if form == "deep"]
        late = rng.random() < 0.7  # chains need the newest values
        pick = rng.choice([wide[-1:] if late else wide, narrow or wide, deep or wide])
        value = rng.choice(pick)
        form = forms[value]
        role = rng.choice(("", "", "", "", "activation", "gradient"))
        what = rng.random()
        weights = [name for name, form in forms.items() if form == "weight"]
        if what < 0.4:
            step = Step(name, rng.choice(MAPS), [value], form, role)
        elif what < 0.6:
            others = [other for other, like in forms.items() if like == form]
            other = rng.choice(narrow) if form == "wide" and narrow and rng.random() < 0.3 else ""
            op = rng.choice(PAIRS if other else (*PAIRS, "add"))
            step = Step(name, op, [value, other or rng.choice(others)], form, role)
        elif what < 0.7 and form == "wide":
            step = Step(name, "sum", [value], "narrow", role)
        elif what < 0.75 and form == "wide":
            step = Step(name, "softmax", [value], "wide", role)
        elif what < 0.82 and form != "narrow":
            step = Step(name, "reshape", [value], "deep" if form == "wide" else "wide")
        elif what < 0.85:
            step = Step(name, "barrier", [value], form)
        elif what < 0.9:
            yield Step(f"{name}p", "mask", [value], form)
            step = Step(name, "all_reduce", [f"{name}p"], form, role)
        elif what < 0.95 and loops:
            step = _loop(rng, name, rng.choice(wide), rng.choice(weights), role)
        else:
            step = Step(name, "einsum", [rng.choice(wide), rng.choice(weights)], "wide", role)
        forms[name] = step.form
        yield step


def _loop(rng: random.Random, name: str, start: str, weight: str, role: str) -> Step:
    inside = {f"c_{name}": "wide", f"w_{name}": "weight"}
    body = list(_steps(rng, inside, rng.randint(1, 6), f"{name}i", loops=False))
    body.append(Step(f"{name}e", rng.choice(PAIRS), [f"c_{name}", f"c_{name}"], "wide"))
    wide = [step for step in body if step.form == "wide" and not step.is_view and step.op != "mask"]
    carry = rng.choice(wide).name
    return Step(name, "repeat", [start, weight], "wide", role, rng.choice((1, 2, 4)), body, [carry])


# ---------------------------------------------------------------------------------------------
# What running a program takes
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    """A kernel or a collective: its last step, all of its steps, and the buffers that it reads."""

    last: Step
    steps: tuple[Step, ...]
    reads: tuple[str, ...]


def kernels(steps: list[Step], kept: list[str]) -> list[Kernel | Step]:
    """Return the kernels and loops of a list of steps, in order."""
    by_name = {step.name: step for step in steps}
    users: dict[str, list[str]] = {step.name: [] for step in steps}
    for step in steps:
        for read in step.reads:
            users.setdefault(read, []).append(step.name)
    row, rows = 0, dict[str, int]()
    for step in steps:
        row += step.op in ("barrier", "all_reduce", "repeat")
        rows[step.name] = row

    def readers(name: str) -> set[str]:
        seen: set[str] = set()
        for user in users[name]:
            seen |= readers(user) if by_name[user].op == "reshape" else {user}
            seen |= {"kept"} if by_name[user].op == "reshape" and user in kept else set()
        return seen

    of = {step.name: step.name for step in steps}
    changed = True
    while changed:
        changed = False
        for step in steps:
            if not step.is_map or step.role or step.name in kept or of[step.name] != step.name:
                continue
            into = {of.get(user, user) for user in readers(step.name)}
            if len(into) != 1 or into == {"kept"}:
                continue
            (last,) = into
            end = by_name[last]
            points = ELEMENTS["wide" if end.op == "sum" else end.form]
            fits = (end.is_map or end.op == "sum") and points == ELEMENTS[step.form]
            if fits and rows[last] == rows[step.name]:
                of[step.name], changed = last, True
                of |= {name: last for name, kernel in of.items() if kernel == step.name}
    listed: list[Kernel | Step] = []
    for step in steps:
        if step.op == "repeat":
            listed.append(step)
        elif not step.is_view and of[step.name] == step.name:
            inside = tuple(other for other in steps if of[other.name] == step.name)
            names = {other.name for other in inside}
            homes = (home(read, by_name) for other in inside for read in other.reads)
            reads = tuple(dict.fromkeys(value for value in homes if value not in names))
            listed.append(Kernel(step, inside, reads))
    return listed


def home(name: str, by_name: Mapping[str, Step]) -> str:
    """Return the value in whose memory a value lies."""
    while name in by_name and by_name[name].is_view:
        (name,) = by_name[name].reads
    return name


def kernel_bytes(kernel: Kernel, forms: Mapping[str, str]) -> int:
    """Return the bytes that a kernel reads and writes; those of a value read twice alone count
    twice."""
    if len(kernel.steps) == 1:
        return 4 * sum(ELEMENTS[forms[x]] for x in (*kernel.last.reads, kernel.last.name))
    return 4 * sum(ELEMENTS[forms[x]] for x in (*kernel.reads, kernel.last.name))


@dataclass
class Held:
    """The buffers that are held at the moments of a run.

    Attributes:
        until: for each buffer the moments between which it is held, its bytes and what it is for.
        names: the name of the step at each moment.
    """

    until: list[tuple[int, int, int, str]] = field(default_factory=list[tuple[int, int, int, str]])
    names: list[str] = field(default_factory=list[str])

    def peak(self) -> tuple[int, str, dict[str, int]]:
        """Return the first of the largest sums, the step that it is at, and its parts."""
        best: tuple[int, str, dict[str, int]] = (-1, "", {})
        for moment in range(-1, len(self.names)):
            uses: dict[str, int] = {}
            for first, last, size, use in self.until:
                if first <= moment <= last:
                    uses[use] = uses.get(use, 0) + size
            if (total := sum(uses.values())) > best[0]:
                best = total, self.names[moment] if moment >= 0 else "", uses
        return best


def run(program: Program) -> Held:
    """Return what a device holds while it runs a program, one step and iteration after another."""
    held, roles = Held(), dict(program.returned)
    written = {step.name: step for step in program.steps}
    forms = {n: form for n, (form, _) in program.arguments.items()}
    forms |= {step.name: step.form for step in program.steps}
    listed = kernels(program.steps, [name for name, _ in program.returned])
    moments: list[tuple[str, tuple[str, ...], int, int]] = []
    for item in listed:
        first = len(held.names)
        if isinstance(item, Kernel):
            held.names.append(item.last.name)
            moments.append((item.last.name, item.reads, first, first))
            continue
        reads = tuple(home(read, written) for read in item.reads)
        _run_loop(item, held)
        moments.append((item.name, reads, first, len(held.names) - 1))
    end = len(held.names)
    for form, role in program.arguments.values():
        use = USES[role] if role else "inputs"
        held.until.append((-1, end, 4 * ELEMENTS[form], use))
    for name, _, first, last in moments:
        readers = [(a, b, n) for n, reads, a, b in moments if name in reads]
        until = end if name in roles else max([last, *(b for _, b, _ in readers)])
        use = _role_of(name, program.steps, roles)
        if roles.get(name) == "state" and _may_overwrite(name, moments):
            continue
        held.until.append((first, until, 4 * ELEMENTS[forms[name]], use))
    return held


def _role_of(name: str, steps: list[Step], roles: Mapping[str, str]) -> str:
    """Return what the buffer of a value is for: the first role in it, of views too."""
    by_name = {step.name: step for step in steps}
    found = {step.role for step in steps if home(step.name, by_name) == name}
    for role in ("gradient", "activation"):
        if role in found:
            return USES[role]
    if roles.get(name):
        return USES[roles[name]]
    return "results" if name in roles else "temporaries"


def _may_overwrite(
    name: str,
    moments: list[tuple[str, tuple[str, ...], int, int]],
) -> bool:
    """Return whether the state is not read after its new value is written."""
    (at,) = (first for value, _, first, _ in moments if value == name)
    return not any("s" in reads and last > at for _, reads, _, last in moments)


def _run_loop(loop: Step, held: Held) -> None:
    """Run the iterations of a loop, in which its own values live and die."""
    begin = len(held.names)
    forms = {step.name: step.form for step in loop.body}
    listed = kernels(loop.body, loop.yields)
    for _ in range(loop.times):
        start = len(held.names)
        held.names += [item.last.name for item in listed if isinstance(item, Kernel)]
        for number, item in enumerate(listed):
            assert isinstance(item, Kernel)
            name = item.last.name
            if name in loop.yields:
                continue  # it is written to the memory of the result, or to the second buffer
            reads = [n for n, x in enumerate(listed) if isinstance(x, Kernel) and name in x.reads]
            use = _role_of(name, loop.body, {})
            last = start + max([number, *reads])
            held.until.append((start + number, last, 4 * ELEMENTS[forms[name]], use))
    if loop.times > 1:
        use = USES[loop.role]
        held.until.append((begin, len(held.names) - 1, 4 * ELEMENTS["wide"], use))
