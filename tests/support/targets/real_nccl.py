"""Compiles emitted code against the real NCCL and CUDA, if the extra `nccl` is installed."""

import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.harness.hanging import HANG

from collir.tools.mpi_run import find

WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Werror")


def _folder() -> Path | None:
    """Return the folder of NVIDIA's wheels if it has NCCL and the headers of CUDA, else None."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except ModuleNotFoundError:
        return None
    for place in spec.submodule_search_locations or [] if spec else []:
        folder = Path(place)
        if all((folder / name).exists() for name in _NEEDED):
            return folder
    return None


_NEEDED = (
    "nccl/include/nccl.h",
    "cu13/include/cuda_runtime.h",
    "cu13/include/crt/host_config.h",
    "cu13/include/cccl/nv/target",
)

FOLDER = _folder()

needs_nccl = pytest.mark.skipif(
    FOLDER is None, reason="NCCL is not installed: pip install 'collir[nccl]' (600 MB)"
)
NVCC = shutil.which("nvcc", path=str(FOLDER / "cu13/bin") if FOLDER else "") or shutil.which("nvcc")

needs_nvcc = pytest.mark.skipif(
    NVCC is None, reason="there is no nvcc, which kernels need: pip install 'collir[nccl]'"
)


def libraries() -> list[Path]:
    """Return the libraries of NCCL and of CUDA's runtime."""
    assert FOLDER is not None
    paths = [*FOLDER.glob("nccl/lib/libnccl.so.*"), *FOLDER.glob("cu13/lib/libcudart.so.*")]
    assert len(paths) == 2
    return paths


def compile_with_gcc(code: str, folder: Path, flags: Sequence[str] = WARNINGS) -> str:
    """Compile and link a file without kernels, and return the path of the program."""
    assert FOLDER is not None
    source, program = folder / "program.cpp", folder / "program"
    source.write_text(code, encoding="utf-8")
    # System headers, so that only our own code causes warnings.
    headers = [FOLDER / name for name in ("cu13/include", "cu13/include/cccl", "nccl/include")]
    includes = [f"-isystem{path}" for path in headers]
    linked = [f"-Wl,-rpath,{path.parent}" for path in libraries()]
    _run([find("mpicxx"), "-std=c++17", "-O1", *flags, *includes, str(source), "-o", str(program),
          *map(str, libraries()), *linked])  # fmt: skip
    return str(program)


def compile_with_nvcc(code: str, folder: Path, mpi: bool = False) -> str:
    """Compile and link a file with kernels, and return the path of the program."""
    assert FOLDER is not None
    assert NVCC is not None
    source, program = folder / "program.cu", folder / "program"
    source.write_text(code, encoding="utf-8")
    # The nvcc of an installed CUDA has headers and a runtime of its own.
    nccl = libraries()[0]
    compiler = ["-ccbin", find("mpicxx")] if mpi else []
    flags = ["-std=c++17", "-O1", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra"]
    linked = [
        f"-L{FOLDER / 'cu13/lib'}",
        "-Xlinker",
        str(nccl),
        "-Xlinker",
        f"-rpath,{nccl.parent}",
    ]
    headers = f"-I{FOLDER / 'nccl/include'}"
    _run([NVCC, *compiler, *flags, headers, str(source), "-o", str(program), *linked])
    return str(program)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr
