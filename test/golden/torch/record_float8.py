"""Records torch/float8.json: one Float8Linear of torchao, by each recipe, emulated on the CPU.

pip install torch==2.11.0 torchao==0.18.0; python record_float8.py > float8.json
"""
import json

import torch
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

TOKENS, IN, OUT = 6, 16, 8


def values(rows, columns, seed):
    """Seven bits and a power of two each: the same in bfloat16."""
    out, state = [], seed
    for _ in range(rows * columns):
        state = (1103515245 * state + 12345) % 2**31
        out.append(((state >> 8) % 255 - 127) * 2.0 ** (-6 - (state >> 20) % 5))
    return torch.tensor(out).view(rows, columns)


rows = []
for recipe in ("tensorwise", "rowwise", "rowwise_with_gw_hp"):
    for dtype in (torch.float32, torch.bfloat16):
        config = Float8LinearConfig.from_recipe_name(recipe)
        object.__setattr__(config, "emulate", True)
        model = torch.nn.Sequential(torch.nn.Linear(IN, OUT, bias=False)).to(dtype)
        model[0].weight.data.copy_(values(OUT, IN, 1))
        convert_to_float8_training(model, config=config)
        x = values(TOKENS, IN, 2).to(dtype).requires_grad_()
        y = model(x)
        y.backward(values(TOKENS, OUT, 3).to(dtype))
        flat = lambda t: [float(v) for v in t.detach().float().flatten()]
        rows.append({"recipe": recipe, "bfloat16": dtype == torch.bfloat16, "y": flat(y), "dx": flat(x.grad),
                     "dw": flat(model[0].weight.grad)})
inputs = {name: values(*shape).flatten().tolist()
          for name, shape in {"w": (OUT, IN, 1), "x": (TOKENS, IN, 2), "dy": (TOKENS, OUT, 3)}.items()}
print("{" + ",\n ".join(f'"{k}": {json.dumps(v)}' for k, v in inputs.items()) + ',\n "rows": [\n  '
      + ",\n  ".join(json.dumps(row) for row in rows) + "]}")
