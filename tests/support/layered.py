"""Training steps of small multilayer perceptrons, for tests of pipelines."""


def mlp_step(
    places: int,
    layers: int,
    words: int = 6,
    batches: int = 4,
    device: str = "compute f64 = 1 GFLOP/s; memory = 1 GiB @ 1 GB/s",
) -> str:
    """Return a program with a step on an axis ``pipe``: layers, and a projection behind them."""
    return f"""
machine @row {{
  device {{ {device} }}
  level node[{places}] {{ port = 8 GB/s, latency = 3 us }}
}}
mesh @m on @row {{ pipe = node:{places} }}

func @loss(%x: f64[4, 8], %z: f64[4, {words}], %ws: f64[{layers}, 8, 8], %e: f64[8, {words}])
    -> f64[] on @m {{
  %y = repeat {layers} carry(%h = %x) slice(%w = %ws) {{
    %0 = einsum "b i, i j -> b j" %h, %w
    %1 = tanh %0
    yield %1
  }}
  %p = einsum "b i, i j -> b j" %y, %e
  %d = sub %p, %z
  %s = mul %d, %d
  %l = mean %s dims [0, 1]
  return %l
}}

func @step(%x: f64[{batches}, 4, 8], %z: f64[{batches}, 4, {words}],
           %ws: f64[{layers}, 8, 8] parameter, %e: f64[8, {words}] parameter)
    -> (f64[], f64[{layers}, 8, 8] parameter, f64[8, {words}] parameter) on @m {{
  %none = constant value 0 to f64[]
  %none_w = constant value 0 to %ws
  %none_e = constant value 0 to %e
  %loss, %d_w, %d_e = repeat {batches} carry(%l = %none, %d_w = %none_w, %d_e = %none_e)
      slice(%x = %x, %z = %z) with(%ws = %ws, %e = %e) {{
    %own, %own_w, %own_e = gradient @loss(%x, %z, %ws, %e) wrt %ws, %e
    %1 = add %l, %own
    %2 = add %d_w, %own_w
    %3 = add %d_e, %own_e
    yield %1, %2, %3
  }}
  %new_w = sub %ws, %d_w
  %new_e = sub %e, %d_e
  return %loss, %new_w, %new_e
}}
"""
