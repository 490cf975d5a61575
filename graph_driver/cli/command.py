"""The `polyc` command: arguments, one line per error, exit codes (0 done, 1 failed, 2 wrong usage)."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from polyc.graph_driver import wiring
from polyc.graph_driver.cli.examples import epilog
from polyc.graph_driver.cli.inspect import DIGITS, MODEL_STAGES, Stages, UsageError, run_registrations
from polyc.graph_driver.cli.narrow_arguments import prune_arguments, quantize_arguments
from polyc.graph_driver.graph.precisions import PRECISIONS
from polyc.graph_driver.layouts.names import LAYOUTS
from polyc.graph_driver.memory import PLANNERS
from polyc.graph_driver.options import FULL, MEMORIES, TIERS, USUAL
from polyc.poly.errors import ArgumentError, BuildError, ModelError, OptionError, PolycError, ScheduleError

INTERRUPTED = 130
MOST_THREADS = 1 << 16


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {_one_line(message)} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = _Parser(prog="polyc", description="Compile operators and ONNX models to machine code.", allow_abbrev=False)
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    _compile_command(commands)
    _run_command(commands)
    _bench_command(commands)
    _inspect_command(commands)
    _building(commands)
    _explaining(commands)
    _tune_command(commands)
    quantize_arguments(commands)
    prune_arguments(commands)
    _looking_after(commands)
    for name, command in commands.choices.items():
        command.epilog = epilog(name)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
    return root


def _compile_command(commands: Any) -> None:
    """`compile`: a model into a directory."""
    make = commands.add_parser("compile", help="compile an ONNX model into a directory", allow_abbrev=False)
    make.add_argument("model", type=Path, metavar="MODEL.onnx")
    make.add_argument("-o", "--output", type=Path, metavar="OUT", help="the directory (default: MODEL.polyc)")
    make.add_argument("--memory-limit", type=int, metavar="BYTES", help="refuse an arena larger than this")
    make.add_argument(
        "--contiguous", action="append", default=[], metavar="A,B,...",
        help="these tensors lie one behind the other in the arena",
    )  # fmt: skip
    make.add_argument(
        "--stop-after", choices=("frontend", "graph"),
        help="write the graph after its target-independent passes, or after all, to OUT (MODEL.graph), and stop",
    )  # fmt: skip
    make.add_argument(
        "--emit", choices=("graph", "mlir", "so"),
        help="with --stop-after: the graph; mlir: all kernels as one MLIR module in OUT (MODEL.mlir), and stop; "
        "so: a shared object with a C interface, OUT (MODEL.so), with header and loader beside it",
    )  # fmt: skip
    make.add_argument(
        "--dump-after",
        metavar="A,B,...",
        help="write what these stages or passes made ('all': every one) into OUT.dumps",
    )
    make.add_argument("--timings", action="store_true", help="print what each stage and the slowest kernels took")
    make.add_argument("--trace", type=Path, metavar="FILE", help="write every stage and kernel as a Chrome trace")
    _dask(make, "compile kernels on the workers of a Dask cluster")
    _compiling(make)
    _tier(make)


def _run_command(commands: Any) -> None:
    """`run`: a model once, with checks."""
    run = commands.add_parser("run", help="run a model or a compiled directory", allow_abbrev=False)
    run.add_argument("model", type=Path, metavar="MODEL.onnx|OUT")
    run.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy", help="others are random")
    run.add_argument("--save", type=Path, metavar="OUT.npz", help="write the outputs")
    run.add_argument("--check", action="store_true", help="compare with ONNX Runtime or the ONNX reference")
    run.add_argument("--reference", type=Path, metavar="MODEL.onnx", help="what --check runs for a compiled directory")
    run.add_argument("--tolerance", type=float, metavar="E", help="of --check, relative to the scale (default: 1e-4)")
    run.add_argument(
        "--mode", choices=("graph", "eager", "mixed", "evicting"), default="graph",
        help="one native call, step by step, only the steps that --eager names, or within --memory-limit",
    )  # fmt: skip
    run.add_argument(
        "--memory-limit", type=int, metavar="BYTES", dest="held_at_most",
        help="of --mode evicting: tensors are dropped, and made again, so that kernels hold no more between them",
    )  # fmt: skip
    run.add_argument(
        "--eager", action="append", default=[], metavar="PATTERN",
        help="of --mode mixed: run these steps one at a time and print what they make (a node, operator, tensor or "
        "number of a step; * and ? stand for other characters)",
    )  # fmt: skip
    run.add_argument(
        "--differential", action="store_true", help="run after every graph pass, name the first that changes outputs"
    )
    run.add_argument("--poison", action="store_true", help="fill unused memory with NaNs, compare with a plain run")
    run.add_argument("--profile", type=Path, metavar="FILE", help="time each step, write a Chrome trace")
    run.add_argument(
        "--tensor", action="append", default=[], metavar="NAME", help="print this tensor (not in graph mode)"
    )
    run.add_argument(
        "--stop-at", metavar="PATTERN",
        help="of --mode eager: run no further than the first step of this name (as for --eager), print what it made",
    )  # fmt: skip
    run.add_argument(
        "--count-work", action="store_true",
        help="run once more, print the operations that it does and how often each body of control flow runs",
    )  # fmt: skip
    run.add_argument("--seed", type=int, default=0, metavar="N", help="of random inputs")
    run.add_argument(
        "--contiguous", action="append", default=[], metavar="A,B,...",
        help="these tensors lie one behind the other in the arena",
    )  # fmt: skip
    _compiling(run)
    _tier(run)


def _bench_command(commands: Any) -> None:
    """`bench`: models beside other engines."""
    bench = commands.add_parser("bench", help="time models beside ONNX Runtime and OpenVINO", allow_abbrev=False)
    bench.add_argument("model", type=Path, nargs="+", metavar="MODEL.onnx")
    bench.add_argument("--against", metavar="A,B", help="onnxruntime, openvino (default: those installed; '' for none)")
    bench.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy", help="others are random")
    bench.add_argument("--rounds", type=int, default=20, metavar="N", help="interleaved rounds (default 20)")
    bench.add_argument("--seed", type=int, default=0, metavar="N", help="of random inputs")
    bench.add_argument(
        "--energy", action="store_true", help="joules of a run, by the machine's counters, else estimated"
    )
    bench.add_argument("--kernels", action="store_true", help="list every step, not only the slowest")
    _dask(bench, "time the models on the workers of a Dask cluster, each alone on its cores")
    _compiling(bench, json=False)
    bench.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    codes = commands.add_parser("explain-error", help="what the code of an error means, and what to do")
    codes.add_argument("code", nargs="?", metavar="CODE", help="P401, or the error's name; without it all are listed")


def _inspect_command(commands: Any) -> None:
    """`inspect`: a stage of the compiler."""
    look = commands.add_parser("inspect", help="look at a stage of the compiler", allow_abbrev=False)
    look.add_argument("what", metavar="FILE.py:OP|MODEL")
    look.add_argument("--stage", choices=Stages(), metavar="STAGE", help=", ".join(MODEL_STAGES))
    look.add_argument("--html", type=Path, metavar="FILE", help="write a page instead of printing")
    look.add_argument(
        "--svg", type=Path, metavar="FILE",
        help="draw the loops down to each instance, to zoom into: of a model its nodes in one schedule tree, of an "
        "operator its schedule; small sizes only",
    )  # fmt: skip
    look.add_argument("--schedule", type=Path, metavar="FILE", help="of an operator: a saved schedule")
    look.add_argument(
        "--yaml", action="store_true", help="of --stage schedule: as a file to edit (--schedule reads it)"
    )
    look.add_argument("--measure", action="store_true", help="of a page: run it for the time, of a model of each step")
    look.add_argument("--kernel", metavar="N|NAME", help="of a model: only this kernel, by number or label")
    _compiling(look)


def _tune_command(commands: Any) -> None:
    """`tune`: a search by measuring."""
    tune = commands.add_parser("tune", help="search faster schedules by measuring", allow_abbrev=False)
    tune.add_argument("what", metavar="FILE.py:OP|MODEL")
    tune.add_argument("--trials", type=int, default=32, metavar="N", help="for each kernel, earlier ones included (32)")
    tune.add_argument("--limit", type=float, default=60.0, metavar="S", help="seconds for one trial (60)")
    _dask(tune, "run trials on the workers of a Dask cluster")
    _compiling(tune)


def _looking_after(commands: Any) -> None:
    """`passes`, `cache`, `doctor`: what there is, and what lies on the disk."""
    listed = commands.add_parser("passes", help="list the graph passes", allow_abbrev=False)
    listed.add_argument("--json", action="store_true", help="machine-readable")
    kept = commands.add_parser("cache", help="what the disk cache holds", allow_abbrev=False)
    kept.add_argument(
        "action", choices=("list", "size", "clear", "verify", "key", "sign", "trust"), nargs="?", default="size",
        help="list finished programs, say what takes how much room (default), remove all, or look for damage; of a "
        "shared cache: make a pair of keys, sign its entries, trust a public key",
    )  # fmt: skip
    kept.add_argument("key", nargs="?", type=Path, metavar="FILE", help="of key, sign and trust: the key")
    kept.add_argument("--only", choices=("programs", "kernels"), help="of clear: only these")
    kept.add_argument("--json", action="store_true", help="machine-readable")
    doctor = commands.add_parser("doctor", help="what this machine has", allow_abbrev=False)
    doctor.add_argument("--json", action="store_true", help="machine-readable")
    doctor.add_argument("--measure", action="store_true", help="measure what the machine does again (a second)")


def _building(commands: Any) -> None:
    """`build`: an operator as files."""
    build = commands.add_parser("build", help="an operator as C, header, LLVM IR, shared object", allow_abbrev=False)
    build.add_argument("what", metavar="FILE.py:OP")
    build.add_argument("-o", "--output", type=Path, metavar="DIR", help="the folder (default: OP_build)")
    build.add_argument("--emit", metavar="A,B", help="c, h, ll, mlir, asm, obj, so (default: c,h,so)")
    build.add_argument(
        "--size", action="append", default=[], metavar="NAME=V", help="value of a size; others are arguments"
    )
    build.add_argument(
        "--const", action="append", default=[], metavar="NAME=V", help="value of a compile-time constant"
    )
    build.add_argument("--shape", action="append", default=[], metavar="NAME=N,N", help="shape of an array of any rank")
    build.add_argument(
        "--target",
        metavar="T",
        help="a CPU by LLVM's name, a file NAME.toml, or c99 (no machine); polyc doctor lists targets",
    )
    build.add_argument("--threads", type=_threads, metavar="N", help="of parallel loops (default: 1)")
    build.add_argument("--schedule", type=Path, metavar="FILE", help="a saved schedule (default: the automatic one)")
    build.add_argument("--name", metavar="SYMBOL", help="of the C function (default: the operator's)")
    build.add_argument("--no-checks", action="store_true", help="no checks of accesses that are not proven")
    build.add_argument("--json", action="store_true", help="machine-readable output")


def _explaining(commands: Any) -> None:
    """`explain`, `why`, `certify`, `diff`, `bisect`: what a schedule is and why, what depends on what, proofs."""
    why = commands.add_parser("explain", help="why this schedule, this fusion, this layout", allow_abbrev=False)
    why.add_argument("what", metavar="FILE.py:OP|MODEL")
    why.add_argument(
        "--verbose", action="store_true",
        help="of a model: the decisions of every kernel too; of an operator: formulas of any length",
    )  # fmt: skip
    why.add_argument("--measure", action="store_true", help="run it: predicted beside measured times")
    _compiling(why)

    origin = commands.add_parser(
        "why", help="what an element of a result depends on, or what depends on an element of an input",
        allow_abbrev=False,
    )  # fmt: skip
    origin.add_argument("what", metavar="FILE.py:OP|MODEL")
    subscripts = "subscripts as NumPy's, numbers and slices; several times for several tensors"
    origin.add_argument("--output", action="append", metavar="'Y[3, 0:5]'", help=f"elements of results; {subscripts}")
    origin.add_argument("--input", action="append", metavar="'X[0, 7]'", help="elements of inputs: what they move")
    origin.add_argument("--writers", action="append", metavar="'Y[3]'", help="which instances write it, of the whole")
    origin.add_argument("--picture", type=Path, metavar="FILE.svg", help="draw it: a frame for each tensor")
    origin.add_argument("--kernels", action="store_true", help="of a model: which kernels compute it")
    _compiling(origin)

    far = commands.add_parser(
        "bounds", help="how far results may be from exact arithmetic, for all inputs in given ranges",
        allow_abbrev=False,
    )  # fmt: skip
    far.add_argument("what", metavar="MODEL|FILE.py:OP")
    far.add_argument(
        "--range", action="append", default=[], metavar="X=LO..HI",
        help="where an input lies: X=-1..1, X=0.5, X=FILE.npy, X=FILE.npy+-0.01; *=LO..HI for all others of floats",
    )  # fmt: skip
    far.add_argument("--tensors", action="store_true", help="also the bounds of all tensors between")
    far.add_argument("--save", type=Path, metavar="FILE.npz", help="write the bound of each element of the outputs")
    far.add_argument("--schedule", type=Path, metavar="FILE", help="of an operator: with the sums of a saved schedule")
    far.add_argument(
        "--at-most",
        type=float,
        metavar="E",
        help="of an operator: the largest blocks of sums for which no error is above",
    )
    far.add_argument("--save-schedule", type=Path, metavar="FILE", help="write the schedule of --at-most")
    _compiling(far)

    proof = commands.add_parser(
        "certify", help="certificates of generated loops, and a checker that knows nothing of polyc", allow_abbrev=False
    )
    proof.add_argument("what", metavar="FILE.py:OP|MODEL")
    proof.add_argument("-o", "--output", type=Path, metavar="DIR", help="the folder (default: NAME_certificates)")
    proof.add_argument("--schedule", type=Path, metavar="FILE", help="of an operator: a saved schedule")
    proof.add_argument(
        "--prove-order", action="store_true",
        help="of --reproducible: that every sum is added up in the order of its program, whatever runs it",
    )  # fmt: skip
    _compiling(proof)

    diff = commands.add_parser("diff", help="what is different between two schedules", allow_abbrev=False)
    diff.add_argument("what", metavar="FILE.py:OP")
    diff.add_argument("first", type=Path, metavar="A", help="a schedule (YAML or a saved trace)")
    diff.add_argument("second", type=Path, nargs="?", metavar="B", help="another one (default: the automatic one)")
    _compiling(diff)

    bisect = commands.add_parser("bisect", help="the step that made a schedule illegal or slower", allow_abbrev=False)
    bisect.add_argument("what", metavar="FILE.py:OP")
    bisect.add_argument("trace", type=Path, metavar="TRACE", help="a saved trace (Schedule.save)")
    bisect.add_argument("--slower", type=float, metavar="F", help="look for the step that makes it F times slower")
    _compiling(bisect)


def _threads(text: str) -> int:
    """A number of threads."""
    if DIGITS.fullmatch(text) and int(text) > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{text} threads are more than any machine has")
    if not DIGITS.fullmatch(text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"threads are a number of at least 1, not '{text}'")
    return int(text)


def _dask(p: argparse.ArgumentParser, help: str) -> None:
    p.add_argument("--dask", metavar="ADDRESS|local:N", help=f"{help} (docs/clusters.md)")


def _tier(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--tier", choices=TIERS, default=FULL,
        help="full (default): code as fast as it gets; fast: soon, made with less care; progressive: NumPy answers "
        "until the full code is there",
    )  # fmt: skip


def _compiling(p: argparse.ArgumentParser, json: bool = True) -> None:
    """Options of everything that compiles."""
    p.add_argument(
        "--target",
        default=None,
        metavar="T",
        help="cpu (default), c, a CPU by LLVM's name (znver3, neoverse-n1), a GPU (cuda, opencl, sm_80, sm_80+tf32), "
        "or a file NAME.toml; polyc doctor lists them",
    )
    p.add_argument("--dim", action="append", default=[], metavar="NAME=V", help="value of a symbolic size")
    p.add_argument(
        "--bind", action="append", default=[], metavar="NAME=V[,V...]", help="fix the value of an input of a model"
    )
    p.add_argument("--threads", type=_threads, metavar="N", help="of parallel loops (default: all cores)")
    p.add_argument("--exact", action="store_true", help="keep each operator's own rounding (no Winograd convolutions)")
    p.add_argument(
        "--reproducible", action="store_true", help="the same bits on every thread count, batch size, CPU and back end"
    )
    p.add_argument("--passes", metavar="A,B", help="run these graph passes, in this order (polyc passes lists them)")
    p.add_argument("--disable", default="", metavar="A,B", help="leave out these graph passes")
    p.add_argument(
        "--select", choices=("cost", "naive"), default="cost",
        help="implementations by cost, or one kernel for each node as the operator's definition has it",
    )  # fmt: skip
    p.add_argument(
        "--keep-op-borders", action="store_true", help="one kernel for each operator: no fusion across nodes' borders"
    )
    p.add_argument(
        "--memory", choices=MEMORIES, default=USUAL,
        help="minimal: the smallest arena, in which tensors lie over others that die while they are made",
    )  # fmt: skip
    p.add_argument("--planner", choices=sorted(PLANNERS), help="of the arena (default: the cheapest that is best)")
    p.add_argument(
        "--layouts", choices=LAYOUTS, default="auto",
        help="how images between kernels are stored (default: as the cost model finds best)",
    )  # fmt: skip
    p.add_argument(
        "--register", action="append", type=Path, default=[], metavar="FILE.py",
        help="run this file first: it registers C functions (polyc.register_external)",
    )  # fmt: skip
    p.add_argument(
        "--strict-annotations", action="store_true",
        help="refuse a file whose declared shapes its own operators contradict (default: a warning)",
    )  # fmt: skip
    p.add_argument(
        "--no-checks", action="store_true",
        help="no checks of what data decide (default: an error): in a model an index outside chooses the nearest "
        "element, in an operator an access outside is undefined",
    )  # fmt: skip
    p.add_argument("--tasks", action="store_true", help="with threads: independent steps at the same time")
    p.add_argument("--fast-math", action="store_true", help="allow algebraic rules that change rounding, NaN or -0")
    p.add_argument("--tuned", action="store_true", default=None, help="take the schedules that polyc tune has found")
    p.add_argument(
        "--precision", "--dtype", choices=PRECISIONS,
        help="compute an f32 model in this type; int8: products of codes; auto: narrow where --max-error allows "
        "(default: as it stands)",
    )  # fmt: skip
    p.add_argument("--keep-f32", metavar="A,B", help="operators, nodes or results that --precision leaves in f32")
    p.add_argument(
        "--narrow-only", metavar="A,B", help="operators, nodes or results that alone --precision makes narrow"
    )
    p.add_argument(
        "--max-error", type=float, metavar="E",
        help="of --precision auto (default 0.01) and int8: the largest relative error of an output",
    )  # fmt: skip
    p.add_argument(
        "--data", type=Path, metavar="NPZ", help="samples by which the error is measured (default: random operands)"
    )
    p.add_argument("--allow-downcast", action="store_true", help="compute f64 in f32 where the target has no f64")
    if json:
        p.add_argument("--json", action="store_true", help="machine-readable output")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; gives the exit code. Errors are one line on stderr."""
    arguments = parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of any alphabet on any terminal
    try:
        run_registrations(vars(arguments).get("register", ()))
        with _warnings_in_one_line():
            code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except (UsageError, OptionError) as error:
        return _fail(_one_line(str(error)), 2, error.code)
    except (ModelError, ArgumentError, BuildError, ScheduleError) as error:
        return _fail(_one_line(str(error)), 1, error.code)
    except PolycError as error:  # of an operator's source: the line and where in it
        return _fail("\n".join(map(_one_line, str(error).split("\n"))), 1, error.code)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone: nothing to report, and nothing more to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as error:  # a full disk, a name that is too long, ...
        file = f"{str(error.filename)[:200]}: " if error.filename else ""
        return _fail(_one_line(f"{file}{error.strerror or error}"), 1)
    except MemoryError:
        return _fail("not enough memory", 1)
    except RecursionError:
        return _fail("the model or operator is nested too deeply", 1)
    except Exception as error:  # a bug: still one line, with the place; POLYC_DEBUG=1 shows all
        if os.environ.get("POLYC_DEBUG"):
            raise
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place else "?"
        text = " ".join(str(error).split())[:300]
        return _fail(f"internal error at {where}: {type(error).__name__}: {text} (POLYC_DEBUG=1 shows more)", 1)


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """What Python code gets as a warning is a line on stderr here, without the place in our own code."""

    def show(message: Warning | str, *place: object, **more: object) -> None:
        print(f"polyc: warning: {_one_line(str(message))}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _fail(message: str, code: int, kind: str = "") -> int:
    print(f"polyc: {message}", file=sys.stderr)
    if kind and sys.stderr.isatty():
        print(f"[{kind}: polyc explain-error {kind} says more]", file=sys.stderr)
    return code


def _one_line(message: str) -> str:
    """Names in a broken file may hold anything: unprintable characters are escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)


def _dispatch(arguments: argparse.Namespace) -> int:
    wiring.connect()

    if arguments.command == "compile":
        from polyc.graph_driver.cli.compile import compile_command

        return compile_command(arguments)
    if arguments.command == "run":
        from polyc.graph_driver.cli.run import run_command

        return run_command(arguments)
    if arguments.command == "quantize":
        from polyc.graph_driver.cli.quantize import quantize_command

        return quantize_command(arguments)
    if arguments.command == "prune":
        from polyc.graph_driver.cli.prune import prune_command

        return prune_command(arguments)
    if arguments.command == "bench":
        from polyc.graph_driver.cli.bench import bench_command

        return bench_command(arguments)
    if arguments.command == "inspect":
        from polyc.graph_driver.cli.stages import inspect_command

        return inspect_command(arguments)
    if arguments.command in ("explain", "diff", "bisect"):
        from polyc.graph_driver.cli import explain as cli_explain

        return cli_explain.COMMANDS[arguments.command](arguments)
    if arguments.command == "explain-error":
        from polyc.graph_driver.cli.explain_error import explain_error_command

        return explain_error_command(arguments)
    if arguments.command == "why":
        from polyc.graph_driver.cli.why import why_command

        return why_command(arguments)
    if arguments.command == "bounds":
        from polyc.graph_driver.cli.bounds import bounds_command

        return bounds_command(arguments)
    if arguments.command == "certify":
        from polyc.graph_driver.cli.certify import certify_command

        return certify_command(arguments)
    if arguments.command == "build":
        from polyc.graph_driver.cli.build import build_command

        return build_command(arguments)
    if arguments.command == "tune":
        from polyc.graph_driver.cli.tune import tune_command

        return tune_command(arguments)
    if arguments.command == "cache":
        from polyc.graph_driver.cli.cache import cache_command

        return cache_command(arguments)
    if arguments.command == "passes":
        from polyc.graph_driver.cli.passes import passes_command

        return passes_command(arguments)
    import json

    from polyc.graph_driver.cli.doctor import doctor_lines, examine

    found = examine(arguments.measure)
    print(json.dumps(found, indent=2, sort_keys=True) if arguments.json else "\n".join(doctor_lines(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
