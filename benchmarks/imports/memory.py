"""Compare the peak of memory of an imported training step with that of eager torch.

    python benchmarks/imports/memory.py [ARCHITECTURE ...]

Torch runs a step of AdamW of each small model under ``MemTracker``. The imported
step is simulated on one device: with its maps in kernels, as compilers fuse them, and with each map
as a kernel (``maps = apart``), as eager torch runs them.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from support.importing.architectures import small  # noqa: E402
from torch.distributed._tools.mem_tracker import MemTracker  # noqa: E402

import collir  # noqa: E402

NAMES = ("Llama", "GPT2", "Qwen3", "Gemma3", "Bert", "ViT")

SCALE = 16
"""How many times as many sequences the models get as in the tests."""


def many(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with more sequences, in f32."""
    made = {
        key: torch.cat([x] * SCALE) if isinstance(x, torch.Tensor) and x.dim() else x
        for key, x in arguments.items()
    }
    return {
        key: x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for key, x in made.items()
    }


def of_torch(name: str) -> int:
    """Return the peak in bytes of the second step of eager torch."""
    model, arguments = small(name)
    model, arguments = model.float().train(False), many(dict(arguments))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        for step in range(2):
            made = model(**arguments)
            made[0].backward()
            optimizer.step()
            optimizer.zero_grad()
            del made
            if not step:
                tracker.reset_mod_stats()
    [peak] = tracker.get_tracker_snapshot("peak").values()
    return max(int(x) for x in peak.values())


def of_program(name: str, maps: str) -> float:
    """Return the peak in bytes of a simulation of the imported step."""
    model, arguments = small(name)
    imported = collir.import_torch(
        model.float(), (), many(dict(arguments)), optimizer="adamw",
        machine="@dgx_h100(nodes = 1)", mesh="data = gpu:8",
    )  # fmt: skip
    head, _, rest = imported.text.partition("mesh @m")
    machine = (
        "machine @cluster {\n"
        "  device { compute f32 = 67 TFLOP/s, i64 = 67 TFLOP/s; memory = 80 GB @ 3.35 TB/s"
        f"{maps} }}\n  level gpu[1] {{ port = 1 GB/s, latency = 1 us }}\n}}\n"
    )
    comment = "\n".join(line for line in head.splitlines() if line.startswith("//"))
    text = f"{comment}\n{machine}mesh @m{rest}".replace("data = gpu:8", "data = gpu:1")
    module = collir.run_passes(collir.parse(text), "propagate,differentiate")
    simulation = next(s for s in collir.simulate(module) if s.name == "step")
    return simulation.peak


def main() -> None:
    """Print a row for each architecture."""
    print("| architecture | torch | maps apart | | fused | |\n|---|--:|--:|--:|--:|--:|")
    for name in sys.argv[1:] or NAMES:
        torch_peak = of_torch(name)
        apart, fused = of_program(name, "; maps = apart"), of_program(name, "")
        print(
            f"| {name} | {torch_peak / 1e6:.2f} MB | {apart / 1e6:.2f} MB | "
            f"{apart / torch_peak:.2f} | {fused / 1e6:.2f} MB | {fused / torch_peak:.2f} |"
        )


if __name__ == "__main__":
    main()
