# pyright: basic, reportMissingImports=false
"""Small models of transformers: one of each architecture, with 2 to 4 layers of width 32."""

from collections.abc import Mapping
from typing import Any

import torch
import transformers

SMALL: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 32, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions":
    32, "n_inner": 48, "d_model": 32, "n_heads": 4, "n_layers": 2, "ffn_dim": 48,
    "word_embed_proj_dim": 32, "num_layers": 2, "num_heads": 4, "d_ff": 48, "d_kv": 8,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    "max_seq_len": 32, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24, "n_routed_experts":
    4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "q_lora_rank": 16,
    "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "first_k_dense_replace": 1, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "attention_dropout": 0.0, "sliding_window": 4, "image_size": 16,
    "patch_size": 8, "num_channels": 3, "embedding_size": 16, "n_ctx": 32, "dim": 32,
    "hidden_dim": 48, "type_vocab_size": 2, "rotary_dim": 4, "state_size": 8,
    "time_step_rank": 4, "expand": 2, "conv_kernel": 4, "chunk_size": 4, "n_groups": 1,
    "max_source_positions": 16, "max_target_positions": 32, "num_mel_bins": 8,
    "query_pre_attn_scalar": 8, "moe_num_experts": 4,
}  # fmt: skip

OWN: dict[str, dict[str, Any]] = {
    "GPTNeo": {"attention_types": [[["global", "local"], 1]], "window_size": 4},
    "Mamba2": {"num_heads": 8, "head_dim": 8},
    "Bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1},
    "GraniteMoeHybrid": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8},
    "ModernBert": {"num_hidden_layers": 4},
    "GptOss": {"num_hidden_layers": 4},
    "Gemma2": {"num_hidden_layers": 4},
    "BigBird": {"attention_type": "original_full"},
    "T5": {"decoder_start_token_id": 1, "num_layers": 3, "num_decoder_layers": 4},
    "MT5": {"decoder_start_token_id": 1, "num_decoder_layers": 2},
    "Bart": {"decoder_start_token_id": 1},
    "Blenderbot": {"decoder_start_token_id": 1},
    "M2M100": {"decoder_start_token_id": 1},
    "Swin": {"patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2],
             "window_size": 4},
    "ConvNext": {"num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 1], "patch_size": 4},
    "ResNet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    "FocalNet": {"patch_size": 2, "embed_dim": 8, "depths": [1, 1], "hidden_sizes": [8, 16],
                 "focal_levels": [1, 1], "focal_windows": [3, 3]},
}  # fmt: skip
"""Settings that an architecture needs beside or instead of ``SMALL``."""

CONFIGS = {"Gemma3": "Gemma3TextConfig", "Llama4": "Llama4TextConfig"}


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


DECODERS = (
    "Llama",
    "Mistral",
    "Qwen2",
    "Qwen3",
    "Gemma",
    "Gemma2",
    "Gemma3",
    "Phi3",
    "Olmo",
    "GPT2",
    "GPTNeoX",
    "GPTNeo",
    "GPTBigCode",
    "CodeGen",
    "OPT",
    "Bloom",
    "Falcon",
    "Mpt",
    "Starcoder2",
    "Cohere",
    "StableLm",
    "Granite",
    "Glm",
    "Glm4",
    "Ernie4_5",
    "Nemotron",
    "SmolLM3",
    "Helium",
    "Arcee",
    "HunYuanDenseV1",
    "NanoChat",
    "Persimmon",
    "BioGpt",
    "DiffLlama",
    "XGLM",
    "OpenAIGPT",
    "ModernBertDecoder",
    "BitNet",
    "CTRL",
    "ImageGPT",
)
EXPERTS = _listed("Qwen2Moe Qwen3Moe Mixtral Olmoe GptOss Glm4Moe MiniMax FlexOlmo")
STATES = _listed("Mamba Mamba2 FalconMamba Bamba GraniteMoeHybrid NemotronH Jamba")
ENCODERS = (
    "Bert",
    "Roberta",
    "Electra",
    "Albert",
    "Deberta",
    "ModernBert",
    "Camembert",
    "DistilBert",
    "NomicBert",
    "Esm",
    "BigBird",
    "LayoutLM",
    "XLMRoberta",
)
PAIRS = _listed("T5 MT5 Bart Blenderbot M2M100")
IMAGES = _listed("ViT DeiT Dinov2 Beit ViTMSN Swin ConvNext ResNet FocalNet")

ALL = (*DECODERS, *EXPERTS, *STATES, *ENCODERS, *PAIRS, *IMAGES)
"""The architectures that are imported: of each, loss and all gradients equal torch's."""

_HEADS = {
    "GPT2": "GPT2LMHeadModel", "OpenAIGPT": "OpenAIGPTLMHeadModel", "CTRL": "CTRLLMHeadModel",
    "ImageGPT": "ImageGPTForCausalImageModeling",
} | {name: f"{name}ForMaskedLM" for name in ENCODERS} | {
    name: f"{name}ForConditionalGeneration" for name in PAIRS
} | {name: f"{name}ForImageClassification" for name in IMAGES}  # fmt: skip


def small(name: str) -> tuple[torch.nn.Module, Mapping[str, Any]]:
    """Return a small model of an architecture in f64, and arguments of its loss."""
    cls = getattr(transformers, CONFIGS.get(name, f"{name}Config"))
    known = cls()
    settings = {
        key: value
        for key, value in SMALL.items()
        if hasattr(known, key) and not isinstance(getattr(cls, key, None), property)
    }
    if name in IMAGES:
        settings = settings | {"num_labels": 5} if name not in OWN else {"num_labels": 5}
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        head = getattr(transformers, _HEADS.get(name, f"{name}ForCausalLM"))
        model = head(cls(**(settings | OWN.get(name, {}))))
    finally:
        torch.set_default_dtype(before)
    if name in IMAGES:
        side = getattr(model.config, "image_size", 32)
        images = torch.randn(2, 3, side, side, dtype=torch.float64)
        return model, {"pixel_values": images, "labels": torch.tensor([1, 3])}
    words = torch.randint(3, 96, (2, 6))
    labels = words.clone()
    labels[0, 2] = -100
    return model, {"input_ids": words, "labels": labels}
