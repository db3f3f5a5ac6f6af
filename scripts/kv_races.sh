#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All races of docs/benchmarks/storage.md, one behind the other: copies, transfers and disk against memcpy, UCX and fio; the same buffers against
# NIXL; time to the first token from each tier; CPU per token with tiers that have nothing to do; hand-offs; a real S3 server; blocks and restarts.
# usage: scripts/kv_races.sh [ROUNDS]      (5; a quiet machine, about 20 minutes)
# env:   STATOR_BINARY (build/release/bin/stator)  NIXL_VENV (an environment with nixl and numpy; else left out)
#        VERSITYGW, GO (as scripts/test_s3.sh; without either S3 is left out)
# What it needs and does not find is left out, and said.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
rounds=${1:-5}
export STATOR_BINARY=${STATOR_BINARY:-$PWD/build/release/bin/stator} PYTHONDONTWRITEBYTECODE=1
python=build/test-venv/bin/python
part() { printf '\n== %s\n' "$1"; }

part "copies, transfers, disk"
$python bench/storage/bars.py "$rounds"
part "the same buffers against NIXL"
library=${STATOR_BINARY%/bin/*}/lib/libstator_transfer.so
if [ -n "${NIXL_VENV:-}" ] && [ -e "$library" ]; then
  "$NIXL_VENV/bin/python" bench/storage/nixl_race.py "$library" "$rounds"
else
  echo "left out: NIXL_VENV is not set, or $library is not built (target stator_transfer_c)"
fi
part "time to the first token, by tier"
$python bench/storage/ttft.py
part "CPU per token, tiers idle"
$python bench/storage/idle.py
part "hand-offs"
$python bench/storage/handoff.py "$((rounds * 3))" --kv-cache-bytes 40MiB
part "S3"
if [ -n "${VERSITYGW:-}" ] || command -v versitygw go > /dev/null || [ -x /usr/local/go/bin/go ]; then
  scripts/test_s3.sh --bench
else
  echo "left out: neither versitygw nor Go is here"
fi
part "block operations, restarts"
for bench in stator_kv_bench stator_storage_bench; do
  program=$(find build -name "$bench" -type f -perm -u+x | head -1)
  if [ -n "$program" ]; then "$program"; else echo "left out: $bench is not built (preset bench)"; fi
done
