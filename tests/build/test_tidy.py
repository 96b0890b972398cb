#!/usr/bin/python3
"""tidy.py and format.py on a small tree: findings are told by their own place, whatever was checked together."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import format as formatter
import sources
import tidy

FILES = {
    '.clang-tidy': 'Checks: "-*,modernize-use-override,clang-analyzer-core.NullDereference"\n',
    '.clang-format': 'BasedOnStyle: LLVM\n',
    'uct_mp/room/a.h': '#pragma once\nstruct Base {\n  virtual void f();\n  virtual ~Base();\n};\n',
    'uct_mp/room/a.cc': '#include "uct_mp/room/a.h"\nstatic int same() { return 1; }\nint a() { return same(); }\n',
    'uct_mp/room/b.cc': '#include "uct_mp/room/a.h"\nint b() { return 2; }\n',
    'uct_mp/room/c.cc': '#include "uct_mp/room/a.h"\nint c() { return 3; }\n',
}
PRECOMPILED = '-Winvalid-pch -include /nowhere/cmake_pch.hxx' # no file that clang could read
FINDING = 'struct {}B : Base {{\n  virtual void f();\n}};\n' # on its second line


class Tree(unittest.TestCase):
    def said(self, script, files=None, debt='', arguments=()):
        """(exit code, lines) of a script on the tree with these files added."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            entries = []
            for name, text in {**FILES, **(files or {}), 'debt.txt': debt}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
                if name.endswith('.cc'):
                    command = f'/usr/bin/ccache /usr/bin/c++ -I{root} -Werror {PRECOMPILED} -o x.o -c {root / name}'
                    entries.append({'directory': folder, 'file': str(root / name), 'command': command})
            (root / 'build').mkdir()
            (root / 'build/compile_commands.json').write_text(json.dumps(entries))
            common = ['x', '--root', str(root)]
            if script is tidy:
                common += ['--build', str(root / 'build'), '--debt', str(root / 'debt.txt')]
            output = io.StringIO()
            with mock.patch.object(sys, 'argv', [*common, *arguments]), contextlib.redirect_stdout(output):
                code = script.main()
            return code, output.getvalue().splitlines()


@unittest.skipIf(sources.version_of('clang-tidy') != sources.LLVM, 'no clang-tidy of this version')
class Tidy(Tree):
    def places(self, files, **more):
        code, lines = self.said(tidy, files, **more)
        found = [':'.join(line.split(':')[:2]) for line in lines if 'warning:' in line or 'error:' in line]
        self.assertEqual(code, 1 if found else 0, lines)
        return found

    def test_clean(self):
        self.assertEqual(self.places({}), [])

    def test_place(self):
        found = self.places({'uct_mp/room/b.cc': FILES['uct_mp/room/b.cc'] + FINDING.format(''),
                             'uct_mp/room/d.h': '#include "uct_mp/room/a.h"\n' + FINDING.format('Header'),
                             'uct_mp/room/d.cc': '#include "uct_mp/room/d.h"\n',
                             'uct_mp/room/e.cc': '#include "uct_mp/room/d.h"\n'})
        self.assertEqual(found, ['uct_mp/room/b.cc:4', 'uct_mp/room/d.h:3'])

    def test_names_that_clash(self):
        clash = FILES['uct_mp/room/a.cc'].replace('int a()', 'int d()')
        found = self.places({'uct_mp/room/d.cc': clash + FINDING.format('Late'),
                             'uct_mp/room/b.cc': clash.replace('d()', 'b()'),
                             'uct_mp/room/c.cc': FILES['uct_mp/room/c.cc'] + FINDING.format('')})
        self.assertEqual(found, ['uct_mp/room/c.cc:4', 'uct_mp/room/d.cc:5'])

    def test_does_not_compile(self):
        self.assertEqual(self.places({'uct_mp/room/b.cc': 'int b() { return nothing; }\n'}), ['uct_mp/room/b.cc:1'])

    def test_debt(self):
        bad = {'uct_mp/room/b.cc': FILES['uct_mp/room/b.cc'] + FINDING.format('')}
        line = 'uct_mp/room/b.cc [modernize-use-override]\n'
        self.assertEqual(self.places(bad, debt=line), [])
        code, lines = self.said(tidy, {}, debt=line)
        self.assertEqual(code, 1)
        self.assertIn('paid', lines[0])
        elsewhere = {'uct_mp/other/a.h': ''}
        self.assertEqual(self.places(elsewhere, debt=line.replace('room/b.cc', 'other/a.h')), []) # nobody has looked

    def test_analyser(self):
        bad = {'uct_mp/room/b.cc': 'int b() {\n  int *p = nullptr;\n  return *p;\n}\n'}
        self.assertEqual(self.places(bad), [])
        self.assertEqual(self.places(bad, arguments=['--all']), ['uct_mp/room/b.cc:3'])


@unittest.skipIf(sources.version_of('clang-format') != sources.LLVM, 'no clang-format of this version')
class Format(Tree):
    def test_clean(self):
        self.assertEqual(self.said(formatter)[0], 0)

    def test_place(self):
        code, lines = self.said(formatter, {'uct_mp/room/b.cc': '// fine\nint  b;\n'})
        self.assertEqual(code, 1)
        self.assertIn('uct_mp/room/b.cc:2: not formatted', lines[0])


class Missing(Tree):
    def test_skipped(self):
        for script, option in ((tidy, '--clang-tidy'), (formatter, '--clang-format')):
            for environment, expected in (({}, sources.SKIPPED), ({'CI': '1'}, 1)):
                with mock.patch.dict(sources.os.environ, environment):
                    if not environment:
                        sources.os.environ.pop('CI', None)
                    self.assertEqual(self.said(script, arguments=[option, '/bin/true'])[0], expected)


if __name__ == '__main__':
    unittest.main()
