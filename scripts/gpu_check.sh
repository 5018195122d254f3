#!/usr/bin/env bash
# Compares results on the GPU with the CPU's: one rank, then ranks that share the GPU (with messages through host memory,
# dist_env.backend: mpi), then NCCL if there are two GPUs; then trains a small model briefly and prints a table of timings.
# In a checkout it builds the preset cuda; in an unpacked bundle (scripts/gpu_bundle.sh) it uses the programs there, with
# the PyTorch of the active Python environment or the one that AUTOMODEL_LIBTORCH names.
#
#   scripts/gpu_check.sh [--quick] [--keep] [--output FOLDER] [--no-install] [--only STEP,...] [--minutes N] [--device cpu]
#     --quick          a machine for a few minutes: the table of timings first (8 steps each, without PyTorch's), then the
#                      comparisons; at most 5 minutes, without installing and building
#     --keep           keep the output folder (its name is printed)
#     --output FOLDER  use this output folder: each step's output as it arrives, summary.txt, the table, metrics
#     --no-install     install nothing, for a machine without a network
#     --only           run only these steps: one-rank, two-ranks, four-ranks, communicators, nccl, train, kernels,
#                      table; parity stands for all but the last two
#     --minutes N      time limit for all steps together (60); steps that would exceed it are cut off or left out
#     --device cpu     test this script on a machine without a GPU: the same steps with tiny sizes
#
# If a step fails or takes too long, the next ones still run; the summary says which, and the exit code is 1.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
keep=no; install=yes; only=all; device=cuda; folder=; minutes=; quick=no
parity_steps="one-rank two-ranks four-ranks communicators nccl train"
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) quick=yes ;;
    --keep) keep=yes ;;
    --output) folder="${2:-}"; keep=yes; shift ;;
    --no-install) install=no ;;
    --only) only="${2:-}"; shift ;;
    --minutes) minutes="${2:-}"; shift ;;
    --device) device="${2:-}"; shift ;;
    *) only=none ;;
  esac
  shift || break
done
usage() { sed -n 's/^#   \(scripts.*\)/usage: \1/p' "$0" >&2; exit 2; }
case "$device" in cuda | cpu) ;; *) usage ;; esac
[ -n "$minutes" ] || { [ "$quick" = yes ] && minutes=5 || minutes=60; }
case "$minutes" in *[!0-9]*) usage ;; esac
chosen=
for word in ${only//,/ }; do
  case " all parity $parity_steps kernels table " in *" $word "*) ;; *) usage ;; esac
  case "$word" in
    all) chosen+=" $parity_steps kernels table" ;;
    parity) chosen+=" $parity_steps" ;;
    *) chosen+=" $word" ;;
  esac
done
[ -n "$chosen" ] || usage

say() { printf '\n== %s\n' "$*"; }

gpus=0
if [ "$device" = cuda ]; then
  gpus=$({ nvidia-smi -L 2>/dev/null || true; } | grep -c '^GPU' || true)
  if [ "$gpus" = 0 ]; then
    echo "no NVIDIA GPU here (nvidia-smi -L shows none)" >&2
    exit 4
  fi
  if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    gpus=$(echo "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | grep -c .)
  fi
  nvidia-smi --query-gpu=index,name,memory.total,driver_version --format=csv || true
fi

if [ -x "$here/libexec/automodel-worker" ]; then
  root="$here"
  parity="$root/libexec/device_parity"; bench="$root/libexec/comm_bench"; kernels="$root/libexec/kernel_bench"; torch_script="$root/torch_compiled.py"; table="$root/gpu_table.py"
  automodel="$root/bin/automodel"
  if [ -z "${AUTOMODEL_LIBTORCH:-}" ]; then
    AUTOMODEL_LIBTORCH="$(python3 -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")' || true)"
  fi
  if [ ! -e "$AUTOMODEL_LIBTORCH/lib/libtorch_cpu.so" ] && [ -e "$AUTOMODEL_LIBTORCH/torch/lib/libtorch_cpu.so" ]; then
    AUTOMODEL_LIBTORCH="$AUTOMODEL_LIBTORCH/torch"
  fi
  if [ ! -e "$AUTOMODEL_LIBTORCH/lib/libtorch_cpu.so" ]; then
    echo "no PyTorch here: activate the environment that has it, or name its folder with AUTOMODEL_LIBTORCH" >&2
    exit 4
  fi
  export AUTOMODEL_LIBTORCH AUTOMODEL_MPI="${AUTOMODEL_MPI:-$root/openmpi}"
  # Needed by the programs that are not started through bin/automodel, which sets these up itself.
  export PATH="$AUTOMODEL_MPI/bin:$PATH" LD_LIBRARY_PATH="$AUTOMODEL_LIBTORCH/lib:$AUTOMODEL_MPI/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
else
  [ -z "$folder" ] || { mkdir -p "$folder"; folder="$(cd "$folder" && pwd)"; }
  root="$(cd "$here/.." && pwd)"; cd "$root"
  say "build (preset cuda)"
  [ "$install" = no ] || scripts/install_dependencies.sh --dev --gpu
  build="${AUTOMODEL_GPU_BUILD:-build/cuda}"
  if [ -z "${AUTOMODEL_GPU_BUILD:-}" ]; then
    cmake --preset cuda >/dev/null
    cmake --build "$build" --target automodel automodel-worker automodel_cuda device_parity comm_bench kernel_bench
  fi
  parity="$build/test/device_parity"; bench="$build/bench/comm_bench"; kernels="$build/bin/kernel_bench"; torch_script=bench/torch_compiled.py; table=scripts/gpu_table.py
  automodel="$build/bin/automodel"
fi
recipes="$root/recipes"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
run=(mpirun --oversubscribe --bind-to none)
few=(env "OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}")  # limits threads, since ranks share the CPU
all=(env "OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}")
if [ -z "$folder" ]; then folder=$(mktemp -d); else mkdir -p "$folder"; fi
[ "$keep" = yes ] || trap 'rm -rf "$folder"' EXIT
[ "$keep" = no ] || echo "output is in $folder"
summary="$folder/summary.txt"
: > "$summary"
failed=0
SECONDS=0

# step NAME SECONDS TITLE COMMAND...: runs a step and copies its output to NAME.log; a failure is only recorded.
step() {
  local name="$1" limit="$2" title="$3" code=0 left began=$SECONDS
  shift 3
  case " $chosen " in *" ${name%%.*} "*) ;; *) return 0 ;; esac
  left=$((minutes * 60 - SECONDS))
  if [ "$left" -le 0 ]; then
    echo "left out     $name: the $minutes minutes are over" | tee -a "$summary"
    failed=1
    return 0
  fi
  [ "$limit" -le "$left" ] || limit=$left
  say "$title"
  timeout --signal=TERM --kill-after=20 "$limit" "$@" 2>&1 | tee "$folder/$name.log" || code=$?
  case "$code" in
    0) echo "ok           $name, $((SECONDS - began)) s" >> "$summary" ;;
    124 | 137) failed=1; echo "cut off      $name, after $limit s" | tee -a "$summary" ;;
    *) failed=1; echo "exit code $code  $name, $((SECONDS - began)) s" | tee -a "$summary" ;;
  esac
}

timeout 120 "$automodel" doctor 2>&1 | tee "$folder/doctor.log" || true

small=()
[ "$device" = cuda ] || small=(--tiny --steps 12)
# times SECONDS WORDS...: each line of the table appears when its run has ended.
times() {
  local limit="$1"
  shift
  step table "$limit" "times" "${all[@]}" python3 "$table" "$automodel" "$recipes/gpu" "$folder/times" --device "$device" "$@" "${small[@]}"
  [ ! -e "$folder/times/table.md" ] || cp "$folder/times/table.md" "$folder/table.md"
}
[ "$quick" = no ] || times 150 --steps 8 --limit 60

step one-rank 600 "one rank on the device against one on the CPU" "${all[@]}" "$parity" --on "$device" --backend loopback --ranks 1

for ranks in two:2 four:4; do
  step "${ranks%:*}-ranks" 600 "${ranks#*:} ranks on one device, through host memory, against one on the CPU" "${few[@]}" \
    env CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}" "${run[@]}" -np "${ranks#*:}" "$parity" --on "$device" --deadline 120
done

step communicators 300 "communicators over host memory, tensors on the device" "${few[@]}" "${run[@]}" -np 2 "$bench" --backend mpi --device "$device"

# NCCL 2.30 and later can be told to let ranks share a GPU: enough to compare results, not to time anything.
nccl=$gpus
[ "$gpus" != 1 ] || [ "${NCCL_MULTI_RANK_GPU_ENABLE:-0}" != 1 ] || nccl=2
if [ "$nccl" -ge 2 ]; then
  step nccl.parity 600 "$nccl ranks over NCCL on $gpus GPUs" "${few[@]}" "${run[@]}" -np "$nccl" "$parity" --on cuda --carry nccl --deadline 120
  [ "$gpus" -lt 2 ] || step nccl.times 300 "times of communicators over NCCL" "${few[@]}" "${run[@]}" -np "$nccl" "$bench" --backend nccl --device cuda
else
  echo "fewer than two GPUs: NCCL, which wants one for each rank, was not run" | tee -a "$summary"
fi

backend=mpi
[ "$nccl" -lt 2 ] || backend=nccl
step train 300 "two ranks train, 20 steps" "${few[@]}" \
  "$automodel" train "$recipes/gpu/llama_1b.yaml" --nproc-per-node 2 --device "$device" --dist_env.backend "$backend" \
  --step_scheduler.max_steps 20 --checkpoint.checkpoint_dir "$folder/two" --dataset.seq_length 64 --dataset.vocab_size 512 \
  --model.config '{model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 512, max_position_embeddings: 128}'

if [ "$device" = cuda ] && [ -x "$kernels" ]; then
  step kernels 120 "our kernels, bytes per second" "$kernels"
elif [ "$only" != all ]; then
  case " $chosen " in *" kernels "*) echo "left out     kernels: they need a GPU and the program kernel_bench" | tee -a "$summary" ;; esac
fi

[ "$quick" = yes ] || times 1500 --torch "$torch_script"

say "summary"
cat "$summary"
[ "$keep" = no ] || echo "metrics are in $folder"
[ "$failed" = 0 ] || exit 1
say "gpu_check: ok"
