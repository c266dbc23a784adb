"""The pages of families compute what models of transformers compute, with the same weights."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from support.harness.seeds import some

import collir
from collir.dialects.tensor import dist_type
from collir.importing.models.hugging_face import set_experts
from collir.ir.functions import functions_of
from collir.ir.names import argument_names
from collir.models import MODELS
from collir.semantics.reference.executor import execute

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

BATCH, SEQ = 2, 12
Weights = Mapping[str, Any]
NUMPY = {"i32": np.int32, "f32": np.float32, "f64": np.float64}


def heads(w: Weights, path: str, count: int) -> Any:
    """Return the weight of a projection to heads: [width, head, number in the head]."""
    return w[f"{path}.weight"].T.reshape(-1, count, w[f"{path}.weight"].shape[0] // count)


def attention(w: Weights, i: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the fields of attention of a layer."""
    o = w[f"{i}.self_attn.o_proj.weight"].T
    found = {
        "attention_gain": w[f"{i}.input_layernorm.weight"],
        "q": heads(w, f"{i}.self_attn.q_proj", sizes["heads"]),
        "k": heads(w, f"{i}.self_attn.k_proj", sizes["kv"]),
        "v": heads(w, f"{i}.self_attn.v_proj", sizes["kv"]),
        "o": o.reshape(sizes["heads"], -1, o.shape[1]),
        "mlp_gain": w[f"{i}.post_attention_layernorm.weight"],
    }
    if f"{i}.self_attn.q_norm.weight" in w:
        found |= {f"gain_{x}": w[f"{i}.self_attn.{x}_norm.weight"] for x in "qk"}
    return found


def mlp(w: Weights, path: str, prefix: str = "") -> dict[str, Any]:
    """Return the fields of an MLP."""
    return {f"{prefix}{x}": w[f"{path}.{x}_proj.weight"].T for x in ("gate", "up", "down")}


def experts(w: Weights, path: str) -> dict[str, Any]:
    """Return the fields of experts, whose gate and up are one tensor in transformers."""
    both, down = w[f"{path}.experts.gate_up_proj"], w[f"{path}.experts.down_proj"]
    gate, up = np.split(both, 2, axis=1)
    swapped = (x.transpose(0, 2, 1) for x in (gate, up, down))
    router = w[f"{path}.gate.weight"].T
    return {"router": router} | dict(zip(("gate", "up", "down"), swapped, strict=True))


def llama(w: Weights, i: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    return attention(w, i, sizes) | mlp(w, f"{i}.mlp")


def mixtral(w: Weights, i: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    path = f"{i}.mlp" if f"{i}.mlp.gate.weight" in w else f"{i}.block_sparse_moe"
    return attention(w, i, sizes) | experts(w, path)


def gemma3(w: Weights, i: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    found = attention(w, i, sizes) | mlp(w, f"{i}.mlp")
    found["gain_o"] = found["mlp_gain"]
    found["mlp_gain"] = w[f"{i}.pre_feedforward_layernorm.weight"]
    found["gain_down"] = w[f"{i}.post_feedforward_layernorm.weight"]
    return {name: x + 1 if "gain" in name else x for name, x in found.items()}


def gpt_oss(w: Weights, i: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    found = attention(w, i, sizes)
    for x, count in (("q", "heads"), ("k", "kv"), ("v", "kv")):
        found[f"{x}_bias"] = w[f"{i}.self_attn.{x}_proj.bias"].reshape(sizes[count], -1)
    both, bias = (w[f"{i}.mlp.experts.gate_up_proj{x}"] for x in ("", "_bias"))
    return found | {
        "o_bias": w[f"{i}.self_attn.o_proj.bias"], "sinks": w[f"{i}.self_attn.sinks"],
        "router": w[f"{i}.mlp.router.weight"].T, "router_bias": w[f"{i}.mlp.router.bias"],
        "gate": both[..., ::2], "up": both[..., 1::2],
        "gate_bias": bias[..., ::2], "up_bias": bias[..., 1::2],
        "down": w[f"{i}.mlp.experts.down_proj"],
        "down_bias": w[f"{i}.mlp.experts.down_proj_bias"],
    }  # fmt: skip


def deepseek(w: Weights, i: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    count, size, turned = sizes["heads"], sizes["size"], sizes["turned"]
    own = f"{i}.self_attn"
    q = w[f"{own}.q_b_proj.weight"].T.reshape(-1, count, size + turned)
    down = w[f"{own}.kv_a_proj_with_mqa.weight"].T
    kv = w[f"{own}.kv_b_proj.weight"].T.reshape(-1, count, 2 * size)
    # transformers turns numbers that are neighbours; here they are in the two halves
    order = [*range(0, turned, 2), *range(1, turned, 2)]
    o = w[f"{own}.o_proj.weight"].T
    found = {
        "attention_gain": w[f"{i}.input_layernorm.weight"],
        "q_down": w[f"{own}.q_a_proj.weight"].T, "gain_q": w[f"{own}.q_a_layernorm.weight"],
        "q_up": q[..., :size], "q_turned": q[..., size:][..., order],
        "kv_down": down[:, :-turned], "gain_kv": w[f"{own}.kv_a_layernorm.weight"],
        "k_turned": down[:, -turned:][:, order],
        "k_up": kv[..., :size], "v_up": kv[..., size:],
        "o": o.reshape(count, size, -1), "mlp_gain": w[f"{i}.post_attention_layernorm.weight"],
    }  # fmt: skip
    if f"{i}.mlp.gate.weight" not in w:
        return found | mlp(w, f"{i}.mlp")
    return found | experts(w, f"{i}.mlp") | mlp(w, f"{i}.mlp.shared_experts", "shared_")


DENSE = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 40,
    "max_position_embeddings": 32,
}
OWN = {"hidden": 16, "heads": 4, "kv": 2, "size": 8, "inner": 24, "vocab": 40}
ROUTED = {"output_router_logits": False, "router_aux_loss_coef": 0.0}

Layer = Callable[[Weights, str, Mapping[str, int]], dict[str, Any]]

Family = tuple[str, str, dict[str, Any], dict[str, int], Layer, list[tuple[str, str]]]
"""A page, a class of transformers, its configuration, the sizes of the page, the fields of a layer,
and which layers a field of the page stacks."""

FAMILIES: dict[str, Family] = {
    "llama": (
        "llama",
        "Llama",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        {"layers": 3, "window": SEQ, "base": 500},
        llama,
        [("layers", "012")],
    ),
    "mistral": (
        "llama",
        "Mistral",
        {"sliding_window": 5},
        {"layers": 3, "window": 5, "base": 10000},
        llama,
        [("layers", "012")],
    ),
    "qwen3": ("qwen3", "Qwen3", {}, {"layers": 3, "base": 10000}, llama, [("layers", "012")]),
    "mixtral": (
        "mixtral",
        "Mixtral",
        {"num_local_experts": 4, "num_experts_per_tok": 2, **ROUTED},
        {"layers": 3, "experts": 4, "chosen": 2, "places": SEQ, "base": 1000000},
        mixtral,
        [("layers", "012")],
    ),
    "qwen3 moe": (
        "qwen3_moe",
        "Qwen3Moe",
        {
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 24,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            **ROUTED,
        },
        {"layers": 3, "experts": 8, "chosen": 3, "places": SEQ, "base": 10000},
        mixtral,
        [("layers", "012")],
    ),
    "gpt oss": (
        "gpt_oss",
        "GptOss",
        {
            "num_hidden_layers": 4,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0},
            **ROUTED,
        },
        {"pairs": 2, "experts": 4, "chosen": 2, "places": SEQ, "window": 5, "base": 150000},
        gpt_oss,
        [("pairs.near", "02"), ("pairs.far", "13")],
    ),
    "gemma 3": (
        "gemma3",
        "Gemma3",
        {
            "num_hidden_layers": 6,
            "sliding_window": 5,
            "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention"] * 2
            + ["full_attention"]
            + ["sliding_attention"] * 2
            + ["full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
            },
        },
        {"groups": 2, "locals": 2, "window": 5},
        gemma3,
        [("groups.near", "0134"), ("groups.far", "25")],
    ),
    "deepseek v3": (
        "deepseek_v3",
        "DeepseekV3",
        {
            "num_hidden_layers": 3,
            "first_k_dense_replace": 1,
            "q_lora_rank": 12,
            "kv_lora_rank": 10,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "n_group": 4,
            "topk_group": 2,
            "n_shared_experts": 1,
            "num_key_value_heads": 4,
            "moe_intermediate_size": 20,
            "routed_scaling_factor": 2.5,
            "head_dim": 4,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        {
            "q_rank": 12,
            "kv_rank": 10,
            "turned": 4,
            "dense": 24,
            "inner": 20,
            "experts": 8,
            "chosen": 3,
            "parts": 4,
            "chosen_parts": 2,
            "places": SEQ,
            "first": 1,
            "layers": 2,
            "base": 10000,
        },
        deepseek,
        [("first", "0"), ("layers", "12")],
    ),
}


def at_sizes(text: str, sizes: Mapping[str, int]) -> str:
    """Return a page with other sizes, on one device, that computes in f64."""
    text = text[: text.index("// A step of AdamW")]
    head = re.search(r"func @loss\([^)]*\)", text)
    assert head
    sized = re.sub(r"(\w+) = \d+", lambda m: f"{m[1]} = {sizes[m[1]]}", head[0])
    text = text.replace(head[0], sized)
    mesh = "machine @cluster { level gpu[2] { port = 1 GB/s, latency = 1 us } }"
    text = re.sub(r"machine .*", mesh, text, count=1)
    text = re.sub(r"mesh .*", "mesh @m on @cluster { data = gpu:2 }", text, count=1)
    return re.sub(r"(?<=\w)@(model|data)\b", "", text).replace("bf16", "f64")


def stacked(parts: list[Any], numbers: Any) -> Any:
    return np.stack(parts).reshape(*numbers, *parts[0].shape)


def loss_of(
    page: str,
    sizes: Mapping[str, int],
    operands: Mapping[str, Any],
    fields: Weights,
    behind: str = "",
) -> float:
    """Return the loss of a page, with weights by the names of their fields.

    Args:
        behind: a function that calls the loss, if that is generic.
    """
    text = next(x.text for x in MODELS.values() if x.page == page)
    module = collir.parse(at_sizes(text, sizes) + behind)
    name = "main" if behind else "loss"
    [loss] = [f for f in functions_of(module) if f.sym_name.data == name]
    arrays: list[list[Any]] = []
    for name, arg in zip(argument_names(loss), loss.args, strict=True):
        x = operands[name] if name in operands else fields[name.removeprefix("w.")]
        arrays.append([np.asarray(x).astype(NUMPY[dist_type(arg).dtype])] * 2)
    [result] = execute(module, loss, arrays)
    return float(np.asarray(result[0]))


@pytest.mark.parametrize("name", some(list(FAMILIES), 3))
def test_a_page_computes_what_its_model_does(name: str) -> None:
    page, model, config, sizes, layer, places = FAMILIES[name]
    sizes = OWN | sizes | {"batch": BATCH, "seq": SEQ}
    eps = 1e-5 if page in ("llama", "mixtral", "gpt_oss") else 1e-6
    extra = {"attn_implementation": "eager", "rms_norm_eps": eps} | config
    kind = "Gemma3TextConfig" if model == "Gemma3" else f"{model}Config"
    made = getattr(transformers, kind)(**(DENSE | extra))
    torch.manual_seed(1)
    causal = getattr(transformers, f"{model}ForCausalLM")(made).double().eval()
    set_experts(causal)
    with torch.no_grad():
        drawn = [x for n, x in causal.named_buffers() if "correction_bias" in n]
        for weight in (*causal.parameters(), *drawn):
            weight.add_(0.1 * torch.randn_like(weight))
    tokens, targets = torch.randint(
        0, 40, (2, BATCH, SEQ), generator=torch.Generator().manual_seed(2)
    )
    logits = causal(tokens).logits
    right = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()
    w = {path: x.detach().numpy() for path, x in causal.state_dict().items()}
    fields = {
        "embedding": w["model.embed_tokens.weight"], "head": w["lm_head.weight"],
        "gain": w["model.norm.weight"] + (1 if model == "Gemma3" else 0),
    }  # fmt: skip
    for field, numbers in places:
        parts = [layer(w, f"model.layers.{i}", sizes) for i in numbers]
        outer = (len(numbers),)
        if field == "groups.near":
            outer = (sizes["groups"], sizes["locals"])
        for part in parts[0]:
            fields[f"{field}.{part}"] = stacked([x[part] for x in parts], outer)
    operands = {"tokens": tokens.numpy(), "targets": targets.numpy()}
    if page == "deepseek_v3":
        bias = [w[f"model.layers.{i}.mlp.gate.e_score_correction_bias"] for i in "12"]
        operands["bias"] = np.stack(bias)
    assert abs(loss_of(page, sizes, operands, fields) - right) < 2e-6 * abs(right)


def perturbed(model: Any) -> Weights:
    """Return the weights of a model, each changed a little."""
    torch.manual_seed(1)
    model.double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return {name: x.detach().numpy() for name, x in model.state_dict().items()}


def encoder(w: Weights, path: str, names: Mapping[str, str], count: int) -> dict[str, Any]:
    """Return the fields of a layer of an encoder: projections to heads, from them, and norms."""
    found: dict[str, Any] = {}
    for field, name in names.items():
        weight, bias = w[f"{path}.{name}.weight"], w[f"{path}.{name}.bias"]
        if field in ("q", "k", "v"):
            found[field] = weight.T.reshape(weight.shape[1], count, -1)
            found[f"{field}_bias"] = bias.reshape(count, -1)
        elif field == "o":
            found |= {"o": weight.T.reshape(count, -1, weight.shape[0]), "o_bias": bias}
        elif weight.ndim == 1:
            found |= {f"{field}_gain": weight, f"{field}_bias": bias}
        else:
            found |= {field: weight.T, f"{field}_bias": bias}
    return found


ENCODER = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def test_the_page_of_bert_computes_what_its_model_does() -> None:
    config = transformers.BertConfig(
        vocab_size=40, max_position_embeddings=SEQ, hidden_act="gelu_new", **ENCODER
    )
    model = transformers.BertForMaskedLM(config).eval()
    w = perturbed(model)
    tokens, segments, targets = (torch.randint(0, n, (BATCH, SEQ)) for n in (40, 2, 40))
    counts = torch.rand(BATCH, SEQ) < 0.4
    logits = model(tokens, token_type_ids=segments).logits
    right = torch.nn.functional.cross_entropy(logits[counts], targets[counts]).item()
    names = {
        "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
        "o": "attention.output.dense", "attention": "attention.output.LayerNorm",
        "up": "intermediate.dense", "down": "output.dense", "mlp": "output.LayerNorm",
    }  # fmt: skip
    layers = [encoder(w, f"bert.encoder.layer.{i}", names, 4) for i in range(3)]
    start, end = "bert.embeddings", "cls.predictions"
    fields = {f"layers.{x}": np.stack([layer[x] for layer in layers]) for x in layers[0]} | {
        "words": w[f"{start}.word_embeddings.weight"],
        "positions": w[f"{start}.position_embeddings.weight"],
        "kinds": w[f"{start}.token_type_embeddings.weight"],
        "embedding_gain": w[f"{start}.LayerNorm.weight"],
        "embedding_bias": w[f"{start}.LayerNorm.bias"],
        "head": w[f"{end}.transform.dense.weight"].T,
        "head_bias": w[f"{end}.transform.dense.bias"],
        "gain": w[f"{end}.transform.LayerNorm.weight"],
        "bias": w[f"{end}.transform.LayerNorm.bias"], "words_bias": w[f"{end}.bias"],
    }  # fmt: skip
    sizes = {"batch": BATCH, "seq": SEQ, "hidden": 16, "heads": 4, "layers": 3, "vocab": 40}
    operands = {"tokens": tokens, "segments": segments, "targets": targets, "counts": counts}
    assert abs(loss_of("bert", sizes, operands, fields) - right) < 2e-6 * abs(right)


def test_the_page_of_vit_computes_what_its_model_does() -> None:
    config = transformers.ViTConfig(
        image_size=6,
        patch_size=3,
        hidden_act="gelu_new",
        layer_norm_eps=1e-6,
        num_labels=5,
        **ENCODER,
    )
    model = transformers.ViTForImageClassification(config).eval()
    w = perturbed(model)
    images, labels = torch.randn(BATCH, 3, 6, 6).double(), torch.randint(0, 5, (BATCH,))
    right = torch.nn.functional.cross_entropy(model(images).logits, labels).item()
    names = {x: f"attention.{x}_proj" for x in "qkvo"} | {"up": "mlp.fc1", "down": "mlp.fc2"}
    names |= {"attention": "layernorm_before", "mlp": "layernorm_after"}
    layers = [encoder(w, f"vit.layers.{i}", names, 4) for i in range(3)]
    start = "vit.embeddings"
    fields = {f"layers.{x}": np.stack([layer[x] for layer in layers]) for x in layers[0]} | {
        "patch": w[f"{start}.patch_embeddings.projection.weight"].transpose(2, 3, 1, 0),
        "patch_bias": w[f"{start}.patch_embeddings.projection.bias"],
        "class": w[f"{start}.cls_token"], "positions": w[f"{start}.position_embeddings"][0],
        "gain": w["vit.layernorm.weight"], "bias": w["vit.layernorm.bias"],
        "head": w["classifier.weight"].T, "head_bias": w["classifier.bias"],
    }  # fmt: skip
    sizes = {"batch": BATCH, "grid": 2, "patch": 3, "hidden": 16, "heads": 4, "layers": 3}
    operands = {"images": images.permute(0, 2, 3, 1), "labels": labels}
    found = loss_of("vit", sizes | {"classes": 5}, operands, fields)
    assert abs(found - right) < 2e-6 * abs(right)


def test_the_page_of_resnet_computes_what_its_model_does() -> None:
    config = transformers.ResNetConfig(
        embedding_size=2, hidden_sizes=[8, 16, 32, 64], depths=[2, 3, 2, 2], num_labels=5
    )
    model = transformers.ResNetForImageClassification(config).train()
    w = perturbed(model)
    images, labels = torch.randn(BATCH, 3, 32, 32).double(), torch.randint(0, 5, (BATCH,))
    right = torch.nn.functional.cross_entropy(model(images).logits, labels).item()

    def convolution(path: str) -> dict[str, Any]:
        return {
            "weight": w[f"{path}.convolution.weight"].transpose(2, 3, 1, 0),
            "gain": w[f"{path}.normalization.weight"], "bias": w[f"{path}.normalization.bias"],
        }  # fmt: skip

    fields = {f"stem.{x}": y for x, y in convolution("resnet.embedder.embedder").items()}
    for number, depth in enumerate(config.depths):
        path = f"resnet.encoder.stages.{number}.layers"
        blocks = [
            {
                f"{part}.{x}": y
                for n, part in enumerate(("first", "second", "third"))
                for x, y in convolution(f"{path}.{i}.layer.{n}").items()
            }
            for i in range(depth)
        ]
        own = f"stage_{number + 1}"
        fields |= {f"{own}.first.{x}": y for x, y in blocks[0].items()}
        shortcut = convolution(f"{path}.0.shortcut")
        fields |= {f"{own}.shortcut.{x}": y for x, y in shortcut.items()}
        fields |= {f"{own}.more.{x}": np.stack([b[x] for b in blocks[1:]]) for x in blocks[0]}
    fields |= {"head.weight": w["classifier.1.weight"].T, "head.bias": w["classifier.1.bias"]}
    sizes = {"batch": BATCH, "side": 32, "width": 2, "classes": 5}
    sizes |= {f"blocks_{n}": depth for n, depth in enumerate(config.depths, 1)}
    operands = {"images": images.permute(0, 2, 3, 1), "labels": labels}
    blocks_text = ", ".join(f"{x} = {n}" for x, n in sizes.items() if x.startswith("blocks"))
    listed = ", ".join(f"{x} = {n}" for x, n in sizes.items())
    main = (
        f"func @main({listed})(%images: f64[batch, side, side, 3], %labels: i32[batch], "
        "%w: f64 @resnet50) -> f32[] on @m {\n"
        f"  %loss = call @loss({blocks_text})(%images, %labels, %w)\n  return %loss\n}}\n"
    )
    found = loss_of("resnet50", sizes, operands, fields, main)
    assert abs(found - right) < 2e-6 * abs(right)
