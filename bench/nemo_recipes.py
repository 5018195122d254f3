#!/usr/bin/env python3
"""Plans and trains the recipes of a NeMo AutoModel repository.

  nemo_recipes.py REPOSITORY [--automodel FILE] [--kinds llm_finetune ...] [--only WORD] [--plan-only] [--ranks 1 2] [--json FILE] [--keep FOLDER]

REPOSITORY is a clone of NVIDIA-NeMo/Automodel; recipes are the YAML files of examples/llm_{benchmark,finetune,pretrain},
or of the folders that --kinds names (those with pictures: vlm_{benchmark,finetune,kd}).
Each is read and planned as it stands. Then it is trained for two steps on one rank and on two, with what a laptop lacks
replaced by overrides of the command line and nothing else:
  model      a tiny one of its own family, with random weights (configs: test/golden), that a run of its own has saved;
             for pictures the recorded one of test/golden/vlm, with its tokenizer and processor
  tokenizer  one of the class that the family has (test/golden/datasets/tokenizers)
  data       rows of the same form, in a Hugging Face cache made here
  mesh       one rank, and two along the first of pp, ep, tp, cp that the recipe divides, else dp
  sizes      batches of 2 rows per rank, short sequences, no checkpoints
Printed: how many are read, planned, planned with sizes, trained on each number of ranks, and why not for the rest. A
recipe counts as trained where two finite losses came out and the exit code is 0. Needs PyYAML.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "test/golden"
KINDS = ("llm_benchmark", "llm_finetune", "llm_pretrain")
AXES = ("pp_size", "ep_size", "tp_size", "cp_size")
BATCH = ("step_scheduler.global_batch_size=4", "step_scheduler.local_batch_size=2")
MEMORY = 8 << 30  # limit per process: everything is small unless an override is missing
VOCAB = 2048  # at least that of every tokenizer used here
TOKENIZERS = {"gpt2": "gpt2", "phi": "gpt2", "starcoder2": "gpt2", "gpt_neox": "gpt2", "granite": "gpt2", "nemotron_h": "qwen2",
              "mistral": "llama2", "mixtral": "llama2", "gemma": "llama2", "gemma2": "llama2", "gemma3_text": "llama2",
              "phi3": "llama2", "baichuan": "llama2", "ernie4_5": "llama2", "ernie4_5_moe": "llama2"}
PICTURES = (("qwen2.5-vl", "qwen2_5_vl"), (r"qwen3-vl-\d+b-a", "qwen3_vl_moe"), ("qwen3-vl", "qwen3_vl"),  # by the published name
            (r"qwen3\.\d-\d+b-a", "qwen3_5_moe"), (r"qwen3\.\d", "qwen3_5"), ("gemma-3-", "gemma3"),
            (r"gemma-4-\d+b-a", "gemma4_moe"), ("gemma-4-", "gemma4"),
            ("ministral-3|mistral-medium", "mistral3"), ("muse-glimmer", "muse_glimmer"),
            ("step-3.7", "step3p7"), ("minimax-m3", "minimax_m3_vl"))


def recipes_of(repository, kinds):
    return sorted(path for kind in kinds for path in (repository / "examples" / kind).rglob("*.yaml"))


def last_error(text):
    """The problem that ended a program, in one line."""
    problems = [match[1] for match in re.finditer(r"error(?:\[[a-z-]+\])?: (.*)", text)]
    lines = problems or text.splitlines() or ["no output"]
    return lines[0 if problems else -1][:240]


class Program:
    def __init__(self, automodel, repository, home):
        self.automodel, self.repository = automodel, repository
        self.environment = {**os.environ, "HF_HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "HF_TOKEN": "none",
                            "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                            "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        for name in ("HF_HUB_CACHE", "HF_DATASETS_CACHE", "HUGGINGFACE_HUB_CACHE"):
            self.environment.pop(name, None)

    def run(self, *words, folder=None, timeout=180):
        try:
            return subprocess.run([self.automodel, *map(str, words)], capture_output=True, text=True, timeout=timeout,
                                  cwd=folder or self.repository, env=self.environment,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)))
        except subprocess.TimeoutExpired as error:
            return subprocess.CompletedProcess(error.cmd, 124, "", f"error: not done after {timeout} s")


# ---- rows in a Hugging Face cache -----------------------------------------------------------------------------------

def squad(i):
    city = ("Kyoto", "Nairobi", "Paris")[i % 3]
    return {"id": f"r{i}", "title": city, "context": f"A lighthouse of {city} was built in {1800 + i}.",
            "question": f"When was the lighthouse of {city} built?", "answers": {"text": [f"in {1800 + i} or so"], "answer_start": [0]}}


def hellaswag(i):
    return {"ind": i, "activity_label": "Building", "ctx_a": "A man", "ctx_b": "he", "ctx": f"A man builds {i} houses. He",
            "endings": [f"sells {i} of them.", "sleeps.", "sings.", "sails to Paris."], "source_id": str(i), "split": "train",
            "split_type": "zeroshot", "label": str(i % 4)}


def conversation(i):
    return [{"role": "user", "content": f"What is {i} and {i}?"}, {"role": "assistant", "content": f"It is {2 * i}."},
            {"role": "user", "content": "And twice that?"}, {"role": "assistant", "content": f"That is {4 * i}."}]


def tool(name):
    return {"name": name, "description": "Weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


def glaive(i):
    call = json.dumps({"name": "get_weather", "arguments": {"city": "Paris"}})
    return {"conversations": [{"from": "human", "value": f"Weather {i}?"}, {"from": "function_call", "value": call},
                              {"from": "observation", "value": "{\"sky\": \"clear\"}"}, {"from": "gpt", "value": "It is clear."}],
            "tools": json.dumps([tool("get_weather")])}


def xlam(i):
    return {"id": i, "query": f"Weather of city {i}?", "answers": json.dumps([{"name": "get_weather", "arguments": {"city": str(i)}}]),
            "tools": json.dumps([{"name": "get_weather", "description": "Weather", "parameters": {"city": {"description": "City", "type": "str"}}}])}


def traces(i):
    call = {"id": f"c{i}", "type": "function", "function": {"name": "get_weather", "arguments": json.dumps({"city": "Paris"})}}
    return {"id": str(i), "messages": [{"role": "system", "content": "You help."}, {"role": "user", "content": f"Weather {i}?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{i}", "name": "get_weather", "content": "clear"},
            {"role": "assistant", "content": f"It is clear, {i}."}],
            "tools": json.dumps([{"type": "function", "function": tool("get_weather")}])}


REPOSITORIES = {  # makes a row; number of rows
    "rajpurkar/squad": (squad, 48), "rowan/hellaswag": (hellaswag, 48),
    "allenai/tulu-3-sft-mixture": (lambda i: {"id": str(i), "messages": conversation(i), "source": "none"}, 1200),
    "lm-provers/FineProofs-SFT": (lambda i: {"messages": conversation(i)}, 1200),
    "llamafactory/glaive_toolcall_en": (glaive, 96), "Salesforce/xlam-function-calling-60k": (xlam, 48),
    "julien-c/synthtraces": (traces, 96),
    "Muennighoff/natural-instructions": (lambda i: {"task_name": "t", "id": str(i), "definition": "Add.", "inputs": f"{i} and 1",
                                                    "targets": f"it is {i + 1}"}, 48),
}


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_cache(home):
    commit = "0" * 40
    for name, (row, count) in REPOSITORIES.items():
        folder = home / "hub" / ("datasets--" + name.replace("/", "--"))
        for ref in ("main", "refs/convert/parquet"):
            (folder / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
            (folder / "refs" / ref).write_text(commit)
        write_rows(folder / "snapshots" / commit / "train.jsonl", map(row, range(count)))
        write_rows(folder / "snapshots" / commit / "validation.jsonl", map(row, range(count, count + 8)))


def make_pictures(home):
    """The data sets with pictures, a few recorded rows each."""
    shutil.copytree(GOLDEN / "vlm/nemo/hf_home", home, dirs_exist_ok=True)
    for train in home.glob("hub/datasets--Shopify*/snapshots/*/data/train-*.parquet"):
        shutil.copy(train, train.with_name(train.name.replace("train", "test")))  # which was not recorded


def deeper(source, folder, layers):
    """A copy of a model with more layers in its decoder: the first ones again."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    old = config["text_config"]["num_hidden_layers"]
    if "per_layer_config" in config["text_config"]:  # layers that are not alike
        return
    with_layers(config["text_config"], layers)
    (folder / "config.json").write_text(json.dumps(config))
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, values = json.loads(data[8:8 + size]), data[8 + size:]
    for name, tensor in list(header.items()):
        number = re.search(r"\.layers\.(\d+)\.", name)
        if not number or "vision_tower" in name:
            continue
        begin, end = tensor["data_offsets"]
        for layer in range(old + int(number[1]), layers, old):
            header[f"{name[:number.start()]}.layers.{layer}.{name[number.end():]}"] = {
                **tensor, "data_offsets": [len(values), len(values) + end - begin]}
            values += values[begin:end]
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + values)


def make_local(folder):
    """Files that recipes refer to by path, relative to the working directory, which users are expected to prepare."""
    for split in ("train", "validation"):
        write_rows(folder / f"prompt_completion/{split}.jsonl",
                   ({"prompt": f"What is {i} and {i}?", "completion": f"it is {2 * i}"} for i in range(600)))
        write_rows(folder / f"chat/{split}.jsonl", ({"messages": conversation(i)[:2]} for i in range(600)))  # one turn: some templates rewrite earlier ones
    ids = [7 * i % 1000 + 3 for i in range(20000)]
    (folder / "nanogpt.bin").write_bytes(struct.pack("<256i", 278895051, 1, len(ids), 2, *[0] * 252) + struct.pack(f"<{len(ids)}H", *ids))
    documents = [ids[at:at + 100] for at in range(0, len(ids), 100)]
    (folder / "megatron.bin").write_bytes(struct.pack(f"<{len(ids)}i", *ids))
    (folder / "megatron.idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, len(documents), len(documents) + 1) +
        struct.pack(f"<{len(documents)}i", *map(len, documents)) +
        struct.pack(f"<{len(documents)}q", *(400 * i for i in range(len(documents)))) +
        struct.pack(f"<{len(documents) + 1}q", *range(len(documents) + 1)))


# ---- tiny models ----------------------------------------------------------------------------------------------------

def with_layers(config, layers):
    """The same model with this many layers; lists with one entry per layer are continued periodically."""
    old = config.get("num_hidden_layers")
    if old is None or old >= layers or "linear_attn_config" in config:
        return config
    for key, value in config.items():
        if key.endswith("layer_types") or key in ("hybrid_override_pattern", "layer_rope_theta"):
            config[key] = (value * layers)[:layers]
    config["num_hidden_layers"] = layers
    return config


def tiny_config(family):
    """config.json of the family's tiny model, with a vocabulary that fits the tokenizers; None if there is no such model."""
    recorded, folder = GOLDEN / f"hf_families/{family}.json", GOLDEN / f"hf/models/{family}/config.json"
    if recorded.exists():
        config = json.loads(recorded.read_text())["config"]
    elif folder.exists():
        config = json.loads(folder.read_text())
    else:
        return None
    config.update(vocab_size=VOCAB, max_position_embeddings=1024, bos_token_id=1, eos_token_id=2, pad_token_id=None)
    if "indexer_types" in config:  # a one-layer stage cannot reuse an earlier layer's choice
        config["indexer_types"] = ["full"] * len(config["indexer_types"])
    if "n_positions" in config:
        config["n_positions"] = 1024
    return with_layers(config, 4)  # enough for two ranks with two stages each


class Models:
    """Folders with a model and a tokenizer, created on first use."""

    def __init__(self, program, folder):
        self.program, self.folder, self.made = program, folder, {}

    def with_pictures(self, recipe):
        section = recipe.get("model") or {}
        name = section.get("pretrained_model_name_or_path") or (section.get("config") or {}).get("pretrained_model_name_or_path", "")
        family = next((family for pattern, family in PICTURES if re.search(pattern, name.lower())), None)
        if family is None:
            return None, f"no tiny model with pictures for {name}"
        if family not in self.made:
            self.made[family] = self.folder / family
            deeper(GOLDEN / "vlm" / family, self.made[family], 4)
        return self.made[family], None

    def get(self, family):
        if family not in self.made:
            self.made[family] = self.make(family)
        return self.made[family]

    def make(self, family):
        config = tiny_config(family)
        if config is None:
            return None, f"no tiny model of the family {family}"
        folder = self.folder / family
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        recipe = {"model": {"config": str(folder)}, "dataset": {"_target_": "mock", "vocab_size": 1000, "seq_length": 16, "num_samples": 2},
                  "step_scheduler": {"global_batch_size": 1, "local_batch_size": 1, "max_steps": 1, "num_epochs": None},
                  "optimizer": {"_target_": "adamw", "lr": 1e-4}, "device": "cpu",
                  "checkpoint": {"enabled": True, "checkpoint_dir": str(folder / "run")}}
        (folder / "recipe.yaml").write_text(json.dumps(recipe))
        done = self.program.run("train", folder / "recipe.yaml", folder=folder)
        saved = next(folder.glob("run/epoch*/model"), None)
        if done.returncode != 0 or saved is None:
            return None, "tiny model: " + last_error(done.stderr)
        for file in saved.iterdir():
            shutil.copy(file, folder / file.name)
        tokenizer = TOKENIZERS.get(family, "qwen2" if family.startswith(("qwen", "glm", "minimax", "seed")) else "llama3")
        for file in (GOLDEN / "datasets/tokenizers" / tokenizer).iterdir():
            if file.name != "tests.json":
                shutil.copy(file, folder / file.name)
        return folder, None


# ---- one recipe -----------------------------------------------------------------------------------------------------

def size(recipe, axis):
    value = (recipe.get("distributed") or {}).get(axis)
    return value if isinstance(value, int) else 1


def divided_axis(recipe, ranks):
    """The axis along which more than one rank is used; None: data parallelism."""
    return next((axis for axis in AXES if size(recipe, axis) > 1), None) if ranks > 1 else None


def mesh_overrides(recipe, ranks):
    divided = divided_axis(recipe, ranks)
    out = [f"distributed.{axis}={ranks if axis == divided else 1}" for axis in AXES]
    out += ["distributed.dp_size=null"]
    distributed = recipe.get("distributed") or {}
    if "dp_replicate_size" in distributed:
        out.append("distributed.dp_replicate_size=null")
    if divided == "pp_size" and "pipeline" in distributed:
        out += ["distributed.pipeline.pp_microbatch_size=1", "distributed.pipeline.layers_per_stage=null"]
    return out


def section_overrides(recipe, key, local, folder):
    """Overrides that keep the recipe's form of rows but make them short."""
    section = recipe.get(key)
    if not isinstance(section, dict):
        return []
    target, out = section["_target_"].split(".")[-1], []
    for name in ("seq_len", "seq_length", "max_sentence_len", "mean_len"):
        if isinstance(section.get(name), int):
            out.append(f"{key}.{name}={min(section[name], 64 if 'Mock' in target or 'unpacked' in target else 256)}")
    if "vocab_size" in section:
        out.append(f"{key}.vocab_size={min(section['vocab_size'], 1000)}")
    if isinstance(section.get("tokenizer"), dict) and "pretrained_model_name_or_path" in section["tokenizer"]:
        out.append(f"{key}.tokenizer.pretrained_model_name_or_path={folder}")
    if "100000:" in str(section.get("split")):
        out.append(f"{key}.split=train[:64]")
    if target == "build_mock_vlm_dataset":
        out += [f"{key}.num_samples=8", f"{key}.image_size=[64,64]"]
    if target == "NanogptDataset":
        out.append(f"{key}.file_pattern={local / 'nanogpt.bin'}")
    if target == "MegatronPretraining":
        out.append(f"{key}.paths={local / 'megatron'}")
    for name in ("path_or_dataset_id",):
        path = str(section.get(name, ""))
        if "sample-datasets" in path:
            out.append(f"{key}.{name}={local / path.split('sample-datasets/')[1]}")
        elif path.startswith("your/"):
            out.append(f"{key}.{name}={local / 'chat' / path.split('/')[-1]}")
    return out


def overrides(recipe, ranks, model, local, work):
    section = recipe.get("model") or {}
    config = section.get("config")
    out = ["device=cpu", *mesh_overrides(recipe, ranks)]
    if section.get("pretrained_model_name_or_path"):
        out.append(f"model.pretrained_model_name_or_path={model}")
    if (recipe.get("teacher_model") or {}).get("pretrained_model_name_or_path"):
        out.append(f"teacher_model.pretrained_model_name_or_path={model}")
    if (recipe.get("processor") or {}).get("pretrained_model_name_or_path"):
        out.append(f"processor.pretrained_model_name_or_path={model}")
    if config:
        out.append(f"model.config={model}")
    out += [f"model.{key}={size}" for key, size in (("n_layer", 2), ("n_embd", 64), ("n_head", 4)) if key in section]
    data = ranks if divided_axis(recipe, ranks) in (None, "ep_size") else 1
    out += [*BATCH, f"step_scheduler.global_batch_size={4 * data}", "step_scheduler.max_steps=2", "step_scheduler.num_epochs=null", "step_scheduler.ckpt_every_steps=1000",
            "checkpoint.enabled=false", f"checkpoint.checkpoint_dir={work}"]
    if recipe.get("validation_dataset"):
        out.append("step_scheduler.val_every_steps=2")
    packing = recipe.get("packed_sequence") or {}
    if packing.get("packed_sequence_size"):
        out.append("packed_sequence.packed_sequence_size=512")
        if ((recipe.get("distributed") or {}).get("pipeline") or {}).get("pp_seq_len"):
            out.append("distributed.pipeline.pp_seq_len=512")
    if packing.get("pack_size"):  # of pictures, which have many tokens in tiny patches
        out += ["packed_sequence.pack_size=8192", "packed_sequence.max_length=null"]
    if isinstance((recipe.get("dataloader") or {}).get("batch_size"), int):
        out.append("dataloader.batch_size=2")
    for key in ("dataloader", "validation_dataloader"):
        if isinstance(recipe.get(key), dict) and recipe[key].get("drop_last"):
            out.append(f"{key}.drop_last=false")  # of a few rows
    scheduler = recipe.get("lr_scheduler") or {}
    for key, value in (("lr_warmup_steps", 1), ("lr_decay_steps", 2), ("wsd_decay_steps", 1)):
        if isinstance(scheduler.get(key), int) and scheduler[key] > value:
            out.append(f"lr_scheduler.{key}={value}")
    for key in ("dataset", "validation_dataset"):
        out += section_overrides(recipe, key, local, model)
    return out


def losses_of(work):
    file = work / "training.jsonl"
    return [json.loads(line)["loss"] for line in file.read_text().splitlines()] if file.exists() else []


class Bench:
    def __init__(self, program, folder, options):
        self.program, self.folder, self.options = program, folder, options
        self.models = Models(program, folder / "models")

    def measure(self, path):
        out = {"recipe": str(path.relative_to(self.program.repository / "examples"))}
        done = self.program.run("plan", path, "--json", "--no-files")
        try:
            plan = json.loads(done.stdout)
        except json.JSONDecodeError:
            plan = {}
        errors = [error.get("message", "") for error in plan.get("errors", [])] or [last_error(done.stderr)]
        reading = {"unknown-key", "bad-value", "bad-syntax", "missing-key", "environment", "conflict"}
        out["planned"] = done.returncode == 0
        out["read"] = out["planned"] or not any(error.get("id") in reading for error in plan.get("errors", [{"id": "environment"}]))
        out["sized"] = out["planned"] and plan.get("memory") is not None
        if not out["planned"]:
            out["why"] = errors[0]
        elif not out["sized"]:
            out["why"] = "no sizes of this model"
        if self.options.plan_only:
            return out
        recipe = yaml.safe_load(path.read_text())
        pictures = "vlm_" in str(path)
        model, problem = self.models.with_pictures(recipe) if pictures else (None, None)
        if model is None and (not pictures or "ForCausalLM" in str((recipe.get("model") or {}).get("_target_"))):
            model, problem = self.tiny_model(path, recipe)  # a language model, also in a folder of pictures' recipes
        for ranks in self.options.ranks:
            out[f"trained_{ranks}"], why = (False, problem) if model is None else self.train(path, recipe, ranks, model)
            if why:
                out.setdefault("why_trained", {})[str(ranks)] = why
        return out

    def tiny_model(self, path, recipe):
        named = re.search(r"^model +\S+ \(([\w-]+)\)",
                          self.program.run("plan", path, "--no-files", "device=cpu", *mesh_overrides(recipe, 1), *BATCH).stdout, re.MULTILINE)
        return self.models.get(named[1]) if named else (None, "no sizes of this model")

    def train(self, path, recipe, ranks, model):
        work = self.folder / "run"
        shutil.rmtree(work, ignore_errors=True)
        done = self.program.run("train", path, "--nproc-per-node", ranks, *overrides(recipe, ranks, model, self.folder / "local", work))
        losses = losses_of(work)
        if done.returncode == 0 and len(losses) == 2 and all(map(math.isfinite, losses)):
            return True, None
        return False, last_error(done.stderr) if done.returncode else f"losses {losses}"


def show(rows, ranks):
    print(f"recipes {len(rows)}: read {sum(r['read'] for r in rows)}, planned {sum(r['planned'] for r in rows)}, "
          f"with sizes {sum(r['sized'] for r in rows)}" +
          "".join(f", trained on {n} rank{'s' * (n > 1)} {sum(r.get(f'trained_{n}', False) for r in rows)}" for n in ranks))
    reasons = collections.defaultdict(set)
    for row in rows:
        if "why" in row:
            reasons["plan: " + row["why"]].add(row["recipe"])
        for why in set(row.get("why_trained", {}).values()):
            reasons["train: " + why].add(row["recipe"])
    for why, names in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{len(names):4}  {why}\n        {', '.join(sorted(names)[:3])}{' ...' if len(names) > 3 else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=pathlib.Path)
    parser.add_argument("--automodel", default=str(ROOT / "build/release/bin/automodel"))
    parser.add_argument("--kinds", nargs="+", default=KINDS, help="folders of examples")
    parser.add_argument("--only", default="", help="recipes whose path has this word")
    parser.add_argument("--plan-only", action="store_true")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=pathlib.Path, help="write a row for each recipe")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for models, data and runs (default: a temporary one)")
    options = parser.parse_args()
    repository = options.repository.resolve()
    paths = [path for path in recipes_of(repository, options.kinds) if options.only in str(path)]
    if not paths:
        sys.exit(f"no such recipes in {repository}/examples")
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.keep or pathlib.Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        make_cache(folder / "home")
        make_pictures(folder / "home")
        make_local(folder / "local")
        bench = Bench(Program(options.automodel, repository, folder / "home"), folder, options)
        rows = []
        for path in paths:
            rows.append(bench.measure(path))
            if options.json:
                options.json.write_text("".join(json.dumps(row) + "\n" for row in rows))
    show(rows, [] if options.plan_only else options.ranks)


if __name__ == "__main__":
    main()
