#!/usr/bin/env python3
"""Sets every key of the recipe reference that should affect the computation, and counts those that have no visible effect:
neither on `plan --json --actions lowered`, nor as an error, a warning or an ignored entry that names the key.

  bench/silent_keys.py BIN_FOLDER [--device cpu|cuda]     (default: both)

Every key is tried with several values on twenty recipes; one change is enough. Keys that only act during a run, on files or
on the screen are not counted (OUTSIDE); `test/docs/consequences_test.cpp` names the test for each of them.
"""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile

SIZES = ("hidden_size: 64, intermediate_size: 128, num_hidden_layers: 8, num_attention_heads: 8, vocab_size: 256, "
         "max_position_embeddings: 128")
DENSE = "model: {config: {model_type: llama, num_key_value_heads: 2, " + SIZES + "}}\n"
EXPERTS = ("model: {config: {model_type: mixtral, num_key_value_heads: 8, num_local_experts: 4, num_experts_per_tok: 2, " +
           SIZES + "}}\n")
REST = ("dataset: {_target_: mock, vocab_size: 256, seq_length: 64}\n"
        "step_scheduler: {global_batch_size: 32, local_batch_size: 8, max_steps: 20}\n")
BASES = [DENSE + REST + more for more in (
    "", "distributed: {dp_size: 2, pp_size: 2, pipeline: {}}\n",
    "distributed: {dp_size: 2, pp_size: 2, activation_checkpointing: full, pipeline: {pp_schedule: MegatronInterleaved}}\n"
    "model_parallel: {gradient_accumulation_fusion: true, defer_embedding_wgrad_compute: true}\n",
    "distributed: {dp_size: 1, pp_size: 3, pipeline: {layers_per_stage: 2, pp_schedule: Interleaved1F1B, "
    "round_virtual_stages_to_pp_multiple: up}}\n",
    "distributed: {tp_size: 2, dp_size: 1}\n",
    "distributed: {tp_size: 2, dp_size: 1}\nmodel_parallel: {sequence_parallel: true, tp_comm_overlap: true}\n",
    "distributed: {tp_size: 8, dp_size: 2}\n", "distributed: {cp_size: 4, dp_size: 1}\n",
    "distributed: {cp_size: 4, dp_size: 1}\nmodel_parallel: {cp_comm_type: a2a+p2p, hierarchical_context_parallel_sizes: [2, 2]}\n",
    "distributed: {dp_size: 4, mp_policy: {param_dtype: float32}}\n", "distributed: {dp_size: 4, enable_fsdp2_prefetch: true}\n",
    "distributed: {strategy: megatron_fsdp, dp_size: 4}\n", "distributed: {strategy: megatron_fsdp, tp_size: 2, dp_size: 2}\n",
    "distributed: {strategy: ddp, dp_size: 4}\n", "model_parallel: {cpu_offloading: true, cpu_offloading_num_layers: 2}\n",
    "model_parallel: {enable_autocast: true, autocast_dtype: float16}\n", "peft: {dim: 4}\n",
    "peft: {dim: 4}\nquantization: {load_in_4bit: true}\n", "peft: {dim: 4}\nfp8: {enabled: true}\n")] + [EXPERTS + REST + more for more in (
        "distributed: {dp_size: 4, ep_size: 2, moe: {}}\n",
        "distributed: {dp_size: 4, ep_size: 2, reshard_after_forward: true, moe: {}}\n")]
OUTSIDE = ("fault_tolerance", "checkpoint", "logging", "generation", "dataloader", "validation_d", "dataset", "recipe",
           "packed_sequence", "ci", "wandb", "mlflow", "comet", "nvtx", "benchmark")
# Values for keys whose type alone does not tell what to try.
VALUES = {
    "distributed.pipeline.module_fqns_per_model_part": ["[[model.embed_tokens], [lm_head]]"],
    "distributed.pipeline.pipeline_model_parallel_layout": ["Et*3|t*5L"], "distributed.pipeline.pp_schedule": ["GPipe"],
    "model_parallel.hierarchical_context_parallel_sizes": ["[1, 4]"], "model.pretrained_model_name_or_path": ["./nowhere"],
    "model.config": ["./nowhere"], "hardware.memory": ["7GiB"], "hardware.profile": ["a100-80"], "optimizer.betas": ["[0.8, 0.9]"],
    "model_parallel.recompute_modules": ["[mlp, core_attn]"], "peft.target_modules": ["[q_proj]"], "peft.exclude_modules": ["[q_proj]"],
    "optimizer.param_group_overrides": ["[{pattern: norm, wd_mult: 0}]"], "optimizer.ns_coefficients": ["[3, -4, 2]"],
    "optimizer.scalar_betas": ["[0.8, 0.9]"], "model_parallel.bf16": ["true", "false"],
    "model.cache_dir": ["cache2"], "model.revision": ["second"], "model._target_": ["transformers.AutoModelForCausalLM.from_config"],
    "freeze_config.freeze_modules": ["[{path: lm_head}]"], "freeze_config.unfreeze_modules": ["[{path: nowhere}]"],
}
# Overrides that select the section a key belongs to, if the recipes above have a different one.
CONTEXTS = {
    "optimizer.": [["--optimizer._target_=adamw"], ["--optimizer._target_=sgd", "--optimizer.momentum=0.5"], ["--optimizer._target_=muon"]],
    "loss_fn.": [[f"--loss_fn._target_={name}"] for name in ("masked_ce", "fused_linear_ce", "chunked_ce")],
    "lr_scheduler.": [["--lr_scheduler.lr_warmup_steps=5"]],
    "hardware.": [["--distributed={tp_size: 8, dp_size: 2}", "--gpus-per-node", "8"]],
    "model.": [["--model={pretrained_model_name_or_path: some/model, cache_dir: cache}"],
               ["--model={pretrained_model_name_or_path: model}"]],
    "distributed.": [["--model.torch_dtype=bfloat16"]],
    "distributed.moe.mp_policy": [["--distributed.moe={mp_policy: {}}"]],
}


def contexts_of(key):
    return [[], *(words for start, more in CONTEXTS.items() if key.startswith(start) for words in more)]


def values_of(key, node):
    if key in VALUES:
        return VALUES[key]
    found = []

    def collect(part):
        found.extend(json.dumps(name) for name in part.get("enum", []))
        for each in part.get("anyOf", []):
            collect(each)
        kinds = part.get("type", [])
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            found.extend({"boolean": ["true", "false"], "integer": ["2", "1", "3", "0", "4", "16"], "number": ["0.5", "2.5", "0.01"],
                          "string": ["bfloat16", "float32", "x"]}.get(kind, []))
    collect(node)
    return found or ["x", "{x: 1}", "[x]"]


def keys_of(node, path=""):
    for name, below in node.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        parts = [below, *below.get("anyOf", [])]
        sections = [part for part in parts if "properties" in part]
        if sections:
            for part in sections:
                yield from keys_of(part, here)
        else:
            yield here, below


def write_models(folder):
    """A model in a folder, and two Hugging Face caches that hold two revisions of a model."""
    def write(path, text):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)

    def config(layers):
        return json.dumps({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": layers, "num_attention_heads": 8,
                           "vocab_size": 256, "max_position_embeddings": 128})
    write("model/config.json", config(4))
    for layers, (cache, revision) in enumerate([(c, r) for c in ("cache", "cache2") for r in ("main", "second")], 1):
        at = f"{cache}/models--some--model"
        write(f"{at}/refs/{revision}", f"hash{layers}")
        write(f"{at}/snapshots/hash{layers}/config.json", config(4 * layers))


class Plans:
    def __init__(self, folder, binary, device):
        self.folder, self.binary = folder, binary
        self.device = [f"--device={device}"] + (["--hardware.profile=h100"] if device == "cuda" else [])

    def ask(self, base, *words):
        done = subprocess.run([self.binary, "plan", "--no-files", "--json", "--actions", "lowered", str(self.folder / f"{base}.yaml"), *words], cwd=self.folder,
                              capture_output=True, text=True)
        return done.returncode, done.stdout, done.stdout + done.stderr if done.returncode else done.stderr

    def speaks(self, key, value, context, before):
        """Whether setting the key changes the plan of any recipe, or causes a message that names the key."""
        for base, (code, plan, told) in enumerate(before):
            words = [word for word in self.device if not word.startswith(f"--{key}=")]
            if context:
                code, plan, told = self.ask(base, *words, *context)
            after = self.ask(base, *words, *context, f"--{key}={value}")
            if after == (code, plan, told) or "bad-type" in after[2] or "unknown-key" in after[2]:
                continue
            if after[0] == 0 and after[1] != plan or key.split(".")[-1] in after[2]:
                return True
        return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    arguments = parser.parse_args()
    binary = str(arguments.bin.resolve() / "automodel")
    schema = json.loads(subprocess.run([binary, "schema"], capture_output=True, text=True, check=True).stdout)
    keys = {key: node for key, node in keys_of(schema) if not key.split(".")[0].startswith(OUTSIDE) and "Accepted, not acted on" not in node.get("description", "")}
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        for number, text in enumerate(BASES):
            (folder / f"{number}.yaml").write_text(text)
        write_models(folder)
        for device in [arguments.device] if arguments.device else ["cpu", "cuda"]:
            plans = Plans(folder, binary, device)
            before = [plans.ask(base, *plans.device) for base in range(len(BASES))]
            for base, (code, _, told) in enumerate(before):
                if code:
                    sys.exit(f"{device}: base {base} is refused and would test nothing\n{told}")
            with concurrent.futures.ThreadPoolExecutor() as pool:
                heard = pool.map(lambda key: any(
                    plans.speaks(key, value, context, before) for context in contexts_of(key) for value in values_of(key, keys[key])), keys)
                silent = [key for key, one in zip(keys, heard) if not one]
            print(f"{device}: {len(keys)} keys on {len(BASES)} recipes, {len(silent)} silent", *silent, sep="\n  ", flush=True)


if __name__ == "__main__":
    sys.exit(main())
