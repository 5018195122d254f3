#!/usr/bin/env bash
# From a fresh Debian machine to a trained model: installs what is missing, builds, trains recipes/quickstart.yaml with two
# ranks on this machine (about two minutes), and shows text that the model writes. Uses GPUs if there are any and nvcc and NCCL are installed.
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/cuda_tools.sh
wheels="${AUTOMODEL_DEPS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/automodel}/libtorch-$(sed -n 's/^torch==//p' third_party/pip.txt)"
gpus="$(count_gpus)"
preset=release; targets=(automodel automodel-worker); install=(); device=(); where=
if [ "$gpus" = 0 ]; then
  echo "quickstart: no NVIDIA GPU found; training on the CPU"
elif has_nvcc "$wheels" && has_nccl "$wheels"; then
  echo "quickstart: NVIDIA GPUs: $gpus; builds the CUDA half too (preset cuda) and trains on them"
  preset=cuda; targets+=(automodel_cuda); install=(--gpu); device=(--device auto); where=" --device auto"
else
  echo "quickstart: NVIDIA GPUs: $gpus, but nvcc or NCCL is missing; training on the CPU (scripts/install_dependencies.sh --gpu gets both)"
fi

scripts/install_dependencies.sh "${install[@]}"
cmake --preset "$preset" -DBUILD_TESTING=OFF >/dev/null
cmake --build "build/$preset" --target "${targets[@]}"
automodel="build/$preset/bin/automodel"

echo
echo "== the plan: automodel plan recipes/quickstart.yaml$where"
$automodel plan recipes/quickstart.yaml "${device[@]}"
echo
echo "== training on two ranks: automodel train recipes/quickstart.yaml --nproc-per-node 2$where"
OMP_NUM_THREADS=1 $automodel train recipes/quickstart.yaml --nproc-per-node 2 "${device[@]}" "$@"
