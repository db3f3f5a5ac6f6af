#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ends what deploy/local/up.sh started: the frontend first, then the workers, then the services under them.
# usage: deploy/local/down.sh [--dir DIR]     (default $XDG_RUNTIME_DIR/stator-local, else ~/.stator/stator-local)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
. "$(cd "$(dirname "$0")" && pwd)/run_folder.sh"
dir=$default_folder
case ${1:-} in
  "") ;;
  --dir) dir=${2:?--dir needs a value} ;;
  *) echo "usage: $0 [--dir DIR]" >&2; exit 2 ;;
esac
[ -s "$dir/pids" ] || { echo "down: nothing runs in $dir"; exit; }
wrong=$(check_folder "$dir")
[ -z "$wrong" ] || { echo "down: $wrong" >&2; exit 1; }

tac "$dir/pids" | while read -r pid start; do
  still_runs "$pid" "$start" || continue
  kill "$pid" 2>/dev/null || continue
  for _ in $(seq 300); do
    still_runs "$pid" "$start" || break
    sleep 0.1
  done
  if still_runs "$pid" "$start"; then kill -KILL "$pid" 2>/dev/null || true; fi
done
rm -f "$dir/pids"
echo "down: ended what ran in $dir"
