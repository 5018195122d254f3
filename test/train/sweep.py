#!/usr/bin/env python3
"""Every feature of a recipe on every mesh, in runs of seconds: looks for what no test of a single feature finds.

  sweep.py BIN_FOLDER resume [--sample K --seed N] [--match TEXT]   runs that were stopped and go on: as if they never had
  sweep.py BIN_FOLDER verify [--sample K --seed N] [--match TEXT]   gradients of every family on every mesh: those of one rank
  sweep.py BIN_FOLDER random [--sample K --seed N] [--match FAMILY] random recipes on random meshes: losses and norms of one rank
  sweep.py BIN_FOLDER moved [--sample K --seed N] [--match FAMILY]  the same, stopped on one mesh and gone on on another
  sweep.py BIN_FOLDER memory --preload FILE [...]                   random recipes of real widths on those GPUs: peak within 5 % of the plan's
  sweep.py BIN_FOLDER device --preload FILE [...]                   steps of every family and feature on every mesh on GPUs that
                                                                    compute nothing (test/null_device): LibTorch refuses none

A case is a row of one table in a column of another, or drawn. What a plan refuses with a reason is counted; every row and every column
must run somewhere, so that a misspelt one fails.
"""
import argparse
import collections
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

TEST = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TEST / "comm"), str(TEST / "null_device")]
from jobs import ENVIRONMENT  # noqa: E402
from catalogue import narrow_models  # noqa: E402

GOLDEN = TEST / "golden"  # relative paths below
LIMIT = 120  # seconds; a case that takes longer hangs
REFUSED = {2, 3}  # exit codes, if there is a reason: gradients that differ are a 3 without

# 20 rows in batches of 8: the first stop is an epoch's end with a smaller batch, the second is inside an epoch.
STOPS, STEPS = (3, 5), 8
RECIPE = f"""\
seed: 3
device: cpu
model: {{pretrained_model_name_or_path: hf/models/llama}}
dataset: {{_target_: mock, seq_length: 16, num_samples: 20}}
validation_dataset: {{_target_: mock, seq_length: 16, num_samples: 4}}
optimizer: {{_target_: adamw, lr: 0.003}}
lr_scheduler: {{lr_warmup_steps: 2, lr_decay_steps: {STEPS}}}
step_scheduler: {{global_batch_size: 8, local_batch_size: 4, num_epochs: null, ckpt_every_steps: null, val_every_steps: 1}}
logging: {{progress: false, tensorboard: false}}
dist_env: {{timeout_minutes: 0.5}}
"""

# Words of the command line by name, here and below.
RESUME_MESHES = {
    "one rank": "",
    "accumulation": "step_scheduler.local_batch_size=2",
    "ddp": "--nproc-per-node 2 distributed.strategy=ddp",
    "fsdp2": "--nproc-per-node 2 distributed.strategy=fsdp2",
    "fsdp2, accumulation": "--nproc-per-node 2 distributed.strategy=fsdp2 step_scheduler.local_batch_size=1",
    **{f"zero {level}": f"--nproc-per-node 2 distributed.strategy=megatron_fsdp distributed.zero_dp_strategy={level}" for level in (1, 2)},
    "tp": "--nproc-per-node 2 distributed.tp_size=2 distributed.sequence_parallel=true",
    "cp": "--nproc-per-node 2 distributed.cp_size=2",
    "ep": "--nproc-per-node 2 distributed.ep_size=2",
    "pp": "--nproc-per-node 2 distributed.pp_size=2 distributed.pipeline.pp_schedule=1f1b",
    "pp, zero bubble": "--nproc-per-node 2 distributed.pp_size=2 distributed.pipeline.pp_schedule=ZBVZeroBubble",
}


def model(path):
    return f"model.pretrained_model_name_or_path={path} "


def rows_of(path):
    return f"'dataset={{_target_: tokens, path: {path}/rows.jsonl}}' "


def pictures(path, more=""):
    return model(path) + (f"'dataset={{_target_: chat, path_or_dataset_id: vlm/llava/samples.jsonl{more}}}' validation_dataset=null "
                          "step_scheduler.global_batch_size=4 step_scheduler.local_batch_size=2 ")


def distilled(path):
    return (model(f"{path}/student") + rows_of(path) + f"teacher_model.pretrained_model_name_or_path={path}/teacher "
            "recipe=KnowledgeDistillationRecipeForNextTokenPrediction ")


LORA = "peft.match_all_linear=true peft.dim=4"
FSDP2 = "distributed.strategy=fsdp2"
SFT = "hf/e2e_llama_sft"
MIXTURE = ("'dataset={_target_: mixture, datasets: [{%s, dataset: {_target_: tokens, path: objectives/kd0/rows.jsonl}}, "
           "{%s, dataset: {_target_: mock, seq_length: 16, num_samples: 7}}]}'")
FEATURES = {
    "adamw": "optimizer.weight_decay=0.1",
    "adamw, amsgrad": "optimizer.amsgrad=true",
    "adam": "optimizer._target_=adam optimizer.weight_decay=0.1",
    "sgd": "optimizer._target_=sgd optimizer.lr=0.1",
    "sgd, momentum": "optimizer._target_=sgd optimizer.lr=0.1 optimizer.momentum=0.9 optimizer.nesterov=true",
    "muon": "optimizer._target_=muon",
    "dion_muon": "optimizer._target_=dion_muon",
    "groups": "'optimizer.param_group_overrides=[{pattern: norm, wd_mult: 0.0}, {pattern: mlp, lr_mult: 0.5}]'",
    "moments in bfloat16": "optimizer.exp_avg_dtype=bfloat16 optimizer.exp_avg_sq_dtype=bfloat16",
    "gradients in bfloat16": "optimizer.main_grads_dtype=bfloat16 model.torch_dtype=bfloat16",
    "weights in bfloat16": "model.torch_dtype=bfloat16 optimizer.main_params_dtype=bfloat16",
    "masters of bfloat16": "model.torch_dtype=bfloat16",
    "float64": "model.torch_dtype=float64",
    "float16": "model_parallel.fp16=true",
    "bf16": "model_parallel.bf16=true",
    "autocast": "distributed.autocast_dtype=bfloat16",
    "mp_policy": "'distributed.mp_policy={param_dtype: bfloat16, reduce_dtype: float32}'",
    "mp_policy, all": "'distributed.mp_policy={param_dtype: bfloat16, reduce_dtype: bfloat16, output_dtype: float32}'",
    "float8": "fp8.enabled=true fp8.emulate=true",
    "rates": "lr_scheduler.lr_decay_style=WSD lr_scheduler.wsd_decay_steps=3 lr_scheduler.lr_wsd_decay_style=linear",
    "weight decays": "lr_scheduler.start_wd=0.01 lr_scheduler.end_wd=0.1 lr_scheduler.wd_incr_style=linear "
                     f"lr_scheduler.wd_incr_steps={STEPS}",
    "one rate": "lr_scheduler=null clip_grad_norm=null",
    "recomputation": "distributed.activation_checkpointing=selective",
    "offloading": FSDP2 + " 'distributed.offload_policy={_target_: torch.distributed.fsdp.CPUOffloadPolicy}'",
    "neftune": "neftune.noise_alpha=5",
    "frozen": "'freeze_config.freeze_modules=[{path: model.embed_tokens}, {glob: \"*.layers.0\"}]'",
    "tied, frozen": model("hf/models/llama_tied") + "'freeze_config.freeze_modules=[{path: model.norm}]'",
    "lora": LORA,
    "lora, dropout": LORA + " peft.dropout=0.3",
    "lora, dropout before": LORA + " peft.dropout=0.3 peft.dropout_position=pre peft.lora_A_init=kaiming",
    "lora in bfloat16": LORA + " model.torch_dtype=bfloat16 peft.lora_dtype=float32",
    "dora": LORA + " peft.use_dora=true",
    "lora over 4 bits": LORA + " quantization.load_in_4bit=true",
    "lora over 4 bits and whole scales": LORA + " quantization.load_in_4bit=true quantization.bnb_4bit_use_double_quant=false",
    "lora over 8 bits": LORA + " quantization.load_in_8bit=true",
    "lora, muon": "'peft.target_modules=[q_proj, down_proj]' optimizer._target_=muon",
    "packs": model(SFT) + rows_of(SFT) + "validation_dataset=null packed_sequence.packed_sequence_size=128",
    "packs, neat": rows_of("objectives/kd0") + "packed_sequence.packed_sequence_size=32 packed_sequence.packing_strategy=neat",
    "rows by length": model(SFT) + rows_of(SFT) + "validation_dataset=null dataloader.group_by_length=true",
    "mixture": MIXTURE % ("weight: 2", "weight: 1"),
    "mixture of epochs": MIXTURE % ("epochs: 0.3", "epochs: 2"),
    "rows in order": "dataloader.shuffle=false dataloader.drop_last=true",
    "distillation": distilled("objectives/kd2") + "kd_loss_fn.temperature=2",
    "distillation, lora": distilled("objectives/kd0") + LORA,
    "classification": model("objectives/cls0/model") + rows_of("objectives/cls0") + "model.num_labels=5 "
                      "recipe=TrainFinetuneRecipeForSequenceClassification",
    "experts": model("hf/models/qwen3_moe"),
    "experts, lora": model("hf/models/gpt_oss") + LORA,
    "experts, muon": model("hf/models/qwen3_moe") + "optimizer._target_=muon",
    "balanced experts": model("hf/models/deepseek_v3") + "model.moe_overrides.gate_bias_update_factor=0.05",
    "from the seed": model("null") + "model.config=hf/models/gemma2",
    "pictures": pictures("vlm/llava", ", cache_features: false") + "freeze_config.freeze_vision_tower=true",
    "pictures, cached": pictures("vlm/llava", ", cache_features: true") + "freeze_config.freeze_vision_tower=true",
    "pictures, whole": pictures("vlm/gemma3") + "freeze_config.freeze_vision_tower=false",
    "pictures, lora": pictures("vlm/qwen3_vl") + LORA,
    "early stopping": "step_scheduler.early_stopping_patience=4 optimizer._target_=sgd optimizer.lr=0",
    "bad steps": "optimizer._target_=sgd optimizer.lr=3 'fault_tolerance={loss_spike: {action: skip, factor: 1.01, window: 3}}'",
    "checkpoints in the background": "checkpoint.is_async=true checkpoint.save_consolidated=every",
    "no consolidated weights": "checkpoint.save_consolidated=false",
}

OF_DEVICES = {
    "graphs": "model_parallel.enable_cuda_graph=true model.torch_dtype=bfloat16",
    "float8, not emulated": "fp8.enabled=true model.torch_dtype=bfloat16",
    "deterministic": "model_parallel.deterministic_mode=true",
    "deterministic experts": model("hf/models/qwen3_moe") + "model_parallel.deterministic_mode=true model.torch_dtype=bfloat16",
}

VERIFIED = """\
seed: 3
device: cpu
model: {}
dataset: {_target_: mock, seq_length: 16}
step_scheduler: {global_batch_size: 8, local_batch_size: 2}
"""
# In bfloat16: without it attention would not be the kernels' of a GPU. Losses are zero there, so validation would say nothing.
ON_DEVICE = """\
seed: 3
device: cuda
model: {torch_dtype: bfloat16}
dataset: {_target_: mock, seq_length: 48, num_samples: 64}
step_scheduler: {global_batch_size: 8, local_batch_size: 2, max_steps: 2, num_epochs: null, ckpt_every_steps: null, val_every_steps: null}
optimizer: {_target_: adamw, lr: 0.001}
checkpoint: {enabled: false}
logging: {progress: false, tensorboard: false}
dist_env: {timeout_minutes: 1}
"""
SEQUENCE = " distributed.sequence_parallel=true distributed.activation_checkpointing=full"
VERIFY_MESHES = {
    "dp 2": "--nproc-per-node 2",
    "tp 2": "--nproc-per-node 2 distributed.tp_size=2",
    "tp 2, sequence parallel, recomputation": "--nproc-per-node 2 distributed.tp_size=2" + SEQUENCE,
    "cp 2": "--nproc-per-node 2 distributed.cp_size=2",
    "ep 2": "--nproc-per-node 2 distributed.ep_size=2",
    "pp 2": "--nproc-per-node 2 distributed.pp_size=2 distributed.pipeline.pp_schedule=1f1b",
    "pp 2, zero bubble": "--nproc-per-node 2 distributed.pp_size=2 distributed.pipeline.pp_schedule=ZBVZeroBubble",
    "pp 2, interleaved zero bubble": "--nproc-per-node 2 distributed.pp_size=2 distributed.pipeline.pp_schedule=InterleavedZeroBubble "
                                     "distributed.pipeline.layers_per_stage=1",
    "dp 4, hybrid": "--nproc-per-node 4 distributed.dp_replicate_size=2",
    "tp 4": "--nproc-per-node 4 distributed.tp_size=4",
    "tp 2, cp 2": "--nproc-per-node 4 distributed.tp_size=2 distributed.cp_size=2",
    "tp 2, ep 2": "--nproc-per-node 4 distributed.tp_size=2 distributed.ep_size=2" + SEQUENCE,
    "tp 2, pp 2": "--nproc-per-node 4 distributed.tp_size=2 distributed.pp_size=2 distributed.pipeline.pp_schedule=GPipe" + SEQUENCE,
    "cp 2, pp 2": "--nproc-per-node 4 distributed.cp_size=2 distributed.pp_size=2 distributed.pipeline.pp_schedule=1f1b",
    "cp 2, ep 2": "--nproc-per-node 4 distributed.cp_size=2 distributed.ep_size=2",
    "ep 2, pp 2": "--nproc-per-node 4 distributed.ep_size=2 distributed.pp_size=2 distributed.pipeline.pp_schedule=1f1b",
    "ep 4": "--nproc-per-node 4 distributed.ep_size=4",
}
ADAPTERS = {"": "", ", lora": "peft.match_all_linear=true peft.dim=4"}


# What changes numbers is drawn for both runs, the rest for the second. In float64, so that rounding hides nothing.
RANDOM = """\
seed: 3
device: cpu
model: {torch_dtype: float64}
step_scheduler: {global_batch_size: 8, local_batch_size: 8, max_steps: 3, num_epochs: null, ckpt_every_steps: null, val_every_steps: null}
checkpoint: {enabled: false}
logging: {progress: false, tensorboard: false}
dist_env: {timeout_minutes: 0.5}
"""
DRAWN = {"random": 1, "moved": 3, "memory": 1}  # meshes of a case
RANDOM_RUNS = 400  # beside those on one rank, unless --sample says a number of cases; a run needs two to six seconds
# Padding has a say in these: scales of long and short batches; equal scores of an index.
SAME_LENGTHS = {"phimoe", "deepseek_v32", "deepseek_v4", "glm_moe_dsa"}
SCHEDULES = ["gpipe", "1f1b", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV", "V-Half", "V-Min", "ZB-H1",
             "ZB-H2", "searched"]


def some(draw, words):
    """Each of the words with a probability; a list stands for one of its items."""
    return [draw.choice(word) if isinstance(word, list) else word for word, share in words if draw.random() < share]


def draw_numbers(draw, family, rows):
    """Words that change what is computed."""
    drawn_rows = family not in SAME_LENGTHS and draw.random() < 0.7
    words = [f"dataset={{_target_: tokens, path: {rows}}}" if drawn_rows else f"dataset={{_target_: mock, seq_length: {draw.choice([16, 24, 32])}}}"]
    if drawn_rows and draw.random() < 0.5:
        words += ["packed_sequence.packed_sequence_size=48"] + some(draw, [("packed_sequence.packing_strategy=neat", 0.5)])
    adapters = draw.choice(["", "", "", "lora", "dora", "8 bits", "all", "frozen"])
    if adapters in ("lora", "dora", "8 bits"):
        words += ["peft.match_all_linear=true", "peft.dim=4"]
    words += {"dora": ["peft.use_dora=true"], "8 bits": ["quantization.load_in_8bit=true"], "all": ["peft.target_modules=['*']", "peft.dim=4"],
              "frozen": ["freeze_config.freeze_modules=[{path: model.embed_tokens}, {glob: '*.layers.0'}]"]}.get(adapters, [])
    if adapters in ("lora", "dora", "all"):
        words += some(draw, [("peft.dropout=0.2", 0.3)])
    elif not adapters and not drawn_rows:
        words += some(draw, [("neftune.noise_alpha=5", 0.3)])
    words += [f"optimizer._target_={draw.choice(['adamw', 'adam', 'sgd', 'muon'])}", "optimizer.lr=0.01"]
    return words + some(draw, [("clip_grad_norm.max_norm=0.05", 0.3), ("model.tie_word_embeddings=true", 0.15)])


def draw_execution(draw):
    """Words that change how it is computed."""
    ranks = left = draw.choice([1, 2, 2, 4])
    sizes = {}
    for axis in draw.sample(["tp", "pp", "cp", "dp"], 4):
        sizes[axis] = draw.choice([k for k in (1, 2, 4) if k <= left]) if axis != "dp" else 1
        left //= sizes[axis]
    tp, pp, cp, dp = sizes["tp"], sizes["pp"], sizes["cp"], left
    strategy = draw.choice(["ddp", "fsdp2", "fsdp2", "megatron_fsdp"])
    words = [f"--nproc-per-node={ranks}"] if ranks > 1 else []
    words += [f"distributed.strategy={strategy}"] + [f"distributed.{axis}_size={sizes[axis]}" for axis in ("tp", "pp", "cp") if sizes[axis] > 1]
    if ranks > pp:
        words += some(draw, [(f"distributed.ep_size={ranks // pp}", 0.3)])
    if tp > 1:
        overlap = [f"model_parallel.tp_comm_{key}=false" for key in ("bulk_wgrad", "bulk_dgrad", "overlap_ag", "overlap_rs")]
        overlap += [f"model_parallel.tp_comm_{key}=true" for key in ("overlap_disable_qkv", "overlap_disable_fc1", "overlap_rs_dgrad")]
        words += some(draw, [(f"model_parallel.expert_tensor_parallel_size={tp}", 0.2)])
        if draw.random() < 0.6:
            words += ["model_parallel.sequence_parallel=true"]
            words += ["model_parallel.tp_comm_overlap=true", *some(draw, [(overlap, 0.7)])] if draw.random() < 0.5 else []
    if cp > 1:
        words += ["model_parallel.cp_comm_type=" + draw.choice(["p2p", "all_gather", "a2a"])]
    if strategy == "megatron_fsdp":
        words += [f"distributed.zero_dp_strategy={draw.choice([0, 1, 2, 3])}"]
        words += some(draw, [(f"distributed.{word}", 0.25) for word in ("overlap_grad_reduce=false", "overlap_param_gather=false",
                                                                        "disable_bucketing=true", "fsdp_double_buffer=true")])
    if strategy == "fsdp2":
        words += some(draw, [(f"distributed.{word}", 0.25) for word in ("reshard_after_forward=true", "defer_fsdp_grad_sync=false",
                                                                        "enable_fsdp2_prefetch=true",
                                                                        "offload_policy={_target_: torch.distributed.fsdp.CPUOffloadPolicy}")])
        words += some(draw, [(f"distributed.dp_replicate_size={dp}", 0.3 if dp > 1 else 0)])
    rows = min(draw.choice([1, 2, 4, 8]), 8 // dp)
    words += [f"step_scheduler.local_batch_size={rows}"]
    if pp > 1:
        schedule = draw.choice(SCHEDULES)
        words += [f"distributed.pipeline.pp_schedule={schedule}", f"distributed.pipeline.pp_microbatch_size={draw.choice([k for k in (1, 2) if k <= rows])}"]
        if schedule.startswith(("Interleaved", "Looped")):
            words += ["distributed.pipeline.layers_per_stage=1"]
        words += some(draw, [(["distributed.pipeline.merge_accumulation=true", "distributed.pipeline.merge_accumulation=false"], 0.4)])
    return words + some(draw, [(["distributed.activation_checkpointing=full", "distributed.activation_checkpointing=selective"], 0.4),
                               (["loss_fn._target_=chunked_ce", "loss_fn._target_=fused_linear_ce", "loss_fn._target_=te_parallel_ce"], 0.5),
                               (["model_parallel.gradient_accumulation_fusion=true", "model_parallel.delay_wgrad_compute=true"], 0.2)])


def draw_memory(draw, words):
    """Words that change what a GPU holds."""
    length = draw.choice([512, 1024, 2048, 4096])
    words = [words, f"dataset={{_target_: mock, seq_length: {length}, num_samples: 64}}"]
    adapters = draw.choice(["", "", "", "lora", "dora", "8 bits", "4 bits", "all", "frozen"])
    if adapters in ("lora", "dora", "8 bits", "4 bits"):
        words += ["peft.match_all_linear=true", f"peft.dim={draw.choice([8, 64])}"]
    words += {"dora": ["peft.use_dora=true"], "8 bits": ["quantization.load_in_8bit=true"], "4 bits": ["quantization.load_in_4bit=true"],
              "all": ["peft.target_modules=['*']", "peft.dim=8"],
              "frozen": ["freeze_config.freeze_modules=[{path: model.embed_tokens}, {glob: '*.layers.0'}]"]}.get(adapters, [])
    words += some(draw, [("peft.dropout=0.1", 0.2 if adapters in ("lora", "all") else 0), ("neftune.noise_alpha=5", 0 if adapters else 0.1)])
    words += draw.choice([[], [], ["model.torch_dtype=float32"], ["model_parallel.bf16=true"], ["distributed.autocast_dtype=bfloat16", "model.torch_dtype=float32"],
                          ["distributed.mp_policy={param_dtype: bfloat16, reduce_dtype: float32}", "model.torch_dtype=float32"],
                          ["optimizer.main_params_dtype=bfloat16"], ["optimizer.main_grads_dtype=bfloat16"], ["fp8.enabled=true"]])
    optimizer = draw.choice(["adamw", "adamw", "adam", "sgd", "muon"])
    words += [f"optimizer._target_={optimizer}", "optimizer.lr=0.001"]
    if optimizer in ("adamw", "adam"):
        words += some(draw, [("optimizer.exp_avg_dtype=bfloat16", 0.2), ("optimizer.exp_avg_sq_dtype=bfloat16", 0.2)])
    return words + some(draw, [("clip_grad_norm=null", 0.3), ("model.tie_word_embeddings=true", 0.1)])


def random_cases(sweep, seed, count, match, meshes, layers):
    """Name, words of all runs, and words of those on meshes."""
    draw = random.Random(seed)
    rows = sweep.folder / "rows.jsonl"
    # Lengths that every mesh's padding divides: else packs of context-parallel ranks would hold other rows.
    lengths = [8 * draw.randint(1, 3) for _ in range(40)]
    rows.write_text("".join(json.dumps({"input_ids": [draw.randrange(3, 100) for _ in range(length)]}) + "\n" for length in lengths))
    found = [(name, words) for name, words in (catalogue(sweep.folder, layers) if sweep.preloaded else families(sweep.folder, 1)) if match in name]
    for number in range(count):
        family, words = draw.choice(found)
        common = draw_memory(draw, words) if sweep.preloaded else [words, *draw_numbers(draw, family, rows)]
        yield f"{number}: {family}", common, [draw_planned(sweep, common, draw) for _ in range(meshes)]


def draw_planned(sweep, common, draw):
    """Words of a mesh; some of those that no plan allows are drawn again, which takes a tenth of a second each."""
    for _ in range(5):
        words = draw_execution(draw)
        try:
            sweep.run("plan", sweep.recipe, *common, *words)
            break
        except Refused:
            pass
    return words


class Failed(Exception):
    pass


class Refused(Exception):
    pass


class Sweep:
    def __init__(self, folder, preload=None):
        self.program, self.folder = str(pathlib.Path(folder).resolve() / "automodel"), pathlib.Path(tempfile.mkdtemp())
        self.environment = {**ENVIRONMENT, "AUTOMODEL_CALIBRATION": "", "XDG_CACHE_HOME": str(self.folder / "cache")}
        (self.folder / "resume.yaml").write_text(RECIPE)
        (self.folder / "verify.yaml").write_text(VERIFIED)
        (self.folder / "device.yaml").write_text(ON_DEVICE)
        (self.folder / "random.yaml").write_text(RANDOM)
        self.preloaded, self.recipe = bool(preload), "device" if preload else "random"
        if preload:
            self.environment["LD_PRELOAD"] = preload.read_text()

    def run(self, command, recipe, *words):
        words = [self.program, command, str(self.folder / f"{recipe}.yaml"), *words]
        try:
            done = subprocess.run(words, cwd=GOLDEN, env=self.environment, capture_output=True, text=True, errors="replace", timeout=LIMIT)
        except subprocess.TimeoutExpired:
            raise Failed(f"does not end\n{shlex.join(words)}") from None
        if done.returncode == 0:
            return
        problem = re.search(r"error\[([\w-]+)\]", done.stderr)
        if done.returncode in REFUSED and problem and problem[1] != "verify-failed":
            raise Refused(problem[1])
        raise Failed(f"exit code {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}\n{shlex.join(words)}")

    def resume(self, words):
        """A run as a whole, and one in parts."""
        runs = {name: self.folder / name for name in ("whole", "parts")}
        for path in runs.values():
            shutil.rmtree(path, ignore_errors=True)
        for name, ends in (("whole", [STEPS]), ("parts", [*STOPS, STEPS])):
            for end in ends:
                try:
                    self.run("train", "resume", *words, f"checkpoint.checkpoint_dir={runs[name]}", f"step_scheduler.max_steps={end}")
                except Refused as problem:
                    if name == "parts" or runs[name].exists():
                        raise Failed(f"only to step {end} of {name}: {problem}") from None
                    raise
        whole, parts = map(left, runs.values())
        apart = sorted(key for key in whole.keys() | parts.keys() if whole.get(key) != parts.get(key))
        if apart:
            numbers = [f"; {key}: {whole.get(key)}, {parts.get(key)}" for key in apart if ".jsonl" in key]
            raise Failed(f"{len(apart)} of {len(whole)} differ, among them {apart[0]}{numbers[0] if numbers else ''}")

    def verify(self, words):
        self.run("verify", "verify", *words)

    def random(self, common, *meshes):
        """A run on one rank, and one as it was drawn, which stops and goes on where there are several meshes."""
        steps = []
        for name, parts in (("alone", [[]]), ("drawn", meshes)):
            run = self.folder / name
            shutil.rmtree(run, ignore_errors=True)
            saved = ["checkpoint.enabled=true"] if len(parts) > 1 else []
            for number, more in enumerate(parts):
                end = 3 - (len(parts) - 1 - number)
                self.run("train", self.recipe, *common, *more, *saved, f"checkpoint.checkpoint_dir={run}", f"step_scheduler.max_steps={end}")
            rows = map(json.loads, (run / "training.jsonl").read_text().splitlines())
            steps.append([[row[key] for key in ("loss", "grad_norm")] for row in rows if "loss" in row])
        alone, drawn = steps
        if len(alone) != 3 or len(drawn) != 3 or any(abs(x - y) > 1e-6 * max(1, x) for a, b in zip(alone, drawn) for x, y in zip(a, b)):
            raise Failed("\n".join([f"{drawn}, on one rank {alone}", shlex.join(common), *map(shlex.join, meshes)]))

    moved = random

    def memory(self, common, mesh):
        """The peak of LibTorch's allocator beside the plan's, of the rank that holds most."""
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        self.run("train", "device", *common, *mesh, "hardware.profile=h100", "step_scheduler.max_steps=3", f"checkpoint.checkpoint_dir={run}")
        seen = json.loads((run / "estimate.json").read_text())
        measured, planned = seen["measured_tensor_bytes"], seen["predicted_tensor_bytes"]
        print(f"    {measured / planned:.4f} {measured / 2**20:.0f} MiB", flush=True)
        if abs(measured / planned - 1) > 0.05:
            raise Failed(f"{measured} bytes, planned {planned}: {measured / planned:.3f}, phases {seen['phases']}\n{shlex.join(common)}\n{shlex.join(mesh)}")

    def device(self, words):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        self.run("train", "resume" if "--device" in words else "device", *words, f"checkpoint.checkpoint_dir={self.folder / 'run'}")


def left(run):
    """What a run left behind: numbers of its steps, and the bytes of its last checkpoint."""
    timing = {"timestamp", "mem", "tps", "tps_per_gpu", "mfu", "step_time"}
    out = {}
    for file in run.glob("*.jsonl"):
        for row in map(json.loads, file.read_text().splitlines()):
            if "step" in row and file.name != "events.jsonl":
                out.update({f"{file.name} {row['step']} {key}": value for key, value in row.items() if key not in timing})
    last = run / "LATEST"
    out.update({str(path.relative_to(last)): path.read_bytes() for path in last.rglob("*.safetensors")})
    return out


def families(folder, multiple):
    """Folders with the configurations of hf_families, widths of MLPs rounded up to a multiple; the program draws the weights."""
    for path in sorted((GOLDEN / "hf_families").glob("*.json")):
        config = json.loads(path.read_text())["config"]
        for key in config:
            if key.endswith("intermediate_size") and isinstance(config[key], int):
                config[key] = -(-config[key] // multiple) * multiple
        (folder / path.stem).mkdir()
        (folder / path.stem / "config.json").write_text(json.dumps(config))
        yield path.stem, f"model.config={folder / path.stem}"


def catalogue(folder, layers):
    """Folders with the configurations of recipes/models, cut to so many layers."""
    for name, config in narrow_models(layers):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        yield name, f"model.config={folder / name}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("what", choices=["resume", "verify", "random", "moved", "memory", "device"])
    parser.add_argument("--preload", type=pathlib.Path, help="device, memory: the file that test/null_device/build.py wrote")
    parser.add_argument("--layers", type=int, default=4, help="memory: of each model; with more than four only narrow models")
    parser.add_argument("--sample", type=int, help="so many random cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--match", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    if arguments.what in ("device", "memory") and not (arguments.preload and arguments.preload.exists()):
        print("skipped: the null device is not built")
        return 77
    sweep = Sweep(arguments.bin, arguments.preload)
    rows = columns = {}
    if arguments.what == "resume":
        rows, columns = FEATURES, RESUME_MESHES
    elif arguments.what not in DRAWN:
        # What the grouped GEMM of a GPU cannot read makes the host fetch how many rows each expert has, which are zeros here.
        multiple = 16 if arguments.what == "device" else 1
        rows = {f"{family}{adapter}": f"{words} {more}" for (family, words), (adapter, more) in
                itertools.product(families(sweep.folder, multiple), ADAPTERS.items())}
        columns = VERIFY_MESHES
    if arguments.what == "device":
        rows |= {feature: f"{words} --device cuda step_scheduler.max_steps=3" for feature, words in {**FEATURES, **OF_DEVICES}.items()}
    cases = [case for case in itertools.product(rows, columns) if arguments.match in " on ".join(case)]
    whole = not arguments.sample and not arguments.match
    if arguments.sample:
        cases = random.Random(arguments.seed).sample(cases, min(arguments.sample, len(cases)))
    cases = [(f"{row} on {column}", {row, column}, [shlex.split(rows[row]) + shlex.split(columns[column])]) for row, column in cases]
    if arguments.what in DRAWN:
        drawn = random_cases(sweep, arguments.seed, arguments.sample or RANDOM_RUNS // DRAWN[arguments.what], arguments.match, DRAWN[arguments.what], arguments.layers)
        cases = [(name, {name}, [common, *meshes]) for name, common, meshes in drawn]
    refused, failed, ran = collections.Counter(), [], set()
    for name, parts, words in cases:
        try:
            getattr(sweep, arguments.what)(*words)
            ran |= parts
        except Refused as problem:
            refused[str(problem)] += 1
            if not whole:
                print(f"{name}: refused, {problem}", flush=True)
        except Failed as problem:
            failed.append(name)
            print(f"{failed[-1]}: {problem}", flush=True)
    failed += [f"{name}: refused everywhere" for name in [*rows, *columns] if whole and name not in ran]
    print(f"{len(cases)} cases, {sum(refused.values())} refused ({', '.join(f'{count} {name}' for name, count in refused.most_common())}), "
          f"{len(failed)} failed", *failed, sep="\n    ")
    shutil.rmtree(sweep.folder)
    return 0 if ran and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
