#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The object tier against a real S3 server on loopback: versitygw over a folder, built from its Go module if it is not installed.
# Blocks are written, found after a restart, and read back bit for bit; then `stator transfer-bench` measures 1 MiB objects.
# usage: scripts/test_s3.sh [--bench]      (--bench: only the figures)
# env:   STATOR_BINARY (build/release/bin/stator)  VERSITYGW (a built binary)  GO (go)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
export STATOR_BINARY=${STATOR_BINARY:-$PWD/build/release/bin/stator} PYTHONDONTWRITEBYTECODE=1
gateway=${VERSITYGW:-$(command -v versitygw || true)}
if [ -z "$gateway" ]; then
  go=${GO:-$(command -v go || echo /usr/local/go/bin/go)}
  export GOBIN=$PWD/build/tools
  [ -x "$GOBIN/versitygw" ] || "$go" install github.com/versity/versitygw/cmd/versitygw@latest
  gateway=$GOBIN/versitygw
fi
folder=$(mktemp -d)
port=$(build/test-venv/bin/python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir -p "$folder/data/stator-kv"
export AWS_ACCESS_KEY_ID=stator AWS_SECRET_ACCESS_KEY=stator-secret AWS_REGION=us-east-1
ROOT_ACCESS_KEY=$AWS_ACCESS_KEY_ID ROOT_SECRET_KEY=$AWS_SECRET_ACCESS_KEY \
  "$gateway" --port "127.0.0.1:$port" --quiet posix "$folder/data" > "$folder/log" 2>&1 &
server=$!
trap 'kill $server 2> /dev/null; wait $server 2> /dev/null; rm -rf "$folder"' EXIT
for _ in $(seq 100); do
  if (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; then break; fi
  sleep 0.1
done
kill -0 $server 2> /dev/null || { cat "$folder/log" >&2; exit 1; }
endpoint=http://127.0.0.1:$port
[ "${1:-}" = --bench ] || STATOR_S3_ENDPOINT=$endpoint build/test-venv/bin/python tests/real_engines/real_s3_test.py -v
for op in write read; do
  "$STATOR_BINARY" transfer-bench --backend obj --op $op --min-size 1MiB --max-size 1MiB --batch 64 --threads 8 --warm-up 2 --iterations 16 \
    --params "endpoint_override=$endpoint,bucket=stator-kv,access_key=$AWS_ACCESS_KEY_ID,secret_key=$AWS_SECRET_ACCESS_KEY"
done
