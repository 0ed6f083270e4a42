# For the scripts that build programs from Go modules, each into a folder of a cache outside
# the checkout.

cache="${XDG_CACHE_HOME:-$HOME/.cache}/quartet"

say() { printf '%s\n' "$*" >&2; }

# build_once FOLDER WHAT TAKES INSTEAD PROGRAM...: prints the folder. Unless the programs exist,
# calls `build ASIDE` first, which makes them in that folder. INSTEAD says what a user without Go
# can do instead, or is empty.
build_once() {
  local folder="$1" what="$2" takes="$3" instead="$4" program complete=yes
  shift 4
  for program in "$@"; do [ -x "$folder/$program" ] || complete=; done
  if [ -z "$complete" ]; then
    command -v go >/dev/null || { say "go is missing: install Go 1.26 or newer$instead"; exit 1; }
    say "building $what into $folder (once; about $takes on two cores)"
    mkdir -p "$folder"
    # A build that is cut off must not leave half a binary behind: build aside, then move.
    aside=$(mktemp -d "$folder/.build-XXXXXX")
    trap 'rm -rf "$aside"' EXIT
    build "$aside" >&2
    for program in "$@"; do mv "$aside/$program" "$folder/"; done
  fi
  echo "$folder"
}
