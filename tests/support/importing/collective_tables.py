"""Tables of collectives that benchmarks other than nccl-tests, OSU and IMB print."""

import json

from support.importing.benchmark_outputs import IMB_TITLES, OSU_TITLES, Truth, number

from collir.cost.collectives.table import COSTS

NVSHMEM_JOBS = {
    "all_reduce": "reduction",
    "reduce_scatter": "reducescatter",
    "all_gather": "fcollect",
    "all_to_all": "alltoall",
    "broadcast": "broadcast",
}
MSCCLPP_PROGRAMS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "all_to_all": "alltoall",
}
RECORD_NAMES = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_to_all": "AlltoAll",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "gather": "Gather",
    "scatter": "Scatter",
}
PIECES = ("all_gather", "reduce_scatter")
"""Collectives of which DeepSpeed prints the part of a rank."""


def busbw(truth: Truth, size: int, time: float) -> float:
    """Return the bandwidth of the bus in GB/s, of a time in us."""
    return size / time * 1e-3 * COSTS[truth.kind].busbw(truth.all_ranks)


def payload(size: int) -> str:
    """Return a size as all_reduce_bench.py prints it."""
    unit = max(size.bit_length() - 1, 0) // 10
    return f"{size >> 10 * unit}{' KMGTPE'[unit].strip()}iB"


def torch_lines(truth: Truth, version: str) -> list[str]:
    """Return the lines of all_reduce_bench.py, of torch-dist-bench.py, or of the first version."""
    ranks, lines = truth.all_ranks, list[str]()
    if version == "sentence":
        for size, (time, _) in truth.times:
            lines += [
                f"The average bandwidth of {truth.kind} with a {size / 1e9}GB payload "
                f"(5 trials, {ranks} ranks):",
                f" algbw: {size / time * 1e-3:.3f} GBps ({size / time * 8e-3:.1f} Gbps)",
                f" busbw: {busbw(truth, size, time):.3f} GBps (1.0 Gbps)",
                "",
            ]
        return lines
    latency = version == "latency"
    what = "bandwidth and the per-call latency" if latency else "bandwidth"
    lines = ["Environment:", "- software: torch=2.7.0", ""]
    lines += [f"The average {what} of {truth.kind} over {ranks} ranks (5 warmups / 20 trials):", ""]
    more = " latency median |    p99    |    mean   | calls |" if latency else ""
    lines.append("| payload |    busbw   |    algbw   |" + more)
    lines.append("| ------: | ---------: | ---------: |" + (" ---: |" * 4 if latency else ""))
    for size, (time, _) in truth.times:
        bandwidths = f"{busbw(truth, size, time):6.2f}GBps | {size / time * 1e-3:6.2f}GBps |"
        more = f" {time * 0.9:.1f}us | {time * 2:.1f}us | {time:.1f}us |   100 |" if latency else ""
        lines.append(f"| {payload(size):>7} | {bandwidths}{more}")
    return [*lines, "", "*** Plotting results into busbw-mean-host-8.png", ""]


def deepspeed_lines(truth: Truth, version: str) -> list[str]:
    """Return the lines of DeepSpeed's benchmark; "raw" has no units."""
    lines = [f"---- Performance of {truth.kind} on {truth.all_ranks} devices -----------"]
    unit = "GBps" if version == "bytes" else "Gbps"
    lines.append(f"Size (Bytes)   Description   Duration   Throughput ({unit})   BusBW ({unit})")
    lines.append("-" * 100)
    for size, (time, _) in truth.times:
        part = size // truth.all_ranks if truth.kind in PIECES else size
        rate = busbw(truth, size, time) * (1 if version == "bytes" else 8)
        shown = f"{part}" if version == "raw" else f"{part / 1024:.2f} KB"
        duration = f"{time:.3f}" if version == "raw" else f"{time / 1000:.6f} ms"
        lines.append(f"{shown:<20} {part}x1   {duration:<20} {rate:<20.6f} {rate:<20.6f}")
    return [*lines, ""]


def nvshmem_lines(truth: Truth, version: str) -> list[str]:
    """Return the lines of NVSHMEM's tests, on a stream or on a device."""
    device, job = version == "device", NVSHMEM_JOBS[truth.kind]
    redop = "redop     " if "reduc" in job else ""
    name = f"device_{job}" if device and redop else f"{job}_{'device' if device else 'on_stream'}"
    lines: list[str] = []
    for scope in ("thread", "block") if device else ("",):
        lines += [f"#{name:>10}", f"size(B)     count     type      {redop}"]
        lines[-1] += "scope     latency(us)       " if device else "latency(us)       "
        lines[-1] += "" if device else "min_lat(us)       max_lat(us)       "
        lines[-1] += "algbw(GB/s)   busbw(GB/s)"
        for size, (time, _) in truth.times:
            time *= 9 if scope == "thread" else 1
            cells = [str(size), str(size // 4), "float", *(["sum"] if redop else [])]
            cells += [scope, f"{time:.6f}"] if device else [f"{time:.6f}"] * 3
            cells += [f"{size / time * 1e-3:.3f}", f"{busbw(truth, size, time):.3f}"]
            lines.append("    ".join(cells) + "   ")
    return lines


def mscclpp_lines(truth: Truth, version: str) -> list[str]:
    """Return the lines of MSCCL++'s tests, which run in place only; "unchecked" count nothing."""
    lines = [f"$ mpirun -np 8 ./build/bin/mscclpp-test/{MSCCLPP_PROGRAMS[truth.kind]}_test_perf"]
    lines += ["# minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 10 iters: 100", "#"]
    for rank in range(truth.all_ranks):
        host, device = divmod(rank, truth.ranks)
        lines.append(f"#  Rank {rank:2} Pid {9 + rank:6} on node-{host} device {device:2} [0x07] A")
    lines += ["#", "# Initializing MSCCL++", "#  in-place   out-of-place"]
    lines += ["#       size         count     time   algbw   busbw  #wrong" + "     time   algbw"]
    lines[-1] += "   busbw  #wrong"
    for size, (time, _) in truth.times:
        digits = 0 if time >= 10000 else 1 if time >= 100 else 2
        line = f"{size:12}  {size // 4:12}  {time:7.{digits}f}  {size / time * 1e-3:6.2f}  "
        wrong = "" if version == "unchecked" else "      0"
        lines.append(line + f"{busbw(truth, size, time):6.2f}{wrong}")
    return [*lines, "", "# Out of bounds values : 0 OK"]


def mscclpp_time(time: float) -> float:
    """Return a time as MSCCL++ prints it."""
    return round(time, 0 if time >= 10000 else 1 if time >= 100 else 2)


def records(truth: Truth, version: str) -> str:
    """Return the JSON of rccl-tests, or of MSCCL++, which has a record a line."""
    result: list[str] = []
    for size, times in truth.times:
        for place, time in enumerate(times):
            record = {
                "name": RECORD_NAMES[truth.kind],
                "nodes": truth.hosts,
                "ranks": truth.all_ranks,
                "ranksPerNode": truth.ranks,
                "gpusPerRank": 1,
                "size": size,
                "inPlace": place,
                "time": time,
                "algBw": size / time * 1e-3,
                "busBw": busbw(truth, size, time),
                "wrong": "0",
            }
            if version == "lines":
                del record["wrong"], record["inPlace"], record["gpusPerRank"]
            result.append(json.dumps(record))
    return "\n".join(result) if version == "lines" else "[\n" + ",\n".join(result) + "\n]\n"


def rounded(time: float) -> float:
    """Return a time as nccl-tests prints it."""
    return float(number(time, 7))


def osu_overlap_lines(truth: Truth, version: str) -> list[str]:
    """Return the lines of a non-blocking or persistent test of OSU; "full" has more columns."""
    mode = "Persistent" if "persistent" in version else "Non-blocking"
    full = "full" in version
    lines = ["", f"# OSU MPI-CUDA {mode} {OSU_TITLES[truth.kind]} Latency Test v7.5"]
    lines += ["# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait", "", "# Datatype: MPI_INT."]
    names = ["Overall(us)", "Compute(us)"]
    names += ["Coll. Init(us)", "MPI_Test(us)", "MPI_Wait(us)"] if full else []
    lines.append("# Size    " + "".join(f"{name:>18}" for name in [*names, "Pure Comm.(us)"]))
    lines[-1] += f"{'Overlap(%)':>18}"
    for size, (time, _) in truth.times:
        cells = [time * 1.5, time, *([1.0, 2.0, 3.0] if full else []), time, 33.3]
        lines.append(f"{size:<10}" + "".join(f"{cell:18.2f}" for cell in cells))
    return lines


def osu_validated_lines(truth: Truth, version: str) -> list[str]:
    """Return the lines of a test of OSU that checks its results."""
    lines = [f"# OSU MPI {OSU_TITLES[truth.kind]} Latency Test v7.4", "# Datatype: MPI_CHAR."]
    lines.append(f"{'# Size':<10}{'Avg Latency(us)':>18}{'Validation':>18}")
    for size, (time, _) in truth.times:
        lines.append(f"{size:<10}{time:18.2f}{version or 'Pass':>18}")
    return lines


def imb_group_lines(truth: Truth, version: str) -> list[str]:
    """Return the lines of IMB with two groups at the same time, or of a non-blocking collective."""
    title = IMB_TITLES[truth.kind]
    lines = ["#-----------------------------------"]
    if version == "multi":
        lines += [f"# Benchmarking Multi-{title} "]
        lines += [f"# ( 2 groups of {truth.all_ranks} processes each running simultaneous ) "]
        lines += ["# Group  0:     0    1", "# Group  1:     2    3", lines[0]]
        lines += ["  Group       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]"]
    elif version == "pure":
        lines += [f"# Benchmarking I{title.lower()}_pure ", f"# #processes = {truth.all_ranks} "]
        lines += ["       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]"]
    else:
        lines += [f"# Benchmarking I{title.lower()} ", f"# #processes = {truth.all_ranks} "]
        lines += ["       #bytes #repetitions t_ovrl[usec] t_pure[usec]  t_CPU[usec]   overlap[%]"]
    for size, (time, _) in truth.times:
        before = [time * 1.7, time] if version == "overlap" else [time / 2, time * 2]
        after = [time * 3, 33.3] if version == "overlap" else [time]
        row = f"{size:13} {1000:12} " + " ".join(f"{cell:12.2f}" for cell in [*before, *after])
        lines += [f"{0:6} {row}", f"{1:6} {row}", ""] if version == "multi" else [row]
    return [*lines, "", "# All processes entering MPI_Finalize"]


def perftest_lines(truth: Truth, version: str) -> list[str]:
    """Return the lines of a latency test of perftest; "old" has fewer columns."""
    line = "-" * 87
    lines = [line, "                    RDMA_Write Latency Test"]
    lines += [
        " Dual-port       : OFF          Device         : mlx5_0",
        " Mtu             : 4096[B]",
    ]
    lines += [line, " local address: LID 0x03 QPN 0x0352 PSN 0xa7af12", line]
    lines += [" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]"]
    if version != "old":
        lines[-1] += (
            "    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
        )
    for size, (time, _) in truth.times:
        cells = [time / 2, time * 2, time if version == "old" else time * 0.9]
        cells += [] if version == "old" else [time, 0.20, time, time]
        lines.append(f" {size:<7} 1000          " + "        ".join(f"{x:.2f}" for x in cells))
    return [*lines, line]
