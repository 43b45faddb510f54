#!/bin/bash
# Checks (or with --fix, repairs) the format of every C++ source.  format.sh ROOT [--fix]
# clang-format 14, the one of Debian 12: other versions break lines differently, so another one is refused.
set -euo pipefail
cd "$1"

clang_format=""
for candidate in clang-format-14 clang-format; do
  if command -v "$candidate" > /dev/null && "$candidate" --version | grep -q 'version 14\.'; then
    clang_format=$candidate
    break
  fi
done
if [[ -z $clang_format ]]; then
  echo "format: found no clang-format 14; it is in the package clang-format-14" >&2
  exit 1
fi

trees=()
for tree in lib python services tests bench examples cmake; do
  if [[ -d $tree ]]; then trees+=("$tree"); fi
done
mapfile -d '' files < <(find "${trees[@]}" \( -name '*.h' -o -name '*.cc' \) -not -path '*/venv*' -print0 | sort -z)

if [[ ${2:-} == --fix ]]; then
  printf '%s\0' "${files[@]}" | xargs -0 -n 16 -P "$(nproc)" "$clang_format" -i
  echo "format: ${#files[@]} files formatted"
elif printf '%s\0' "${files[@]}" | xargs -0 -n 16 -P "$(nproc)" "$clang_format" --dry-run -Werror; then
  echo "format: ${#files[@]} files as clang-format wants them"
else
  echo "format: the files above differ from what clang-format makes of them; './troupe format' repairs that" >&2
  exit 1
fi
