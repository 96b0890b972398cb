#!/usr/bin/python3
"""Mutation testing of pure code: does a unit test notice when one place is wrong?

    tests/build/mutate.py [PART...] [--sample N] [--seed S] [--minutes M] [--file NAME] [--at FILE:LINE] [--build DIR]

PART: adapt, schedule (of uct_mp), match (of pml_glue/core); all by default. In each mutant one operator, constant or call
of a source file (.cc) is another one, or one statement is missing. It is compiled alone, linked into the part's unit
tests in place of the original, and these run, until one fails. Prints each mutant that no test has noticed, and the share
that was. What does not compile does not count. A mutant may also mean the same as the original: read the survivors.

By hand, not in CI: a mutant takes some seconds. They are tried in random order, so that what has been tried when time is up
(--minutes, ctrl-C) is a fair sample. The build has to be up to date. Exit code 1: less than --least (0.9).
"""
import argparse
import json
import os
import random
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARTS = {"adapt": ("uct_mp/adapt", "tests/unit/adapt", "unit_adapt_"),
         "schedule": ("uct_mp/schedule", "tests/unit/schedule", "unit_schedule_"),
         "match": ("pml_glue/core/match", "tests/pml", "pml_")}
TESTS = {"match": ["test_match"]} # else all in the folder
SEEDS = {"schedule": {"TESTS_SEED": "1"}} # else its random test has another one each time

# (what is found, what takes its place); alone between blanks where templates and pointers look alike
OPERATORS = [(" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "), (" != ", " == "), (" < ", " >= "),
             (" > ", " <= "), (" + ", " - "), (" - ", " + "), (" * ", " / "), (" / ", " * "), (" % ", " / "), (" && ", " || "),
             (" || ", " && "), (" += ", " -= "), (" -= ", " += "), (" |= ", " &= "), ("++", "--"), ("std::min", "std::max"),
             ("std::max", "std::min"), ("true", "false"), ("false", "true"), ("break;", ";"), ("continue;", ";"), ("(!", "(")]
NUMBER = re.compile(r"(?<![\w.'])(\d[\d']*)(\.\d+)?(?![\w.'])")
# A call or an assignment to what exists already: no declaration, whose type would stand in front.
STATEMENT = re.compile(r"^\s+(?:\+\+|--|\*)?[a-z_][\w.\[\]()>:-]*?(?:\(.*\)| [-+*/|&]?= .*|\+\+|--);$")
SKIPPED = re.compile(r"^\s*(//|#|static_assert|assert\(|template|using |namespace|case |return;|\}|BOOST)|__builtin")


MOST_MEMORY = 4 << 30 # bytes: a loop that does not end may allocate


class Mutant:
    def __init__(self, path, number, line, changed):
        self.path, self.number, self.line, self.changed = path, number, line, changed

    def __str__(self):
        return f"{self.path}:{self.number}: {self.line.strip()}  ->  {self.changed.strip() or ';'}"


def code_of(line):
    """Without comment, and with the inside of literals blanked: same length."""
    blank = lambda found: found[0][0] + " " * (len(found[0]) - 2) + found[0][-1]
    line = re.sub(r'"(?:\\.|[^"\\])*"|' + r"(?<!\w)'(?:\\.|[^'\\])+'", blank, line)
    return line[:line.index("//")] if "//" in line else line


def mutants_of(path):
    out = []
    for number, line in enumerate(open(os.path.join(SOURCE, path)), 1):
        line, code = line.rstrip("\n"), code_of(line.rstrip("\n"))
        if SKIPPED.match(code):
            continue
        add = lambda begin, end, by: out.append(Mutant(path, number, line, line[:begin] + by + line[end:]))
        for what, by in OPERATORS:
            for found in re.finditer(re.escape(what), code):
                if what[0].isalpha() and re.match(r"\w", code[found.end():found.end() + 1] or " "):
                    continue
                add(found.start(), found.end(), by)
        for found in NUMBER.finditer(code):
            if found[2]:
                add(found.start(), found.end(), f"({found[0]} * 2)")
            else:
                add(found.start(), found.end(), "1" if found[0] == "0" else "0" if found[0] == "1" else f"({found[0]} + 1)")
        if STATEMENT.match(code) and not re.match(r"\s*(return|if|for|while|else|const|delete|throw)\b", code):
            add(0, len(line), ";")
    return out


class Part:
    def __init__(self, name, build):
        folder, tests, prefix = PARTS[name]
        self.build, self.name = build, name
        self.sources = sorted(f"{folder}/{f}" for f in os.listdir(os.path.join(SOURCE, folder)) if f.endswith(".cc"))
        names = TESTS.get(name) or sorted(f[:-3] for f in os.listdir(os.path.join(SOURCE, tests)) if f.startswith("test_") and f.endswith(".cc"))
        self.tests = [prefix + test for test in names]
        self.seconds = {}

    def prepare(self):
        subprocess.run(["ninja", "-C", self.build, *self.tests], check=True, stdout=subprocess.DEVNULL)
        commands = json.load(open(os.path.join(self.build, "compile_commands.json")))
        self.compile = {os.path.relpath(c["file"], SOURCE): c["command"] for c in commands}
        self.link = {}
        for test in self.tests:
            said = subprocess.run(["ninja", "-C", self.build, "-t", "commands", "-s", f"bin/{test}"], text=True, stdout=subprocess.PIPE, check=True)
            self.link[test] = next(line for line in reversed(said.stdout.splitlines()) if f"-o bin/{test}" in line)
            began = time.monotonic()
            if self.run(os.path.join(self.build, "bin", test), 600):
                sys.exit(f"{test} fails without a mutant")
            self.seconds[test] = time.monotonic() - began

    def run(self, program, limit):
        try:
            return subprocess.run([program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=limit,
                                  env={**os.environ, **SEEDS.get(self.name, {})}, preexec_fn=lambda: resource.setrlimit(
                                      resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))).returncode
        except subprocess.TimeoutExpired:
            return "too long"

    def compiled(self, path, text, folder):
        """The object, or None."""
        source, made = os.path.join(folder, "mutant.cc"), os.path.join(folder, "mutant.o")
        open(source, "w").write(text)
        words = [w for w in shlex.split(self.compile[path]) if w not in ("-Werror", "ccache")]
        words[words.index("-o") + 1] = made
        words[words.index("-c") + 1] = source
        for flag in ("-MD", "-MMD"):
            if flag in words:
                words.remove(flag)
        for flag in ("-MT", "-MF"):
            if flag in words:
                del words[words.index(flag):words.index(flag) + 2]
        return made if subprocess.run(words + ["-w", "-O1", "-g0"], cwd=self.build, stderr=subprocess.DEVNULL).returncode == 0 else None

    def noticed(self, mutant, folder):
        """The test that fails; "" if none does; None if it does not compile."""
        lines = open(os.path.join(SOURCE, mutant.path)).read().split("\n")
        lines[mutant.number - 1] = mutant.changed
        made = self.compiled(mutant.path, "\n".join(lines), folder)
        if not made:
            return None
        stem = os.path.basename(mutant.path)[:-3]
        for test in sorted(self.tests, key=lambda test: (not test.endswith("test_" + stem), self.seconds[test])):
            # The first definition counts, so the archive's is left where it is.
            program = os.path.join(folder, "program")
            command = re.sub(rf"-o bin/{test}\b", f"-o {program} {made}", self.link[test])
            command = re.sub(r"\s&&.*$", "", re.sub(r"^: && ", "", command))
            if subprocess.run(command, shell=True, cwd=self.build, stderr=subprocess.DEVNULL).returncode:
                return None
            if self.run(program, 10 * self.seconds[test] + 5):
                return test
        return ""


    def try_all(self, mutants, seconds):
        """How many were tried, and noticed; how many do not compile."""
        tried = noticed = other = 0
        end = time.monotonic() + seconds
        with tempfile.TemporaryDirectory() as folder:
            try:
                for mutant in mutants:
                    if time.monotonic() > end:
                        break
                    test = self.noticed(mutant, folder)
                    tried, noticed, other = tried + (test is not None), noticed + bool(test), other + (test is None)
                    if test == "":
                        print(f"not noticed: {mutant}", flush=True)
            except KeyboardInterrupt:
                pass
        return tried, noticed, other


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="so many of each part, at random; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="of the order in which they are tried")
    parser.add_argument("--minutes", type=float, default=float("inf"), metavar="M", help="for each part; then no further one is tried")
    parser.add_argument("--file", help="only this one, as windows.cc")
    parser.add_argument("--at", metavar="FILE:LINE", help="only those of one line")
    parser.add_argument("--build", default=os.path.join(SOURCE, "build/release"), metavar="DIR")
    parser.add_argument("--least", type=float, default=0.9, help="share that has to be noticed")
    options = parser.parse_args()
    if unknown := set(options.part) - set(PARTS):
        parser.error(f"{', '.join(unknown)}: allowed are {', '.join(PARTS)}")
    all_tried = all_noticed = 0
    for name in options.part or PARTS:
        part = Part(name, os.path.abspath(options.build))
        chosen = [m for path in part.sources for m in mutants_of(path)
                  if options.file in (None, os.path.basename(path)) and
                  options.at in (None, f"{os.path.basename(path)}:{m.number}")]
        random.Random(options.seed).shuffle(chosen)
        chosen = chosen[:options.sample or None]
        if not chosen:
            continue
        part.prepare()
        tried, noticed, other = part.try_all(chosen, 60 * options.minutes)
        print(f"{name}: {noticed} of {tried} noticed, {noticed / max(tried, 1):.2f} ({other} do not compile, "
              f"{len(chosen) - tried - other} were not tried)", flush=True)
        all_tried, all_noticed = all_tried + tried, all_noticed + noticed
    print(f"all: {all_noticed} of {all_tried} noticed, {all_noticed / max(all_tried, 1):.2f}")
    sys.exit(all_noticed < options.least * all_tried)


if __name__ == "__main__":
    main()
