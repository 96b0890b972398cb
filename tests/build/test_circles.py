#!/usr/bin/python3
"""circles.py on a small tree: what makes an arrow, and what the limits do."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import circles

HEAD = '''#pragma once
#include <functional>
#include <memory>
namespace room {
'''


@unittest.skipIf(circles.load() is None, 'no libclang of this version')
class Circles(unittest.TestCase):
    def said(self, text, limit, more=None):
        """(exit code, lines) of the script on a room with this header, and files that include it."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            (root / 'uct_mp/room').mkdir(parents=True)
            (root / 'build').mkdir()
            (root / 'uct_mp/room/a.h').write_text(HEAD + text + '}\n')
            entries = []
            for name, body in (more or {'a.cc': ''}).items():
                file = root / 'uct_mp/room' / name
                file.write_text('#include "uct_mp/room/a.h"\nnamespace room {\n' + body + '}\n')
                entries.append({'directory': folder, 'file': str(file),
                                'command': f'/usr/bin/c++ -std=c++20 -I{root} -o x.o -c {file}'})
            (root / 'build/compile_commands.json').write_text(json.dumps(entries))
            (root / 'limits.txt').write_text(f'# a comment\nroom {limit}\n')
            arguments = ['x', '--root', str(root), '--build', str(root / 'build'), '--limits',
                         str(root / 'limits.txt'), '--jobs', '1']
            output = io.StringIO()
            with mock.patch.object(sys, 'argv', arguments), contextlib.redirect_stdout(output):
                code = circles.main()
            return code, output.getvalue().splitlines()

    def size(self, text, more=None):
        code, lines = self.said(text, 0, more)
        self.assertEqual(code, 1, lines)
        return int(lines[0].split('has ')[1].split()[0])

    def test_limits(self):
        pair = 'struct B; struct A { B* b; }; struct B { A* a; };'
        self.assertEqual(self.said(pair, 2)[0], 0)
        code, lines = self.said(pair, 1)
        self.assertEqual(code, 1)
        self.assertIn('  2: A B', lines)
        code, lines = self.said(pair, 3)
        self.assertEqual(code, 1)
        self.assertIn('lower the limit of room to 2', lines[-1])

    def test_calls_through_an_owner(self):
        self.assertEqual(self.size('struct All; struct A { All& all; void f(); }; struct B { All& all; void g(); };'
                                   'struct All { A a{*this}; B b{*this}; };',
                                   {'a.cc': 'void A::f() { all.b.g(); }', 'b.cc': 'void B::g() { all.a.f(); }'}), 2)

    def test_owning_is_no_arrow(self):
        self.assertEqual(self.size('struct A { void* p; }; struct B { A a; std::unique_ptr<A> other; };'), 1)

    def test_virtual_calls(self):
        self.assertEqual(self.size('struct Base { virtual void f() = 0; }; struct User { Base& base; void g() '
                                   '{ base.f(); } }; struct Made final : Base { User& user; void f() override; };',
                                   {'a.cc': 'void Made::f() { user.g(); }'}), 3)

    def test_callbacks(self):
        call = 'struct A { void f({}); }}; struct B {{ A& a; void g() {{ a.f([] {{}}); }} }};'
        self.assertEqual(self.size(call.replace('{{', '{').replace('}}', '}').replace(
            '({})', '(const std::function<void()>& what)')), 2)

    def test_free_functions_pass_on(self):
        self.assertEqual(self.size('struct A { void f(); }; void between(A& a); struct B { void g(); };',
                                   {'a.cc': 'void A::f() { B().g(); }', 'b.cc':
                                    'void between(A& a) { a.f(); } void B::g() { A a; between(a); }'}), 2)

    def test_local_names_in_common(self):
        self.assertEqual(self.size('struct A { void f(); };',
                                   {'a.cc': 'static int x() { return 1; } void A::f() { x(); }',
                                    'b.cc': 'static int x() { return 2; } int y() { return x(); }'}), 1)


if __name__ == '__main__':
    if circles.load() is None:
        sys.exit(77) # skipped: no libclang
    unittest.main()
