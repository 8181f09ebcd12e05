"""A reader of C++ text that is just good enough for style checks: comments, includes and the extent of functions."""

from __future__ import annotations

import dataclasses
import re

_NOT_CODE = re.compile(
    r"""//(?:[^\n\\]|\\.)*
      | /\*.*?\*/
      | \bR"(?P<raw>[^()\\\s]{0,16})\(.*?\)(?P=raw)"
      | "(?:\\.|[^"\\\n])*"
      | (?<![0-9A-Za-z_])(?:u8|[uUL])?'(?:\\.|[^'\\\n])+'""",
    re.DOTALL | re.VERBOSE,
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
_TEMPLATE = re.compile(r"^template\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>\s*")
_PREFIX = re.compile(r"^(?:(?:public|private|protected)\s*:(?!:)|\[\[[^\]]*\]\])\s*")
_CONTAINER = re.compile(
    r"^(?:(?:inline|typedef|static|constexpr|const)\s+)*(?:namespace|class|struct|union|enum)\b"
)
_CONTAINER_NOISE = re.compile(r"\b(?:alignas|__attribute__|[A-Z][A-Z_]+)\s*\((?:[^()]|\([^()]*\))*\)")
_INITIALIZERS = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:)")


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def code_only(text: str) -> str:
    """The text with comments and literals blanked; every line keeps its number."""
    return _NOT_CODE.sub(_blank, text)


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def includes(text: str) -> list[tuple[int, str]]:
    """(line, path) of each include."""
    return [(line_of(text, m.start(1)), m.group(1)) for m in _INCLUDE.finditer(text)]


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    first_line: int
    last_line: int

    @property
    def lines(self) -> int:
        return self.last_line - self.first_line + 1


def _kind(head: str, outer: str, in_parentheses: bool) -> str:
    """What the brace after `head` opens: container, function, initializer or inner."""
    if outer != "container" or in_parentheses:
        return "inner"
    head = head.strip()
    while True:
        shorter = _TEMPLATE.sub("", _PREFIX.sub("", head))
        if shorter == head:
            break
        head = shorter
    if _CONTAINER.match(head) and "(" not in _CONTAINER_NOISE.sub("", head):
        return "container"
    if head.startswith("extern") and "(" not in head:
        return "container"
    if "(" not in head:
        return "inner"
    last_word = re.search(r"(\w+|\W)$", head).group()
    qualifiers = {"const", "noexcept", "override", "final", "try", "mutable"}
    if _INITIALIZERS.search(head) and re.match(r"\w|>", last_word) and last_word not in qualifiers:
        return "initializer"
    return "function"


def _name(head: str) -> str:
    match = re.search(r"([\w:~]+)\s*\(", head)
    return match.group(1) if match else "(unnamed)"


def functions(text: str) -> list[Function]:
    """The functions defined at namespace or class level, from the first line of the signature to the closing brace."""
    code = _DIRECTIVE.sub(_blank, code_only(text))
    found = []
    stack = [("container", 0)]
    start = 0  # Where the declaration that we are in begins.
    depth = 0
    for match in re.finditer(r"[{}();]", code):
        at, token = match.start(), match.group()
        if token == "(":
            depth += 1
        elif token == ")":
            depth = max(0, depth - 1)
        elif token == ";" and depth == 0:
            start = at + 1
        elif token == "{":
            stack.append((_kind(code[start:at], stack[-1][0], depth > 0), start))
            if stack[-1][0] == "container":
                start = at + 1
        elif token == "}" and len(stack) > 1:
            kind, began = stack.pop()
            if kind == "function":
                label = re.compile(r"(?:\s|(?:public|private|protected)\s*:(?!:))*").match(code, began, at)
                head = code[label.end() : at]
                first = line_of(code, label.end())
                found.append(Function(_name(head), first, line_of(code, at)))
            if stack[-1][0] == "container" and kind != "initializer" and depth == 0:
                start = at + 1
    return found
