"""Names in C: those that the language, its library and our helpers have taken, and what stands for them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from polyc.emit.loop_ir.loops import Function
from polyc.emit.loop_ir.rewrite import Names, binders, renamed_function
from polyc.poly.dtypes import BY_NAME

KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    "asm class new delete this template private public protected friend operator namespace using try catch throw "
    "virtual typename export explicit mutable bool true false and or not xor typeof".split()
)
"""Words of C and C++ that cannot be names of arguments."""

_MATH = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh drem erf erfc exp exp2 expm1 fabs fdim finite "
    "floor fma fmax fmin fmod frexp gamma hypot ilogb isinf isnan j0 j1 jn ldexp lgamma llrint llround log log10 "
    "log1p log2 logb lrint lround modf nan nearbyint nextafter nexttoward pow remainder remquo rint round scalb "
    "scalbln scalbn significand sin sinh sqrt tan tanh tgamma trunc y0 y1 yn"
)
_OTHERS = (
    "a64l abort abs aligned_alloc alloca arc4random arc4random_buf arc4random_uniform asctime asctime_r at_quick_exit "
    "atexit atof atoi atol atoll bcmp bcopy bsearch bzero calloc clearenv clearerr clearerr_unlocked clock "
    "clock_getcpuclockid clock_getres clock_gettime clock_nanosleep clock_settime ctermid ctime ctime_r difftime div "
    "dprintf drand48 drand48_r dysize ecvt ecvt_r erand48 erand48_r exit explicit_bzero fclose fcvt fcvt_r fdopen "
    "feof feof_unlocked ferror ferror_unlocked fflush fflush_unlocked ffs ffsl ffsll fgetc fgetc_unlocked fgetpos "
    "fgets fileno fileno_unlocked flockfile fmemopen fopen fprintf fputc fputc_unlocked fputs fread fread_unlocked "
    "free freopen fscanf fseek fseeko fsetpos ftell ftello ftrylockfile funlockfile fwrite fwrite_unlocked gcvt getc "
    "getc_unlocked getchar getchar_unlocked getdelim getenv getline getloadavg getsubopt getw gmtime gmtime_r index "
    "initstate initstate_r jrand48 jrand48_r l64a labs lcong48 lcong48_r ldiv lgamma_r lgammaf_r lgammal_r llabs "
    "lldiv localtime localtime_r lrand48 lrand48_r malloc mblen mbstowcs mbtowc memccpy memchr memcmp memcpy memmove "
    "memset mkdtemp mkstemp mkstemps mktemp mktime mrand48 mrand48_r nanosleep nrand48 nrand48_r on_exit "
    "open_memstream pclose perror popen posix_memalign printf pselect putc putc_unlocked putchar putchar_unlocked "
    "putenv puts putw qecvt qecvt_r qfcvt qfcvt_r qgcvt qsort quick_exit rand rand_r random random_r realloc "
    "reallocarray realpath remove rename renameat rewind rindex rpmatch scanf seed48 seed48_r select setbuf setbuffer "
    "setenv setlinebuf setstate setstate_r setvbuf snprintf sprintf srand srand48 srand48_r srandom srandom_r sscanf "
    "stpcpy stpncpy strcasecmp strcasecmp_l strcat strchr strcmp strcoll strcoll_l strcpy strcspn strdup strerror "
    "strerror_l strerror_r strftime strftime_l strlen strncasecmp strncasecmp_l strncat strncmp strncpy strndup "
    "strnlen strpbrk strrchr strsep strsignal strspn strstr strtod strtof strtok strtok_r strtol strtold strtoll "
    "strtoq strtoul strtoull strtouq strxfrm strxfrm_l system tempnam time timegm timelocal timer_create timer_delete "
    "timer_getoverrun timer_gettime timer_settime timespec_get tmpfile tmpnam tmpnam_r tzset ungetc unsetenv valloc "
    "vdprintf vfprintf vfscanf vprintf vscanf vsnprintf vsprintf vsscanf wcstombs wctomb"
)
_SYSTEM = (
    "accept access advance alarm bind close connect dup errno fork HUGE_VAL INFINITY kill link linux listen main NAN "
    "open pause pipe raise read recv send signal sleep socket step swab sync times unix unlink utime wait write "
    "size_t ptrdiff_t wchar_t ssize_t off_t time_t clock_t div_t ldiv_t lldiv_t FILE stdin stdout stderr NULL EOF "
    "BUFSIZ RAND_MAX EXIT_SUCCESS EXIT_FAILURE MB_CUR_MAX CLOCKS_PER_SEC M_PI M_E"
)
LIBRARY = frozenset(
    {*(name + end for name in _MATH.split() for end in ("", "f", "l")), *_OTHERS.split(), *_SYSTEM.split()}
)
"""Names of the C library, which a function of ours must not replace nor an argument hide: all that the headers declare
which generated code includes, and what programs link with."""

_HELPERS = {*BY_NAME, "bool"}
_OF_KERNELS = {"buffers", "params", "runtime"}  # arguments of every kernel


def identifier(name: str) -> str:
    """`name` with what C has no letters for replaced; never empty, never reserved to the compiler."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return text if re.match(r"[A-Za-z]", text) else f"x{text}" if text.startswith("_") else f"x_{text}"


class CNames(Names):
    """Hands out identifiers of C that no other name has."""

    def __init__(self, taken: Iterable[str]) -> None:
        super().__init__(set(taken))

    def fresh(self, wanted: str) -> str:
        return super().fresh(identifier(wanted))


def symbol(name: str) -> str:
    """What machine code calls the function of a kernel: never what C, its library or our helpers have taken."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"polyc_{text}" if _taken(text) else text


def fitting(fn: Function) -> Function:
    """A kernel with other names for those arrays, sizes and loops whose names C or our helpers have taken; itself where
    there are none. Statements correspond one to one.
    """
    own = {*fn.params, *(b.name for b in fn.buffers), *binders(fn.body)}
    if not any(map(_taken, own)):
        return fn
    names = _KernelNames(set())
    arrays = {b.name: names.fresh(b.name) for b in fn.buffers}
    params = {p: names.fresh(p) for p in fn.params}
    return renamed_function(fn, arrays, params, names)


class _KernelNames(Names):
    def fresh(self, wanted: str) -> str:
        return super().fresh(symbol(wanted))


def _taken(name: str) -> bool:
    """Whether a kernel's text may use a name for something else. Helpers have an element type in theirs (`max_f32`)."""
    words = name.split("_")
    typed = not _HELPERS.isdisjoint(words) or any(re.fullmatch(r"u?int\d+", w) for w in words)
    return typed or name in KEYWORDS or name in LIBRARY or name in _OF_KERNELS
