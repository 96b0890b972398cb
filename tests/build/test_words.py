#!/usr/bin/python3
"""words.py on sentences of each kind, and on a small tree with some that are hard to read."""
import pathlib
import tempfile
import unittest

import sources
import words

THIRTY = ' '.join(['word'] * 30)
LONG = THIRTY + ' more'


def found(path, text):
    """[(line, words, or what is wrong otherwise)]"""
    return [(line, int(why.split()[0]) if 'words' in why else why) for line, why, _ in words.hard_ones(path, text)]


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


class Manners(unittest.TestCase):
    def test_begin(self):
        for word in ('Of', 'Who', 'What', 'Likewise'):
            for path in ('a.md', 'uct_mp/a.cc', 'uct_mp/a.h', 'pml_glue/ompi/a.c'):
                line = '{}' if path.endswith('.md') else '/* {} */' if path.endswith('.c') else '// {}'
                for text in (f'{word} goes.', f'First. {word} goes.', f'First: this. "{word} goes."'):
                    self.assertEqual(found(path, line.format(text) + '\n'), [(1, f'begins with "{word}"')], (path, text))
                for text in (f'{word}ever goes.', f'{word} goes?', f'so {word} goes.', f'`{word}` goes.'):
                    self.assertEqual(found(path, line.format(text) + '\n'), [], (path, text))

    def test_phrases(self):
        for phrase in ('for who', 'as of'):
            for path, text in (('a.md', f'This is {phrase} it is.\n'), ('uct_mp/a.cc', f'int a; // this is {phrase} it is\n'),
                               ('uct_mp/a.h', f'// {phrase.capitalize()}\n// it is.\n')):
                self.assertEqual(found(path, text), [(1, f'"{phrase if path != "uct_mp/a.h" else phrase.capitalize()}"')], path)
        self.assertEqual(found('uct_mp/a.cc', f'// {phrase.split()[0]}\n// {phrase.split()[1]} it.\n'), [(1, '"as of"')])
        self.assertEqual(found('uct_mp/a.cc', '// for whom, as often\n'), [])

    def test_sources(self):
        self.assertEqual(found('uct_mp/a.cc', f'// {LONG}\n'), []) # only headers and texts are held to the length
        self.assertEqual(found('uct_mp/a.cc', 'wait(1\'000); // ms. Who waits goes.\n'), [(1, 'begins with "Who"')])

    def test_blocks(self):
        self.assertEqual(found('pml_glue/a.h', f'/*\n * {LONG}\n */\n'), [(2, 31)])
        self.assertEqual(found('pml_glue/a.h', f'/* {THIRTY}\n * more\n */ int a;\n'), [(1, 31)])
        self.assertEqual(found('pml_glue/a.h', f'/* {THIRTY} */\n/* more */\n'), [(1, 31)]) # as // lines
        self.assertEqual(found('pml_glue/a.h', f'int a; /* {THIRTY}\n          more */\nint b; /* word */\n'), [(1, 31)])
        self.assertEqual(found('pml_glue/a.h', f'/* {THIRTY} */\nint a; /* more */\n'), [])
        self.assertEqual(found('pml_glue/a.h', f'const char* a = "/* {LONG} */";\n'), [])


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
                               'tests/b.h': f'// {LONG}\n', 'tests/b.md': 'Short.\n', 'uct_mp/a.cc': f'// {LONG}\n',
                               **files}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            lines = []
            good = words.check(root, sources.Debt(root / 'debt.txt'), lines.append)
            self.assertEqual(good, len(lines) == 1)
            return lines[:-1]

    def test_clean(self):
        self.assertEqual(self.said(''), [])

    def test_new(self):
        for name, text in (('uct_mp/a.h', f'// {LONG}.\n'), ('pml_glue/a.h', f'// {LONG}.\n'), ('CONTRIBUTING.md', LONG),
                           ('perf/findings/b.md', LONG)):
            said = self.said('', **{name: text})
            self.assertIn(f'{name}:1: a sentence: 31 words, 30 at most', said[0])
            self.assertEqual(len(said), 2)

    def test_debt(self):
        two = f'// {LONG}.\n// {LONG}.\n'
        self.assertEqual(self.said('# known\nuct_mp/a.h 2\n', **{'uct_mp/a.h': two}), [])
        self.assertEqual(len(self.said('uct_mp/a.h 1\n', **{'uct_mp/a.h': two})), 3)
        for debt in ('uct_mp/a.h 3\n', 'uct_mp/a.h 2\ngone.h 1\n', 'uct_mp/a.h 2\nuct_mp/a.h\n'):
            self.assertEqual(len(self.said(debt, **{'uct_mp/a.h': two})), 1, debt)


if __name__ == '__main__':
    unittest.main()
