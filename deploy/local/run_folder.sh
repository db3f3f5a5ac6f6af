# SPDX-License-Identifier: Apache-2.0
# Sourced by up.sh and down.sh: the folder that says what runs, and whose it is.

# This user's alone: another user could otherwise make us write through a link or end processes that are not ours.
default_folder=${XDG_RUNTIME_DIR:-$HOME/.stator}/stator-local

check_folder() {  # DIR: an error text, or nothing
  if [ -L "$1" ] || [ ! -d "$1" ]; then
    echo "$1 is no folder"
  elif [ ! -O "$1" ] || [ $((8#$(stat -c %a "$1") & 8#22)) -ne 0 ]; then
    echo "$1 must belong to $(id -un) and be writable by nobody else (chmod 0700), or name another one with --dir"
  fi
}

started_at() {  # PID: clock ticks since boot when it started, which no later process with that id shares
  sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20
}

still_runs() {  # PID START
  [ -n "$2" ] && [ "$(started_at "$1")" = "$2" ] && [ "$(ps -o stat= -p "$1" | cut -c 1)" != Z ]
}
