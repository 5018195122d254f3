#!/usr/bin/env bash
# The house rules that a machine can check: layers and names, format, and with --tidy clang-tidy, with --headers that
# every header compiles alone; --core looks at the planning core only, which needs no LibTorch. --format rewrites the
# files instead of checking them.
set -euo pipefail
cd "$(dirname "$0")/.."

format=check; tidy=no; headers=no; core=no
for argument in "$@"; do
  case "$argument" in
    --format) format=write ;;
    --tidy) tidy=yes ;;
    --headers) headers=yes ;;
    --core) core=yes ;;
    *) echo "usage: $0 [--format] [--tidy] [--headers] [--core]" >&2; exit 2 ;;
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
preset=release
[ "$core" = no ] || preset=core
if [ "$headers" = yes ]; then
  cmake --preset "$preset" -DCMAKE_VERIFY_INTERFACE_HEADER_SETS=ON >/dev/null
  cmake --build "build/$preset" --target all_verify_interface_header_sets
fi
if [ "$tidy" = yes ]; then
  cmake --preset "$preset" -B build/tidy -DCMAKE_UNITY_BUILD=OFF >/dev/null  # files one by one
  clang_tidy="$(command -v clang-tidy-14 || command -v clang-tidy)"
  # What this preset compiles; the flags are g++'s, of which clang does not know all.
  mapfile -t units < <(python3 -c 'import json,os,sys
for unit in json.load(open(sys.argv[1])):
  path = os.path.relpath(unit["file"])
  if path.startswith(("app/", "lib/")): print(path)' build/tidy/compile_commands.json | sort -u)
  printf '%s\n' "${units[@]}" | xargs -P "${AUTOMODEL_JOBS:-$(nproc)}" -n 1 \
    "$clang_tidy" -p build/tidy --quiet --extra-arg=-Wno-unknown-warning-option 2>/dev/null
fi
echo "check: ok"
