#!/usr/bin/python3
"""Who includes what: every #include of the sources against uct_mp/rooms.txt, which also explains the rules.

Says each violation with file and line, and exits 1 if there is any that is not listed as debt, or a debt that is paid.

Few files may ask whether an interface is RC or DC. The others ask what a path or a peer can do: path::Kind, the terms of a
connection, Config::rc_on_demand().
"""
import argparse
import fnmatch
import pathlib
import re
import sys

import sources

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.MULTILINE)
STATEMENT = re.compile(r'(?P<word>room|contract|offer|external) +(?P<subject>[^\s:]+)(?: +to +(?P<to>[^\s:]+))? *:'
                       r'(?P<rest>.*)')
MOST_THAT_ASK = 8
# A member's default asks nothing, and neither does a copy.
NO_QUESTION = re.compile(r'\bTransport transport = (?:connect::)?Transport::\w+;|\btransport = [\w.>()-]*\btransport\b')
QUESTION = re.compile(r'\bTransport::(?:rc|dc)\b|\b[cC]onfig\w*(?:\(\))?(?:\.|->)transport\b|'
                      r'\btransport\s*[=!]=|[=!]=\s*[\w.>-]*\btransport\b|\bpath_kind_of\(')


class Rules:
    def __init__(self, text):
        self.rooms, self.contract, self.offers, self.external = {}, {}, {}, {}
        self.outside, self.tests, self.debt, self.wrong = [], [], set(), []
        for number, line in enumerate(text.splitlines(), 1):
            line = line.split('#')[0].strip()
            if line:
                problem = self.take(line)
                if problem:
                    self.wrong.append(f'uct_mp/rooms.txt:{number}: {problem}')
        self.wrong += [f'uct_mp/rooms.txt: {room} is offered to {to}, which is no room, and not outside'
                       for room, to in self.offers if to not in self.rooms and to.split('/')[0] not in self.outside]

    def take(self, line):
        words = line.split()
        if words[0] in ('outside', 'tests'):
            (self.outside if words[0] == 'outside' else self.tests).extend(words[1:])
            return None
        if words[0] == 'debt' and len(words) == 3:
            self.debt.add((words[1], words[2]))
            return None
        match = STATEMENT.fullmatch(line)
        if not match or (match['word'] == 'offer') != bool(match['to']):
            return f'not understood: {line}'
        word, subject, rest = match['word'], match['subject'], match['rest'].split()
        if word == 'external':
            self.external[subject] = rest
            return None
        if word == 'room':
            later = [room for room in rest if room not in self.rooms]
            twice = subject in self.rooms
            self.rooms[subject] = rest
            if twice:
                return f'{subject} is a room already'
            return f"{subject} may only include rooms that stand above it, not {' '.join(later)}" if later else None
        if subject not in self.rooms:
            return f'no such room: {subject}'
        if word == 'contract':
            self.contract.setdefault(subject, []).extend(rest)
        else:
            self.offers[subject, match['to']] = rest
        return None

    def room_of(self, path):
        """The room of a file or header 'uct_mp/...': the longest name that is a folder of it; None if there is none."""
        parts = path.split('/')[1:-1]
        for length in range(len(parts), 0, -1):
            if '/'.join(parts[:length]) in self.rooms:
                return '/'.join(parts[:length])
        return None

    def own_tests(self, path):
        """The room that a file of the tests belongs to, by its folder's name."""
        folder = path.rsplit('/', 1)[0] + '/'
        names = [room for room in self.rooms for tests in self.tests if folder.startswith(f'{tests}/{room}/')]
        return max(names, key=len, default=None)

    def why_not(self, path, header):
        """What is wrong with a file that includes uct_mp/...: None if nothing."""
        target = self.room_of(header)
        if target is None:
            return f'{header} is in no room'
        name = header[len(f'uct_mp/{target}/'):]

        def listed(patterns):
            return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        contract = self.contract.get(target, [])
        if not path.startswith('uct_mp/'):
            given = [pattern for (room, to), patterns in self.offers.items()
                     if room == target and path.startswith(to + '/') for pattern in patterns]
            if self.own_tests(path) == target or listed(contract + given):
                return None
            return f'{header} is private to {target}'
        room = self.room_of(path)
        if room is None:
            return 'the file is in no room'
        if room == target:
            return None
        if target not in self.rooms[room]:
            return f'{room} may not include {target} ({header})'
        if (target, room) in self.offers:
            if listed(self.offers[target, room]):
                return None
            return f'{header} is not what {target} offers to {room}'
        return None if listed(contract) else f'{header} is private to {target}'

    def why_not_system(self, path, header):
        for prefix, rooms in self.external.items():
            if header.startswith(prefix) and self.room_of(path) not in rooms:
                return f"<{header}> is for {' '.join(rooms) or 'none'} of the rooms only"
        return None


def check_file(rules, root, path):
    """Yields (line, header, what is wrong, whether that may be a debt)."""
    seen = set()
    inside = path.startswith('uct_mp/')
    text = sources.without_comments((root / path).read_text(), keep_strings=True)
    for match in INCLUDE.finditer(text):
        quote, header = match.groups()
        line = text.count('\n', 0, match.start()) + 1
        if header in seen:
            yield line, header, f'{header} is included twice', False
        seen.add(header)
        if header.startswith('uct_mp/'):
            if quote == '<':
                yield line, header, f'"{header}", not <{header}>', False
            if not (root / header).exists():
                yield line, header, f'there is no {header}', False
            problem = rules.why_not(path, header)
            if problem:
                yield line, header, problem, True
        elif inside and quote == '"':
            yield line, header, f'"{header}": only "uct_mp/..." is included in quotation marks', False
        elif inside:
            problem = rules.why_not_system(path, header)
            if problem:
                yield line, header, problem, True
        elif quote == '"' and ('..' in header.split('/')) and 'uct_mp' in header.split('/'):
            yield line, header, f'"{header}": by its full path, please', False


def check_names(rules, root):
    """Headers that the rules name and that are not there, in rooms that are."""
    named = [(room, header) for room, headers in rules.contract.items() for header in headers]
    named += [(room, header) for (room, _), headers in rules.offers.items() for header in headers]
    for room, header in named:
        folder = root / 'uct_mp' / room
        if folder.is_dir() and not any(folder.glob(header)):
            yield f'uct_mp/rooms.txt: there is no uct_mp/{room}/{header}'


def files_that_ask(root):
    """Files of uct_mp that ask whether an interface, or a peer's, is RC or DC."""
    return [path for path in sources.listed(root, 'uct_mp')
            if QUESTION.search(NO_QUESTION.sub('', sources.without_comments((root / path).read_text())))]


def check(root, out=print):
    """True if all is well."""
    rules = Rules((root / 'uct_mp/rooms.txt').read_text())
    wrong = rules.wrong + list(check_names(rules, root))
    owed, files, includes = set(), 0, 0
    for path in sources.listed(root, 'uct_mp', *[folder for folder in rules.outside if (root / folder).is_dir()]):
        files += 1
        for line, header, problem, may_be_debt in check_file(rules, root, path):
            includes += 1
            if may_be_debt and (path, header) in rules.debt:
                owed.add((path, header))
            else:
                wrong.append(f'{path}:{line}: {problem}')
    wrong += [f'uct_mp/rooms.txt: paid, take it from the list: debt {file} {header}'
              for file, header in sorted(rules.debt - owed)]
    asking = files_that_ask(root)
    if len(asking) > MOST_THAT_ASK:
        wrong.append(f"{len(asking)} files ask whether it is RC or DC, {MOST_THAT_ASK} may: {' '.join(asking)}")
    for line in wrong:
        out(line)
    out(f'rooms: {files} files, {len(rules.rooms)} rooms, {len(owed)} debts, {len(asking)} ask RC or DC, {len(wrong)} violations')
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--root', type=pathlib.Path, default=sources.ROOT)
    return 0 if check(parser.parse_args().root.resolve()) else 1


if __name__ == '__main__':
    sys.exit(main())
