"""MLIR's text of StableHLO, in its pretty and its generic form, as a `Program`.

Pretty forms are read by one rule: operands, words, `key = value` and slices between commas, then attributes, then the
type. Only constants, calls, reductions and loops have forms of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from polyc.graph_driver.stablehlo.lexer import Token, tokens
from polyc.graph_driver.stablehlo.literals import from_bytes, from_numbers
from polyc.graph_driver.stablehlo.program import ELEMENTS, Function, Operation, Program, Region, TensorType
from polyc.poly.errors import ModelError

_EXTENTS = re.compile(r"tensor<((?:(?:\d+|\?)x)*)(.*)>\Z", re.DOTALL)
_DEEPEST = 200


def parse(text: str, source: str = "<stablehlo>") -> Program:
    """The program of a text.

    Raises:
        ModelError: it is none; the line of the text is named.
    """
    parser = _Parser(text, source)
    try:
        return parser.program()
    except RecursionError:
        raise parser.fail("less depth") from None


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, text: str, source: str) -> None:
        self.source, self.tokens, self.at, self.depth = source, tokens(text, source), 0, 0
        self.forms: dict[str, Callable[[Operation], None]] = {
            "stablehlo.constant": self._constant, "stablehlo.reduce": self._reduce, "stablehlo.while": self._while,
            "call": self._call, "func.call": self._call, "stablehlo.custom_call": self._call,
        }  # fmt: skip

    # ---- tokens ----

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def fail(self, wanted: str) -> ModelError:
        found = repr(self.now.text[:40]) if self.now.text else "the end"
        return ModelError(f"{self.source}:{self.now.line}: {wanted} is expected, not {found}")

    def take(self) -> Token:
        token = self.now
        self.at += 1
        return token

    def sees(self, *texts: str) -> bool:
        return self.now.text in texts and self.now.kind != "string"

    def skip(self, text: str) -> bool:
        if self.sees(text):
            self.at += 1
            return True
        return False

    def need(self, text: str) -> None:
        if not self.skip(text):
            raise self.fail(repr(text))

    def kind(self, kind: str, wanted: str) -> str:
        if self.now.kind != kind:
            raise self.fail(wanted)
        return self.take().text

    def many(self, close: str, read: Callable[[], Any]) -> list[Any]:
        """What `read` reads between commas, up to the closing sign, which is taken."""
        found = []
        while not self.skip(close):
            found.append(read())
            if not self.skip(",") and not self.sees(close):
                raise self.fail(f"',' or {close!r}")
        return found

    # ---- the module ----

    def program(self) -> Program:
        functions: dict[str, Function] = {}
        name = "model"
        inside = self.skip("module") or self.skip("builtin.module")
        if inside:
            if self.now.kind == "symbol":
                name = self.take().text[1:].strip('"')
            if self.skip("attributes"):
                self.dictionary()
            self.need("{")
        while self.now.kind != "end" and not self.sees("}"):
            made = self._function()
            functions[made.name] = made
        if inside:
            self.need("}")
        self._location()
        if self.now.kind != "end" and not self.sees("#"):
            raise self.fail("the end of the module")
        if not functions:
            raise ModelError(f"{self.source}: it has no function")
        return Program(self.source, name, functions)

    def _function(self) -> Function:
        line = self.now.line
        if not self.skip("func.func") and not self.skip("func"):
            raise self.fail("a function")
        for word in ("public", "private", "nested"):
            self.skip(word)
        name = self.kind("symbol", "a function's name")[1:].strip('"')
        self.need("(")
        arguments = self.many(")", self._argument)
        results: list[TensorType] = []
        if self.skip("->"):
            results = self.many(")", self._described_type) if self.skip("(") else [self.type()]
        if self.skip("attributes"):
            self.dictionary()
        if not self.sees("{"):
            raise self.fail(f"the body of {name}")
        region = self.region()
        region.arguments[:0] = arguments
        return Function(name, line, region, results)

    def _argument(self) -> tuple[str, TensorType]:
        name = self.value()
        self.need(":")
        return name, self._described_type()

    def _described_type(self) -> TensorType:
        found = self.type()
        if self.sees("{"):
            self.dictionary()
        self._location()
        return found

    def _location(self) -> None:
        if self.sees("loc") and self.tokens[self.at + 1].text == "(":
            self.at += 1
            self._parentheses()

    def _parentheses(self) -> None:
        depth = 0
        while True:
            if self.now.kind == "end":
                raise self.fail("')'")
            depth += {"(": 1, ")": -1}.get(self.now.text, 0) if self.now.kind == "sign" else 0
            self.at += 1
            if depth == 0:
                return

    # ---- types ----

    def type(self) -> TensorType:
        if self.now.kind == "tensor":
            match = _EXTENTS.match(self.now.text)
            if match is None:
                raise self.fail("a type")
            extents = [None if n == "?" else int(n) for n in match[1].split("x")[:-1]]
            self.at += 1
            return TensorType(tuple(extents), match[2].partition(",")[0].strip())
        if self.now.kind == "word" or self.sees("!"):
            name = "!" if self.skip("!") else ""
            name += self.kind("word", "a type")
            if self.sees("<"):
                self._angles()
            return TensorType((), name)
        raise self.fail("a type")

    def _angles(self) -> None:
        depth = 0
        while True:
            if self.now.kind == "end":
                raise self.fail("'>'")
            depth += {"<": 1, ">": -1}.get(self.now.text, 0) if self.now.kind == "sign" else 0
            self.at += 1
            if depth == 0:
                return

    def types(self) -> list[TensorType]:
        """The types behind a colon: of the results, where `->` says so, else of all that is named."""
        found = self._types()
        return self._types() if self.skip("->") else found

    def _types(self) -> list[TensorType]:
        if self.skip("("):
            return self.many(")", self.type)
        found = [self.type()]
        while self.skip(","):
            found.append(self.type())
        return found

    # ---- operations ----

    def value(self) -> str:
        return self.kind("value", "a value")[1:]

    def region(self) -> Region:
        """`{ ^bb(arguments): operations }`."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.fail("less depth")
        self.need("{")
        arguments: list[tuple[str, TensorType]] = []
        if self.now.kind == "block":
            self.at += 1
            if self.skip("("):
                arguments = self.many(")", self._argument)
            self.need(":")
        operations = []
        while not self.skip("}"):
            if self.now.kind == "block":
                raise self.fail("one block in a region")
            operations.append(self.operation())
        self.depth -= 1
        return Region(arguments, operations)

    def operation(self) -> Operation:
        made = Operation("", self.now.line)
        if self.now.kind == "value":
            made.results = self._results()
        made.line = self.now.line
        if self.now.kind == "string":
            made.name = self.take().text[1:-1]
            self._generic(made)
        else:
            made.name = self.kind("word", "an operation")
            self.forms.get(made.name, self._pretty)(made)
        self._location()
        if made.results and len(made.results) != len(made.types):
            if len(made.types) < len(made.results):
                raise ModelError(f"{self.source}:{made.line}: {made.name} has no type of each result")
            made.types = made.types[-len(made.results) :]
        return made

    def _results(self) -> list[str]:
        found = []
        while True:
            name = self.value()
            if self.skip(":"):
                found += [f"{name}#{k}" for k in range(int(self.kind("number", "a number")))]
            else:
                found.append(name)
            if not self.skip(","):
                self.need("=")
                return found

    def _generic(self, made: Operation) -> None:
        """`(operands) <{properties}> ({regions}) {attributes} : (types) -> types`."""
        self.need("(")
        made.operands = self.many(")", self.value)
        if self.skip("<"):
            made.attributes |= self.dictionary()
            self.need(">")
        if self.skip("("):
            made.regions = self.many(")", self.region)
        if self.sees("{"):
            made.attributes |= self.dictionary()
        self.need(":")
        made.types = self.types()

    def _pretty(self, made: Operation) -> None:
        """`operands, words, key = value, [slices] {attributes} : type`."""
        words: list[str] = []
        while not self.sees(":", "{", "}") and self.now.kind != "end":
            if self.now.kind == "value":
                made.operands.append(self.value())
            elif self.now.kind == "symbol":
                made.attributes["callee"] = self.take().text[1:]
            elif self.sees("["):
                made.attributes["slices"] = self._slices()
            elif self.skip("(") or self.skip(")"):
                continue
            elif self.now.kind == "word":
                self._clause(made, words)
            else:
                raise self.fail("an operand")
            self.skip(",")
        if words:
            made.attributes["words"] = words
        if self.sees("{"):
            made.attributes |= self.dictionary()
        if self.skip(":"):
            made.types = self.types()

    def _clause(self, made: Operation, words: list[str]) -> None:
        word = self.take().text
        if not self.skip("="):
            words.append(word)
            return
        parts = [self.attribute()]
        while self.sees("x", "->"):
            self.at += 1
            parts.append(self.attribute())
        made.attributes[word] = parts[0] if len(parts) == 1 else parts

    def _slices(self) -> list[list[int]]:
        """`[start:stop:step, ...]`."""

        def one() -> list[int]:
            found = [self._integer()]
            while self.skip(":"):
                found.append(self._integer())
            return found

        self.need("[")
        return self.many("]", one)

    def _integer(self) -> int:
        word = self.kind("number", "an integer")
        try:
            return int(word, 0)
        except ValueError:
            self.at -= 1
            raise self.fail("an integer") from None

    def _constant(self, made: Operation) -> None:
        if self.skip("("):
            self.need(")")
            self.at -= 2
            return self._generic(made)
        if self.sees("{"):
            made.attributes |= self.dictionary()
        if not self.sees("dense"):
            raise self.fail("dense<...>")
        value = self.attribute()
        made.attributes["value"] = value
        made.types = [self.dense_type]

    def _call(self, made: Operation) -> None:
        made.attributes["callee"] = self.kind("symbol", "a function's name")[1:].strip('"')
        self.need("(")
        made.operands = self.many(")", self.value)
        if self.sees("{"):
            made.attributes |= self.dictionary()
        self.need(":")
        made.types = self.types()

    def _reduce(self, made: Operation) -> None:
        """`(x init: x0), (y init: y0) [applies NAME] across dimensions = [...] : types [reducer(...) {...}]`."""
        first: list[str] = []
        start: list[str] = []
        while self.skip("("):
            first.append(self.value())
            self.need("init")
            self.need(":")
            start.append(self.value())
            self.need(")")
            self.skip(",")
        made.operands = first + start
        applied = self.kind("word", "an operation") if self.skip("applies") else ""
        self.need("across")
        self.need("dimensions")
        self.need("=")
        made.attributes["dimensions"] = self.attribute()
        if self.sees("{"):
            made.attributes |= self.dictionary()
        self.need(":")
        made.types = self.types()
        if applied:
            scalar = TensorType((), made.types[0].element)
            body = Operation(applied, made.line, ["a", "b"], ["c"], [scalar])
            end = Operation("stablehlo.return", made.line, ["c"])
            made.regions = [Region([("a", scalar), ("b", scalar)], [body, end])]
            return
        self.need("reducer")
        pairs = []
        while self.skip("("):
            pairs.append(self.many(")", self._argument))
        if any(len(p) != 2 for p in pairs):
            raise self.fail("pairs of arguments")
        region = self.region()
        region.arguments = [p[0] for p in pairs] + [p[1] for p in pairs]
        made.regions = [region]

    def _while(self, made: Operation) -> None:
        """`(%a = %x, ...) : types cond {...} do {...}`."""
        names: list[str] = []
        self.need("(")

        def one() -> None:
            names.append(self.value())
            self.need("=")
            made.operands.append(self.value())

        self.many(")", one)
        self.need(":")
        made.types = self.types()
        if self.skip("attributes"):
            made.attributes |= self.dictionary()
        for word in ("cond", "do"):
            self.need(word)
            region = self.region()
            region.arguments = list(zip(names, made.types, strict=False))
            made.regions.append(region)

    # ---- attributes ----

    def dictionary(self) -> dict[str, Any]:
        """`{key = value, key}`."""
        found: dict[str, Any] = {}

        def one() -> None:
            key = self.take().text.strip('"')
            found[key] = self.attribute() if self.skip("=") else True

        self.need("{")
        self.many("}", one)
        return found

    def attribute(self) -> Any:
        """An attribute: a number, a text, a list, a dict, an array."""
        token = self.now
        if token.kind == "string":
            self.at += 1
            return token.text[1:-1]
        if token.kind == "number":
            self.at += 1
            if self.sees(":") and self.tokens[self.at + 1].kind == "word":
                self.at += 2  # its type
            whole = token.text.lstrip("-").isdigit() or "0x" in token.text
            return int(token.text, 0) if whole else float(token.text)
        if token.kind == "symbol":
            self.at += 1
            return token.text[1:]
        if self.skip("["):
            return self.many("]", self.attribute)
        if self.sees("{"):
            return self.dictionary()
        if self.skip("#"):
            return self._dialect_attribute()
        if self.skip("array"):
            return self._array()
        if self.skip("dense"):
            return self._dense()
        if token.kind == "tensor":
            return self.type()
        if token.kind == "word":
            self.at += 1
            if token.text in ("true", "false"):
                return token.text == "true"
            return token.text
        raise self.fail("an attribute")

    def _dialect_attribute(self) -> Any:
        """`#stablehlo.scatter<key = value, ...>` as a dict, `#stablehlo<transpose NO_TRANSPOSE>` as its words."""
        self.kind("word", "an attribute")
        if not self.skip("<"):
            return True
        found: dict[str, Any] = {}
        words: list[Any] = []

        def one() -> None:
            while not self.sees(",", ">"):
                if self.now.kind == "word" and self.tokens[self.at + 1].text == "=":
                    key = self.take().text
                    self.at += 1
                    found[key] = self.attribute()
                else:
                    words.append(self.attribute())

        self.many(">", one)
        return found or words

    def _array(self) -> list[Any]:
        """`array<i64: 1, 2>`."""
        self.need("<")
        self.type()
        return self.many(">", self.attribute) if self.skip(":") else self.many(">", self.attribute)

    def _dense(self) -> np.ndarray:
        """`<...> : type`; the type is kept in `dense_type`."""
        self.need("<")
        words: list[str] = []
        data: bytes | None = None
        if self.now.kind == "string":
            data = self._bytes()
        else:
            depth = 0
            while not self.sees(">") or depth:
                if self.now.kind == "end":
                    raise self.fail("'>'")
                if self.now.kind in ("number", "word"):
                    words.append(self.now.text)
                elif self.sees("(", "["):
                    depth += 1
                elif self.sees(")", "]"):
                    depth -= 1
                elif not self.sees(","):
                    raise self.fail("a number")
                self.at += 1
        self.need(">")
        self.need(":")
        line = self.now.line
        self.dense_type = self.type()
        dtype = ELEMENTS.get(self.dense_type.element)
        if dtype is None:
            raise ModelError(f"{self.source}:{line}: polyc has no element type {self.dense_type.element}")
        shape = [n for n in self.dense_type.shape if n is not None]
        try:
            return from_numbers(words, dtype, shape) if data is None else from_bytes(data, dtype, shape)
        except (ValueError, OverflowError) as error:
            raise ModelError(f"{self.source}:{line}: dense of {self.dense_type}: {error}") from None

    def _bytes(self) -> bytes:
        word = self.take().text[1:-1]
        try:
            if not word.startswith("0x"):
                raise ValueError
            return bytes.fromhex(word[2:])
        except ValueError:
            self.at -= 1
            raise self.fail("bytes in hexadecimal") from None
