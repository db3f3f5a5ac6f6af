#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks Stator against real engine servers on this machine's CPU. Opt-in: the environments take about 7 GB.
# usage: scripts/test_real_engines.sh [vllm]     two vLLM servers: equality, KV events, conformance, overhead, one of them killed
#        scripts/test_real_engines.sh pd         a vLLM prefill and a decode server over NIXL, killed at six points
#        scripts/test_real_engines.sh shared     the same pair over storage that both see, nobody killed
#        scripts/test_real_engines.sh control    one vLLM server: a LoRA adapter, cache reset, sleep and wake-up
#        scripts/test_real_engines.sh sglang     two SGLang servers: as vllm, and cache reset
#        scripts/test_real_engines.sh llamacpp   one llama-server
#        further arguments: --prompts N, --checks NAME,…, --report FILE (default: docs/verification/SUITE.txt)
# env:   VENV          environment with vLLM (CPU build), for sglang one with SGLang
#        MODEL         folder of a small model that the server can serve
#        VLLM_ARGS     further arguments of all vLLM servers, like "--stream-interval 10"
#        ADAPTER       folder of a LoRA adapter for MODEL (control)
#        LLAMA_SERVER  llama.cpp's server, and GGUF: the same model in its format
#        STATOR        binary (default: build/release/bin/stator)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
: "${MODEL:?set MODEL to a model folder}"
suite=vllm
case "${1:-}" in vllm | pd | shared | control | sglang | llamacpp) suite=$1 && shift ;; esac
if [ "$suite" = llamacpp ]; then
  : "${LLAMA_SERVER:?set LLAMA_SERVER to the binary llama-server}" "${GGUF:?set GGUF to the model file}"
else
  : "${VENV:?set VENV to an environment with vLLM or SGLang}"
fi
[ "$suite" != control ] || : "${ADAPTER:?set ADAPTER to the folder of a LoRA adapter for MODEL}"
exec build/test-venv/bin/python tests/real_engines/run.py "$suite" "$@"
