#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/soak.sh [MINUTES] [--json]     (default: 30)
# Every protocol mixed at about 70 % load against a frontend and two workers, clients dying at random; what the processes hold at the
# start and at the end. Ends with 1 unless memory, descriptors, threads and leases are flat. STATOR_BINARY: the program, else the release build's.
set -eu
cd "$(dirname "$0")/.."
exec build/test-venv/bin/python bench/soak.py "${1:-30}" "${@:2}"
