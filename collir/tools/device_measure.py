"""Measurements of a device: the programs of a calibration, run through a library in a process."""

import json
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from collir.cost.calibration.device.probes import DTYPES, default_probes, page
from collir.cost.calibration.device.times import DeviceTimes, ProbeTiming
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.syntax.reader import read
from collir.targets.code.jax import emit_jax
from collir.tools.processes import check_installed, run_script

SCRIPT = """\
import json, os, platform, statistics, sys, time
from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
device = jax.devices()[0]
memory = (device.memory_stats() or {}).get("bytes_limit")
if memory is None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
name = device.device_kind
if device.platform == "cpu":
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = f"CPU {models[0] if models else platform.processor()}"
cores = getattr(device, "core_count", None) or len(os.sched_getaffinity(0))
about = {"device": name, "cores": cores, "memory": memory, "platform": device.platform}
if len(sys.argv) == 4:
    sys.path.insert(0, str(folder))
    import program

    rng, runs = np.random.default_rng(0), []
    for number in range(int(sys.argv[3])):
        function = getattr(program, f"probe_{number}")
        shapes = function.__wrapped__.types
        arrays = [(0.02 * rng.random(x.shape) + 0.01).astype(x.dtype) for x in shapes]
        arrays = jax.device_put(arrays)
        jax.block_until_ready(function(*arrays))
        runs.append((function, arrays, []))
    rounds = 4
    for _ in range(rounds):
        for function, arrays, times in runs:
            end = time.perf_counter() + seconds / rounds / len(runs)
            jax.block_until_ready(function(*arrays))
            done = 0
            while done < 2 or (done < 1000 and time.perf_counter() < end):
                start = time.perf_counter()
                jax.block_until_ready(function(*arrays))
                times.append(time.perf_counter() - start)
                done += 1
    about["seconds"] = [statistics.median(times) for *_, times in runs]
(folder / "out").write_text(json.dumps(about))
"""
"""The program that runs probes in rounds, so that what disturbs some rounds changes no median; it
writes what it knows of the device, and with the number of probes their median seconds."""

BY_DEFAULT = {"cpu": ("f32", "f64")}
"""The element types that are timed on a platform, if none are named."""

ELSEWHERE = ("f32", "bf16", "f16")
"""Those on any other platform."""


def measure_device(dtypes: Sequence[str], seconds: float, probes: int | None = None) -> DeviceTimes:
    """Return the times of the programs of a calibration on the first device of jax.

    Args:
        dtypes: the element types; none: those of the platform.
        seconds: the time that all programs run together, without compiling them.
        probes: the number of programs; None: all.

    Raises:
        DiagnosticError: jax is not installed, or the programs fail.
    """
    message = "--device needs jax: `pip install 'collir[jax]'` brings it; or take --from FILE"
    check_installed("jax", message)
    with tempfile.TemporaryDirectory() as folder:
        if not dtypes:
            platform = str(_run(Path(folder), seconds)["platform"])
            dtypes = BY_DEFAULT.get(platform, ELSEWHERE)
        timed = list(default_probes(dtypes))[:probes]
        rates = ", ".join(f"{dtype} = 1 GFLOP/s" for dtype in DTYPES)
        module = read(page(timed, f"device {{ compute {rates} }}"), "probes")
        (Path(folder) / "program.py").write_text(emit_jax(module), encoding="utf-8")
        about = _run(Path(folder), seconds, len(timed))
    timings = zip(timed, about["seconds"], strict=True)
    return DeviceTimes(
        f"jax {version('jax')}",
        str(about["device"]),
        int(about["cores"]),
        float(about["memory"]),
        tuple(ProbeTiming(probe, time) for probe, time in timings),
    )


def _run(folder: Path, seconds: float, probes: int | None = None) -> dict[str, Any]:
    """Run the script and return what it writes."""
    count = [] if probes is None else [str(probes)]
    try:
        run_script(folder, SCRIPT, [str(seconds), *count], "a program")
    except RuntimeError as error:
        last = str(error).strip().splitlines()[-1]
        raise DiagnosticError(Diagnostic(f"measuring failed: {last}")) from error
    return json.loads((folder / "out").read_text(encoding="utf-8"))
