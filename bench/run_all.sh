#!/usr/bin/env bash
# All bars of docs/benchmarks/first_light.md in one Markdown table.
# usage: bench/run_all.sh [--save] [flags for every script, e.g. --stator PATH]
#        --save  also writes bench/results/<date>.md
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
here=$(cd "$(dirname "$0")" && pwd)

save=
flags=()
for argument in "$@"; do
  if [ "$argument" = --save ]; then save=1; else flags+=("$argument"); fi
done

table=$(mktemp)
trap 'rm -f "$table"' EXIT
commit=$(git -C "$here" describe --always --dirty 2>/dev/null || echo unknown)
{
  echo "# Bars of first light"
  echo
  echo "- date: $(date -u '+%Y-%m-%d %H:%M') UTC"
  echo "- machine: $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), $(nproc) cores," \
    "$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), Linux $(uname -r)"
  echo "- load before the run: $(cut -d ' ' -f 1-3 /proc/loadavg)"
  echo "- commit: $commit"
  echo
  echo "| what | measured | bar | verdict | Dynamo | note |"
  echo "|---|---|---|---|---|---|"
} >"$table"

failed=0
for script in goldens startup frontend_cpu open_streams; do
  echo "== $script" >&2
  if ! python3 "$here/$script.py" --rows ${flags[@]+"${flags[@]}"} >>"$table"; then
    failed=1
    echo "| $script | not measured, or missed with --strict | | | | |" >>"$table"
  fi
done

cat "$table"
if [ -n "$save" ]; then
  mkdir -p "$here/results"
  cp "$table" "$here/results/$(date -u +%Y-%m-%d).md"
fi
exit "$failed"
