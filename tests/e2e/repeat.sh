#!/bin/bash
# Every e2e test again and again beside two busy loops: what waits for the clock instead of a condition fails now and then.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat << 'HELP'
Usage: tests/e2e/repeat.sh [N [ctest options]]     N times each (default 20); needs a build by ./troupe test
  TROUPE_BUSY=2             busy loops beside them
Example: tests/e2e/repeat.sh 3 -R e2e_live_policies_test
HELP
  exit 0
fi
times=${1:-20}
[[ $times =~ ^[1-9][0-9]*$ ]] || {
  echo "repeat: got '$times', expected how often" >&2
  exit 2
}
shift $(($# > 0 ? 1 : 0))

loops=()
trap 'kill "${loops[@]}" 2> /dev/null || true' EXIT
for ((i = 0; i < ${TROUPE_BUSY:-2}; ++i)); do
  (while :; do :; done) &
  loops+=($!)
done
# One at a time: a test that fails has nobody else to blame but the loops. The first failure ends a test, not the others.
ctest --test-dir "$root/build/release" -L e2e --repeat "until-fail:$times" --output-on-failure "$@"
