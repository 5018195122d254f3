#!/usr/bin/env bash
# The house rules that a machine can check: layers and names, format, and with --tidy clang-tidy, with --headers that
# every header compiles alone. --format rewrites the files instead of checking them.
set -euo pipefail
cd "$(dirname "$0")/.."

format=check; tidy=no; headers=no
for argument in "$@"; do
  case "$argument" in
    --format) format=write ;;
    --tidy) tidy=yes ;;
    --headers) headers=yes ;;
    *) echo "usage: $0 [--format] [--tidy] [--headers]" >&2; exit 2 ;;
  esac
done
clang_format="$(command -v clang-format-14 || command -v clang-format)"
mapfile -t sources < <(git ls-files '*.h' '*.cpp' '*.cu')

python3 scripts/check_layers.py
if [ "$format" = write ]; then
  "$clang_format" -i "${sources[@]}"
else
  "$clang_format" --dry-run --Werror "${sources[@]}"
fi
if git grep -nE "$HOME/|/work/|/root/" -- . ':!scripts/check.sh' | grep -v '^test/golden/' ; then
  echo "paths of a machine in tracked files" >&2
  exit 1
fi
if [ "$headers" = yes ]; then
  cmake --preset release -DCMAKE_VERIFY_INTERFACE_HEADER_SETS=ON >/dev/null
  cmake --build build/release --target all_verify_interface_header_sets
fi
if [ "$tidy" = yes ]; then
  cmake --preset release >/dev/null
  clang_tidy="$(command -v clang-tidy-14 || command -v clang-tidy)"
  mapfile -t units < <(git ls-files 'app/*.cpp' 'lib/*.cpp')
  printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -n 4 "$clang_tidy" -p build/release --quiet
fi
echo "check: ok"
