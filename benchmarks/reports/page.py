"""Measure pages of `-t html`: ``python benchmarks/reports/page.py [STEPS ...]``.

A line for each number of steps: the bytes of the page, the seconds that it takes to write, and
those from the start of headless Chromium until everything is drawn, beside those of an empty page.
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import collir
from collir.targets.reports.page.target import Shown, page

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.harness.browser import CHROMIUM

HEAD = """machine @box {
  device { compute f32 = 10 TFLOP/s; memory = 40 GB @ 1 TB/s }
  level node[2] { port = 25 GB/s, latency = 10 us }
  level gpu[4]  { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { data = node:2, model = gpu:4 }
"""
EMPTY = "<!doctype html><html data-ready='yes'><title>empty</title></html>"


def program(steps: int) -> str:
    """Return a program whose steps follow each other."""
    lines = "\n".join(f"  %y{n + 1} = add %y{n}, %y{n}" for n in range(steps))
    head = f"{HEAD}func @f(%y0: f32[65536]) -> f32[65536] on @m {{"
    return f"{head}\n{lines}\n  return %y{steps}\n}}\n"


def loaded(text: str) -> float:
    """Return the seconds until a page is drawn; NaN without a browser."""
    if not CHROMIUM:
        return float("nan")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(text, encoding="utf-8")
        words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                 f"--user-data-dir={folder}/profile", path.as_uri()]  # fmt: skip
        start = time.perf_counter()
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert re.search(r"data-ready=['\"]yes", done.stdout)
        return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    empty = min(loaded(EMPTY) for _ in range(3))
    print(f"empty page: {empty:.2f} s")
    for steps in map(int, sys.argv[1:] or ["100", "1000", "10000"]):
        simulations = collir.simulate(collir.parse(program(steps)))
        start = time.perf_counter()
        text = page([*map(Shown, simulations)], "")
        written = time.perf_counter() - start
        seconds = min(loaded(text) for _ in range(3))
        print(
            f"{steps} steps: {len(text) / 1e6:.2f} MB, written in {written:.2f} s, "
            f"drawn in {seconds - empty:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
