#!/usr/bin/env bash
# Installs what is missing, builds the programs and the tests, runs them. By default the quick ones, in a quarter of an hour
# on two cores: everything of the planning core, and of the runtime the tests labelled quick. With --all every test, in an
# hour and a half: parity matrices, injected faults, other builds; -LE long leaves out ThreadSanitizer, images of containers and
# most of what runs over imitated GPUs. Further words go to ctest (for example -L core, -R mesh).
set -euo pipefail
cd "$(dirname "$0")/.."

all=
if [ "${1:-}" = --all ]; then
  all=yes
  shift
fi
scripts/install_dependencies.sh --dev ${all:+--cuda}
cmake --preset release -DBUILD_TESTING=ON >/dev/null
if [ -n "$all" ]; then
  cmake --build build/release
  chosen=()
else
  cmake --build build/release --target automodel automodel-worker quick_tests
  chosen=(-L 'core|quick' -LE slurm)
fi
export AUTOMODEL_CALIBRATION=  # tests neither read nor write what this machine's runs took
# Tests that inject faults have deadlines of seconds; on a machine that stalls one may miss them, so a failure is tried again
# once and both results are shown.
exec ctest --test-dir build/release --output-on-failure --repeat until-pass:2 -j "$(nproc)" "${chosen[@]}" "$@"
