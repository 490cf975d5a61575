"""Ways to damage a text: in its bytes, its lines, its words, and for YAML and TOML in what it says."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import yaml

Edit = Callable[[str, random.Random], str]

NUMBERS = (
    "0",
    "-1",
    "1",
    "2",
    "7",
    "63",
    "1.5",
    "1e9",
    "2147483648",
    "9223372036854775808",
    "9" * 30,
    "0x10",
    "nan",
    "true",
)
WORDS = ("", "i", "k", "S0", "S9", "null", "~", "__class__", "__import__('os')", "ü", "a b", "[", "{", "'", '"', "\t",
         "\x1b[31mred", "\0", "\u2028", "%s", "{}",
    "i" * 3000, "!!python/object/apply:os.system ['true']")  # fmt: skip
NUMBER, WORD = re.compile(r"(?<![\w.])\d+"), re.compile(r"[A-Za-z_]\w*")


def _spot(pattern: re.Pattern[str], text: str, rng: random.Random, new: Callable[[str], str]) -> str:
    """One of the places that match, replaced."""
    found = list(pattern.finditer(text))
    if not found:
        return text + new("")
    m = rng.choice(found)
    return text[: m.start()] + new(m.group()) + text[m.end() :]


def truncated(text: str, rng: random.Random) -> str:
    """Its beginning."""
    return text[: rng.randrange(len(text) + 1)]


def characters(text: str, rng: random.Random) -> str:
    """Some replaced, left out or put in."""
    out = list(text)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(len(out) + 1)
        out[place : place + rng.randrange(3)] = rng.choice(
            ("", chr(rng.randrange(128)), chr(rng.randrange(0x3000)), ":", "\n")
        )
    return "".join(out)


def lines(text: str, rng: random.Random) -> str:
    """A line left out, repeated, moved or indented otherwise."""
    rows = text.split("\n")
    k = rng.randrange(len(rows))
    row = rows.pop(k)
    how = rng.randrange(4)
    if how == 1:
        rows[k:k] = [row, row]
    elif how == 2:
        rows.insert(rng.randrange(len(rows) + 1), row)
    elif how == 3:
        rows.insert(k, rng.choice((" ", "  ", "\t", "- ", "# ")) + row if rng.random() < 0.6 else row.lstrip())
    return "\n".join(rows)


def number(text: str, rng: random.Random) -> str:
    """Another number: a near one, or one of `NUMBERS`."""

    def other(old: str) -> str:
        return (
            str(int(old) + rng.choice((-2, -1, 1, 2)))
            if 0 < len(old) < 30 and rng.random() < 0.4
            else rng.choice(NUMBERS)
        )

    return _spot(NUMBER, text, rng, other)


def word(text: str, rng: random.Random) -> str:
    """Another word: one of the text's own, or one of `WORDS`."""
    known = WORD.findall(text) or [""]
    return _spot(WORD, text, rng, lambda old: rng.choice(known) if rng.random() < 0.5 else rng.choice(WORDS))


def repeated(text: str, rng: random.Random) -> str:
    """A part many times over: long files, deep nesting."""
    start = rng.randrange(len(text) + 1)
    part = text[start : start + rng.randrange(1, 30)]
    return text[:start] + part * rng.choice((2, 10, 1000)) + text[start:]


def whole(text: str, rng: random.Random) -> str:
    """Something else altogether."""
    return rng.choice((
        "", " ", "\0", "[]", "{}", "null", "1", "- a", "a: &a [*a]", "tree: *x", "[" * 5000, "{" * 5000, "a = [[[[",
        "tree: {" * 900, "? " * 500, "\ufeff" + text, text + text, text.upper(), "---\n" + text + "\n---\n" + text,
        "x: " + "1" * 5000, "a = " + "1" * 5000, '{"do": "split"}', '{"do": "set_order", "tree": 1}',
    ))  # fmt: skip


EDITS: tuple[Edit, ...] = (truncated, characters, lines, number, number, word, word, repeated, whole)


# ---- what a YAML text says -----------------------------------------------------------------------

VALUES: tuple[Any, ...] = (None, True, 0, -1, 1.5, 2**63, 10**40, float("nan"), "", "i", "x\ny",
    [], [[]], {}, {"i": "i"},
                           ["S0"],                            "parallel", "vector 0", "unroll 1000000", "i // 0",
    "i * i", "1 // i", "2 ** 100000", "i.j",
                           "0 if i else 1", "-" * 3000 + "i", "(" * 300 + "i" + ")" * 300)  # fmt: skip


def value_changed(text: str, rng: random.Random) -> str:
    """Any value becomes another, goes, or changes places with another."""
    data = yaml.safe_load(text)
    places = list(_places(data))
    holder, key = rng.choice(places)
    how = rng.randrange(4)
    if how == 0:
        other, at = rng.choice(places)
        holder[key] = rng.choice((other[at], _copy(data)))
    elif how == 1:
        del holder[key]
    elif how == 2 and isinstance(holder, dict):
        holder[rng.choice((1, None, True, "x", "loops", "body", "where"))] = holder.pop(key)
    else:
        holder[key] = rng.choice(VALUES)
    return _dumped(data)


def aliases(text: str, rng: random.Random) -> str:
    """Anchors that double at each level: a small file of 2 ** n parts."""
    depth = rng.choice((3, 12, 60))
    levels = ["&a0 [S0, S0]"] + [f"&a{k} [*a{k - 1}, *a{k - 1}]" for k in range(1, depth)]
    bomb = (
        "first: []\n" + f"sizes: [{', '.join(levels)}]\n" + f"tree: {rng.choice((f'*a{depth - 1}', '{body: *a1}'))}\n"
    )
    return rng.choice((bomb, text.replace("tree:", "tree: &t\n ", 1), text + f"\nmore: [{', '.join(levels)}]\n"))


def _places(data: Any, depth: int = 0) -> Any:
    for key in list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield data, key
        if depth < 30:
            yield from _places(data[key], depth + 1)


def _copy(data: Any) -> Any:
    return yaml.safe_load(_dumped(data))


def _dumped(data: Any) -> str:
    text: str = yaml.safe_dump(data, sort_keys=False, width=200)
    return text


YAML_EDITS: tuple[Edit, ...] = (*EDITS, value_changed, value_changed, value_changed, value_changed, aliases)


# ---- what a TOML text says -----------------------------------------------------------------------

TOML_VALUES = (
    "0", "-1", "1", "true", '""', '"x86-64"', '"avx"', "1.5", "nan", "[]", "[1]", "{}", "1979-05-27", "3", "17",
    "100",
    "1048576", "4294967296", "9223372036854775807", "99999999999999999999", '"+avx2,-avx2"', '"+nosuch"', '"x y\\nz"',
    '"\\u001b[31m"', '"aarch64-unknown-linux-gnu"', '"sm_999"', "[1024, 1024, 64, 1]", '["mma.f16", 3]', "[-1, 0, 1]",
)  # fmt: skip


def assignment(text: str, rng: random.Random) -> str:
    """The value of a key becomes another."""
    rows = [k for k, row in enumerate(text.split("\n")) if "=" in row and not row.startswith("#")]
    out = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        k = rng.choice(rows)
        out[k] = out[k].partition("=")[0] + "= " + rng.choice(TOML_VALUES)
    return "\n".join(out)


def key_changed(text: str, rng: random.Random) -> str:
    """A key goes, is there twice, has another name or is a table."""
    out = text.split("\n")
    k = rng.choice([k for k, row in enumerate(out) if "=" in row and not row.startswith("#")])
    name, _, value = out[k].partition("=")
    out[k] = rng.choice(
        ("", f"{out[k]}\n{out[k]}", f"other ={value}", f"{name.strip()}.x ={value}", f"[{name.strip()}]\nx ={value}")
    )
    return "\n".join(out)


TOML_EDITS: tuple[Edit, ...] = (*EDITS, *[assignment] * 8, key_changed, key_changed)


def mutated(text: str, edits: tuple[Edit, ...], rng: random.Random) -> tuple[str, bytes]:
    """The kind of damage and the damaged text, sometimes in bytes that are no UTF-8."""
    edit = rng.choice(edits)
    out = edit(text, rng)
    if rng.random() < 0.15:
        out = rng.choice(edits[:9])(out, rng)
    data = out.encode("utf-8", "surrogatepass")
    if rng.random() < 0.04:
        place = rng.randrange(len(data) + 1)
        data = data[:place] + bytes([rng.randrange(128, 256)]) + data[place:]
    return edit.__name__, data
