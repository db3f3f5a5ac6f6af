#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# h2spec, the conformance suite of HTTP/2, against `stator serve`: fails unless all of its tests pass. Opt-in: it is built with Go.
# usage: scripts/test_http2.sh [H2SPEC_ARGUMENTS…]
# env:   STATOR_BINARY   binary (default: build/release/bin/stator)
#        H2SPEC          the suite's program; else it is built by `go install` into build/h2spec
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
h2spec=${H2SPEC:-build/h2spec/h2spec}
if [ ! -x "$h2spec" ]; then
  command -v go >/dev/null || { echo "test_http2: install Go, or name h2spec in H2SPEC" >&2; exit 1; }
  GOBIN=$(realpath -m build/h2spec) go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible
fi
folder=$(mktemp -d)
"${STATOR_BINARY:-build/release/bin/stator}" serve models/demo --engine sim --host 127.0.0.1 --port 0 --announce --log error >"$folder/announced" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$folder"' EXIT
port=
while [ -z "$port" ]; do
  kill -0 "$server" 2>/dev/null || { echo "stator did not start" >&2; exit 1; }
  port=$(grep -o '"port":[0-9]*' "$folder/announced" | head -1 | cut -d: -f2 || true)
  [ -n "$port" ] || sleep 0.1
done
"$h2spec" -h 127.0.0.1 -p "$port" -P /live "$@" | tail -n 3
