"""Written by collir VERSION: jax.

Functions take and return arrays on the whole mesh. Importing this module takes the first
devices, in the order of the hardware. As a program, it runs them on random numbers:

    XLA_FLAGS=--xla_force_host_platform_device_count=8 JAX_PLATFORMS=cpu python FILE
"""

import time
from functools import wraps

import jax
import numpy as np
from jax import P, lax
from jax import ShapeDtypeStruct as Array
from jax.sharding import Mesh

# Mesh @m on @cluster: 8 devices, data = node:2 * gpu:4.
devices = jax.devices()
if len(devices) < 8:
    raise RuntimeError(f"mesh @m needs 8 devices, and jax has {len(devices)}")
mesh = Mesh(np.array(devices[:8]).reshape(2, 4), ("data_node", "data_gpu"))


def takes(*types):
    """Check the arguments of a function against types, when it is traced."""

    def checked(function):
        @wraps(function)
        def call(*arguments):
            for n, (x, y) in enumerate(zip(arguments, types, strict=True)):
                if (x.shape, x.dtype) != (y.shape, y.dtype):
                    raise TypeError(f"argument {n} is {jax.typeof(x)}, not {y}")
            return function(*arguments)

        call.types = types
        return call

    return checked


@jax.jit
@takes(
    Array((8, 1048576), "float32"),  # g
)
@jax.shard_map(
    mesh=mesh,
    in_specs=(P(("data_node", "data_gpu")),),
    out_specs=P(),
    check_vma=False,
)
def sync_gradients(g):
    """Return r.

    g[i] is at index i along data, and g is the sum of all.
    """
    g = g[0]
    v0 = lax.psum_scatter(g, "data_gpu", scatter_dimension=0, tiled=True)
    v1 = lax.psum(v0, "data_node")
    return lax.all_gather(v1, "data_gpu", axis=0, tiled=True)


def main():
    """Run every function on random numbers, and print the time of its second run."""
    functions = (sync_gradients,)
    rng = np.random.default_rng(0)
    for function in functions:
        types = function.__wrapped__.types
        run = function.lower(*types).compile()
        arrays = [(2 * rng.random(x.shape)).astype(x.dtype) for x in types]
        inputs = jax.device_put(arrays, list(run.input_shardings[0]))
        for _ in range(2):
            start = time.perf_counter()
            jax.block_until_ready(run(*inputs))
            seconds = time.perf_counter() - start
        print(f"{function.__name__}: {seconds * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
