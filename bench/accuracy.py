#!/usr/bin/env python3
"""Trains small recipes on this machine and compares what their plans predicted with what the runs needed.

  accuracy.py AUTOMODEL [--markdown FILE] [--runs N] [--only WORD] [--note TEXT]

Each row is `automodel plan --calibrate` for the recipe, one run, and a second run whose plan uses the first. Every run
ends by writing estimate.json (step time and peak of tensor bytes on the heaviest rank, predicted and measured); this
program does the runs one after another and makes a table of those files.
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
step_scheduler: {{global_batch_size: {batch}, local_batch_size: {local}, max_steps: {steps}, num_epochs: null}}
checkpoint: {{enabled: false, checkpoint_dir: run}}
logging: {{tensorboard: false}}
"""
SMALL = dict(family="llama", hidden=256, ffn=704, layers=4, kv=4, vocab=1000, length=128, batch=8, local=8, ranks=1,
             distributed="strategy: ddp", steps=12)


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
    """estimate.json of two runs: the first after a calibration, the second also after the first run."""
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(model=MODEL.format(**settings), **settings))
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       AUTOMODEL_CALIBRATION=str(folder / "calibration.json"))

    def execute(words):
        done = subprocess.run([automodel, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {words[0]} ended with {done.returncode}\n{done.stderr[-800:]}")

    execute(["plan", str(recipe), "--calibrate"])
    results = []
    for _ in range(2):
        execute(["train", str(recipe), "--nproc-per-node", str(settings["ranks"])])
        results.append(json.loads((folder / "run" / "estimate.json").read_text()))
    return results


def difference(predicted, measured):
    return f"{100 * (predicted / measured - 1):+.1f} %"


def row(name, ranks, estimates):
    first, second = estimates
    predicted, measured = first["predicted_tensor_bytes"], first["measured_tensor_bytes"]
    cells = [name, ranks, f"{predicted / 2**20:.1f}", f"{measured / 2**20:.1f}", difference(predicted, measured)]
    for each in estimates:
        step, took = each["predicted_step_seconds"], each["measured_step_seconds"]
        cells += [f"{step * 1e3:.1f}", f"{took * 1e3:.1f}", difference(step, took)]
    return "| " + " | ".join(map(str, cells)) + " |"


def share_within(results, which, limit):
    near = [abs(each[which]["predicted_step_seconds"] / each[which]["measured_step_seconds"] - 1) <= limit for each in results]
    return f"{sum(near)} of {len(near)}"


def page(rows, results, note):
    load = os.getloadavg()[2]
    memory = [abs(each[0]["predicted_tensor_bytes"] / each[0]["measured_tensor_bytes"] - 1) for each in results]
    return PAGE.format(
        note=" " + note if note else "", cores=os.cpu_count(), load=f"{load:.1f}", memory=f"{100 * max(memory):.1f} %", tenth=share_within(results, 0, 0.1),
        fifth=share_within(results, 0, 0.2), again=share_within(results, 1, 0.1), again_fifth=share_within(results, 1, 0.2),
        rows="\n".join(rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("automodel", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=len(CASES))
    parser.add_argument("--note", default="", help="a sentence for the page, about what else the machine did")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    options = parser.parse_args()
    rows, results = [], []
    for name, settings in CASES[:options.runs]:
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                estimates = run(options.automodel, name, settings, pathlib.Path(folder))
            except (RuntimeError, subprocess.TimeoutExpired) as problem:
                print(problem, flush=True)
                continue
        results.append(estimates)
        rows.append(row(name, settings["ranks"], estimates))
        print(rows[-1], flush=True)
        if options.markdown:
            # Keep what bench/published.py wrote after this part.
            old = options.markdown.read_text() if options.markdown.exists() else ""
            rest = old[old.index(PUBLISHED):] if PUBLISHED in old else ""
            options.markdown.write_text(page(rows, results, options.note) + ("\n" + rest if rest else ""))


PUBLISHED = "## Beside published runs"
PAGE = """# Accuracy of the estimates

## On a CPU

Made by `bench/accuracy.py` on a machine with {cores} cores (load average over 15 minutes: {load}). Each row is a recipe: `automodel plan --calibrate` measures its parts, then the recipe is trained twice for a few steps. Every run prints such a comparison at its end and writes `estimate.json` next to its metrics.{note}

- **Memory** is the peak of tensor bytes on the heaviest rank (parameters, gradients, optimizer, activations, buffers), predicted by the plan and counted by the run; libraries are not included. The largest difference is {memory}.
- **Time, first run**: predicted from the calibration alone; measured is the median of the steps after the first. Within 10 %: {tenth}; within 20 %: {fifth}.
- **Time, second run**: predicted from the calibration, corrected by the first run. Within 10 %: {again}; within 20 %: {again_fifth}.

| run | ranks | predicted MiB | measured MiB | difference | first: predicted ms | measured ms | difference | second: predicted ms | measured ms | difference |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}
"""

if __name__ == "__main__":
    main()
