"""Train the GPT of examples/models/words.coll on text, as the jax or torch that collir emits: on
2 x 2 x 2 devices and on one, from the same weights and the same text.

    python benchmarks/models/train.py [--library torch] [--steps 100] [--text FILE] [--json]

Prints the losses of both, and the largest difference relative to the loss.
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.semantics.reference.buffers import NUMPY, distribute
from collir.synthesis.propagation.propagate import make_explicit

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "examples" / "models" / "words.coll"
MESHES = {8: "data = gpu:2, model = gpu:2, context = gpu:2", 1: "data = 1, model = 1, context = 1"}

TRAIN = '''
import inspect, json, sys
from pathlib import Path

import jax
import numpy as np
from emitted import step

steps, text = int(sys.argv[1]), np.frombuffer(Path(sys.argv[2]).read_bytes(), np.uint8) % 128
types = step.__wrapped__.types
batch, seq = types[0].shape
rng = np.random.default_rng(0)


def weight(name, x):
    """Return gains of 1, and other weights that keep the size of what they are applied to."""
    if "gain" in name:
        return np.ones(x.shape, x.dtype)
    inputs = x.shape[1] if len(x.shape) > 2 else x.shape[-1]
    return (rng.normal(size=x.shape) / inputs**0.5).astype(x.dtype)


names = list(inspect.signature(step).parameters)
weights = [weight(*pair) for pair in zip(names[3:], types[3:], strict=True)]
losses = []
for number in range(steps):
    starts = rng.integers(0, len(text) - seq - 1, batch)
    words = np.stack([text[s : s + seq] for s in starts]).astype(np.int32)
    after = np.stack([text[s + 1 : s + seq + 1] for s in starts]).astype(np.int32)
    loss, *weights = step(words, after, np.float32(0.3), *weights)
    losses.append(float(loss))
print(json.dumps(losses))
'''


TRAIN_IN_TORCH = """
import json, pickle, sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import emitted

size = int(sys.argv[1])


def work(rank):
    torch.set_num_threads(1)
    store = dist.FileStore("store", size)
    dist.init_process_group("gloo", rank=rank, world_size=size, store=store)
    mesh, losses = emitted.M(), []
    rate, weights, batches = pickle.loads(Path(f"{rank}.in").read_bytes())
    rate, weights = torch.tensor(rate), list(map(torch.from_numpy, weights))
    for batch in batches:
        loss, *weights = mesh.step(*map(torch.from_numpy, batch), rate, *weights)
        losses.append(loss.item())
    if rank == 0:
        print(json.dumps(losses))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(work, nprocs=size, start_method="fork")
"""


def losses(devices: int, steps: int, text: Path, folder: Path, library: str) -> list[float]:
    """Return the losses of steps on a number of devices."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    mesh = next(n for n, line in enumerate(lines) if line.startswith("mesh"))
    lines[mesh] = f"mesh @m on @box {{ {MESHES[devices]} }}"
    module = collir.parse("\n".join(lines), str(PAGE))
    make_explicit(module)
    (folder / "emitted.py").write_text(collir.emit(module, library), encoding="utf-8")
    if library == "torch":
        write_blocks(module, steps, text, folder)
        return printed(TRAIN_IN_TORCH, [str(devices)], folder, {"OMP_NUM_THREADS": "1"})
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    words = [str(steps), str(text.resolve())]
    return printed(TRAIN, words, folder, {**flags, "JAX_PLATFORMS": "cpu"})


def write_blocks(module: ModuleOp, steps: int, file: Path, folder: Path) -> None:
    """Write the weights and the batches of each rank to files: those that jax trains with."""
    function = next(f for f in functions_of(module) if f.sym_name.data == "step")
    mesh, rng = mesh_of(function), np.random.default_rng(0)
    text = np.frombuffer(file.read_bytes(), np.uint8) % 128
    types = list(map(dist_type, function.args))
    tensors = [np.asarray(0.3, np.float32)]
    for arg, x in zip(function.args[3:], types[3:], strict=True):
        inputs = x.shape[1] if len(x.shape) > 2 else x.shape[-1]
        gain = "gain" in (arg.name_hint or "")
        weight = np.ones(x.shape) if gain else rng.normal(size=x.shape) / inputs**0.5
        tensors.append(weight.astype(NUMPY[x.dtype]))
    batches: list[list[np.ndarray]] = []
    batch, seq = types[0].shape
    for _ in range(steps):
        starts = rng.integers(0, len(text) - seq - 1, batch)
        batches.append(
            [np.stack([text[s + n : s + n + seq] for s in starts]).astype(np.int32) for n in (0, 1)]
        )
    held = [distribute(mesh, x, t, rng) for x, t in zip(tensors, types[2:], strict=True)]
    words = [[distribute(mesh, x, types[0], rng) for x in pair] for pair in batches]
    for rank in range(mesh.devices):
        (rate, *weights), pairs = (x[rank] for x in held), [[x[rank] for x in w] for w in words]
        (folder / f"{rank}.in").write_bytes(pickle.dumps((rate, weights, pairs)))


def printed(program: str, words: list[str], folder: Path, variables: dict[str, str]) -> list[float]:
    """Return the numbers that a program prints."""
    (folder / "train.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "train.py", *words],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def main() -> None:
    """Train, and print the losses."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--library", choices=["jax", "torch"], default="jax")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--text", type=Path, default=ROOT / "docs" / "tour.md")
    parser.add_argument("--json", action="store_true", help="print the losses as JSON")
    options = parser.parse_args()
    found: dict[int, list[float]] = {}
    for devices in MESHES:
        with TemporaryDirectory() as folder:
            found[devices] = losses(
                devices, options.steps, options.text, Path(folder), options.library
            )
    if options.json:
        print(json.dumps(found))
        return
    print("step  8 devices  1 device")
    for number in range(0, options.steps, max(1, options.steps // 10)):
        print(f"{number:4}  {found[8][number]:9.4f}  {found[1][number]:8.4f}")
    print(f"last  {found[8][-1]:9.4f}  {found[1][-1]:8.4f}")
    worst = max(abs(a / b - 1) for a, b in zip(found[8], found[1], strict=True))
    print(f"largest difference: {worst:.1e} of the loss")


if __name__ == "__main__":
    main()
