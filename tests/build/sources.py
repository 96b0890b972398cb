"""Which files the guards look at, with which tools, and how they read C++: shared by the scripts of this folder."""
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = ('.cc', '.h', '.c')
LLVM = 14 # Debian 12's: other versions format and find differently
SKIPPED = 77


def listed(root, *folders, suffixes=CODE):
    """Paths relative to `root`, sorted: what git tracks or would add; every file where there is no repository."""
    root = pathlib.Path(root)
    try:
        # Another repository around the sources would list nothing of them.
        top = subprocess.run(['git', '-C', root, 'rev-parse', '--show-toplevel'], check=True, text=True,
                             capture_output=True).stdout.strip()
        if pathlib.Path(top).resolve() != root.resolve():
            raise FileNotFoundError(top)
        output = subprocess.run(['git', '-C', root, 'ls-files', '-z', '-co', '--exclude-standard', '--', *folders],
                                check=True, text=True, capture_output=True).stdout
        found = [name for name in output.split('\0') if name]
    except (OSError, subprocess.CalledProcessError):
        tops = [root / folder for folder in folders] or [root]
        found = [str(path.relative_to(root)) for top in tops for path in top.rglob('*')
                 if path.relative_to(root).parts[0] not in ('build', '.git')]
    return sorted({name for name in found if name.endswith(suffixes) and (root / name).is_file()})


def version_of(program):
    try:
        said = subprocess.run([program, '--version'], check=True, text=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    match = re.search(r'version (\d+)', said)
    return int(match[1]) if match else None


def skip(name, program, version=LLVM):
    """None if the program has this version. Else an exit code, a failure in CI, where nobody reads what was skipped."""
    found = version_of(program)
    if found == version:
        return None
    print(f"{name}: needs {program} {version} (cmake/install-deps), here is {found or 'none'}: skipped")
    return 1 if os.environ.get('CI') else SKIPPED


class Debt:
    """Violations that are known: one a line, # is a comment. New ones fail, and so does a line that has been paid."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.known = {line.strip() for line in lines if line.strip() and not line.lstrip().startswith('#')}

    def settle(self, found):
        """(those of `found` that are new, those listed that are gone): both sorted."""
        found = set(found)
        return sorted(found - self.known), sorted(self.known - found)

    def complain(self, paid):
        for line in paid:
            print(f'{self.path.name}: paid, take it from the list: {line}')


# A comment, a raw string, a string, or a character; not the ' inside a number (1'000).
_NOT_CODE = re.compile(r'//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/|(?:u8|[uUL])?R"([^()\s\\]{0,16})\(.*?\)\1"'
                       r'|"(?:[^"\\\n]|\\.)*"' r"|(?<![0-9a-zA-Z_])(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+'", re.DOTALL)


def without_comments(text, keep_strings=False):
    """The same number of lines, comments blanked; strings and characters become "" and '' unless they are kept."""
    def blank(match):
        found = match.group(0)
        if found.startswith('/'):
            return ' ' + '\n' * found.count('\n')
        if keep_strings:
            return found
        return ("''" if found.endswith("'") else '""') + '\n' * found.count('\n')
    return _NOT_CODE.sub(blank, text)
