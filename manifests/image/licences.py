#!/usr/bin/env python3
"""licences.py PROGRAM...: the licence texts of everything that is linked into these programs, for
their images. Fails if a crate has neither a text nor a licence for which any copy of the text is good enough."""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Files that are licence texts or must go with them.
NAMES = ("licen", "copying", "notice", "copyright", "unlicense")
# These texts do not name anybody, so any copy is good enough.
NAMELESS = ("Apache-2.0",)
C_LIBRARY = """The programs are linked statically with the GNU C Library (LGPL-2.1-or-later) of the machine that has built
them. They can be linked with another version of it: `make build` in the sources of this program."""


def metadata():
    host = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    host = next(line.split()[1] for line in host.splitlines() if line.startswith("host:"))
    command = ["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={host}"]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)


def linked(data, programs):
    """The packages that these programs link, except our own."""
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    waiting = [id for id, package in packages.items() if package["name"] in programs]
    if len(waiting) < len(programs):
        sys.exit(f"not all of {' '.join(programs)} are programs of this workspace")
    seen = set()
    while waiting:
        id = waiting.pop()
        if id in seen:
            continue
        seen.add(id)
        for dependency in nodes[id]["deps"]:
            # The dependencies of build scripts and tests are not linked.
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    found = [packages[id] for id in seen if packages[id]["source"]]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def texts(package):
    folder = pathlib.Path(package["manifest_path"]).parent
    files = [file for file in folder.iterdir() if file.is_file() and file.name.lower().startswith(NAMES)]
    return ["\n".join(file.read_text(errors="replace").split("\r\n")).strip() for file in sorted(files)]


def main():
    programs = sys.argv[1:]
    packages = linked(metadata(), programs)
    own = {package["id"]: texts(package) for package in packages}
    # Some crates lack the text that others of the same repository and licence have.
    shared = {(package["repository"], package["license"]): own[package["id"]] for package in packages if own[package["id"]]}
    apache = (ROOT / "LICENSE").read_text().strip()
    by_text, missing = {}, []

    def note(text, name):
        # Copies differ in their blanks.
        by_text.setdefault(" ".join(text.split()), (text, []))[1].append(name)

    note(apache, "the standard library of Rust (MIT OR Apache-2.0)")
    for package in packages:
        licence = package["license"] or "no licence named"
        name = f"{package['name']} {package['version']} ({licence})"
        found = own[package["id"]] or shared.get((package["repository"], package["license"]), [])
        if not found and any(known in licence for known in NAMELESS):
            found = [apache]
        if not found:
            missing.append(name)
        for text in found:
            note(text, name)
    if missing:
        sys.exit(f"no licence text in {', '.join(missing)}")
    print(f"What is in {', '.join(programs)}, by licence text.\n\n{C_LIBRARY}")
    for text, names in sorted(by_text.values(), key=lambda entry: entry[1]):
        print("\n" + "=" * 80 + "\n" + "\n".join(names) + "\n" + "-" * 80 + "\n\n" + text)


main()
