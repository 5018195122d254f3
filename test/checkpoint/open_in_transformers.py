#!/usr/bin/env python3
"""Models saved here open in transformers with the same losses, and models that transformers and PEFT save open here.

  open_in_transformers.py AUTOMODEL        exit 77 (skipped) where torch, transformers or safetensors is not installed
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}; pip install torch transformers safetensors (and peft) to run this test")
    sys.exit(77)
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

PROGRAM = sys.argv[1]
SIZES = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=67, max_position_embeddings=32, initializer_range=0.2)
MODELS = {
    "llama": dict(model_type="llama", **SIZES),
    "tied llama": dict(model_type="llama", tie_word_embeddings=True, **SIZES),
    "qwen2": dict(model_type="qwen2", **SIZES),
    "qwen3": dict(model_type="qwen3", head_dim=16, **SIZES),
    "gemma2": dict(model_type="gemma2", head_dim=16, sliding_window=8, query_pre_attn_scalar=16, **SIZES),
    "phi3": dict(model_type="phi3", pad_token_id=0, **SIZES),
    "gpt2": dict(model_type="gpt2", n_embd=32, n_layer=3, n_head=4, n_positions=32, vocab_size=67,
                 initializer_range=0.2, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0),
    "deepseek_v4": dict(model_type="deepseek_v4", hidden_size=32, moe_intermediate_size=16, num_hidden_layers=3,
                        num_attention_heads=4, num_key_value_heads=1, head_dim=16, qk_rope_head_dim=8, q_lora_rank=16,
                        o_lora_rank=8, o_groups=2, n_routed_experts=4, num_experts_per_tok=2, index_n_heads=2,
                        index_head_dim=16, index_topk=2, sliding_window=5, num_hash_layers=1, hc_mult=2, vocab_size=67,
                        layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
                        compress_rates={"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},
                        max_position_embeddings=32, initializer_range=0.2, bos_token_id=1, eos_token_id=2),
}
ROWS = [[(7 * row + 3 * i * i + i) % 66 + 1 for i in range(12)] for row in range(4)]
# One validation set per row, so that the loss of each row is compared and not only their sum.
VALIDATION = {f"validation_dataset_row{i}": {"_target_": "tokens", "path": f"row{i}.jsonl"} for i in range(len(ROWS))}


def train(folder, name, recipe):
    """Runs a recipe (JSON is YAML) in `folder`."""
    (folder / f"{name}.yaml").write_text(json.dumps(recipe))
    done = subprocess.run([PROGRAM, "train", f"{name}.yaml"], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")


def recipe(model, run, steps, lr, **more):
    return {**more, "model": model, "device": "cpu", "optimizer": {"lr": lr, "weight_decay": 0.0},
            "dataset": {"_target_": "mock", "vocab_size": 67, "seq_length": 12, "num_samples": 64},
            "step_scheduler": {"global_batch_size": 4, "local_batch_size": 4, "max_steps": steps, "num_epochs": None},
            "checkpoint": {"checkpoint_dir": run}, "logging": {"tensorboard": False}, **VALIDATION}


def our_losses(folder, run):
    """The last validation loss of each row."""
    out = []
    for i in range(len(ROWS)):
        lines = (folder / run / f"validation_row{i}.jsonl").read_text().splitlines()
        out.append(json.loads(lines[-1])["val_loss"])
    return out


def losses(model):
    out = []
    for row in ROWS:
        ids = torch.tensor([row])
        with torch.no_grad():
            out.append(model(input_ids=ids, labels=ids).loss.item())
    return out


def compare(what, ours, theirs, tolerance=2e-5):
    worst = max(abs(a - b) for a, b in zip(ours, theirs))
    print(f"{what}: largest difference of {len(ours)} losses {worst:.1e}")
    if not worst <= tolerance:
        sys.exit(f"{what}: {ours} against {theirs}")


def open_model(path):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(path, output_loading_info=True, dtype="float32")
    if any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        sys.exit(f"{path}: {info}")
    return model.eval()


def written_here(folder):
    for name, config in MODELS.items():
        run = name.replace(" ", "_")
        train(folder, run, recipe({"config": config, "torch_dtype": "float32"}, run, 3, 0.01))
        compare(f"{name} trained here, opened there", our_losses(folder, run), losses(open_model(folder / run / "LATEST/model")))
        out = folder / (run + "_export")
        subprocess.run([PROGRAM, "checkpoint", "export", folder / run, out], check=True, capture_output=True)
        compare(f"{name} exported", our_losses(folder, run), losses(open_model(out)))


def written_there(folder):
    for name, config in MODELS.items():
        torch.manual_seed(1)
        keys = {key: value for key, value in config.items() if key != "model_type"}
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(config["model_type"], **keys)).float().eval()
        path = folder / ("hf_" + name.replace(" ", "_"))
        model.save_pretrained(path, max_shard_size="20KB")
        if not (path / "model.safetensors.index.json").exists():
            sys.exit(f"{path} was not sharded")
        run = path.name + "_run"
        train(folder, run, recipe({"pretrained_model_name_or_path": str(path), "torch_dtype": "float32"}, run, 1, 0.0))
        compare(f"{name} saved there, opened here", our_losses(folder, run), losses(model))


def adapters(folder):
    try:
        import peft
    except ImportError:
        print("adapters: not tested, peft is not installed")
        return
    for name, targets, transposed, dora in (("llama", ["q_proj", "down_proj"], False, False),
                                            ("gpt2", ["c_attn", "c_fc"], True, False),
                                            ("llama", ["q_proj", "down_proj"], False, True)):
        base = folder / f"hf_{name}"
        torch.manual_seed(2)
        model = peft.get_peft_model(
            open_model(base), peft.LoraConfig(r=4, lora_alpha=12, target_modules=targets, task_type="CAUSAL_LM",
                                              init_lora_weights=False, fan_in_fan_out=transposed,
                                              use_dora=dora)).eval()
        lora, out = folder / f"lora_{name}_{dora}", folder / f"merged_{name}_{dora}"
        model.save_pretrained(lora)
        subprocess.run([PROGRAM, "checkpoint", "export", lora, out, "--merge", "--base", base],
                       check=True, capture_output=True)
        if max(abs(a - b) for a, b in zip(losses(model), losses(open_model(base)))) < 1e-2:
            sys.exit("the adapters do nothing: this test could not fail")
        compare(f"{name}'s adapters merged", losses(open_model(out)), losses(model))


def trained_adapters(folder):
    try:
        import peft
    except ImportError:
        print("adapters trained here: not tested, peft is not installed")
        return
    for name, section in (("llama", {"dim": 4}), ("tied_llama", {"exclude_modules": ["lm_head"]}),
                          ("llama", {"match_all_linear": True, "dim": 3}),
                          ("llama", {"match_all_linear": True, "dim": 3, "use_dora": True}),
                          ("phi3", {"target_modules": ["qkv_proj", "*.layers.1.*down_proj"]}),
                          ("gpt2", {"target_modules": ["c_attn", "c_proj", "c_fc"]})):
        base = folder / f"hf_{name}"
        run = f"peft_{name}_{len(str(section))}"
        model = {"pretrained_model_name_or_path": str(base), "torch_dtype": "float32"}
        train(folder, run, recipe(model, run, 4, 0.02, peft=section))
        opened = peft.PeftModel.from_pretrained(open_model(base), folder / run / "LATEST/model").eval()
        ours = our_losses(folder, run)
        if max(abs(a - b) for a, b in zip(ours, losses(open_model(base)))) < 1e-2:
            sys.exit("the adapters do nothing: this test could not fail")
        compare(f"{name}'s adapters {section} trained here, opened in PEFT", ours, losses(opened))
        out = folder / f"{run}_merged"
        subprocess.run([PROGRAM, "checkpoint", "export", folder / run, out, "--merge"], check=True, capture_output=True)
        compare("merged", ours, losses(open_model(out)))


with tempfile.TemporaryDirectory() as place:
    place = pathlib.Path(place)
    for i, ids in enumerate(ROWS):
        (place / f"row{i}.jsonl").write_text(json.dumps({"input_ids": ids}) + "\n")
    written_here(place)
    written_there(place)
    adapters(place)
    trained_adapters(place)
