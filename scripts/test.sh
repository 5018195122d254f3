#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every test. Extra words go to ctest (for example -L core, -R mesh).
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh --dev --cuda
cmake --preset release -DBUILD_TESTING=ON >/dev/null
cmake --build build/release
export AUTOMODEL_CALIBRATION=  # tests neither read nor write what this machine's runs took
# Tests that inject faults have deadlines of seconds; on a machine that stalls one may miss them, so a failure is tried again
# once and both results are shown.
exec ctest --test-dir build/release --output-on-failure --repeat until-pass:2 -j "$(nproc)" "$@"
