#!/usr/bin/python3
"""How large classes and files may be: 60 lines for a class of the transport, 500 for a source file of the project.

The size of a class (class, struct or union with a body) is the number of lines on which there is
  - a declaration of a data member, static ones included: all of its lines, with its initialiser, or
  - a declaration of a function in a public section: from `template` or its first word up to its body or `;`.
Not counted: comments, empty lines, bodies of functions, functions in private and protected sections, access specifiers,
types (each nested class is counted by itself), using, friend, static_assert. Members of an unnamed struct or union
count for the class around it. Two declarations on one line are one line.

size_debt.txt has what is larger today: `class FILE NAME LINES` and `file FILE LINES`. More lines than that fail, and so
does an entry that has come below the limit.
"""
import argparse
import collections
import pathlib
import re
import sys

import sources

CLASS_LIMIT, FILE_LIMIT = 60, 500
CLASS_FOLDERS = ('uct_mp', 'pml_glue')
FILE_SUFFIXES = sources.CODE + ('.py',)

Token = collections.namedtuple('Token', 'text line')
Class = collections.namedtuple('Class', 'name line size')

TOKEN = re.compile(r'[A-Za-z_]\w*|\d[\w.\']*|::|->\*?|<=>|<<=?|[-+*/%&|^=!<>]=|&&|\|\||\.\.\.|\[\[|\]\]|[^\s]')
KEYS = ('class', 'struct', 'union')
ATTRIBUTES = ('alignas', '__attribute__', '__declspec')
CLOSING = {'(': ')', '[': ']', '{': '}', '[[': ']]'}


def tokens_of(text):
    """Without comments, strings' contents and directives. Of #if ... #else, both sides."""
    text = sources.without_comments(text)
    text = re.sub(r'^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', lambda match: '\n' * match[0].count('\n'), text, flags=re.MULTILINE)
    result, line, position = [], 1, 0
    for match in TOKEN.finditer(text):
        line += text.count('\n', position, match.start())
        position = match.start()
        result.append(Token(match[0], line))
    return result


class Reader:
    """Finds every class definition of a file, those within functions as well."""

    def __init__(self, text):
        self.tokens = tokens_of(text)
        self.classes = []

    def text(self, at):
        return self.tokens[at].text if at < len(self.tokens) else ''

    def past(self, at):
        """Behind the bracket that closes the one at `at`."""
        pairs, depth = CLOSING, []
        while at < len(self.tokens):
            text = self.text(at)
            if text in pairs:
                depth.append(pairs[text])
            elif text == ']]' and depth and depth[-1] == ']': # a[b[0]]
                depth.pop()
                if depth:
                    depth.pop()
            elif depth and text == depth[-1]:
                depth.pop()
            at += 1
            if not depth:
                return at
        return at

    def past_angles(self, at):
        """Behind the > that closes the < at `at`: of a template's list, where nothing compares."""
        depth = 0
        while at < len(self.tokens):
            text = self.text(at)
            if text in CLOSING:
                at = self.past(at)
                continue
            depth += {'<': 1, '>': -1}.get(text, 0)
            at += 1
            if depth <= 0:
                break
        return at

    def head(self, at):
        """(name, place of the body's {) of the class definition whose key stands at `at`; None if it is none."""
        if self.text(at) not in KEYS or (at and self.text(at - 1) in ('enum', '<', ',')):
            return None
        at += 1
        name = ''
        while at < len(self.tokens):
            text = self.text(at)
            if text in ATTRIBUTES or text == '[[':
                at = self.past(at + (text != '[['))
            elif text == '<' and name:
                end = self.past_angles(at)
                name += ''.join(token.text for token in self.tokens[at:end])
                at = end
            elif text == '::' or re.match(r'[A-Za-z_]', text) and (not name or name.endswith('::')):
                name += text
                at += 1
            elif text == 'final':
                at += 1
            else:
                break
        if self.text(at) == ':' and self.text(at - 1) not in ('', *KEYS):
            while at < len(self.tokens) and self.text(at) not in ('{', ';', ')', '='):
                if self.text(at) == '<':
                    at = self.past_angles(at)
                elif self.text(at) in CLOSING:
                    at = self.past(at)
                else:
                    at += 1
        return (name, at) if self.text(at) == '{' else None

    def scan(self, at, end):
        """Everything that is not directly in a class: namespaces, functions' bodies."""
        while at < end:
            head = self.head(at)
            if head:
                at = self.body(head[0], at, head[1])[0]
            else:
                at += 1

    def body(self, name, key, opening, outer=''):
        """Counts the class; returns what stands behind its }, and its lines."""
        full = f'{outer}::{name}' if outer and name else outer or name
        end = self.past(opening)
        lines = set()
        public = self.text(key) != 'class'
        at = opening + 1
        while at < end - 1:
            if self.text(at) in ('public', 'private', 'protected') and self.text(at + 1) == ':':
                public = self.text(at) == 'public'
                at += 2
            elif self.text(at) == ';':
                at += 1
            else:
                at = self.member(at, end - 1, full, public, lines)
        if name:
            self.classes.append(Class(full, self.tokens[key].line, len(lines)))
        return end, lines

    def member(self, at, end, full, public, lines):
        """One declaration; its lines are added to `lines` if they count. Returns what stands behind it."""
        start = at
        while self.text(at) == 'template' and self.text(at + 1) == '<':
            at = self.past_angles(at + 1)
            if self.text(at) == 'requires':
                at += 1
                joints = ('<', '(', '::', '&&', '||')
                while at < end and (self.text(at) in joints or self.text(at + 1) in joints):
                    at = {'(': self.past, '<': self.past_angles}.get(self.text(at), lambda at: at + 1)(at)
        while self.text(at) == '[[':
            at = self.past(at)
        first = self.text(at)
        if first in ('using', 'friend', 'static_assert', 'typedef', 'enum', 'template'):
            return self.past_declaration(at, end)[0]
        position = at
        while self.text(position) in ('static', 'inline', 'mutable', 'const', 'constexpr', 'volatile', 'typedef'):
            position += 1
        head = self.head(position)
        if head:
            behind, inner = self.body(head[0], position, head[1], full)
            if not head[0]: # struct {...} a; and union {...};
                lines |= inner
            if behind < end and self.text(behind) != ';':
                after = self.past_declaration(behind, end)[0]
                lines.update(token.line for token in self.tokens[behind:after])
                return after
            return behind
        if first in KEYS and self.text(at + 2) == ';': # announced, no more
            return at + 3
        after, is_function, counted = self.past_declaration(at, end)
        if public or not is_function:
            lines.update(token.line for token in self.tokens[start:counted])
        return after

    def past_declaration(self, at, end):
        """(behind the declaration, whether of a function, behind what counts of it)."""
        is_function = False
        while at < end:
            text = self.text(at)
            if text == 'operator':
                is_function = True
                at += 1
                while self.text(at) not in ('(', ''): # operator== and operator bool
                    at += 1
                if self.text(at + 1) == ')' and self.text(at + 2) == '(': # operator()
                    at += 2
                at = self.past(at)
            elif text in (*ATTRIBUTES, 'decltype', 'noexcept', 'explicit', 'requires') and self.text(at + 1) == '(':
                at = self.past(at + 1)
            elif text == '(':
                # int (*call)(int): data, unless a function returns it
                inside = [self.text(at + ahead) for ahead in (1, 2, 3)]
                pointer = inside[0] in ('*', '&', '&&') or inside[1:] == ['::', '*']
                if not is_function and not pointer:
                    is_function = True
                elif not is_function:
                    at = self.past(at)
                at = self.past(at)
            elif text == '<' and not is_function:
                at = self.past_angles(at)
            elif text in ('[', '[['):
                at = self.past(at)
            elif text == ';':
                return at + 1, is_function, at + 1
            elif text == '=':
                while at < end and self.text(at) != ';':
                    at = self.through(at)
                return at + 1, is_function, at + 1
            elif text == ':' and is_function: # a constructor's initialisers
                counted = at
                at += 1
                while at < end:
                    while self.text(at) not in ('(', '{', ''):
                        at = self.past_angles(at) if self.text(at) == '<' else at + 1
                    at = self.past(at)
                    if self.text(at) == '...':
                        at += 1
                    if self.text(at) != ',':
                        break
                self.scan(at, self.past(at))
                return self.past(at), True, counted
            elif text == '{' and is_function:
                self.scan(at, self.past(at))
                return self.past(at), True, at
            elif text == '{':
                at = self.through(at)
            else:
                at += 1
        return end, is_function, end

    def through(self, at):
        """One token, or brackets with everything in them: classes in a lambda are found."""
        if self.text(at) not in CLOSING:
            return at + 1
        behind = self.past(at)
        self.scan(at + 1, behind)
        return behind


def classes_of(text):
    reader = Reader(text)
    reader.scan(0, len(reader.tokens))
    return sorted(reader.classes, key=lambda found: found.line)


def check(root, debt, out=print):
    """True if nothing is larger than it may be."""
    allowed = {}
    wrong = []
    for line in sorted(debt.known):
        words = line.split()
        if (words[0], len(words)) not in (('class', 4), ('file', 3)) or not words[-1].isdigit():
            wrong.append(f'{debt.path.name}: not understood: {line}')
        else:
            allowed[tuple(words[:-1])] = int(words[-1])
    owed, counts = set(), collections.Counter()

    def measure(key, size, limit, where, what):
        counts[key[0]] += 1
        if size > limit:
            owed.add(key)
            if size > allowed.get(key, limit):
                wrong.append(f'{where}: {what} {size} lines, {allowed.get(key, limit)} at most '
                             f"({debt.path.name}: {' '.join(key)} {size})")
    for path in sources.listed(root, suffixes=FILE_SUFFIXES):
        text = (root / path).read_text()
        measure(('file', path), text.count('\n'), FILE_LIMIT, f'{path}:{FILE_LIMIT}', 'the file has')
        if path.startswith(tuple(folder + '/' for folder in CLASS_FOLDERS)):
            for found in classes_of(text):
                measure(('class', path, found.name), found.size, CLASS_LIMIT, f'{path}:{found.line}',
                        f'{found.name} has data members and public functions on')
    wrong += [f"{debt.path.name}: paid, take it from the list: {' '.join(key)}"
              for key in sorted(allowed.keys() - owed)]
    for line in wrong:
        out(line)
    out(f"classes: {counts['class']} classes, {counts['file']} files, {len(owed)} debts, {len(wrong)} violations")
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--root', type=pathlib.Path, default=sources.ROOT)
    parser.add_argument('--debt', type=pathlib.Path, default=pathlib.Path(__file__).with_name('size_debt.txt'))
    parser.add_argument('--list', action='store_true', help='print every class with its size, the largest first')
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    if arguments.list:
        found = [(each.size, path, each) for path in sources.listed(root, *CLASS_FOLDERS)
                 for each in classes_of((root / path).read_text())]
        for size, path, each in sorted(found, reverse=True):
            print(f'{size:4} {path}:{each.line} {each.name}')
        return 0
    return 0 if check(root, sources.Debt(arguments.debt)) else 1


if __name__ == '__main__':
    sys.exit(main())
