#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ends what deploy/local/up.sh started: the frontend first, then the workers, then the services under them.
# usage: deploy/local/down.sh [--dir DIR]     (default /tmp/stator-local)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
dir=/tmp/stator-local
case ${1:-} in
  "") ;;
  --dir) dir=${2:?--dir needs a value} ;;
  *) echo "usage: $0 [--dir DIR]" >&2; exit 2 ;;
esac
[ -s "$dir/pids" ] || { echo "down: nothing runs in $dir"; exit; }

ended() { ! kill -0 "$1" 2>/dev/null || [ "$(ps -o stat= -p "$1" | cut -c1)" = Z ]; }
for pid in $(tac "$dir/pids"); do
  kill "$pid" 2>/dev/null || continue
  for _ in $(seq 300); do
    ended "$pid" && break
    sleep 0.1
  done
  ended "$pid" || kill -KILL "$pid" 2>/dev/null || true
done
rm -f "$dir/pids"
echo "down: ended what ran in $dir"
