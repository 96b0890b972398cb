#!/usr/bin/python3
"""config/variables.md has every parameter of pml_glue's components, with its default, and no other.

A parameter is `VARIABLE = DEFAULT;` before `parameter("NAME"` or before mca_base_component_var_register(..., "NAME"; its component
is that of the file's name. A row of the table is | `COMPONENT_NAME` | `DEFAULT` | TEXT |.
"""
import argparse
import pathlib
import re
import sys

import sources

FILES = ('pml_glue/ompi/pml_mp_component.c', 'pml_glue/ompi/osc_mp_component.c', 'pml_glue/ompi/coll_mp.c')
PAGE = 'config/variables.md'
GIVEN = re.compile(r'\b\w+\.\w+ = (?P<value>[^;=]+);\s*(?:parameter\(|\(void\)mca_base_component_var_register\(\s*[^"]*?,)\s*"(?P<name>\w+)"')
CALL = re.compile(r'(?:\bparameter\(\s*|\bmca_base_component_var_register\(\s*[^",;]*,\s*)"')
ROW = re.compile(r'^\| `(?P<name>(?:pml|osc|coll)_mp_\w+)` \| `(?P<value>[^`]*)` \|', re.MULTILINE)


def value_of(text):
    """As a user would write it: a string without quotes, a number in decimals."""
    text = re.sub(r'^\([\w ]+\)', '', text.strip())
    shift = re.fullmatch(r'(\d+)\s*<<\s*(\d+)', text)
    return str(int(shift[1]) << int(shift[2])) if shift else text.strip('"')


def wrong(root):
    known, complaints = {}, []
    for path in FILES:
        code, component = (root / path).read_text(), '_'.join(pathlib.Path(path).stem.split('_')[:2])
        found = {f'{component}_{match["name"]}': value_of(match['value']) for match in GIVEN.finditer(code)}
        if len(found) != len(CALL.findall(code)):
            complaints.append(f'{path}: {len(CALL.findall(code))} parameters are made, {len(found)} are understood')
        known |= found
    rows = [(match['name'], match['value']) for match in ROW.finditer((root / PAGE).read_text())]
    for name, value in sorted(known.items()):
        if (name, value) not in rows:
            complaints.append(f'{PAGE}: {name} with its default, {value}, has no row')
    complaints += [f'{PAGE}: no component has this parameter: {name}' for name, _ in rows if name not in known]
    complaints += [f'{PAGE}: {name} has two rows' for name, _ in set(rows) if [one for one, _ in rows].count(name) > 1]
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--root', type=pathlib.Path, default=sources.ROOT)
    complaints = wrong(parser.parse_args().root.resolve())
    for line in complaints:
        print(line)
    return 1 if complaints else 0


if __name__ == '__main__':
    sys.exit(main())
