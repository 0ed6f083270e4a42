#!/usr/bin/env python3
"""Counts code lines: without comments and blank lines, tests apart.

    tests/lines.py [REVISION..]

A column for each git revision, `.` is the working tree. Without revisions: HEAD and the
working tree. The last column compares the first with the last. The last table is about the
OpenStack provider without what exists only for writes, routes and load balancers.

A line counts if it holds anything but comments. Items under `#[cfg(test)]` or a feature for
tests of other crates, the files of such modules, and the folders `tests`, `examples` and `benches` are tests. Code that a
build generates is not in the repository and does not count; macros of our own do.
"""

import io
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
APART = {
    "shared/external-server": "server of the external protocol",
    "bench": "benchmarks",
    "tests/sim": "simulator",
    "tests/testing": "helpers of unit tests",
    "tests/playground": "playground",
    "bins/template-ccm": "template of a controller",
    "tests": "tests crate",
}
TESTS = "tests in the crates"
# The parts of a controller that are particular to it, by the first of these names below src.
PARTS = {
    "machine": ("machine", "plan", "policy", "ipam", "networks"),
    "translate": ("translate", "observe"),
    "perform": ("perform", "effects", "execute"),
    "settings": ("settings",),
    "metrics": ("metrics",),
}
# Comments and literals: the first group is a comment.
LEXER = re.compile(
    r"""(//[^\n]*|/\*.*?\*/)
      | b?c?r(\#*)".*?"\2
      | "(?:\\.|[^"\\])*"
      | '(?:\\(?:x..|u\{[^}]*\}|.)|[^'\\\n])'""",
    re.VERBOSE | re.DOTALL,
)
# Also what a feature offers to the tests of other crates. Literals are masked.
IF_TEST = r"#\[cfg\((?:test|any\(test, feature = x+\))\)\]"
TEST_ITEM = re.compile(IF_TEST)
TEST_FILE = re.compile(IF_TEST + r"\s*(?:#\[expect[^\]]*\]\s*)?(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;")

PROVIDER = ("shared/openstack/src/", "shared/openstack-client/src/")
# What of the provider exists only for writes, routes and load balancers: whole files and folders.
BEYOND = ("balancers", "lbaas", "routes", "config/balancer", "network/floating_ips",
          "network/routers", "network/subnets", "scripted")
# The same in other files: functions, constants and types by name. One that is not found counts.
BEYOND_ITEMS = {
    "api.rs": ("put", "post", "delete", "at_revision", "offers", "project_id"),
    "api/answer.rs": ("Deletion", "missing"),
    "api/call.rs": ("finds", "own_project"),
    "api/endpoints.rs": ("load_balancer",),
    "api/fault.rs": ("QUOTAS", "ROUTE_QUOTA", "BUSY", "DRIVER_FAILED", "TAKEN", "NOT_OF_SUBNET",
                     "NO_ADDRESSES", "quota", "words"),
    "api/send.rs": ("is_document",),
    "api/session/catalog.rs": ("has",),
    "cloud.rs": ("routes", "load_balancers", "Wanted", "asks_nova", "wanted_routes",
                 "wanted_balancers", "network_health", "balancer_health"),
    "config.rs": ("Route",),
    "config/sections.rs": ("classes",),
    "fault.rs": ("speaks_of_quota",),
    "network.rs": ("readable",),
}


def files(revision):
    """The Rust files of a revision: path and text."""
    if revision == ".":
        listed = ["git", "ls-files", "-co", "--exclude-standard", "*.rs"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
        paths = [ROOT / name for name in names.stdout.splitlines()]
        return {str(path.relative_to(ROOT)): path.read_text() for path in paths if path.exists()}
    archive = ["git", "archive", revision]
    packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        return {
            member.name: tar.extractfile(member).read().decode()
            for member in tar
            if member.isfile() and member.name.endswith(".rs")
        }


def masked(text):
    """Comments become blanks, literals become letters; lines stay what they are."""

    def mask(found):
        blank = " " if found.group(1) else "x"
        return re.sub(r"[^\n]", blank, found.group(0))

    return LEXER.sub(mask, text)


def lines(code):
    return sum(1 for line in code.splitlines() if line.strip())


def without_tests(code):
    """`code`, which is masked, without the items under `#[cfg(test)]`."""
    while found := TEST_ITEM.search(code):
        depth, end, is_import = 0, found.end(), False
        while end < len(code):
            letter = code[end]
            is_import |= depth == 0 and code.startswith("use ", end)
            if letter in ")]}" and depth == 0:
                break
            depth += (letter in "([{") - (letter in ")]}")
            end += 1
            if depth == 0 and (letter in ";," or letter == "}" and not is_import):
                break
        code = code[: found.start()] + code[end:]
    return code


def without_items(code, names):
    """`code`, which is masked, without the items of these names."""
    words = r"^ *(?:pub(?:\([^)]*\))? )?(?:const |async )*(?:fn|const|enum|struct|impl)"
    item = re.compile(rf"{words} (?:{'|'.join(names)})\b", re.MULTILINE)
    while found := names and item.search(code):
        depth, end, letter = 0, found.end(), ""
        while depth or letter not in (";", "}"):
            letter = code[end]
            depth += (letter in "([{") - (letter in ")]}")
            end += 1
        code = code[: found.start()] + code[end:]
    return code


def provider(code, tests):
    """Code lines of the provider for instances and login, by file, of masked files."""
    parts = Counter()
    for path, text in code.items():
        inner = "/".join(path.split("/")[3:]).removesuffix(".rs")
        is_beyond = any(inner == name or inner.startswith(f"{name}/") for name in BEYOND)
        if not path.startswith(PROVIDER) or is_of(tests, path) or is_beyond:
            continue
        text = without_items(without_tests(text), BEYOND_ITEMS.get(f"{inner}.rs", ()))
        parts[path] += lines(text)
    parts["instances and login"] = parts.total()
    return parts


def is_of(modules, path):
    return any(path == f"{module}.rs" or path.startswith(f"{module}/") for module in modules)


def count(sources):
    """Code lines by crate, of the controllers by part and file, and of the provider."""
    crates, parts, rest = Counter(), Counter(), Counter()
    code = {path: masked(text) for path, text in sources.items()}
    tests = set()
    for path, text in code.items():
        owner = Path(path)
        at_root = owner.name in ("lib.rs", "main.rs", "mod.rs")
        folder = owner.parent if at_root else owner.with_suffix("")
        tests |= {str(folder / name) for name in TEST_FILE.findall(text)}
    for path, text in code.items():
        names = path.split("/")
        crate = "/".join(names[:2]) if names[0] in ("bins", "shared") else names[0]
        if crate in APART:
            crates[APART[crate]] += lines(text)
            continue
        is_test = len(names) < 3 or names[2] != "src" or is_of(tests, path)
        product = 0 if is_test else lines(without_tests(text))
        crates[crate] += product
        crates[TESTS] += lines(text) - product
        if names[0] == "bins" and product:
            below = [name.removesuffix(".rs") for name in names[3:]]
            of = [part for name in below for part, own in PARTS.items() if name in own]
            part = next(iter(of), "rest")
            parts[f"{crate} {part}"] += product
            if part == "rest":
                rest[f"{crate}/src/{'/'.join(names[3:])}"] += product
    product = sum(lines for crate, lines in crates.items() if crate.startswith(("bins", "shared")))
    crates["product"] = product
    return crates, parts, rest, provider(code, tests)


def table(title, names, columns):
    print(f"\n{title}")
    for name in names:
        values = [column[name] for column in columns]
        change = ""
        if len(values) > 1 and values[0]:
            change = f"{100 * (values[-1] - values[0]) / values[0]:+8.1f} %"
        print(f"  {name:46}" + "".join(f"{value:>10}" for value in values) + change)


def main():
    revisions = sys.argv[1:] or ["HEAD", "."]
    counted = [count(files(revision)) for revision in revisions]
    crates, parts, rest, provider = ([one[part] for one in counted] for part in range(4))
    print(f"  {'code lines':46}" + "".join(f"{revision[:9]:>10}" for revision in revisions))
    names = sorted({name for column in crates for name in column})
    product = [name for name in names if name.startswith(("bins", "shared"))]
    table("product", [*product, "product"], crates)
    table("apart", [name for name in names if name not in product and name != "product"], crates)
    programs = sorted({name.split()[0] for column in parts for name in column})
    rows = [f"{program} {part}" for program in programs for part in [*PARTS, "rest"]]
    table("controllers by part", rows, parts)
    table("the rest by file", sorted({name for column in rest for name in column}), rest)
    table("the OpenStack provider, instances and login only", sorted(set().union(*provider)), provider)


if __name__ == "__main__":
    main()
