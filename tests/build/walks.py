#!/usr/bin/python3
"""The walks of ARCHITECTURE.md: each row of a table names a file below uct_mp and functions that stand in it.

A row is | `FILE` | `FUNCTION`, `FUNCTION` | TEXT |. A function is found if the file has its name before a bracket; of
Class::function the class has to be named in the file, too, or to be declared in the header of the file's name.
"""
import argparse
import pathlib
import re
import sys

import sources

ROW = re.compile(r'^\| `(?P<file>[\w/]+\.(?:h|cc))` \| (?P<functions>`[^|]*`) \|')


def wrong_rows(root, text):
    """"LINE: what is wrong" of each."""
    rows, wrong = 0, []
    for number, line in enumerate(text.splitlines(), 1):
        match = ROW.match(line)
        if not match:
            continue
        rows += 1
        path = root / 'uct_mp' / match['file']
        if not path.is_file():
            wrong.append(f'{number}: there is no uct_mp/{match["file"]}')
            continue
        code = path.read_text()
        for function in re.findall(r'`([^`]*)`', match['functions']):
            name = function.split('::')[-1]
            classes = function.split('::')[:-1]
            header = path.with_suffix('.h')
            known = code + (header.read_text() if header.is_file() else '')
            if not re.search(rf'\b{name}(<[^>(]*>)?\(', code) or not all(re.search(rf'\b{one}\b', known) for one in classes):
                wrong.append(f'{number}: uct_mp/{match["file"]} has no {function}')
    if rows == 0:
        wrong.append('1: no walk is found')
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--root', type=pathlib.Path, default=sources.ROOT)
    root = parser.parse_args().root.resolve()
    wrong = wrong_rows(root, (root / 'ARCHITECTURE.md').read_text())
    for line in wrong:
        print(f'ARCHITECTURE.md:{line}')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
