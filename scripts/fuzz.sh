#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Seeks inputs that break a reader: each fuzz target explores from its committed corpus with a seed of its own. A finding is written to
# build/fuzz-findings; mend it, then commit its input to the target's corpus, which scripts/test.sh replays.
# usage: scripts/fuzz.sh [SECONDS [PATTERN]]     seconds for each target (default: 60), targets whose name has PATTERN (default: all)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
seconds=${1:-60} pattern=${2:-}

mkdir -p build/fuzz-findings
cmake --preset fuzz >build/configure.log 2>&1 || { tail -n 30 build/configure.log >&2; exit 1; }
cmake --build --preset fuzz --target fuzz_targets

# Prints the name, the program and the corpus of each target.
targets() {
  ctest --test-dir build/fuzz -L fuzz --show-only=json-v1 | python3 -c '
import json, sys
for test in json.load(sys.stdin)["tests"]:
    print(test["name"], test["command"][0], test["command"][-1], sep="\t")'
}

explore() {
  local name=$1 program=$2 corpus=$3 scratch findings
  findings=$PWD/build/fuzz-findings/$name
  scratch=$(mktemp -d)
  if "$program" -max_total_time="$seconds" -max_len=65536 -timeout=60 -rss_limit_mb=4096 -artifact_prefix="$findings-" \
    "$scratch" "$corpus" >"$findings.log" 2>&1; then
    printf '%-44s %s\n' "$name" "$(grep -o 'Done .*' "$findings.log")"
  else
    printf '%-44s FOUND: %s\n' "$name" "$findings.log"
  fi
  rm -rf "$scratch"
}
export -f explore
export seconds

targets | grep -- "$pattern" | xargs -P "$(nproc)" -n 3 bash -c 'explore "$@"' - | tee build/fuzz-findings/summary.txt
! grep -q 'FOUND' build/fuzz-findings/summary.txt
