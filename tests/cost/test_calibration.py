"""Fits of machines to measurements: exact times give the machine back, noisy times an interval that
contains it, and undetermined numbers stay as they were."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.cost.calibrations import SIZES, machines, mesh_of, samples, scaled

from collir.cost.calibration import (
    Calibration,
    CalibrationError,
    FittedParameter,
    Sample,
    calibrate,
)
from collir.cost.calibration.fit import split_samples
from collir.cost.calibration.knobs import knobs_of, machine_with_settings
from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, step_estimate
from collir.cost.network.group import Group
from collir.importing.measurements import files, nccl_tests, osu, own
from collir.importing.measurements.tables import (
    LevelExtent,
    MeasuredRow,
    MeasuredTable,
    MeasuredTables,
    extents,
    mesh_over,
)
from collir.importing.values import ReadError, TextPlace
from collir.machine import Device, Level, Machine

RING = CostModel("alpha-beta", order="written", algorithm="ring")
TWO = Machine("two", (Level("node", 4, 12e9, 17e-6), Level("gpu", 8, 220e9, 4e-6)))
START = scaled(TWO, (0.1, 5, 7, 0.2))
LARGE = (2.0**30, 2.0**32, 2.0**34)


def by_name(fit: Calibration) -> dict[str, FittedParameter]:
    return {parameter.name: parameter for parameter in fit.parameters}


def truth(machine: Machine) -> dict[str, float]:
    """Return the numbers of a machine, by name."""
    knobs = knobs_of(machine)
    return {knob.name: knob.value_of(knob.setting(machine)) for knob in knobs}


# --- exact measurements ---------------------------------------------------------------------------

KINDS = ("all_reduce", "all_gather")
ALGORITHMS = ["cheapest", "runtime", "ring", "direct", "halving_doubling", "pairwise"]


@pytest.mark.turns
@pytest.mark.fixed_cases
@settings(
    max_examples=4,
    derandomize=True,  # about one in 100 random cases ends in a wrong valley
    phases=(Phase.explicit, Phase.generate),  # shrinking takes minutes
)
@given(
    machines(), st.sampled_from(ALGORITHMS), st.lists(st.floats(-1.5, 1.5), min_size=5, max_size=5)
)
def test_exact_times_give_the_machine_back(
    machine: Machine, algorithm: str, powers: Sequence[float]
) -> None:
    model = CostModel("alpha-beta", order="written", algorithm=algorithm)
    start = scaled(machine, [10**power for power in powers])
    fit = calibrate(start, samples(machine, model, KINDS, SIZES[::3]), model)
    right = truth(machine)
    all_fitted = all(parameter.fitted for parameter in fit.parameters)
    for parameter in fit.parameters:
        if parameter.fitted:
            assert parameter.value == pytest.approx(
                right[parameter.name], rel=1e-6 if all_fitted else 0.05
            )
        else:
            assert parameter.reason
    for residual in (*fit.fitted, *fit.held_back):
        assert residual.error == pytest.approx(0, abs=1e-6 if all_fitted else 0.05)


def test_it_starts_from_latencies_of_zero() -> None:
    start = scaled(TWO, (1, 0, 1, 0))
    fit = calibrate(start, samples(TWO, RING, KINDS, SIZES[::2]), RING)
    assert by_name(fit)["gpu.latency"].value == pytest.approx(4e-6)


def test_ports_of_children_keep_their_proportions() -> None:
    ports = (20e9, 10e9, 5e9, 5e9)
    true = Machine("m", (Level("node", 4, 20e9, 5e-6, ports=ports),))
    (level,) = true.levels
    start = replace(
        true, levels=(replace(level, port=2e9, ports=tuple(port / 10 for port in ports)),)
    )
    fit = calibrate(start, samples(true, RING), RING)
    assert fit.machine.levels[0].ports == pytest.approx(ports)


@pytest.mark.turns
def test_the_model_of_nccl_has_latencies_of_the_machine() -> None:
    model = CostModel("nccl", "ring")
    fit = calibrate(START, samples(TWO, model, KINDS, SIZES[::2]), model)
    for parameter in fit.parameters:
        assert parameter.fitted
        assert parameter.value == pytest.approx(truth(TWO)[parameter.name], rel=1e-3)


# --- noise ----------------------------------------------------------------------------------------


@pytest.mark.turns
def test_a_few_outliers_pull_little() -> None:
    measured = samples(TWO, RING, KINDS, noise=0.01)
    for index in range(0, len(measured), 17):
        sample = measured[index]
        measured[index] = Sample(sample.collective, sample.seconds * 20)
    for parameter in calibrate(START, measured, RING).parameters:
        assert parameter.fitted
        assert parameter.value == pytest.approx(truth(TWO)[parameter.name], rel=0.05)


@pytest.mark.turns
def test_intervals_shrink_with_more_times() -> None:
    few = calibrate(START, samples(TWO, RING, KINDS, SIZES[::3], noise=0.02), RING)
    more = calibrate(
        START,
        [s for seed in range(12) for s in samples(TWO, RING, KINDS, noise=0.02, seed=seed)],
        RING,
    )
    for narrow, wide in zip(more.parameters, few.parameters, strict=True):
        assert narrow.high - narrow.low < (wide.high - wide.low) / 3


@pytest.mark.slow
def test_intervals_hold_the_truth_19_times_of_20() -> None:
    """In 999 of 1000 cases, 177 to 200 of 200 intervals of 95 % contain the truth; noise is 2 %."""
    machine = Machine("m", (Level("node", 4, 12e9, 17e-6), Level("gpu", 4, 220e9, 4e-6)))
    held = dict.fromkeys(truth(machine), 0)
    errors: dict[str, list[float]] = {name: [] for name in held}
    for seed in range(200):
        measured = samples(machine, RING, ("all_reduce",), SIZES[2:8], noise=0.02, seed=seed)
        for number in calibrate(machine, measured, RING).parameters:
            held[number.name] += (
                number.fitted and number.low <= truth(machine)[number.name] <= number.high
            )
            errors[number.name].append(abs(number.value / truth(machine)[number.name] - 1))
    for name, count in held.items():
        assert 177 <= count <= 200, f"{name}: {count}"
        assert sorted(errors[name])[100] < 0.02


# --- points held back, and undetermined numbers ---------------------------------------------------


@pytest.mark.turns
def test_what_is_held_back_is_never_looked_at() -> None:
    measured = samples(TWO, RING, KINDS, SIZES[::2], noise=0.02)
    used, kept = split_samples(measured, 0.2)
    assert len(kept) == len(measured) // 5
    assert {sample.collective for sample in used}.isdisjoint(sample.collective for sample in kept)
    points = {sample.collective for sample in kept}
    changed = [
        Sample(sample.collective, sample.seconds * (9 if sample.collective in points else 1))
        for sample in measured
    ]
    fit, same = calibrate(START, measured, RING), calibrate(START, changed, RING)
    assert same.machine == fit.machine
    assert [residual.sample for residual in fit.held_back] == list(kept)
    assert same.held_back[0].error < fit.held_back[0].error / 2 - 0.4


def test_times_of_one_point_are_held_back_together() -> None:
    once = samples(TWO, RING)
    _, kept = split_samples([sample for sample in once for _ in range(2)], 0.2)
    assert len(kept) == 2 * len(split_samples(once, 0.2)[1])
    assert split_samples(once, 0)[1] == ()
    with pytest.raises(CalibrationError, match="the part that is held back"):
        split_samples(once, 1)


def test_a_level_that_nothing_crosses_keeps_its_numbers() -> None:
    inside = samples(TWO, RING, over=[("a.gpu",)])
    numbers = by_name(calibrate(START, inside, RING))
    for name in ("node.port", "node.latency"):
        assert numbers[name].value == numbers[name].given
        assert numbers[name].reason == "no measurement crosses level 'node'"
    assert numbers["gpu.port"].value == pytest.approx(220e9)


@pytest.mark.turns
def test_large_buffers_do_not_tell_latencies() -> None:
    measured = samples(TWO, RING, KINDS, LARGE, noise=0.02, seed=1)
    numbers = by_name(calibrate(START, measured, RING))
    assert not numbers["node.latency"].fitted
    assert not numbers["gpu.latency"].fitted
    assert numbers["node.latency"].value == pytest.approx(85e-6)  # as it was
    assert numbers["node.port"].value == pytest.approx(12e9, rel=0.03)


def test_a_number_that_times_contradict_goes_as_near_to_them_as_it_must() -> None:
    """The measurements do not determine the latency, but exclude 1 s."""
    start = scaled(TWO, (1, 1, 1, 1 / 4e-6))
    measured = samples(TWO, RING, sizes=LARGE, over=[("a.gpu",)], noise=0.02)
    latency = by_name(calibrate(start, measured, RING))["gpu.latency"]
    assert latency.given == pytest.approx(1)
    assert not latency.fitted
    assert latency.value < 0.01
    assert latency.low <= latency.value <= latency.high


def test_numbers_that_cannot_be_told_apart() -> None:
    """A ring sends and reduces in proportion for all sizes."""
    true = Machine("m", (Level("gpu", 4, 100e9, 3e-6),), Device(reduction=50e9))
    start = scaled(true, (2, 2, 1))
    numbers = by_name(calibrate(start, samples(true, RING, ("all_reduce",)), RING))
    assert numbers["reduction"].reason == "it cannot be told from gpu.port"
    assert numbers["reduction"].value == pytest.approx(50e9)
    assert numbers["gpu.port"].value == pytest.approx(100e9)


def test_a_slow_network_is_not_laid_to_faster_links_inside() -> None:
    """Groups of all GPUs tell of the slowest port, not of which it is."""
    true = Machine("m", (Level("node", 2, 215e9, 17e-6), Level("gpu", 8, 370e9, 4e-6)))
    start = scaled(true, (400 / 215, 1, 1, 1))
    over = [("a.node", "a.gpu")]
    measured = samples(true, RING, ("all_gather",), over=over, noise=0.02)
    numbers = by_name(calibrate(start, measured, RING))
    assert numbers["node.port"].value == pytest.approx(215e9, rel=0.05)
    assert numbers["gpu.port"].value == numbers["gpu.port"].given
    assert numbers["gpu.port"].reason == "node.port explains the times as well"
    assert numbers["gpu.port"].low < 230e9 < math.inf == numbers["gpu.port"].high

    inside = samples(true, RING, ("all_gather",), over=[("a.gpu",)], noise=0.02)
    numbers = by_name(calibrate(start, [*measured, *inside], RING))
    assert numbers["gpu.port"].fitted
    assert numbers["gpu.port"].value == pytest.approx(370e9, rel=0.05)
    assert numbers["node.port"].value == pytest.approx(215e9, rel=0.05)


def test_numbers_are_kept_as_asked() -> None:
    start = scaled(TWO, (1, 1.1, 1, 1))
    fit = calibrate(start, samples(TWO, RING, KINDS, SIZES[::2]), RING, fixed=("node.latency",))
    latency = by_name(fit)["node.latency"]
    assert (latency.value, latency.fitted, latency.reason) == (
        latency.given,
        False,
        "kept, as asked",
    )


def test_as_many_times_as_numbers_leave_no_interval() -> None:
    measured = samples(TWO, RING, ("all_reduce",), (64.0, 2.0**34), over=[("a.gpu",)])
    numbers = by_name(calibrate(START, measured, RING, held_back=0))
    assert numbers["gpu.port"].value == pytest.approx(220e9)
    assert numbers["gpu.port"].high == float("inf")


# --- refused input --------------------------------------------------------------------------------


def test_what_cannot_be_fitted() -> None:
    with pytest.raises(CalibrationError, match="no measurements"):
        calibrate(TWO, [])
    with pytest.raises(CalibrationError, match=r"no number 'gpu\.size'.*node\.port, node\.latency"):
        calibrate(TWO, samples(TWO, RING), RING, fixed=("gpu.size",))
    with pytest.raises(CalibrationError, match="x:1: a time must be positive, not nan"):
        Sample(Collective("all_reduce", mesh_of(TWO), ("a.gpu",), 1.0), float("nan"), "x:1")
    six = Machine("six", (Level("gpu", 6, 1e9, 1e-6),))
    step = Collective("all_gather", mesh_of(six), ("a.gpu",), 1e6, algorithm="recursive_doubling")
    with pytest.raises(CalibrationError, match=r"x:3: the recursive_doubling all_gather needs"):
        calibrate(six, [Sample(step, 1e-3, "x:3")])


def test_knobs_turn_what_they_are_called() -> None:
    machine = replace(TWO, device=Device(reduction=5e9))
    knobs = knobs_of(machine)
    assert [knob.name for knob in knobs] == [
        "node.port",
        "node.latency",
        "gpu.port",
        "gpu.latency",
        "reduction",
    ]
    settings = [knob.setting(machine) for knob in knobs]
    assert machine_with_settings(machine, knobs, settings) == machine
    double = machine_with_settings(machine, knobs, [2 * setting for setting in settings])
    mesh = mesh_of(machine)
    step = Collective("all_reduce", mesh, ("a.node", "a.gpu"), 1e7)
    doubled = replace(step, mesh=replace(mesh, machine=double))
    times = [step_estimate(collective, RING)[1].time for collective in (step, doubled)]
    assert times[1] == pytest.approx(2 * times[0])
    alone = Machine("m", (Level("node", 1, 1e9, 1e-6), Level("gpu", 2, 1e9, 1e-6)))
    assert [knob.name for knob in knobs_of(alone)] == ["gpu.port", "gpu.latency"]


# --- files ----------------------------------------------------------------------------------------

NCCL = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid   1887 on   worker-1 device  0 [0x8d] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1888 on   worker-1 device  1 [0x91] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid   1887 on   worker-0 device  0 [0x8d] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid   1888 on   worker-0 device  1 [0x91] NVIDIA H100 80GB HBM3
worker-1:1887:1990 [0] NCCL INFO comm 0x5e303a52bd70 rank 0 nranks 4 - Init COMPLETE
#
#  out-of-place  in-place
#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong
#  (B)  (elements)  (us)  (GB/s)  (GB/s)  (us)  (GB/s)  (GB/s)
  0  0  float  sum  -1  5.70  0.00  0.00  0  5.54  0.00  0.00  0
  128  32  float  sum  -1  32.31  0.00  0.00  0  25.35  0.01  0.00  0
  1024  256  float  sum  -1  24.01  0.01  0.01  3  1e+02  0.01  0.01  0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.0
#
"""

OLD = """\
#                                             out-of-place                    in-place
#   size    count   type   redop   time   algbw   busbw   error   time   algbw   busbw   error
#    (B)  (elements)               (us)  (GB/s)  (GB/s)           (us)  (GB/s)  (GB/s)
   32768     8192  float     sum  13.39    2.45    1.22   0e+00  11.85    2.77    1.38   5e-07
# Avg bus bandwidth    : 6.6
"""

OSU = """\
# OSU MPI Allgather Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
1                       2.81              1.89              3.73          10
1048576               104.30            104.26            104.33          10

# OSU MPI-CUDA Allreduce Latency Test v5.6.2
# Size       Avg Latency(us)
4                      21.76

# OSU MPI Latency Test v7.4
# Size          Latency (us)
0                       0.24
8                       0.50

# OSU MPI Bandwidth Test v7.4
# Size      Bandwidth (MB/s)
1                       2.32
"""


def test_what_nccl_tests_print() -> None:
    tables = files.read(NCCL, "all_reduce")
    (table,) = tables.tables
    assert table.hosts == (2, 2)
    assert [(row.kind, row.size, row.seconds, row.place.line) for row in table.rows] == [
        ("all_reduce", 128, pytest.approx(32.31e-6), 14),
        ("all_reduce", 128, pytest.approx(25.35e-6), 14),
        ("all_reduce", 1024, pytest.approx(1e-4), 15),
    ]
    assert [(remark.place.line, remark.message) for remark in tables.remarks] == [
        (1, "a line of size 0: left out"),
        (15, "3 elements were wrong: this time is left out"),
    ]


def test_old_tables_of_nccl_tests_and_those_behind_prefixes() -> None:
    (table,) = files.read(OLD, None, "runs/reduce_scatter_perf.log").tables
    assert [(row.kind, row.size) for row in table.rows] == [("reduce_scatter", 32768)] * 2
    tagged = "".join(f" 0: {line}\n" for line in OLD.splitlines())
    assert len(files.read(tagged, "reduce_scatter").tables[0].rows) == 2
    both = f"$ reduce_scatter_perf -g 8\n{OLD}# Collective test starting: sendrecv_perf\n{NCCL}"
    tables = files.read(both)
    assert [table.rows[0].kind for table in tables.tables] == ["reduce_scatter"]
    assert any("no collective whose times are read" in r.message for r in tables.remarks)


def test_what_the_osu_benchmarks_print() -> None:
    tables = files.read(OSU)
    rows = [[(row.kind, row.size, row.per_rank) for row in table.rows] for table in tables.tables]
    assert rows == [
        [("all_gather", 1, True), ("all_gather", 1048576, True)],
        [("all_reduce", 4, False)],
        [("send", 8, False)],
    ]
    assert tables.tables[0].rows[1].seconds == pytest.approx(104.3e-6)
    assert [remark.place.line for remark in tables.remarks] == [16]
    gather, reduce, message = (
        files.samples(TWO, replace(tables, tables=(table,)), "x", over)[-1]
        for table, over in zip(
            tables.tables,
            (
                extents("gpu", TextPlace(1)),
                extents("node:2*gpu:2", TextPlace(1)),
                extents("gpu:2", TextPlace(1)),
            ),
            strict=True,
        )
    )
    assert gather.collective.size == 8 * 1048576
    assert gather.source == "x:5"
    assert (reduce.collective.size, reduce.collective.ranks) == (4, 4)
    assert step_estimate(message.collective, RING)[1].time == pytest.approx(4e-6 + 8 / 220e9)


def test_our_own_files_read_back() -> None:
    over = (LevelExtent("node", 2), LevelExtent("gpu", 2, 2))
    rows = (
        MeasuredRow("all_reduce", 4096, 1.5e-5, TextPlace(1)),
        MeasuredRow("broadcast", 64, 2e-6, TextPlace(1)),
    )
    text = own.written(MeasuredTables("", (MeasuredTable(rows, TextPlace(1), over),)))
    (table,) = files.read(text).tables
    assert table.over == over
    assert [(row.kind, row.size, row.seconds) for row in table.rows] == [
        (row.kind, row.size, row.seconds) for row in rows
    ]


@pytest.mark.parametrize(
    ("over", "own_ranks", "beside"),
    [("gpu", 8, 1), ("node*gpu", 32, 1), ("node:2*gpu:2+4", 4, 4), ("gpu:2+4*node:1+4", 2, 16)],
)
def test_groups_over_parts_of_levels(over: str, own_ranks: int, beside: int) -> None:
    mesh = mesh_over(TWO, extents(over, TextPlace(1)), TextPlace(1))
    axes = [sub.name for sub in mesh.sub_axes if sub.axis == "group"]
    idle = frozenset(sub.name for sub in mesh.sub_axes if sub.axis == "idle")
    group = Group.of(mesh, axes, idle)
    assert group.size == own_ranks
    groups = 1
    for digit in group.others:
        groups *= digit.size
    assert groups == beside
    last = [digit for digit in group.digits if digit.level == 1]
    assert all(digit.step == 1 for digit in last)


@pytest.mark.parametrize(
    ("hosts", "over"),
    [
        ((8,), "gpu"),
        ((4,), "gpu:4"),
        ((8, 8), "node:2*gpu"),
        ((2, 2, 2, 2), "node*gpu:2"),
        ((1, 1), "node:2"),
    ],
)
def test_hosts_are_the_children_of_a_network(hosts: tuple[int, ...], over: str) -> None:
    row = MeasuredRow("all_reduce", 64, 1.0, TextPlace(1))
    tables = MeasuredTables("", (MeasuredTable((row,), TextPlace(1), hosts=hosts),))
    (found,) = files.samples(TWO, tables, "x")
    (expected,) = files.samples(TWO, tables, "x", extents(over, TextPlace(1)))
    assert found.collective == expected.collective


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ((8, 4), "hosts have 8, 4 ranks: only as many on each"),
        ((9,), r"9 ranks on each host are not a part of gpu\[8\] of machine @two"),
        ((6,), "6 ranks on each host are not a part"),
        ((8,) * 3, r"3 hosts are not a part of node\[4\]"),
        ((8,) * 8, "8 hosts are not a part"),
        ((1,), "a group of one rank sends nothing"),
        ((), "it is not said which ranks this is of.*over=node:4"),
    ],
)
def test_ranks_that_the_machine_does_not_have(hosts: tuple[int, ...], message: str) -> None:
    row = MeasuredRow("all_reduce", 64, 1.0, TextPlace(1))
    with pytest.raises(ReadError, match=message):
        files.samples(
            TWO, MeasuredTables("", (MeasuredTable((row,), TextPlace(1), hosts=hosts),)), "x"
        )


def test_racks_fill_from_the_inside() -> None:
    racks = Machine(
        "r",
        (
            Level("rack", 2, 1e9, 1e-6),
            Level("node", 4, 1e9, 1e-6),
            Level("gpu", 2, 1e9, 1e-6),
        ),
    )
    row = MeasuredRow("all_reduce", 64, 1.0, TextPlace(1))
    for count, over in ((2, "node:2*gpu"), (8, "rack*node*gpu")):
        tables = MeasuredTables("", (MeasuredTable((row,), TextPlace(1), hosts=(2,) * count),))
        (found,) = files.samples(racks, tables, "x")
        (expected,) = files.samples(racks, tables, "x", extents(over, TextPlace(1)))
        assert found.collective == expected.collective
    with pytest.raises(ReadError, match=r"6 hosts are not a part of rack\[2\], node\[4\]"):
        files.samples(
            racks, MeasuredTables("", (MeasuredTable((row,), TextPlace(1), hosts=(2,) * 6),)), "x"
        )


@pytest.mark.parametrize(
    "text", [NCCL, OLD, OSU, own.written(MeasuredTables("", ()))], ids=range(4)
)
def test_damaged_files_are_refused_or_read(text: str) -> None:
    """Files are cut off and words in them changed at random; all times that are read are valid."""
    rng = random.Random(text)
    words = ["nan", "-1", "0", "9" * 400, "1e999", "# size count type", "\x00", "Rank", "1e-320"]
    for _ in range(150):
        changed = text.split(" ")
        for _ in range(rng.randint(0, 3)):
            changed[rng.randrange(len(changed))] = rng.choice(words)
        damaged = " ".join(changed)[: rng.randint(0, len(text))]
        try:
            tables = files.read(damaged, "all_reduce")
        except ReadError as error:
            assert 1 <= error.place.line <= damaged.count("\n") + 1
            continue
        for table in tables.tables:
            assert table.rows
            for row in table.rows:
                assert 0 < row.size < 2**63
                assert 0 < row.seconds < 1e300


@pytest.mark.turns
def test_long_lines_take_no_time() -> None:
    for line in ("# OSU MPI " + " " * 10**6, "#" + " " * 10**6 + "size", "a_" * 10**6, "9" * 10**6):
        for head in ("", NCCL, OSU):
            try:
                files.read(head + line, "all_reduce")
            except ReadError:
                continue


@pytest.mark.parametrize("read", [nccl_tests.read, osu.read, own.read])
def test_a_reader_refuses_what_has_no_times(read: Callable[[str], MeasuredTables]) -> None:
    with pytest.raises(ReadError):
        read("nothing\n")
