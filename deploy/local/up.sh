#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A small cluster on this machine: etcd, nats-server, two workers, a frontend. Ctrl-C ends it; with --detach, down.sh does.
set -euo pipefail

umask 077
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/deploy/local/run_folder.sh"

usage() {
  cat <<'TEXT'
usage: deploy/local/up.sh [options] [-- options for `stator frontend`]
  --model PATH          model folder or hub name (default models/demo)
  --engine ENGINE       cpu, sim, … as `stator worker --engine` (default cpu)
  --workers N           worker processes (default 2)
  --port PORT           of the frontend, 0 = any free one (default 8000)
  --etcd-port PORT      (default 2379, peers one above; 0 = any free ones)
  --nats-port PORT      (default 4222; 0 = any free one)
  --dir DIR             logs, data and process ids (default $XDG_RUNTIME_DIR/stator-local, else ~/.stator/stator-local)
  --stator BINARY       (default build/release/bin/stator)
  --detach              return when all is ready; deploy/local/down.sh ends it
TEXT
}

model=$root/models/demo engine=cpu workers=2 port=8000 etcd_port=2379 nats_port=4222
dir=$default_folder stator=$root/build/release/bin/stator detach=
frontend_options=()
fail() { printf 'up: %s\n' "$*" >&2; exit 1; }
say() { printf 'up: %s\n' "$*"; }

while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit ;;
    --detach) detach=1; shift; continue ;;
    --) shift; frontend_options=("$@"); break ;;
    --model | --engine | --workers | --port | --etcd-port | --nats-port | --dir | --stator)
      [ $# -ge 2 ] || fail "$1 needs a value"
      name=${1#--}; declare "${name//-/_}=$2"; shift 2 ;;
    *) usage >&2; fail "unknown option $1" ;;
  esac
done
[ -x "$stator" ] || fail "$stator is not there: build it (cmake --build --preset release --target stator) or name it with --stator"
nats_server=$(PATH=$PATH:/usr/sbin:/usr/local/sbin command -v nats-server) || fail "nats-server is missing: apt-get install nats-server"
command -v etcd >/dev/null || fail "etcd is missing: apt-get install etcd-server"
mkdir -p "$dir"
wrong=$(check_folder "$dir")
[ -z "$wrong" ] || fail "$wrong"
if [ -s "$dir/pids" ]; then
  while read -r pid start; do
    if still_runs "$pid" "$start"; then fail "a cluster runs already in $dir; end it with deploy/local/down.sh --dir $dir"; fi
  done <"$dir/pids"
fi
rm -rf "$dir/etcd" "$dir"/*.log "$dir"/*.ready "$dir/url" "$dir/pids" && : >"$dir/pids"

free_port() {  # one that was free a moment ago
  local try
  for _ in $(seq 50); do
    try=$((20000 + RANDOM % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$try") 2>/dev/null || { echo "$try"; return; }
  done
  fail "no free port found"
}
[ "$etcd_port" != 0 ] || etcd_port=$(free_port)
[ "$nats_port" != 0 ] || nats_port=$(free_port)

start() {  # NAME COMMAND…: logs go to NAME.log, what it announces to NAME.ready
  local name=$1
  shift
  "$@" >"$dir/$name.ready" 2>"$dir/$name.log" </dev/null &
  last=$!
  echo "$last $(started_at "$last")" >>"$dir/pids"
  declare -g "pid_${name//-/_}=$last"
}
wait_for() {  # NAME SECONDS CONDITION…
  local name=$1 seconds=$2 pid="pid_${1//-/_}"
  shift 2
  for _ in $(seq $((seconds * 10))); do
    "$@" >/dev/null 2>&1 && return
    kill -0 "${!pid}" 2>/dev/null || { tail -n 5 "$dir/$name.log" >&2; fail "$name ended; its log is $dir/$name.log"; }
    sleep 0.1
  done
  fail "$name was not ready within $seconds s; its log is $dir/$name.log"
}
ready() { grep -q '"ready":true' "$dir/$1.ready"; }
healthy() { curl -fs --max-time 2 "$1"; }
all_workers() { [ "$(curl -fs --max-time 2 "$url/health" | grep -o '"instance_id"' | wc -l)" -eq "$workers" ]; }

stopping=
stop_all() {
  [ -z "$stopping" ] || return 0
  stopping=1
  "$root/deploy/local/down.sh" --dir "$dir"
}
trap stop_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start etcd etcd --name n0 --data-dir "$dir/etcd" --log-level warn --logger zap \
  --listen-client-urls "http://127.0.0.1:$etcd_port" --advertise-client-urls "http://127.0.0.1:$etcd_port" \
  --listen-peer-urls "http://127.0.0.1:$((etcd_port + 1))" --initial-advertise-peer-urls "http://127.0.0.1:$((etcd_port + 1))" \
  --initial-cluster "n0=http://127.0.0.1:$((etcd_port + 1))"
start nats "$nats_server" -a 127.0.0.1 -p "$nats_port"
wait_for etcd 30 healthy "http://127.0.0.1:$etcd_port/health"
wait_for nats 30 grep -q "Server is ready" "$dir/nats.log"

cluster=(--discovery "etcd://127.0.0.1:$etcd_port" --events "nats://127.0.0.1:$nats_port" --announce)
for i in $(seq "$workers"); do
  start "worker-$i" "$stator" worker "$model" --engine "$engine" "${cluster[@]}"
done
# Nobody balances load here, so that ending it need not wait for a load balancer to look elsewhere.
start frontend "$stator" frontend --port "$port" --lame-duck 0s "${cluster[@]}" "${frontend_options[@]}"
wait_for frontend 30 ready frontend
url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' "$dir/frontend.ready")
for i in $(seq "$workers"); do wait_for "worker-$i" 600 ready "worker-$i"; done
wait_for frontend 60 all_workers
echo "$url" >"$dir/url"

name=$(curl -fs "$url/v1/models" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
say "ready: $url ($workers workers, model $name, etcd on $etcd_port, nats on $nats_port; logs in $dir)"
say "try: curl -N $url/v1/chat/completions -H 'Content-Type: application/json' -d '{\"model\":\"$name\",\"messages\":[{\"role\":\"user\",\"content\":\"What is a KV cache?\"}],\"stream\":true}'"
if [ -n "$detach" ]; then
  trap - EXIT
  say "deploy/local/down.sh --dir $dir ends it"
  exit
fi
say "Ctrl-C ends it"
wait -n || true
[ -n "$stopping" ] || fail "one of the processes ended; the logs are in $dir"
