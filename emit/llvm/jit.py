"""LLVM IR text to machine code, and machine code into this process."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm

from polyc.emit.llvm.effort import FEW
from polyc.poly.errors import BuildError
from polyc.poly.target import Target

_lock = threading.RLock()  # LLVM's pass managers and target machines are not to be shared
_library_names = itertools.count()


@functools.cache
def _initialise(everything: bool) -> None:
    if llvm.get_process_triple().startswith("x86_64"):
        # Choices between scalars (tables of dynamic programming, sorts) depend on data that nothing predicts: as jumps
        # they took up to twice as long. Metadata would not do: it is lost where LLVM sees a minimum.
        llvm.set_option("", "-x86-cmov-converter=false")
    if everything:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()


@functools.lru_cache(maxsize=16)
def _machine(triple: str, cpu: str, features: str, level: int) -> Any:
    native = triple.split("-")[0] == llvm.get_process_triple().split("-")[0]
    _initialise(not native)
    try:
        found = llvm.Target.from_triple(triple)
        return found.create_target_machine(cpu, features, opt=level, reloc="pic", codemodel="small")
    except RuntimeError as error:
        raise BuildError(f"LLVM has no target '{triple}' (cpu '{cpu}'): {error}") from None


def check_triple(triple: str) -> None:
    """Raise `BuildError` unless LLVM makes code for a triple."""
    with _lock:
        _initialise(True)
        try:
            llvm.Target.from_triple(triple)
        except RuntimeError as error:
            said = next(iter(str(error).splitlines()), "")
            raise BuildError(f"LLVM has no target '{triple}': {said}") from None


def _parse(text: str) -> Any:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise BuildError(f"polyc made invalid LLVM IR (please report it): {' | '.join(lines[:4])}") from None
    return module


def optimise(text: str, target: Target, level: int = 3) -> Any:
    """The verified and optimised llvmlite module of `text`. `level` is LLVM's -O (0 to 3); a text that says so
    (`effort.FEW`) has a few passes only."""
    with _lock:
        module = _parse(text)
        options = llvm.create_pipeline_tuning_options(speed_level=level)
        options.slp_vectorization = False  # vectors are explicit, or LLVM's loop vectoriser makes them
        builder = llvm.create_pass_builder(_machine_for(text, target, level), options)
        manager = _few_passes() if FEW in text else builder.getModulePassManager()
        manager.run(module, builder)
        return module


def _few_passes() -> Any:
    """What tiles need: arrays become registers, blocks are joined, addresses folded."""
    manager = llvm.create_new_module_pass_manager()
    manager.add_sroa_pass()
    manager.add_simplify_cfg_pass()
    manager.add_instruction_combine_pass()
    return manager


def _machine_for(text: str, target: Target, level: int) -> Any:
    """What makes machine code of a text. For a tile on x86, whose CPUs order instructions themselves, a second
    scheduling after registers are given out changes nothing."""
    quick = FEW in text and target.isa == "x86-64"
    return _machine(target.triple, target.cpu, target.features, min(level, 1) if quick else level)


def build_object(text: str, target: Target, level: int = 3) -> bytes:
    """LLVM IR text to the bytes of a relocatable object file, which needs nothing of a compiler's run time.

    Raises:
        BuildError: LLVM does not know the target or refuses the text.
    """
    with _lock:
        image, more = _emitted(text, target, level), called(text)
        if more:
            from polyc.emit.llvm.run_time_calls import calls_run_time

            return _emitted(text + more, target, level) if calls_run_time(image) else image
        return image


def called(text: str) -> str:
    """The functions that LLVM may call for a text, where the machine has no instruction for halves: more text."""
    if " half" not in text:
        return ""
    from polyc.emit.llvm.run_time_calls import definitions  # few kernels have halves

    return definitions()


def _emitted(text: str, target: Target, level: int) -> bytes:
    return bytes(_machine_for(text, target, level).emit_object(optimise(text, target, level)))


def assembly(text: str, target: Target, level: int = 3) -> str:
    """The machine code of `text` as assembly language."""
    with _lock:
        module = optimise(text, target, level)
        return str(_machine_for(text, target, level).emit_assembly(module))


def assembly_for(text: str, triple: str, cpu: str) -> str:
    """The same for a machine that is no CPU (a GPU): all of LLVM's passes, no vectors of its own.

    Raises:
        BuildError: LLVM does not know the machine or refuses the text.
    """
    with _lock:
        module, machine = _parse(text), _machine(triple, cpu, "", 3)
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.slp_vectorization = options.loop_vectorization = False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return str(machine.emit_assembly(module))


@functools.cache
def _engine() -> Any:
    _initialise(False)
    return llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)


class Library:
    """Object files linked into this process. The code lives as long as this object.

    Symbols that the objects do not define come from `imports` (name -> address), then
    from the process (libc, libm, pthread).
    """

    def __init__(
        self, objects: Sequence[bytes], symbols: Sequence[str], imports: Mapping[str, int] | None = None
    ) -> None:
        """Link `objects` and look up `symbols`.

        Raises:
            BuildError: an object is damaged, or a symbol is missing.
        """
        builder = llvm.JITLibraryBuilder().add_current_process()
        for image in objects:
            builder.add_object_img(image)
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        for name in symbols:
            builder.export_symbol(name)
        with _lock:
            try:
                self._tracker = builder.link(_engine(), f"polyc{next(_library_names)}")
            except RuntimeError as error:
                raise BuildError(f"cannot link compiled code into this process: {error}") from None

    def address(self, name: str) -> int:
        """Address of one of the symbols asked for."""
        return int(self._tracker[name])
