#!/usr/bin/env bash
# Installs whatever the build still needs: Debian packages (with sudo unless you are root), and the wheels of LibTorch and
# Apache Arrow, unpacked into $AUTOMODEL_DEPS_DIR (default ~/.cache/automodel). Does nothing if everything is present.
#
#   scripts/install_dependencies.sh [--dev] [--newest] [--cuda | --gpu]
#     --dev    also install what tests and checks need
#     --newest also install the newest LibTorch that the program builds with (for LIBTORCH_ROOT and a long test)
#     --cuda   also install NVIDIA's wheels if the system has no CUDA libraries: enough to compile for CUDA
#     --gpu    like --cuda, but also if a library is missing that LibTorch loads on a GPU
set -euo pipefail
cd "$(dirname "$0")/.."

groups=build
cuda=no; gpu=no; newest=no
for argument in "$@"; do
  case "$argument" in
    --dev) groups="build|dev" ;;
    --newest) newest=yes ;;
    --cuda) cuda=yes ;;
    --gpu) cuda=yes; gpu=yes ;;
    *) echo "usage: $0 [--dev] [--newest] [--cuda | --gpu]" >&2; exit 2 ;;
  esac
done

missing=()
while read -r package group _; do
  case "$package" in ''|'#'*) continue ;; esac
  [[ "$group" =~ ^($groups)$ ]] || continue
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done < third_party/apt.txt

if [ ${#missing[@]} -gt 0 ]; then
  sudo=
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -v; then
      echo "These Debian packages are missing and need root to install:" >&2
      echo "  apt-get install ${missing[*]}" >&2
      echo "Ask an administrator, or run this script where sudo works; then start it again." >&2
      exit 4
    fi
    sudo=sudo
  fi
  echo "installing ${missing[*]}"
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

deps="${AUTOMODEL_DEPS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/automodel}"
version_in() { sed -n 's/^torch==//p' "$1"; }
target="$deps/libtorch-$(version_in third_party/pip.txt)"

# Wheels for CPython 3.11 regardless of the local python3: their Python parts are not used.
install_wheels() {  # FILE
  local machine platforms=() minor; machine="$(uname -m)"
  # pip compares a wheel's glibc literally (NCCL's wheel is for 2.18): every version that a wheel may name, the first one
  # found is taken. Debian 12 has 2.36.
  for minor in $(seq 36 -1 17); do platforms+=(--platform "manylinux_2_${minor}_$machine"); done
  mkdir -p "$deps"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile --upgrade \
    --only-binary=:all: --python-version 3.11 --implementation cp --abi cp311 --abi none \
    "${platforms[@]}" --platform "manylinux2014_$machine" --platform any \
    --target "$target.part" -r "$1"
}

install_torch() {  # FILE
  local version folder; version="$(version_in "$1")"; folder="$deps/libtorch-$version"
  [ ! -e "$folder/torch/lib/libtorch_cpu.so" ] || return 0
  echo "downloading LibTorch $version (0.55 GB, 1.2 GB unpacked) to $deps"
  rm -rf "$target.part"
  install_wheels "$1"
  rm -rf "$folder"
  mv "$target.part" "$folder"
}
install_torch third_party/pip.txt
[ "$newest" = no ] || install_torch third_party/pip-newest.txt

# For Parquet and Arrow data. Optional: without it the program rejects such files with a hint.
arrow_version="$(sed -n 's/^pyarrow==//p' third_party/pip-arrow.txt)"
arrow="$deps/arrow-$arrow_version"
if ! ls "$arrow"/pyarrow/libparquet.so.* >/dev/null 2>&1; then
  echo "downloading Apache Arrow $arrow_version (55 MB, 166 MB unpacked) to $deps"
  rm -rf "$target.part"
  if install_wheels third_party/pip-arrow.txt; then
    rm -rf "$arrow"
    mv "$target.part" "$arrow"
  else
    rm -rf "$target.part"
    echo "Apache Arrow could not be downloaded; Parquet and Arrow files will not be readable" >&2
  fi
fi

. scripts/cuda_tools.sh
# cuFile, cuSPARSELt and NVSHMEM are not part of the CUDA toolkit.
lacks_library() { ldd "$target/torch/lib/libtorch_cuda.so" 2>/dev/null | grep -q 'not found'; }

if { [ "$cuda" = yes ] && ! has_nccl "$target"; } || { [ "$gpu" = yes ] && lacks_library; }; then
  echo "downloading NVIDIA's CUDA wheels (about 2.5 GB) to $deps"
  rm -rf "$target.part"
  install_wheels third_party/pip-cuda.txt
  cp -r "$target.part/nvidia" "$target/"
  rm -rf "$target.part"
fi
if [ "$cuda" = yes ] && ! has_nvcc "$target"; then
  echo "downloading nvcc (100 MB) to $deps"
  rm -rf "$target.part"
  install_wheels third_party/pip-nvcc.txt
  cp -r "$target.part/nvidia" "$target/"
  rm -rf "$target.part"
fi
