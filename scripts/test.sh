#!/usr/bin/env bash
# Installs what is missing, builds the programs and the tests, and runs the tests. By default the quick ones, which take a
# quarter of an hour on two cores: all of the planning core's, and those of the runtime that are labelled quick. With --all
# every test, in some hours: parity matrices, injected faults, other builds; -LE long leaves out ThreadSanitizer, container
# images, most planted faults and what repeats more of the same, and takes about an hour. Further arguments go to ctest
# (for example -L core, -R mesh).
set -euo pipefail
cd "$(dirname "$0")/.."

all=
if [ "${1:-}" = --all ]; then
  all=yes
  shift
fi
scripts/install_dependencies.sh --dev ${all:+--cuda --arm}
cmake --preset release -DBUILD_TESTING=ON >/dev/null
if [ -n "$all" ]; then
  cmake --build build/release
  chosen=()
else
  cmake --build build/release --target automodel automodel-worker quick_tests
  chosen=(-L 'core|quick' -LE slurm)
fi
export AUTOMODEL_CALIBRATION=  # tests neither use nor update this machine's calibration
# Tests that inject faults have deadlines of a few seconds, which may be missed if the machine stalls; so a failed test is
# retried once, and both results are shown.
exec ctest --test-dir build/release --output-on-failure --repeat until-pass:2 -j "$(nproc)" "${chosen[@]}" "$@"
