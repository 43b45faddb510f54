"""A small reader of C++ for the lints: comments and literals taken out, and what stands between which braces. It is no compiler.

`code` takes comments, literals and directives out of a source. `scan` finds the functions with their lines and the classes with
their fields. What the reader relies on: a macro whose name is all capitals is an annotation where it stands behind something, and
a function where it stands first (TEST); angle brackets in a declaration's head are those of templates. Of a conditional whose
branches have unequal braces only the first branch is read. Classes inside functions, and lambdas inside functions, are part of
the function. tests/lint/sizes.py --self-test shows each of these.
"""

import bisect
import re
from typing import NamedTuple


class Function(NamedTuple):
    name: str   # with the classes around it: Learner::Train
    first: int  # line where the declaration begins, template and return type included
    last: int   # line of the closing brace


class Class(NamedTuple):
    name: str
    line: int
    fields: int  # data members of each object: no statics, no constants of the class
    plain: bool  # a struct without a private or protected part


class Unreadable(Exception):
    """Braces that do not balance, or the reader is not good enough."""


_LITERAL = re.compile(
    r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
      |(?P<raw>\b(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
      |(?P<string>"(?:\\.|[^"\\\n])*")
      |(?P<number>\b\d(?:'?[\w.])*)
      |(?P<char>'(?:\\.|[^'\\\n])+')""", re.S | re.X)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?P<word>\w*)(?:\\\n|[^\n])*", re.M)
_TOKEN = re.compile(r'[A-Za-z_]\w*|::|<<|->|\.\.\.|""|\d\w*|[=!<>+\-*/%&|^]=|[^\s\w]')
_BRACE = re.compile(r"[{}]")
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_MACRO = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$|[A-Z]{2,}[A-Z0-9]*$")
_LIKE_MACROS = {"alignas", "decltype", "noexcept", "__attribute__", "explicit", "requires"}
_ACCESS = {"public", "protected", "private"}


def code(text):
    """The text with as many lines, without comments, directives and what stands in literals: a string is "", a character 0."""

    def blank(match):
        lines = "\n" * match[0].count("\n")
        if match["comment"] is not None:
            return " " + lines
        if match["number"] is not None:
            return match[0].replace("'", "")
        return ('0' if match["char"] is not None else '""') + lines

    return _without_directives(_LITERAL.sub(blank, text))


def _without_directives(text):
    """Blanks directives, and of an #if with unequal branches all but the first."""
    pieces, open_ifs, end = [], [], 0

    def close_branch(begin):
        """A branch ends where its #elif, #else or #endif stands: notes how many braces it leaves open."""
        branch = open_ifs[-1]
        inside = "".join(pieces[branch[-1][0]:begin])
        branch[-1] = (branch[-1][0], begin, inside.count("{") - inside.count("}"))

    for directive in _DIRECTIVE.finditer(text):
        pieces.append(text[end:directive.start()])
        word = directive["word"]
        if word in ("elif", "else", "endif") and open_ifs:
            close_branch(len(pieces))
        pieces.append("\n" * directive[0].count("\n"))
        if word in ("if", "ifdef", "ifndef"):
            open_ifs.append([(len(pieces), 0, 0)])
        elif word in ("elif", "else") and open_ifs:
            open_ifs[-1].append((len(pieces), 0, 0))
        elif word == "endif" and open_ifs:
            branches = open_ifs.pop()
            if len({balance for _, _, balance in branches}) > 1 and len(branches) > 1 or any(b for _, _, b in branches[1:]):
                for first, last, _ in branches[1:]:
                    for i in range(first, last):
                        pieces[i] = "\n" * pieces[i].count("\n")
        end = directive.end()
    pieces.append(text[end:])
    return "".join(pieces)


def _skip(tokens, at):
    """The place behind the group that begins at `at`; its brackets, all kinds of them, are in pairs."""
    expected = []
    angles = tokens[at] == "<"
    while at < len(tokens):
        token = tokens[at]
        if expected and token == expected[-1]:
            expected.pop()
        elif token in _PAIRS:
            expected.append(_PAIRS[token])
        elif token == "<" and angles and (not expected or expected[-1] == ">"):
            expected.append(">")
        at += 1
        if not expected:
            break
    return at


def _bare(head):
    """A head without templates, their arguments, attributes, array bounds and annotations; `operator` with its sign is one token."""
    bare, at = [], 0
    while at < len(head):
        token = head[at]
        following = head[at + 1] if at + 1 < len(head) else ""
        if token == "operator":
            name, at = "operator" + " " * following[:1].isalpha(), at + 1
            if head[at:at + 2] == ["(", ")"]:
                name, at = "operator()", at + 2
            while at < len(head) and head[at] != "(":
                name, at = name + head[at], at + 1
            bare.append(name)
        elif token == "<":
            at = _skip(head, at)
        elif token == "[" and (following == "[" or (bare and bare[-1] != "=")):
            at = _skip(head, at)
        elif following == "(" and (token in _LIKE_MACROS or (bare and _MACRO.match(token))):
            at = _skip(head, at + 1)
        elif token == "(":
            end = _skip(head, at)  # in there may be comparisons and shifts
            bare, at = bare + head[at:end], end
        elif token == "template":
            at += 1
        else:
            bare.append(token)
            at += 1
    return bare


def _flat(tokens):
    """[(token, whether it stands outside every bracket)]; the brackets themselves stand outside."""
    depth, found = 0, []
    for token in tokens:
        if token in (")", "]", "}"):
            depth -= 1
        found.append((token, depth == 0))
        if token in _PAIRS:
            depth += 1
    return found


def _outside(tokens):
    return [token for token, outside in _flat(tokens) if outside]


def _name_before(bare, mark):
    """Foo::~Bar of `… Foo::~Bar (`."""
    end = bare.index(mark)
    begin = end
    while begin > 0 and (bare[begin - 1] in ("::", "~") or (begin == end or bare[begin] in ("::", "~")) and re.match(r"\w", bare[begin - 1])):
        begin -= 1
    return "".join(bare[begin:end]) or "?"


def _opens(head):
    """What a brace begins after this head: (kind, name), kind one of namespace, class, function, lambda, value."""
    bare = _bare(head)
    outside = _outside(bare)
    if not bare:
        return "value", ""
    if "namespace" in bare[:2]:
        return "namespace", ""
    if bare[0] == "extern" and bare[1:] == ['""']:
        return "namespace", ""
    if "enum" in bare[:2]:
        return "value", ""
    key = next((token for token in outside if token in ("class", "struct", "union")), None)
    if key and "(" not in bare and "=" not in outside and "{" not in outside:
        before_bases = outside[outside.index(key) + 1:]
        if ":" in before_bases:
            before_bases = before_bases[:before_bases.index(":")]
        names = [token for token in before_bases if re.match(r"[A-Za-z_]", token) and token != "final"]
        return "class", names[-1] if names else ""
    if "=" in outside:
        behind = bare[_place(bare, "=") + 1:]
        return ("lambda", _name_before(bare, "=")) if behind[:1] == ["["] else ("value", "")
    if "(" not in outside:
        return "value", ""
    if _MACRO.match(bare[0]) and bare[1:2] == ["("]:
        return "function", "".join(bare[:_skip(bare, 1)]).replace(",", ", ")
    # Behind a colon stand a constructor's initializers: a brace after a name is one of them, after another's end it is the body.
    if ":" in outside[outside.index("("):] and bare[-1] not in (")", "}", "..."):
        return "value", ""
    return "function", _name_before(bare, "(")


def _place(tokens, wanted):
    return next(i for i, (token, outside) in enumerate(_flat(tokens)) if outside and token == wanted)


def _fields(head):
    """How many data members `head;` declares in a class."""
    if not head or head[0] in ("template", "using", "typedef", "friend", "static_assert", "enum", "public", "private", "protected"):
        return 0
    bare = _bare(head)
    if len(bare) < 2 or "static" in bare or any(token.startswith("operator") for token in bare):
        return 0
    if bare[0] in ("class", "struct", "union") and len(bare) == 2:
        return 0
    fields, declares = 0, True
    for i, (token, outside) in enumerate(_flat(bare)):
        if not outside:
            continue
        if token == "(" and declares and bare[i + 1:i + 2] not in (["*"], ["&"]):
            return 0
        if token in ("=", "{", "("):
            declares = False  # an initializer, or a function pointer: what follows in brackets says no more
        elif token == ",":
            fields, declares = fields + 1, True
    return fields + 1


def scan(text):
    """(functions, classes) of a source. Raises Unreadable."""
    source = code(text)
    line_starts = [0] + [m.end() for m in re.finditer("\n", source)]

    def line(place):
        return bisect.bisect_right(line_starts, place)

    def behind(place):
        """The place behind the brace that closes the one before `place`."""
        depth = 1
        for brace in _BRACE.finditer(source, place):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                return brace.end()
        raise Unreadable(f"line {line(place)}: no brace closes this one")

    functions, classes = [], []
    # Of each open scope: kind, name, line, fields, whether it is a plain struct.
    scopes = [{"kind": "namespace", "name": "", "fields": 0}]
    head, begin, depth, at = [], 0, 0, 0

    def qualified(name):
        return "::".join([scope["name"] for scope in scopes if scope["kind"] == "class" and scope["name"]] + [name])

    while True:
        match = _TOKEN.search(source, at)
        if not match:
            break
        token, at = match[0], match.end()
        if not head:
            begin = match.start()
        scope = scopes[-1]
        if depth or token in ("(", "["):
            depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
            head.append(token)
        elif token == ";":
            if scope["kind"] == "class":
                anonymous = scope.pop("anonymous", 0)
                scope["fields"] += anonymous if head == ["{", "}"] else _fields(head)
            head = []
        elif token == "{":
            kind, name = _opens(head)
            if kind == "namespace":
                scopes.append({"kind": kind, "name": "", "fields": 0})
                head = []
            elif kind == "class":
                scopes.append({"kind": kind, "name": name, "fields": 0, "line": line(begin), "plain": "class" not in _bare(head)})
                head = []
            elif kind == "value":
                at = behind(at)
                head += ["{", "}"]
            else:
                at = behind(at)
                functions.append(Function(qualified(name), line(begin), line(at - 1)))
                head = head + ["{", "}"] if kind == "lambda" else []
        elif token == "}":
            if len(scopes) == 1:
                raise Unreadable(f"line {line(match.start())}: this brace closes nothing")
            closed = scopes.pop()
            head = []
            if closed["kind"] == "class":
                around = [scope["name"] for scope in scopes if scope["kind"] == "class"]
                classes.append(Class("::".join(around + [closed["name"]]), closed["line"], closed["fields"], closed["plain"]))
                # What follows names variables of the class; an anonymous one's fields are the outer one's.
                head, begin = ["{", "}"], match.start()
                scopes[-1]["anonymous"] = 0 if closed["name"] else closed["fields"]
        elif token == ":" and head and head[-1] in _ACCESS and len(head) == 1:
            if head[0] != "public":
                scope["plain"] = False
            head = []
        else:
            head.append(token)
    if len(scopes) > 1:
        raise Unreadable("the file ends inside braces")
    return functions, classes
