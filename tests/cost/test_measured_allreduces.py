"""All_reduces measured by nccl-tests on one node, from the CSV files of VIA-Research/vTrain."""

import statistics

import pytest

from collir.cost.calibration import calibrate
from collir.cost.calibration.values import Sample
from collir.cost.model import CostModel, step_cost
from collir.importing.measurements import files
from collir.importing.measurements.tables import extents
from collir.importing.values import ReadError, TextPlace
from collir.machine import Machine
from collir.tools.machine import preset

HEADER = "size(B),count,type,time(ns),busbw(GB/s)\n"

TIMES = {
    # Pairs of bytes and nanoseconds, by the number of GPUs
    "a100": {
        2: "11534336,106300 42991616,281400 105906176,618400 294649856,1589700 609222656,3201900",
        4: "11534336,133800 42991616,359200 105906176,814800 294649856,2106300 609222656,4245300",
        8: "11534336,169400 42991616,396100 105906176,930300 294649856,2360600 609222656,4739400",
    },
    "v100": {
        2: "11534336,535100 42991616,1933000 105906176,4716400 294649856,13078000",
        4: "11534336,233500 42991616,782700 105906176,1876300 294649856,5212200",
        8: "11534336,301400 42991616,597200 105906176,1408300 294649856,3864800",
    },
}


def machine(name: str) -> Machine:
    return preset(name).op.value()


def samples(on: Machine, gpu: str) -> list[Sample]:
    listed: list[Sample] = []
    for gpus, rows in TIMES[gpu].items():
        lines = [f"{size},0,float,{time},0" for size, time in map(_pair, rows.split())]
        text = HEADER + "\n".join(lines)
        name = f"allreduce_{gpu}_{gpus}gpu.csv"
        over = extents(f"gpu:{gpus}", TextPlace(1))
        listed += files.samples(on, files.read(text, None, name), name, over)
    return listed


def _pair(text: str) -> tuple[str, str]:
    size, time = text.split(",")
    return size, time


def test_an_a100_node_is_predicted_by_default() -> None:
    measured = samples(machine("dgx_a100"), "a100")
    assert len(measured) == 15
    errors = [step_cost(s.collective, CostModel()).time / s.seconds - 1 for s in measured]
    assert statistics.median(map(abs, errors)) < 0.1


def test_links_that_depend_on_the_group_are_fitted() -> None:
    """Two V100 share one or two links, four and eight more; half of the times are held back."""
    fit = calibrate(machine("gcp_v100x8"), samples(machine("gcp_v100x8"), "v100"), held_back=0.5)
    names = {parameter.name: parameter for parameter in fit.parameters}
    assert names["gpu.part[2]"].fitted and names["gpu.part[4]"].fitted and names["gpu.port"].fitted
    errors = [abs(residual.error) for residual in fit.held_back]
    assert statistics.median(errors) < 0.1


def test_groups_that_do_not_divide_a_level() -> None:
    over = extents("gpu:3", TextPlace(1))
    text = f"{HEADER}3145728,0,float,100000,0"
    [sample] = files.samples(machine("dgx_a100"), files.read(text, "all_reduce"), "x.csv", over)
    assert sample.collective.ranks == 3
    with pytest.raises(ReadError, match="has 8 children, not 9"):
        files.samples(
            machine("dgx_a100"), files.read(text, "all_reduce"), "x", extents("gpu:9", TextPlace(1))
        )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (HEADER + "1024,256,float,10,0", "not said which collective"),
        (HEADER, "no times that can be used"),
        (HEADER + "1024,256,float,soon,0", "no times that can be used"),
        (HEADER + "x,256,float,10,0", "a size must be an integer, not 'x'"),
    ],
)
def test_what_is_wrong_with_a_csv_file(text: str, why: str) -> None:
    with pytest.raises(ReadError) as error:
        files.read(text, None if "which" in why else "all_reduce", "times.csv")
    assert why in error.value.message
