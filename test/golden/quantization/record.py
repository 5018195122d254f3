#!/usr/bin/env python3
"""Records what bitsandbytes makes of small weights on a CPU: values.json.

Needs torch and bitsandbytes (recorded with 2.11.0 and 0.50.2). The weights are computed, not stored: quantization_test
has the same formula.
"""
import json
import pathlib

import bitsandbytes as bnb
import numpy as np
import torch
from bitsandbytes import functional as F


def weight(rows, columns, dtype):
    """Numbers of very different sizes from block to block, exactly the same in any language."""
    index = np.arange(rows * columns, dtype=np.uint64)
    mixed = (index * 2654435761 + 974711) % 2**32
    mixed = (mixed ^ (mixed >> 15)) * 2246822519 % 2**32
    mixed = mixed ^ (mixed >> 13)
    unit = (mixed >> 8).astype(np.float32) * np.float32(2.0**-24) - np.float32(0.5)
    block = (index // 64).astype(np.int64)
    size = np.float32(0.02) * (1 + (block * 7 % 13)).astype(np.float32)
    out = torch.from_numpy((unit * size).reshape(rows, columns))
    out[0, :64] = 0
    return out.to(dtype)


def hashed(tensor):
    value = 0xCBF29CE484222325
    for byte in tensor.contiguous().view(torch.uint8).reshape(-1).tolist():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def text(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()).hex()


def four_bits(rows, columns, dtype, nested):
    w = weight(rows, columns, dtype)
    packed, state = F.quantize_4bit(w, blocksize=64, compress_statistics=nested, quant_type="nf4")
    out = {"rows": rows, "columns": columns, "dtype": str(dtype).split(".")[1], "nested": nested}
    out["codes"] = text(packed)
    out["scales"] = text(state.absmax)
    if nested:
        out["offset"] = text(state.offset)
        out["scales_of_scales"] = text(state.state2.absmax)
    for kind in (torch.bfloat16, torch.float32):
        state.dtype = kind
        name = str(kind).split(".")[1]
        out[f"as_{name}"] = hashed(F.dequantize_4bit(packed, state))
        module = bnb.nn.Linear4bit(columns, rows, bias=False, compute_dtype=kind, compress_statistics=nested,
                                   quant_type="nf4")
        module.weight = bnb.nn.Params4bit(w.to(kind), requires_grad=False, compress_statistics=nested, quant_type="nf4")
        module = module.to("cpu").train()
        forward, backward = products(module, columns, kind)
        if w.dtype == kind:
            assert forward == out[f"as_{name}"], "the product is with the weight that is made whole"
    return out


def products(module, columns, kind):
    """The weight as products see it, forward and backward: those with the unit matrix."""
    x = torch.eye(columns, dtype=kind, requires_grad=True)
    y = module(x)
    (gradient,) = torch.autograd.grad(y, x, torch.eye(*y.shape, dtype=kind))
    return hashed(y.detach().t()), hashed(gradient[: y.shape[1]])


def eight_bits(rows, columns, dtype):
    w = weight(rows, columns, dtype)
    codes, scales, _ = F.int8_vectorwise_quant(w.to(torch.float16))
    out = {"rows": rows, "columns": columns, "dtype": str(dtype).split(".")[1], "codes": text(codes),
           "scales": text(scales)}
    for kind in (torch.bfloat16, torch.float32):
        module = bnb.nn.Linear8bitLt(columns, rows, bias=False, has_fp16_weights=False)
        module.weight = bnb.nn.Int8Params(w.clone(), requires_grad=False, has_fp16_weights=False)
        module = module.to("cpu").train()
        forward, backward = products(module, columns, kind)
        name = str(kind).split(".")[1]
        out[f"as_{name}"] = forward
        out[f"gradient_{name}"] = backward
    return out


def main():
    values = {
        "bitsandbytes": bnb.__version__,
        "dynamic": text(F.create_dynamic_map()),
        "four_bits": [four_bits(160, 128, torch.bfloat16, True), four_bits(160, 128, torch.float32, True),
                      four_bits(24, 64, torch.bfloat16, False)],
        "eight_bits": [eight_bits(24, 96, torch.bfloat16), eight_bits(24, 96, torch.float32)],
    }
    folder = pathlib.Path(__file__).parent
    (folder / "values.json").write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
