#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks Stator against real vLLM servers on this machine's CPU. Opt-in: needs a vLLM environment of about 6 GB.
# usage: scripts/test_real_engines.sh [PROMPTS]
# env:   VENV      environment with vllm (CPU build) whose bin/vllm is to be used
#        MODEL     folder of a small model that it can serve
#        STATOR    binary (default: build/release/bin/stator)
#        REPORT    file for the result (default: docs/verification/vllm.txt)
set -euo pipefail
cd "$(dirname "$0")/.."
: "${VENV:?set VENV to an environment with vLLM}" "${MODEL:?set MODEL to a model folder}"
stator=${STATOR:-build/release/bin/stator}
report=${REPORT:-docs/verification/vllm.txt}
prompts=${1:-200}
work=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

urls=()
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_CPU_KVCACHE_SPACE=1 PYTHONHASHSEED=0
export VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
for i in 0 1; do
  port=$(free_port) events=$(free_port) replay=$(free_port)
  "$VENV/bin/vllm" serve "$MODEL" --host 127.0.0.1 --port "$port" --served-model-name m --dtype bfloat16 --enforce-eager \
    --max-model-len 1024 --block-size 32 --enable-prefix-caching --enable-prompt-tokens-details --enable-auto-tool-choice --tool-call-parser hermes \
    --kv-events-config "{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"topic\":\"kv-events\",
      \"endpoint\":\"tcp://*:$events\",\"replay_endpoint\":\"tcp://*:$replay\"}" > "$work/vllm$i.log" 2>&1 &
  pids+=($!)
  urls+=("http://127.0.0.1:$port")
done
"$stator" serve "$MODEL" --engine vllm --url "${urls[0]},${urls[1]}" --host 127.0.0.1 --port 0 --announce \
  --reasoning-parser none --tool-call-parser none > "$work/ready" 2> "$work/stator.log" &
pids+=($!)
until grep -q '"ready":true' "$work/ready"; do
  kill -0 "${pids[2]}" || { cat "$work/stator.log"; exit 1; }
  sleep 1
done
url=$(python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())["url"])' "$work/ready")
build/test-venv/bin/python tests/real_engines/equality.py --stator "$url" --direct "${urls[0]}" --prompts "$prompts" --report "$report"
