#!/usr/bin/env python3
"""Trains small recipes on this machine and compares what their plans predicted with what the runs needed.

  accuracy.py AUTOMODEL [--markdown FILE] [--runs N]

Every run ends with estimate.json (predicted and measured peak of tensor bytes on the heaviest rank, step time); this
program makes the runs, one after another, and a table of those files.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile

MODEL = ("{{model_type: {family}, hidden_size: {hidden}, intermediate_size: {ffn}, num_hidden_layers: {layers}, "
         "num_attention_heads: 8, num_key_value_heads: {kv}, vocab_size: {vocab}, max_position_embeddings: 512}}")
RECIPE = """device: cpu
model:
  config: {model}
distributed: {{{distributed}}}
dataset: {{_target_: mock, vocab_size: {vocab}, seq_length: {length}}}
step_scheduler: {{global_batch_size: {batch}, local_batch_size: {local}, max_steps: 4, num_epochs: null}}
checkpoint: {{enabled: false, checkpoint_dir: run}}
logging: {{tensorboard: false}}
"""
SMALL = dict(family="llama", hidden=256, ffn=704, layers=4, kv=4, vocab=1000, length=128, batch=8, local=8, ranks=1,
             distributed="strategy: ddp")


def case(name, **changes):
    return name, {**SMALL, **changes}


CASES = [
    case("one rank"),
    case("long", length=512),
    case("wide", hidden=512, ffn=1408),
    case("deep", layers=12),
    case("large vocabulary", vocab=16000),
    case("one key head", kv=1),
    case("qwen2", family="qwen2"),
    case("qwen3", family="qwen3"),
    case("mistral", family="mistral"),
    case("gemma2", family="gemma2"),
    case("accumulation", batch=32, local=8),
    case("recompute full", distributed="strategy: ddp, activation_checkpointing: full"),
    case("recompute selective", distributed="strategy: ddp, activation_checkpointing: selective"),
    case("fsdp2, one rank", distributed="strategy: fsdp2"),
    case("zero 1, one rank", distributed="strategy: megatron_fsdp, zero_dp_strategy: 1"),
    case("ddp x2", ranks=2, batch=16, distributed="strategy: ddp, dp_size: 2"),
    case("fsdp2 x2", ranks=2, batch=16, distributed="strategy: fsdp2, dp_size: 2"),
    case("zero 1 x2", ranks=2, batch=16, distributed="strategy: megatron_fsdp, zero_dp_strategy: 1, dp_size: 2"),
    case("zero 2 x2", ranks=2, batch=16, distributed="strategy: megatron_fsdp, zero_dp_strategy: 2, dp_size: 2"),
    case("1F1B", ranks=2, distributed="strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B}"),
    case("GPipe", ranks=2, distributed="strategy: ddp, pp_size: 2, pipeline: {pp_schedule: GPipe}"),
    case("Interleaved1F1B", ranks=2, distributed="strategy: ddp, pp_size: 2, pipeline: {pp_schedule: Interleaved1F1B}"),
    case("ZBVZeroBubble", ranks=2, distributed="strategy: ddp, pp_size: 2, pipeline: {pp_schedule: ZBVZeroBubble}"),
    case("1F1B, fsdp2", ranks=2, distributed="strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: 1F1B}"),
]


def run(automodel, name, settings, folder):
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(model=MODEL.format(**settings), **settings))
    words = [automodel, "train", str(recipe)]
    if settings["ranks"] > 1:
        words += ["--nproc-per-node", str(settings["ranks"])]
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    result = folder / "run" / "estimate.json"
    if not result.exists():
        raise RuntimeError(f"{name}: exit {done.returncode}\n{done.stderr[-800:]}")
    return json.loads(result.read_text())


def row(name, ranks, estimate):
    predicted, measured = estimate["predicted_tensor_bytes"], estimate["measured_tensor_bytes"]
    return (f"| {name} | {ranks} | {predicted / 2**20:.1f} | {measured / 2**20:.1f} | {100 * (predicted / measured - 1):+.1f} % "
            f"| {estimate['predicted_step_seconds'] * 1e3:.0f} | {estimate['measured_step_seconds'] * 1e3:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("automodel", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=len(CASES))
    options = parser.parse_args()
    rows = []
    for name, settings in CASES[:options.runs]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows.append(row(name, settings["ranks"], run(options.automodel, name, settings, pathlib.Path(folder))))
            except (RuntimeError, subprocess.TimeoutExpired) as problem:
                print(problem, flush=True)
                continue
        print(rows[-1], flush=True)
        if options.markdown:
            options.markdown.write_text(PAGE + "\n".join(rows) + "\n")


PAGE = """# How near estimates are

Made by `bench/accuracy.py`: each row is a short run on the CPU of one machine. Memory is the peak of tensor bytes on the heaviest rank (parameters, gradients, optimizer, activations, buffers), predicted by the plan and counted by the run; libraries are not in it. Every run writes such a line at its end and `estimate.json` beside its metrics.

Step times here are without calibration, on a machine that was busy with other work: they say nothing yet about how near predicted times are.

| run | ranks | predicted MiB | measured MiB | difference | predicted ms | measured ms |
| --- | --- | --- | --- | --- | --- | --- |
"""

if __name__ == "__main__":
    main()
