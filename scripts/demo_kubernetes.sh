#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Brings up a Kubernetes control plane, the operator, a graph with simulated workers and an endpoint picker, and Envoy in front of it, and
# streams an answer through all of them. Everything runs on loopback and ends with the script.
#   scripts/demo_kubernetes.sh [BIN_DIR] [PROMPT]     BIN_DIR of scripts/build_kubernetes.sh [build/kubernetes]; --keep stays until Enter
# Ends with 77 and the reason where the control plane is not built.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export STATOR_BINARY=${STATOR_BINARY:-$root/build/release/bin/stator} PYTHONDONTWRITEBYTECODE=1
if [ -n "${1:-}" ] && [ "${1#--}" = "$1" ]; then export STATOR_KUBERNETES=$1; shift; fi
python=$root/build/test-venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" "$root/tests/kubernetes/demo.py" "$@"
