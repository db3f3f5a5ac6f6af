#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries the operators' page (/ui/) in a real browser: tests/page/page_check.py says what.
#
#   scripts/test_page.sh                         # after `cmake --build --preset release --target stator`
#   scripts/test_page.sh --screenshots docs/images
#
# Installs Chromium (Debian's package, 300 MB, as root or with sudo) unless it is there, and Playwright and axe-core into build/test-page.
# Not part of the tests that always run, because of the size.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
  -h | --help) sed -n '3,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac

binary=${STATOR_BINARY:-$PWD/build/release/bin/stator}
[ -x "$binary" ] || { echo "test_page: build it first: cmake --build --preset release --target stator" >&2; exit 2; }

dir=build/test-page
python_packages=(playwright==1.65.2)
node_packages=(axe-core@4.14.1)
stamp="${python_packages[*]} ${node_packages[*]}"

if ! command -v chromium >/dev/null; then
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium
fi
if [ "$(cat "$dir/.stamp" 2>/dev/null)" != "$stamp" ]; then
  rm -rf "$dir"
  python3 -m venv "$dir/venv"
  "$dir/venv/bin/pip" install -q --disable-pip-version-check "${python_packages[@]}"
  npm install --silent --no-audit --no-fund --no-save --prefix "$dir" "${node_packages[@]}" >/dev/null
  echo "$stamp" >"$dir/.stamp"
fi
STATOR_BINARY=$binary PYTHONDONTWRITEBYTECODE=1 exec "$dir/venv/bin/python" tests/page/page_check.py \
  --axe "$dir/node_modules/axe-core/axe.min.js" --chromium "$(command -v chromium)" "$@"
