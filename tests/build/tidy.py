#!/usr/bin/python3
"""clang-tidy over the transport, a room at a time; any finding fails that is not in tidy_debt.txt (FILE [check]).

Most of clang-tidy's time goes into the headers of the system. So the files of one folder that are compiled alike are
put one behind the other and checked as one file. Findings are told by their own file and line. Files that can't stand
in one translation unit (two have a local name in common) are checked apart. Without --all the static analyser is left
out: it takes ten times as long.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import sources

# Left out: the analyser for its time; duplicates, since files that stand in one include the same (rooms.py finds them).
QUICK = '-clang-analyzer-*,-readability-duplicate-include'
FINDING = re.compile(r'^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?P<column>\d+): (?P<kind>warning|error): (?P<text>.*)$')


def flags_of(entry):
    """The compiler's flags of an entry of compile_commands.json, as clang understands them."""
    words = shlex.split(entry['command'])
    kept, skip = [], True # the compiler, and what launches it
    for position, word in enumerate(words):
        if skip and not word.startswith('-'):
            continue
        skip = False
        if word in ('-c', '-Werror', entry['file']) or word == '-o' or words[position - 1] == '-o':
            continue
        # Precompiled headers are the compiler's own format (cmake/Precompiled.cmake).
        following = words[position + 1] if position + 1 < len(words) else ''
        if word == '-Winvalid-pch' or word.endswith('/cmake_pch.hxx') or word == '-include' and following.endswith('/cmake_pch.hxx'):
            continue
        kept.append(word)
    return tuple(kept)


def groups_of(build, root, folders):
    """{(folder, flags): [file]} of the translation units below the folders."""
    groups = collections.defaultdict(set)
    for entry in json.loads((build / 'compile_commands.json').read_text()):
        path, paths = pathlib.Path(entry['file']), [pathlib.Path(entry['file'])]
        if path.parent.name == 'Unity': # cmake has made one unit of several
            paths = [pathlib.Path(name) for name in re.findall(r'^#include "(.+)"', path.read_text(), re.M)]
        for path in paths:
            if path.is_relative_to(root) and any(path.is_relative_to(root / folder) for folder in folders):
                groups[(str(path.parent.relative_to(root)), flags_of(entry))].add(str(path.relative_to(root)))
    # A file that is compiled twice is checked once.
    seen, result = set(), []
    for (folder, flags), files in sorted(groups.items()):
        files = sorted(files - seen)
        seen.update(files)
        if files:
            result.append((folder, flags, files))
    return result


class Tidy:
    def __init__(self, arguments, root):
        self.root = root
        self.build = arguments.build.resolve()
        self.program = arguments.clang_tidy
        self.checks = '' if arguments.all else QUICK
        self.scratch = self.build / 'tidy'
        self.scratch.mkdir(exist_ok=True)

    def run(self, name, flags, files):
        """Findings [(file, line, column, text, excerpt)] of the files as one unit, and the files with errors."""
        where = []
        if len(files) == 1:
            unit = self.root / files[0]
        else:
            unit = self.scratch / (name.replace('/', '_') + '.cc')
            with unit.open('w') as output:
                for file in files:
                    lines = (self.root / file).read_text().splitlines()
                    output.write('\n'.join(lines) + '\n')
                    where += [(file, number) for number in range(1, len(lines) + 1)]
        command = [self.program, '--quiet', f'--config-file={self.root}/.clang-tidy',
                   f'--header-filter=^{re.escape(str(self.root))}/(uct_mp|pml_glue)/', str(unit)]
        if self.checks:
            command.insert(1, f'--checks={self.checks}')
        done = subprocess.run([*command, '--', *flags, '-Wno-unknown-warning-option'], cwd=self.build, text=True,
                              capture_output=True)
        if done.returncode and not FINDING.search(done.stdout) and 'error' not in done.stdout:
            raise SystemExit(f'tidy: {self.program} failed on {unit}:\n{done.stdout}{done.stderr}')

        def place(match):
            file, line = match[1], int(match[2])
            if where and file == str(unit):
                file, line = where[line - 1]
            else:
                file = os.path.relpath(file, self.root) if file.startswith(str(self.root) + '/') else file
            return f'{file}:{line}:'
        output = re.sub(r'^(/[^:\n]+):(\d+):', place, done.stdout, flags=re.MULTILINE)
        findings, broken, current = [], set(), None
        for line in output.splitlines():
            match = FINDING.match(line)
            if match:
                current = []
                findings.append((match['file'], int(match['line']), int(match['column']),
                                 f"{match['kind']}: {match['text']}", current))
                if match['kind'] == 'error' and match['text'].endswith('[clang-diagnostic-error]'):
                    broken.add(match['file'])
            elif current is not None:
                current.append(line)
        return findings, broken

    def check(self, group):
        """As one; else those that don't fit as a second one; else these each by itself."""
        folder, flags, files = group
        findings, broken = self.run(folder, flags, files)
        if len(files) == 1 or not broken:
            return findings
        rest = [file for file in files if file not in broken]
        if not rest or not broken.issubset(files):
            return [finding for file in files for finding in self.run(file, flags, [file])[0]]
        findings, still = self.run(folder, flags, rest)
        if still:
            return [finding for file in files for finding in self.run(file, flags, [file])[0]]
        for file in sorted(broken):
            findings += self.run(file, flags, [file])[0]
        return findings


def as_debt(finding):
    """A line of tidy_debt.txt: the file and the check."""
    return f"{finding[0]} {finding[3][finding[3].rfind('['):]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folders', nargs='*', default=['uct_mp', 'pml_glue'], help='default: uct_mp pml_glue')
    parser.add_argument('--root', type=pathlib.Path, default=sources.ROOT)
    parser.add_argument('--build', type=pathlib.Path, default=sources.ROOT / 'build/release')
    parser.add_argument('--clang-tidy', default='clang-tidy')
    parser.add_argument('--debt', type=pathlib.Path, default=pathlib.Path(__file__).with_name('tidy_debt.txt'))
    parser.add_argument('--jobs', type=int, default=2)
    parser.add_argument('--all', action='store_true',
                        help="every check of .clang-tidy, the analyser's too, file by file")
    arguments = parser.parse_args()
    skipped = sources.skip('tidy', arguments.clang_tidy)
    if skipped is not None:
        return skipped

    root = arguments.root.resolve()
    groups = groups_of(arguments.build, root, [folder.rstrip('/') for folder in arguments.folders])
    if not groups:
        raise SystemExit(f'tidy: nothing to check in {arguments.build}/compile_commands.json')
    if arguments.all:
        groups = [(folder, flags, [file]) for folder, flags, files in groups for file in files]
    groups.sort(key=lambda group: -len(group[2])) # the longest first
    tidy = Tidy(arguments, root)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        findings = {finding[:4]: finding[4] for part in pool.map(tidy.check, groups) for finding in part}
    debt = sources.Debt(arguments.debt)
    new, paid = debt.settle(as_debt(finding) for finding in findings)
    # Not what this run has not looked at: other folders, or all of ucx in a build of the core alone.
    looked = {folder for folder, _, _ in groups}
    paid = [line for line in paid if not arguments.all and
            (os.path.dirname(line.split()[0]) in looked or not (root / line.split()[0]).exists())]
    for finding, excerpt in sorted(findings.items()):
        if as_debt(finding) in new or arguments.all:
            print('{}:{}:{}: {}'.format(*finding), *excerpt, sep='\n')
    debt.complain(paid)
    print(f'tidy: {sum(len(files) for _, _, files in groups)} files, {len(findings)} findings, {len(new)} new')
    return 1 if new or paid else 0


if __name__ == '__main__':
    sys.exit(main())
