#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks Stator against real vLLM servers on this machine's CPU. Opt-in: needs a vLLM environment of about 6 GB.
# usage: scripts/test_real_engines.sh [PROMPTS]            two servers that do everything
#        scripts/test_real_engines.sh pd [PROMPTS]         a prefill and a decode server, killed at six points (needs nixl)
# env:   VENV      environment with vllm (CPU build) whose bin/vllm is to be used
#        MODEL     folder of a small model that it can serve
#        STATOR    binary (default: build/release/bin/stator)
#        REPORT    file for the result (default: docs/verification/vllm.txt, vllm-pd.txt)
set -euo pipefail
cd "$(dirname "$0")/.."
: "${VENV:?set VENV to an environment with vLLM}" "${MODEL:?set MODEL to a model folder}"
stator=${STATOR:-build/release/bin/stator}
pair=""
if [ "${1:-}" = pd ]; then
  pair=1
  shift
fi
report=${REPORT:-docs/verification/vllm${pair:+-pd}.txt}
prompts=${1:-${pair:+50}}
prompts=${prompts:-200}
work=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  if [ -e "$work/groups" ]; then
    while read -r group; do kill -- "-$group" 2>/dev/null || true; done < "$work/groups"
  fi
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

urls=()
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_CPU_KVCACHE_SPACE=1 PYTHONHASHSEED=0
export VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
common=(--host 127.0.0.1 --served-model-name m --dtype bfloat16 --enforce-eager --max-model-len 1024 --block-size 32
        --enable-prefix-caching --enable-prompt-tokens-details)
if [ -n "$pair" ]; then
  for role in prefill decode; do
    port=$(free_port) side=$(free_port)
    kind=$([ $role = prefill ] && echo kv_producer || echo kv_consumer)
    command=("$VENV/bin/vllm" serve "$MODEL" --port "$port" "${common[@]}" --kv-transfer-config "{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"$kind\"}")
    VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 VLLM_NIXL_SIDE_CHANNEL_PORT=$side setsid "${command[@]}" > "$work/$role.log" 2>&1 &
    echo $! >> "$work/groups"
    urls+=("http://127.0.0.1:$port")
    python3 - "$work" "$role" "$!" "$side" "${command[@]}" <<'PY'
import json, pathlib, sys
work, role, group, side, *command = sys.argv[1:]
file = pathlib.Path(work) / "starts.json"
starts = json.loads(file.read_text()) if file.exists() else {}
starts[role] = {"command": command, "group": int(group), "log": f"{work}/{role}.log", "groups": f"{work}/groups",
                "env": {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": side}}
file.write_text(json.dumps(starts))
PY
  done
  roles=(--role prefill,decode --frontend-migration-wait 300s --migration-limit 20)
else
for i in 0 1; do
  port=$(free_port) events=$(free_port) replay=$(free_port)
  "$VENV/bin/vllm" serve "$MODEL" --port "$port" "${common[@]}" --enable-auto-tool-choice --tool-call-parser hermes \
    --kv-events-config "{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"topic\":\"kv-events\",
      \"endpoint\":\"tcp://*:$events\",\"replay_endpoint\":\"tcp://*:$replay\"}" > "$work/vllm$i.log" 2>&1 &
  pids+=($!)
  urls+=("http://127.0.0.1:$port")
done
roles=()
fi
"$stator" serve "$MODEL" --engine vllm --url "${urls[0]},${urls[1]}" "${roles[@]}" --host 127.0.0.1 --port 0 --announce \
  --reasoning-parser none --tool-call-parser none > "$work/ready" 2> "$work/stator.log" &
stator_pid=$!
pids+=("$stator_pid")
until grep -q '"ready":true' "$work/ready"; do
  kill -0 "$stator_pid" || { cat "$work/stator.log"; exit 1; }
  sleep 1
done
url=$(python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())["url"])' "$work/ready")
if [ -n "$pair" ]; then
  python3 tests/real_engines/pd.py --stator "$url" --prefill "${urls[0]}" --decode "${urls[1]}" --prompts "$prompts" \
    --kill "$work/starts.json" --report "$report"
  exit
fi
build/test-venv/bin/python tests/real_engines/equality.py --stator "$url" --direct "${urls[0]}" --prompts "$prompts" --report "$report"
