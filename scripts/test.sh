#!/usr/bin/env bash
# Everything that must hold, from a fresh machine: packages, build, all tests, a short fuzz run.
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

say "building the fuzz targets"
cmake --preset fuzz >>build/configure.log 2>&1 || { tail -n 30 build/configure.log >&2; exit 1; }
cmake --build --preset fuzz --target fuzz_targets

[ -d ../shared ] || echo "note: no ../shared beside the checkout; tests of other projects' data will say that they are skipped"

say "tests"
results=build/test-results
rm -rf "$results" && mkdir -p "$results"
failed=0
ctest --test-dir build/release -j "$(nproc)" --output-on-failure --output-junit "$PWD/$results/release.xml" "$@" >"$results/release.log" 2>&1 || failed=1
grep -E '\*\*\*(Failed|Timeout|Skipped|Not Run|Exception)|tests passed|^The following|^Total' "$results/release.log" || true
if [ "$failed" = 1 ]; then sed -n '/Errors while running/,$p' "$results/release.log"; grep -B2 -A40 -E '^\[  FAILED  \]|Error|error' "$results/release.log" | head -n 200 || true; fi
if [ $# -eq 0 ]; then
  ctest --test-dir build/fuzz -j "$(nproc)" -L fuzz --output-on-failure --output-junit "$PWD/$results/fuzz.xml" | tee "$results/fuzz.log" | tail -n 40 || failed=1
fi

total=$(grep -hc '<testcase ' "$results"/*.xml | awk '{n += $1} END {print n + 0}')
failures=$(grep -h '<testcase ' "$results"/*.xml | grep -c 'status="fail"' || true)
skipped=$(grep -h '<testcase ' "$results"/*.xml | grep -cE 'status="(notrun|disabled)"' || true)
printf '\n%s s\n' "$((SECONDS - start))"
echo "$((total - failures - skipped)) passed, $failures failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$failures" = 0 ]
