#!/usr/bin/env python3
"""Runs the harness named by $PP_HARNESS (see compare_torch.py) with its steps under PyTorch's bfloat16 autocast.

Weights stay float32; autocast caches a bfloat16 copy of each for the microbatches of a step. Takes the harness's options.
"""
import importlib.util
import os

path = os.environ["PP_HARNESS"]
spec = importlib.util.spec_from_file_location("harness", path)
harness = importlib.util.module_from_spec(spec)
spec.loader.exec_module(harness)
harness.__file__ = os.path.abspath(__file__)  # the harness starts this file for each rank


def child(args):
    import torch

    step = torch.optim.AdamW.step

    def stepped(self, *rest, **named):
        out = step(self, *rest, **named)
        torch.clear_autocast_cache()  # the cached copies are of outdated weights
        return out

    torch.optim.AdamW.step = stepped
    with torch.autocast("cpu", dtype=torch.bfloat16):
        harness.child(args)


if __name__ == "__main__":
    arguments = harness.parse()
    child(arguments) if os.environ.get("PP_CHILD") else harness.parent(arguments)
