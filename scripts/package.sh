#!/usr/bin/env bash
# Makes every package of Stator in build/packages and tries each out: an installed tree, a .deb, a Python wheel, a container image.
# usage: scripts/package.sh [--binary FILE] [what …]     what: install deb wheel image (default: all)
#        --binary: a built program, instead of build/release/bin/stator
# Needs no daemon, no network and no root (as root the image is tried out in a chroot); ctest runs it as the test `packages`.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in -h | --help) sed -n '1d;/^set /q;s/^# //p' "$0"; exit ;; esac

build=build/release
out=$PWD/build/packages
if [ "${1:-}" = --binary ]; then build=$(dirname "$(dirname "$2")"); shift 2; fi
wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=(install deb wheel image)
say() { printf 'package: %s\n' "$*"; }
fail() { printf 'package: %s\n' "$*" >&2; exit 1; }
[ -x "$build/bin/stator" ] || fail "there is no $build/bin/stator: cmake --build --preset release --target stator"
case " ${wanted[*]} " in *" wheel "*)
  [ -e "$build/lib/libstator_kv.so.1" ] || fail "the wheel needs $build/lib/libstator_kv.so.1: cmake --build --preset release --target stator_kv_c" ;;
esac
case " ${wanted[*]} " in *" deb "*)
  command -v dpkg-shlibdeps >/dev/null || fail "a .deb needs dpkg-shlibdeps: scripts/setup.sh test installs it (package dpkg-dev)" ;;
esac
mkdir -p "$out"
version=$("$build/bin/stator" --version | awk '{print $2}')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One answer from a server started by the command in "$@": it must announce itself.
try_server() {
  local log=$work/server.log line="" pid
  "$@" >"$log" 2>"$work/server.err" &
  pid=$!
  for _ in $(seq 600); do
    line=$(head -n 1 "$log" 2>/dev/null || true)
    [ -z "$line" ] || break
    kill -0 $pid 2>/dev/null || break
    sleep 0.1
  done
  [ -n "$line" ] || { cat "$work/server.err" >&2; fail "the server did not start"; }
  local url
  url=$(sed 's/.*"url":"\([^"]*\)".*/\1/' <<<"$line")
  curl -sSf "$url/v1/chat/completions" -H 'content-type: application/json' \
    -d '{"model":"demo","messages":[{"role":"user","content":"What is a KV cache?"}],"max_tokens":4}' >"$work/answer"
  kill $pid
  wait $pid || true
  grep -q '"object":"chat.completion"' "$work/answer" || fail "no answer: $(cat "$work/answer")"
}

make_install() {
  rm -rf "$work/root"
  cmake --install "$build" --prefix "$work/root" --strip >/dev/null
  for file in bin/stator share/man/man1/stator.1 share/bash-completion/completions/stator lib/systemd/system/stator.service \
    share/stator/models/demo/config.json share/stator/grafana/overview.json; do
    [ -s "$work/root/$file" ] || fail "cmake --install left out $file"
  done
  bash -c ". $work/root/share/bash-completion/completions/stator && COMP_WORDS=(stator ser) COMP_CWORD=1 && _stator && \
    [[ \" \${COMPREPLY[*]} \" == *' serve '* ]]" || fail "the completion for bash does not know serve"
  try_server "$work/root/bin/stator" serve "$work/root/share/stator/models/demo" --host 127.0.0.1 --port 0 --announce
  say "install: $(du -sh "$work/root" | cut -f1), answers"
}

make_deb() {
  (cd "$build" && cpack -G DEB -B "$work/cpack" >"$work/cpack.log" 2>&1) || { cat "$work/cpack.log" >&2; fail "cpack failed"; }
  cp "$work"/cpack/*.deb "$out/"
  local deb
  deb=$(ls -t "$out"/*.deb | head -n 1)
  dpkg-deb --info "$deb" | grep -q 'Depends: .*libc6.*libcurl4\|Depends: .*libcurl4.*libc6' || fail "$deb names no libraries it needs"
  dpkg-deb --extract "$deb" "$work/deb"
  try_server "$work/deb/usr/bin/stator" serve "$work/deb/usr/share/stator/models/demo" --host 127.0.0.1 --port 0 --announce
  say "deb: $deb, $(du -h "$deb" | cut -f1), answers"
}

make_wheel() {
  python3 bindings/python/make_wheel.py --binary "$build/bin/stator" --version "$version" --out "$out"
  local wheel
  wheel=$(ls -t "$out"/*.whl | head -n 1)
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q --disable-pip-version-check --no-index "$wheel"
  (cd "$work" && "$work/venv/bin/python" -c "
import stator
with stator.serve() as server:
    assert server.models() == ['demo'], server.models()
    assert server.chat('What is a KV cache?', max_tokens=4)
    assert ''.join(server.stream('What is a KV cache?', max_tokens=4))
") || fail "the wheel does not serve"
  (cd "$work" && "$work/venv/bin/python" -c "
import stator_kv
with stator_kv.Cache(model='m', block_tokens=4, block_bytes=64, host_bytes=4096) as cache:
    assert len(cache.keys(range(16))) == 4
") || fail "the wheel has no stator_kv (cmake --build --preset release --target stator_kv_c)"
  "$work/venv/bin/stator" --version | grep -q "$version" || fail "the wheel has no command stator"
  say "wheel: $wheel, $(du -h "$wheel" | cut -f1), serves"
}

make_image() {
  python3 deploy/image/make_image.py --binary "$build/bin/stator" --version "$version" --out "$out/stator-image"
  python3 deploy/image/make_image.py --check "$out/stator-image" --unpack "$work/image"
  if [ "$(id -u)" -eq 0 ]; then
    try_server chroot --userspec=65532:65532 "$work/image" /usr/bin/stator serve /usr/share/stator/models/demo --host 127.0.0.1 \
      --port 0 --announce
    (chroot --userspec=65532:65532 "$work/image" /usr/bin/stator doctor || true) | grep -q "libcurl [0-9]" ||
      fail "the image lacks a library that the program loads on use"
    say "image: $(du -sh "$out/stator-image" | cut -f1) packed, answers as user 65532"
  else
    say "image: $(du -sh "$out/stator-image" | cut -f1) packed; not started: that needs root for a chroot"
  fi
}

for what in "${wanted[@]}"; do
  case $what in install | deb | wheel | image) "make_$what" ;; *) fail "there is no package '$what'" ;; esac
done
