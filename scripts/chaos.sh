#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long forms of the fault tests, with progress: hours on a small machine.
# usage: scripts/chaos.sh [kills|cpu|etcd|chaos|sim|soak]...     (default: all but the soak, a day of faults)
# env:   STATOR_BINARY (build/release/bin/stator)  KILLS (10000)  KILL_SLOTS (12)  CPU_KILLS (200)  OUTAGE_S (600)  CHAOS (10)  SEEDS (20000)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
export STATOR_BINARY=${STATOR_BINARY:-$PWD/build/release/bin/stator} PYTHONDONTWRITEBYTECODE=1
python=build/test-venv/bin/python
[ -x "$python" ] || { echo "run scripts/setup.sh test first" >&2; exit 2; }
failed=0
run() {
  echo "== $*" >&2
  env "$@" || failed=1
}
for part in "${@:-kills cpu etcd chaos sim}"; do
  for what in $part; do
    case $what in
      kills) run STATOR_KILLS="${KILLS:-10000}" STATOR_KILL_SLOTS="${KILL_SLOTS:-12}" "$python" tests/chaos/kill_storm_test.py ;;
      cpu) run STATOR_CPU_KILLS="${CPU_KILLS:-200}" "$python" tests/e2e/migration_test.py CpuStorm ;;
      etcd) run STATOR_ETCD_OUTAGE_S="${OUTAGE_S:-600}" "$python" tests/e2e/etcd_test.py ;;
      chaos)
        run STATOR_CHAOS="${CHAOS:-10}" "$python" tests/chaos/links_test.py
        run STATOR_CHAOS="${CHAOS:-10}" "$python" tests/chaos/partition_test.py
        run STATOR_CHAOS="${CHAOS:-10}" "$python" tests/chaos/limits_test.py
        run STATOR_CHAOS="${CHAOS:-10}" "$python" tests/chaos/exhaustion_test.py
        run STATOR_CHAOS="${CHAOS:-10}" "$python" tests/chaos/memory_test.py
        run "$python" tests/chaos/full_disk_test.py ;;
      soak) run STATOR_SOAK_S="${SOAK_S:-86400}" "$python" tests/chaos/soak_test.py ;;
      sim) run "$STATOR_BINARY" sim models/demo --fault all --seed "$RANDOM" --seeds "${SEEDS:-20000}" ;;
      *) echo "unknown part '$what': kills, cpu, etcd, chaos, sim or soak" >&2; exit 2 ;;
    esac
  done
done
exit "$failed"
