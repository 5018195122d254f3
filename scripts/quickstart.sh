#!/usr/bin/env bash
# From a fresh Debian machine to a trained model: installs what is missing, builds, trains recipes/quickstart.yaml on two
# ranks of this machine and shows the loss and some text that the model writes.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
cmake --preset release -DBUILD_TESTING=OFF >/dev/null
cmake --build build/release --target automodel automodel-worker
automodel=build/release/bin/automodel

echo
echo "== the plan: automodel plan recipes/quickstart.yaml"
$automodel plan recipes/quickstart.yaml
echo
echo "== training on two ranks: automodel train recipes/quickstart.yaml --nproc-per-node 2"
OMP_NUM_THREADS=1 $automodel train recipes/quickstart.yaml --nproc-per-node 2 "$@"

python3 - <<'P'
import json
rows = [json.loads(line) for line in open("runs/quickstart/training.jsonl")]
first, last = rows[0], rows[-1]
print(f"\nloss {first['loss']:.2f} at step {first['step']}, {last['loss']:.2f} at step {last['step']}")
P
