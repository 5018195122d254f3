#!/usr/bin/env bash
# Installs whatever the build still needs: Debian packages (with sudo unless you are root), and the wheels of LibTorch and
# Apache Arrow, unpacked into $AUTOMODEL_DEPS_DIR (default ~/.cache/automodel). Does nothing if everything is present.
#
#   scripts/install_dependencies.sh [--dev] [--newest] [--arm] [--cuda | --gpu]
#     --dev    also install what tests and checks need
#     --newest also install the newest LibTorch that the program builds with (for LIBTORCH_ROOT and a long test)
#     --arm    also install what the preset aarch64 cross-compiles with, and qemu, which runs it
#     --cuda   also install NVIDIA's wheels if the system has no CUDA libraries: enough to compile for CUDA
#     --gpu    like --cuda, but also if a library is missing that LibTorch loads on a GPU
set -euo pipefail
cd "$(dirname "$0")/.."

groups=build
cuda=no; gpu=no; newest=no; arm=no
for argument in "$@"; do
  case "$argument" in
    --dev) groups="$groups|dev" ;;
    --arm) groups="$groups|arm"; arm=yes ;;
    --newest) newest=yes ;;
    --cuda) cuda=yes ;;
    --gpu) cuda=yes; gpu=yes ;;
    *) echo "usage: $0 [--dev] [--newest] [--arm] [--cuda | --gpu]" >&2; exit 2 ;;
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
install_wheels() {  # FILE [MACHINE]
  local machine platforms=() minor; machine="${2:-$(uname -m)}"
  # pip compares a wheel's glibc literally (NCCL's wheel is for 2.18): every version that a wheel may name, the first one
  # found is taken. Debian 12 has 2.36.
  for minor in $(seq 36 -1 17); do platforms+=(--platform "manylinux_2_${minor}_$machine"); done
  mkdir -p "$deps"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile --upgrade \
    --only-binary=:all: --python-version 3.11 --implementation cp --abi cp311 --abi none \
    "${platforms[@]}" --platform "manylinux2014_$machine" --platform any \
    --target "$target.part" -r "$1"
}

install_torch() {  # FILE [FOLDER MACHINE]
  local version folder; version="$(version_in "$1")"; folder="${2:-$deps}/libtorch-$version"
  [ ! -e "$folder/torch/lib/libtorch_cpu.so" ] || return 0
  echo "downloading LibTorch $version (0.55 GB, 1.2 GB unpacked) to ${2:-$deps}"
  rm -rf "$target.part"
  install_wheels "$1" "${3:-}"
  mkdir -p "$(dirname "$folder")"
  rm -rf "$folder"
  mv "$target.part" "$folder"
}
install_torch third_party/pip.txt
[ "$newest" = no ] || install_torch third_party/pip-newest.txt

# For Parquet and Arrow data. Optional: without it the program rejects such files with a hint.
install_arrow() {  # [FOLDER MACHINE]
  local version arrow; version="$(sed -n 's/^pyarrow==//p' third_party/pip-arrow.txt)"; arrow="${1:-$deps}/arrow-$version"
  ! ls "$arrow"/pyarrow/libparquet.so.* >/dev/null 2>&1 || return 0
  echo "downloading Apache Arrow $version (55 MB, 166 MB unpacked) to ${1:-$deps}"
  rm -rf "$target.part"
  if install_wheels third_party/pip-arrow.txt "${2:-}"; then
    rm -rf "$arrow"
    mv "$target.part" "$arrow"
  else
    rm -rf "$target.part"
    echo "Apache Arrow could not be downloaded; Parquet and Arrow files will not be readable" >&2
  fi
}
install_arrow

# The build's packages for 64-bit Arm, unpacked beside those of this machine, whose package manager learns nothing of it.
install_arm_packages() (  # in a shell of its own, whose end removes the lists: a trap on RETURN would also run behind the next `.`
  local sysroot="$deps/aarch64/sysroot" lists package link libraries
  [ ! -e "$sysroot/usr/lib/aarch64-linux-gnu/libmpi.so.40" ] || return 0
  echo "downloading packages for Arm (108 MB, 495 MB unpacked) to $deps/aarch64"
  lists="$(mktemp -d)"
  trap 'rm -rf "$lists"' EXIT
  mkdir -p "$lists/state/lists/partial" "$lists/cache/archives/partial" "$deps/aarch64"
  : > "$lists/status"
  local apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=
    -o Dir::State="$lists/state" -o Dir::State::status="$lists/status" -o Dir::Cache="$lists/cache" -o Debug::NoLocking=1)
  libraries="$(awk '$1 ~ /-dev$/ && $2 == "build" || $1 ~ /^(openmpi-bin|catch2)$/ {print $1}' third_party/apt.txt)"
  "${apt[@]}" update || return 1
  # shellcheck disable=SC2086  # a word for each package
  "${apt[@]}" install -y --no-install-recommends --download-only libc6-dev libstdc++-12-dev $libraries >/dev/null || return 1
  rm -rf "$sysroot.part"
  mkdir -p "$sysroot.part"
  for package in "$lists"/cache/archives/*.deb; do dpkg -x "$package" "$sysroot.part" || return 1; done
  (  # links into the system, to what has been unpacked
    cd "$sysroot.part"
    find . -lname '/*' | while read -r link; do
      [ ! -e ".$(readlink "$link")" ] || ln -sfn "$(realpath --relative-to="$(dirname "$link")" ".$(readlink "$link")")" "$link"
    done
  )
  rm -rf "$sysroot"
  mv "$sysroot.part" "$sysroot"
)
if [ "$arm" = yes ] && ! install_arm_packages; then
  echo "Debian's packages for Arm could not be downloaded; nothing is built for it" >&2
elif [ "$arm" = yes ]; then
  install_torch third_party/pip.txt "$deps/aarch64" aarch64
  install_arrow "$deps/aarch64" aarch64
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
