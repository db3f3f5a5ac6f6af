#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Clients that are too large for every run of the tests, unchanged, against `stator serve`: Claude Code, its agent SDK and Codex themselves,
# llama-index, Cohere's, Hugging Face's and Mistral's clients, Haystack. Their environments take about 1.2 GB.
# usage: scripts/test_real_clients.sh [agents|more]     (default: both)
# env:   STATOR_BINARY   binary (default: build/release/bin/stator)
#        VENV            environment to use or make (default: build/more-clients-venv)
#        AGENTS          folder for Claude Code and Codex (default: build/coding-agents)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
venv=${VENV:-build/more-clients-venv}
export AGENTS=${AGENTS:-build/coding-agents}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install -q --disable-pip-version-check llama-index-llms-openai-like==0.8.1 llama-index-embeddings-openai-like==0.4.0 cohere==5.21.1 \
  huggingface_hub==2.4.0 langchain-cohere==0.6.0 haystack-ai==3.4.1 claude-agent-sdk==0.2.189 mistralai==3.7.0
[ -x "$AGENTS/node_modules/.bin/codex" ] ||
  npm install --silent --no-audit --no-fund --no-save --prefix "$AGENTS" @anthropic-ai/claude-code@2.1.197 @openai/codex@0.169.0 >/dev/null
AGENTS=$(realpath "$AGENTS")
export STATOR_BINARY=${STATOR_BINARY:-$PWD/build/release/bin/stator}
case ${1:-all} in
  agents) tests=(coding_agents) ;;
  more) tests=(more_clients) ;;
  *) tests=(more_clients coding_agents) ;;
esac
for test in "${tests[@]}"; do "$venv/bin/python" -W ignore "tests/real_clients/${test}_test.py"; done
