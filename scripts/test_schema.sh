#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Schemathesis against /openapi.json of `stator serve`: requests made from the schema, right and wrong, and every answer held against it.
# Fails for a server error, an undocumented answer, or a wrong request that was accepted. Opt-in: it takes the time it is given.
# usage: scripts/test_schema.sh [SECONDS [SCHEMATHESIS_ARGUMENTS…]]     (default: 600)
# env:   STATOR_BINARY   binary (default: build/release/bin/stator)
#        STATOR_ARGUMENTS  of `serve` (default: models/demo --engine sim --sim-speedup 0)
#        VENV            environment to use or make (default: build/schema-venv)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
venv=$(realpath -m "${VENV:-build/schema-venv}")
[ -x "$venv/bin/schemathesis" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install -q schemathesis==4.32.5; }
stator=${STATOR_BINARY:-build/release/bin/stator}
folder=$(mktemp -d)
read -ra arguments <<<"${STATOR_ARGUMENTS:-models/demo --engine sim --sim-speedup 0}"
"$stator" serve "${arguments[@]}" --port 0 --announce --log error --batches-folder "$folder/batches" >"$folder/announced" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$folder"' EXIT
port=
while [ -z "$port" ]; do
  kill -0 "$server" 2>/dev/null || { echo "stator did not start" >&2; exit 1; }
  port=$(python3 -c 'import json,sys; print(json.loads(sys.stdin.readline() or "{}").get("port", ""))' <"$folder/announced" || true)
  [ -n "$port" ] || sleep 0.2
done
# Whether a request that fits the schema is also accepted depends on more than a schema says: which model is served and what it can do,
# which file and response exist, what two fields mean together. Such refusals are 400 or 404, and documented.
# POST /busy_threshold is left out: it makes the server refuse what comes next, which is what it is for.
cd "$folder"  # where it keeps its own files
"$venv/bin/schemathesis" run "http://127.0.0.1:$port/openapi.json" --checks all --exclude-checks positive_data_acceptance \
  --exclude-operation-id post_busy_threshold \
  --max-time "${1:-600}" --continue-on-failure --warnings off "${@:2}"
