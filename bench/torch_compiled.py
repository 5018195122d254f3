#!/usr/bin/env python3
"""Trains a Llama-style model on one rank with plain PyTorch and torch.compile: what this program is compared with.

  torch_compiled.py [--device cuda] [--type bfloat16] [--steps 20] [--warmup 5] [--sequence 4096] [--batch 8] [--microbatch 1]
      [--sizes HIDDEN,INNER,LAYERS,HEADS,GROUPS,VOCABULARY] [--untied] [--clip 1.0] [--threads N] [--tiny] [--eager]

Without --sizes it is Llama-3.2-1B: the baseline for recipes/gpu/llama_1b.yaml. Float32 weights (bfloat16: under autocast), fused
AdamW, gradient norm clipping (--clip 0: none), random tokens. Prints one line of JSON: tokens_per_second, step_seconds (the
median), peak_bytes (of a GPU), loss, and `how`: "compiled", or why not.
"""
import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype) * self.weight.to(x.dtype)


def rotated(x, cos, sin):
    """Rotary embedding; the two halves of each head are the coordinates that are rotated."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Layer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.heads, self.groups, self.width = size.heads, size.groups, size.head
        self.norm1, self.norm2 = Norm(size.hidden), Norm(size.hidden)
        self.qkv = nn.Linear(size.hidden, (size.heads + 2 * size.groups) * size.head, bias=False)
        self.out = nn.Linear(size.heads * size.head, size.hidden, bias=False)
        self.gate_up = nn.Linear(size.hidden, 2 * size.inner, bias=False)
        self.down = nn.Linear(size.inner, size.hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, -1, self.width).transpose(1, 2)
        q, k, v = parts.split((self.heads, self.groups, self.groups), 1)
        seen = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, size.hidden)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.norm = Norm(size.hidden)
        self.head = nn.Linear(size.hidden, size.vocabulary, bias=False) if size.untied else None
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, labels, cos, sin):
        x = self.embedding(tokens).to(cos.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = F.linear(self.norm(x), self.embedding.weight if self.head is None else self.head.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def main():
    words = argparse.ArgumentParser()
    words.add_argument("--device", default="cuda")
    for name, default in (("steps", 20), ("warmup", 5), ("sequence", 4096), ("batch", 8), ("microbatch", 1)):
        words.add_argument(f"--{name}", type=int, default=default)
    words.add_argument("--type", default="bfloat16", choices=["bfloat16", "float32"])
    words.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=[2048, 8192, 16, 32, 8, 128256])
    words.add_argument("--untied", action="store_true", help="a head of its own")
    words.add_argument("--clip", type=float, default=1.0, help="largest gradient norm")
    words.add_argument("--threads", type=int)
    words.add_argument("--tiny", action="store_true", help="a model of a few thousand weights")
    words.add_argument("--eager", action="store_true", help="without torch.compile")
    given = words.parse_args()
    hidden, inner, layers, heads, groups, vocabulary = [64, 128, 2, 4, 2, 512] if given.tiny else given.sizes
    size = argparse.Namespace(hidden=hidden, inner=inner, layers=layers, heads=heads, groups=groups, head=hidden // heads,
                              vocabulary=vocabulary, untied=given.untied)
    if given.threads:
        torch.set_num_threads(given.threads)
    bfloat16 = given.type == "bfloat16"

    torch.manual_seed(42)
    torch.set_float32_matmul_precision("high" if bfloat16 else "highest")
    cuda = given.device == "cuda"
    with torch.device(given.device):
        model = Decoder(size)
        angle = torch.arange(given.sequence)[:, None] / 500000 ** (torch.arange(0, size.head, 2) / size.head)
        cos, sin = (each.bfloat16() if bfloat16 else each for each in (angle.cos(), angle.sin()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    loss_of, how = model, "eager"
    if not given.eager:
        loss_of, how = torch.compile(model), "compiled"
    parts = given.batch // given.microbatch

    def step():
        total = torch.zeros((), device=given.device)
        for _ in range(parts):
            tokens = torch.randint(size.vocabulary, (given.microbatch, given.sequence + 1), device=given.device)
            with torch.autocast(given.device, torch.bfloat16) if bfloat16 else contextlib.nullcontext():
                loss = loss_of(tokens[:, :-1], tokens[:, 1:], cos, sin) / parts
            loss.backward()
            total += loss.detach()
        if given.clip:
            nn.utils.clip_grad_norm_(model.parameters(), given.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total.item()

    try:
        loss = step()
    except Exception as error:  # torch.compile needs a C compiler, which a GPU machine may lack
        if given.eager or isinstance(error, torch.OutOfMemoryError):
            raise
        how = f"eager, torch.compile failed: {str(error).strip().splitlines()[0][:120]}"
        loss_of = model
        optimizer.zero_grad(set_to_none=True)
        loss = step()
    for _ in range(given.warmup):
        step()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(given.steps):
        begin = time.perf_counter()
        loss = step()  # reading the loss waits for the device
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    usual = statistics.median(seconds)
    print(json.dumps({"tokens_per_second": given.batch * given.sequence / usual, "step_seconds": usual, "loss": loss,
                      "peak_bytes": torch.cuda.max_memory_allocated() if cuda else None, "how": how}))


if __name__ == "__main__":
    main()
