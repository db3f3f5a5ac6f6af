#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks Stator's KV connector in a real vLLM on this machine's CPU: greedy tokens equal to vLLM alone, and what a new engine finds in
# each tier. Opt-in: the environment takes about 6 GB, the run ten minutes on a quiet machine.
# usage: scripts/test_vllm_kv.sh [--prompts 200] [--tokens 300] [--steps disk,store,object,sync]
# env:   VENV   environment with vLLM's CPU build (0.32 was used)
#        MODEL  folder of a small model that it can serve
#        WORK   folder for the tiers (default: a temporary one)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
: "${VENV:?set VENV to an environment with vLLM}" "${MODEL:?set MODEL to a model folder}"
work=${WORK:-$(mktemp -d -t stator_vllm_kv.XXXXXX)}
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT
STATOR_BINARY=${STATOR_BINARY:-$PWD/build/release/bin/stator} \
  "$VENV/bin/python" tests/real_engines/kv_connector.py --model "$MODEL" --work "$work" "$@"
