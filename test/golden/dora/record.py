#!/usr/bin/env python3
"""Records what the PEFT library computes of one linear module with a DoRA adapter: values.json.

Needs torch and peft (recorded with 2.11.0 and 0.21.2). The numbers are computed, not stored: magnitudes_test has the
same formula.
"""
import json
import pathlib

import numpy as np
import peft
import torch

ROWS, IN, OUT, RANK, ALPHA = 5, 12, 8, 3, 7


def numbers(name, *shape):
    """Numbers between -1 and 1, exactly the same in any language."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(1000 * name)
    mixed = (index * 2654435761 + 974711) % 2**32
    mixed = (mixed ^ (mixed >> 15)) * 2246822519 % 2**32
    mixed = mixed ^ (mixed >> 13)
    return torch.from_numpy(((mixed >> 8).astype(np.float64) * 2.0**-23 - 1).reshape(shape))


def main():
    model = torch.nn.Sequential(torch.nn.Linear(IN, OUT, dtype=torch.float64))
    with torch.no_grad():
        model[0].weight.copy_(numbers(1, OUT, IN))
        model[0].bias.copy_(numbers(2, OUT))
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["0"], use_dora=True),
                                  autocast_adapter_dtype=False)
    layer = adapted.base_model.model[0]
    start = layer.lora_magnitude_vector["default"].weight.detach().clone()
    a, b, m = (layer.lora_A["default"].weight, layer.lora_B["default"].weight,
               layer.lora_magnitude_vector["default"].weight)
    with torch.no_grad():
        a.copy_(numbers(3, RANK, IN))
        b.copy_(numbers(4, OUT, RANK))
        m.copy_(2 + numbers(5, OUT))
    x = numbers(6, ROWS, IN).requires_grad_()
    y = adapted(x)
    gradients = torch.autograd.grad(y, [x, a, b, m], numbers(7, ROWS, OUT))
    layer.merge()
    values = {"peft": peft.__version__, "start": start, "y": y, "merged": layer.get_base_layer().weight}
    for name, gradient in zip(("dx", "da", "db", "dm"), gradients):
        values[name] = gradient
    values = {name: value.detach().reshape(-1).tolist() if isinstance(value, torch.Tensor) else value
              for name, value in values.items()}
    (pathlib.Path(__file__).parent / "values.json").write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
