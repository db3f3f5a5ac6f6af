#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every bar of docs/benchmarks/frontend.md, one after the other, each with its peer in the same run where it has one.
# usage: bench/front_door.sh [all|small|paced|tokens|prompt|protocols|embeddings|idle|http2 …]     (default: all)
# env:   STATOR_BINARY   the program (default: build/release/bin/stator)
#        BARE            a server without any work, started as BARE PORT 10: for `paced`; without it the ratio is not shown
#        LLAMA3          folder of a Llama 3 tokenizer: for `prompt`
# A quiet machine with two cores is assumed; about ten minutes. Needs build/test-venv and nghttp2-client (scripts/setup.sh test).
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
export STATOR_BINARY=${STATOR_BINARY:-$PWD/build/release/bin/stator}
python=build/test-venv/bin/python

small() { "$python" bench/frontend_process.py --only small; }
paced() { "$python" bench/frontend_process.py --only paced ${BARE:+--bare "$BARE"}; }
tokens() { "$python" bench/frontend_cpu.py --paced-streams 0; }
prompt() {
  if [ -n "${LLAMA3:-}" ]; then "$python" bench/text/prompt_path.py "$LLAMA3"; else echo "prompt: set LLAMA3"; fi
}
protocols() { "$python" bench/protocol_cpu.py --runs 3 --requests 3000 --long-requests 300 --streams 128; }
embeddings() { "$python" bench/embeddings.py; }
idle() { "$python" bench/open_streams.py; }
http2() {  # processor time of 20,000 requests in either version, in turn
  local folder server port path round a b c
  folder=$(mktemp -d)
  printf '{"model":"demo","max_tokens":1,"messages":[{"role":"user","content":"What is a KV cache?"}]}' >"$folder/chat"
  "$STATOR_BINARY" serve models/demo --engine sim --sim-speedup 0 --shards 1 --port 0 --announce --log error >"$folder/announced" &
  server=$!
  trap 'kill "$server"; wait "$server" 2>/dev/null; rm -rf "$folder"' RETURN
  until port=$(grep -o '"port":[0-9]*' "$folder/announced" | head -1 | cut -d: -f2) && [ -n "$port" ]; do sleep 0.1; done
  ticks() { awk '{print $14 + $15}' "/proc/$server/stat"; }
  for path in /v1/chat/completions /live; do
    local load=(h2load -n 20000 -c 8 "http://127.0.0.1:$port$path")
    [ "$path" = /live ] || load+=(-d "$folder/chat" -H 'content-type: application/json')
    for round in 1 2 3; do
      a=$(ticks); "${load[@]}" -m 1 >/dev/null
      b=$(ticks); "${load[@]}" --h1 >/dev/null
      c=$(ticks)
      awk -v p="$path" -v h2=$((b - a)) -v h1=$((c - b)) 'BEGIN {printf "%s: HTTP/2 %.1f µs, HTTP/1.1 %.1f µs a request: %.2f (bar 1.3)\n", p, h2 / 2, h1 / 2, h2 / h1}'
    done
  done
}

for part in ${*:-small paced tokens prompt protocols embeddings idle http2}; do
  [ "$part" = all ] && exec "$0"
  echo "== $part"
  "$part"
done
