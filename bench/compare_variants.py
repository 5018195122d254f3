#!/usr/bin/env python3
"""Random variants of the recorded configurations: loss and gradient norm of one batch, here and in transformers.

  bench/compare_variants.py --automodel BIN/automodel [--count 300] [--seed 1] [--only FAMILY ...]

Each variant changes one to three values of a configuration in test/golden/hf_families or test/golden/hf/models (switches,
sizes, factors, activations, RoPE settings, kinds of layers). What transformers builds, and this program does not refuse, must
give the same numbers in float32 within 3e-4 (loss) and 3e-3 (norm). With --saved, transformers also reads the folder that the
run saved, which must give the first loss. Run it with a Python that has torch 2.11 and
transformers 5.23. A difference is a value that one of the two reads and the other does not."""
import argparse
import collections
import contextlib
import copy
import json
import math
import os
import pathlib
import random
import re
import runpy
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "test" / "golden"
ROWS, LENGTH, MASKED = 4, 24, 5  # the first MASKED labels of a row do not count
# What has no part in a loss without dropout, and what a mutation would only turn into another model.
KEPT = re.compile(
    r"dropout|pdrop|token_id|vocab_size|architectures|model_type|dtype|use_cache|version|_name_or_path|output_|return_dict|initializer|"
    r"coder|add_cross|chunk_size|problem_type|label|pretraining_tp|layer_types|auto_map|attn_impl|z_loss|aux|nextn|mtp|task_specific|"
    r"tokenizer_class|prefix|finetuning|bad_words|implementation|ep_size|base_model|kernels|use_bfloat16|pruned|ignore_keys|jitter")
ACTIVATIONS = ["silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2", "gelu_new", "tanh"]
OWN = {"baichuan", "nemotron-nas", "bailing_moe"}  # own_classes.py reads neither activation, RoPE nor norm_topk_prob
RECIPE = """\
seed: 1
device: cpu
model: {pretrained_model_name_or_path: model, torch_dtype: float32}
dataset: {_target_: tokens, path: rows.jsonl}
dataloader: {shuffle: false}
step_scheduler: {global_batch_size: %d, local_batch_size: %d, max_steps: 1, num_epochs: null, ckpt_every_steps: null, val_every_steps: null}
optimizer: {_target_: sgd, lr: 0.0}
checkpoint: {enabled: %s, checkpoint_dir: run}
logging: {progress: false, tensorboard: false}
"""


def rope(draw, config, old):
    """Another RoPE; None where each kind of layer has its own."""
    if any(isinstance(value, dict) for value in (old or {}).values()):
        return None
    kind = draw.choice(["default", "linear", "dynamic", "yarn", "llama3", "longrope"])
    new = {"rope_type": kind, "rope_theta": draw.choice([(old or {}).get("rope_theta") or 10000.0, 100.0, 50000.0])}
    if kind != "default":
        new["factor"] = draw.choice([2.0, 4.0, 8.0])
    if kind in ("yarn", "llama3", "longrope") or kind == "dynamic" and draw.random() < 0.5:
        new["original_max_position_embeddings"] = draw.choice([8, 16, 32])
    if kind == "llama3":
        new |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind == "yarn":
        more = {"beta_fast": draw.choice([1.0, 4.0, 32.0]), "beta_slow": draw.choice([0.2, 1.0]), "mscale": draw.choice([0.0, 0.7, 1.0]),
                "mscale_all_dim": draw.choice([0.0, 0.5, 1.0]), "attention_factor": 1.3, "truncate": False}
        new |= {key: value for key, value in more.items() if draw.random() < 0.35}
    if kind == "longrope":
        width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        pairs = int(width * (config.get("partial_rotary_factor") or 1)) // 2
        new |= {"short_factor": [1 + 0.1 * i for i in range(pairs)], "long_factor": [1.5 + 0.2 * i for i in range(pairs)]}
    share = (old or {}).get("partial_rotary_factor")
    if share is not None and draw.random() < 0.8:
        new["partial_rotary_factor"] = share
    if draw.random() < 0.2:
        new["partial_rotary_factor"] = draw.choice([0.25, 0.5, 0.75])
    return new


def another(draw, config, key):
    """Another value for a key; the old one where there is none."""
    old = config[key]
    sizes = {"num_attention_heads": [2, 4, 8], "head_dim": [8, 16, 24, 32], "max_position_embeddings": [16, 32, 64, 128],
             "hidden_size": [32, 48, 64, 96], "num_hidden_layers": [2, 3, 4, 5], "sliding_window": [None, 4, 8, 1000]}
    if isinstance(old, bool):
        return not old
    if key.endswith(("hidden_act", "activation", "activation_function")):
        return draw.choice(ACTIVATIONS)
    if key == "num_key_value_heads":
        return draw.choice([d for d in (1, 2, 4, 8) if config.get("num_attention_heads", 4) % d == 0])
    if key in sizes:
        return draw.choice(sizes[key])
    if key in ("rope_parameters", "rope_scaling"):
        return rope(draw, config, old) or old
    if isinstance(old, int):
        return draw.choice([max(0, old - 1), old + 1, old * 2, max(1, old // 2), 0, 1])
    if isinstance(old, float):
        return old * draw.choice([0.3, 3.0]) if old else draw.choice([0.5, 2.0])
    if isinstance(old, list) and old and all(type(x) is int for x in old):
        return [draw.choice(old + [0, 1]) for _ in old]
    if isinstance(old, list) and old and all(type(x) is float and abs(x) < 1e6 for x in old):
        return [x * draw.choice([0.5, 1.0, 2.0]) if x else draw.choice([0.0, 0.01]) for x in old]
    if old is None:
        words = {"window": 6, "softcap": 5.0, "clip": 0.5, "scal": draw.choice([0.5, 2.0]), "mult": draw.choice([0.5, 2.0])}
        return next((value for word, value in words.items() if word in key), None)
    return old


def mutate(draw, config):
    """Changes one to three values; returns what was changed."""
    keys = [key for key in config if not KEPT.search(key)]
    if config["model_type"] in OWN:
        keys = [key for key in keys if not re.search("act|rope|norm_topk", key)]
    changed = {}
    for key in draw.sample(keys, min(len(keys), draw.choice([1, 1, 2, 3]))):
        changed[key] = another(draw, config, key)
    if isinstance(config.get("layer_types"), list) and draw.random() < 0.25:
        changed["layer_types"] = draw.choices(sorted(set(config["layer_types"])), k=len(config["layer_types"]))
    changed = {key: value for key, value in changed.items() if value != config[key]}
    config.update(changed)
    return changed


def loss_of(model, folder):
    """Of the rows in `folder`."""
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    ids, labels = (torch.tensor([row[key] for row in rows]) for key in ("input_ids", "labels"))
    return model.eval()(input_ids=ids, labels=labels, use_cache=False).loss


def theirs(config, folder, seed):
    """Loss and gradient norm in transformers, of a model and rows that it writes into `folder`."""
    model_folder = folder / "model"
    shutil.rmtree(model_folder, ignore_errors=True)
    model_folder.mkdir()
    (model_folder / "config.json").write_text(json.dumps(config))
    read = transformers.AutoConfig.from_pretrained(model_folder)
    for key in ("attn_implementation", "experts_implementation"):
        setattr(read, "_" + key, "eager")
    model = getattr(transformers, config["architectures"][0])(read).float()
    draw = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            noise = torch.rand(weight.shape, generator=draw) * 2 - 1
            matrix = weight.ndim > 1 and "norm" not in name
            table = "embed" in name or "wte" in name or "wpe" in name
            scale = 0.17 if not matrix else 0.25 if table else 1.7 / math.sqrt(weight.shape[-1])
            weight.data = noise * scale if matrix else weight.data + noise * scale
    model.save_pretrained(model_folder)
    (model_folder / "config.json").write_text(json.dumps(config))
    ids = torch.randint(3, min(read.vocab_size, 100), (ROWS, LENGTH), generator=draw)
    labels = ids.clone()
    labels[:, :MASKED] = -100
    (folder / "rows.jsonl").write_text("".join(
        json.dumps({"input_ids": row.tolist(), "labels": its.tolist()}) + "\n" for row, its in zip(ids, labels)))
    loss = loss_of(model, folder)
    loss.backward()
    squares = sum(float((weight.grad.double() ** 2).sum()) for weight in model.parameters() if weight.grad is not None)
    return float(loss), math.sqrt(squares)


def saved(config, folder):
    """The loss of what the run saved, in transformers."""
    place = next(path.parent for path in (folder / "run").rglob("config.json"))
    read = transformers.AutoConfig.from_pretrained(place)
    for key in ("attn_implementation", "experts_implementation"):
        setattr(read, "_" + key, "eager")
    model = getattr(transformers, config["architectures"][0]).from_pretrained(place, config=read, dtype=torch.float32)
    with torch.no_grad():
        return float(loss_of(model, folder))


def ours(program, folder, save):
    """The same here, or the first line of what is refused."""
    (folder / "recipe.yaml").write_text(RECIPE % (ROWS, ROWS, "true" if save else "false"))
    shutil.rmtree(folder / "run", ignore_errors=True)
    environment = {**os.environ, "AUTOMODEL_CALIBRATION": "", "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run([program, "train", "recipe.yaml"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    if done.returncode:
        problem = re.search(r"error\[.*", done.stderr)
        if done.returncode == 2 and problem:
            return problem[0]
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-800:]}")
    step = json.loads((folder / "run" / "training.jsonl").read_text().splitlines()[0])
    return step["loss"], step["grad_norm"]


def full(config, folder):
    """The configuration with all the keys that transformers writes."""
    (folder / "config.json").write_text(json.dumps(config))
    return transformers.AutoConfig.from_pretrained(folder).to_dict()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--automodel", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--saved", action="store_true")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    runpy.run_path(str(GOLDEN / "hf_families" / "own_classes.py"))
    configs = {path.stem: json.loads(path.read_text())["config"] for path in sorted((GOLDEN / "hf_families").glob("*.json"))}
    configs |= {path.parent.name: json.loads(path.read_text()) for path in sorted((GOLDEN / "hf" / "models").glob("*/config.json"))}
    if arguments.saved:
        del configs["step3p5"]  # own_classes.py reads other names than those that are published and saved
    names = [name for name in configs if not arguments.only or name in arguments.only]
    draw, counts, failed = random.Random(arguments.seed), collections.Counter(), 0
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        for i in range(arguments.count):
            name = names[i % len(names)]
            config = copy.deepcopy(configs[name])
            more = {key: value for key, value in full(config, folder).items() if key not in config and not KEPT.search(key)}
            # Step 3.5's lists by layer stand in for its mapping and are not read beside it.
            config |= {key: value for key, value in more.items() if draw.random() < 0.6 and not isinstance(value, list)}
            changed = mutate(draw, config)
            try:
                with open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing):
                    expected = theirs(config, folder, arguments.seed)
                if not all(map(math.isfinite, expected)):
                    raise ValueError("not finite")
            except Exception:
                counts["refused by transformers"] += 1
                continue
            got = ours(arguments.automodel.resolve(), folder, arguments.saved)
            if isinstance(got, str):
                counts["refused here"] += 1
            elif abs(got[0] - expected[0]) > 3e-4 * expected[0] or abs(got[1] - expected[1]) > 3e-3 * expected[1]:
                failed += 1
                print(f"{name} with {changed}: {got}, transformers {expected}", flush=True)
            elif arguments.saved and abs(saved(config, folder) - expected[0]) > 3e-4 * expected[0]:
                failed += 1
                print(f"{name} with {changed}: saved {saved(config, folder)}, transformers {expected[0]}", flush=True)
            else:
                counts["equal"] += 1
    print(f"{arguments.count} variants: " + ", ".join(f"{count} {what}" for what, count in counts.items()) + f", {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
