#!/usr/bin/python3
"""Which classes of a room reach each other in a circle, as the compiler resolves it: clang's AST, through libclang.

An arrow leads from class A to class B where
  - a function of A calls one of B, or touches one of its members. Lambdas belong to the function that they stand in;
  - A holds a reference or a pointer to B, also inside of a template. What A holds by value or owns is no arrow, and
    neither is that it makes it;
  - A derives from B, and also from B to A where A overrides a virtual function of B: the caller of B gets to A;
  - A's function is called with a lambda of B as a std::function or a pointer to a function: A calls B back.
Classes inside of others belong to the outermost one. Functions of no class pass their arrows on, but don't count.
Not seen: calls that depend on a template's parameter, which a template's own text can't resolve.

A circle is a set of classes that all reach each other. Its size is told for each room by itself, with the arrows inside of
the room, and for all rooms together. circles.txt has the limits: "ROOM NUMBER". More fails, and so does a limit that is
higher than what there is: lower it then.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import sys

import sources
import tidy

ROOMS = ('connect', 'channel', 'recover')
ALL = 'all'


def load():
    """clang.cindex of the right version, or None."""
    try:
        from clang import cindex
    except ImportError:
        return None
    if not cindex.Config.loaded:
        cindex.Config.set_library_file(f'libclang-{sources.LLVM}.so.1')
    try:
        cindex.Config().lib
    except cindex.LibclangError:
        return None
    return cindex


class Graph:
    """Nodes are 'room:Class' and 'room:function()'; places say where an arrow was first seen."""

    def __init__(self):
        self.places = {}
        self.nodes = set()

    def add(self, start, end, place):
        if start and end and start != end:
            self.nodes |= {start, end}
            self.places.setdefault((start, end), place)

    def merge(self, other):
        self.nodes |= other.nodes
        for arrow, place in other.places.items():
            self.places.setdefault(arrow, place)

    def circles(self, room=None):
        """Sets of classes that reach each other, the largest first."""
        inside = {node for node in self.nodes if room in (None, ALL) or node.startswith(room + ':')}
        ahead = collections.defaultdict(list)
        for start, end in sorted(self.places):
            if start in inside and end in inside:
                ahead[start].append(end)
        found = []
        index, low, stack, held = {}, {}, [], set()
        for first in sorted(inside):
            if first in index:
                continue
            work = [(first, iter(ahead[first]))]
            index[first] = low[first] = len(index)
            stack.append(first)
            held.add(first)
            while work:
                node, rest = work[-1]
                for end in rest:
                    if end not in index:
                        index[end] = low[end] = len(index)
                        stack.append(end)
                        held.add(end)
                        work.append((end, iter(ahead[end])))
                        break
                    if end in held:
                        low[node] = min(low[node], index[end])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[node])
                    if low[node] == index[node]:
                        circle = set()
                        while not circle or node not in circle:
                            circle.add(stack.pop())
                        held -= circle
                        classes = {name for name in circle if not name.endswith('()')}
                        if len(circle) > 1 and len(classes) > 1:
                            found.append(classes)
        return sorted(found, key=lambda circle: (-len(circle), sorted(circle)))


class Reader:
    """Arrows of one translation unit."""

    def __init__(self, cindex, root, rooms):
        self.root, self.rooms = str(root) + '/uct_mp/', rooms
        self.kinds = cindex.CursorKind
        self.types = cindex.TypeKind
        self.graph = Graph()
        self.files, self.owners = {}, {}
        kinds = self.kinds
        self.classes = {kinds.CLASS_DECL, kinds.STRUCT_DECL, kinds.CLASS_TEMPLATE, kinds.UNION_DECL,
                        kinds.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION}
        self.members = {kinds.CXX_METHOD, kinds.CONSTRUCTOR, kinds.DESTRUCTOR, kinds.CONVERSION_FUNCTION}
        self.functions = self.members | {kinds.FUNCTION_DECL, kinds.FUNCTION_TEMPLATE}
        self.scopes = {kinds.NAMESPACE, kinds.LINKAGE_SPEC, kinds.UNEXPOSED_DECL}

    def room_of(self, name):
        if name not in self.files:
            path = os.path.normpath(name)
            room = path[len(self.root):].split('/')[0] if path.startswith(self.root) else None
            self.files[name] = room if room in self.rooms else None
        return self.files[name]

    def room_at(self, cursor):
        file = cursor.location.file
        return self.room_of(file.name) if file else None

    def owner(self, cursor):
        """The node that a class, or a member or function belongs to."""
        if cursor is None:
            return None
        key = cursor.hash
        if key not in self.owners:
            self.owners[key] = self.find_owner(cursor)
        return self.owners[key]

    def find_owner(self, cursor):
        outermost, at = None, cursor
        while at is not None and at.kind not in (self.kinds.TRANSLATION_UNIT, self.kinds.NAMESPACE):
            if at.kind in self.classes:
                outermost = at
            at = at.semantic_parent
        if outermost is None:
            if cursor.kind not in (self.kinds.FUNCTION_DECL, self.kinds.FUNCTION_TEMPLATE):
                return None
            room = self.room_at(cursor)
            return f'{room}:{cursor.spelling}()' if room else None
        room = self.room_at(outermost.get_definition() or outermost)
        return f'{room}:{outermost.spelling}' if room else None

    def place(self, cursor):
        where = cursor.location
        return f'{os.path.relpath(where.file.name, self.root + "..")}:{where.line}' if where.file else ''

    def held(self, kind, seen=0):
        """Classes that a type holds by pointer or reference."""
        kind = kind.get_canonical()
        if kind.kind in (self.types.POINTER, self.types.LVALUEREFERENCE, self.types.RVALUEREFERENCE):
            to = kind.get_pointee().get_canonical()
            declaration = to.get_declaration()
            if self.owner(declaration):
                yield self.owner(declaration)
            return
        if kind.kind == self.types.CONSTANTARRAY:
            yield from self.held(kind.element_type, seen + 1)
        for position in range(max(kind.get_num_template_arguments(), 0) if seen < 4 else 0):
            yield from self.held(kind.get_template_argument_type(position), seen + 1)

    def read(self, cursor):
        """What stands in namespaces, down to functions and classes of the rooms."""
        for child in cursor.get_children():
            if not self.room_at(child):
                continue
            if child.kind in self.scopes:
                self.read(child)
            elif child.kind in self.classes:
                self.read_class(child)
            elif child.kind in self.functions:
                self.read_body(child, self.owner(child))

    def read_class(self, cursor):
        me = self.owner(cursor)
        for child in cursor.get_children():
            if child.kind in self.classes:
                self.read_class(child)
            elif child.kind == self.kinds.FIELD_DECL:
                for other in self.held(child.type):
                    self.graph.add(me, other, self.place(child))
                self.read_body(child, me, makes=True)
            elif child.kind == self.kinds.CXX_BASE_SPECIFIER:
                self.graph.add(me, self.owner(child.type.get_declaration()), self.place(child))
            elif child.kind in self.functions:
                self.overrides(child, me)
                self.read_body(child, me)

    def overrides(self, cursor, me):
        if cursor.kind == self.kinds.CXX_METHOD:
            for child in cursor.get_children():
                if child.kind == self.kinds.CXX_OVERRIDE_ATTR:
                    for base in self.bases(cursor.semantic_parent):
                        if any(method.spelling == cursor.spelling and method.is_virtual_method()
                               for method in base.get_children() if method.kind == self.kinds.CXX_METHOD):
                            self.graph.add(self.owner(base), me, self.place(cursor))

    def bases(self, cursor):
        for child in cursor.get_children():
            if child.kind == self.kinds.CXX_BASE_SPECIFIER:
                base = child.type.get_canonical().get_declaration()
                base = base.get_definition() or base
                yield base
                yield from self.bases(base)

    def read_body(self, cursor, me, makes=False):
        """What a function does, or the initialiser of a member, which `makes` it."""
        kinds = self.kinds
        makes = makes or cursor.kind == kinds.CONSTRUCTOR # in its list of initialisers
        for child in cursor.get_children():
            kind = child.kind
            if kind == kinds.CALL_EXPR:
                called = child.referenced
                if called is not None and called.kind in self.functions and not (
                        makes and called.kind == kinds.CONSTRUCTOR):
                    self.graph.add(me, self.owner(called), self.place(child))
                    self.callbacks(child, called, me)
            elif kind == kinds.MEMBER_REF_EXPR or kind == kinds.DECL_REF_EXPR or kind == kinds.MEMBER_REF:
                to = child.referenced
                if to is not None and (to.kind in self.functions or to.kind == kinds.FIELD_DECL):
                    self.graph.add(me, self.owner(to), self.place(child))
            elif kind in self.classes:
                self.read_class(child)
                continue
            self.read_body(child, me)

    def callbacks(self, call, called, me):
        there = self.owner(called)
        if not there or there == me:
            return
        for argument, parameter in zip(call.get_arguments(), called.get_arguments()):
            kind = parameter.type.get_canonical()
            if kind.kind in (self.types.LVALUEREFERENCE, self.types.RVALUEREFERENCE):
                kind = kind.get_pointee()
            erased = 'std::function<' in kind.spelling or (kind.kind == self.types.POINTER and
                                                          kind.get_pointee().kind == self.types.FUNCTIONPROTO)
            if erased and argument is not None and self.has_lambda(argument):
                self.graph.add(there, me, self.place(argument))

    def has_lambda(self, cursor):
        return cursor.kind == self.kinds.LAMBDA_EXPR or any(self.has_lambda(child) for child in cursor.get_children())


def read_unit(job):
    """(graph, error) of these files, as one unit."""
    root, build, name, flags, files, rooms = job
    cindex = load()
    unit = build / 'circles' / (name.replace('/', '_') + '.cc')
    unit.parent.mkdir(exist_ok=True)
    unit.write_text(''.join(f'#include "{root / file}"\n' for file in files))
    os.chdir(build)
    translated = cindex.Index.create().parse(str(unit), args=[*flags, '-Wno-everything'])
    # Local names that two files have in common are the same to the graph.
    broken = [said for said in translated.diagnostics
              if said.severity >= cindex.Diagnostic.Error and not said.spelling.startswith('redefinition of ')]
    if broken:
        return None, f'{broken[0].location.file}:{broken[0].location.line}: {broken[0].spelling}'
    reader = Reader(cindex, root, rooms)
    reader.read(translated.cursor)
    return reader.graph, None


def graph_of(build, root, rooms, jobs):
    build = build.resolve()
    groups = tidy.groups_of(build, root, [f'uct_mp/{room}' for room in rooms])
    work = [(root, build, folder, flags, files, rooms) for folder, flags, files in groups]
    if not work:
        raise SystemExit(f'circles: nothing to read in {build}/compile_commands.json')
    graph = Graph()
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        while work:
            again = []
            for job, (part, error) in zip(work, pool.map(read_unit, work)):
                if part is not None:
                    graph.merge(part)
                elif len(job[4]) == 1:
                    raise SystemExit(f'circles: {error}')
                else: # two files have a local name in common: halves
                    half = len(job[4]) // 2
                    again += [(*job[:2], f'{job[2]}_{part_of}', job[3], files, job[5])
                              for part_of, files in enumerate((job[4][:half], job[4][half:]))]
            work = again
    return graph


def limits_of(path):
    limits = {}
    for line in path.read_text().splitlines():
        words = line.split('#')[0].split()
        if words:
            limits[words[0]] = int(words[1])
    return limits


def short(circle):
    return ' '.join(sorted(name.split(':')[1] for name in circle))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--root', type=pathlib.Path, default=sources.ROOT)
    parser.add_argument('--build', type=pathlib.Path, default=sources.ROOT / 'build/release')
    parser.add_argument('--limits', type=pathlib.Path, default=pathlib.Path(__file__).with_name('circles.txt'))
    parser.add_argument('--jobs', type=int, default=2)
    parser.add_argument('--arrows', action='store_true', help='print every arrow inside of a circle, with a place')
    arguments = parser.parse_args()
    if load() is None:
        print(f'circles: needs python3-clang-{sources.LLVM} (cmake/install-deps): skipped')
        return 1 if os.environ.get('CI') else sources.SKIPPED
    root = arguments.root.resolve()
    limits = limits_of(arguments.limits)
    rooms = [room for room in limits if room != ALL]
    graph = graph_of(arguments.build, root, rooms, arguments.jobs)
    wrong = 0
    for room in limits:
        circles = graph.circles(room)
        size = len(circles[0]) if circles else 1
        print(f'{room}: the largest circle has {size} classes, limit {limits[room]}')
        for circle in circles:
            if arguments.arrows or size > limits[room]:
                print(f'  {len(circle)}: {short(circle)}')
        if arguments.arrows and room != ALL:
            for (start, end), place in sorted(graph.places.items()):
                if any(start in circle and end in circle for circle in circles):
                    print(f'    {start} -> {end}  {place}')
        if size > limits[room]:
            print(f'  {room}: a circle has grown; --arrows shows what makes it')
        elif size < limits[room]:
            print(f'  {arguments.limits.name}: lower the limit of {room} to {size}')
        wrong += size != limits[room]
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
