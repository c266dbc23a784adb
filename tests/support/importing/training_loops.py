"""Small training loops that torch's profiler records, as a program.

Torch is imported once, and the ranks are forks.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from support.importing.training_traces import (
    DUMPS,
    LAYERS,
    PAUSE,
    RANKS,
    ROWS,
    STEPS,
    WIDTH,
    TrainingRun,
)

torch: Any = import_module("torch")
dist: Any = import_module("torch.distributed")
fsdp: Any = import_module("torch.distributed.fsdp")
parallel: Any = import_module("torch.distributed.tensor.parallel")
ddp: Any = import_module("torch.nn.parallel")
profiler: Any = import_module("torch.profiler")
data: Any = import_module("torch.utils.data")
recorder: Any = import_module("torch._C._distributed_c10d")
mesh_of: Any = import_module("torch.distributed.device_mesh").init_device_mesh


def _main(folder: Path, runs: Mapping[str, TrainingRun]) -> int:
    children: set[int] = set()
    for rank in range(RANKS):
        if child := os.fork():
            children.add(child)
        else:
            _run(folder, runs, rank)
            os._exit(0)
    while children:
        child, status = os.wait()
        children.discard(child)
        if status:  # the others wait for it
            for other in children:
                os.kill(other, signal.SIGKILL)
            return 1
    return 0


def _run(folder: Path, runs: Mapping[str, TrainingRun], rank: int) -> None:
    """Run and record everything on a rank."""
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    for name, run in runs.items():
        _record(folder, name, run, rank)
    (folder / f"{DUMPS}.rank{rank}").write_bytes(recorder._dump_fr_trace())
    dist.barrier()
    dist.destroy_process_group()


def _record(folder: Path, name: str, run: TrainingRun, rank: int) -> None:
    """Record the steps of a run on a rank."""
    torch.manual_seed(0)
    step = _STEPS_OF[run.kind]()
    suffix = "json.gz" if run.kind == "fsdp" else "json"
    delay = PAUSE if run.slow_data else 0.0
    batches = data.DataLoader(_Batches(delay, 2 + STEPS), batch_size=ROWS)

    def write(recording: Any) -> None:
        recording.export_chrome_trace(f"{folder}/{name}.rank{rank}.{suffix}")

    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU], record_shapes=True,
        schedule=profiler.schedule(wait=1, warmup=1, active=STEPS),
        on_trace_ready=write,
    ) as recording:  # fmt: skip
        for batch in batches:
            if rank == run.straggler:
                time.sleep(PAUSE)
            step(batch)
            recording.step()


class _Batches:
    """Rows of data, the first one of each batch late."""

    def __init__(self, delay: float, batches: int):
        self.delay, self.batches = delay, batches

    def __len__(self) -> int:
        return self.batches * ROWS

    def __getitem__(self, index: int) -> Any:
        if index >= len(self):
            raise IndexError
        if not index % ROWS:
            time.sleep(self.delay)
        return torch.ones(WIDTH)


Step = Callable[[Any], None]


def _model() -> Any:
    layers = [
        torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False), torch.nn.GELU(),
            torch.nn.Linear(4 * WIDTH, WIDTH, bias=False),
        ) for _ in range(LAYERS)
    ]  # fmt: skip
    return torch.nn.Sequential(*layers)


def _step_of(model: Any) -> Step:
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batch: Any) -> None:
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _ddp() -> Step:

    return _step_of(ddp.DistributedDataParallel(_model(), bucket_cap_mb=0.3))


def _fsdp() -> Step:

    model, mesh = _model(), mesh_of("cpu", (RANKS,))
    for layer in model:
        fsdp.fully_shard(layer, mesh=mesh)
    fsdp.fully_shard(model, mesh=mesh)
    return _step_of(model)


def _tp() -> Step:
    model = _model()
    mesh = mesh_of("cpu", (2, 2), mesh_dim_names=("data", "model"))
    plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    for layer in model:
        parallel.parallelize_module(layer, mesh["model"], plan)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch: Any) -> None:
        loss = model(batch).pow(2).mean()
        loss.backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad.to_local(), group=mesh.get_group("data"))
        optimizer.step()
        optimizer.zero_grad()

    return step


_STEPS_OF: Mapping[str, Callable[[], Step]] = {"ddp": _ddp, "fsdp": _fsdp, "tp": _tp}

if __name__ == "__main__":
    _given = json.loads(sys.argv[2])
    sys.exit(_main(Path(sys.argv[1]), {name: TrainingRun(**x) for name, x in _given.items()}))
