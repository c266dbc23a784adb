"""Workers of a sweep: a Dask cluster, the ranks of an MPI job, and any executor of Python find what
processes find."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.tools.swept import PERCEPTRON

import collir
from collir.tools.collir import main
from collir.tools.mpi_run import mpiexec

OPTIONS = ("--machine", "@dgx_a100_80gb", "--devices", "4", "--degree", "pipe=1", "--json")
MORE = ("--degree", "model=1,2", "--microbatch", "2", "--zero", "0,1", "--recompute", "none")

RUN = "import sys; from collir.tools.collir import main; sys.exit(main())"


@pytest.mark.turns
def test_workers_of_a_cluster_find_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    distributed: Any = pytest.importorskip("distributed")
    arguments = ["sweep", str(PERCEPTRON.path), *OPTIONS, *MORE]
    assert main(arguments) == 0
    alone = json.loads(capsys.readouterr().out)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        assert main([*arguments, "--executor", address]) == 0
    assert json.loads(capsys.readouterr().out) == alone
    command = [sys.executable, "-c", RUN, *arguments, "--executor", "mpi"]
    assert json.loads(mpiexec(3, command)) == alone


@pytest.mark.turns
def test_a_function_of_python_finds_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(PERCEPTRON.path), *OPTIONS, *MORE, "--pareto"]) == 0
    alone = json.loads(capsys.readouterr().out)
    with ThreadPoolExecutor(2) as executor:
        found = collir.sweep(
            collir.parse(PERCEPTRON.path),
            executor=executor,
            machine="@dgx_a100_80gb",
            devices=4,
            degree={"pipe": 1, "model": [1, 2]},
            microbatch=2,
            zero=(0, 1),
            recompute="none",
            pareto=True,
            settings="megatron",
        )
    assert "--micro-batch-size" in found.pop("settings")
    assert found == alone
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": 4}, "sweep has no option 'device', but checkpoint, chunks, csv, degree"),
        ({"devices": "four"}, "--devices four: write whole numbers above 0"),
        ({"degree": {"expert": 2}}, "--degree expert=2: the axes are pipe, data, model"),
    ],
)
def test_options_of_the_function_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(collir.UsageError, match=message):
        collir.sweep(PERCEPTRON.path, **options)
