"""Imported models compute the loss and the gradients that torch computes."""

import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.harness.seeds import some

import collir

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from support.importing.torch_gradients import compared  # noqa: E402
from torch import nn  # noqa: E402

from collir.importing.models import export  # noqa: E402
from collir.importing.models.torch_models import import_torch  # noqa: E402
from collir.tools import collir as tool  # noqa: E402
from collir.tools import collrun  # noqa: E402

EXACT = 1e-9


class Layer(nn.Module):
    """Some steps, each added to its operand."""

    def __init__(self, steps: Any, width: int, positions: int):
        super().__init__()
        self.parts = nn.ModuleList(made(width, positions) for made, _ in steps)
        self.steps = steps

    def forward(self, x: Any) -> Any:
        """Return a value of the same shape."""
        for part, (_, run) in zip(self.parts, self.steps, strict=True):
            x = x + run(part, x)
        return x


class Mixer(nn.Module):
    """Layers that are alike, of steps that are drawn, on values [batch, positions, width]."""

    def __init__(self, steps: Any, width: int, positions: int, layers: int):
        super().__init__()
        self.layers = nn.ModuleList(Layer(steps, width, positions) for _ in range(layers))
        self.head = nn.Linear(width, 5)

    def forward(self, x: Any, labels: Any) -> Any:
        """Return the loss."""
        for layer in self.layers:
            x = layer(x) + 0.5 * x  # outside of the layer
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


class Weight(nn.Module):
    """A weight of some shape."""

    def __init__(self, *shape: int):
        super().__init__()
        self.w = nn.Parameter(torch.randn(*shape) * 0.3)


def heads(x: Any) -> Any:
    """Return the heads of a value, as [batch, head, position, size]."""
    return x.unflatten(2, (2, -1)).transpose(1, 2)


def attention(m: Any, x: Any, **options: Any) -> Any:
    """Return the attention of a value to itself."""
    y = nn.functional.scaled_dot_product_attention(*map(heads, m(x).chunk(3, -1)), **options)
    return y.transpose(1, 2).flatten(2)


def window(positions: int) -> Any:
    """Return which of the positions see which: those up to two before."""
    i = torch.arange(positions)
    return (i[None] <= i[:, None]) & (i[None] > i[:, None] - 3)


def functions(x: Any) -> Any:
    """Return a sum of functions of elements between -1 and 1."""
    total = x.expm1() + torch.exp2(x) + x.sinh() + x.cosh() + torch.erfc(x) + torch.logaddexp(x, -x)
    return total + (x.abs() + 1).log2() * (x.abs() + 1).log10() + x**7 + F.elu(x, 1.2)


def resized(images: Any, x: Any, **options: Any) -> Any:
    """Return images of one channel, with the size of a value."""
    return F.interpolate(images, size=tuple(x.shape[1:]), **options)[:, 0]


def written_in_places(m: Any, x: Any) -> Any:
    """Return a value that is written to in every other place, and where it is positive."""
    y = x.clone()
    y[:, ::2] = m.w * x[:, ::2].tanh()
    y[y > 0.5] = 0.25
    return y


def turned(m: Any, x: Any) -> Any:
    """Return a value whose neighbouring elements are parts of complex ones, which are turned."""
    turns = torch.polar(torch.ones_like(m.w), m.w)
    z = torch.view_as_complex(x.unflatten(2, (-1, 2))) * turns
    return torch.view_as_real(z).flatten(2)


def without_gradients(m: Any, x: Any) -> Any:
    """Return a value that is computed without gradients."""
    with torch.no_grad():
        return (m.w * x).tanh()


STEPS: list[tuple[Callable[[int, int], Any], Callable[[Any, Any], Any]]] = [
    (lambda d, s: nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, d)),
     lambda m, x: m(x)),
    (lambda d, s: nn.RMSNorm(d), lambda m, x: m(x)),
    (lambda d, s: Weight(d), lambda m, x: m.w * torch.nn.functional.silu(x).flip(1)),
    (lambda d, s: Weight(s, s), lambda m, x: torch.einsum("st,btd->bsd", m.w.softmax(-1), x)),
    (lambda d, s: nn.Linear(d, 3 * d), lambda m, x: attention(m, x, is_causal=True)),
    (lambda d, s: nn.Linear(d, 3 * d), lambda m, x: attention(m, x)),
    (lambda d, s: nn.Linear(d, 3 * d),
     lambda m, x: attention(m, x, attn_mask=window(x.shape[1]))),
    (lambda d, s: nn.Conv1d(d, d, 3, padding=1),
     lambda m, x: m(x.transpose(1, 2)).transpose(1, 2)),
    (lambda d, s: nn.Conv1d(d, d, 3, padding=2, dilation=2, groups=d),
     lambda m, x: m(x.transpose(1, 2)).transpose(1, 2)),
    (lambda d, s: Weight(1), lambda m, x: m.w * (torch.roll(x, 1, 1) - x[:, :1]).abs().clamp(0, 2)),
    (lambda d, s: Weight(1), lambda m, x: m.w * nn.functional.softplus(x.cumsum(1)).log1p()),
    (lambda d, s: Weight(2), lambda m, x: torch.cat([m.w[0] * x[:, 1:], m.w[1] * x[:, :1]], 1)),
    (lambda d, s: Weight(1),
     lambda m, x: m.w * torch.where(x > 0, x.tanh() ** 2, x.sin().exp()).var(1, keepdim=True)),
    (lambda d, s: Weight(1),
     lambda m, x: m.w * x.masked_fill(x.topk(2, -1).values[..., :1] <= x, 0.0)),
    (lambda d, s: Weight(1), lambda m, x: m.w * x.gather(1, (x > 0).long())),
    (lambda d, s: nn.GroupNorm(2, d), lambda m, x: m(x.transpose(1, 2)).transpose(1, 2)),
    (lambda d, s: nn.Embedding(s, d), lambda m, x: m(torch.arange(x.shape[1]))[None] * x[:, -1:]),
    (lambda d, s: Weight(1),
     lambda m, x: m.w * F.normalize(x, dim=-1) * sum(x.norm(p, 1, True) for p in (1, 3, math.inf))),
    (lambda d, s: Weight(1),
     lambda m, x: m.w * x * (x.floor() + x.ceil() + x.round() + x.trunc() + x.sign() + x.frac())),
    (lambda d, s: Weight(1),
     lambda m, x: m.w * (x % 0.7 + x.fmod(0.3) + x * torch.div(x, 0.4, rounding_mode="floor"))),
    (lambda d, s: Weight(1), lambda m, x: m.w * functions(x.tanh())),
    (lambda d, s: Weight(1), lambda m, x: m.w * (F.selu(x) + torch.hypot(x, m.w).tan())),
    (lambda d, s: Weight(1), lambda m, x: m.w * resized(F.avg_pool2d(
        x[:, None], 2, 2, ceil_mode=True, count_include_pad=False), x, mode="bilinear")),
    (lambda d, s: Weight(1), lambda m, x: m.w * resized(F.max_pool2d(
        x[:, None], 2, 2, ceil_mode=True), x, mode="bicubic")),
    (lambda d, s: Weight(1), lambda m, x: m.w * F.avg_pool1d(x, 3, 1, 1, False, False)),
    (lambda d, s: Weight(1), lambda m, x: m.w * resized(F.adaptive_avg_pool2d(
        x[:, None], (2, 3)), x, mode="bilinear", align_corners=True)),
    (lambda d, s: Weight(1), lambda m, x: m.w * resized(F.interpolate(
        x[:, None], scale_factor=2), x, mode="bicubic", antialias=True)),
    (lambda d, s: Weight(1), lambda m, x: m.w * resized(x[:, None, 1:], x)),
    (lambda d, s: Weight(1), lambda m, x: m.w * F.fold(
        F.unfold(x[:, None], 3, padding=1), x.shape[1:], 3, padding=1)[:, 0]),
    (lambda d, s: Weight(1), lambda m, x: m.w * F.pad(x, (0, 0, 4, 1)).unfold(1, 6, 1).mean(-1)),
    (lambda d, s: nn.ConvTranspose1d(d, d, 3, padding=1, groups=2),
     lambda m, x: m(x.transpose(1, 2)).transpose(1, 2)),
    *((lambda d, s: nn.Conv1d(d, d, 3), lambda m, x, mode=mode: m(F.pad(
        x.transpose(1, 2), (1, 1), mode=mode)).transpose(1, 2))
      for mode in ("reflect", "replicate", "circular")),
    (lambda d, s: Weight(1), lambda m, x: x.index_put(
        (torch.tensor([1, 0]), torch.tensor([2, 1])), m.w * x[:, 0]).tanh()),
    (lambda d, s: Weight(1), written_in_places),
    (lambda d, s: Weight(1), lambda m, x: x.tanh().masked_scatter(x > 0.3, m.w * x.flip(1))),
    *((lambda d, s: Weight(1), lambda m, x, kind=kind: m.w * x.scatter_reduce(
        1, torch.zeros_like(x, dtype=torch.long), x.sin(), kind).tanh())
      for kind in ("amax", "mean", "sum")),
    (lambda d, s: Weight(1), lambda m, x: m.w * x.tanh().cumprod(1) * x.tanh().prod(2, True)),
    (lambda d, s: Weight(1), lambda m, x: m.w * x.logcumsumexp(1)),
    (lambda d, s: Weight(1), lambda m, x: m.w * x * ((x > 1).any(1, True) ^ (x > -1).all(2, True))),
    (lambda d, s: Weight(1), lambda m, x: m.w * x.median(1, True)[0] + x.kthvalue(2, 2, True)[0]),
    (lambda d, s: Weight(1), lambda m, x: m.w * torch.fft.fft2(x).real.tanh()),
    (lambda d, s: Weight(1), lambda m, x: m.w * torch.fft.irfft(
        torch.fft.rfft(x, dim=1).conj() * (1 + 2j), n=x.shape[1], dim=1).tanh()),
    (lambda d, s: Weight(s, 1), turned),
    (lambda d, s: Weight(1), lambda m, x: m.w * x.detach() * without_gradients(m, x)),
    (lambda d, s: Weight(1), lambda m, x: (torch.cdist(x, x + m.w) @ x).tanh()),
    (lambda d, s: Weight(d, d), lambda m, x: torch.einsum("...i,ij->...j", x, m.w) * torch.einsum(
        "...ii->...i", (x @ x.mT).tanh())[..., None]),
    (lambda d, s: Weight(d), lambda m, x: m.w * x.tanh() * F.cross_entropy(
        x.flatten(0, 1), torch.arange(2 * x.shape[1]) % 4, weight=torch.ones_like(m.w) * 0.5,
        label_smoothing=0.1)),
    (lambda d, s: Weight(1), lambda m, x: x.tanh() * F.cross_entropy(x, x.softmax(1)) * m.w),
    (lambda d, s: Weight(d), lambda m, x: F.batch_norm(
        x.transpose(1, 2), None, None, m.w, training=True).transpose(1, 2)),
    (lambda d, s: Weight(1), lambda m, x: m.w * torch.roll(x, 3) * torch.bucketize(
        x, torch.tensor([-0.5, 0.0, 0.5], dtype=torch.float64))),
    (lambda d, s: Weight(1), lambda m, x: m.w * x * (x * 2).to("cpu", torch.int64)),
    (lambda d, s: Weight(1), lambda m, x: m.w * F.kl_div(
        x.log_softmax(-1), x.flip(1).softmax(-1), reduction="none")),
]  # fmt: skip
"""Steps of a layer: how its weights are made, of a width and a number of positions, and its run."""


def inputs(width: int, positions: int) -> dict[str, Any]:
    """Return the arguments of a ``Mixer``."""
    labels = torch.randint(0, 5, (2, positions))
    labels[0, 0] = -100
    return {"x": torch.randn(2, positions, width, dtype=torch.float64), "labels": labels}


@pytest.mark.turns
@pytest.mark.parametrize("seed", some(range(100, 120), 2))
def test_random_modules_have_the_gradients_of_torch(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    steps = rng.sample(STEPS, 6)
    width, positions, layers = rng.choice([4, 8]), rng.choice([3, 5, 6]), rng.randint(1, 3)
    result = compared(Mixer(steps, width, positions, layers), inputs(width, positions))
    assert result.worst < EXACT
    assert result.program.layers == ({"layers": layers} if layers > 1 else {})


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_every_step_has_the_gradients_of_torch(step: Any) -> None:
    result = compared(Mixer([step], 8, 5, 2), inputs(8, 5))
    assert result.worst < EXACT and result.program.layers == {"layers": 2}


@pytest.mark.turns
def test_rolled_layers_are_those_that_were_imported() -> None:
    torch.manual_seed(0)
    module, given = Mixer(STEPS[:1], 4, 3, 5), inputs(4, 3)
    whole, loop = compared(module, given, roll=False), compared(module, given)
    assert not whole.program.layers and loop.program.layers == {"layers": 5}
    assert max(whole.worst, loop.worst) < EXACT


def test_layers_that_alternate_are_loops_over_pairs() -> None:
    class Alternating(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4, bias=n % 2 == 0) for n in range(6))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return x.sum()

    result = compared(Alternating(), {"x": torch.randn(3, 4, dtype=torch.float64)})
    assert result.worst < EXACT and result.program.layers == {"layers": 3}


def test_weights_that_are_tied_are_one_argument() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.head.weight = self.table.weight

        def forward(self, words: Any) -> Any:
            return nn.functional.cross_entropy(self.head(self.table(words)), words)

    result = compared(Tied(), {"words": torch.tensor([1, 5, 5])})
    assert result.worst < EXACT
    assert [x.of for x in result.program.arguments] == [("words",), ("table.weight",)]


def test_masks_take_the_memory_of_one_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Masked(nn.Module):
        def forward(self, q: Any) -> Any:
            i = torch.arange(q.shape[2])[None].expand(q.shape[0], -1)
            before = i[:, None, None, :] <= i[:, None, :, None]
            seen = before & torch.ones(q.shape[0], 1, 1, q.shape[2], dtype=torch.bool)
            return nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=seen)

    monkeypatch.setattr(export, "_LARGE", 200)  # the mask of all has 576
    text = import_torch(Masked(), (torch.zeros(16, 2, 6, 4),)).text
    assert "call @causal_attention(seq = 6, keys = 6)" in text and "(batch = 16)" in text


@pytest.mark.turns
def test_what_is_drawn_or_not_written_is_no_constant() -> None:
    class Draws(nn.Module):
        def __init__(self, make: Any) -> None:
            super().__init__()
            self.make = make

        def forward(self, x: Any) -> Any:
            return x + self.make(3)

    for make in (torch.rand, torch.randn, torch.randperm):
        with pytest.raises(collir.DiagnosticError, match="there is no row for torch's rand"):
            import_torch(Draws(make), (torch.zeros(4, 3),))
    assert "constant value 0" in import_torch(Draws(torch.empty), (torch.zeros(4, 3),)).text


def small_step() -> collir.Imported:
    """Return the training step of a module of three layers."""
    x, labels = torch.zeros(16, 4, 8), torch.zeros(16, 4, dtype=torch.long)
    module = Mixer(STEPS[:1], 8, 4, 3)
    return import_torch(module, (x, labels), optimizer="adamw", precision="bf16", clip=True)


@pytest.mark.turns
def test_a_training_step_is_a_program_for_a_cluster() -> None:
    imported = small_step()
    assert imported.batch == 16
    module = collir.parse(imported.text)
    collir.run_passes(module, "propagate")
    [step] = [s for s in collir.simulate(module) if s.name == "step"]
    assert step.time > 0
    collir.parse(collir.emit(module))


def test_names_of_torch_are_kept() -> None:
    names = {name for argument in small_step().arguments for name in argument.of}
    assert names == {"x", "labels"} | {
        name for name, _ in Mixer(STEPS[:1], 8, 4, 3).named_parameters()
    }


MODEL = """
import torch
from torch import nn

def nothing():
    return 3

def bare():
    return nn.Linear(4, 4)

def fails():
    return nn.Linear("x", 4)

class Reads(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x

def reads():
    return Reads(), torch.zeros(4)

class Inverts(nn.Module):
    def forward(self, x):
        return torch.linalg.inv(x)

def inverts():
    return Inverts(), torch.zeros(4, 4)

class Turns(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x).angle()

def turns():
    return Turns(), torch.zeros(4)

def linear():
    return nn.Linear(4, 4), torch.zeros(8, 4)

class Pools(nn.Module):
    def forward(self, x):
        return nn.functional.avg_pool2d(x, 2, divisor_override=3)

def pools():
    return Pools(), torch.zeros(1, 1, 4, 4)
"""

REFUSED: list[tuple[str, list[str], str]] = [
    ("pools", [], "torch's avg_pool2d with a divisor of its own cannot be imported"),
    ("nothing", [], "model.py:nothing returns a int, not a torch.nn.Module"),
    ("bare", [], "returns a module without arguments: return (module, args)"),
    ("fails", [], "model.py:12:12: error: model.py:fails raises an error: TypeError"),
    ("reads", [], "model.py:16:9: error: torch cannot export the model"),
    ("inverts", [], "model.py:25:9: error: there is no row for torch's linalg_inv"),
    (
        "turns",
        [],
        "model.py:32:9: error: torch's angle of complex values cannot be imported",
    ),
    ("missing", [], "model.py has no function missing"),
    ("linear", ["--optimizer", "sgd"], "a training step needs a loss"),
]


@pytest.mark.parametrize(("name", "options", "message"), REFUSED)
def test_what_cannot_be_imported_is_one_error(
    name: str, options: list[str], message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    status = tool.main(["import", "torch", f"model.py:{name}", "-o", "out.coll", *options])
    shown = capsys.readouterr()
    assert status == 1 and message in shown.err.replace(f"{tmp_path}/", ""), shown.err
    assert not shown.out and not Path("out.coll").exists() and shown.err.count("error:") <= 2


def test_a_command_writes_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    words = ["import", "torch", "model.py:bare", "--args", "f32[8, 4]", "-o", "out.coll"]
    assert tool.main(words) == 0 and not capsys.readouterr().err
    text = Path("out.coll").read_text()
    assert "func @model(batch = 8)" in text and "collir import torch model.py:bare" in text
    assert tool.main(words) == 1 and "exists" in capsys.readouterr().err
    assert tool.main([*words, "--force"]) == 0


PAGE = Path(__file__).parents[2] / "docs" / "imports.md"


@pytest.mark.turns
def test_the_page_shows_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [source] = [block for block in blocks if block.startswith("# model.py")]
    [shown] = [block for block in blocks if block.startswith("$ collir import torch")]
    command, _, output = shown.partition("\n")
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(source)
    assert tool.main(command.split()[2:]) == 0
    assert capsys.readouterr().out == output


@pytest.mark.turns
def test_an_imported_step_runs_on_ranks_as_on_one_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sharded by `shard`, the step computes on 4 devices what it does on one."""
    imported = import_torch(
        Mixer(STEPS[:1] + STEPS[4:5], 8, 4, 2),
        (torch.zeros(4, 4, 8), torch.zeros(4, 4, dtype=torch.long)),
        optimizer="adamw", clip=True, machine="@dgx_h100(nodes = 1)", mesh="x = gpu:4, y = gpu:2",
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("step.coll").write_text(imported.text)
    assert collrun.main(["step.coll", "-p", "shard", "--function", "step"]) == 0
