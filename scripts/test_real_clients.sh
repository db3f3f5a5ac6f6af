#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Frameworks that agents are written with, unchanged, against `stator serve models/demo`. Opt-in: their environment takes about 500 MB.
# usage: scripts/test_real_clients.sh [UNITTEST_ARGUMENTS…]
# env:   STATOR_BINARY   binary (default: build/release/bin/stator)
#        VENV            environment to use or make (default: build/client-venv)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
venv=${VENV:-build/client-venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install -q 'litellm==1.110.2' 'langchain-openai==1.7.4' 'langchain-anthropic==1.7.10' 'openai-agents==0.24.0' \
  'pydantic-ai-slim[openai]==2.38.0' 'instructor==1.17.0'
export STATOR_BINARY=${STATOR_BINARY:-$PWD/build/release/bin/stator}
exec "$venv/bin/python" -W ignore tests/real_clients/frameworks_test.py "$@"
