#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What an unauthenticated peer can try, as tests: docs/verification/attacks.md has the list. Short as in CI, or at full size with what it costs others.
# usage: scripts/attack.sh [short|long] [NAME]...     (default: short, all), names such as forged_blocks or memory
# env:   STATOR_BINARY (build/release/bin/stator)  PAIRS (1000, of prompts that are probed)  SECONDS_EACH (10, of each attack that is measured)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
export STATOR_BINARY=${STATOR_BINARY:-$PWD/build/release/bin/stator} PYTHONDONTWRITEBYTECODE=1
python=build/test-venv/bin/python
[ -x "$python" ] || { echo "run scripts/setup.sh test first" >&2; exit 2; }
[ -x "$STATOR_BINARY" ] || { echo "$STATOR_BINARY does not exist: build it, or set STATOR_BINARY" >&2; exit 2; }
size=short
case ${1:-} in short | long) size=$1; shift ;; esac
all=(attacks forged_blocks hostile_http hostile_text http2 faults worker_flood cors access public_port inner_requests probing hub local_cluster
     engine_control router_services resume stalls receipts memory)
if [ "$size" = long ]; then
  export STATOR_CHAOS=10 STATOR_ATTACK_KEYS=60000
fi

failed=()
attack() {
  local name=$1 file=tests/e2e/$1_test.py began=$SECONDS log
  [ -f "$file" ] || file=tests/chaos/${name}_test.py
  [ -f "$file" ] || { echo "no attack is called '$name'" >&2; exit 2; }
  log=$(mktemp)
  if "$python" "$file" >"$log" 2>&1; then
    printf '%-18s held    %4d s\n' "$name" $((SECONDS - began))
  else
    printf '%-18s FAILED  %4d s\n' "$name" $((SECONDS - began))
    tail -n 40 "$log" >&2
    failed+=("$name")
  fi
  rm -f "$log"
}

for name in "${@:-${all[@]}}"; do
  attack "$name"
done
if [ "$size" = long ] && [ $# -eq 0 ]; then
  "$python" tests/e2e/probing_test.py --pairs "${PAIRS:-1000}"
  "$python" bench/attacks.py --seconds "${SECONDS_EACH:-10}"
fi
if [ ${#failed[@]} -gt 0 ]; then
  echo "did not hold: ${failed[*]}" >&2
  exit 1
fi
