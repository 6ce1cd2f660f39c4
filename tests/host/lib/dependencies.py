# SPDX-License-Identifier: GPL-2.0
"""Finds the dependencies between the files of src, and checks them against tests/host/components. A
file depends on each file whose names it uses.

Arguments: the root of the source tree, the table of components, and the kind of errors to print:
"cycles", "components" or "stale". With "list", prints all dependencies.

- Rust: paths in `use` and in code, `mod` with and without #[path], and the functions in `extern`
  blocks of src: the file depends on the C files that define the functions. A name that a file
  re-exports counts as a name of that file.
- C: `#include` of the files of this source tree.

A C file does not depend on a Rust file whose function it calls: such functions are callbacks.
"""

import fnmatch
import os
import re
import sys
from collections import defaultdict, deque

TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/"  # comments
    r"|(?:br|r|cr)(#*)\".*?\"\1|(?:b|c)?\"(?:\\.|[^\"\\])*\""  # strings
    r"|b?'(?:\\[^']+|[^'\\])'|'\w+"  # characters, lifetimes
    r"|(?P<word>[A-Za-z_]\w*)|(?P<sign>::|[^\s\w])",
    re.S,
)
C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
C_FUNCTION = re.compile(r"^(?:\w[\w \t]*[ \t*]+)?(\w+)\([^;{}]*\)[^;{}()]*\n\{", re.M)
C_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]+([<\"])([^>\"]+)", re.M)
MODULE_PATH = re.compile(r"#\[path = \"([^\"]+)\"\]")


def read(path):
    """Returns the text of a file."""
    with open(path, encoding="utf-8") as file:
        return file.read()


class File:
    """The tokens of a Rust file, without comments and strings. A #[path] is one token."""

    def __init__(self, root, path):
        self.path = path
        self.tokens = []
        text = read(os.path.join(root, path))
        at = 0
        while at < len(text):
            found = MODULE_PATH.match(text, at)
            if found:
                self.tokens.append("#path " + found[1])
            else:
                found = TOKEN.match(text, at)
                token = found and (found["word"] or found["sign"])
                if token:
                    self.tokens.append(token)
            at = found.end() if found else at + 1


class Crates:
    """The modules of all crates: which file each module is in, and the paths that it uses."""

    def __init__(self, root, paths):
        self.files = {path: File(root, path) for path in paths}
        self.modules = {}  # (crate, module path) -> file
        self.uses = []  # (file, crate, module path, path that is used)
        self.aliases = {}  # (crate, module path) -> name -> path
        self.externs = []  # (file, function)
        self.dependencies = defaultdict(set)
        children = set()
        for file in self.files.values():
            children.update(path for _, path in self.declared(file))
        self.roots = {}
        for path in sorted(set(paths) - children):
            if path.startswith("src/"):
                name = self.crate_name(path)
                if name in self.roots:
                    sys.exit(f"{path}: a second crate with the name {name}")
                self.roots[name] = path
        for crate, path in self.roots.items():
            self.visit(crate, (), path)

    @staticmethod
    def crate_name(path):
        """Returns the name that Kbuild gives to the crate with this root: the name of the file, or
        of the directory of a main.rs; SUBJECT_rules for SUBJECT/rules/rules.rs; and perfcounters
        for src/counters/main.rs."""
        if path == "src/counters/main.rs":
            return "perfcounters"
        *_, above, directory, file = ("", "", *path.split("/"))
        if file == "rules.rs":
            return f"{above}_rules"
        return directory if file == "main.rs" else file[:-3]

    def declared(self, file):
        """Returns the names and files of the modules that a file declares. The name of a module that
        is declared in an inline module begins with the names of the inline modules."""
        directory = os.path.dirname(file.path)
        found, tokens, given = [], file.tokens, None
        stack, depth = [], 0
        for at, token in enumerate(tokens):
            if token.startswith("#path "):
                given = token[6:]
            elif token == "mod" and tokens[at + 2 : at + 3] == ["{"]:
                stack.append((depth, tokens[at + 1]))
            elif token == "{":
                depth += 1
            elif token == "}":
                depth -= 1
                if stack and stack[-1][0] == depth:
                    stack.pop()
            elif token == "mod" and at + 2 < len(tokens) and tokens[at + 2] == ";":
                inside = [name for _, name in stack]
                name = tokens[at + 1]
                ends = (".rs", "/mod.rs")
                places = [os.path.join(place, *inside) for place in (file.path[:-3], directory)]
                choices = [os.path.join(place, name + end) for place in places for end in ends]
                if given:
                    choices = [os.path.normpath(os.path.join(place, given)) for place in places[1:]]
                found += [((*inside, name), path) for path in choices if path in self.files][:1]
                given = None
        return found

    def visit(self, crate, module, path):
        """Collects the modules of a file, the names that they import, and the paths that they
        use."""
        file = self.files[path]
        self.modules[crate, module] = path
        children = dict(self.declared(file))
        stack, depth, at, tokens = [], 0, 0, file.tokens
        here = module
        self.aliases.setdefault((crate, here), {})
        while at < len(tokens):
            token = tokens[at]
            if token == "mod" and tokens[at + 2 : at + 3] == ["{"]:
                stack.append((depth, here))
                here += (tokens[at + 1],)
                self.modules[crate, here] = path
                self.aliases.setdefault((crate, here), {})
                at += 2
                continue
            if token == "mod" and tokens[at + 2 : at + 3] == [";"]:
                child = children.get(here[len(module) :] + (tokens[at + 1],))
                if child:
                    self.dependencies[path].add(child)
                    self.visit(crate, here + (tokens[at + 1],), child)
            elif token == "extern" and tokens[at + 1 : at + 2] == ["{"]:
                at = self.extern_block(path, at + 2)
                continue
            elif token == "use":
                at = self.use_tree(path, crate, here, at + 1, ())
                continue
            elif token == "{":
                depth += 1
            elif token == "}":
                depth -= 1
                if stack and stack[-1][0] == depth:
                    here = stack.pop()[1]
            elif (token[0].isalpha() or token[0] == "_") and tokens[at + 1 : at + 2] == ["::"]:
                used = [token]
                while tokens[at + 1 : at + 2] == ["::"] and re.match(r"\w", tokens[at + 2]):
                    used.append(tokens[at + 2])
                    at += 2
                self.uses.append((path, crate, here, tuple(used)))
            at += 1

    def extern_block(self, path, at):
        """Collects the functions of an extern block. Returns the index after the block."""
        tokens = self.files[path].tokens
        while tokens[at] != "}":
            if tokens[at] == "fn":
                self.externs.append((path, tokens[at + 1]))
            at += 1
        return at + 1

    def use_tree(self, path, crate, here, at, prefix):
        """Collects the paths of a `use`. Returns the index after it."""
        tokens = self.files[path].tokens
        used = prefix
        while True:
            token = tokens[at]
            if token == "{":
                at += 1
                while tokens[at] != "}":
                    at = self.use_tree(path, crate, here, at, used)
                    if tokens[at] == ",":
                        at += 1
                return at + 1
            if token in (",", "}", ";"):
                name = used[-1] if used else ""
            elif token == "as":
                name = tokens[at + 1]
                at += 2
            elif token == "*":
                self.uses.append((path, crate, here, used))
                return at + 1
            else:
                used += (token,) if token != "::" else ()
                at += 1
                continue
            used = used[:-1] if used[-1:] == ("self",) and len(used) > 1 else used
            self.uses.append((path, crate, here, used))
            self.aliases[crate, here][name if name != "self" else used[-1]] = used
            return at

    def resolve(self, crate, here, used, depth=0):
        """Returns the crate and the absolute path of a path that the module `here` uses."""
        first, rest = used[0], used[1:]
        if first == "crate":
            return crate, rest
        if first == "self":
            return crate, here + rest
        if first == "super":
            here = here[:-1]
            while rest[:1] == ("super",):
                here, rest = here[:-1], rest[1:]
            return crate, here + rest
        if (crate, here + (first,)) in self.modules:
            return crate, here + used
        alias = self.aliases.get((crate, here), {}).get(first)
        if alias and alias != used and depth < 8:
            return self.resolve(crate, here, alias + rest, depth + 1)
        if first in self.roots:
            return first, rest
        return None, ()

    def find(self):
        """Returns the dependencies between Rust files, and the extern functions of each file."""
        for path, crate, here, used in self.uses:
            if not used:
                continue
            to, absolute = self.resolve(crate, here, used)
            if to is None:
                continue
            while absolute and (to, absolute) not in self.modules:
                absolute = absolute[:-1]
            self.dependencies[path].add(self.modules[to, absolute])
        return self.dependencies, self.externs


def find_dependencies(root):
    """Returns the files on which each file depends."""
    paths = []
    for top in ("src", "include"):
        for directory, _, names in os.walk(os.path.join(root, top)):
            paths += [os.path.relpath(os.path.join(directory, name), root) for name in names]
    dependencies, externs = Crates(root, [path for path in paths if path.endswith(".rs")]).find()
    defined = {}
    for path in (path for path in paths if path.endswith((".c", ".h"))):
        text = C_COMMENT.sub("", read(os.path.join(root, path)))
        if path.endswith(".c"):
            defined.update((name, path) for name in C_FUNCTION.findall(text))
        for quote, name in C_INCLUDE.findall(read(os.path.join(root, path))):
            directories = ["include", "include/uapi"]
            if quote == '"':
                directories.insert(0, os.path.dirname(path))
            places = [os.path.join(directory, name) for directory in directories]
            choices = [os.path.normpath(place) for place in places]
            dependencies[path].update([choice for choice in choices if choice in paths][:1])
    for path, function in externs:
        if function in defined and path.startswith("src/"):
            dependencies[path].add(defined[function])
    sources = [path for path in sorted(paths) if path.endswith((".rs", ".c", ".h"))]
    return {path: sorted(dependencies[path] - {path}) for path in sources}


def find_chain(dependencies, start, end):
    """Returns the shortest chain of dependencies from a file to another, or an empty list."""
    before, left = {start: None}, deque([start])
    while left:
        file = left.popleft()
        for to in dependencies.get(file, ()):
            if to == end:
                chain = [end]
                while file is not None:
                    chain.append(file)
                    file = before[file]
                return chain[::-1]
            if to not in before:
                before[to] = file
                left.append(to)
    return []


class Table:
    """The table of components: the files of each component, and the components that it may use."""

    def __init__(self, path):
        self.components, self.may = [], {}
        for line in read(path).splitlines():
            words = line.split()
            if not words or words[0] == "#":
                continue
            if words[0] == "component":
                self.components += [(pattern, words[1]) for pattern in words[2:]]
            elif words[0] == "may":
                self.may[words[1]] = set(words[2:])
            else:
                sys.exit(f"{path}: unknown line: {line}")

    def component_of(self, file):
        """Returns the component of a file: that of the first pattern which matches."""
        for pattern, component in self.components:
            if fnmatch.fnmatchcase(file, pattern):
                return component
        return None

    def crossings(self, dependencies):
        """Returns the pairs of a file and a component that the file uses and may not use."""
        found = defaultdict(list)
        for file, targets in dependencies.items():
            component = self.component_of(file)
            for to in targets:
                other = self.component_of(to)
                allowed = self.may.get(component, set()) | {component, None}
                if component is not None and other not in allowed:
                    found[file, other].append(to)
        return found


def main():
    """Prints the errors of the chosen kind."""
    root, table, kind = sys.argv[1:]
    dependencies, table = find_dependencies(root), Table(table)
    if kind == "list":
        for file, targets in dependencies.items():
            for to in targets:
                print(file, to)
    elif kind == "cycles":
        for file, targets in dependencies.items():
            for to in targets:
                back = find_chain(dependencies, to, file)
                if back:
                    print("cycle:", " -> ".join([file] + back))
    elif kind == "components":
        for file in dependencies:
            if table.component_of(file) is None:
                print(f"{file}: in no component")
        for (file, component), targets in table.crossings(dependencies).items():
            own, used = table.component_of(file), ", ".join(targets)
            print(f"{file} ({own}) uses {used} ({component})")
    elif kind == "stale":
        for pattern, _ in table.components:
            if not any(fnmatch.fnmatchcase(file, pattern) for file in dependencies):
                print(f"component {pattern}: no such file")
    else:
        sys.exit(f"unknown kind of errors: {kind}")


main()
