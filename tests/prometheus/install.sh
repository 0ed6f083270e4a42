#!/usr/bin/env bash
# Unpacks `prometheus` and `promtool` of Debian's package prometheus into a cache
# outside the checkout, and prints that folder. Does not install anything or start services.
# Does nothing if they exist.
# With QUARTET_PROMETHEUS set, that folder's programs are used instead.
set -euo pipefail
say() { printf '%s\n' "$*" >&2; }
elsewhere="or set QUARTET_PROMETHEUS to a folder that holds prometheus and promtool"

# Succeeds if both programs are in a folder and run on this machine.
usable() {
  for tool in prometheus promtool; do
    [ -x "$1/$tool" ] || { echo "holds no executable $tool"; return 1; }
    "$1/$tool" --version >/dev/null 2>&1 || { echo "holds a $tool that does not run here (\`$tool --version\` fails)"; return 1; }
  done
}

if [ -n "${QUARTET_PROMETHEUS:-}" ]; then
  problem=$(usable "$QUARTET_PROMETHEUS") || { say "QUARTET_PROMETHEUS=$QUARTET_PROMETHEUS $problem"; exit 1; }
  echo "$QUARTET_PROMETHEUS"
  exit 0
fi

for tool in apt-get apt-cache dpkg-deb; do
  command -v "$tool" >/dev/null || { say "$tool is missing: this needs Debian or Ubuntu; elsewhere, install Prometheus 2.42 or newer and set QUARTET_PROMETHEUS to the folder of prometheus and promtool"; exit 1; }
done

candidate() { LC_ALL=C apt-cache policy prometheus 2>/dev/null | awk '$1 == "Candidate:" && $2 != "(none)" {print $2}'; }
refresh() {
  [ "$(id -u)" = 0 ] || { say "$1: run 'sudo apt-get update' and try again, $elsewhere"; exit 1; }
  say "$1: reading the package lists again"
  apt-get update -q >&2 || { say "apt-get update failed: see above, $elsewhere"; exit 1; }
}

version=$(candidate)
if [ -z "$version" ]; then
  refresh "apt knows no package prometheus"
  version=$(candidate)
  [ -n "$version" ] || { say "the package sources of this machine have no package prometheus: add Debian's main section, $elsewhere"; exit 1; }
fi
cache="${XDG_CACHE_HOME:-$HOME/.cache}/quartet/prometheus-${version//:/_}"

if ! usable "$cache" >/dev/null; then
  say "unpacking Debian's prometheus $version into $cache (once; 20 MB to download)"
  mkdir -p "$cache"
  # An interrupted run must not leave half a program behind: unpack aside, then move.
  aside=$(mktemp -d "$cache/.unpack-XXXXXX")
  trap 'rm -rf "$aside"' EXIT
  # apt's own user may not write into our folder. apt still checks the signature.
  download() { (cd "$aside" && apt-get -q -o APT::Sandbox::User="$(id -un)" download "prometheus=$version" >&2); }
  if ! download; then
    # The lists may name a version that the archive has replaced since.
    refresh "prometheus $version cannot be had"
    newer=$(candidate)
    if [ "$newer" != "$version" ]; then rm -rf "$aside"; exec "${BASH_SOURCE[0]}"; fi
    download || { say "Debian's prometheus $version cannot be downloaded: see above, $elsewhere"; exit 1; }
  fi
  dpkg-deb -x "$aside"/prometheus_*.deb "$aside/tree"
  problem=$(usable "$aside/tree/usr/bin") || { say "Debian's prometheus $version $problem"; exit 1; }
  mv -f "$aside/tree/usr/bin/prometheus" "$aside/tree/usr/bin/promtool" "$cache/"
fi
echo "$cache"
