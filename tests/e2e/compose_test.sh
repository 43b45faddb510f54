#!/bin/bash
# docker-compose up --scale worker=3, killed in mid-run: by command, because it needs docker and some minutes.
#
# Trains, then in turn: docker kill of a worker; docker kill of the learner; SIGKILL of a worker's and of the learner's process, as a crash or the
# OOM killer would do it; docker-compose stop of everything. Every time training has to go on from the last checkpoint. At the end: exit status 0 of
# all containers, an evaluation that reaches the bar, and row counters that add up on every line of progress.jsonl. While it trains, and after it, a
# client on this machine asks the server of the profile 'query'. Last, examples/python/cartpole.yaml trains in images that hold the packages of
# docker/requirements/gymnasium.txt (TROUPE_REQUIREMENTS).
#
# Docker counts 'docker kill' as the operator's will: it does not restart such a container, whatever its restart policy. So after those
# kills this test does what an operator does, 'docker-compose up -d' once more; after the others it waits for the restart policy.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

usage() {
  cat << 'HELP'
Usage: tests/e2e/compose_test.sh [options]
  --workers N       containers of the worker service (default 3)
  --env-steps N     stop.env_steps (default 20000000: the kills need time between them)
  --bar X           smallest mean of return_sum in the final evaluation (default -33)
  --config FILE     configuration (default examples/simple_spread_mappo.yaml)
  --learner-args A  more options of the learner
  --client PROGRAM  the troupe on this machine that asks (default build/release/services/cli/troupe)
  --ca PATH         extra CA certificates for building the images: a file, or a folder of *.crt
  --no-build        use the images there are: those of TROUPE_TAG (default latest), and for Python those of TROUPE_TAG-python
  --keep            leave containers and volume for a look
Example: tests/e2e/compose_test.sh --workers 3 --bar -33
HELP
}

workers=3 env_steps=20000000 bar=-33 config=$root/examples/simple_spread_mappo.yaml learner_args="" build=true keep=false ca="" client=$root/build/release/services/cli/troupe
while (($# > 0)); do
  case $1 in
    --workers) workers=$2 && shift ;;
    --env-steps) env_steps=$2 && shift ;;
    --bar) bar=$2 && shift ;;
    --config) config=$(realpath "$2") && shift ;;
    --learner-args) learner_args=$2 && shift ;;
    --client) client=$(realpath "$2") && shift ;;
    --ca) ca=$(realpath "$2") && shift ;;
    --no-build) build=false ;;
    --keep) keep=true ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift
done

[[ -x $client ]] || { echo "compose_test.sh: $client is not there: './troupe build', or --client" >&2 && exit 2; }
project=troupe-e2e-$$ projects=("troupe-e2e-$$")
work=$(mktemp -d)
tag=${TROUPE_TAG:-latest}
certificates=()
export TROUPE_CONFIG=$config TROUPE_RUN=e2e TROUPE_RUNS=runs TROUPE_TAG=$tag
export TROUPE_LEARNER_ARGS="--set stop.env_steps=$env_steps --set evaluation.at_end=true --set evaluation.episodes=500 \
--set experiment.write_interval=1 --set experiment.checkpoint_interval=$((env_steps / 20)) $learner_args"
rows=()

compose() { docker-compose -f "$root/deploy/docker-compose.yml" -p "$project" "$@"; }
say() { printf '%6d s  %s\n' "$SECONDS" "$*" >&2; }
row() {
  rows+=("$(printf '%-58s %s' "$1" "$2")")
  say "$1: $2"
}
die() {
  say "FAILED: $*"
  compose logs --no-color --tail 40 >&2 || true
  exit 1
}
clean_up() {
  local status=$?
  for project in "${projects[@]}"; do
    if $keep; then
      say "left behind: docker-compose -f deploy/docker-compose.yml -p $project --profile query down -v"
    else
      compose --profile query down -v --timeout 30 > /dev/null 2>&1 || true
    fi
  done
  if ((${#certificates[@]} > 0)); then rm -f "${certificates[@]}"; fi
  rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT

container() { compose ps -q "$1" | sed -n "${2:-1}p"; }
state() { docker inspect -f "{{.State.$2}}" "$1"; }
# What the run folder says: copied out, because the images hold no tools to look with.
fetch() { docker cp "$(container learner):/runs/e2e/$1" - 2> /dev/null | tar -xO > "$work/$(basename "$1")" 2> /dev/null; }
# The last complete line's value of a key; 0 before there is one.
progress() {
  fetch progress.jsonl || true
  python3 - "$work/progress.jsonl" "$1" << 'LAST'
import json, os, sys
lines = open(sys.argv[1]).read().split("\n")[:-1] if os.path.exists(sys.argv[1]) else []
print(json.loads(lines[-1])[sys.argv[2]] if lines else 0)
LAST
}
# The env steps of the last durable checkpoint.
last_checkpoint() {
  fetch checkpoints || true
  docker cp "$(container learner):/runs/e2e/checkpoints" - 2> /dev/null | tar -t | sed -n 's|^checkpoints/\([0-9][0-9]*\)/$|\1|p' | sort -n | tail -n 1
}
last_checkpoint_is_there() { [[ -n $(last_checkpoint) ]]; }
# await SECONDS WHAT COMMAND…: until the command succeeds
await() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    ((SECONDS < deadline)) || die "not within the time given: $what"
    sleep 0.5
  done
}
passed_env_steps() { (($(progress env_steps) >= $1)); }
trained_beyond() { (($(progress env_steps) > $1)); }
has_workers() { (($(progress workers) == $1)); }
running() { [[ $(state "$1" Running) == true ]]; }
restarted() { (($(docker inspect -f '{{.RestartCount}}' "$1") > $2)) && running "$1"; }
exited() { [[ $(state "$1" Status) == exited ]]; }
# A SIGKILL that Docker did not send: from a helper that sees the host's processes.
crash() {
  running "$1" || die "$(docker inspect -f '{{.Name}}' "$1") is no longer running: the run was over before it was to crash (--env-steps)"
  docker run --rm --pid=host --user 0 --cap-add KILL --entrypoint /bin/sh "troupe/worker:$TROUPE_TAG" -c "kill -9 $(state "$1" Pid)"
}

# build_images WHAT
build_images() {
  local begin=$SECONDS
  compose build
  row "$1" "$((SECONDS - begin)) s"
}
if [[ -n $ca ]]; then
  given=("$ca")
  if [[ -d $ca ]]; then given=("$ca"/*.crt); fi
  for file in "${given[@]}"; do
    certificates+=("$root/docker/ca-certificates/e2e-${#certificates[@]}.crt")
    cp "$file" "${certificates[-1]}"
  done
fi
# The file for GPUs changes the learner alone; no GPU is needed to look at what comes out.
docker-compose -f "$root/deploy/docker-compose.yml" -f "$root/deploy/docker-compose.gpu.yml" config > "$work/gpu" || die "docker-compose.gpu.yml is not valid"
for line in 'image: troupe/learner-cuda:' "TROUPE_CUDA: '1'" 'driver: nvidia'; do
  (($(grep -cF -- "$line" "$work/gpu") == 1)) || die "with docker-compose.gpu.yml expected '$line' once, got: $(cat "$work/gpu")"
done
if $build; then build_images "images built"; fi
begin=$SECONDS
compose up -d --no-build --scale worker="$workers" 2> /dev/null
await 120 "the first line of progress.jsonl" passed_env_steps 1
row "up until the first line of progress" "$((SECONDS - begin)) s"
await 60 "all $workers workers" has_workers "$workers"

# --- the server of queries ---------------------------------------------------------------------------------------------------------
# answered POLICY NUMBERS: a client on this machine gets an answer at the published port
answered() { "$client" query 127.0.0.1:7070 --policy "$1" --obs "[$(seq -s, "$2")]" --json > "$work/answer" 2> "$work/refusal"; }
version() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["version"])' "$work/answer"; }
# The policy and the length of its observation, as the checkpoint says: "shared 18".
question() {
  docker cp "$(container learner):/runs/e2e/checkpoints" - | tar -xO --wildcards --occurrence=1 'checkpoints/[0-9]*/manifest.json' | python3 -c '
import json, math, sys
policy = json.load(sys.stdin)["policy_table"]["policies"][0]
space = policy["observation_space"]
print(policy["id"], math.prod(json.loads(space[space.rindex("["):-1])))'
}
# serve_queries: the profile's container answers; nothing else is published, and it shares no network with the learner
serve_queries() {
  compose --profile query up -d --no-build --no-deps query 2> /dev/null
  await 60 "an answer of the server at 127.0.0.1:7070 ($(cat "$work/refusal" 2> /dev/null))" answered "$@"
  local server published
  server=$(compose --profile query ps -q query)
  published=$(docker port "$server")
  [[ $published == "7070/tcp -> 127.0.0.1:7070" ]] || die "published: '$published', expected 7070 on loopback alone"
  [[ -z $(docker port "$(container learner)") ]] || die "the learner's port is published: $(docker port "$(container learner)")"
  [[ $(docker inspect -f '{{range .Mounts}}{{.Destination}} {{.RW}};{{end}}' "$server") == "/runs false;" ]] || die "the server may write to the runs"
  if docker exec "$server" troupe status --learner learner:50051 --insecure-plaintext-network > /dev/null 2>&1; then
    die "the server reaches the learner"
  fi
}
await 600 "the first checkpoint" last_checkpoint_is_there
read -r -a asked <<< "$(question)"
serve_queries "${asked[@]}"
first_version=$(version)
row "asked at 127.0.0.1:7070 while it trains: weights version" "$first_version"
compose --profile query rm --stop --force query > /dev/null 2>&1

# --- docker kill of a worker -------------------------------------------------------------------------------------------------------
await 1800 "15 % of the run" passed_env_steps $((env_steps * 15 / 100))
victim=$(container worker 2)
before=$(progress env_steps)
docker kill "$victim" > /dev/null
await 60 "training without the killed worker" trained_beyond $((before + 8000))
has_workers $((workers - 1)) || die "expected $((workers - 1)) workers after the kill, got $(progress workers)"
row "docker kill of worker 2 at $before: trained on with" "$(progress workers) workers"
compose up -d --no-build --scale worker="$workers" 2> /dev/null
await 60 "the worker started again" has_workers "$workers"
row "docker-compose up -d: workers" "$(progress workers)"

# --- docker kill of the learner ----------------------------------------------------------------------------------------------------
# check_resumed WHAT BEFORE CHECKPOINT EPOCH: the run went on behind the checkpoint, in that epoch of the learner
check_resumed() {
  local what=$1 before=$2 checkpoint=$3 epoch=$4
  await 120 "training after $what" trained_beyond "$checkpoint"
  fetch learner_epoch
  (($(cat "$work/learner_epoch") == epoch)) || die "expected learner epoch $epoch after $what, got $(cat "$work/learner_epoch")"
  row "$what at $before: went on from checkpoint" "$checkpoint (epoch $epoch)"
}
# The workers that outlived a learner know what it had acknowledged; every update since its checkpoint took at least a fragment.
check_rolled_back() {
  local before=$1 checkpoint=$2 batch least rolled_back
  await 60 "the workers back at the learner" has_workers "$workers"
  batch=$(($(progress env_steps) / $(progress updates)))
  least=$(((before - checkpoint) / batch))
  rolled_back=$(docker exec "$(container learner)" troupe status --learner 127.0.0.1:50051 --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["fragments"]["rolled_back"])')
  ((rolled_back >= least)) || die "$rolled_back fragments counted as rolled back, expected at least $least (from $before to $checkpoint)"
  row "  fragments counted as rolled back (at least $least)" "$rolled_back"
}
await 1800 "35 % of the run" passed_env_steps $((env_steps * 35 / 100))
learner=$(container learner)
before=$(progress env_steps)
docker kill "$learner" > /dev/null
await 10 "the learner's death" exited "$learner"
checkpoint=$(last_checkpoint)
[[ -n $checkpoint ]] || die "no checkpoint before the learner was killed at $before"
compose up -d --no-build --scale worker="$workers" 2> /dev/null
check_resumed "docker kill of the learner" "$before" "$checkpoint" 2
check_rolled_back "$before" "$checkpoint"

# --- crashes: the restart policy's business ----------------------------------------------------------------------------------------
await 1800 "50 % of the run" passed_env_steps $((env_steps * 50 / 100))
victim=$(container worker 1)
count=$(docker inspect -f '{{.RestartCount}}' "$victim")
crash "$victim"
begin=$SECONDS
await 60 "the restart policy to start the worker" restarted "$victim" "$count"
await 60 "the crashed worker back at the learner" has_workers "$workers"
row "SIGKILL of worker 1: restarted by its policy and back" "after $((SECONDS - begin)) s"

await 1800 "60 % of the run" passed_env_steps $((env_steps * 60 / 100))
learner=$(container learner)
count=$(docker inspect -f '{{.RestartCount}}' "$learner")
before=$(progress env_steps)
crash "$learner"
checkpoint=$(last_checkpoint)
await 60 "the restart policy to start the learner" restarted "$learner" "$count"
check_resumed "SIGKILL of the learner" "$before" "$checkpoint" 3
check_rolled_back "$before" "$checkpoint"

# --- docker-compose stop: a drain --------------------------------------------------------------------------------------------------
await 1800 "75 % of the run" passed_env_steps $((env_steps * 75 / 100))
before=$(progress env_steps)
begin=$SECONDS
compose stop 2> /dev/null
took=$((SECONDS - begin))
for id in $(compose ps -q); do
  (($(state "$id" ExitCode) == 0)) || die "after docker-compose stop: $(docker inspect -f '{{.Name}}' "$id") left with $(state "$id" ExitCode)"
done
((took <= 20)) || die "docker-compose stop took $took s, expected at most 20"
checkpoint=$(last_checkpoint)
((checkpoint >= before)) || die "the drain at $before left checkpoint $checkpoint: trained steps were lost"
row "docker-compose stop at $before: all left with 0" "after $took s, checkpoint $checkpoint"
compose up -d --no-build --scale worker="$workers" 2> /dev/null
check_resumed "docker-compose stop" "$before" "$checkpoint" 4

# --- the end -----------------------------------------------------------------------------------------------------------------------
# check_ended WORKERS: learner and workers have left with 0
check_ended() {
  local i learner
  learner=$(container learner)
  (($(state "$learner" ExitCode) == 0)) || die "the learner left with $(state "$learner" ExitCode)"
  for ((i = 1; i <= $1; ++i)); do
    await 60 "worker $i to leave after the run" exited "$(container worker "$i")"
    (($(state "$(container worker "$i")" ExitCode) == 0)) || die "worker $i left with $(state "$(container worker "$i")" ExitCode)"
  done
  row "learner and $1 workers left with" "0"
}
# check_results CONFIG ENV_STEPS BAR: what the run folder says is right, a row a fact
check_results() {
  local batch what value
  fetch progress.jsonl
  fetch summary.json
  batch=$(sed -n 's/^ *train_batch_size: *\([0-9]*\).*/\1/p' "$1" | head -n 1)
  python3 "$root/tests/e2e/check_run.py" "$work" --env-steps "$2" --batch "${batch:?$1 has no train_batch_size}" --bar "$3" > "$work/checks" || {
    cat "$work/checks" >&2
    die "the run's results are not what they have to be (above)"
  }
  while IFS=$'\t' read -r what value; do row "$what" "$value"; done < "$work/checks"
}
await 3600 "the end of the run" exited "$(container learner)"
check_ended "$workers"
check_results "$config" "$env_steps" "$bar"

# The same command on a run that has ended changes nothing and ends at once.
begin=$SECONDS
compose up -d --no-build --scale worker="$workers" 2> /dev/null
await 120 "the end of a run that has ended" exited "$(container learner)"
(($(state "$(container learner)" ExitCode) == 0)) || die "up on a run that has ended left with $(state "$(container learner)" ExitCode)"
row "docker-compose up once more: the learner left with 0" "after $((SECONDS - begin)) s"

# A run that has ended is served as well: its last weights.
serve_queries "${asked[@]}"
(($(version) > first_version)) || die "the server answers with version $(version) after the run, expected more than $first_version"
row "asked after the run: weights version" "$(version)"

# --- images with Python ------------------------------------------------------------------------------------------------------------
# has_python IMAGE CODE: whether a Python is there that runs this
has_python() { docker run --rm --entrypoint python3 "$1" -c "$2" > /dev/null 2>&1; }
for image in worker learner; do
  if has_python "troupe/$image:$tag" ""; then die "troupe/$image:$tag holds Python without TROUPE_REQUIREMENTS"; fi
done
compose --profile query stop --timeout 30 > /dev/null 2>&1
project=$project-python && projects+=("$project")
export TROUPE_REQUIREMENTS=docker/requirements/gymnasium.txt TROUPE_TAG=$tag-python TROUPE_CONFIG=$root/examples/python/cartpole.yaml TROUPE_LEARNER_ARGS=""
if $build; then build_images "images with the packages of $TROUPE_REQUIREMENTS built"; fi
for image in worker learner; do
  has_python "troupe/$image:$TROUPE_TAG" "import numpy, gymnasium, pettingzoo, mpe2" || die "troupe/$image:$TROUPE_TAG has no Python with the packages of $TROUPE_REQUIREMENTS"
done
begin=$SECONDS
compose up -d --no-build --scale worker=2 2> /dev/null
await 600 "the end of the run of a Python environment" exited "$(container learner)"
check_ended 2
check_results "$TROUPE_CONFIG" "$(sed -n 's/^stop: {env_steps: *\([0-9]*\)}.*/\1/p' "$TROUPE_CONFIG")" 195
row "examples/python/cartpole.yaml in them" "$((SECONDS - begin)) s"

echo
for image in worker learner; do
  for image_tag in "$tag" "$tag-python"; do
    printf '%-58s %s\n' "image troupe/$image:$image_tag" "$(docker image inspect -f '{{.Size}}' "troupe/$image:$image_tag" | awk '{ printf "%.0f MB", $1 / 1e6 }')"
  done
done
printf '%s\n' "${rows[@]}"
echo "PASSED in $SECONDS s"
