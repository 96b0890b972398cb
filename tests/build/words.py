#!/usr/bin/python3
"""Sentences that are hard to read, in the texts of the project and in its comments.

- At most 30 words: in every text (*.md), and in the comments of uct_mp's and pml_glue's headers.
- No sentence begins with Of, Who, What or Likewise, and none has "for who" or "as of": in every text, and in all comments of
  uct_mp and pml_glue. Questions (what ends with ?) may begin so.

A sentence ends with . ! or ? before a space, with a colon at the end of a line, with its paragraph, or with its item
of a list. In a comment it also ends where the comment is alone on its line and the next one stands behind code.
A word is what stands between spaces and has a letter or a digit; `code` counts as one word, and so does a link.
A sentence that begins in the middle of a line of code, without a capital, is none.
Not read: tables, headings, blocks of code, pictures, and lists of names: sentences of which at least half the words
are code.

words_debt.txt has the files with such sentences today: `FILE COUNT`. More of them fail, and so do fewer: the list may
only shrink, and says what is true.
"""
import argparse
import pathlib
import re
import sys

import sources

LIMIT = 30
CODE = ('uct_mp', 'pml_glue')
BEGIN = re.compile(r'[("*_]*(Of|Who|What|Likewise)\b')
PHRASE = re.compile(r'\b(for who|as of)\b', re.IGNORECASE)

CODE_SPAN = re.compile(r'``.+?``|`[^`]*`', re.DOTALL)
LINK = re.compile(r'\[([^\]]*)\]\([^)]*\)')
# Not the end: e.g., i.e., and a number's or a name's own dot, which no space follows.
END = re.compile(r'(?<!\be\.g)(?<!\bi\.e)[.!?][)\]"*_]*(?=\s|$)')
ITEM = re.compile(r'\s*(?:[-*+]|\d+[.)])\s+')
PICTURE = re.compile(r'->\s|<-|--+|\.\.\.\.|[|^]\s{2,}|\s{4,}\S')


def sentences_of(lines):
    """(line, text) of each sentence of a paragraph: [(line number, text)]."""
    text, numbers = '', []
    for number, line in lines:
        for character in line.strip() + '\n':
            text += character
            numbers.append(number)

    def hide(match): # its dots end nothing
        return '`' + re.sub(r'[^\n]', 'x', match[0][1:-1]).replace('\n', 'x') + '`'
    hidden = CODE_SPAN.sub(hide, text)
    assert len(hidden) == len(text)
    begin = 0
    ends = sorted({match.end() for match in END.finditer(hidden)} |
                  {match.end() for match in re.finditer(r':(?=\n)', hidden)} | {len(text)})
    for end in ends:
        part = text[begin:end]
        if part.strip():
            yield numbers[begin + len(part) - len(part.lstrip())], ' '.join(part.split())
        begin = end


def words_of(sentence):
    """(how many words, how many of them are code)."""
    code = len(CODE_SPAN.findall(sentence))
    rest = LINK.sub('link', CODE_SPAN.sub(' ', sentence))
    return code + sum(1 for word in rest.split() if re.search(r'[^\W_]', word)), code


def paragraphs_of_text(text):
    """[(line number, text)] of each paragraph and item of Markdown."""
    current, fenced, blank = [], False, True
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith('```'):
            fenced = not fenced
            line = ''
        stripped = line.strip()
        item = ITEM.match(line)
        # A block of code is indented behind an empty line; an item's second paragraph is not as far.
        code = blank and line.startswith('    ') and not item
        if fenced or code or not stripped or stripped.startswith(('|', '#')):
            if current:
                yield current
            current = []
            blank = blank if code else True
            continue
        if item:
            if current:
                yield current
            current, line = [], line[item.end():]
        current.append((number, line))
        blank = False
    if current:
        yield current


BLOCK = re.compile(r'^(?P<code>(?:[^/"\']|(?<=[0-9a-fA-F])\'(?=[0-9a-fA-F])|"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)+\'|/(?![/*]))*)/\*(?P<text>.*)$')
COMMENT = re.compile(r'^(?P<code>(?:[^/"\']|(?<=[0-9a-fA-F])\'(?=[0-9a-fA-F])|"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)+\'|/(?!/))*)//(?P<text>.*)$')


def paragraphs_of_comments(text):
    """The same of a header's // comments; one that follows code goes on in the lines right below that stand as far right."""
    current, column = [], None
    lines = line_comments(text)

    def take():
        nonlocal current
        result, current = current, []
        return [result] if result else []
    for number, line in enumerate(lines, 1):
        match = COMMENT.match(line)
        if not match:
            yield from take()
            continue
        at, said = len(match['code']), match['text']
        item = ITEM.match(said)
        picture = len(said) - len(said.lstrip()) > 2 and not item and PICTURE.search(said.strip())
        if match['code'].strip() or at != column or not said.strip() or item or picture or said.startswith(' --'):
            yield from take()
        column = at
        if said.strip() and not picture and not said.startswith(' --'):
            current.append((number, said[item.end():] if item else said))
    yield from take()


def line_comments(text):
    """The lines with each /* */ written as // in the same columns, and what follows it on its line left out."""
    inside = False
    for line in text.splitlines():
        if inside:
            stripped = line.lstrip()
            margin = max(len(line) - len(stripped) - 1, 0) if stripped.startswith('*') else at
            said = stripped[1:] if stripped.startswith('*') and not stripped.startswith('*/') else stripped
            at = margin if stripped.startswith('*') else at
            inside = '*/' not in said and not stripped.startswith('*/')
            yield ' ' * at + '//' + ('' if stripped.startswith('*/') else said.split('*/')[0].rstrip())
            continue
        match = BLOCK.match(line)
        if not match:
            yield line
            continue
        at = len(match['code'])
        inside = '*/' not in match['text']
        yield match['code'] + '//' + match['text'].split('*/')[0].lstrip('*').rstrip()


def hard_ones(path, text):
    """[(line, what is wrong, sentence)] of a file."""
    found, header = [], path.endswith(('.h', '.md'))
    for paragraph in paragraphs_of_text(text) if path.endswith('.md') else paragraphs_of_comments(text):
        for line, sentence in sentences_of(paragraph):
            words, code = words_of(sentence)
            begin, phrase = BEGIN.match(sentence), PHRASE.search(CODE_SPAN.sub('``', sentence))
            if header and words > LIMIT and 2 * code < words:
                found.append((line, f'{words} words, {LIMIT} at most', sentence))
            if begin and not sentence.endswith('?'):
                found.append((line, f'begins with "{begin[1]}"', sentence))
            if phrase:
                found.append((line, f'"{phrase[1]}"', sentence))
    return found


def files_of(root):
    return sources.listed(root, suffixes=('.md',)) + sources.listed(root, *CODE)


def check(root, debt, out=print):
    """True if each file has as many long sentences as the list of debts says: none, if it says nothing."""
    allowed, wrong, total = {}, [], 0
    for line in sorted(debt.known):
        match = re.fullmatch(r'(\S+) ([1-9]\d*)', line)
        if match:
            allowed[match[1]] = int(match[2])
        else:
            wrong.append(f'{debt.path.name}: not understood: {line}')
    files = files_of(root)
    for path in files:
        found, most = hard_ones(path, (root / path).read_text()), allowed.pop(path, 0)
        total += len(found)
        if len(found) > most:
            wrong += [f'{path}:{line}: a sentence: {why}: {sentence[:60]}...' for line, why, sentence in found]
            wrong.append(f'{path}: {len(found)} hard sentences, {most} are known ({debt.path.name})')
        elif len(found) < most:
            wrong.append(f'{debt.path.name}: {path} has only {len(found)} hard sentences: say so, or take it from the list')
    wrong += [f'{debt.path.name}: take it from the list, it is not read: {path}' for path in sorted(allowed)]
    for line in wrong:
        out(line)
    out(f'words: {len(files)} files, {total} hard sentences, {len(wrong)} violations')
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--root', type=pathlib.Path, default=sources.ROOT)
    parser.add_argument('--debt', type=pathlib.Path, default=pathlib.Path(__file__).with_name('words_debt.txt'))
    parser.add_argument('--list', action='store_true', help='print every hard sentence, also those that are known')
    parser.add_argument('--count', action='store_true', help='print the list of debts as it would have to be')
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    if arguments.list or arguments.count:
        for path in files_of(root):
            found = hard_ones(path, (root / path).read_text())
            for line, why, sentence in found if arguments.list else []:
                print(f'{path}:{line}: {why}: {sentence}')
            if found and arguments.count:
                print(path, len(found))
        return 0
    return 0 if check(root, sources.Debt(arguments.debt)) else 1


if __name__ == '__main__':
    sys.exit(main())
