"""Line tables: which loop-IR statement each instruction comes from.

LLVM carries `!dbg` locations through its optimiser into `.loc` directives of the assembly. The
"source file" of these locations is the text of the loop IR (`polyc.emit.loop_ir.printer`), so that a line of
machine code leads back to a line of loops. Only text for people is made this way: the code that
runs is printed without, and is the same (LLVM's rule that debug information changes no code).
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.emit.llvm.code import ModuleText
from polyc.emit.loop_ir.loops import Stmt


class LineTable:
    """Debug metadata of one module. `lines`: `id(statement)` to its 1-based line in the loops' text."""

    def __init__(self, module: ModuleText, lines: Mapping[int, int]) -> None:
        self.module = module
        self.lines = lines
        self.file = module.add_node('!DIFile(filename: "loops", directory: "")')
        self.unit = module.add_node(
            f'distinct !DICompileUnit(language: DW_LANG_C99, file: {self.file}, producer: "polyc", '
            "isOptimized: true, runtimeVersion: 0, emissionKind: DebugDirectivesOnly)"
        )
        module.name_node("llvm.dbg.cu", self.unit)
        version = module.add_metadata('i32 2, !"Debug Info Version", i32 3')
        module.name_node("llvm.module.flags", version)
        self.type = module.add_node("!DISubroutineType(types: !{})")

    def function(self, name: str) -> str:
        """The metadata of a function of the module."""
        return self.module.add_node(
            f'distinct !DISubprogram(name: "{name}", scope: {self.file}, file: {self.file}, line: 1, '
            f"type: {self.type}, scopeLine: 1, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: {self.unit})"
        )

    def location(self, stmt: Stmt | None, function: str) -> str:
        """The suffix of instructions of `stmt` (None: of the function's own)."""
        line = 1 if stmt is None else self.lines.get(id(stmt), 1)
        return f", !dbg {self.module.shared_node(f'!DILocation(line: {line}, scope: {function})')}"
