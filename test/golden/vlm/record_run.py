"""Records reference.json and lora.safetensors beside a tiny model with pictures: what transformers makes of the rows of
llava/samples.jsonl.

    python record_run.py FOLDER ASSISTANT STOP [--fresh]

FOLDER: config.json, tokenizer, chat template and processor; --fresh draws its model.safetensors. Answers stand between
the texts ASSISTANT and STOP, which counts too. Two rows a batch, padded on the right; AdamW over batches 0 to 4, twice;
float32 on one thread, attention without fused kernels. Frozen is what has "vision" in its name, as NeMo AutoModel 0.7
does; adapters are those of peft (rank 4, alpha 8) on the decoder's projections.
"""

import json
import math
import pathlib
import re
import sys

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.numpy import load_file, save_file

HERE = pathlib.Path(__file__).parent
TARGETS = re.compile(r"language_model\..*\.(q|k|v|o|gate|up|down)_proj$")
RANK, ALPHA, STEPS = 4, 8, 10


class Adapted(torch.nn.Module):
    def __init__(self, base, first):
        super().__init__()
        self.base, self.a = base, torch.nn.Parameter(first)
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, RANK, dtype=first.dtype))

    def forward(self, x):
        return self.base(x) + (x @ self.a.T @ self.b.T) * (ALPHA / RANK)


def fresh(folder, seed=5):
    config = transformers.AutoConfig.from_pretrained(folder)
    torch.manual_seed(seed)
    model = getattr(transformers, config.architectures[0])(config).float()
    for name, p in model.named_parameters():
        spread = 0.25 if "embed_tokens" in name else 1.7 / math.sqrt(p.shape[-1]) if p.ndim > 1 else 0.17
        if re.search(r"vision.*\.[qk]_proj\.weight$", name):  # else a tower's scores are nearly alike
            spread *= 4
        mean = 0.0 if p.ndim > 1 or name.endswith("bias") else 1.0 if "norm.weight" in name or "ln_" in name else 0.0
        p.data = mean + spread * (2 * torch.rand_like(p) - 1)
    model.save_pretrained(folder)


def open_model(folder, dtype):
    config = transformers.AutoConfig.from_pretrained(folder)
    cls = getattr(transformers, config.architectures[0])
    return cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").to(dtype).train()


def on_disk(folder, names):
    """The tensors' names in model.safetensors by the parameters' names: of the same end and shape."""
    stored = load_file(folder / "model.safetensors")
    out = {}
    for name, shape in names.items():
        tail = lambda n: n.replace("model.language_model.", "").replace("language_model.model.", "").removeprefix("model.")
        found = [k for k, v in stored.items() if tail(k) == tail(name) and tuple(v.shape) == shape]
        assert len(found) == 1, (name, found)
        out[name] = found[0]
    return out


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


def run(folder, batches, kind, first, dtype=torch.float32):
    model = open_model(folder, dtype)
    if kind == "lora":
        model.requires_grad_(False)
        for name, module in list(model.named_modules()):
            if TARGETS.search(name):
                parent, _, leaf = name.rpartition(".")
                setattr(model.get_submodule(parent), leaf, Adapted(module, first[name].to(dtype).clone()))
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


def main():
    folder, assistant, stop = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    if "--fresh" in sys.argv:
        fresh(folder)
    batches, pad = batches_of(folder, assistant, stop)
    model = open_model(folder, torch.float32)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    names = on_disk(folder, shapes)
    loss_of(model, batches[1][1]).backward()
    norms = {names[n]: p.grad.double().norm().item() for n, p in model.named_parameters() if p.grad is not None}
    torch.manual_seed(7)
    first = {n: torch.empty(RANK, m.in_features).uniform_(-1, 1) / math.sqrt(m.in_features)
             for n, m in model.named_modules() if TARGETS.search(n)}
    save_file({n + ".lora_A.weight": np.ascontiguousarray(a.numpy()) for n, a in first.items()}, folder / "lora.safetensors")
    kinds = ("adamw", "adamw_clip1", "adamw_frozen_vision", "lora")
    train = {kind: run(folder, batches, kind, first) for kind in kinds}
    for kind in kinds:
        wide = run(folder, batches, kind, first, torch.float64)
        print(kind, train[kind]["losses"][0], train[kind]["losses"][-1], "float64 apart",
              max(abs(x - y) for x, y in zip(wide["losses"], train[kind]["losses"])))
    reference = {
        "batches": [rows for rows, _ in batches], "train": train,
        "batch_of_step": [step % len(batches) for step in range(STEPS)],
        "grad_norms": dict(sorted(norms.items())),
        "frozen_on_disk": sorted(names[n] for n in shapes if "vision" in n), "position_ids": {}, "pad_id": pad,
    }
    (folder / "reference.json").write_text(json.dumps(reference, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
