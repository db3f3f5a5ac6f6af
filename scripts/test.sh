#!/usr/bin/env bash
# Everything that must hold, from a fresh machine: packages, build, all tests; then, with address and undefined-behaviour sanitizers,
# the unit tests once more and the inputs kept for the fuzz targets.
# usage: scripts/test.sh [CTEST_ARGUMENTS…]     e.g. scripts/test.sh -L unit
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }
start=$SECONDS

say "packages"
scripts/setup.sh test

say "building (release)"
cmake --preset release -DSTATOR_TESTS=ON >build/configure.log 2>&1 || { tail -n 30 build/configure.log >&2; exit 1; }
cmake --build --preset release

say "building the fuzz targets, and the unit tests with sanitizers"
cmake --preset fuzz >>build/configure.log 2>&1 || { tail -n 30 build/configure.log >&2; exit 1; }
cmake --build --preset fuzz --target fuzz_targets unit_tests

[ -d ../shared ] || echo "note: no ../shared beside the checkout; tests of other projects' data will say that they are skipped"

say "tests"
results=build/test-results
rm -rf "$results" && mkdir -p "$results"
expected=("$results/release.xml")
ctest --test-dir build/release -j "$(nproc)" --output-on-failure --output-junit "$PWD/$results/release.xml" "$@" >"$results/release.log" 2>&1 || true
grep -E '\*\*\*(Failed|Timeout|Skipped|Not Run|Exception)|tests passed|^Total' "$results/release.log" || true
again=$(python3 tools/test_results.py again "$results/release.xml")
if [ -n "$again" ]; then
  say "again, each alone: $again"
  ctest --test-dir build/release -j 1 -R "$again" --output-on-failure --output-junit "$PWD/$results/again.xml" >"$results/again.log" 2>&1 || true
fi
if [ $# -eq 0 ]; then
  expected+=("$results/fuzz.xml")
  ctest --test-dir build/fuzz -j "$(nproc)" -L "fuzz|unit" --output-on-failure --output-junit "$PWD/$results/fuzz.xml" 2>&1 | tee "$results/fuzz.log" | tail -n 40 || true
fi

say "$((SECONDS - start)) s"
python3 tools/test_results.py summary "${expected[@]}" --again "$results/again.xml"
