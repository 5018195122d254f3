#!/usr/bin/env python3
"""Plants faults in the capture of microbatches, one at a time, and checks that captured_test finds each.

  planted_captures.py SOURCE_DIR BUILD_DIR

How: planted_faults.py.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import planted_faults

CAPTURED = "lib/pipeline/captured_microbatches.cpp"
# (file, cases of captured_test, text, replacement)
FAULTS = [
    # Data that is not copied into the captured tensors.
    (CAPTURED, "*bitwise identical", "    data.ids.copy_(other.ids);\n", ""),
    (CAPTURED, "*bitwise identical", "    data.labels.copy_(other.labels);\n", ""),
    (CAPTURED, "*bitwise identical", "    data.positions.copy_(other.positions);\n", ""),
    (CAPTURED, "*bitwise identical", "    loss_scale.fill_(options.loss_scale.value);\n", ""),
    (CAPTURED, "*bitwise identical", "    seed.fill_(options.seed.value);\n", ""),
    # Host values that are frozen at capture.
    (CAPTURED, "*bitwise identical", "ops::Factor(shape->loss_scale)", "options.loss_scale"),
    (CAPTURED, "*chunked loss*", "ops::Factor(shape->seed)", "options.seed"),
    (CAPTURED, "*bitwise identical", "stage_.backward(number, shape->seed);", "stage_.backward(number, at::empty({}, shape->seed.options()).fill_(options.seed.value));"),
    ("lib/ops/cross_entropy.cpp", "*bitwise identical", "scale.value, scale.address(), gradient", "scale.value * (scale.device.defined() ? *scale.address() : 1), nullptr, gradient"),
    ("lib/ops/cross_entropy.cpp", "dense models*", "    if (scale.device.defined()) soft.mul_(scale.device);\n", ""),
    ("lib/ops/factor.cpp", "*bitwise identical", "return device.defined() ? known * device.to(x.scalar_type()) : known;", "return known;"),
    # The first microbatch of a step overwrites gradients, the others accumulate.
    ("lib/pipeline/training_runner.cpp", "*bitwise identical", "sharding()->settle();", "{}"),
    ("lib/parallel/data/unit_storage.cpp", "*bitwise identical", "  ops::NoGraph guard;\n  zero_untouched();\n}", "}"),
    ("lib/parallel/data/unit_storage.cpp", "*bitwise identical", "  ops::NoGraph guard;\n  zero_untouched();\n}",
     "  for (auto* weight : unit_.weights) weight->parameter.fresh = false;\n}"),
    # Shapes, and microbatches that cannot be captured.
    (CAPTURED, "*microbatch shape*",
     "data.ids.sizes() == other.ids.sizes() && data.length == other.length &&\n           data.reach() == other.reach()", "true"),
    (CAPTURED, "packed*", "if (depends_on_host(data)) return nullptr;", "if (data.draw) return nullptr;"),
    # All microbatches return the loss of the last one.
    (CAPTURED, "*bitwise identical", "return shape->loss.clone();", "return shape->loss;"),
]


def main():
    source, build = sys.argv[1:3]
    faults = [(file, "captured_test", *rest) for file, *rest in FAULTS]
    return planted_faults.run_all(source, faults, lambda target: planted_faults.Program(source, build, target, CAPTURED))


sys.exit(main())
