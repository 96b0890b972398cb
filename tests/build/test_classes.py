#!/usr/bin/python3
"""classes.py on small pieces of C++, one for each kind of declaration, and on a small tree that is too large."""
import pathlib
import tempfile
import unittest

import classes
import sources


def sizes(text):
    return {found.name: found.size for found in classes.classes_of(text)}


def size(members, key='struct'):
    """Of a class with these members."""
    return sizes(f'{key} C {{\n{members}\n}};\n')['C']


class Lines(unittest.TestCase):
    def test_data(self):
        for lines, text in [
                (1, 'int a;'), (1, 'int a, b = 3, *c;'), (2, 'int a;\nint b;'), (1, 'int a; int b;'),
                (1, 'std::map<int, std::pair<A, B>> a{{1, 2}};'), (1, 'std::function<void(int)> call;'),
                (1, 'int (*call)(int, int) = nullptr;'), (1, 'void (C::*member)(int);'), (1, 'unsigned bits : 3;'),
                (1, 'static constexpr unsigned kMany = (1 << 3) + 2;'), (3, 'int a[] = {\n1,\n2};'),
                (1, 'alignas(64) int a;'),
                (1, '[[no_unique_address]] A a;'), (1, 'decltype(f(1)) a;'), (1, 'struct ibv_qp* qp = nullptr;'),
                (1, 'struct stat status{};'), (1, 'std::array<int, (1 << 4)> a;'), (1, 'bool less = 1 < 2;'),
                (2, 'std::function<int()> call = [] {\nreturn 1; };'), (1, "char quote = '\\'', brace = '}';"),
                (1, "unsigned many = 1'000'000;"), (1, 'const char* text = "; int b; {";'), (1, 'int a[b[0]];')]:
            for access in ('public', 'private'):
                self.assertEqual(size(f'{access}:\n{text}'), lines, text)

    def test_functions(self):
        for lines, text in [
                (1, 'void f();'), (1, 'void f() { g(); }'), (1, 'void f() {\ng();\nint a = 1;\n}'),
                (2, 'void f(int,\nint) const {\n}'),
                (1, 'C() = default;'), (1, 'C(C&&) noexcept(false) = delete;'), (1, '~C();'),
                (1, 'virtual int f() = 0;'),
                (1, 'explicit C(int a) : a_(a), b_{a} {\nf();\n}'), (1, 'bool operator==(const C&) const = default;'),
                (1, 'void operator()(int) const;'), (1, 'operator bool() const { return true; }'),
                (1, 'C& operator<<(int);'),
                (2, 'template <class T>\nvoid f(T t) {\n}'),
                (1, 'template <typename T> requires Small<T> void f(T t);'),
                (1, '[[nodiscard]] auto f() -> std::vector<int>;'),
                (1, '__attribute__((format(printf, 2, 3))) void f(int, ...);'),
                (1, 'explicit(sizeof(int) == 4) C(int);'), (1, 'std::function<void(int)> f(int a = (1, 2)) const;'),
                (1, 'void f(std::function<void()> = [] {});'), (1, 'auto f() const { return a < b; }'),
                (1, 'static int f();')]:
            self.assertEqual(size(f'public:\n{text}'), lines, text)
            for access in ('private', 'protected'):
                self.assertEqual(size(f'{access}:\n{text}'), 0, text)
            self.assertEqual(size(text + '\nint a;'), lines + 1, text) # and the next one is seen

    def test_neither(self):
        for text in ['// int a;', '/* int a;\nint b; */', 'using A = int;', 'typedef int A;', 'friend class D;',
                     'friend void f() {}', 'static_assert(sizeof(int) == 4);', 'enum class E : int { a, b };',
                     'class D;', 'struct D { int a; };',
                     '\n\n', 'template <class T> using A = T;', 'struct D;', '#define A int a;']:
            self.assertEqual(size(text), 0, text)
            self.assertEqual(size(text + '\nint a;'), 1, text)

    def test_access(self):
        members = 'int f();\nint g();\npublic:\nint h();\nprivate:\nint i();\nprotected:\nint j();\nint a;'
        self.assertEqual(size(members, 'struct'), 4)
        self.assertEqual(size(members, 'class'), 2)

    def test_nested(self):
        found = sizes('namespace n {\nclass A {\npublic:\n struct B {\n int a;\n int b; };\n B b;\n'
                      ' struct { int x;\n int y; } both;\n union {'
                      '\n int u;\n int v;\n };\n struct D {\n int d;\n } d;\n};\n}')
        self.assertEqual(found, {'A': 6, 'A::B': 2, 'A::D': 1})

    def test_names(self):
        found = sizes('struct Outer::Impl final : Base<int>, private Other { int a; };\n'
                      'template <> struct std::hash<Key> { int f(); };\n'
                      'struct __attribute__((packed)) Wire { int a; };\n'
                      'class alignas(8) [[nodiscard]] Wide { int a; };\n'
                      'typedef struct c_style { int a; } c_style_t;')
        self.assertEqual(found, {'Outer::Impl': 1, 'std::hash<Key>': 1, 'Wire': 1, 'Wide': 1, 'c_style': 1})

    def test_not_a_class(self):
        self.assertEqual(sizes('struct stat s = {};\nstruct stat f() { return {}; }\ntemplate <class T> void g() {}\n'
                               'enum struct E { a };\nclass A;\nvoid h(struct stat s) {}\n// class X { int a; };\n'
                               'const char* t = "class Y { int a; };";\nauto r = R"(class Z { int a; };)";'), {})

    def test_local(self):
        self.assertEqual(sizes('void f() {\n struct L { int a; };\n}\nstruct C {\n'
                               ' void g() {\n struct M { int b; }; }\n C() : a(1) {\n struct N { int c; }; }\n int a;\n};'),
                         {'L': 1, 'M': 1, 'N': 1, 'C': 3})

    def test_directives(self):
        self.assertEqual(size('#ifdef A\nint a;\n#else\nint a;\n#endif\n#define LONG \\\n  int b;'), 2)


class Limits(unittest.TestCase):
    def said(self, debt='', members=classes.CLASS_LIMIT, lines=10):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / 'uct_mp').mkdir()
            (root / 'tests').mkdir()
            (root / 'debt.txt').write_text(debt)
            (root / 'uct_mp/a.h').write_text('class A {\n' + 'int a;\n' * members + '};\n')
            (root / 'tests/a.h').write_text('class Large {\n' + 'int a;\n' * 100 + '};\n') # of the transport only
            (root / 'tests/b.py').write_text('#\n' * lines)
            said = []
            good = classes.check(root, sources.Debt(root / 'debt.txt'), said.append)
            self.assertEqual(good, len(said) == 1)
            return said[:-1]

    def one(self, said, *words):
        self.assertEqual(len(said), 1, said)
        for word in words:
            self.assertIn(word, said[0])

    def test_limit(self):
        self.assertEqual(self.said(lines=classes.FILE_LIMIT), [])
        self.one(self.said(members=61), 'uct_mp/a.h:1: A has', '61 lines, 60 at most')
        self.one(self.said(lines=501), 'tests/b.py:500:', '501 lines, 500 at most')

    def test_debt(self):
        self.assertEqual(self.said('# why\nclass uct_mp/a.h A 70\n', members=70), [])
        self.assertEqual(self.said('class uct_mp/a.h A 70\n', members=65), [])
        self.one(self.said('class uct_mp/a.h A 70\n', members=71), '71 lines, 70 at most')
        self.one(self.said('class uct_mp/a.h A 70\n', members=60), 'paid')
        self.assertEqual(self.said('file tests/b.py 600\n', lines=600), [])
        self.one(self.said('file tests/b.py 600\n', lines=400), 'paid')
        self.one(self.said('klass uct_mp/a.h A 70\n'), 'not understood')


if __name__ == '__main__':
    unittest.main()
