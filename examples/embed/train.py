"""Gradient descent on every rank, with the gradients summed by what collir emitted."""

import numpy as np
from mpi4py import MPI
from sync import M

WEIGHTS, STEPS = 1048576, 20

world = MPI.COMM_WORLD
mesh = M(world)
weights = np.zeros(WEIGHTS, dtype=np.float32)

for _ in range(STEPS):
    gradient = weights - np.float32(world.rank)
    weights -= 0.5 * mesh.sync_gradients(gradient) / world.size

least = world.allreduce(weights.min(), MPI.MIN)
most = world.allreduce(weights.max(), MPI.MAX)
if least != most:
    raise SystemExit("the ranks have other weights")
if world.rank == 0:
    print(f"after {STEPS} steps the weights are {most:.4f} on all ranks")
mesh.free()
