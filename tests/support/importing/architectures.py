"""Small models of transformers: one of each architecture, with 2 to 5 layers of width 32."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
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

_PYRAMID: dict[str, Any] = {
    "depths": [1, 1], "hidden_sizes": [8, 16], "strides": [4, 2], "num_encoder_blocks": 2,
    "mlp_ratios": [2, 2], "num_attention_heads": [1, 2],
}  # fmt: skip
_STAGES = ["stage1", "stage2", "stage3", "stage4"]
_VISION: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": 16, "patch_size": 8,
}  # fmt: skip
_CLIP = _VISION | {"model_type": "clip_vision_model", "projection_dim": 32, "num_hidden_layers": 3}
_SIGLIP = _VISION | {"model_type": "siglip_vision_model"}
_TEXT: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 32, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2,
}  # fmt: skip
_LLAMA = {"model_type": "llama", "num_key_value_heads": 2, "use_cache": False} | _TEXT
_DETECTION: dict[str, Any] = {
    "num_queries": 4, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
    "backbone_config": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16],
                        "depths": [1, 1], "out_features": ["stage2"]},
}  # fmt: skip
_WAVES: dict[str, Any] = {
    "conv_dim": [8, 8], "conv_kernel": [10, 3], "conv_stride": [5, 2],
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 16,
}  # fmt: skip
_PATCHES: dict[str, Any] = {
    "num_input_channels": 2, "context_length": 16, "prediction_length": 4, "patch_length": 4,
    "patch_stride": 4, "loss": "mse",
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
    "MiniCPM3": {"num_key_value_heads": 4},
    "Youtu": {"num_key_value_heads": 4},
    "Rwkv": {"attention_hidden_size": 32, "context_length": 32, "rescale_every": 0},
    "Gemma3n": {"vocab_size_per_layer_input": 96, "hidden_size_per_layer_input": 8,
                "laurel_rank": 4, "num_kv_shared_layers": 0, "altup_num_inputs": 2,
                "activation_sparsity_pattern": [0.5, 0.0]},
    "DeepseekV2": {"num_key_value_heads": 4},
    "DeepseekV3": {"num_key_value_heads": 4},
    "Glm4MoeLite": {"num_key_value_heads": 4},
    "Llama4": {"intermediate_size_mlp": 48, "num_hidden_layers": 4},
    "Lfm2Moe": {"layer_types": ["conv", "full_attention"]},
    "FalconH1": {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8,
                 "mamba_chunk_size": 4, "mamba_n_groups": 1},
    "Zamba": {"layer_types": ["mamba", "mamba", "hybrid", "mamba", "hybrid"],
              "num_hidden_layers": 5, "mamba_dt_rank": 4, "n_mamba_heads": 2},
    "Zamba2": {"layer_types": ["mamba", "mamba", "hybrid", "mamba", "hybrid"],
               "num_hidden_layers": 5, "hybrid_layer_ids": [2, 4], "mamba_ngroups": 1,
               "n_mamba_heads": 8, "mamba_headdim": 8, "mamba_d_state": 8, "adapter_rank": 4},
    "XLM": {"emb_dim": 32, "n_words": 96, "pad_index": 0},
    "Flaubert": {"emb_dim": 32, "n_words": 96, "pad_index": 0},
    "SqueezeBert": {"embedding_size": 32},
    **{name: {"decoder_start_token_id": 1} for name in
       ("Marian", "Pegasus", "MBart", "BlenderbotSmall", "UMT5", "PLBart", "Mvp", "PegasusX",
        "BigBirdPegasus", "NllbMoe")},
    "Bit": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_groups": 2},
    "ConvNextV2": {"num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 1], "patch_size": 4,
                   "image_size": 32},
    "Cvt": {"patch_sizes": [7, 3, 3], "patch_stride": [4, 2, 2], "patch_padding": [2, 1, 1],
            "embed_dim": [8, 16, 16], "num_heads": [1, 2, 2], "depth": [1, 2, 3],
            "mlp_ratio": [2.0] * 3, "drop_path_rate": [0.0] * 3},
    "DonutSwin": {"patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2],
                  "window_size": 4, "image_size": 16},
    "Swinv2": {"patch_size": 2, "embed_dim": 8, "depths": [2, 1], "num_heads": [1, 2],
               "window_size": 4, "image_size": 16},
    "EfficientNet": {"image_size": 32, "width_coefficient": 0.25, "depth_coefficient": 0.25,
                     "hidden_dim": 320, "depth_divisor": 4},
    "HGNetV2": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1],
                "stem_channels": [3, 8, 8], "stage_in_channels": [8, 8],
                "stage_mid_channels": [8, 8], "stage_out_channels": [8, 16],
                "stage_num_blocks": [1, 1], "stage_downsample": [False, True],
                "stage_light_block": [False, True], "stage_kernel_size": [3, 5],
                "stage_numb_of_layers": [2, 2]},
    "Hiera": {"patch_size": [7, 7], "patch_stride": [4, 4],
              "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "image_size": [32, 32],
              "query_stride": [2, 2], "masked_unit_size": [2, 2], "num_query_pool": 1,
              "masked_unit_attention": [True, False]},
    "Levit": {"image_size": 32, "patch_size": 16,
              "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 2, 2],
              "depths": [1, 1, 1], "key_dim": [8, 8, 8], "mlp_ratio": [2, 2, 2],
              "attention_ratio": [2, 2, 2],
              "down_ops": [["Subsample", 8, 2, 2, 2, 2], ["Subsample", 8, 2, 2, 2, 2]]},
    "MobileNetV1": {"image_size": 32, "depth_multiplier": 0.25, "min_depth": 8},
    "MobileNetV2": {"image_size": 32, "depth_multiplier": 0.25, "min_depth": 8},
    "MobileViT": {"image_size": 32, "hidden_sizes": [16, 20, 24], "patch_size": 2,
                  "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 32]},
    "MobileViTV2": {"image_size": 64, "base_attn_unit_dims": [16, 24, 32], "patch_size": 2,
                    "width_multiplier": 0.25},
    "PoolFormer": {"depths": [1, 1], "hidden_sizes": [8, 16], "patch_sizes": [7, 3],
                   "strides": [4, 2], "padding": [2, 1], "num_encoder_blocks": 2,
                   "mlp_ratio": 2.0},
    "Pvt": {"image_size": 32, "patch_sizes": [4, 2], "sequence_reduction_ratios": [2, 1],
            **_PYRAMID},
    "PvtV2": {"image_size": 32, "patch_sizes": [7, 3], "sr_ratios": [2, 1], **_PYRAMID},
    "Segformer": {"patch_sizes": [7, 3], "sr_ratios": [2, 1], "decoder_hidden_size": 16,
                  **_PYRAMID},
    "RegNet": {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1],
               "groups_width": 4},
    "SwiftFormer": {"image_size": 64, "depths": [1, 1, 1, 1], "embed_dims": [8, 16, 16, 16],
                    "mlp_ratio": 2},
    "TextNet": {"image_size": [32, 32], "stem_num_channels": 3, "stem_out_channels": 8,
                "hidden_sizes": [8, 8, 16, 16, 16],
                "conv_layer_kernel_sizes": [[[3, 3]], [[3, 1]], [[1, 3]], [[3, 3]]],
                "conv_layer_strides": [[1], [2], [2], [1]]},
    **{name: {"vision_config": _VISION, "text_config": _TEXT, "projection_dim": 16}
       for name in ("CLIP", "Siglip", "MetaClip2", "AltCLIP", "ChineseCLIP", "CLIPSeg", "OwlViT")},
    "GroupViT": {"vision_config": _VISION | {"depths": [1, 1, 1], "num_group_tokens": [4, 2, 0],
                                             "num_output_groups": [4, 2, 0]},
                 "text_config": _TEXT, "projection_dim": 16, "projection_intermediate_dim": 16},
    "Blip": {"vision_config": _VISION, "text_config": _TEXT | {"encoder_hidden_size": 32},
             "projection_dim": 16, "image_text_hidden_size": 16},
    "Git": {"vision_config": _VISION},
    "Llava": {"vision_config": _CLIP, "text_config": _LLAMA, "image_token_index": 90},
    "VipLlava": {"vision_config": _CLIP | {"num_hidden_layers": 3}, "text_config": _LLAMA,
                 "image_token_index": 90, "vision_feature_layers": [-2, -1]},
    "PaliGemma": {"vision_config": _SIGLIP, "image_token_index": 90, "projection_dim": 32,
                  "text_config": _LLAMA | {"model_type": "gemma", "head_dim": 8}},
    "AyaVision": {"vision_config": _SIGLIP | {"patch_size": 4}, "image_token_index": 90,
                  "text_config": _LLAMA | {"model_type": "cohere2", "head_dim": 8},
                  "downsample_factor": 2, "vision_feature_layer": -1},
    "InternVL": {"vision_config": _VISION | {"model_type": "internvl_vision",
                                             "image_size": [16, 16], "patch_size": [4, 4]},
                 "text_config": _LLAMA | {"model_type": "qwen2"}, "image_token_id": 90},
    "BeitForSemanticSegmentation": {"num_hidden_layers": 4, "out_indices": [0, 1, 2, 3],
                                    "image_size": 32, "pool_scales": [1, 2]},
    "DPT": {"image_size": 32, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 8, 8, 8], "fusion_hidden_size": 8,
            "reassemble_factors": [4, 2, 1, 0.5]},
    "UperNet": {"hidden_size": 16, "auxiliary_channels": 8, "auxiliary_in_channels": 16,
                "pool_scales": [1, 2],
                "backbone_config": {"model_type": "convnext", "hidden_sizes": [8, 8, 16, 16],
                                    "depths": [1, 1, 1, 1], "out_features": _STAGES}},
    "GLPN": {"depths": [1] * 4, "hidden_sizes": [8, 8, 16, 16], "sr_ratios": [4, 2, 1, 1],
             "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 8,
             "mlp_ratios": [2] * 4},
    "DepthAnything": {"reassemble_hidden_size": 32, "neck_hidden_sizes": [8, 8, 8, 8],
                      "fusion_hidden_size": 8, "head_hidden_size": 8, "patch_size": 8,
                      "backbone_config": {"model_type": "dinov2", "hidden_size": 32,
                                          "num_hidden_layers": 4, "num_attention_heads": 4,
                                          "image_size": 32, "patch_size": 8,
                                          "out_features": _STAGES,
                                          "reshape_hidden_states": False}},
    "Yolos": {"num_detection_tokens": 4, "image_size": [16, 16]},
    "Detr": _DETECTION,
    "ConditionalDetr": _DETECTION,
    "TableTransformer": _DETECTION,
    "DabDetr": {key: value for key, value in _DETECTION.items() if key != "d_model"},
    "DeformableDetr": _DETECTION | {"num_feature_levels": 2, "encoder_n_points": 2,
                                    "decoder_n_points": 2, "with_box_refine": True,
                                    "decoder_layers": 2},
    "RTDetr": {"encoder_hidden_dim": 32, "d_model": 32, "encoder_ffn_dim": 48,
               "decoder_ffn_dim": 48, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
               "num_queries": 4, "decoder_layers": 1, "encoder_in_channels": [8, 16, 16],
               "decoder_in_channels": [32, 32, 32], "decoder_n_points": 2,
               "hidden_expansion": 0.5, "num_denoising": 0,
               "backbone_config": {"model_type": "rt_detr_resnet", "embedding_size": 8,
                                   "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1],
                                   "layer_type": "basic", "out_features": _STAGES[1:]}},
    "Sam": {"vision_config": {"hidden_size": 32, "num_hidden_layers": 2, "mlp_dim": 48,
                              "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
                              "output_channels": 16, "window_size": 2, "num_pos_feats": 8,
                              "global_attn_indexes": [1]},
            "prompt_encoder_config": {"hidden_size": 16, "image_size": 32, "patch_size": 8,
                                      "mask_input_channels": 4},
            "mask_decoder_config": {"hidden_size": 16, "mlp_dim": 32, "num_hidden_layers": 1,
                                    "num_attention_heads": 2, "iou_head_hidden_dim": 16}},
    "VideoMAE": {"num_frames": 4, "tubelet_size": 2},
    "Timesformer": {"num_frames": 4},
    "Vivit": {"num_frames": 4, "tubelet_size": [2, 8, 8]},
    "VJEPA2": {"crop_size": 16, "frames_per_clip": 4, "num_attention_heads": 2,
               "pred_hidden_size": 16, "pred_num_hidden_layers": 1, "num_pooler_layers": 1,
               "pred_num_attention_heads": 2},
    "Whisper": {"decoder_start_token_id": 1},
    "Speech2Text": {"decoder_start_token_id": 1, "input_feat_per_channel": 8,
                    "conv_channels": 16, "max_source_positions": 32},
    "AST": {"max_length": 24, "patch_size": 4, "frequency_stride": 4, "time_stride": 4},
    **dict.fromkeys(("Wav2Vec2", "Hubert", "WavLM", "UniSpeech", "UniSpeechSat",
                                 "SEW", "Wav2Vec2Conformer"), _WAVES),
    "Data2VecAudio": _WAVES | {"num_conv_pos_embeddings": 2},
    "SpeechT5": _WAVES | {"decoder_start_token_id": 1},
    "Moonshine": {"decoder_start_token_id": 1, **{
        f"{side}_{name}": number for side in ("encoder", "decoder") for name, number in
        (("num_hidden_layers", 2), ("num_attention_heads", 4), ("num_key_value_heads", 4))}},
    "PatchTST": _PATCHES | {"d_model": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "PatchTSMixer": _PATCHES | {"d_model": 16, "num_layers": 2},
    "LayoutLMv3": {"coordinate_size": 4, "shape_size": 8, "visual_embed": False,
                   "max_2d_position_embeddings": 64},
    "Canine": {"downsampling_rate": 2, "local_transformer_stride": 4, "num_hash_buckets": 16},
}  # fmt: skip
"""Settings that an architecture needs beside or instead of ``SMALL``."""

CONFIGS = {
    "Gemma3": "Gemma3TextConfig", "Llama4": "Llama4TextConfig", "Gemma3n": "Gemma3nTextConfig",
    "BeitForSemanticSegmentation": "BeitConfig", "Qwen3_5": "Qwen3_5TextConfig",
}  # fmt: skip


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

FIRST = (*DECODERS, *EXPERTS, *STATES, *ENCODERS, *PAIRS, *IMAGES)
"""The architectures of which tests draw some every time."""

MORE_DECODERS = _listed(
    "GPTJ Phi Olmo2 Olmo3 Cohere2 Doge Exaone4 Lfm2 Ministral Ministral3 SeedOss VaultGemma "
    "Apertus Cwm GPTNeoXJapanese BertGeneration TrOCR Jais2 MiniCPM3 Youtu RecurrentGemma xLSTM "
    "Rwkv Gemma3n GraniteSWA HyperCLOVAX"
)
MORE_EXPERTS = _listed(
    "Phimoe Dots1 Ernie4_5_Moe GraniteMoe GraniteMoeShared HunYuanMoEV1 Lfm2Moe Afmoe "
    "MiMoV2Flash MiniMaxM2 SolarOpen DeepseekV2 DeepseekV3 Glm4MoeLite Llama4"
)
MORE_STATES = _listed("Qwen3Next Qwen3_5 OlmoHybrid FalconH1 Zamba Zamba2")
MORE_ENCODERS = _listed(
    "ConvBert Data2VecText DebertaV2 Ernie EuroBert Flaubert FNet Funnel IBert Luke MegatronBert "
    "MobileBert MPNet Mra Nystromformer RemBert RobertaPreLayerNorm RoCBert RoFormer SqueezeBert "
    "Tapas XLM XLMRobertaXL XLNet JinaEmbeddingsV3 Gte"
)
MORE_PAIRS = _listed(
    "Marian Pegasus MBart BlenderbotSmall UMT5 PLBart Mvp PegasusX BigBirdPegasus NllbMoe"
)
MORE_IMAGES = _listed(
    "Bit ConvNextV2 Cvt Data2VecVision Dinov2WithRegisters DonutSwin EfficientNet HGNetV2 Hiera "
    "IJepa Levit MobileNetV1 MobileNetV2 MobileViT MobileViTV2 PoolFormer Pvt PvtV2 RegNet "
    "Segformer SwiftFormer Swinv2 TextNet"
)
SCENES = _listed("BeitForSemanticSegmentation DPT UperNet")
SEEN = _listed(
    "GLPN DepthAnything Yolos Detr ConditionalDetr TableTransformer DabDetr DeformableDetr RTDetr "
    "Sam"
)
CLIPS = _listed("VideoMAE Timesformer Vivit VJEPA2")
PICTURED = _listed("CLIP Siglip MetaClip2 AltCLIP ChineseCLIP CLIPSeg OwlViT GroupViT")
TOLD = _listed("Blip Git Llava VipLlava PaliGemma AyaVision InternVL")
SOUNDS = _listed(
    "Whisper Speech2Text SpeechT5 Moonshine AST Wav2Vec2 Hubert WavLM UniSpeech UniSpeechSat SEW "
    "Wav2Vec2Conformer Data2VecAudio"
)
SERIES = _listed("PatchTST PatchTSMixer")
LABELLED = _listed("LayoutLMv3 Canine")

MORE = (
    *MORE_DECODERS, *MORE_EXPERTS, *MORE_STATES, *MORE_ENCODERS, *MORE_PAIRS, *MORE_IMAGES,
    *SCENES, *SEEN, *CLIPS, *PICTURED, *TOLD, *SOUNDS, *SERIES, *LABELLED,
)  # fmt: skip

ALL = (*FIRST, *MORE)
"""The architectures that are imported: of each, loss and all gradients equal torch's."""

_HEADS = {
    "GPT2": "GPT2LMHeadModel", "OpenAIGPT": "OpenAIGPTLMHeadModel", "CTRL": "CTRLLMHeadModel",
    "ImageGPT": "ImageGPTForCausalImageModeling", "BertGeneration": "BertGenerationDecoder",
    "Git": "GitForCausalLM", "SpeechT5": "SpeechT5ForSpeechToText", "Sam": "SamModel",
    "BeitForSemanticSegmentation": "BeitForSemanticSegmentation",
    "AST": "ASTForAudioClassification",
} | {name: f"{name}ForMaskedLM" for name in (*ENCODERS, *MORE_ENCODERS)} | {
    name: f"{name}ForConditionalGeneration" for name in (*PAIRS, *MORE_PAIRS)
} | {name: f"{name}ForImageClassification" for name in (*IMAGES, *MORE_IMAGES)} | {
    name: f"{name}ForSemanticSegmentation" for name in ("DPT", "UperNet")
} | {name: f"{name}ForVideoClassification" for name in CLIPS} | {
    name: f"{name}Model" for name in PICTURED
} | {name: f"{name}ForConditionalGeneration" for name in
     ("Blip", *TOLD[2:], "Whisper", "Speech2Text", "Moonshine")} | {
    name: f"{name}ForSequenceClassification" for name in (*SOUNDS[5:], *LABELLED)
} | {name: f"{name}ForPrediction" for name in SERIES} | {
    "GLPN": "GLPNForDepthEstimation", "DepthAnything": "DepthAnythingForDepthEstimation",
    "Marian": "MarianMTModel", "XLM": "XLMWithLMHeadModel", "XLNet": "XLNetLMHeadModel",
    "Flaubert": "FlaubertWithLMHeadModel",
} | {
    name: f"{name}ForObjectDetection" for name in SEEN if name[-2:] in ("tr", "er", "os")
}  # fmt: skip


F32_ALONE = ("Mra",)
"""The architectures that make floats of 32 bits in between, and run in f32 alone."""


class Squares(torch.nn.Module):
    """The mean squares of what a model makes, where it has no loss that can be exported."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, **arguments: Any) -> Any:
        """Return their sum."""
        made = self.model(**arguments).to_tuple()[:3]
        return sum((x * x).mean() for x in made if isinstance(x, torch.Tensor))


@contextmanager
def f64_by_default() -> Generator[None]:
    """Make torch's new floats f64, as models that make some in between need to run in f64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def small(name: str) -> tuple[torch.nn.Module, Mapping[str, Any]]:
    """Return a small model of an architecture in f64, and arguments of its loss."""
    cls = getattr(transformers, CONFIGS.get(name, f"{name}Config"))
    known = cls()
    settings = {
        key: value
        for key, value in SMALL.items()
        if hasattr(known, key) and not isinstance(getattr(cls, key, None), property)
    }
    if name in (*IMAGES, *_OWN_ALONE):
        settings = settings | {"num_labels": 5} if name not in OWN else {"num_labels": 5}
    torch.manual_seed(0)
    with f64_by_default():
        head = getattr(transformers, _HEADS.get(name, f"{name}ForCausalLM"))
        five = {"num_labels": 5} if name in _FIVE else {}
        model = head(cls(**(settings | five | OWN.get(name, {})))).double()
    return (Squares(model) if name in SEEN else model), _arguments(name, model)


_OWN_ALONE = ("Swinv2", "DonutSwin")
"""The architectures that are made of their own settings alone."""

_FIVE = {*MORE_IMAGES, *SCENES, *CLIPS, *SOUNDS[4:], *LABELLED}
"""The architectures with five classes."""


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def _sizes(side: int | Sequence[int]) -> Sequence[int]:
    """Return the height and the width of images that are squares, or are not."""
    return (side, side) if isinstance(side, int) else side


def _arguments(name: str, model: torch.nn.Module) -> Mapping[str, Any]:
    """Return the arguments of the loss of a model."""
    config: Any = model.config
    classes = torch.tensor([1, 3])
    if name in (*IMAGES, *MORE_IMAGES, *SCENES, *SEEN):
        height, width = _sizes(_SIDES.get(name) or getattr(config, "image_size", 32))
        images = _normal(2, 3, height, width)
        if name in SEEN:
            return {"pixel_values": images}
        labels = torch.randint(0, 5, (2, height, width)) if name in SCENES else classes
        return {"pixel_values": images, "labels": labels}
    if name in CLIPS:
        key = "pixel_values_videos" if name == "VJEPA2" else "pixel_values"
        return {key: _normal(2, 4, 3, 16, 16), "labels": classes}
    if name in SOUNDS:
        labels = torch.randint(3, 90, (2, 6)) if name in SOUNDS[:4] else classes
        key = "input_features" if name in SOUNDS[:2] else "input_values"
        return {key: _normal(2, *_SOUND.get(name, (200,))), "labels": labels}
    if name in SERIES:
        return {"past_values": _normal(2, 16, 2), "future_values": _normal(2, 4, 2)}
    words = torch.randint(3, 80, (2, 8))
    if name in LABELLED:
        boxes = {"bbox": torch.randint(0, 60, (2, 8, 4))} if name == "LayoutLMv3" else {}
        return {"input_ids": words, "labels": classes, **boxes}
    if name in PICTURED:
        return {"input_ids": words, "pixel_values": _normal(2, 3, 16, 16), "return_loss": True}
    if name in TOLD:
        labels = words.clone()
        if name not in ("Blip", "Git"):
            words[:, 2:6], labels[:, 2:6] = 90, -100  # the image
        types = {"token_type_ids": (words != 90).long()} if name == "PaliGemma" else {}
        return {
            "input_ids": words,
            "pixel_values": _normal(2, 3, 16, 16),
            "labels": labels,
            **types,
        }
    words = torch.randint(3, 96, (2, 6))
    labels = words.clone()
    labels[0, 2] = -100
    return {"input_ids": words, "labels": labels}


_SIDES = {
    "Segformer": 32, "RegNet": 32, "Cvt": 32, "UperNet": 32, "GLPN": 32, "DepthAnything": 32,
    "Detr": 32, "ConditionalDetr": 32, "TableTransformer": 32, "DabDetr": 32,
    "DeformableDetr": 32, "RTDetr": 64, "Sam": 32,
}  # fmt: skip
"""The sides of images, where no configuration says them."""

_SOUND = {
    "Whisper": (8, 32), "Speech2Text": (16, 8), "SpeechT5": (400,), "Moonshine": (2000,),
    "AST": (24, 8),
}  # fmt: skip
"""The sizes of sounds that are not 200 numbers long."""
