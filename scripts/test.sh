#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every test. Extra words go to ctest (for example -L core, -R mesh).
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh --dev --cuda
cmake --preset release >/dev/null
cmake --build build/release
exec ctest --test-dir build/release --output-on-failure -j "$(nproc)" "$@"
