"""DistIR's program for an MLP, listed operation by operation for all devices, and its simulation.

It shares nothing with ``distir``: each value and each operation is an object, each
device has a clock and a memory, and the schedule is played job by job.
"""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(eq=False)
class Value:
    device: int
    rows: int
    columns: int
    item: int = 2
    is_input: bool = False

    @property
    def elements(self) -> int:
        return self.rows * self.columns

    @property
    def bytes(self) -> int:
        return self.item * self.elements


@dataclass(eq=False)
class Op:
    kind: str
    operands: list[Value]
    results: list[Value]


def product(r: int, s: int, t: int) -> float:
    return 1e-5 + 2 * (r * s + s * t) / 9e11 + 2 * r * s * t / 1.4e13


def elementwise(operands: int, count: int) -> float:
    return 1e-5 + 2 * operands * count / 9e11 + count / 1.4e13


def seconds(op: Op) -> float:
    first = op.operands[0]
    match op.kind:
        case "MatMul":
            return product(first.rows, first.columns, op.operands[1].columns)
        case "MatMulGrad":
            b, i, o = first.rows, first.columns, op.operands[1].columns
            return product(b, o, i) + product(i, b, o)
        case "Relu" | "Loss" | "LossGrad":
            return elementwise(1, first.elements)
        case "ReluGrad" | "Add" | "SGDOptimizer":
            return elementwise(2, first.elements)
        case "Identity":
            return 0.0
        case "Concat":
            return 1e-5
        case "Send":
            return first.bytes / 1.25e8 / 25
        case "MPIAllreduce":
            n = len(op.operands)
            return 2 * first.bytes / 1.25e8 / n * (n - 1) / 25
        case _:
            raise AssertionError(op.kind)


@dataclass
class Program:
    layers: int
    width: int
    batch: int
    data: int
    tensor: int
    pipeline: int
    microbatches: int
    inputs: list[Value] = field(default_factory=list[Value])
    ops: list[Op] = field(default_factory=list[Op])
    counters: Counter[tuple[int, int]] = field(default_factory=Counter[tuple[int, int]])
    values: dict[tuple[object, ...], Value] = field(default_factory=dict[tuple[object, ...], Value])

    def __post_init__(self) -> None:
        self.per_stage = self.layers // self.pipeline
        self.rows = self.batch // self.data // self.microbatches
        for i in range(self.data):
            for j in range(self.tensor):
                self.add_inputs(i, j)
        for i in range(self.data):
            self.replica(i)
        self.end()

    def device(self, i: int, j: int, k: int) -> int:
        return 1 + (i * self.tensor + j) * self.pipeline + k

    def add_inputs(self, i: int, j: int) -> None:
        last = self.pipeline - 1
        for m in range(self.microbatches):
            self.values["x", i, j, m] = self.input(self.device(i, j, 0), self.rows, self.width)
            self.values["z", i, j, m] = self.input(self.device(i, j, last), self.rows, self.width)
        self.values["n", i, j] = self.input(self.device(i, j, last), 1, 1, 4)
        share = self.width // self.tensor
        for q in range(self.layers):
            shape = (share, self.width) if q % 2 else (self.width, share)
            self.values["w", i, j, q] = self.input(self.device(i, j, q // self.per_stage), *shape)

    def input(self, device: int, rows: int, columns: int, item: int = 2) -> Value:
        self.inputs.append(Value(device, rows, columns, item, True))
        return self.inputs[-1]

    def emit(self, kind: str, operands: list[Value], *shapes: tuple[int, int]) -> list[Value]:
        results = [Value(operands[0].device, *shape) for shape in shapes]
        self.ops.append(Op(kind, operands, results))
        return results

    # --- the schedule ---------------------------------------------------------------------------

    def replica(self, i: int) -> None:
        stages, count = range(self.pipeline), self.microbatches
        done: set[tuple[str, int, int]] = set()
        previous = ["b"] * self.pipeline
        while len(done) < 2 * self.pipeline * count:
            step: list[tuple[str, int, int]] = []
            for k in stages:
                wanted = "fb" if previous[k] == "b" else "bf"
                jobs = [(kind, k, m) for kind in wanted for m in range(count)]
                ready = [job for job in jobs if job not in done and self.is_ready(job, done)]
                step += ready[:1]
            for job in step:
                self.job(i, *job)
            for kind, k, m in step:
                self.send(i, kind, k, m)
            for job in step:
                done.add(job)
                previous[job[1]] = job[0]

    def is_ready(self, job: tuple[str, int, int], done: set[tuple[str, int, int]]) -> bool:
        kind, k, m = job
        if kind == "f":
            return k == 0 or ("f", k - 1, m) in done
        return ("f", k, m) in done and (k == self.pipeline - 1 or ("b", k + 1, m) in done)

    def send(self, i: int, kind: str, k: int, m: int) -> None:
        to = k + 1 if kind == "f" else k - 1
        if not 0 <= to < self.pipeline:
            return
        name = ("a", (k + 1) * self.per_stage - 1) if kind == "f" else ("dy", k * self.per_stage)
        for j in range(self.tensor):
            key = (name[0], i, j, name[1], m)
            value = self.values[key]
            copy = Value(self.device(i, j, to), value.rows, value.columns)
            self.ops.append(Op("Send", [value], [copy]))
            self.values[key] = copy

    # --- a job ----------------------------------------------------------------------------------

    def activation(self, i: int, j: int, q: int, m: int) -> Value:
        return self.values["x", i, j, m] if q < 0 else self.values["a", i, j, q, m]

    def job(self, i: int, kind: str, k: int, m: int) -> None:
        layers = range(k * self.per_stage, (k + 1) * self.per_stage)
        if kind == "f":
            for q in layers:
                self.forward(i, q, m)
            if k == self.pipeline - 1:
                self.loss(i, m)
        else:
            for q in reversed(layers):
                self.backward(i, q, m)

    def forward(self, i: int, q: int, m: int) -> None:
        for j in range(self.tensor):
            a, w = self.activation(i, j, q - 1, m), self.values["w", i, j, q]
            assert a.columns == w.rows
            self.values["y", i, j, q, m] = self.emit("MatMul", [a, w], (a.rows, w.columns))[0]
        self.reduce(i, "y", q, m)
        for j in range(self.tensor):
            y = self.values["y", i, j, q, m]
            self.values["a", i, j, q, m] = self.emit("Relu", [y], (y.rows, y.columns))[0]

    def loss(self, i: int, m: int) -> None:
        for kind, name in (("Loss", "l"), ("LossGrad", "dl")):
            for j in range(self.tensor):
                a = self.values["a", i, j, self.layers - 1, m]
                operands = [a, self.values["z", i, j, m], self.values["n", i, j]]
                result = self.emit(kind, operands, (a.rows, a.columns))
                self.values[name, i, j, 0, m] = result[0]
            if name == "l":
                self.gather(i, "l", 0, m)

    def backward(self, i: int, q: int, m: int) -> None:
        for j in range(self.tensor):
            last = q == self.layers - 1
            gradient = self.values["dl", i, j, 0, m] if last else self.values["dy", i, j, q + 1, m]
            y = self.values["y", i, j, q, m]
            result = self.emit("ReluGrad", [y, gradient], (y.rows, y.columns))
            self.values["da", i, j, q, m] = result[0]
        for j in range(self.tensor):
            a, w = self.activation(i, j, q - 1, m), self.values["w", i, j, q]
            operands = [a, w, self.values["da", i, j, q, m]]
            dy, dw = self.emit("MatMulGrad", operands, (a.rows, a.columns), (w.rows, w.columns))
            self.values["dy", i, j, q, m] = dy
            self.values["dw", i, j, q, m] = dw
        self.reduce(i, "dy", q, m)
        if q == 0:
            self.gather(i, "dy", q, m)
        self.gather(i, "dw", q, m)

    def reduce(self, i: int, name: str, q: int, m: int) -> None:
        if self.tensor == 1:
            return
        self.counters[i, m] += 1
        if self.counters[i, m] % 2 == 0:
            keys: list[tuple[object, ...]] = [(name, i, j, q, m) for j in range(self.tensor)]
            self.allreduce(keys)

    def allreduce(self, keys: list[tuple[object, ...]]) -> None:
        operands = [self.values[key] for key in keys]
        results = [Value(v.device, v.rows, v.columns) for v in operands]
        self.ops.append(Op("MPIAllreduce", operands, results))
        self.values.update(zip(keys, results, strict=True))

    def gather(self, i: int, name: str, q: int, m: int) -> None:
        for j in range(self.tensor):
            value, key = self.values[name, i, j, q, m], ("all", name, i, j, q)
            if self.microbatches == 1:
                self.values[key] = value
            elif m == 0:
                self.values[key] = self.emit("Identity", [value], (value.rows, value.columns))[0]
            else:
                kind = "Add" if name == "dw" else "Concat"
                pieces = self.values[key]
                rows = value.rows if kind == "Add" else value.rows + pieces.rows
                self.values[key] = self.emit(kind, [pieces, value], (rows, value.columns))[0]

    def end(self) -> None:
        if self.data > 1:
            for q in reversed(range(self.layers)):
                for j in range(self.tensor):
                    self.allreduce([("all", "dw", i, j, q) for i in range(self.data)])
        for i in range(self.data):
            for j in range(self.tensor):
                for k in range(self.pipeline):
                    layers = range(k * self.per_stage, (k + 1) * self.per_stage)
                    operands = [self.values["w", i, j, q] for q in layers]
                    operands += [self.values["all", "dw", i, j, q] for q in layers]
                    self.ops.append(Op("SGDOptimizer", operands, []))


@dataclass
class Simulated:
    """Clocks (seconds) and peaks (bytes) by device, and how many operations ran of each kind."""

    clocks: dict[int, float]
    peaks: dict[int, int]
    counts: Counter[str]

    @property
    def latency(self) -> float:
        return max(self.clocks.values())

    @property
    def peak(self) -> int:
        return max(self.peaks.values())


def simulate(program: Program) -> Simulated:
    live: Counter[int] = Counter()
    for value in program.inputs:
        live[value.device] += value.bytes
    clocks = dict.fromkeys(sorted(live), 0.0)
    peaks = {device: live[device] for device in clocks}
    uses = Counter(id(v) for op in program.ops for v in op.operands)
    for op in program.ops:
        devices = {value.device for value in op.operands + op.results}
        start = max(clocks[device] for device in devices)
        cost = seconds(op)
        for device in devices:
            clocks[device] = start + cost
        for value in op.results:
            live[value.device] += value.bytes
        for device in devices:
            peaks[device] = max(peaks[device], live[device])
        for value in op.operands:
            uses[id(value)] -= 1
            if not value.is_input and uses[id(value)] == 0:
                live[value.device] -= value.bytes
    return Simulated(clocks, peaks, Counter(op.kind for op in program.ops))
