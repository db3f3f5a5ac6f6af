#!/usr/bin/env bash
# A real control plane with simulated nodes, the operator under the rights it ships with, and what users do with it.
#   scripts/test_kubernetes.sh [BIN_DIR] [PATTERN]     BIN_DIR of scripts/build_kubernetes.sh [build/kubernetes]
# Ends with 77 and the reason where the control plane is not built. PATTERN: only test files whose name has it.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export STATOR_KUBERNETES=${1:-${STATOR_KUBERNETES:-$root/build/kubernetes}}
export STATOR_BINARY=${STATOR_BINARY:-$root/build/release/bin/stator} PYTHONDONTWRITEBYTECODE=1
python=$root/build/test-venv/bin/python
[ -x "$python" ] || python=python3
failed=0
for test in "$root"/tests/kubernetes/*"${2:-}"*_test.py; do
  echo "== $(basename "$test")"
  status=0
  "$python" "$test" || status=$?
  [ "$status" = 77 ] && exit 77
  [ "$status" = 0 ] || failed=1
done
exit $failed
