"""A program whose devices send over two axes, in a loop and behind it."""


def machine(gpus: int) -> str:
    """Return two nodes of GPUs, and a mesh with an axis for each level."""
    return f"""
machine @box {{
  device {{ compute f32 = 10 TFLOP/s; memory = 40 GB @ 1 TB/s }}
  level node[2] {{ port = 25 GB/s, latency = 10 us }}
  level gpu[{gpus}]  {{ port = 300 GB/s, latency = 3 us }}
}}
mesh @m on @box {{ data = node:2, model = gpu:{gpus} }}
"""


def program(gpus: int, name: str) -> str:
    """Return the program on such a machine, with a function of this name."""
    return (
        machine(gpus)
        + f"""\
func @{name}(%x: f32[512@data, 1024], %v: f32[1024, 4096@model], %w: f32[4096@model, 1024])
    -> f32[] on @m {{
  %y = repeat 3 carry(%h = %x) with(%v = %v, %w = %w) {{
    %a = einsum "b h, h f -> b f" %h, %v
    %p = einsum "b f, f h -> b h" %a, %w
    %r = all_reduce %p over model
    yield %r
  }}
  %s = sum %y dims [0, 1]
  %l = all_reduce %s over data
  return %l
}}
"""
    )
