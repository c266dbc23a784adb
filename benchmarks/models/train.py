"""Train the GPT of examples/models/words.coll on text, as the jax that collir emits: on 2 x 2 x 2
devices and on one, from the same weights and the same text.

    python benchmarks/models/train.py [--steps 100] [--text FILE] [--json]

Prints the losses of both, and the largest difference relative to the loss.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import collir

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
    if name.startswith("gain"):
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


def losses(devices: int, steps: int, text: Path, folder: Path) -> list[float]:
    """Return the losses of steps on a number of devices, in a process with as many."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    mesh = next(n for n, line in enumerate(lines) if line.startswith("mesh"))
    lines[mesh] = f"mesh @m on @box {{ {MESHES[devices]} }}"
    module = collir.parse("\n".join(lines), str(PAGE))
    (folder / "emitted.py").write_text(collir.emit(module, "jax"), encoding="utf-8")
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    done = subprocess.run(
        [sys.executable, "train.py", str(steps), str(text.resolve())],
        cwd=folder,
        env={**os.environ, **flags, "JAX_PLATFORMS": "cpu"},
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
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--text", type=Path, default=ROOT / "docs" / "tour.md")
    parser.add_argument("--json", action="store_true", help="print the losses as JSON")
    options = parser.parse_args()
    found: dict[int, list[float]] = {}
    for devices in MESHES:
        with TemporaryDirectory() as folder:
            found[devices] = losses(devices, options.steps, options.text, Path(folder))
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
