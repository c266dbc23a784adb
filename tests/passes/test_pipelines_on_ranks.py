"""What pipelines make of collectives over several axes, on MPI ranks."""

from pathlib import Path

import pytest
from support.harness.seeds import some

import collir
from collir.ir.functions import functions_of
from collir.passes.pipelines import PIPELINES
from collir.tools import collrun

EXAMPLE = Path(__file__).parents[2] / "examples" / "parallelism.coll"


@pytest.mark.turns
@pytest.mark.parametrize("name", some(list(PIPELINES), 3))
def test_pipelines_on_ranks(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every rank's buffers are compared with numpy's."""
    functions = functions_of(collir.parse(EXAMPLE))
    status = collrun.main(["--engine", "mpi", "-n", "8", "-p", name, str(EXAMPLE)])
    printed = capsys.readouterr()
    assert status == 0, printed.out + printed.err
    assert printed.out.count("every rank's buffers are equal") == len(functions)
