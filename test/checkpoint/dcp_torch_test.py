#!/usr/bin/env python3
"""Runs that began here go on in PyTorch: what `checkpoint export --dcp` writes is read by torch.distributed.checkpoint
itself, and a loop of PyTorch's own goes on with the losses with which this program does.

  dcp_torch_test.py AUTOMODEL     exit 77 (skipped) where torch, transformers or safetensors is not installed
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
    from safetensors.torch import load_file
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
    from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict
except ImportError as error:
    print(f"skipped: {error}; pip install torch transformers safetensors to run this test")
    sys.exit(77)
torch.set_num_threads(1)

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
ROWS, BATCH, DONE, STEPS = 48, 8, 3, 6
CONFIG = {"model_type": "llama", "vocab_size": 131, "hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "max_position_embeddings": 64}
# Without the moments a loss is off by more than 0.01; float32 sums in another order, six steps: as in import_test.py.
TOLERANCE = 1e-4


def run(folder, *words):
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")
    return done.stdout


def train(folder, name, steps, config, optimizer, first_of=None):
    """Losses by step."""
    checkpoint = {"checkpoint_dir": name} | ({"restore_from": str(folder / first_of)} if first_of else {})
    (folder / f"{name}.yaml").write_text(json.dumps({
        "seed": 7, "device": "cpu", "model": {"config": config}, "optimizer": optimizer, "checkpoint": checkpoint,
        "dataset": {"_target_": "tokens", "path": "rows.jsonl"}, "dataloader": {"shuffle": False},
        "clip_grad_norm": None, "logging": {"tensorboard": False}, "lr_scheduler": {"lr_decay_style": "constant"},
        "step_scheduler": {"global_batch_size": BATCH, "local_batch_size": BATCH, "max_steps": steps, "num_epochs": None}}))
    run(folder, "train", f"{name}.yaml")
    return {step["step"]: step["loss"] for step in map(json.loads, (folder / name / "training.jsonl").open())}


def go_on(folder, source, config, rows):
    """Losses of PyTorch's steps behind the checkpoint."""
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config),
                                                          attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)  # what is loaded replaces it
    state = {"model": get_model_state_dict(model), "optimizer": get_optimizer_state_dict(model, optimizer),
             "step": torch.tensor(0)}
    dcp.load(state, checkpoint_id=source)
    set_model_state_dict(model, state["model"])
    set_optimizer_state_dict(model, optimizer, state["optimizer"])
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (0.01, (0.9, 0.95), 1e-8, 0.1), group
    losses = {}
    for step in range(int(state["step"]), STEPS):
        ids = torch.tensor(rows[BATCH * step:BATCH * (step + 1)])
        loss = model(input_ids=ids, labels=ids).loss
        losses[step] = loss.item()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return losses


def read_all(source):
    """Everything in a checkpoint, by flat names."""
    reader = dcp.FileSystemReader(source)
    metadata = reader.read_metadata()
    state = {name: torch.zeros(entry.size, dtype=entry.properties.dtype)
             for name, entry in metadata.state_dict_metadata.items() if hasattr(entry, "size")}
    values = {name: None for name, entry in metadata.state_dict_metadata.items() if not hasattr(entry, "size")}
    dcp.load(state, checkpoint_id=source)
    dcp.load(values, checkpoint_id=source)
    return state | values


def to_pairs(weight, head_dim):
    """Rows as the RoPE of Llama's first release takes them (transformers' conversion, the other way round)."""
    rows = weight.shape[0]
    return weight.view(rows // head_dim, 2, head_dim // 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def compare(what, got, wanted):
    if got.dtype != wanted.dtype or not torch.equal(got, wanted):
        sys.exit(f"{what}: {got.dtype} {tuple(got.shape)} differs")


def titan_and_nemo(folder, checkpoint):
    model, moments = load_file(checkpoint / "model" / "model.safetensors"), load_file(checkpoint / "optim" / "optim.safetensors")
    run(folder, "checkpoint", "export", "half", "titan/step-3", "--dcp", "titan")
    titan = read_all(folder / "titan" / "step-3")
    query = "layers.1.attention.qkv_linear.wq.weight"
    compare("wq", titan[query], to_pairs(model["model.layers.1.self_attn.q_proj.weight"], CONFIG["head_dim"]))
    compare("its moments", titan[f"optimizer.state.{query}.exp_avg"],
            to_pairs(moments["model.layers.1.self_attn.q_proj.weight.exp_avg"], CONFIG["head_dim"]))
    compare("w2", titan["layers.0.feed_forward.w2.weight"], model["model.layers.0.mlp.down_proj.weight"])
    compare("the head", titan["lm_head.weight"], model["lm_head.weight"])
    assert titan["train_state.step"] == DONE and titan["lr_scheduler.last_epoch"] == DONE, titan["train_state.step"]
    assert titan["optimizer.param_groups.norm.weight.betas"] == (0.9, 0.95)
    run(folder, "checkpoint", "export", "half", "nemo/epoch_0_step_2", "--dcp", "nemo")
    nemo = folder / "nemo" / "epoch_0_step_2"
    for name, weight in load_file(next((nemo / "model").glob("shard-*.safetensors"))).items():
        compare(name, weight, model[name])
    optim = read_all(nemo / "optim")
    for name, moment in moments.items():
        compare(name, optim[f"optim.state.{name}"], moment)
    assert torch.load(nemo / "step_scheduler.pt", weights_only=True) == {"step": DONE, "epoch": 0}


def main():
    generator = torch.Generator().manual_seed(5)
    rows = torch.randint(1, CONFIG["vocab_size"], (ROWS, 24), generator=generator).tolist()
    adamw = {"_target_": "adamw", "lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "rows.jsonl").write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
        for tied in (False, True):
            config = CONFIG | {"tie_word_embeddings": tied}
            half, whole = ("half", "whole") if not tied else ("tied_half", "tied_whole")
            train(folder, half, DONE, config, adamw)
            ours = train(folder, whole, STEPS, config, adamw)
            run(folder, "checkpoint", "export", half, f"{half}_out", "--dcp", "torch")
            theirs = go_on(folder, folder / f"{half}_out", config, rows)
            worst = max(abs(ours[step] - loss) for step, loss in theirs.items())
            print(f"torch {torch.__version__}, {'tied' if tied else 'untied'}: losses of steps {sorted(theirs)} within {worst:.1e}")
            if sorted(theirs) != list(range(DONE, STEPS)) or not worst <= TOLERANCE:
                sys.exit(f"{theirs} against {ours}")
        titan_and_nemo(folder, next((folder / "half").glob("epoch_*")))


main()
