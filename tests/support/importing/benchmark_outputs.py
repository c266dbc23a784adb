"""Outputs of benchmarks as their versions print them, behind launchers and among other lines."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from collir.cost.collectives.table import COSTS

VERSIONS = ("new", "times of day", "iterations", "groups", "wrong", "error", "rccl", "pasted")
"""Versions of nccl-tests, the latest first; ``pasted`` has lost its # signs."""

PREFIXES = (
    "",
    "[0] ",
    "0: ",
    " 0: ",
    "[rank0]:",
    "[default0]:",
    "[node-1:0]:",
    "[job-1234,rank 0] ",
    "> ",
    "> > ",
    "    ",
    "[1,0]<stdout>:",
    "[1,0]<stdout>: ",
    "[prterun-host-4321@1,0]<stdout>: ",
    "[42][node-1:77]<stdout>: ",
    "Fri Feb 10 10:11:{second:02} 2012[1,0]<stdout>:",
    "Fri Feb 10 10:11:{second:02} 2012<stdout>:",
    "2024-05-01T12:00:{second:02}.123456789Z ",
    "2024-05-01T12:00:{second:02}.123456789Z [1,0]<stdout>:",
    "[pod/nccl-launcher-x7f2k/launcher] ",
    "nccl-launcher-x7f2k launcher ",
    "worker-1  | ",
    "node-1: ",
    "(head, rank=0, pid=3808) [1,0]<stdout>:",
    "Nov 27 09:16:{second:02} node-1 job[812]: ",
    "[2024-05-01 12:00:{second:02},123] INFO ",
    "\x1b[36m[1,0]<stdout>:\x1b[0m",
)
"""What launchers and people write in front of lines."""

REDOPS = {"all_reduce": "sum", "reduce_scatter": "sum", "reduce": "sum"}
ROOTS = ("broadcast", "reduce", "gather", "scatter")
OLD_COLUMNS = {
    "all_reduce": ["redop"],
    "reduce_scatter": ["redop"],
    "reduce": ["redop", "root"],
    "broadcast": ["root"],
    "all_to_all": ["redop"],
}
"""The columns beside size, count and type in old versions; alltoall left redop blank."""


@dataclass(frozen=True)
class Truth:
    """What was measured: times in us, out of place and in place, by size."""

    kind: str
    hosts: int
    ranks: int
    times: tuple[tuple[int, tuple[float, float]], ...]

    @property
    def all_ranks(self) -> int:
        return self.hosts * self.ranks


@st.composite
def truths(draw: st.DrawFn, kinds: Sequence[str]) -> Truth:
    """Draw measurements on 1 to 5 hosts."""
    hosts, ranks = draw(st.integers(1, 5)), draw(st.sampled_from([1, 2, 4, 8]))
    sizes = sorted(draw(st.sets(st.integers(3, 33), min_size=1, max_size=5)))
    time = st.integers(100, 10_000_000).map(lambda hundredths: hundredths / 100)
    times = tuple((1 << size, draw(st.tuples(time, time))) for size in sizes)
    return Truth(draw(st.sampled_from(kinds)), hosts, ranks + (hosts == ranks == 1), times)


def number(value: float, width: int) -> str:
    """Return a number as nccl-tests prints it in a column."""
    digits = len(str(int(value)))
    return f"{value:{width}.{2 if digits < width - 2 else 1 if digits < width - 1 else 0}f}"


def printed(value: float) -> float:
    """Return a time as it is read from the column of times."""
    return float(number(value, 7))


def nccl_lines(truth: Truth, version: str) -> list[str]:
    """Return the lines that a version of nccl-tests prints."""
    entry = COSTS[truth.kind]
    old = version in ("error", "rccl")
    lines: list[str] = []
    if version in ("new", "times of day", "iterations"):
        lines += ["# nccl-tests version 2.17.6 nccl-headers=22705 nccl-library=22705"]
        lines += [f"# Collective test starting: {entry.perf}_perf"]
    start = "nThreads: 1 nGpus: 1 nRanks: 1" if version == "rccl" else "nThread 1 nGpus 1"
    lines += [f"# {start} minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20"]
    lines += ["#", "# Using devices"]
    for rank in range(truth.all_ranks):
        host, device = divmod(rank, truth.ranks)
        group = "" if old or version == "wrong" else " Group  0"
        where = f"Pid {900 + rank:6} on {f'node-{host}':>10} device {device:2} [0x{device:02x}]"
        lines.append(f"#  Rank {rank:2}{group} {where} GPU")
    columns = OLD_COLUMNS.get(truth.kind, []) if old else ["redop", "root"]
    group = ["time", "algbw", "busbw", "error" if old else "#wrong"]
    group += ["i_min", "i_max", "i_p99", "i_cv%"] if version == "iterations" else []
    last = ["timestamp"] if version == "times of day" else []
    lines += ["#", "#  out-of-place  in-place", f"#  {'  '.join(['size', 'count', 'type'])}  "]
    lines[-1] += "  ".join([*columns, *group, *group, *last])
    lines += ["#  (B)  (elements)  (us)  (GB/s)  (GB/s)  (us)  (GB/s)  (GB/s)"]
    cells = {
        "redop": "" if old and truth.kind == "all_to_all" else REDOPS.get(truth.kind, "none"),
        "root": "0" if truth.kind in ROOTS else "-1",
    }
    for size, times in truth.times:
        line = f"{size:12} {size // 4:12} {'float':>8} " + " ".join(cells[at] for at in columns)
        for at, time in enumerate(times):
            algbw = size / time * 1e-3
            busbw = algbw * entry.busbw(truth.all_ranks)
            wrong = "N/A" if at and truth.kind == "all_to_all" else "0e+00" if old else "0"
            line += f"  {number(time, 7)} {number(algbw, 6)} {number(busbw, 6)} {wrong:>6}"
            line += "   1.00   9.00   8.00   3.10" if version == "iterations" else ""
        lines.append(line + ("  2025-11-27 09:16:00" if last else ""))
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 12.5", "#"]
    return [line.replace("#", " ", 1) for line in lines] if version == "pasted" else lines


def nccl_json(truth: Truth) -> str:
    """Return the JSON that nccl-tests writes of a run with a process for each host."""
    entry = COSTS[truth.kind]
    devices = [
        {"rank": host * truth.ranks, "group": 0, "pid": 7, "hostname": f"node-{host}", "device": 0}
        for host in range(truth.hosts)
    ]
    results: list[dict[str, object]] = []
    for size, times in truth.times:
        result: dict[str, object] = {"size": size, "redop": REDOPS.get(truth.kind, "none")}
        result["root"] = "     0" if truth.kind in ROOTS else "    -1"
        for place, time in zip(("out_of_place", "in_place"), times, strict=True):
            algbw = size / time * 1e-3
            bandwidths = {"alg_bw": algbw, "bus_bw": algbw * entry.busbw(truth.all_ranks)}
            unchecked = place == "in_place" and truth.kind == "all_to_all"
            result[place] = {"time": time, "nwrong": None if unchecked else 0.0, **bandwidths}
        results.append(result)
    config = {"nthreads": 1, "ngpus": truth.ranks, "devices": devices}
    return json.dumps({"version": 2, "args": ["/bin/x"], "config": config, "results": results})


OSU_TITLES = {
    "all_reduce": "Allreduce",
    "all_gather": "Allgather",
    "reduce_scatter": "Reduce_scatter",
    "all_to_all": "All-to-All Personalized Exchange",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "gather": "Gather",
    "scatter": "Scatter",
}
OSU_VERSIONS = ("5.9", "6.2 full", "7.4 cuda full", "7.3 pasted")
PER_RANK = ("all_gather", "all_to_all", "gather", "scatter")


def osu_lines(truth: Truth, version: str) -> list[str]:
    """Return the lines that a version of the OSU benchmarks prints; "full" has more columns."""
    full = "full" in version
    device = "-CUDA" if "cuda" in version else ""
    lines = [f"# OSU MPI{device} {OSU_TITLES[truth.kind]} Latency Test v{version.split()[0]}"]
    lines += ["# Datatype: MPI_CHAR."] if version.startswith("7") else []
    more = "   Min Latency(us)   Max Latency(us)  Iterations" if full else ""
    lines.append(f"# Size       Avg Latency(us){more}")
    for size, (time, _) in truth.times:
        line = f"{size:<10} {time:>18.2f}"
        lines.append(line + (f" {time / 2:17.2f} {time * 2:17.2f} {100:11}" if full else ""))
    return [line.replace("# ", "", 1) for line in lines] if "pasted" in version else lines


IMB_TITLES = {
    "all_reduce": "Allreduce",
    "all_gather": "Allgather",
    "reduce_scatter": "Reduce_scatter",
    "all_to_all": "Alltoall",
    "broadcast": "Bcast",
    "reduce": "Reduce",
    "gather": "Gather",
    "scatter": "Scatter",
}


def imb_lines(truth: Truth) -> list[str]:
    """Return the lines that the Intel MPI Benchmarks print."""
    lines = [f"# Benchmarking {IMB_TITLES[truth.kind]} ", f"# #processes = {truth.all_ranks} "]
    lines += ["       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]"]
    lines += ["            0         1000         0.03         0.05         0.04"]
    for size, (time, _) in truth.times:
        lines.append(f"{size:13} {1000:12} {time / 2:12.2f} {time * 2:12.2f} {time:12.2f}")
    return [*lines, "", "# All processes entering MPI_Finalize"]


NOISE = (
    "node-0:900:912 [0] NCCL INFO Channel 00/02 : 0 1 2 3",
    "node-0:900:912 [0] NCCL INFO 4096 Bytes -> Algo 0 proto 0 time 25.874907",
    "node-1:901:913 [1] NCCL INFO comm 0x5e303a52bd70 rank 1 nranks 4 - Init COMPLETE",
    "[2025-06-01 12:00:00] node-0:900:912 [0] misc/socket.cc:484 NCCL WARN retrying",
    "Warning: Permanently added 'node-1' (ED25519) to the list of known hosts.",
    "[1,1]<stderr>:some warning",
    "[1678205653.808236] [node-0:903  :0]  ucc_coll.c:255  UCC_COLL INFO  coll_init: Barrier",
    "+ mpirun -np 8 -x NCCL_DEBUG=INFO run.sh",
    "libibverbs: Warning: couldn't load driver",
    "  3%|\u258e         | 1/30 [00:00<00:12,  2.31it/s]\r 10%|\u2588         | 3/30 [00:01<00:11]",
    "",
)


@st.composite
def logs(draw: st.DrawFn, lines: Sequence[str]) -> tuple[str, list[int]]:
    """Draw a log of lines: behind a prefix, among noise. Return it, and the number of each line."""
    prefix = draw(st.sampled_from(PREFIXES))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    written: list[str] = []
    numbers: list[int] = []
    for second, line in enumerate(lines):
        written += draw(st.lists(st.sampled_from(NOISE), max_size=2))
        spaced = line.replace("  ", "\t") if draw(st.booleans()) else line
        written.append(prefix.format(second=second % 60) + spaced)
        numbers.append(len(written))
    return end.join(written), numbers
