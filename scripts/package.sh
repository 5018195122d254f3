#!/usr/bin/env bash
# Packages a build as a wheel (torch and Open MPI come from PyPI) and as an archive that runs from any folder.
#
#   scripts/package.sh [BUILD_FOLDER] [OUTPUT_FOLDER [COMPONENT]]      default: build/release, build/package
#
# With COMPONENT, the programs of that install component (gpu_check) are added, and the package remains a folder.
#
# With the preset cuda, the package includes the program's CUDA half, which is not needed on CPUs.
# Neither package needs root, a compiler or Python at run time. See docs/install.md for their use.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/package/archive.sh
case "${1:-}" in -*) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
build="${1:-build/release}"
if [ ! -e "$build/cmake_install.cmake" ] || [ ! -e "$build/bin/automodel" ]; then
  echo "scripts/package.sh: nothing is built in '$build'; first: cmake --preset release && ninja -C build/release" >&2
  exit 1
fi
mkdir -p "${2:-build/package}"
output="$(cd "${2:-build/package}" && pwd)"
component="${3:-}"

version="$(sed -n 's/^project(automodel VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
# The LibTorch that the build links, which need not be the pinned one.
torch="$(sed -n 's/^LIBTORCH_ROOT:[A-Z]*=//p' "$build/CMakeCache.txt")"
torch="$(sed 's/[^0-9.].*//' "$torch/build-version" 2>/dev/null || sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$torch/version.py")"
glibc="$(ldd --version | sed -n '1s/.* //p')"
stage="$output/automodel-$version"

rm -rf "$stage"
mkdir -p "$stage/bin" "$stage/libexec" "$stage/lib"
cmake --install "$build" --prefix "$stage/install" --strip >/dev/null
mv "$stage/install/bin/automodel" "$stage/install/bin/automodel-worker" "$stage/libexec/"
if [ -n "$component" ]; then
  cmake --install "$build" --prefix "$stage/install" --component "$component" --strip >/dev/null
  mv "$stage"/install/bin/* "$stage/libexec/"
  rm -rf "$stage/install"
fi
rm -rf "$stage/install"
sed "s/@TORCH_VERSION@/$torch/" scripts/package/automodel.sh > "$stage/bin/automodel"
chmod +x "$stage/bin/automodel"
cp -r recipes LICENSE NOTICE "$stage/"

# Programs search for libraries relative to their own location, and nowhere else.
rpath="$(sed -n 's/^set(AUTOMODEL_PACKAGE_RPATH "\(.*\)")/\1/p' CMakeLists.txt)"
for program in "$stage"/libexec/*; do
  cmake -D FILE="$program" -D RPATH="$rpath" -P scripts/package/set_rpath.cmake
done

# Adds a shared object that programs open at run time. $2: its RPATH.
take_object() {
  cp "$build/bin/$1" "$stage/libexec/$1"
  strip --strip-unneeded "$stage/libexec/$1"
  cmake -D FILE="$stage/libexec/$1" -D RPATH="$2" -P scripts/package/set_rpath.cmake
}

# mpirun listens on the loopback interface.
take_object automodel-loopback.so "$rpath"

# Tables (Parquet, Arrow) are read by a library that is loaded on demand; Arrow itself comes from PyPI.
requirements=()
if [ -e "$build/bin/automodel-table.so" ]; then
  take_object automodel-table.so '$ORIGIN/../../pyarrow'
  requirements+=("$(sed -n '/^pyarrow==/p' third_party/pip-arrow.txt)")
fi

# Pictures, with private copies of their decoders.
if [ -e "$build/bin/automodel-picture.so" ]; then
  take_object automodel-picture.so '$ORIGIN/../lib'
fi

# The CUDA half, if it was built (preset cuda): opened on machines with a GPU, using the CUDA libraries in torch's wheel.
if [ -e "$build/bin/automodel-cuda.so" ]; then
  take_object automodel-cuda.so "$rpath"
fi

# Private copies of the libraries that come neither with the system nor with torch or Open MPI.
copied='libfmt|libspdlog|libyaml-cpp|libpcre2-8|libjpeg|libpng16|libwebp'
for program in "$stage"/libexec/*; do
  readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | { grep -E "^($copied)\.so" || true; } | while read -r library; do
    place="$(ldd "$build"/bin/automodel-worker "$build"/bin/*.so | sed -n "s|^\s*$library => \(\S*\) .*|\1|p" | sort -u)"
    cp -L "$place" "$stage/lib/$library"
  done
done

# A library that is neither copied nor known would be missing on other machines.
known='linux-vdso|libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|ld-linux.*|libtorch.*|libc10.*|libmpi|libcuda.*|libcu.*|libnccl|libnv.*|libgomp|libarrow|libparquet'
for program in "$stage"/libexec/*; do
  unknown="$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE "^($copied|$known)\.so" || true)"
  if [ -n "$unknown" ]; then
    echo "$program needs libraries that nothing brings:" $unknown >&2
    exit 1
  fi
  # No RPATH may refer to folders of the build machine.
  if readelf -d "$program" | grep -E '(RPATH|RUNPATH)' | grep -vE '\[(\$ORIGIN[^:]*:?)+\]' >&2; then
    echo "$program looks for libraries outside of its own folder" >&2
    exit 1
  fi
done

# The oldest glibc with every symbol that is asked for.
needed="$(for each in "$stage"/libexec/* "$stage"/lib/*; do readelf -VW "$each"; done | grep -o 'GLIBC_[0-9][0-9.]*' | sed 's/GLIBC_//' | sort -V | tail -n 1)"
sed -i "s/@GLIBC@/$needed/" "$stage/bin/automodel"

[ -z "$component" ] || exit 0
python3 scripts/package/make_wheel.py "$stage" "$output" "$version" "$torch" "$glibc" "${requirements[@]}"
write_archive "$output" "automodel-$version" "$output" archive
