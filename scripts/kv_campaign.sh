#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The correctness campaign of the storage plane: N requests over every tier and hand-off under faults, each answer bit-equal to an
# engine without tiers (tests/chaos/kv_campaign_test.py; the last line says what was moved, damaged and found).
# usage: scripts/kv_campaign.sh [N]     (default: 10000, about half an hour on two cores)
# env:   STATOR_BINARY (build/release/bin/stator)  STATOR_TEST_SEED
set -euo pipefail
case ${1:-} in -h | --help) sed -n '1d;/SPDX/d;/^set /q;s/^# //p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
export STATOR_BINARY=${STATOR_BINARY:-$PWD/build/release/bin/stator} PYTHONDONTWRITEBYTECODE=1
[ -x build/test-venv/bin/python ] || { echo "run scripts/setup.sh test first" >&2; exit 2; }
STATOR_KV_REQUESTS=${1:-10000} exec build/test-venv/bin/python tests/chaos/kv_campaign_test.py -v
