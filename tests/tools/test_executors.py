"""``collir sweep --executor``: workers of a Dask cluster find what processes find."""

import json
from typing import Any

import pytest
from swept import PERCEPTRON

from collir.tools.collir import main

OPTIONS = ("--machine", "@dgx_a100_80gb", "--devices", "4", "--degree", "pipe=1", "--json")
MORE = ("--degree", "model=1,2", "--microbatch", "2", "--zero", "0,1", "--recompute", "none")


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
