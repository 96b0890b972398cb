#!/usr/bin/python3
"""clang-format over every source of the project: exits 1 and names the files that it would change.

Versions differ in what they make of the same settings, so it is version 14 (Debian 12's). Without it: exit code 77,
skipped.
"""
import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys

import sources

AT_ONCE = 40 # files for one call


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--root', type=pathlib.Path, default=sources.ROOT)
    parser.add_argument('--clang-format', default='clang-format')
    parser.add_argument('--jobs', type=int, default=2)
    parser.add_argument('--fix', action='store_true', help='change the files')
    arguments = parser.parse_args()
    skipped = sources.skip('format', arguments.clang_format)
    if skipped is not None:
        return skipped

    files = sources.listed(arguments.root)
    mode = ['-i'] if arguments.fix else ['--dry-run', '-Werror', '--ferror-limit=1']

    def run(part):
        return subprocess.run([arguments.clang_format, *mode, *part], cwd=arguments.root, text=True,
                              capture_output=True)
    parts = [files[at:at + AT_ONCE] for at in range(0, len(files), AT_ONCE)]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        done = list(pool.map(run, parts))
    said = ''.join(each.stdout + each.stderr for each in done)
    places = re.findall(r'^(\S[^:\n]*:\d+):\d+: error: code should be clang-formatted', said, flags=re.MULTILINE)
    for place in sorted(places):
        print(f'{place}: not formatted (tests/build/format.py --fix)')
    if not places and any(each.returncode for each in done):
        print(said)
    print(f'format: {len(files)} files, {len(places)} to be formatted')
    return 1 if any(each.returncode for each in done) else 0


if __name__ == '__main__':
    sys.exit(main())
