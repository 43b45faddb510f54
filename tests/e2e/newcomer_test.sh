#!/bin/bash
# A newcomer's first day: on a bare Debian 12 with only git and ca-certificates added, clones the repository, trains and runs the tests. By command:
# it needs root, the network, 8 GB of disk and the time of a full build.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

usage() {
  cat << 'HELP'
Usage: tests/e2e/newcomer_test.sh [options] [-- arguments of ./troupe train]
  --tree DIR      a tree made by 'debootstrap --variant=minbase bookworm DIR'; it is copied. Default: debootstrap makes one now
  --work DIR      where the machine is built (default: a temporary folder in /var/tmp)
  --ca PATH       extra CA certificates: a file, or a folder of *.crt
  --config FILE   what to train, inside the clone (default examples/simple_spread_mappo.yaml)
  --until PHASE   stop after setup, train or test (default test)
  --env N=V       pass an environment variable on (repeat), such as https_proxy
  --keep          leave the machine there for a look
Example: sudo tests/e2e/newcomer_test.sh --ca /usr/local/share/ca-certificates -- --set stop.env_steps=1000000
HELP
}

tree="" work="" ca="" config=examples/simple_spread_mappo.yaml until=test keep=false variables=() train_arguments=()
while (($# > 0)); do
  case $1 in
    --tree) tree=$(realpath "$2") && shift ;;
    --work) mkdir -p "$2" && work=$(realpath "$2") && shift ;;
    --ca) ca=$(realpath "$2") && shift ;;
    --config) config=$2 && shift ;;
    --until) until=$2 && shift ;;
    --env) variables+=("$2") && shift ;;
    --keep) keep=true ;;
    -h | --help) usage && exit 0 ;;
    --) shift && train_arguments=("$@") && break ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift
done
if ((EUID != 0)); then
  echo "newcomer_test: needs root, for chroot" >&2
  exit 2
fi
# Namespaces of our own for mounts and processes: whatever happens, all that runs in the machine and the mounts below end with this script, before
# anything is deleted.
if [[ ${TROUPE_NEWCOMER_NAMESPACE:-} != inside ]] || (($$ != 1)); then
  arguments=()
  if [[ -n $tree ]]; then arguments+=(--tree "$tree"); fi
  if [[ -n $ca ]]; then arguments+=(--ca "$ca"); fi
  for variable in "${variables[@]}"; do arguments+=(--env "$variable"); done
  made=false unshare_id="" first_id=""
  if [[ -z $work ]]; then work=$(mktemp -d /var/tmp/troupe-newcomer.XXXXXX) && made=true; fi
  clean_up() {
    local status=$?
    if [[ -n $unshare_id ]]; then read -r first_id < "/proc/$unshare_id/task/$unshare_id/children" || true; fi 2> /dev/null
    if [[ -n $unshare_id ]]; then kill -KILL "$unshare_id" ${first_id:+"$first_id"} 2> /dev/null || true; fi
    while [[ -n $first_id && -e /proc/$first_id ]]; do sleep 0.1; done
    if $keep; then
      echo "left behind: $work" >&2
    else
      rm -rf --one-file-system "$work/machine"
      if $made; then rmdir "$work"; fi
    fi
    exit "$status"
  }
  trap clean_up EXIT
  trap 'echo "newcomer_test: ended by SIGINT" >&2; exit 130' INT
  trap 'echo "newcomer_test: ended by SIGTERM" >&2; exit 143' TERM
  # In the background, so that a signal to this script is not kept waiting.
  TROUPE_NEWCOMER_NAMESPACE=inside unshare --mount --pid --fork --kill-child --propagation private "$0" --work "$work" --config "$config" \
    --until "$until" "${arguments[@]}" -- "${train_arguments[@]}" &
  unshare_id=$!
  wait "$unshare_id"
  exit
fi

machine=$work/machine
times=()
phase() {
  local what=$1 begin=$SECONDS
  shift
  echo "=== $what" >&2
  "$@" >&2
  times+=("$(printf '%-58s %5d s' "$what" $((SECONDS - begin)))")
}
finish() {
  printf '%s\n' "${times[@]}"
  du -sh --one-file-system "$machine" | awk '{ printf "%-58s %7s\n", "disk used by the machine", $1 }'
  echo "PASSED in $SECONDS s"
  exit 0
}
# Nothing of this session's environment but what was asked for.
inside() {
  chroot "$machine" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    "${variables[@]}" "$@"
}
in_clone() { inside /bin/sh -c 'cd /root/troupe && exec "$@"' sh "$@"; }

make_machine() {
  rm -rf --one-file-system "$machine"
  if [[ -n $tree ]]; then
    cp -a "$tree" "$machine"
  else
    debootstrap --variant=minbase bookworm "$machine"
  fi
  cp -L /etc/resolv.conf "$machine/etc/resolv.conf"
  mount -t proc proc "$machine/proc"
  mount --rbind /dev "$machine/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$machine/tmp"
}
add_git() {
  inside apt-get -q update
  inside DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install git ca-certificates
}
clone() {
  mkdir -p "$machine/mnt/origin"
  mount --bind "$root" "$machine/mnt/origin"
  inside git -c safe.directory='*' clone -q file:///mnt/origin /root/troupe
  umount "$machine/mnt/origin"
}

if [[ -n $ca ]]; then variables+=("TROUPE_CA_CERTS=/opt/ca"); fi
phase "a bare Debian 12 (minbase)" make_machine
if [[ -n $ca ]]; then
  mkdir -p "$machine/opt/ca"
  if [[ -d $ca ]]; then cp "$ca"/*.crt "$machine/opt/ca/"; else cp "$ca" "$machine/opt/ca/given.crt"; fi
fi
phase "apt-get install git ca-certificates" add_git
phase "git clone" clone
phase "./troupe version (packages, LibTorch, release build)" in_clone ./troupe version
if [[ $until == setup ]]; then finish; fi
phase "./troupe train $config ${train_arguments[*]}" in_clone ./troupe train "$config" --name newcomer "${train_arguments[@]}"
tail -n 1 "$machine/root/troupe/runs/newcomer/progress.jsonl"
cat "$machine/root/troupe/runs/newcomer/summary.json"
if [[ $until == train ]]; then finish; fi
phase "./troupe test" in_clone ./troupe test
finish
