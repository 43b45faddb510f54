# The commands of ./troupe that make what is given away: bundle, docs and wheel. ./troupe sources this file, whose functions use its own.

bundle_limit=$((40 * 1024 * 1024))

# stage_portable TARGET COMPONENT…: builds what other machines can run and lays the components out as the bundle has them. Sets `stage`, the folder,
# `name`, the only folder in it, and `commit_time`: the same commit makes the same files, whose times come from nowhere else. A target says in its
# CMakeLists.txt that it is in it (BUNDLE); the rest stands in cmake/TroupePortable.cmake. The caller has set up and set `options`.
stage_portable() {
  local target=$1 component version
  compile portable "$target" "${options[@]}"

  version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$root/build/portable/CMakeCache.txt")
  name=troupe-$version-linux-x86_64
  stage=$root/build/portable/bundle
  commit_time=$(git -C "$root" log -1 --format=%ct 2> /dev/null || echo 0)
  rm -rf "$stage"
  for component in "${@:2}"; do
    cmake --install "$root/build/portable" --component "$component" --strip --prefix "$stage/$name" > "$root/build/portable/bundle.log" ||
      die "installing into $stage failed (see above)"
  done
}

# take_output COMMAND VALUE ARGUMENT…: sets `output` to what --output names, a VALUE; COMMAND has no other arguments.
take_output() {
  local command=$1 value=$2
  shift 2
  while (($# > 0)); do
    case $1 in
      --output)
        output=${2:-}
        shift
        ;;
      --output=*) output=${1#*=} ;;
      *) die "$command: unknown argument '$1'; expected --output $value" ;;
    esac
    [[ -n $output ]] || die "--output needs a ${value,,}"
    shift
  done
}

# run_bundle [--output FILE]: prints the archive's path and size.
run_bundle() {
  local output="" name stage commit_time bytes options needs_torch defines=()
  take_output bundle FILE "$@"
  lock_build
  set_up_preset portable build test bench
  options_for portable TROUPE_BUILD_TESTS TROUPE_BUILD_BENCHMARKS
  stage_portable troupe_bundled product bundle
  output=${output:-$root/build/$name.tar.gz}
  tar -C "$stage" --create --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --mtime="@$commit_time" "$name" |
    gzip -9 -n > "$output.partial" || die "could not write $output"
  bytes=$(stat -c %s "$output.partial")
  if ((bytes > bundle_limit)); then
    rm "$output.partial"
    die "the bundle has $bytes bytes, expected at most $bundle_limit (40 MiB): leave out a program (BUNDLE in its CMakeLists.txt)"
  fi
  mv "$output.partial" "$output"
  unlock_build
  echo "$output $bytes bytes"
}

# run_docs [--output FOLDER]: prints the path of the first page. A link that leads nowhere, or a page that no navigation names, is an error.
run_docs() {
  local output=$root/build/site
  take_output docs FOLDER "$@"
  if [[ $output != /* ]]; then output=$PWD/$output; fi
  find_test_python
  # It builds no program, so that it waits for nobody who does.
  if ! test_python_there; then
    lock_build
    set_up false python
    unlock_build
  fi
  NO_MKDOCS_2_WARNING=1 "$test_python" -B -m mkdocs build --strict --config-file "$root/mkdocs.yml" --site-dir "$output" >&2 ||
    die "the site could not be built (see above)"
  echo "$output/index.html"
}

# run_wheel [--output FOLDER]: prints the wheels' paths and sizes. They hold the product: no tests and no benches (python/make_wheels.py says what is
# where).
run_wheel() {
  local output=$root/build/wheels name stage commit_time options needs_torch defines=()
  take_output wheel FOLDER "$@"
  lock_build
  set_up_preset portable build
  options_for portable
  stage_portable troupe_product product
  python3 -B "$root/python/make_wheels.py" "$stage/$name" "$libtorch" "$output" --time "$commit_time" || die "could not write the wheels (see above)"
  unlock_build
}
