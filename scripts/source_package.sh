# Fetches the source package of a Debian library, without touching the machine's package lists. Sourced.
#
# We build abseil and zstd ourselves because liboffcut.so must contain them, hidden and position independent, and the
# archives of the distribution are not built for that. The sources still come from the distribution: it is a registry
# that the machine already trusts, and its signatures are checked.

# fetch_source PACKAGE VERSION_PREFIX DIR: unpacks PACKAGE into DIR/src. Refuses another version than we have tried.
fetch_source() {
  local package="$1" version_prefix="$2" dir="$3" apt found
  mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" "$dir/apt/parts"
  write_source_lists "$dir/apt/parts"
  apt=(apt-get -q
    -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$dir/apt/parts"
    -o "Dir::State::Lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt/cache"
    -o "APT::Sandbox::User=$(id -un)" -o "Acquire::Languages=none")
  "${apt[@]}" update
  cd "$dir" || return
  found="$("${apt[@]}" source --print-uris --only-source "$package" | sed -n "s/.* ${package}_\([^ ]*\)\.dsc .*/\1/p")"
  if [[ "$found" != "$version_prefix"* ]]; then
    echo "expected $package $version_prefix of the distribution, found '${found:-nothing}'" >&2
    return 1
  fi
  "${apt[@]}" source --only-source "$package"
  mv "$(find . -maxdepth 1 -type d -name "$package-*")" src
}

# Derives `deb-src` entries from the `deb` entries that the machine has, those of the distribution itself only.
write_source_lists() {
  local parts="$1" codename file
  codename="$(. /etc/os-release && echo "$VERSION_CODENAME")"
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [[ -r "$file" ]] || continue
    grep -E "^deb .*[[:space:]]$codename(-updates|-security)?[[:space:]]" "$file" | sed 's/^deb /deb-src /'
  done >"$parts/main.list"
  for file in /etc/apt/sources.list.d/*.sources; do
    [[ -r "$file" ]] || continue
    # A stanza is a paragraph. `Suites: bookworm bookworm-updates` names what we look for.
    awk -v codename="$codename" 'BEGIN { RS = ""; ORS = "\n\n" }
      $0 ~ ("Suites:[^\n]*[ ]" codename "([-/ \n]|$)") { sub(/Types:[^\n]*/, "Types: deb-src"); print }' "$file"
  done >"$parts/main.sources"
}
