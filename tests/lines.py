#!/usr/bin/env python3
"""Counts code lines of Rust: without comments and blank lines.

    tests/lines.py [REVISION..]

Prints a column for each git revision; `.` is the working tree. Without revisions it prints HEAD
and the working tree. The last column compares the first revision with the last one.

A line counts if it holds anything but comments. There are two sums:

* The product: what the shipped programs are built from.
* Everything else: tests, tools and the simulator. Tests are the items and files under
  `#[cfg(test)]` or under a feature (all features here are for tests), and the folders `tests`,
  `examples` and `benches` of a crate.

Code that merely moves changes no sum: the tables below name what is not product by its paths
in old and new revisions alike. Code that a build generates does not count.
"""

import io
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Paths of files that are not part of the product, in any revision. The first matching pattern decides.
APART = [
    (r"bench/", "benchmarks"),
    (r"(bins|tests)/playground/", "playground"),
    (r"bins/template-ccm/", "template of a controller"),
    (r"shared/external-server/|shared/providers/src/external/server[./]", "server of the external protocol"),
    (r"tests/contract/|(shared|tests)/sim/tests/cloud_contract/", "contract of providers"),
    (r"(shared|tests)/sim/", "simulator"),
    (r"((shared|tests)/)?fuzz/", "fuzz"),
    (r"(shared|tests)/replay/", "replay"),
    (r"(shared|tests)/testing/", "helpers of unit tests"),
    (r"shared/[a-z-]+/src/(.*/)?scripted[./]", "OpenStack services on a script"),
    (r"tests/", "harness, scenarios and rules"),
    (r"bins/[a-z-]+/(?!src/)", "tests of programs"),
    (r"shared/[a-z-]+/(?!src/)", "tests of shared crates"),
]
# Crates that were one crate: their rows have a separate sum.
PROVIDERS = "providers"
MEMBERS = [
    (r"shared/openstack-client/", "openstack-client"),
    (r"shared/(openstack/|providers/src/openstack[./])", "openstack"),
    (r"shared/(external/|providers/src/external[./])", "external"),
    (r"shared/providers/", "registry"),
]
# The parts of a controller, by the first of these names below src.
PARTS = {
    "machine": ("machine", "plan", "policy", "ipam", "networks"),
    "translate": ("translate", "observe", "entrance"),
    "perform": ("perform", "effects", "execute", "pass"),
    "report": ("report", "show", "explanations"),
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
# `#[cfg(test)]`, `#[cfg(any(test, feature = "fuzz"))]` and their like; literals are masked.
TEST = r"#\[cfg\((?:(?:any|all)\()?(?:test|doctest|feature)\b[^\]]*\)\]"
TEST_ITEM = re.compile(TEST)
TEST_FILE = re.compile(TEST + r"\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;")


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
    """Turns comments into blanks and literals into letters. Lines do not change."""

    def mask(found):
        blank = " " if found.group(1) else "x"
        return re.sub(r"[^\n]", blank, found.group(0))

    return LEXER.sub(mask, text)


def lines(code):
    return sum(1 for line in code.splitlines() if line.strip())


def without_tests(code):
    """The masked `code` without the items that only tests have."""
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


def first(patterns, path):
    """The name beside the first pattern that the path begins with."""
    return next((name for pattern, name in patterns if re.match(pattern, path)), None)


def test_modules(code):
    """The files, without `.rs`, that are declared as modules of tests."""
    found = set()
    for path, text in code.items():
        owner = Path(path)
        at_root = owner.name in ("lib.rs", "main.rs", "mod.rs")
        folder = owner.parent if at_root else owner.with_suffix("")
        found |= {str(folder / name) for name in TEST_FILE.findall(text)}
    return found


def is_of(modules, path):
    return any(path == f"{module}.rs" or path.startswith(f"{module}/") for module in modules)


def part_of(path):
    """The part of its controller that a file belongs to, or None."""
    below = [name.removesuffix(".rs") for name in path.split("/")[3:]]
    of = (part for name in below for part, own in PARTS.items() if name in own)
    return next(of, None)


def count(sources):
    """Counts code lines: of the product by crate, of everything else, and of the programs by part."""
    product, apart, parts, rest = Counter(), Counter(), Counter(), Counter()
    code = {path: masked(text) for path, text in sources.items()}
    tests = test_modules(code)
    for path, text in code.items():
        if name := first(APART, path):
            apart[name] += lines(text)
            continue
        group, crate = path.split("/")[:2]
        shipped = 0 if is_of(tests, path) else lines(without_tests(text))
        apart["tests of programs" if group == "bins" else "tests of shared crates"] += lines(text) - shipped
        if member := first(MEMBERS, path):
            product[f"{PROVIDERS}: {member}"] += shipped
            product[f"{PROVIDERS}: together"] += shipped
        else:
            product[f"{group}/{crate}"] += shipped
        if group == "bins" and shipped:
            part = part_of(path)
            parts[f"{crate} {part or 'rest'}"] += shipped
            if not part:
                rest[path] += shipped
    product["product"] = sum(n for name, n in product.items() if "together" not in name)
    apart["tests, tools, simulator"] = apart.total()
    return product, apart, parts, rest


def table(title, names, columns):
    print(f"\n{title}")
    for name in names:
        values = [column[name] for column in columns]
        change = ""
        if len(values) > 1:
            change = f"{values[-1] - values[0]:+10}"
        if len(values) > 1 and values[0]:
            change += f"{100 * (values[-1] - values[0]) / values[0]:+9.1f} %"
        print(f"  {name:46}" + "".join(f"{value:>10}" for value in values) + change)


def names(columns, last=None):
    """All rows, sorted, with a sum at the end."""
    return [*sorted(set().union(*columns) - {last}), *([last] if last else [])]


def main():
    revisions = sys.argv[1:] or ["HEAD", "."]
    product, apart, parts, rest = zip(*(count(files(revision)) for revision in revisions))
    print(f"  {'code lines':46}" + "".join(f"{revision[:9]:>10}" for revision in revisions))
    table("product", names(product, "product"), product)
    table("everything else", names(apart, "tests, tools, simulator"), apart)
    programs = sorted({name.split()[0] for column in parts for name in column})
    rows = [f"{program} {part}" for program in programs for part in [*PARTS, "rest"]]
    table("programs by part", rows, parts)
    table("the rest by file", names(rest), rest)


if __name__ == "__main__":
    main()
