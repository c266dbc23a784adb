"""What pipelines make of collectives over several axes, on MPI ranks."""

from pathlib import Path

import pytest
from seeds import chosen

from collir.passes.pipelines import PIPELINES
from collir.tools import collrun

EXAMPLE = Path(__file__).parents[2] / "examples" / "parallelism.coll"

QUICK = chosen([*PIPELINES], 1, "on ranks")


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PIPELINES],
)
def test_pipelines_on_ranks(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every rank's buffers are compared with numpy's."""
    status = collrun.main(["--engine", "mpi", "-n", "8", "-p", name, str(EXAMPLE)])
    printed = capsys.readouterr()
    assert status == 0, printed.out + printed.err
    assert printed.out.count("every rank's buffers are equal") > 10
