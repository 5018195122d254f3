#!/usr/bin/env python3
"""Adapters of random LoraConfigs of PEFT, merged here and by PEFT into the same tiny models.

  bench/compare_adapters.py --automodel BIN/automodel [--count 200] [--seed 1]

What PEFT makes and merges is either refused here or gives the same weights (1e-5). Run it with a Python that has torch,
transformers 5.23 and PEFT (0.21)."""
import argparse
import collections
import logging
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 64, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MODELS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "qwen2": lambda: transformers.Qwen2Config(tie_word_embeddings=True, **SIZES),
    "phi3": lambda: transformers.Phi3Config(**SIZES),
    "gpt2": lambda: transformers.GPT2Config(n_embd=32, n_layer=3, n_head=4, vocab_size=64, n_positions=64, n_inner=48),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(head_dim=8, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2,
                                                     decoder_sparse_step=1, mlp_only_layers=[], **SIZES)}
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MODULES = {"llama": ATTENTION + ["gate_proj", "up_proj", "down_proj"], "qwen2": ATTENTION + ["gate_proj", "up_proj", "down_proj"],
           "phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"], "gpt2": ["c_attn", "c_proj", "c_fc"], "qwen3_moe": ATTENTION}


def settings(draw, kind):
    """Arguments of a LoraConfig."""
    names, chance = MODULES[kind], lambda share: draw.random() < share
    some = draw.sample(names, draw.randrange(1, len(names) + 1))
    embedding = "wte" if kind == "gpt2" else "embed_tokens"
    out = {"r": draw.choice([1, 2, 4, 8]), "lora_alpha": draw.choice([1, 2, 8, 16, 3])}
    out["target_modules"] = draw.choice([some, some, some, "all-linear", r".*\.(%s)" % "|".join(some[:2]),
                                         [some[0], draw.choice([embedding, "lm_head"])]])
    rare = {"rank_pattern": {names[0]: 3}, "alpha_pattern": {"layers.0.*": 5}, "bias": draw.choice(["all", "lora_only"]),
            "modules_to_save": [draw.choice([embedding, "lm_head"])], "exclude_modules": [names[0]], "fan_in_fan_out": True,
            "lora_bias": True, "layer_replication": draw.choice([[[0, 2], [1, 3]], [[0, 1], [0, 2]]]),
            "trainable_token_indices": [1, 3], "layers_to_transform": draw.choice([[0], [1, 2], 1])}
    out |= {key: value for key, value in rare.items() if chance(0.05)}
    out |= {key: True for key in ("use_rslora", "use_dora") if chance(0.2)}
    if chance(0.25):
        out["init_lora_weights"] = draw.choice(["gaussian", "orthogonal", "pissa", "olora", False])
    if kind == "qwen3_moe" and chance(0.2):
        out["target_parameters"] = [draw.choice(["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])]
    return out


def weights(folder):
    return {name: weight for file in folder.glob("*.safetensors") for name, weight in load_file(file).items()}


def merged(base, arguments, seed, folder):
    """Saves adapters in `folder`/adapters and the model that PEFT merges them into in `folder`/merged."""
    load = lambda: transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = get_peft_model(load(), LoraConfig(task_type="CAUSAL_LM", **arguments))
    torch.manual_seed(seed)
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data += torch.randn_like(weight) * 0.1
    model.save_pretrained(folder / "adapters")
    own = load()
    own.load_state_dict(model.merge_and_unload().state_dict(), strict=False)
    own.save_pretrained(folder / "merged")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--automodel", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    draw, counts, failed = random.Random(arguments.seed), collections.Counter(), 0
    with tempfile.TemporaryDirectory() as made:
        for kind, config in MODELS.items():
            torch.manual_seed(1)
            transformers.AutoModelForCausalLM.from_config(config(), dtype=torch.float32).save_pretrained(pathlib.Path(made) / kind)
        for i in range(arguments.count):
            kind = draw.choice(sorted(MODELS))
            chosen, base, folder = settings(draw, kind), pathlib.Path(made) / kind, pathlib.Path(made) / f"case{i}"
            try:
                merged(base, chosen, i, folder)
            except Exception:
                counts["refused by PEFT"] += 1
                continue
            done = subprocess.run([arguments.automodel.resolve(), "checkpoint", "export", folder / "adapters", folder / "out",
                                   "--merge", "--base", base], capture_output=True, text=True, timeout=60)
            if done.returncode:
                counts["refused here"] += 1
                continue
            got, expected = weights(folder / "out"), weights(folder / "merged")
            wrong = sorted(set(got) ^ set(expected)) + [name for name in got if name in expected and not torch.allclose(
                got[name].float(), expected[name].float(), atol=1e-5, rtol=1e-4)]
            if wrong:
                failed += 1
                print(f"{kind} with {chosen}: {len(wrong)} weights differ, {wrong[0]} first", flush=True)
            else:
                counts["equal"] += 1
    print(f"{arguments.count} adapters: " + ", ".join(f"{count} {what}" for what, count in counts.items()) + f", {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
