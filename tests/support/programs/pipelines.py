"""Random pipelines for the best schedule: stages, microbatches, layers of unequal number and work,
slow and fast links, and one or several values to send."""

import random
from collections.abc import Iterator

from collir.layout.pipelines.rules import RULES


def random_pipeline(rng: random.Random) -> tuple[str, str, int]:
    """Return a training step as text, options of `pipeline` without a schedule, and the number of
    places."""
    places = rng.choice([2, 2, 3, 4])
    count = rng.choice([1, 2, 3, 4, 6])
    layers = places * rng.choice([1, 2, 2, 4])
    batch, width = rng.choice([8, 32, 128]), rng.choice([16, 64, 256])
    link = rng.choice(["100 MB/s", "1 GB/s", "10 GB/s", "100 GB/s"])
    latency = rng.choice(["1 us", "20 us"])
    data = rng.random() < 0.3
    levels = f"level node[{places}] {{ port = {link}, latency = {latency} }}"
    levels += " level gpu[2] { port = 50 GB/s, latency = 1 us }" if data else ""
    axes = f"pipe = node:{places}" + (", data = gpu:2" if data else "")
    split = "@data" if data else ""
    several = rng.random() < 0.4
    shared = rng.random() < 0.4
    front = rng.random() < 0.4
    second = ", %d = %x" if several else ""
    options = [f"microbatches={count}"]
    if layers > places and rng.random() < 0.3:
        cuts = sorted(rng.sample(range(1, layers), places - 1))
        each = [b - a for a, b in zip([0, *cuts], [*cuts, layers], strict=True)]
        options.append(f"layers={','.join(map(str, each))}")
    body = ['%0 = einsum "b i, i j -> b j" %c, %w', "%1 = tanh %0"]
    if shared:
        body.append("%2 = mul %1, %s")
    last = "%2" if shared else "%1"
    if several:
        body.append(f"%3 = add %d, {last}")
    given = ", %s: f64[width]" if shared else ""
    text = f"""
machine @c {{
  device {{ compute f64 = 10 TFLOP/s; memory = 40 GiB @ 1.5 TB/s }}
  {levels}
}}
mesh @m on @c {{ {axes} }}
func @loss(batch = {batch * count}, layers = {layers}, width = {width})
    (%x: f64[batch, width], %w: f64[layers, width, width], %v: f64[width, width]{given},
     %z: f64[batch, width]) -> f64[] on @m auto {{
  {'%a = einsum "b i, i j -> b j" %x, %v' if front else "%a = tanh %x"}
  %y{", %o" if several else ""} = repeat layers carry(%c = %a{second}) slice(%w = %w)
      {"with(%s = %s)" if shared else ""} {{
    {chr(10).join(body)}
    yield {last}{", %3" if several else ""}
  }}
  {"%u = add %y, %o" if several else "%u = tanh %y"}
  %p = einsum "b i, i j -> b j" %u, %v
  %e = sub %p, %z
  %q = mul %e, %e
  %l = mean %q dims [0, 1]
  return %l
}}
func @step(batch = {batch * count}, layers = {layers}, width = {width})
    (%x: f64[batch{split}, width], %w: f64[layers, width, width] parameter,
     %v: f64[width, width] parameter{given}, %z: f64[batch{split}, width])
    -> (f64[], f64[layers, width, width], f64[width, width]{", f64[width]" if shared else ""})
    on @m auto {{
  %l, %d, %g{", %t" if shared else ""} =
    gradient @loss(batch = batch, layers = layers, width = width)
      (%x, %w, %v{", %s" if shared else ""}, %z)
      wrt %w, %v{", %s" if shared else ""}
  return %l, %d, %g{", %t" if shared else ""}
}}
"""
    return text, " ".join(options), places


def named_options() -> Iterator[str]:
    """Yield options for all named schedules, each with gradients of weights apart and not."""
    for rule in RULES.values():
        for splits in rule.splits:
            yield f"schedule={rule.name}" + (" split=true" if splits else "")
