# Finds what compiling for GPUs needs; sourced by other scripts. TARGET is the folder with LibTorch's wheels.

# Checks only for NCCL: a system that has its header has those of the toolkit too.
has_nccl() {  # TARGET
  local place
  for place in "${NCCL_HOME:-/usr}" "${CUDA_HOME:-/usr/local/cuda}" /usr/local "$1/nvidia/nccl"; do
    [ ! -e "$place/include/nccl.h" ] || return 0
  done
  return 1
}

has_nvcc() {  # TARGET
  command -v nvcc >/dev/null && return 0
  local place
  for place in "${CUDA_HOME:-/usr/local/cuda}" /usr/local/cuda "$1/nvidia/cu13"; do
    [ ! -x "$place/bin/nvcc" ] || return 0
  done
  return 1
}

# Number of GPUs that the driver reports.
count_gpus() { nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true; }
