#!/usr/bin/python3
"""rooms.py on a small tree that breaks each rule once, and on one that breaks none."""
import pathlib
import tempfile
import unittest

import rooms

RULES = '''
outside tests
tests tests/parts
room base:
contract base: base.h
room middle: base
contract middle: face.h pure_*.h
offer middle to client: watch.h
room client: base middle
room above: base middle
external infiniband/: middle
'''

GOOD = {
    'uct_mp/base/base.h': '#pragma once\n#include <cstdint>\n',
    'uct_mp/middle/face.h': '#include "uct_mp/base/base.h"\n',
    'uct_mp/middle/pure_table.h': '',
    'uct_mp/middle/hidden.h': '',
    'uct_mp/middle/watch.h': '',
    'uct_mp/middle/a.cc': '#include "uct_mp/middle/hidden.h"\n#include <infiniband/verbs.h>\n',
    'uct_mp/client/client.cc': '#include "uct_mp/base/base.h"\n#include "uct_mp/middle/watch.h"\n',
    'uct_mp/above/above.cc': '#include "uct_mp/middle/face.h"\n#include "uct_mp/middle/pure_table.h"\n'
                             '// #include "uct_mp/middle/hidden.h"\n/*\n#include "uct_mp/middle/hidden.h"\n*/\n',
    'tests/all.cc': '#include "uct_mp/middle/face.h"\n#include "neighbour.h"\n',
    'tests/parts/middle/test_hidden.cc': '#include "uct_mp/middle/hidden.h"\n',
}


class Rooms(unittest.TestCase):
    def said(self, files=None, rules=''):
        """What check() says of the good tree with these files and rules added."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**GOOD, 'uct_mp/rooms.txt': RULES + rules, **(files or {})}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            lines = []
            good = rooms.check(root, lines.append)
            self.assertEqual(good, len(lines) == 1)
            return lines[:-1]

    def breaks(self, path, text, *words, rules=''):
        """One violation, told with its place and these words."""
        said = self.said({path: text}, rules)
        self.assertEqual(len(said), 1, said)
        for word in (path + ':', *words):
            self.assertIn(word, said[0])

    def test_good(self):
        self.assertEqual(self.said(), [])

    def test_room_below(self):
        self.breaks('uct_mp/base/base.cc', '\n\n#include "uct_mp/middle/face.h"\n', ':3:',
                    'base may not include middle')

    def test_room_beside(self):
        self.breaks('uct_mp/above/b.cc', '#include "uct_mp/client/client.cc"\n', 'above may not include client')

    def test_private(self):
        self.breaks('uct_mp/above/b.cc', '# include "uct_mp/middle/hidden.h"\n', ':1:', 'private to middle')

    def test_contract_is_not_an_offer(self):
        self.breaks('uct_mp/client/b.cc', '#include "uct_mp/middle/face.h"\n', 'not what middle offers to client')

    def test_offer_is_no_contract(self):
        self.breaks('uct_mp/above/b.cc', '#include "uct_mp/middle/watch.h"\n', 'private to middle')

    def test_outside(self):
        for path in ('tests/other/b.cc', 'tests/middle/b.cc', 'tests/parts/base/b.cc'):
            self.breaks(path, '#include "uct_mp/middle/hidden.h"\n', 'private to middle')

    def test_offer_to_a_folder_outside(self):
        offer = 'offer middle to tests/fuzz: hidden.h\n'
        self.assertEqual(self.said({'tests/fuzz/b.cc': '#include "uct_mp/middle/hidden.h"\n'}, offer), [])
        self.breaks('tests/other/b.cc', '#include "uct_mp/middle/hidden.h"\n', 'private to middle', rules=offer)

    def test_system(self):
        self.breaks('uct_mp/base/b.cc', '#include <infiniband/verbs.h>\n', '<infiniband/verbs.h> is for middle')

    def test_spelling(self):
        self.breaks('uct_mp/base/b.cc', '#include <uct_mp/base/base.h>\n', 'not <uct_mp/base/base.h>')
        self.breaks('uct_mp/base/b.cc', '#include "base.h"\n', 'only "uct_mp/..."')
        self.breaks('tests/b.cc', '#include "../uct_mp/base/base.h"\n', 'full path')

    def test_twice(self):
        self.breaks('uct_mp/above/b.cc', '#include "uct_mp/base/base.h"\n' * 2, ':2:', 'twice')

    def test_missing(self):
        self.breaks('uct_mp/above/b.cc', '#include "uct_mp/base/gone.h"\n', 'there is no', rules='contract base: *\n')

    def test_no_room(self):
        self.breaks('uct_mp/attic/b.cc', '#include "uct_mp/base/base.h"\n', 'in no room')
        self.breaks('uct_mp/attic.h', '#include "uct_mp/base/base.h"\n', 'in no room')
        said = self.said({'uct_mp/attic/c.h': '', 'uct_mp/above/b.cc': '#include "uct_mp/attic/c.h"\n'})
        self.assertEqual(said, ['uct_mp/above/b.cc:1: uct_mp/attic/c.h is in no room'])

    def test_room_within_a_room(self):
        rules = 'room above/tool: base\n'
        self.assertEqual(self.said({'uct_mp/above/tool/t.cc': '#include "uct_mp/base/base.h"\n'}, rules), [])
        self.breaks('uct_mp/above/tool/t.cc', '#include "uct_mp/middle/face.h"\n', 'above/tool may not', rules=rules)

    def test_debt(self):
        bad = {'uct_mp/above/b.cc': '#include "uct_mp/middle/hidden.h"\n'}
        self.assertEqual(self.said(bad, 'debt uct_mp/above/b.cc uct_mp/middle/hidden.h\n'), [])

    def test_paid_debt(self):
        said = self.said({}, 'debt uct_mp/above/b.cc uct_mp/middle/hidden.h\n')
        self.assertEqual(len(said), 1)
        self.assertIn('paid', said[0])

    def test_circle(self):
        said = self.said({}, 'room low: high\nroom high: low\n')
        self.assertEqual(len(said), 1)
        self.assertIn('low may only include rooms that stand above it, not high', said[0])

    def test_questions_about_the_transport(self):
        asks = ['if (config.transport == other) return;', 'if (transport != Transport::dc) return;', 'core_.config.transport',
                'Transport::rc', 'peer.transport == own', 'm.config().transport', 'path_kind_of(transport)', '== p.transport']
        files = {f'uct_mp/middle/ask_{n}.cc': text for n, text in enumerate(asks)}
        files['uct_mp/middle/no_question.h'] = ('connect::Transport transport = connect::Transport::rc;\n// Transport::dc\n'
                                                'a.transport = core.config.transport; b.transport = transport;\n')
        self.assertEqual(self.said(files), [])
        said = self.said({**files, 'uct_mp/middle/one_more.h': 'Transport::dc'})
        self.assertEqual(len(said), 1, said)
        self.assertIn('9 files ask', said[0])

    def test_rules(self):
        for rule, words in {'contract attic: a.h': 'no such room: attic',
                            'contract base: gone.h': 'no uct_mp/base/gone.h', 'offer base to attic: base.h': 'attic',
                            'rooms base: x': 'not understood',
                            'room base:': 'a room already', 'debt uct_mp/base/base.h': 'not understood'}.items():
            said = self.said({}, rule + '\n')
            self.assertEqual(len(said), 1, rule)
            self.assertIn(words, said[0])


if __name__ == '__main__':
    unittest.main()
