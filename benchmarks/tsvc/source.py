"""TSVC's C files made ready to be called loop by loop: our number of repetitions, no printing, no `main`."""

from __future__ import annotations

import re
from pathlib import Path

HARNESS = r"""
#include <sys/time.h>
#include "common.h"
#include "array_defs.h"
int repetitions = 1;
real_t last; /* the scalar that a loop hands to dummy */
int dummy(real_t a_[LEN_1D], real_t b_[LEN_1D], real_t c_[LEN_1D], real_t d_[LEN_1D], real_t e_[LEN_1D],
          real_t aa_[LEN_2D][LEN_2D], real_t bb_[LEN_2D][LEN_2D], real_t cc_[LEN_2D][LEN_2D], real_t s) {
    last = s;
    return 0;
}
double seconds_of(struct args_t *f) {
    return (double)(f->t2.tv_sec - f->t1.tv_sec) + 1e-6 * (double)(f->t2.tv_usec - f->t1.tv_usec);
}
typedef void (*kernel_t)(void **, long long *, void *);
double run_kernel(kernel_t kernel, void **arrays, long long *sizes) {
    struct args_t f;
    gettimeofday(&f.t1, 0);
    for (int nl = 0; nl < repetitions; nl++) {
        kernel(arrays, sizes, 0);
        dummy(a, b, c, d, e, aa, bb, cc, last);
    }
    gettimeofday(&f.t2, 0);
    return seconds_of(&f);
}
"""
"""The function that loops call, and the same repetition around a kernel of polyc."""

CALLER = r"""
#include <stddef.h>
#include "common.h"
int n1 = 1, n3 = 1;
int *ip;
real_t s1, s2;
float single = 1.0f; /* some loops read its bits as an integer */
extern real_t last; /* or what the loop returns */
double seconds_of(struct args_t *f);
void prepare(void) { init(&ip, &s1, &s2); }
"""


def write(source: Path, folder: Path, double: bool = False) -> None:
    """The C files, made of the checkout `source`, in `folder`; `double`: all elements are doubles.

    Raises:
        ValueError: the files are not as expected.
    """
    texts = {name: (source / "src" / name).read_text() for name in ("tsvc.c", "common.c", "common.h", "array_defs.h")}
    loops, end = texts["tsvc.c"].split("typedef real_t(*test_function_t)")
    loops, count = re.subn(r"for \(int nl = 0; nl < [^;]*; nl\+\+\)", "for (int nl = 0; nl < repetitions; nl++)", loops)
    if count != 151:
        raise ValueError(f"{source} has {count} loops that repeat, not 151")
    loops = re.sub(r"initialise_arrays\(__func__\);", "", loops)
    loops = re.sub(r"return calc_checksum\(__func__\);", "return 0;", loops)
    texts["tsvc.c"] = "extern int repetitions;\n" + loops
    texts["common.c"] = re.sub(r"\bprintf\(.*?\);", "", texts["common.c"])
    calls = re.findall(r"time_function\(&(\w+), (.*)\);", re.sub(r"&s1\b", "&single", end))
    runs = [
        f"real_t {name}(struct args_t *);\n"
        f"double run_{name}(void) {{ struct args_t f = {{.arg_info = {argument}}}; "
        f"last = 0; real_t r = {name}(&f); if (last == 0) last = r; return seconds_of(&f); }}\n"
        for name, argument in calls
    ]
    texts |= {"harness.c": HARNESS, "caller.c": CALLER + "".join(runs)}
    if double:
        texts["common.h"] = texts["common.h"].replace("typedef float real_t", "typedef double real_t")
    for name, text in texts.items():
        (folder / name).write_text(text)
