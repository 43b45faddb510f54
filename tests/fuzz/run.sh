#!/bin/bash
# tests/fuzz/run.sh [SECONDS] [NAME…]: builds the fuzzers with libFuzzer and the address sanitizer and runs each for so many seconds (60)
# from its committed corpus. What they find new stays in build/fuzz/corpus, what breaks one in build/fuzz/found. Exit status 0 only when
# nothing broke. The last lines tell what each did.
set -uo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
names=("${@:2}")
if ((${#names[@]} == 0)); then names=(fragment weights policy_table checkpoint frames config); fi
for name in "${names[@]}"; do ./troupe build --preset fuzz "fuzz_$name" || exit 1; done

failed=0
summary=""
for name in "${names[@]}"; do
  mkdir -p "build/fuzz/corpus/$name" build/fuzz/found
  log=build/fuzz/fuzz_$name.log
  "build/fuzz/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/found/$name-" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" > "$log" 2>&1
  status=$?
  if ((status != 0)); then
    failed=$((failed + 1))
    tail -n 40 "$log"
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  rss=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
  edges=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)
  summary+="fuzz_$name: exit status $status, ${runs:-?} inputs in $seconds s, ${edges:-cov: ?} edges, peak ${rss:-?} MiB"$'\n'
done
printf '%s' "$summary"
((failed == 0))
