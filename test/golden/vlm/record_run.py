"""Records reference.json and lora.safetensors beside a tiny model with pictures: what transformers makes of the rows of
llava/samples.jsonl.

    python record_run.py FOLDER ASSISTANT STOP [--fresh]

FOLDER: config.json, tokenizer, chat template and processor; --fresh draws its model.safetensors. Answers stand between
the texts ASSISTANT and STOP, which counts too. Two rows a batch, padded on the right; AdamW over batches 0 to 4, twice;
float32 on one thread, attention without fused kernels. Frozen is what has "vision" in its name, as NeMo AutoModel 0.7
does; adapters are those of peft (rank 4, alpha 8) on the decoder's projections, of gates and ups apart where one module
holds both.
"""

import copy
import json
import math
import pathlib
import re
import sys
import tempfile

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.numpy import load_file, save_file

HERE = pathlib.Path(__file__).parent
TARGETS = re.compile(r"language_model\.(?!.*\.indexer\.).*\.(q|k|v|o|gate|up|gate_up|down)_proj$")
RANK, ALPHA, STEPS = 4, 8, 10


class Adapted(torch.nn.Module):
    """`firsts`: the first matrix of each equal part of the outputs."""

    def __init__(self, base, firsts):
        super().__init__()
        self.base, self.a = base, torch.nn.ParameterList(first.clone() for first in firsts)
        self.b = torch.nn.ParameterList(torch.zeros(base.out_features // len(firsts), RANK, dtype=a.dtype) for a in self.a)

    def forward(self, x):
        return self.base(x) + torch.cat([x @ a.T @ b.T for a, b in zip(self.a, self.b)], -1) * (ALPHA / RANK)


def parts(name):
    """Names, as this program has them, of the modules that a module is."""
    name = name.replace(".mlp.shared_experts.", ".block_sparse_moe.shared_experts.")
    return [name.replace("gate_up_proj", part) for part in ("gate_proj", "up_proj")] if "gate_up" in name else [name]


def fresh(folder, seed=5):
    config = transformers.AutoConfig.from_pretrained(folder)
    torch.manual_seed(seed)
    model = getattr(transformers, config.architectures[0])(config).float()
    for name, p in model.named_parameters():
        spread = 0.25 if "embed_tokens" in name else 1.7 / math.sqrt(p.shape[-1]) if p.ndim > 1 else 0.17
        if re.search(r"vision.*\.[qk]_proj\.weight$", name):  # else a tower's scores are nearly alike
            spread *= 4
        mean = round(p.mean().item()) if p.ndim == 1 else 0  # of norms 1 or, where it is added to 1, 0
        p.data = mean + spread * (2 * torch.rand_like(p) - 1)
    for name, buffer in model.named_buffers():
        if "correction_bias" in name:
            buffer.copy_(0.2 * (2 * torch.rand_like(buffer) - 1))
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def open_model(folder, dtype):
    config = transformers.AutoConfig.from_pretrained(folder)
    cls = getattr(transformers, config.architectures[0])
    eager = {f"{part}_implementation": "eager" for part in ("attn", "experts")}
    return cls.from_pretrained(folder, dtype=torch.float32, **eager).to(dtype).train()


def on_disk(model, value):
    """By the names on disk: value(name, parameter), without those where it is None."""
    other = copy.deepcopy(model)
    for name, buffer in other.named_buffers():
        buffer.data = torch.full_like(buffer, math.nan)
    for (name, mine), (_, theirs) in zip(other.named_parameters(), model.named_parameters()):
        given = value(name, theirs)
        mine.data = torch.full_like(theirs, math.nan) if given is None else given.clone()
    with tempfile.TemporaryDirectory() as folder:
        other.save_pretrained(folder)
        stored = load_file(pathlib.Path(folder) / "model.safetensors")
    return {k: v for k, v in sorted(stored.items()) if not np.isnan(v).all()}


def batches_of(folder, assistant, stop):
    """Per batch: the recorded rows, and the model's inputs."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    encode = lambda text: processor.tokenizer.encode(text, add_special_tokens=False)
    marker, end, pad = encode(assistant), encode(stop)[0], processor.tokenizer.pad_token_id
    rows = []
    for line in (HERE / "llava/samples.jsonl").read_text().splitlines():
        conversation, pictures = json.loads(line)["conversation"], []
        for message in conversation:
            for part in message["content"]:
                if part["type"] == "image":
                    pictures.append(part["image"])
                    part["image"] = Image.open(HERE / "llava" / part["image"]).convert("RGB")
        made = processor.apply_chat_template(conversation, tokenize=True, return_dict=True, return_tensors="pt")
        ids, labels, inside = made.pop("input_ids")[0].tolist(), [], False
        for at in range(len(ids)):
            inside = inside or ids[max(at - len(marker), 0) : at] == marker
            labels.append(ids[at] if inside else -100)
            inside = inside and ids[at] != end
        rest = {k: v for k, v in made.items() if k.startswith(("pixel", "image"))}
        rows.append(({"input_ids": ids, "labels": labels, "pictures": pictures}, rest))
    out = []
    for first in range(0, len(rows), 2):
        pair = rows[first : first + 2]
        length = max(len(row["input_ids"]) for row, _ in pair)
        fill = lambda key, value: torch.tensor([row[key] + [value] * (length - len(row[key])) for row, _ in pair])
        inputs = {"input_ids": fill("input_ids", pad), "labels": fill("labels", -100)}
        inputs["attention_mask"] = torch.tensor([[t < len(row["input_ids"]) for t in range(length)] for row, _ in pair]).long()
        for key in pair[0][1] | pair[1][1]:
            inputs[key] = torch.cat([rest[key] for _, rest in pair if key in rest])
        out.append(([row for row, _ in pair], inputs))
    return out, pad


def loss_of(model, inputs):
    dtype = next(model.parameters()).dtype
    cast = {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}
    return model(**cast, use_cache=False).loss


def run(folder, batches, kind, first, dtype=torch.float32, noise=None):
    """`noise`: a seed of relative changes of all weights by about a rounding."""
    model = open_model(folder, dtype)
    if noise is not None:
        draw = torch.Generator().manual_seed(noise)
        for p in model.parameters():
            p.data = p.data * (1 + 2e-7 * torch.randn(p.shape, generator=draw))
    if kind == "lora":
        model.requires_grad_(False)
        for name, module in list(model.named_modules()):
            if TARGETS.search(name):
                parent, _, leaf = name.rpartition(".")
                setattr(model.get_submodule(parent), leaf, Adapted(module, [first[n].to(dtype) for n in parts(name)]))
    elif kind == "adamw_frozen_vision":
        for name, p in model.named_parameters():
            p.requires_grad_("vision" not in name)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)
    out = {"losses": [], "grad_norms": [], "final_losses": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, batches[step % len(batches)][1])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0 if kind == "adamw_clip1" else math.inf, foreach=False)
        optimizer.step()
        out["losses"].append(loss.item())
        out["grad_norms"].append(norm.item())
    with torch.no_grad():
        out["final_losses"] = [loss_of(model, inputs).item() for _, inputs in batches]
    return out


def record(folder, assistant, stop, seeds=()):
    """With weights of the first of the seeds with which no rounding decides; without seeds, those of the folder."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    kinds = ("adamw", "adamw_clip1", "adamw_frozen_vision", "lora")
    for seed in seeds or [None]:
        if seed is not None:
            fresh(folder, seed)
        batches, pad = batches_of(folder, assistant, stop)
        model = open_model(folder, torch.float32)
        torch.manual_seed(7)
        first = {part: torch.empty(RANK, m.in_features).uniform_(-1, 1) / math.sqrt(m.in_features)
                 for n, m in model.named_modules() if TARGETS.search(n) for part in parts(n)}
        train, apart = {}, {}
        for kind in kinds:
            train[kind] = run(folder, batches, kind, first)
            others = [run(folder, batches, kind, first, torch.float64)]
            if seed is not None:
                others += [run(folder, batches, kind, first, noise=turn) for turn in range(3)]
            apart[kind] = max(abs(x - y) / (3 * y if key == "grad_norms" else 1) for key in ("losses", "final_losses", "grad_norms")
                              for other in others for x, y in zip(other[key], train[kind][key]))
            if apart[kind] > 5e-5:
                break
        print(seed, [[kind, *each["losses"][:1], *each["losses"][-1:]] for kind, each in train.items()],
              "in float64 and with noise apart", apart, flush=True)
        if max(apart.values()) < 5e-5:
            break
    save_file({n + ".lora_A.weight": np.ascontiguousarray(a.numpy()) for n, a in first.items()}, folder / "lora.safetensors")
    loss_of(model, batches[1][1]).backward()
    norms = {n: float(np.linalg.norm(v.astype(np.float64))) for n, v in on_disk(model, lambda _, p: p.grad).items()}
    frozen = on_disk(model, lambda name, p: torch.ones_like(p) if "vision" in name else None)
    reference = {
        "batches": [rows for rows, _ in batches], "train": train,
        "batch_of_step": [step % len(batches) for step in range(STEPS)],
        "grad_norms": norms, "frozen_on_disk": list(frozen), "position_ids": {}, "pad_id": pad,
    }
    (folder / "reference.json").write_text(json.dumps(reference, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    record(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], [5] if "--fresh" in sys.argv else ())
