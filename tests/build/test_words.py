#!/usr/bin/python3
"""words.py on sentences of each kind, and on a small tree with one that is too long."""
import pathlib
import tempfile
import unittest

import sources
import words

THIRTY = ' '.join(['word'] * 30)
LONG = THIRTY + ' more'


def found(path, text):
    return [(line, count) for line, count, _ in words.long_ones(path, text)]


class Texts(unittest.TestCase):
    def long(self, text, *expected):
        self.assertEqual(found('a.md', text), list(expected), text)

    def test_limit(self):
        self.long(THIRTY + '.\n')
        self.long(LONG + '.\n', (1, 31))
        self.long(LONG + '\n', (1, 31)) # the paragraph ends it
        self.long('Short. ' + LONG.replace(' ', '\n') + '.\n', (1, 31))
        self.long('Short.\n\n' + LONG + '.\n', (3, 31))
        self.long(f'{THIRTY}.\n{THIRTY}! {THIRTY}? "{THIRTY}." ({THIRTY}.)\n')

    def test_ends(self):
        self.long(f'word:\n{THIRTY}\n')
        self.long(f'word: {THIRTY}\n', (1, 31))
        for text in ('word.h', '1.5', 'e.g.', '`a. b`'): # no end in these
            self.long(f'{text} {THIRTY}\n', (1, 31))

    def test_words(self):
        self.long(f'{THIRTY[5:]} `several words of code`.\n')
        self.long(f'{THIRTY} `code`.\n', (1, 31))
        self.long(f'{THIRTY[5:]} [a link of words](where/it/leads.md).\n')
        self.long(f'{THIRTY} - / + = -> .\n')

    def test_items(self):
        self.long(f'word\n- {THIRTY}\n- {THIRTY}\n1. {THIRTY}\n  word\n', (4, 31))
        self.long(f'- word\n  {THIRTY}\n', (1, 31))

    def test_not_read(self):
        self.long(f'| {LONG} |\n')
        self.long(f'# {LONG}\n')
        self.long(f'```\n{LONG}\n\n{LONG}\n```\n{LONG}\n', (6, 31))
        self.long(f'word\n\n    {LONG}\n\n    {LONG}\n\n{LONG}\n', (7, 31))
        self.long(' '.join(['`a`, word'] * 16) + '\n')
        self.long(' '.join(['`a`, word'] * 16) + ' word\n', (1, 33)) # less than half of it


class Headers(unittest.TestCase):
    def long(self, text, *expected):
        self.assertEqual(found('uct_mp/room/a.h', text), list(expected), text)

    def test_comments(self):
        self.long(f'// {THIRTY}\n')
        self.long(f'// {LONG}\n', (1, 31))
        self.long(f'// {THIRTY}\n// more\nint a;\n', (1, 31))
        self.long(f'// {THIRTY}\n//\n// more\n')
        self.long(f'// {THIRTY}\nint a; // more\n')
        self.long(f'    // {THIRTY}\n    int a;  // word\n            // {LONG}\n', (2, 32))
        self.long(f'int a; // {THIRTY}\nint b; // more\n')
        self.long(f'// - {THIRTY}\n// - {THIRTY}\n//   more\n', (2, 31))
        self.long(f'// word\n// -- {LONG}\n// {THIRTY}\n')
        self.long(f'//   a -> b    {LONG}\n')

    def test_code(self):
        self.long(f'const char* a = "// {LONG}";\nchar b = \'"\'; // {LONG}\n', (2, 31))
        self.long(f'{LONG}\n')


class Trees(unittest.TestCase):
    def said(self, debt, **files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            for name, text in {'debt.txt': debt, 'CONTRIBUTING.md': 'Short.\n', 'uct_mp/a.h': '// Short.\n',
                               'tests/b.h': f'// {LONG}\n', 'uct_mp/a.cc': f'// {LONG}\n', **files}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            lines = []
            good = words.check(root, sources.Debt(root / 'debt.txt'), lines.append)
            self.assertEqual(good, len(lines) == 1)
            return lines[:-1]

    def test_clean(self):
        self.assertEqual(self.said(''), [])

    def test_new(self):
        for name, text in (('uct_mp/a.h', f'// {LONG}.\n'), ('CONTRIBUTING.md', LONG)):
            said = self.said('', **{name: text})
            self.assertIn(f'{name}:1: a sentence of 31 words', said[0])
            self.assertEqual(len(said), 2)

    def test_debt(self):
        two = f'// {LONG}.\n// {LONG}.\n'
        self.assertEqual(self.said('# known\nuct_mp/a.h 2\n', **{'uct_mp/a.h': two}), [])
        self.assertEqual(len(self.said('uct_mp/a.h 1\n', **{'uct_mp/a.h': two})), 3)
        for debt in ('uct_mp/a.h 3\n', 'uct_mp/a.h 2\ngone.h 1\n', 'uct_mp/a.h 2\nuct_mp/a.h\n'):
            self.assertEqual(len(self.said(debt, **{'uct_mp/a.h': two})), 1, debt)


if __name__ == '__main__':
    unittest.main()
