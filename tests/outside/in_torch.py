"""The losses of examples/models in plain torch, on one device.

A program too: ``in_torch.py NAME in.npz out.npz N,N,...`` writes the loss and its gradients by the
inputs N, in f64.
"""

import sys
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F


def _norm(x: Any, gain: Any, bias: Any, eps: float) -> Any:
    return F.layer_norm(x, x.shape[-1:], gain, bias, eps)


def _rms(x: Any, gain: Any, eps: float) -> Any:
    return F.rms_norm(x, x.shape[-1:], gain, eps)


def _heads(x: Any, w: Any, b: Any = None) -> Any:
    """Return [batch, heads, sequence, size] by weights of [hidden, heads, size]."""
    y = (x @ w.flatten(1)).unflatten(-1, w.shape[1:])
    return (y if b is None else y + b).transpose(1, 2)


def _joined(x: Any, w: Any) -> Any:
    """Return the product of what all heads made with weights of [heads, size, hidden]."""
    return x.transpose(1, 2).flatten(2) @ w.flatten(0, 1)


def _attend(q: Any, k: Any, v: Any, causal: bool) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)


def _gelu(x: Any) -> Any:
    return F.gelu(x, approximate="tanh")


def _rows(logits: Any, targets: Any) -> Any:
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def mlp(x: Any, z: Any, v: Any, w: Any) -> Any:
    for first, second in zip(v, w, strict=True):
        x = torch.relu(torch.relu(x @ first) @ second)
    return F.mse_loss(x, z)


def gpt(tokens: Any, targets: Any, embedding: Any, positions: Any, *weights: Any) -> Any:
    *layers, gain, bias = weights
    x = embedding[tokens] + positions
    for g1, b1, wq, bq, wk, bk, wv, bv, wo, bo, g2, b2, up, bu, down, bd in zip(
        *layers, strict=True
    ):
        n = _norm(x, g1, b1, 1e-5)
        mixed = _attend(_heads(n, wq, bq), _heads(n, wk, bk), _heads(n, wv, bv), True)
        x = x + _joined(mixed, wo) + bo
        x = x + _gelu(_norm(x, g2, b2, 1e-5) @ up + bu) @ down + bd
    return _rows(_norm(x, gain, bias, 1e-5) @ embedding.T, targets)


def _turned(x: Any, base: float) -> Any:
    """Return rotary positions, as complex numbers of which the halves of a head are the parts."""
    size = x.shape[-1]
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * base ** (
        -torch.arange(0, size, 2, dtype=x.dtype) / size
    )
    turned = torch.complex(x[..., : size // 2], x[..., size // 2 :]) * torch.polar(
        torch.ones_like(angle), angle
    )
    return torch.cat([turned.real, turned.imag], -1)


def llama(tokens: Any, targets: Any, embedding: Any, *weights: Any) -> Any:
    *layers, gain, output = weights
    x = embedding[tokens]
    for g1, wq, wk, wv, wo, g2, gate, up, down in zip(*layers, strict=True):
        n = _rms(x, g1, 1e-5)
        q, k = _turned(_heads(n, wq), 500000.0), _turned(_heads(n, wk), 500000.0)
        x = x + _joined(_attend(q, k, _heads(n, wv), True), wo)
        n = _rms(x, g2, 1e-5)
        x = x + (F.silu(n @ gate) * (n @ up)) @ down
    return _rows(_rms(x, gain, 1e-5) @ output.T, targets)


def bert(tokens: Any, kinds: Any, targets: Any, counts: Any, words: Any, positions: Any,
         of_kinds: Any, g0: Any, b0: Any, *weights: Any) -> Any:  # fmt: skip
    *layers, w_head, b_head, gain, bias, b_words = weights
    x = _norm(words[tokens] + of_kinds[kinds] + positions, g0, b0, 1e-12)
    for wq, bq, wk, bk, wv, bv, wo, bo, g1, b1, up, bu, down, bd, g2, b2 in zip(
        *layers, strict=True
    ):
        mixed = _attend(_heads(x, wq, bq), _heads(x, wk, bk), _heads(x, wv, bv), False)
        x = _norm(x + _joined(mixed, wo) + bo, g1, b1, 1e-12)
        x = _norm(x + _gelu(x @ up + bu) @ down + bd, g2, b2, 1e-12)
    x = _norm(_gelu(x @ w_head + b_head), gain, bias, 1e-12)
    losses = F.cross_entropy(
        (x @ words.T + b_words).flatten(0, 1), targets.flatten(), reduction="none"
    )
    return (losses * counts.flatten()).sum() / counts.sum()


def vit(images: Any, labels: Any, w_patch: Any, b_patch: Any, first: Any, positions: Any,
        *weights: Any) -> Any:  # fmt: skip
    *layers, gain, bias, w_head, b_head = weights
    x = F.conv2d(images.permute(0, 3, 1, 2), w_patch.permute(3, 2, 0, 1), b_patch, w_patch.shape[0])
    x = torch.cat([first.expand(len(images), -1, -1), x.flatten(2).transpose(1, 2)], 1) + positions
    for wq, bq, wk, bk, wv, bv, wo, bo, g1, b1, up, bu, down, bd, g2, b2 in zip(
        *layers, strict=True
    ):
        n = _norm(x, g1, b1, 1e-6)
        mixed = _attend(_heads(n, wq, bq), _heads(n, wk, bk), _heads(n, wv, bv), False)
        x = x + _joined(mixed, wo) + bo
        x = x + _gelu(_norm(x, g2, b2, 1e-6) @ up + bu) @ down + bd
    return F.cross_entropy(_norm(x[:, 0], gain, bias, 1e-6) @ w_head + b_head, labels)


def switch(x: Any, targets: Any, *layers: Any, places: int = 2) -> Any:
    for gain, route, up, down in zip(*layers, strict=True):
        n = _rms(x, gain, 1e-6)
        gates = torch.softmax(n @ route, -1)
        rows = list[Any]()
        for group, own in zip(n, gates, strict=True):  # word by word, as the paper says
            used, made = [0] * route.shape[1], list[Any]()
            for word, gate in zip(group, own, strict=True):
                expert = int(gate.argmax())
                used[expert] += 1
                result: Any = torch.relu(word @ up[expert]) @ down[expert] * gate[expert]
                made.append(result if used[expert] <= places else torch.zeros_like(result))
            rows.append(torch.stack(made))
        x = x + torch.stack(rows)
    return F.mse_loss(x, targets)


def mixtral(tokens: Any, targets: Any, embedding: Any, *weights: Any, places: int = 3) -> Any:
    *layers, gain, output = weights
    x = embedding[tokens]
    for g1, wq, wk, wv, wo, g2, route, gate, up, down in zip(*layers, strict=True):
        n = _rms(x, g1, 1e-5)
        q, k = _turned(_heads(n, wq), 1e6), _turned(_heads(n, wk), 1e6)
        x = x + _joined(_attend(q, k, _heads(n, wv), True), wo)
        n = _rms(x, g2, 1e-5)
        best, numbers = (n @ route).topk(2, -1)
        shares = torch.softmax(best, -1)
        added = torch.zeros_like(x)
        for expert in range(route.shape[1]):
            mine = numbers == expert
            chose = mine.any(-1)
            chose = chose & (chose.cumsum(1) <= places)
            made = (F.silu(n @ gate[expert]) * (n @ up[expert])) @ down[expert]
            share = torch.where(mine, shares, 0.0).sum(-1)
            added = added + torch.where(chose, share, 0.0)[..., None] * made
        x = x + added
    return _rows(_rms(x, gain, 1e-5) @ output.T, targets)


def _conv(x: Any, w: Any, stride: int = 1) -> Any:
    return F.conv2d(x, w.permute(3, 2, 0, 1), stride=stride, padding=w.shape[0] // 2)


def vgg19(images: Any, labels: Any, *weights: Any) -> Any:
    *stages, w6, b6, w7, b7, w8, b8 = weights
    x = images.permute(0, 3, 1, 2)
    for n in range(5):
        w, b, ws, bs = stages[4 * n : 4 * n + 4]
        for own, bias in zip([w, *ws], [b, *bs], strict=True):
            x = torch.relu(_conv(x, own) + bias[:, None, None])
        x = F.max_pool2d(x, 2)
    x = x.permute(0, 2, 3, 1).flatten(1)
    x = torch.relu(torch.relu(x @ w6.flatten(0, 2) + b6) @ w7 + b7)
    return F.cross_entropy(x @ w8 + b8, labels)


def resnet50(images: Any, labels: Any, *weights: Any) -> Any:
    stem, head, rest = weights[:3], weights[-2:], weights[3:-2]

    def step(x: Any, *parts: Any) -> Any:
        known: Any = (*parts, 1)
        w, gain, bias, stride = known[:4]
        return F.batch_norm(_conv(x, w, stride), None, None, gain, bias, training=True)

    def branch(x: Any, own: Any, stride: int) -> Any:
        x = torch.relu(step(x, *own[:3]))
        x = torch.relu(step(x, *own[3:6], stride))
        return step(x, *own[6:])

    x = F.max_pool2d(torch.relu(step(images.permute(0, 3, 1, 2), *stem, 2)), 3, 2, 1)
    for n in range(4):
        own, stride = rest[21 * n : 21 * n + 21], 2 if n else 1
        x = torch.relu(branch(x, own[:9], stride) + step(x, *own[9:12], stride))
        for block in zip(*own[12:], strict=True):
            x = torch.relu(x + branch(x, block, 1))
    return F.cross_entropy(x.mean((2, 3)) @ head[0] + head[1], labels)


def styles(x: Any, target: Any, *layers: Any) -> Any:
    ones = torch.ones(x.shape[-1], dtype=x.dtype)
    for wq, wk, wv, wo, up, down in zip(*layers, strict=True):
        n = _rms(x, ones, 1e-6)
        x = x + _joined(_attend(_heads(n, wq), _heads(n, wk), _heads(n, wv), True), wo)
        x = x + _gelu(_rms(x, ones, 1e-6) @ up) @ down
    return F.mse_loss(x, target)


def words(tokens: Any, targets: Any, embedding: Any, positions: Any, *weights: Any) -> Any:
    *layers, gain = weights
    x = embedding[tokens] + positions
    for g1, wq, wk, wv, wo, g2, up, down in zip(*layers, strict=True):
        n = _rms(x, g1, 1e-6)
        x = x + _joined(_attend(_heads(n, wq), _heads(n, wk), _heads(n, wv), True), wo)
        x = x + _gelu(_rms(x, g2, 1e-6) @ up) @ down
    return _rows(_rms(x, gain, 1e-6) @ embedding.T, targets)


def zero(x: Any, z: Any, up: Any, down: Any) -> Any:
    for first, second in zip(up, down, strict=True):
        x = x + _gelu(x @ first) @ second
    return F.mse_loss(x, z)


def main() -> None:
    name, source, to, wrt = sys.argv[1:]
    with np.load(source) as data:
        inputs = [torch.from_numpy(data[f"arr_{n}"]) for n in range(len(data.files))]
    sought = [inputs[int(n)].requires_grad_() for n in wrt.split(",")]
    loss = globals()[name](*inputs)
    gradients = torch.autograd.grad(loss, sought)
    np.savez(to, loss.detach().numpy(), *(g.numpy() for g in gradients))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
