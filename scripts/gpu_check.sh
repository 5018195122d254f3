#!/usr/bin/env bash
# Builds for CUDA and compares the GPU with the CPU: one rank, then ranks that share the GPU (their messages pass through
# host memory, dist_env.backend: mpi), then NCCL where there are two GPUs, then a short run of the quickstart.
#
#   scripts/gpu_check.sh [--keep] [--no-install]
#     --keep         leave the run's folder (its name is printed)
#     --no-install   take what this machine has, for one without a network
set -euo pipefail
cd "$(dirname "$0")/.."
keep=no; install=yes
for argument in "$@"; do
  case "$argument" in
    --keep) keep=yes ;;
    --no-install) install=no ;;
    *) echo "usage: $0 [--keep] [--no-install]" >&2; exit 2 ;;
  esac
done

say() { printf '\n== %s\n' "$*"; }

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L | grep -q GPU; then
  echo "no NVIDIA GPU here (nvidia-smi -L shows none)" >&2
  exit 4
fi
gpus=$(nvidia-smi -L | grep -c '^GPU')
nvidia-smi --query-gpu=index,name,memory.total,driver_version --format=csv

say "build (preset cuda)"
[ "$install" = no ] || scripts/install_dependencies.sh --dev --gpu
cmake --preset cuda >/dev/null
cmake --build build/cuda --target automodel automodel-worker device_parity comm_bench

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
run=(mpirun --oversubscribe --bind-to none)
test=build/cuda/test

say "one rank on the GPU against one on the CPU"
"$test/device_parity" --on cuda --backend loopback --ranks 1

for ranks in 2 4; do
  say "$ranks ranks on one GPU, through host memory, against one on the CPU"
  CUDA_VISIBLE_DEVICES=0 "${run[@]}" -np "$ranks" "$test/device_parity" --on cuda --deadline 120
done

say "communicators over host memory, tensors on the GPU"
"${run[@]}" -np 2 build/cuda/bench/comm_bench --backend mpi --device cuda

if [ "$gpus" -ge 2 ]; then
  say "communicators over NCCL on $gpus GPUs"
  "${run[@]}" -np "$gpus" "$test/device_parity" --on cuda --carry nccl --deadline 120
  "${run[@]}" -np "$gpus" build/cuda/bench/comm_bench --backend nccl --device cuda
else
  echo "one GPU: NCCL, which wants one for each rank, was not run"
fi

say "quickstart: a pipeline of two ranks, 20 steps"
folder=$(mktemp -d)
backend=mpi
[ "$gpus" -lt 2 ] || backend=nccl
build/cuda/bin/automodel train recipes/quickstart.yaml --nproc-per-node 2 --device cuda --dist_env.backend "$backend" \
  --step_scheduler.max_steps 20 --checkpoint.checkpoint_dir "$folder"
if [ "$keep" = yes ]; then echo "metrics are in $folder"; else rm -rf "$folder"; fi
say "gpu_check: ok"
