#!/usr/bin/env bash
# Automatic checks of the house rules: layering, names and formatting. --tidy adds clang-tidy (a quarter of an hour on two
# cores), --analyze clang's static analyzer (half a minute per file; --analyze=lib/plan checks a single folder), --headers
# that every header compiles on its own. --core checks only the planning core, which needs no LibTorch. --format reformats
# files instead of checking them.
set -euo pipefail
cd "$(dirname "$0")/.."

format=check; tidy=no; analyze=no; headers=no; core=no
for argument in "$@"; do
  case "$argument" in
    --format) format=write ;;
    --tidy) tidy=yes ;;
    --analyze) analyze=. ;;
    --analyze=*) analyze="${argument#*=}" ;;
    --headers) headers=yes ;;
    --core) core=yes ;;
    *) echo "usage: $0 [--format] [--tidy] [--analyze[=FOLDER]] [--headers] [--core]" >&2; exit 2 ;;
  esac
done
clang_format="$(command -v clang-format-14 || command -v clang-format)"
mapfile -t sources < <(git ls-files '*.h' '*.cpp' '*.cu')

python3 scripts/check_layers.py
python3 scripts/mutate.py --check
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
# run_tidy BUILD_FOLDER CHECKS FOLDER: checks everything in FOLDER that the build compiles. The build's flags are for g++:
# clang does not know all of its warnings, and its -Wshadow is stricter.
run_tidy() {
  local clang_tidy
  clang_tidy="$(command -v clang-tidy-14 || command -v clang-tidy || true)"
  python3 -c 'import json, os, sys
build, folder = sys.argv[1:]
for unit in json.load(open(build + "/compile_commands.json")):
  path = os.path.relpath(unit["file"])
  source = os.path.relpath(path, build) if path.startswith(build) else path
  if source.startswith(("app/", "lib/")) and (folder == "." or source.startswith(folder.rstrip("/") + "/")): print(path)' "$1" "$3" |
    sort -u | xargs -P "${AUTOMODEL_JOBS:-$(nproc)}" -n 1 "$clang_tidy" -p "$1" --quiet --checks="$2" \
      --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-shadow 2>/dev/null
}
if [ "$tidy" = yes ]; then
  # Most of the time is spent on headers, which the files of a unity build share.
  cmake --preset "$preset" -B build/tidy -DBUILD_TESTING=OFF >/dev/null
  run_tidy build/tidy "-bugprone-suspicious-include" .
fi
if [ "$analyze" != no ]; then
  # The analyzer checks a file itself, not what it includes.
  cmake --preset "$preset" -B build/analyze -DBUILD_TESTING=OFF -DCMAKE_UNITY_BUILD=OFF >/dev/null
  run_tidy build/analyze "-*,clang-analyzer-*" "$analyze"
fi
echo "check: ok"
