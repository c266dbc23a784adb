"""Time functions of an emitted mpi4py program on a rank, in turns, each behind a barrier.

Arguments: the folder with `program.py` and the inputs of each rank, the number of runs, and whether
each rank runs the functions for itself, which then are on a mesh of one device; then, the least
seconds of a run: a function runs until they are over, and the time is that of one call.
"""

import math
import os
import pickle
import sys
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # ranks share the cores
from mpi4py import MPI


def main() -> None:
    """Run every function once to warm up, then in turns; rank 0 writes the times of all ranks."""
    folder, runs, alone = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "alone"
    least = float(sys.argv[4]) if alone else 0.0
    sys.path.insert(0, str(folder))
    import program

    world = MPI.COMM_WORLD
    calls = pickle.loads((folder / f"{world.rank}.in").read_bytes())
    names = dict.fromkeys(mesh for mesh, _, _ in calls)  # in the same order on all ranks
    own = MPI.COMM_SELF if alone else world
    meshes = {name: getattr(program, name)(own) for name in names}
    times: list[list[list[float] | None]] = [[] for _ in calls]
    results: list[list[float]] = [[] for _ in calls]
    for run in range(-1, runs):
        for number, (mesh, name, arguments) in enumerate(calls):
            world.Barrier()
            result, count, taken, start = None, 0, 0.0, time.perf_counter()
            while not count or (run >= 0 and taken < least):
                result = getattr(meshes[mesh], name)(*arguments)
                count, taken = count + 1, time.perf_counter() - start
            each = world.gather(taken / count)
            if run >= 0:
                times[number].append(each)
            else:
                first = result[0] if isinstance(result, tuple) else result
                own = -math.inf if first is None else float(first.ravel()[0])
                results[number].append(world.allreduce(own, MPI.MAX))  # one stage has the loss
    if world.rank == 0:
        (folder / "times").write_bytes(pickle.dumps((times, results)))
    for mesh in meshes.values():
        mesh.free()


main()
