"""Scops as exact text: `printer.exact_scop` writes one, `parser.parse_scop` reads it back.

`poly.text` is for reading only; `poly.json_io` is the form of files, with places in sources. This text is for people
who compare, change and keep Scops: goldens, reports of defects, tests.
"""
