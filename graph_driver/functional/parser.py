"""The text of a functional program: tokens and a parser by recursive descent.

    program  := { "data" WORD "{" { WORD "(" WORDS ")" } "}" | "def" @NAME parameters ["->" type] block }
    block    := "{" body "}"
    body     := "let" %NAME [":" type] "=" expr ";" body  |  expr
    expr     := "if" "(" expr ")" block "else" (block | if) | "fn" parameters ["->" type] block
              | "match" "(" expr ")" "{" { "case" pattern block } "}" | signs, calls, members, tuples
    type     := f32[2, 3] | "(" types ")"

Signs bind as in C: `||`, `&&`, comparisons, `+ -`, `* /`, `! -`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn, TypeVar

from polyc.graph_driver.functional.syntax import (
    Call,
    Expr,
    Fn,
    Full,
    If,
    Let,
    Match,
    Member,
    Name,
    Number,
    Pattern,
    Program,
    TensorType,
    Tuple,
    TupleType,
    Type,
)
from polyc.poly.dtypes import BY_NAME, KNOWN_TYPES
from polyc.poly.errors import ModelError

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|\#[^\n]*)
      | (?P<name>[%@][A-Za-z_]\w*)
      | (?P<number>\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign>->|==|!=|<=|>=|&&|\|\||[-+*/<>!=(){}\[\],:;.])""",
    re.VERBOSE,
)
_LEVELS: tuple[dict[str, str], ...] = (
    {"||": "Or"},
    {"&&": "And"},
    {"==": "Equal", "!=": "NotEqual", "<": "Less", "<=": "LessOrEqual", ">": "Greater", ">=": "GreaterOrEqual"},
    {"+": "Add", "-": "Sub"},
    {"*": "Mul", "/": "Div"},
)
"""Signs of two operands, loosest first, and their operators."""
_DEEPEST = 200
T = TypeVar("T")


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def parse(text: str, source: str = "<text>") -> Program:
    """The program. Raises `ModelError`: the text is none; the line is named."""
    return _Parser(text, source).program()


class _Parser:
    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.tokens: list[_Token] = []
        self.at = self.depth = 0
        place, line = 0, 1
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise ModelError(f"{source}:{line}: {text[place]!r} is no part of a functional program")
            if found.lastgroup != "space":
                self.tokens.append(_Token(found.lastgroup or "", found.group(), line))
            line += found.group().count("\n")
            place = found.end()
        self.tokens.append(_Token("end", "the end", line))

    # ---- tokens ----

    @property
    def now(self) -> _Token:
        return self.tokens[self.at]

    def wrong(self, wanted: str) -> NoReturn:
        raise ModelError(f"{self.source}:{self.now.line}: expected {wanted}, not {self.now.text}")

    def took(self, text: str) -> bool:
        """Whether the present token is this one, which is passed then."""
        if self.now.text != text or self.now.kind == "end":
            return False
        self.at += 1
        return True

    def need(self, text: str) -> None:
        if not self.took(text):
            self.wrong(f"'{text}'")

    def word(self, kind: str, sigil: str, what: str) -> str:
        token = self.now
        if token.kind != kind or not token.text.startswith(sigil):
            self.wrong(what)
        self.at += 1
        return token.text

    def several(self, end: str, one: Callable[[], T]) -> tuple[list[T], bool]:
        """Things with commas between, up to `end`; and whether a comma was the last of them."""
        found: list[T] = []
        comma = False
        while not self.took(end):
            if found and not comma:
                self.wrong(f"',' or '{end}'")
            found.append(one())
            comma = self.took(",")
        return found, comma

    # ---- definitions ----

    def program(self) -> Program:
        functions: dict[str, Fn] = {}
        constructors: dict[str, int] = {}
        while self.now.kind != "end":
            if self.took("data"):
                self.data(constructors)
                continue
            self.need("def")
            line = self.now.line
            name = self.word("name", "@", "a name with @")
            if name in functions:
                raise ModelError(f"{self.source}:{line}: there is another {name}")
            functions[name] = self.function(line)
        return Program(self.source, functions, constructors)

    def data(self, constructors: dict[str, int]) -> None:
        """`data Nat { Z() S(Nat) }`."""
        self.word("word", "", "a name")
        self.need("{")
        while not self.took("}"):
            line = self.now.line
            name = self.word("word", "", "a constructor")
            if name in constructors:
                raise ModelError(f"{self.source}:{line}: there is another constructor {name}")
            self.need("(")
            constructors[name] = len(self.several(")", lambda: self.word("word", "", "a type"))[0])
            self.took(",")

    def function(self, line: int) -> Fn:
        self.need("(")
        parameters, _ = self.several(")", self.parameter)
        result = self.type() if self.took("->") else None
        return Fn(line, tuple(parameters), result, self.block())

    def parameter(self) -> tuple[str, Type | None]:
        name = self.word("name", "%", "a parameter with %")
        return name, self.type() if self.took(":") else None

    def type(self) -> Type:
        if self.took("("):
            return TupleType(tuple(self.several(")", self.type)[0]))
        return self.tensor_type()

    def tensor_type(self) -> TensorType:
        token = self.now
        if token.text not in BY_NAME:
            self.wrong(f"a type ({KNOWN_TYPES})")
        self.at += 1
        self.need("[")
        return TensorType(BY_NAME[token.text], tuple(self.several("]", self.whole)[0]))

    def whole(self) -> int:
        text = self.word("number", "", "a whole number")
        if not text.isdigit():
            self.at -= 1
            self.wrong("a whole number")
        return int(text)

    # ---- expressions ----

    def block(self) -> Expr:
        self.need("{")
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ModelError(f"{self.source}:{self.now.line}: expressions are nested too deeply")
        body = self.body()
        self.depth -= 1
        self.need("}")
        return body

    def body(self) -> Expr:
        lets = []
        while self.now.text == "let":
            line = self.now.line
            self.at += 1
            name = self.word("name", "%", "a variable with %")
            type_ = self.type() if self.took(":") else None
            self.need("=")
            value = self.expr()
            self.need(";")
            lets.append((line, name, type_, value))
        result = self.expr()
        for line, name, type_, value in reversed(lets):
            result = Let(line, name, type_, value, result)
        return result

    def expr(self, level: int = 0) -> Expr:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ModelError(f"{self.source}:{self.now.line}: expressions are nested too deeply")
        made = self.unary() if level == len(_LEVELS) else self.binary(level)
        self.depth -= 1
        return made

    def binary(self, level: int) -> Expr:
        left = self.expr(level + 1)
        while self.now.kind == "sign" and self.now.text in _LEVELS[level]:
            line, kind = self.now.line, _LEVELS[level][self.now.text]
            self.at += 1
            right = self.expr(level + 1)
            left = Call(line, Name(line, "Equal" if kind == "NotEqual" else kind), (left, right))
            if kind == "NotEqual":
                left = Call(line, Name(line, "Not"), (left,))
        return left

    def unary(self) -> Expr:
        line = self.now.line
        if self.took("!"):
            return Call(line, Name(line, "Not"), (self.unary(),))
        if self.took("-"):
            inner = self.unary()
            if isinstance(inner, Number) and not isinstance(inner.value, bool):
                return Number(line, -inner.value)
            return Call(line, Name(line, "Neg"), (inner,))
        made = self.primary()
        while True:
            line = self.now.line
            if self.took("("):
                made = self.call(made, line)
            elif self.took("."):
                for part in self.word("number", "", "the number of a member").split("."):  # `%x.0.1`
                    made = Member(line, made, int(part))
            else:
                return made

    def call(self, function: Expr, line: int) -> Expr:
        operands: list[Expr] = []
        attributes: dict[str, object] = {}

        def operand() -> None:
            following = self.tokens[min(self.at + 1, len(self.tokens) - 1)].text
            if self.now.kind == "word" and following == "=":
                name = self.word("word", "", "an attribute")
                self.need("=")
                attributes[name] = self.attribute()
            else:
                operands.append(self.expr())

        self.several(")", operand)
        return Call(line, function, tuple(operands), attributes)

    def attribute(self) -> object:
        if self.took("["):
            return self.several("]", self.attribute)[0]
        sign = -1 if self.took("-") else 1
        text = self.word("number", "", "a number or a list of them")
        return sign * (int(text) if text.isdigit() else float(text))

    def primary(self) -> Expr:
        token = self.now
        if token.text == "if":
            return self.if_()
        self.at += 1
        if token.text == "fn":
            return self.function(token.line)
        if token.text == "match":
            return self.match(token.line)
        if token.text == "full":
            self.need("(")
            value = self.number()
            self.need(",")
            made = Full(token.line, value, self.tensor_type())
            self.need(")")
            return made
        if token.text == "(":
            members, comma = self.several(")", self.expr)
            if len(members) == 1 and not comma:
                return members[0]
            return Tuple(token.line, tuple(members))
        if token.kind == "number" or token.text in ("True", "False"):
            self.at -= 1
            return Number(token.line, self.number())
        if token.kind in ("name", "word"):
            return Name(token.line, token.text)
        self.at -= 1
        self.wrong("an expression")

    def number(self) -> bool | int | float:
        if self.now.text in ("True", "False"):
            self.at += 1
            return self.tokens[self.at - 1].text == "True"
        sign = -1 if self.took("-") else 1
        text = self.word("number", "", "a number")
        return sign * (int(text) if text.isdigit() else float(text))

    def if_(self) -> If:
        line = self.now.line
        self.need("if")
        self.need("(")
        condition = self.expr()
        self.need(")")
        then = self.block()
        self.need("else")
        return If(line, condition, then, self.if_() if self.now.text == "if" else self.block())

    def match(self, line: int) -> Match:
        self.need("(")
        value = self.expr()
        self.need(")")
        self.need("{")
        cases = []
        while not self.took("}"):
            self.need("case")
            cases.append((self.pattern(), self.block()))
        return Match(line, value, tuple(cases))

    def pattern(self) -> Pattern:
        if self.took("_"):
            return Pattern("", "")
        if self.now.kind == "name":
            return Pattern("", self.word("name", "%", "a variable with %"))
        name = self.word("word", "", "a pattern")
        self.need("(")
        return Pattern(name, "", tuple(self.several(")", self.pattern)[0]))
