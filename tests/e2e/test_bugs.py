# SPDX-License-Identifier: Apache-2.0
"""The table tests/bugs.md stays whole and true: every number is there, every test that it names exists, and each test of
test_bugs_*.py is named."""
import ast
import glob
import json
import os
import re

from conftest import HERE, PROJECT

# Sections A to G of the collection.
NUMBERS = {
    "A": [1, 2, 4, 5, 7, 8, 10, 11],
    "B": [13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32],
    "C": [34, 35, 37, 38, 40, 41, 43, 44, 46, 47, 49, 50, 52, 53, 55, 56, 58, 59],
    "D": [61, 62, 64, 65, 67, 68, 70, 71, 73],
    "E": [74, 76, 77, 79, 80, 82, 83, 85],
    "F": [86, 88, 89, 91, 92, 94, 95, 97, 98, 100, 101, 103, 104, 106],
    "G": [107, 109, 110, 112, 113, 115, 116],
}
UNIT = os.path.join(PROJECT, "tests", "unit")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def table():
    """Section, number, what happened, and what holds it, of each row."""
    section, rows = None, []
    for line in read(os.path.join(PROJECT, "tests", "bugs.md")).splitlines():
        if line.startswith("## "):
            section = line[3]
        elif match := re.fullmatch(r"\| (\d+) \| ([^|]+) \| ([^|]+) \|", line):
            rows.append((section, int(match[1]), match[2], match[3]))
    return rows


def python_tests(path):
    return {node.name for node in ast.parse(read(path)).body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def exists(reference):
    place, _, name = reference.partition("::")
    if place == "verdict":
        return any(json.loads(line)["id"].startswith(name) for line in read(os.path.join(UNIT, "policy/cases/verdict.jsonl")).split("\n") if line)
    if place.endswith(".c"):
        text = read(os.path.join(UNIT, place))
        return f"static void {name}(void **" in text and re.search(rf"(unit_test\w*|TEST)\({name}\b", text) is not None
    return name in python_tests(os.path.join(HERE, place if place.endswith(".py") else f"test_bugs_{place}.py"))


def test_every_number_is_in_its_section():
    assert [(section, number) for section, number, _, _ in table()] == [(s, n) for s, numbers in NUMBERS.items() for n in numbers]


def test_what_holds_it_exists():
    for _, number, _, held in table():
        references = re.findall("`([^`]+)`", held)
        assert references and not re.sub("`[^`]+`", "", held).strip(), number
        assert [reference for reference in references if not exists(reference)] == [], number


def test_every_test_of_a_bug_is_named():
    named = {reference for *_, held in table() for reference in re.findall("`([^`]+)`", held)}
    there = {f"{os.path.basename(path)[len('test_bugs_'):-3]}::{name}" for path in glob.glob(os.path.join(HERE, "test_bugs_*.py")) for name in python_tests(path)}
    assert there - named == set()
