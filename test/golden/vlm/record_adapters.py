"""Records adapters.json: ten AdamW steps of adapters on every linear module of the towers and projectors of the tiny
models here, alone and, as DoRA, beside those of the decoder's queries.

    python record_adapters.py

transformers 5.23, float32, one thread, attention without fused kernels; rank 4, alpha 8, as the peft library computes them.
Rows are those of each reference.json. First matrices follow from the modules' order by name, so that they need no file.
Recorded too are transformers' names of the modules that have adapters with gradients (of Step 3.7's tower those of
its folders), and their numbers in that order.
"""

import json
import re

import torch
import transformers
from PIL import Image

from record_run import ALPHA, HERE, RANK, STEPS, loss_of, open_model

FAMILIES = ("llava", "gemma3", "gemma4", "mistral3", "muse_glimmer", "qwen2_5_vl", "qwen3_vl", "step3p7")
TOWER = re.compile(r"^model\.(?!language_model\.)")
JOINED = re.compile(r"vision_model\.layers\.\d+\.self_attn\.[qkv]_proj$")  # Step 3.7's, as published: one parameter
QUERY = re.compile(r"^model\.language_model\..*q_proj$")


class Adapted(torch.nn.Module):
    """W x + s B A x; as DoRA, with rows of length m, which begins as theirs and whose divisor is a constant."""

    def __init__(self, base, number, dora):
        super().__init__()
        rows, columns = torch.meshgrid(torch.arange(RANK), torch.arange(base.in_features), indexing="ij")
        first = torch.cos(1 + 3 * rows.double() + 7 * columns.double() + number) / base.in_features**0.5
        self.number, self.base, self.a = number, base, torch.nn.Parameter(first.to(base.weight.dtype))
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, RANK, dtype=base.weight.dtype))
        self.m = torch.nn.Parameter(base.weight.norm(dim=1)) if dora else None

    @property
    def weight(self):
        return self.base.weight

    def forward(self, x):
        term = ALPHA / RANK * (self.b @ self.a)
        if self.m is None:
            return self.base(x) + x @ term.T
        weight = self.base.weight + term
        lengths = weight.norm(dim=1, keepdim=True).detach()
        return torch.nn.functional.linear(x, self.m[:, None] / lengths * weight, self.base.bias)


def adapted(folder, dtype, dora):
    model = open_model(folder, dtype).requires_grad_(False)
    chosen = lambda name: (TOWER.search(name) and not JOINED.search(name)) or (dora and QUERY.search(name))
    linear = {n: m for n, m in model.named_modules() if type(m) is torch.nn.Linear and chosen(n)}
    for number, name in enumerate(sorted(linear)):
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, Adapted(linear[name], number, dora))
    return model


def inputs_of(folder, recorded):
    processor, pixtral = transformers.AutoProcessor.from_pretrained(folder), folder.name == "mistral3"
    sides = {"patch_size": processor.patch_size * processor.spatial_merge_size} if pixtral else {}  # as the processor does
    out = []
    for rows in recorded["batches"]:
        length = max(len(row["input_ids"]) for row in rows)
        fill = lambda key, value: torch.tensor([row[key] + [value] * (length - len(row[key])) for row in rows])
        inputs = {"input_ids": fill("input_ids", recorded.get("pad_id", 397)), "labels": fill("labels", -100)}
        inputs["attention_mask"] = torch.tensor([[t < len(row["input_ids"]) for t in range(length)] for row in rows]).long()
        made = []
        for row in rows:
            if pictures := [Image.open(HERE / "llava" / name).convert("RGB") for name in row["pictures"]]:
                made.append(processor.image_processor(images=[pictures], return_tensors="pt", **sides))
        for key in {k for each in made for k in each if k.startswith(("pixel", "image", "num_local"))}:
            parts = [torch.as_tensor(each[key]) for each in made if key in each]
            if pixtral and key == "pixel_values":
                high, wide = (max(part.shape[d] for part in parts) for d in (2, 3))
                parts = [torch.nn.functional.pad(p, (0, wide - p.shape[3], 0, high - p.shape[2])) for p in parts]
            inputs[key] = torch.cat(parts)
        if "num_local_patches" in inputs:
            inputs["num_local_patches"] = inputs["num_local_patches"].tolist()
        if folder.name.startswith(("gemma", "qwen")):
            config = json.loads((folder / "config.json").read_text())
            token = config.get("image_token_id", config.get("image_token_index"))
            key = "token_type_ids" if folder.name == "gemma3" else "mm_token_type_ids"
            inputs[key] = (inputs["input_ids"] == token).long()
        out.append(inputs)
    return out


def published(name):
    """The name of a module of Step 3.7's tower as its folders and NeMo AutoModel have it; of others the same."""
    name = re.sub(r"vision_model\.layers\.(\d+)\.(self_)?", r"vision_model.transformer.resblocks.\1.", name)
    return name.replace("mlp.fc1", "mlp.c_fc").replace("mlp.fc2", "mlp.c_proj") if "resblocks" in name else name


def run(folder, batches, dora, dtype=torch.float32):
    model = adapted(folder, dtype, dora)
    cast = [{k: v.to(dtype) if torch.is_tensor(v) and v.is_floating_point() else v for k, v in b.items()} for b in batches]
    loss_at = lambda inputs: model(**inputs, use_cache=False).loss
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)
    out = {"losses": [], "grad_norms": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_at(cast[step % len(cast)])
        loss.backward()
        reached = {n for n, p in trained.items() if p.grad is not None}
        if step == 0:
            used = reached
        assert reached == used, "a batch without pictures"
        out["grad_norms"].append(torch.nn.utils.clip_grad_norm_(trained.values(), float("inf"), foreach=False).item())
        optimizer.step()
        out["losses"].append(loss.item())
    with torch.no_grad():
        out["final_losses"] = [loss_at(inputs).item() for inputs in cast]
    out["modules"] = {published(n[:-2]): model.get_submodule(n[:-2]).number for n in sorted(used) if n.endswith(".a")}
    return out


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    out = {}
    for family in FAMILIES:
        folder = HERE / family
        recorded = json.loads((folder / "reference.json").read_text())
        batches = inputs_of(folder, recorded)
        if not all("pixel_values" in batch for batch in batches):
            raise SystemExit(f"{family}: a batch without pictures")
        plain = open_model(folder, torch.float32)
        with torch.no_grad():
            before = plain(**batches[0], use_cache=False).loss.item()
        assert abs(before - recorded["train"]["adamw"]["losses"][0]) < 1e-5, (family, before)
        out[family] = {kind: run(folder, batches, kind == "dora") for kind in ("lora", "dora")}
        for kind, one in out[family].items():
            wide = run(folder, batches, kind == "dora", torch.float64)
            apart = max(abs(x - y) for x, y in zip(wide["losses"], one["losses"]))
            print(family, kind, len(one["modules"]), one["losses"][0], one["losses"][-1], "float64 apart", apart, flush=True)
    (HERE / "adapters.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
