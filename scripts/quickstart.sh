#!/usr/bin/env bash
# From a fresh machine to a streamed answer: packages, build, start, one question, its routing receipt.
# usage: scripts/quickstart.sh [--keep]     --keep leaves the server running
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."

keep=
case ${1:-} in
  "") ;;
  --keep) keep=1 ;;
  *) echo "usage: $0 [--keep]" >&2; exit 2 ;;
esac

say() { printf '\n== %s\n' "$*"; }
fail() { printf '\nquickstart: %s\n' "$*" >&2; exit 1; }

say "1/4 packages"
scripts/setup.sh build

say "2/4 building the binary (a few minutes the first time)"
cmake --preset release -DSTATOR_TESTS=OFF >build/configure.log 2>&1 || { tail -n 20 build/configure.log >&2; fail "configure failed, see build/configure.log"; }
cmake --build --preset release --target stator || fail "the build failed; the first error is above"
stator=$PWD/build/release/bin/stator

say "3/4 starting: stator serve models/demo (two workers)"
log=build/quickstart.log
port=${STATOR_HTTP_PORT:-8000}
: >"$log.ready"
"$stator" serve models/demo --port "$port" --announce >"$log.ready" 2>"$log" &
server=$!
cleanup() { if kill -0 "$server" 2>/dev/null; then kill -INT "$server" && wait "$server" 2>/dev/null || true; fi; }
trap cleanup EXIT
for _ in $(seq 1 300); do
  grep -q '"ready":true' "$log.ready" && break
  kill -0 "$server" 2>/dev/null || { cat "$log" >&2; fail "the server did not start; the reason is above"; }
  sleep 0.1
done
grep -q '"ready":true' "$log.ready" || { cat "$log" >&2; fail "the server was not ready within 30 s, see $log"; }
url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' "$log.ready")
echo "listening on $url"

say "4/4 a question, its answer as it streams, and why this worker answered"
echo "> What is Stator?"
echo "What is Stator?" | "$stator" chat --url "$url" --temperature 0 || fail "the question was not answered, see $log"
echo
"$stator" explain last --url "$url" || fail "no routing receipt, see $log"

cat <<TEXT

Go on:
  $stator serve models/demo                 # the server; then, from another terminal:
  $stator chat                              # a conversation
  curl -N $url/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"model":"demo","messages":[{"role":"user","content":"What is a KV cache?"}],"stream":true}'
  $stator explain last                      # why a worker was chosen
  $stator doctor                            # check this machine
TEXT
if [ -n "$keep" ]; then
  trap - EXIT
  disown "$server"
  echo "The server keeps running as process $server (kill $server ends it); its log is $log."
fi
