#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The object tier against Azure's emulator of its Blob service (Azurite, from npm) on loopback: blocks are written, found after a restart, and
# read back bit for bit; wrong keys and a missing container switch the tier off.
# usage: scripts/test_azure.sh
# env:   STATOR_BINARY (build/release/bin/stator)  AZURITE (its azurite-blob; installed into build/tools/azurite otherwise)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
export STATOR_BINARY=${STATOR_BINARY:-$PWD/build/release/bin/stator} PYTHONDONTWRITEBYTECODE=1
server=${AZURITE:-$PWD/build/tools/azurite/node_modules/.bin/azurite-blob}
[ -x "$server" ] || npm install --silent --no-audit --no-fund --prefix build/tools/azurite azurite@3.37.0
folder=$(mktemp -d)
port=$(build/test-venv/bin/python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export AZURE_STORAGE_ACCOUNT=devstoreaccount1  # Azurite's own, in its documentation
export AZURE_STORAGE_KEY=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==
export STATOR_AZURE_ENDPOINT=http://127.0.0.1:$port/$AZURE_STORAGE_ACCOUNT
"$server" --blobHost 127.0.0.1 --blobPort "$port" --location "$folder" --silent --skipApiVersionCheck > "$folder/log" 2>&1 &
pid=$!
trap 'kill $pid 2> /dev/null; wait $pid 2> /dev/null; rm -rf "$folder"' EXIT
for _ in $(seq 300); do
  if (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; then break; fi
  sleep 0.1
done
kill -0 $pid 2> /dev/null || { cat "$folder/log" >&2; exit 1; }
build/test-venv/bin/python tests/real_engines/real_azure_test.py -v
