#!/usr/bin/env bash
# Checks the dependencies against deny.toml: duplicates, licences, sources; and advisories, if
#   ADVISORIES=online  cargo-deny fetches the advisory database, or
#   ADVISORIES=FOLDER  that is a clone of it: its date is printed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
deny=$(tests/cargo-tools/install.sh cargo-deny)
# An unused entry of the lists fails as well.
strict=(-D unnecessary-skip -D license-not-encountered -D unmatched-skip)

"$deny" --locked check "${strict[@]}" bans licenses sources

# Each image contains the licence texts of its program, all of which must exist.
manifests/image/licences.py $(ls bins | grep -- '-ccm$') >/dev/null

case "${ADVISORIES:-}" in
  "") echo "advisories: not checked: ADVISORIES=online, or the folder of a clone of the advisory database" ;;
  online) "$deny" --locked check advisories ;;
  *)
    # cargo-deny looks for the clone below db-path, under a name that it chooses.
    date=$(git -C "$ADVISORIES" log -1 --format='%cs, %h')
    echo "advisories: of $date"
    aside=$(mktemp -d)
    trap 'rm -rf "$aside"' EXIT
    printf '\ndb-path = "%s"\n' "$aside" | cat deny.toml - >"$aside/deny.toml"
    ln -s "$(realpath "$ADVISORIES")" "$aside/advisory-db-3157b0e258782691"
    "$deny" --locked --offline --config "$aside/deny.toml" check advisories
    ;;
esac
