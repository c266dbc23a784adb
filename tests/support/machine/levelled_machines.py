"""Random machines as they are built: CPU clusters with memory buses, boxes of GPUs, tapered trees;
and an all_reduce on each."""

import random

GBPS = (1, 2.5, 5, 12.5, 25, 50, 100, 200, 450, 900)


def cpus(rng: random.Random) -> tuple[str, list[str]]:
    """Return the levels of a cluster of CPUs, whose cores share the bus of their memory."""
    bus = rng.choice([50, 100, 200])
    cores = rng.choice([4, 8, 16, 32])
    each = rng.choice([1.6, 3.2, 6.4, 12.8])
    nodes, sockets = rng.choice([2, 3, 8, 16, 128]), rng.choice([1, 2])
    port = rng.choice(GBPS[:6])
    text = f"""
      device {{ compute f32 = 72 GFLOP/s; memory = 4 GiB @ {each} GB/s; reduction = 10 GB/s }}
      level node[{nodes}] {{ port = {port} GB/s, latency = 1.3 us, fabric = network }}
      level socket[{sockets}] {{ port = 144 GB/s, latency = 700 ns, fabric = memory }}
      level core[{cores}] {{ port = {bus} GB/s, latency = 500 ns, kind = bus, fabric = memory }}"""
    return text, [f"node:{nodes}", f"socket:{sockets}", f"core:{cores}"]


def gpus(rng: random.Random) -> tuple[str, list[str]]:
    """Return the levels of nodes of GPUs."""
    nodes, inside = rng.choice([2, 3, 4, 16, 64]), rng.choice([2, 4, 6, 8, 16])
    fast = rng.choice(GBPS[6:])
    more = rng.choice(["", f", nvls = {fast} GB/s", ", kind = ring", ", kind = full"])
    text = f"""
      device {{ compute f32 = 60 TFLOP/s; memory = 80 GiB @ {rng.choice([0.9, 2, 3.35])} TB/s;
                launch = {rng.choice([0, 4])} us; efficiency memory = {rng.choice([0.6, 1])} }}
      level node[{nodes}] {{ port = {rng.choice(GBPS[2:7])} GB/s, latency = 10 us }}
      level gpu[{inside}] {{ port = {fast} GB/s, latency = 2 us{more} }}"""
    return text, [f"node:{nodes}", f"gpu:{inside}"]


def tree(rng: random.Random) -> tuple[str, list[str]]:
    """Return the levels of a tree that gets thinner upwards."""
    sizes = [rng.choice([2, 2, 3, 4, 5, 6]) for _ in range(rng.randint(2, 4))]
    speed = rng.choice([1, 10, 100, 1000])
    text = f"""
      device {{ compute f32 = 1 TFLOP/s; memory = 8 GiB @ {speed} GB/s }}"""
    for number, size in enumerate(sizes):
        taper = rng.choice(["", f", taper = {rng.choice([1.5, 2, 4])}"])
        port, latency = rng.choice(GBPS), rng.choice([0.5, 2, 20])
        own = f"port = {port} GB/s, latency = {latency} us{taper}"
        text += f"\n      level l{number}[{size}] {{ {own} }}"
    return text, [f"l{number}:{size}" for number, size in enumerate(sizes)]


KINDS = (cpus, gpus, tree)


def random_program(rng: random.Random) -> str:
    """Return an all_reduce of 1 KB to 10 GB on a random machine, over all of it or a part."""
    levels, factors = rng.choice(KINDS)(rng)
    others = [factor for factor in factors if len(factors) > 2 and rng.random() < 0.2]
    over = [factor for factor in factors if factor not in others] or factors
    axes = f"p = {' * '.join(over)}"
    if over is not factors and others:
        axes += f", q = {' * '.join(others)}"
    count = max(1, int(10 ** rng.uniform(3, 10) / 4))
    count = rng.choice([count, 2 ** count.bit_length(), -(-count // 8192) * 8192])
    rows = rng.choice([1, 1, 2, 6, 128])
    shape = f"{count}" if rows == 1 else f"{rows}, {max(1, count // rows)}"
    return f"""machine @c {{{levels}
    }}
    mesh @m on @c {{ {axes} }}
    func @f(%x: f32[{shape}] partial(sum: p)) -> f32[{shape}] on @m {{
      %r = all_reduce %x over p
      return %r
    }}
    """
