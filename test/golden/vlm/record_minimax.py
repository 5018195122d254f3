"""Records minimax_m3_vl: a tiny MiniMax-M3 with its tokenizer and processor, by record_run.py.

    python record_minimax.py

The tokenizer is qwen3_vl's with the tokens of this model; the chat template has the form of the published one. Weights
are drawn until no rounding decides: a choice of experts or blocks, a clamp."""

import json
import pathlib

import record_run
import tiny_tokenizer
import transformers
from transformers.models.minimax_m3_vl.image_processing_minimax_m3_vl import MiniMaxM3VLImageProcessor
from transformers.models.minimax_m3_vl.processing_minimax_m3_vl import MiniMaxM3VLProcessor
from transformers.models.minimax_m3_vl.video_processing_minimax_m3_vl import MiniMaxM3VLVideoProcessor

HERE = pathlib.Path(__file__).parent
OUT = HERE / "minimax_m3_vl"
ADDED = ["]<]image[>[", "]<]video[>[", "]<]start of image[>[", "]<]end of image[>[", "]~b]", "[e~["]
ASSISTANT, STOP = "]~b]ai\n", "[e~["
PAD, VOCAB = 316, 336
TEMPLATE = (
    "{%- for m in messages %}{{- ']~b]' ~ ('ai' if m.role == 'assistant' else m.role) ~ '\\n' }}{%- if m.content is string %}"
    "{{- m.content }}{%- else %}{%- for item in m.content %}{{- ']<]image[>[' if item.type == 'image' else item.text }}"
    "{%- endfor %}{%- endif %}{{- '[e~[\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- ']~b]ai\\n' }}{%- endif %}"
)
SIZES = {"patch_size": 4, "size": {"shortest_edge": 64, "longest_edge": 960}}
# As the published config.json spells it.
CONFIG = {
    "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl",
    "text_config": {
        "hidden_size": 48, "intermediate_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": VOCAB, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6, "use_gemma_norm": True, "attention_output_gate": False, "rope_theta": 500,
        "rotary_dim": 8, "partial_rotary_factor": 0.5, "hidden_act": "swigluoai", "use_qk_norm": True,
        "tie_word_embeddings": False, "dense_intermediate_size": 56, "shared_intermediate_size": 24,
        "num_local_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "scoring_func": "sigmoid",
        "use_routing_bias": True, "moe_layer_freq": [0, 1, 1], "qk_norm_type": "per_head", "num_mtp_modules": 7,
        "num_nextn_predict_layers": 1, "swiglu_alpha": 1.702, "swiglu_limit": 1.5, "routed_scaling_factor": 2.0,
        "sparse_attention_config": {
            "use_sparse_attention": True, "sparse_index_dim": 12, "sparse_num_index_heads": 2, "sparse_topk_blocks": 3,
            "sparse_block_size": 8, "sparse_disable_index_value": [0, 1, 1], "sparse_score_type": "max",
            "sparse_init_block": 0, "sparse_local_block": 1, "sparse_attention_freq": [0, 1, 1]},
        "architectures": ["MiniMaxM3SparseForCausalLM"], "pad_token_id": PAD, "bos_token_id": None, "eos_token_id": None},
    "vision_config": {
        "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 56, "patch_size": 4,
        "image_size": 64, "projection_dim": 48, "position_embedding_type": "rope", "rope_mode": "3d", "rope_theta": 100.0,
        "attention_dropout": 0.0, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "model_type": "clip_vision_model",
        "num_channels": 3, "vocab_size": 32000, "vision_segment_max_frames": 4,
        "img_token_compression_config": {"image_token_compression_method": "patch_merge", "spatial_merge_size": 2,
                                         "temporal_patch_size": 2}},
    "img_token_compression_config": {"image_token_compression_method": "patch_merge", "spatial_merge_size": 2,
                                     "temporal_patch_size": 2},
    "multimodal_projector_bias": True, "num_reward_heads": 0, "process_image_mode": "dynamic_res",
    "projector_hidden_act": "gelu", "vision_feature_layer": -1, "vision_feature_select_strategy": "full",
    "projector_hidden_size": 40, "tie_word_embeddings": False, "torch_dtype": "float32",
}


def main():
    OUT.mkdir(exist_ok=True)
    image = tiny_tokenizer.write(OUT, ADDED, TEMPLATE, STOP, processor_class="MiniMaxM3VLProcessor")
    config = CONFIG | {"image_token_index": image, "video_token_index": image + 1}
    config["text_config"] |= {"eos_token_id": image + len(ADDED) - 1}
    for name in ("config.json", "config.published.json"):  # the first is written again, as transformers spells it
        (OUT / name).write_text(json.dumps(config, indent=1))
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(OUT)
    MiniMaxM3VLProcessor(MiniMaxM3VLImageProcessor(**SIZES), tokenizer, MiniMaxM3VLVideoProcessor(),
                         chat_template=TEMPLATE).image_processor.save_pretrained(OUT)
    record_run.record(OUT, ASSISTANT, STOP, range(14, 300))  # the first ones make choices that a rounding decides


if __name__ == "__main__":
    main()
