"""The seconds that emitted code waits for a computation, on each rank, against its own device."""

import re
from types import SimpleNamespace

import pytest

import collir

PROGRAM = """\
machine @mixed {{
  device a {{ compute f32 = 4 TFLOP/s }}
  device b {{ compute f32 = 2 TFLOP/s }}
  device c {{ compute f32 = 1 TFLOP/s }}
  level node[6] {{ port = 8 GB/s, latency = 20 us, devices = [{devices}] }}
  level gpu[2] {{ port = 80 GB/s, latency = 3 us }}
}}
mesh @m on @mixed {{ x = node:2 * gpu:2, y = node:3 weights [{weights}] }}
func @f(%x: f32[60@y]) -> f32[60@y] on @m {{
  %r = compute %x flops 6e9
  return %r
}}
"""
KINDS = {
    "a, 3 b, 2 c": "abbbcc",
    "2 c, a, a, b, c": "ccaabc",
    "3 a, 3 c": "aaaccc",
    "6 b": "bbbbbb",
}
RATES = {"a": 4e12, "b": 2e12, "c": 1e12}


@pytest.mark.parametrize("devices", KINDS)
@pytest.mark.parametrize("weights", [(1, 1, 1), (3, 2, 1)])
def test_each_rank_waits_for_its_own_device_and_block(
    devices: str, weights: tuple[int, ...]
) -> None:
    text = PROGRAM.format(devices=devices, weights=", ".join(map(str, weights)))
    used = {*KINDS[devices]}
    lines = text.splitlines(keepends=True)
    text = "".join(
        line for line in lines if not re.match(r"  device (\w)", line) or line[9] in used
    )
    code = collir.emit(collir.parse(text), "mpi4py")
    (waited,) = re.findall(r"time\.sleep\((.*?)\)\n +\w+ =", code, re.DOTALL)
    for rank in range(12):
        node = rank // 2
        share = weights[node % 3] // (1 if max(weights) > 1 else weights[0])
        mesh = SimpleNamespace(x_node=node // 3, y_node=node % 3, x_gpu=rank % 2, by_y=share)
        seconds = eval(f"({waited.strip().rstrip(',')})", {"self": mesh})
        expected = 6e9 * weights[node % 3] / max(weights) / RATES[KINDS[devices][node]]
        assert seconds == pytest.approx(expected)
