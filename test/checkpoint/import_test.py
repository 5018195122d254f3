#!/usr/bin/env python3
"""Runs that PyTorch began go on here: golden/dcp/*.tar.xz hold checkpoints of torch.distributed.checkpoint and the losses
with which PyTorch itself went on from them.

  import_test.py AUTOMODEL GOLDEN CASE
"""
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

PROGRAM, GOLDEN, CASE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), sys.argv[3]
# A run without the moments is off by 0.02 and more, one without Adam's step count by 0.01 and more.
TOLERANCE = 1e-4
SOURCES = {"titan_4": "start/step-3", "nemo_2": "start/epoch_0_step_2"}
MESHES = {"one rank": {}, "two stages": {"pp_size": 2, "dp_size": 1, "pipeline": {"pp_schedule": "1f1b", "pp_microbatch_size": 6}},
          "FSDP over two ranks": {"strategy": "fsdp2", "dp_size": 2}, "tensor parallel": {"tp_size": 2, "dp_size": 1}}


def run(folder, *words, code=0):
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True)
    if done.returncode != code:
        sys.exit(f"{CASE}: {' '.join(words)}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")
    return done


def recipe(case, reference):
    optimizer = reference["optimizer"]
    return {"model": {"config": str(case / "hf" / "config.json")}, "device": "cpu",
            "optimizer": {"_target_": "adamw", "lr": optimizer["lr"], "betas": optimizer["betas"],
                          "eps": optimizer["eps"], "weight_decay": optimizer["weight_decay"]},
            "dataset": {"_target_": "tokens", "path": str(case / "rows.jsonl")}, "dataloader": {"shuffle": False},
            "clip_grad_norm": None,
            "step_scheduler": {"global_batch_size": reference["rows_per_step"], "local_batch_size": 6,
                               "max_steps": len(reference["losses"]), "num_epochs": None},
            "checkpoint": {"enabled": False}, "logging": {"tensorboard": False}}


def refused(folder, source, *parts):
    """The source is refused with exit 13, and nothing is made."""
    error = run(folder, "checkpoint", "import", str(source), "made", "--recipe", "recipe.yaml", code=13).stderr
    left = [path.name for path in folder.iterdir() if path.name.startswith("made")]
    if left or not all(part in error for part in parts):
        sys.exit(f"{CASE}: {left} {error}")


def there_and_back(folder, case, reference):
    """What this program has trained on, exported for the trainer and imported again, goes on with the same losses."""
    layout = {"titan_4": "titan", "nemo_2": "nemo"}.get(CASE, "torch")
    done = reference["steps_done_at_save"]
    values = recipe(case, reference)
    values["checkpoint"] = {"checkpoint_dir": "half", "enabled": True, "restore_from": str(folder / "imported")}
    values["step_scheduler"]["max_steps"] = done + 1
    (folder / "half.yaml").write_text(json.dumps(values))
    run(folder, "train", "half.yaml")
    run(folder, "checkpoint", "export", "half", f"away/{layout}/", "--dcp", layout)
    run(folder, "checkpoint", "import", f"away/{layout}", "back", "--recipe", "recipe.yaml")
    values["checkpoint"] = {"checkpoint_dir": "rest", "enabled": True, "restore_from": str(folder / "back")}
    values["step_scheduler"]["max_steps"] = len(reference["losses"])
    (folder / "rest.yaml").write_text(json.dumps(values))
    run(folder, "train", "rest.yaml")
    ours = {step["step"]: step["loss"] for step in map(json.loads, (folder / "rest" / "training.jsonl").open())}
    theirs = dict(list(enumerate(reference["losses"]))[done + 1:])
    worst = max(abs(ours.get(step, 1e9) - loss) for step, loss in theirs.items())
    print(f"{CASE}, exported as {layout} and imported: losses of {len(theirs)} steps within {worst:.1e}")
    if sorted(ours) != sorted(theirs) or not worst <= TOLERANCE:
        sys.exit(f"{CASE}, there and back: {ours} against {theirs}")


def not_exported(folder, *words, says):
    error = run(folder, "checkpoint", "export", "half", *words, code=2).stderr
    if says not in error or (folder / "not").exists():
        sys.exit(f"{words}: {error}")


def special(folder, case, reference):
    """What one case shows beside the others."""
    if CASE == "plain_1":
        start = case / "start"
        whole = (start / "__0_0.distcp").read_bytes()
        (start / "__0_0.distcp").write_bytes(whole[:-100])
        refused(folder, start, "checkpoint-damaged", "it ends at")
        (start / "__0_0.distcp").write_bytes(whole)
        metadata = (start / ".metadata").read_bytes()
        # A weight that the model has and the source has not.
        (start / ".metadata").write_bytes(metadata.replace(b"model.model.norm.weight", b"model.model.morn.weight"))
        refused(folder, start, "weights-missing", "model.norm.weight")
        (start / ".metadata").write_bytes(b"cos\nsystem\n(X\x06\0\0\0>ranittR.")
        refused(folder, start, "checkpoint-damaged", "os.system")
        (start / ".metadata").unlink()
        refused(folder, start, "checkpoint-missing")
        not_exported(folder, "away", "--dcp", "torch", says="'away' exists")
        not_exported(folder, "not", "--dcp", "torch", "--dtype", "bfloat16", says="--dcp takes neither")
        # A model's folder has the weights alone.
        said = run(folder, "checkpoint", "export", "half/LATEST/model", "alone", "--dcp", "torch").stdout
        if "no states of the optimizer" not in said or "0 steps" not in said:
            sys.exit(said)
        run(folder, "checkpoint", "import", "alone", "imported_alone")
        # A damaged checkpoint is not carried away.
        state = next((folder / "half").glob("epoch_*")) / "optim" / "optim.safetensors"
        state.write_bytes(state.read_bytes()[:-1] + b"x")
        if "checkpoint-damaged" not in run(folder, "checkpoint", "export", "half", "not", "--dcp", "torch", code=13).stderr:
            sys.exit("a damaged checkpoint was exported")
    if CASE == "titan_4":
        refused(folder, case / "start", "checkpoint-missing", "step-3")
        values = recipe(case, reference)
        values["model"]["config"] = {"model_type": "gpt2", "n_embd": 48, "n_layer": 3, "n_head": 4, "vocab_size": 130}
        (folder / "recipe.yaml").write_text(json.dumps(values))
        refused(folder, case / "start" / "step-3", "checkpoint-missing", "gpt2")
    if CASE == "nemo_2":  # it says itself which model it is
        run(folder, "checkpoint", "import", str(case / SOURCES[CASE]), "alone")
        run(folder, "checkpoint", "verify", "alone")
    if CASE == "accelerate_2":  # without the moments: said, and a run begins with the weights
        for file in (case / "start" / "optimizer_0").iterdir():
            file.unlink()
        said = run(folder, "checkpoint", "import", str(case / "start"), "anew", "--recipe", "recipe.yaml").stdout
        if "no states of the optimizer" not in said or "no number of steps" not in said:
            sys.exit(said)
        values = recipe(case, reference)
        values["checkpoint"] = {"checkpoint_dir": "runs", "restore_from": str(folder / "anew")}
        values["step_scheduler"]["max_steps"] = 1
        (folder / "anew.yaml").write_text(json.dumps(values))
        said = run(folder, "train", "anew.yaml")
        if "has no states of an optimizer" not in said.stdout + said.stderr:
            sys.exit(f"not said: {said.stdout}{said.stderr}")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with tarfile.open(GOLDEN / f"{CASE}.tar.xz") as archive:
            archive.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(folder)
        case = folder / CASE
        reference = json.loads((case / "reference.json").read_text())
        (folder / "recipe.yaml").write_text(json.dumps(recipe(case, reference)))
        run(folder, "checkpoint", "import", str(case / SOURCES.get(CASE, "start")), "imported/", "--recipe", "recipe.yaml")
        run(folder, "checkpoint", "verify", "imported")
        listed = json.loads(run(folder, "checkpoint", "ls", "imported", "--json").stdout)
        done = reference["steps_done_at_save"]
        if listed[0]["step"] != done - 1 or not listed[0]["complete"]:
            sys.exit(f"{CASE}: {listed}")
        run(folder, "checkpoint", "export", "imported", "exported/")
        state = json.loads((folder / "imported" / "state.json").read_text())
        if state["samples_consumed"] != done * reference["rows_per_step"]:
            sys.exit(f"{CASE}: {state['samples_consumed']} samples")
        for mesh, distributed in MESHES.items():
            out = mesh.replace(" ", "_")
            values = recipe(case, reference)
            values["checkpoint"] = {"checkpoint_dir": out, "enabled": True, "restore_from": str(folder / "imported")}
            values["distributed"] = distributed
            (folder / f"{out}.yaml").write_text(json.dumps(values))
            ranks = 1 if not distributed else 2
            run(folder, "train", f"{out}.yaml", "--nproc-per-node", str(ranks))
            steps = [json.loads(line) for line in (folder / out / "training.jsonl").read_text().splitlines()]
            ours = {step["step"]: step["loss"] for step in steps}
            theirs = dict(list(enumerate(reference["losses"]))[done:])
            worst = max(abs(ours.get(step, 1e9) - loss) for step, loss in theirs.items())
            print(f"{CASE}, {mesh}: losses of {len(theirs)} steps within {worst:.1e}")
            if sorted(ours) != sorted(theirs) or not worst <= TOLERANCE:
                sys.exit(f"{CASE}, {mesh}: {ours} against {theirs}")
        there_and_back(folder, case, reference)
        special(folder, case, reference)


main()
