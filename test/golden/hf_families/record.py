#!/usr/bin/env python3
"""Records what transformers computes from a tiny model of a family, with weights and data that are functions of a seed.

    record.py OUTPUT.json --config CONFIG.json [--like MODEL.safetensors] [--set KEY=JSON ...] [--eval] [--classes FILE.py]
    record.py OUTPUT.json --again [--classes FILE.py]

CONFIG.json is the model's configuration. Weights are uniform about a mean: mean and spread of each tensor are those of
MODEL.safetensors where it is given, else they follow from the shape and from what transformers initialises. With --again,
configuration, means and spreads are those of OUTPUT.json. README.md says what stands in the result. Needs torch 2.11 and
transformers 5.23."""
import argparse, contextlib, json, math, pathlib, runpy, tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

MASK = 0xFFFFFFFFFFFFFFFF


def stream_hash(name):
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = ((h ^ c) * 0x100000001B3) & MASK
    h = ((h ^ (h >> 33)) * 0xFF51AFD7ED558CCD) & MASK
    h = ((h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53) & MASK
    return h ^ (h >> 33)


def words(seed, name, count):
    """The first `count` 32-bit numbers of a stream (lib/base/random.h)."""
    blocks = (count + 3) // 4
    stream = stream_hash(name)
    u = np.uint64
    c = [np.arange(blocks, dtype=u), np.zeros(blocks, u), np.full(blocks, stream & 0xFFFFFFFF, u), np.full(blocks, stream >> 32, u)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    low = u(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = u(0xD2511F53) * c[0], u(0xCD9E8D57) * c[2]
        c = [(p1 >> u(32)) ^ c[1] ^ u(k0), p1 & low, (p0 >> u(32)) ^ c[3] ^ u(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, 1).reshape(-1)[:count]


def weight(seed, name, rule):
    if "values" in rule:
        return np.array(rule["values"], rule.get("type", "float32")).reshape(rule["shape"])
    n = int(np.prod(rule["shape"]))
    u = (words(seed, name, n) >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return (rule["mean"] + rule["spread"] * (2 * u - 1)).astype(np.float32).reshape(rule["shape"])


def rule_of(name, stored, trained, plain):
    """Mean and spread of a tensor; what is not trained and what has few elements is kept as it is."""
    rule = {"shape": list(stored.shape)}
    if stored.dtype == np.int64:  # a table of experts
        return rule | {"values": stored.reshape(-1).tolist(), "type": "int64"}
    if not trained and stored.ndim == 1 and not stored.any():  # a bias that begins at zero would decide nothing
        return rule | {"values": [round(0.2 * (2 * float(u) / 2**32 - 1), 3) for u in words(1, name, stored.size)]}
    if not trained or stored.size <= 2:
        return rule | {"values": [float(x) for x in stored.reshape(-1)]}
    mean = 0.0 if stored.ndim > 1 and "norm" not in name else round(float(stored.mean()), 2)
    if plain:
        spread = 0.25 if "embed" in name else 1.7 / math.sqrt(stored.shape[-1]) if stored.ndim > 1 else 0.17
    else:
        spread = float(stored.std()) * math.sqrt(3)
    return rule | {"mean": mean, "spread": round(spread, 3)}


def data(seed, steps, rows, length, vocab):
    n = steps * rows * length
    ids = (words(seed, "ids", n) % np.uint64(vocab)).astype(np.int64)
    labels = np.where(words(seed, "labels", n) % np.uint64(8) == 0, -100, ids)
    shape = (steps, rows, length)
    return torch.tensor(ids.reshape(shape)), torch.tensor(labels.reshape(shape))


def open_model(folder, dtype=torch.float32):
    config = transformers.AutoConfig.from_pretrained(folder)
    for key in ("attn_implementation", "experts_implementation"):
        setattr(config, "_" + key, "eager")
    cls = getattr(transformers, config.architectures[0])
    return cls.from_pretrained(folder, config=config, dtype=dtype, attn_implementation="eager").to(dtype)


def stored(model):
    """The state of a model by its names on disk."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return {k: v for f in pathlib.Path(folder).glob("*.safetensors") for k, v in load_file(f).items()}


def gradients(model, folder):
    """Gradients by the names on disk."""
    copy = open_model(folder)
    for mine, other in zip(copy.parameters(), model.parameters()):
        mine.data = (torch.zeros_like(other) if other.grad is None else other.grad).clone()
    return stored(copy)


@contextlib.contextmanager
def margins(found):
    """Appends to `found`, for each choice of the k largest, how much the last one chosen is above the first one left out,
    in standard deviations of the row. Equal scores (masked, or negative before a ReLU) are equal on every processor."""
    real = torch.topk

    def topk(x, k, dim=-1, *rest, **named):
        with torch.no_grad():
            rows = x.detach().double().movedim(dim, -1)
            if k < rows.shape[-1]:
                best = real(rows, k + 1).values
                finite = torch.where(rows > -1e30, rows, torch.nan)  # not masked
                spread = (finite - finite.nanmean(-1, True)).square().nanmean(-1).sqrt()
                apart = (best[..., k - 1] - best[..., k]) / spread
                apart = apart[apart.isfinite() & (apart > 0)]
                if apart.numel():
                    found.append(float(apart.min()))
        return real(x, k, dim, *rest, **named)

    method, torch.topk, torch.Tensor.topk = torch.Tensor.topk, topk, topk
    try:
        yield
    finally:
        torch.topk, torch.Tensor.topk = real, method


def train(folder, ids, labels, mode, clip, dtype=torch.float32):
    torch.set_num_threads(1)
    model = getattr(open_model(folder, dtype), mode)()
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)
    losses, norms = [], []
    for i in range(ids.shape[0]):
        optimizer.zero_grad(set_to_none=False)
        loss = model(input_ids=ids[i], labels=labels[i], use_cache=False).loss
        loss.backward()
        for p in model.parameters():  # what no token used has a gradient of zero, and decays
            if p.requires_grad and p.grad is None:
                p.grad = torch.zeros_like(p)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip, foreach=False)
        optimizer.step()
        losses.append(float(loss))
        norms.append(float(norm))
    return {"losses": losses, "grad_norms": norms}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config")
    source.add_argument("--again", action="store_true")
    parser.add_argument("--like")
    parser.add_argument("--margin", type=float, default=2e-4, help="least margin of a choice; where many choose, no seed has this")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--classes", help="a Python file that makes further classes known to transformers")
    parser.add_argument("--eval", action="store_true", help="without what transformers does in training mode only")
    a = parser.parse_args()
    if a.classes:
        runpy.run_path(a.classes)
    old = json.load(open(a.output)) if a.again else {}
    config = old.get("config") or json.load(open(a.config))
    mode = old.get("mode") or ("eval" if a.eval else "train")
    for pair in a.set:
        key, value = pair.split("=", 1)
        config[key] = json.loads(value)
        if config[key] is None:
            del config[key]
    for seed in range(1, 40):
        result = record(config, a.like, mode, seed, old.get("weights"))
        # Else rounding decides, a choice of experts or a clamp: after some steps the scores of two processors are 1e-5 apart.
        margin = result["least_margin"]
        if result["float64_apart"] < 1e-5 and (margin is None or margin > a.margin):
            break
        print(f"{a.output}: seed {seed}, float64 apart {result['float64_apart']:.1e}, least margin {margin}")
    else:
        raise SystemExit(f"{a.output}: rounding decides with every seed")
    lines = [f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in result.items()]
    pathlib.Path(a.output).write_text("{" + ",\n".join(lines) + "}\n")
    print(f"{a.output}: seed {seed}, loss {result['plain']['loss']:.6f}, norm {result['grad_norm']:.4f}, float64 apart "
          f"{result['float64_apart']:.1e}, least margin {margin}, {len(result['weights'])} tensors")


def record(config, like, mode, seed, rules):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "config.json").write_text(json.dumps(config))
        torch.manual_seed(0)
        read = transformers.AutoConfig.from_pretrained(folder)
        fresh = getattr(transformers, config["architectures"][0])(read).float()
        begun = load_file(like) if like else stored(fresh)
        for p in fresh.parameters():
            if p.requires_grad:
                p.data = torch.full_like(p, 7.0)
        trained = {k for k, v in stored(fresh).items() if (v == 7.0).all()}
        rules = rules or {k: rule_of(k, v, k in trained, not like) for k, v in sorted(begun.items())}
        save_file({k: weight(seed, k, r) for k, r in rules.items()}, folder / "model.safetensors", {"format": "pt"})
        ids, labels = data(seed, 10, 2, 32, config["vocab_size"])
        model = getattr(open_model(folder), mode)()
        out = model(input_ids=ids[0], labels=labels[0], use_cache=False)
        out.loss.backward()
        norms = {k: float(np.linalg.norm(v.astype(np.float64))) for k, v in sorted(gradients(model, folder).items()) if k in trained}
        total = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in model.parameters() if p.grad is not None))
        clips = {"adamw": float("inf"), "adamw_clip1": 1.0}
        found = []
        with margins(found):
            runs = {name: train(folder, ids, labels, mode, clip) for name, clip in clips.items()}
        wide = {name: train(folder, ids, labels, mode, clip, torch.float64) for name, clip in clips.items()}
        logits = out.logits.detach()
    short = lambda x: float(f"{x:.8g}")
    return {
        "transformers": transformers.__version__, "mode": mode, "seed": seed, "config": config, "weights": rules,
        "not_trained": sorted(set(begun) - trained),
        "plain": {"loss": float(out.loss), "positions": [0, 7, 31],
                  "logits": [[[short(x) for x in logits[r, t, :12].tolist()] for t in (0, 7, 31)] for r in range(2)],
                  "logsum": [short(x) for x in torch.logsumexp(logits, -1).flatten().tolist()]},
        "grad_norm": total, "grad_norms": {k: short(v) for k, v in norms.items()}, "train": runs,
        "float64_apart": max(abs(x - y) for name in runs for x, y in zip(wide[name]["losses"], runs[name]["losses"])),
        "least_margin": short(min(found)) if found else None,
    }


if __name__ == "__main__":
    main()
