"""A training loop with DistributedDataParallel on 4 processes, traced by torch's profiler.

    torchrun --nproc-per-node 4 ddp.py

Rank 2 loads its data slowly, to show what that looks like.
"""

import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule

WIDTH, LAYERS, BATCH = 256, 2, 64


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x).pow(2).mean()


def net() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return the model for `collir import torch`, with the batch of all ranks."""
    return Net(), (torch.randn(4 * BATCH, WIDTH),)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    model = DistributedDataParallel(Net(), bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(model.parameters())
    folder = Path("traces")
    folder.mkdir(exist_ok=True)
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=1, warmup=1, active=2),
        on_trace_ready=lambda p: p.export_chrome_trace(f"{folder}/rank{rank}.json.gz"),
    ) as profiler:
        for _ in range(4):
            with record_function("load data"):
                x = torch.randn(BATCH, WIDTH)
                time.sleep(0.03 if rank == 2 else 0)
            loss = model(x)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
