/* Runs the CUDA text that polyc emits on a CPU, unchanged: include this header before it.

   Blocks run one after another, the threads of a block as fibers that leave each other the processor
   only at barriers and warp operations, in a chosen order. Shared memory holds NaNs (-1 as integers)
   when a block starts. Reported on stderr, with exit code 67: a barrier that only some threads reach,
   threads at different barriers, a shuffle from a lane that does not take part. Built with
   -fsanitize=thread every CUDA thread is a thread of ThreadSanitizer, ordered by barriers only. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_THREAD__)
#define POLYC_TSAN 1
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
void __tsan_java_init(uintptr_t begin, size_t size);
void __tsan_java_alloc(uintptr_t at, size_t size);
void __tsan_java_free(uintptr_t at, size_t size);
}
#define POLYC_RELEASE(x) __tsan_release(x)
#define POLYC_ACQUIRE(x) __tsan_acquire(x)
#else
#define POLYC_RELEASE(x) ((void)0)
#define POLYC_ACQUIRE(x) ((void)0)
#endif
#if defined(__SANITIZE_ADDRESS__)
extern "C" void __asan_poison_memory_region(void const volatile *addr, size_t size);
extern "C" void __asan_unpoison_memory_region(void const volatile *addr, size_t size);
#endif

#define POLYC_PLAIN __attribute__((noinline, no_sanitize("thread", "address", "undefined")))
#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ __attribute__((section("polyc_shared")))

struct uint3 { unsigned x, y, z; };
typedef uint3 dim3;

enum PolycState { POLYC_READY, POLYC_BARRIER, POLYC_WARP, POLYC_DONE };
struct PolycCopy;
struct PolycFiber {
    void *sp;
    uint3 index;
    unsigned lane, warp;
    PolycState state;
    int place;              /* source line of the barrier it waits at */
    unsigned mask, waits;   /* of its warp operation; number of barriers passed */
    uint64_t exchange;
    void *tsan;
    struct PolycCopy *copies; /* begun and not waited for */
    unsigned copy_count, copy_room, groups;
};
struct PolycCopy { void *to; uint32_t words[4]; unsigned size, group; };

extern "C" {
extern unsigned char __start_polyc_shared[] __attribute__((weak));
extern unsigned char __stop_polyc_shared[] __attribute__((weak));
void polyc_switch(void **save, void *to);
}
#ifdef POLYC_DYNAMIC
extern "C++" { __attribute__((section("polyc_shared"), aligned(128))) unsigned char polyc_dynamic[POLYC_DYNAMIC]; }
#else
static unsigned char polyc_dynamic_none[1];
#endif
static uint3 blockIdx, blockDim, gridDim;
static PolycFiber *polyc_now;
static PolycFiber *polyc_fibers;
static unsigned polyc_threads;
static void *polyc_scheduler_sp, *polyc_scheduler_tsan;
static void (*polyc_entry)(void **);
static void **polyc_arguments;
static char polyc_sync[2], polyc_warp_sync[64];
#define threadIdx (polyc_now->index)
#define warpSize 32

#if defined(__x86_64__)
__asm__(".text\n.globl polyc_switch\n.type polyc_switch,@function\npolyc_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size polyc_switch, .-polyc_switch\n");
#elif defined(__aarch64__)
__asm__(".text\n.globl polyc_switch\n.type polyc_switch,%function\npolyc_switch:\n"
        "sub sp, sp, #160\nstp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\nret\n");
#else
#error "no stack switch for this processor"
#endif

POLYC_PLAIN static void polyc_fail(const char *what, int place) {
    fprintf(stderr, "polyc shim: %s (line %d; block %u,%u,%u thread %u,%u,%u)\n", what, place, blockIdx.x, blockIdx.y,
            blockIdx.z, polyc_now->index.x, polyc_now->index.y, polyc_now->index.z);
    fflush(stderr);
    _Exit(67);
}

/* ---- fibers ---- */

POLYC_PLAIN static void polyc_yield(void) {
#ifdef POLYC_TSAN
    __tsan_switch_to_fiber(polyc_scheduler_tsan, 1);
#endif
    polyc_switch(&polyc_now->sp, polyc_scheduler_sp);
}

POLYC_PLAIN static void polyc_start(void) {
    polyc_entry(polyc_arguments);
    polyc_now->state = POLYC_DONE;
    polyc_yield();
    abort();
}

POLYC_PLAIN static void polyc_prepare(PolycFiber *f, char *stack, size_t size) {
    void **top = (void **)(stack + size);
#if defined(__x86_64__)
    top[-2] = (void *)polyc_start;
    top[-1] = 0;
    for (int k = 3; k <= 8; k++) top[-k] = 0;
    f->sp = top - 8;
#else
    memset(top - 20, 0, 160);
    top[-20 + 11] = (void *)polyc_start; /* x30 */
    f->sp = top - 20;
#endif
}

/* ---- what kernels call ---- */

POLYC_PLAIN static void polyc_barrier(int line) {
    PolycFiber *me = polyc_now;
    if (!polyc_fibers) polyc_fail("a barrier in a kernel that was said to have none", line);
    me->state = POLYC_BARRIER;
    me->place = line;
    char *sync = &polyc_sync[me->waits++ & 1];
    (void)sync;
    POLYC_RELEASE(sync);
    polyc_yield();
    POLYC_ACQUIRE(sync);
}
#define __syncthreads() polyc_barrier(__LINE__)

/* Asynchronous copies are in place when they were waited for; until then the elements are NaNs. Sanitizers see
   what happens to the elements, not the list of copies, which the threads of the next block use again. */
POLYC_PLAIN static void polyc_note_copy(void *to, const void *from, unsigned size) {
    PolycFiber *me = polyc_now;
    if (me->copy_count == me->copy_room) {
        /* Not realloc: sanitizers would take its look at the old list for an access of the thread that made it. */
        me->copy_room = me->copy_room ? 2 * me->copy_room : 64;
        PolycCopy *longer = (PolycCopy *)malloc(me->copy_room * sizeof(PolycCopy));
        for (unsigned k = 0; k < me->copy_count; k++) longer[k] = me->copies[k];
        me->copies = longer; /* (the old list is left to the end of the process) */
    }
    PolycCopy *c = &me->copies[me->copy_count++];
    c->to = to;
    c->size = size;
    c->group = me->groups;
    for (unsigned k = 0; k < size / 4; k++) c->words[k] = ((const uint32_t *)from)[k];
}
/* One copy that is to be in place, those of the last `pending` groups excepted (0: of none). */
POLYC_PLAIN static unsigned polyc_noted(unsigned pending, uint32_t **to, uint32_t *words) {
    PolycFiber *me = polyc_now;
    unsigned at = 0;
    while (at < me->copy_count && pending && me->copies[at].group + pending >= me->groups) at++;
    if (at == me->copy_count) return 0;
    PolycCopy *c = &me->copies[at];
    unsigned words_of = c->size / 4;
    *to = (uint32_t *)c->to;
    for (unsigned k = 0; k < words_of; k++) words[k] = c->words[k];
    *c = me->copies[--me->copy_count];
    return words_of;
}
POLYC_PLAIN static void polyc_end_copies() { polyc_now->groups++; }
static inline void polyc_begin_copy(void *to, const void *from, unsigned size) {
    if ((uintptr_t)to % size || (uintptr_t)from % size) polyc_fail("an asynchronous copy that is not aligned", 0);
    polyc_note_copy(to, from, size);
    for (unsigned k = 0; k < size / 4; k++) {
        (void)((const volatile uint32_t *)from)[k];
        ((uint32_t *)to)[k] = 0xffffffffu;
    }
}
static inline void polyc_wait_for_copies(unsigned pending = 0) {
    uint32_t *to = 0, words[4];
    for (unsigned n; (n = polyc_noted(pending, &to, words));)
        for (unsigned k = 0; k < n; k++) to[k] = words[k];
}

POLYC_PLAIN static void polyc_warp_wait(unsigned mask, int line) {
    PolycFiber *me = polyc_now;
    if (!polyc_fibers) polyc_fail("a warp operation in a kernel that was said to have none", line);
    if (!(mask >> me->lane & 1)) polyc_fail("a warp operation by a lane that is not in its mask", line);
    me->state = POLYC_WARP;
    me->place = line;
    me->mask = mask;
    char *sync = &polyc_warp_sync[me->warp & 63];
    (void)sync;
    POLYC_RELEASE(sync);
    polyc_yield();
    POLYC_ACQUIRE(sync);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) { polyc_warp_wait(mask, 0); }

/* The lane `from` of a group of `width` lanes; lanes outside keep their own value, as CUDA says. */
template <class T> POLYC_PLAIN T polyc_shuffle(unsigned mask, T value, int from) {
    PolycFiber *me = polyc_now;
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    me->exchange = 0;
    memcpy(&me->exchange, &value, sizeof(T));
    polyc_warp_wait(mask, 0);
    T result = value;
    if (from >= 0) {
        unsigned source = me->warp * 32 + (unsigned)from;
        if (!(mask >> from & 1) || source >= polyc_threads) polyc_fail("a shuffle from a lane that takes no part", 0);
        memcpy(&result, &polyc_fibers[source].exchange, sizeof(T));
    }
    polyc_warp_wait(mask, 0);
    return result;
}
template <class T> T __shfl_sync(unsigned mask, T v, int lane, int width = 32) {
    return polyc_shuffle(mask, v, (int)(polyc_now->lane & ~(unsigned)(width - 1)) + (lane & (width - 1)));
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32) {
    int from = (int)polyc_now->lane ^ lanes;
    return polyc_shuffle(mask, v, from / width > (int)polyc_now->lane / width ? -1 : from);
}
template <class T> T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32) {
    int lane = (int)polyc_now->lane, from = lane + (int)by;
    return polyc_shuffle(mask, v, from / width != lane / width ? -1 : from);
}
template <class T> T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32) {
    int lane = (int)polyc_now->lane, from = lane - (int)by;
    return polyc_shuffle(mask, v, from < lane / width * width ? -1 : from);
}

/* ---- tensor cores, fragment by fragment as PTX defines them ---- */

POLYC_PLAIN static void polyc_publish(const void *what) {
    polyc_now->exchange = (uint64_t)(uintptr_t)what;
    polyc_warp_wait(0xffffffffu, 0);
}
POLYC_PLAIN static const void *polyc_published(unsigned lane) {
    return (const void *)(uintptr_t)polyc_fibers[polyc_now->warp * 32 + lane].exchange;
}
POLYC_PLAIN static unsigned polyc_lane() { return polyc_now->lane; }
POLYC_PLAIN static unsigned polyc_warp() { return polyc_now->warp; }

/* Four 8 x 8 matrices: lane 8 i + r names row r of matrix i; lane l gets elements 2 (l % 4) and the next of row l / 4,
   transposed those of column l / 4. */
static inline void polyc_load_matrices(uint32_t *r, const uint16_t *row, int transposed) {
    if ((uintptr_t)row % 16) polyc_fail("a row of a matrix that is not aligned to 16 bytes", 0);
    polyc_publish(row);
    unsigned l = polyc_lane();
    for (unsigned i = 0; i < 4; i++) {
        uint32_t two[2];
        for (unsigned k = 0; k < 2; k++) {
            unsigned along = 2 * (l % 4) + k, across = l / 4;
            const uint16_t *from = (const uint16_t *)polyc_published(8 * i + (transposed ? along : across));
            two[k] = from[transposed ? across : along];
        }
        r[i] = two[0] | two[1] << 16;
    }
    polyc_warp_wait(0xffffffffu, 0);
}

/* mma.m16n8k16: sums in f32, from the first product to the last. */
template <class Value> static inline void polyc_multiply(float *c, const uint32_t *a, const uint32_t *b, Value value) {
    uint32_t own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    polyc_publish(own);
    unsigned l = polyc_lane(), g = l / 4, q = l % 4;
    for (unsigned h = 0; h < 2; h++)
        for (unsigned e = 0; e < 2; e++)
            for (unsigned k = 0; k < 16; k++) {
                unsigned at = k % 8 / 2, shift = k % 2 * 16;
                uint32_t x = ((const uint32_t *)polyc_published(4 * g + at))[h + k / 8 * 2] >> shift;
                uint32_t y = ((const uint32_t *)polyc_published(4 * (2 * q + e) + at))[4 + k / 8] >> shift;
                c[2 * h + e] += value((uint16_t)x) * value((uint16_t)y);
            }
    polyc_warp_wait(0xffffffffu, 0);
}

/* mma.m16n8k8 of tf32: registers hold one element each. */
static inline void polyc_multiply_tf32(float *c, const uint32_t *a, const uint32_t *b) {
    uint32_t own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    for (unsigned k = 0; k < 6; k++)
        if (own[k] & 0x1fff && own[k] != 0x7fffffff) polyc_fail("an operand of a tf32 product that was not rounded", 0);
    polyc_publish(own);
    unsigned l = polyc_lane(), g = l / 4, q = l % 4;
    for (unsigned h = 0; h < 2; h++)
        for (unsigned e = 0; e < 2; e++)
            for (unsigned k = 0; k < 8; k++) {
                float x, y;
                memcpy(&x, (const uint32_t *)polyc_published(4 * g + k % 4) + h + k / 4 * 2, 4);
                memcpy(&y, (const uint32_t *)polyc_published(4 * (2 * q + e) + k % 4) + 4 + k / 4, 4);
                c[2 * h + e] += x * y;
            }
    polyc_warp_wait(0xffffffffu, 0);
}

/* wgmma.m64nNk16, operands in shared memory along k, without swizzle. A descriptor has in units of 16 bytes the
   address, at bit 16 the way to the next 8 x 8 matrix along k, at bit 32 to that of the next eight rows. */
static inline size_t __cvta_generic_to_shared(const void *p) { return (size_t)((char *)p - (char *)__start_polyc_shared); }
static inline uint16_t polyc_described(uint64_t what, unsigned row, unsigned k) {
    size_t leading = (what >> 16 & 0x3fff) << 4, stride = (what >> 32 & 0x3fff) << 4;
    size_t at = ((what & 0x3fff) << 4) + row / 8 * stride + k / 8 * leading + row % 8 * 16 + k % 8 * 2;
    return *(const uint16_t *)(__start_polyc_shared + at);
}
template <class Value>
static inline void polyc_multiply_warpgroup(float *c, uint64_t a, uint64_t b, unsigned columns, Value value) {
    uint64_t own[2] = {a, b};
    polyc_publish(own);
    const uint64_t *first = (const uint64_t *)polyc_published(0);
    if (first[0] != a || first[1] != b) polyc_fail("threads of a warp that describe different matrices", 0);
    if (polyc_threads % 128) polyc_fail("a product of a warpgroup that is not 128 threads", 0);
    unsigned l = polyc_lane(), top = polyc_warp() % 4 * 16 + l / 4;
    for (unsigned n = 0; n < columns / 8; n++)
        for (unsigned h = 0; h < 2; h++)
            for (unsigned e = 0; e < 2; e++)
                for (unsigned k = 0; k < 16; k++)
                    c[4 * n + 2 * h + e] += value(polyc_described(a, top + 8 * h, k)) *
                                            value(polyc_described(b, 8 * n + 2 * (l % 4) + e, k));
    polyc_warp_wait(0xffffffffu, 0);
}

/* cvt.rna.tf32.f32: 10 bits of fraction, to the nearest, ties away from zero; one NaN. */
static inline uint32_t polyc_to_tf32(float a) {
    uint32_t u;
    memcpy(&u, &a, 4);
    return a != a ? 0x7fffffff : (u + 0x1000) & 0xffffe000;
}

template <class To, class From> static inline To polyc_bits(From a) { To r; memcpy(&r, &a, sizeof r); return r; }
static inline float __int_as_float(int a) { return polyc_bits<float>(a); }
static inline int __float_as_int(float a) { return polyc_bits<int>(a); }
static inline double __longlong_as_double(long long a) { return polyc_bits<double>(a); }
static inline int64_t __double_as_longlong(double a) { return polyc_bits<int64_t>(a); }

/* ---- blocks and launches ---- */

struct PolycKernel { const char *name; void (*call)(void **); unsigned arguments; };
extern "C" const PolycKernel polyc_kernels[];
extern "C" const unsigned polyc_kernel_count;

static uint64_t polyc_seed;
POLYC_PLAIN static unsigned polyc_random(unsigned n) {
    polyc_seed = polyc_seed * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((polyc_seed >> 33) % n);
}
/* order: 0 forward, 1 reverse, 2 shuffled */
POLYC_PLAIN static void polyc_permute(unsigned *at, unsigned n, int order) {
    for (unsigned k = 0; k < n; k++) at[k] = order == 1 ? n - 1 - k : k;
    for (unsigned k = n; order == 2 && k > 1; k--) {
        unsigned j = polyc_random(k), t = at[k - 1];
        at[k - 1] = at[j];
        at[j] = t;
    }
}

POLYC_PLAIN static void polyc_release_warps(void) {
    for (unsigned w = 0; w * 32 < polyc_threads; w++) {
        unsigned waiting = 0, mask = 0, last = (w + 1) * 32 < polyc_threads ? (w + 1) * 32 : polyc_threads;
        for (unsigned t = w * 32; t < last; t++)
            if (polyc_fibers[t].state == POLYC_WARP) waiting |= 1u << (t & 31), mask |= polyc_fibers[t].mask;
        unsigned there = last - w * 32 == 32 ? 0xffffffffu : (1u << (last - w * 32)) - 1;
        if (waiting && waiting == (mask & there))
            for (unsigned t = w * 32; t < last; t++)
                if (polyc_fibers[t].state == POLYC_WARP) polyc_fibers[t].state = POLYC_READY;
    }
}

/* After every thread ran as far as it could: lets them go on. 0 when all are done. */
POLYC_PLAIN static int polyc_next_phase(void) {
    unsigned done = 0, barrier = 0, at = 0;
    polyc_release_warps();
    for (unsigned t = 0; t < polyc_threads; t++) {
        PolycFiber *f = &polyc_fibers[t];
        if (f->state == POLYC_READY) return 1;
        done += f->state == POLYC_DONE;
        barrier += f->state == POLYC_BARRIER;
        if (f->state == POLYC_BARRIER || f->state == POLYC_WARP) at = t;
    }
    if (done == polyc_threads) return 0;
    polyc_now = &polyc_fibers[at];
    if (barrier != polyc_threads) {
        int warp = polyc_fibers[at].state == POLYC_WARP;
        polyc_fail(warp ? "a warp operation that not all lanes of its mask reach"
                        : "divergent barrier: some threads of the block never reach it", polyc_fibers[at].place);
    }
    for (unsigned t = 0; t < polyc_threads; t++)
        if (polyc_fibers[t].place != polyc_fibers[0].place)
            polyc_fail("divergent barrier: threads of the block wait at different ones", polyc_fibers[t].place);
    for (unsigned t = 0; t < polyc_threads; t++) polyc_fibers[t].state = POLYC_READY;
    return 1;
}

POLYC_PLAIN static void polyc_clean_shared(size_t dynamic) {
    size_t size = (size_t)(__stop_polyc_shared - __start_polyc_shared);
    volatile unsigned char *p = __start_polyc_shared; /* not by memset: sanitizers watch it */
    for (size_t k = 0; k < size; k++) p[k] = 0xff;
#ifdef POLYC_TSAN
    /* A new block's shared memory is new memory: the interface for Java's heap lets us say so. */
    static int known;
    uintptr_t at = (uintptr_t)p;
    size = (size + 7) / 8 * 8;
    if (size && known) __tsan_java_free(at, size);
    if (size && !known++) __tsan_java_init(at, size);
    if (size) __tsan_java_alloc(at, size);
#endif
#if defined(POLYC_DYNAMIC) && defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(polyc_dynamic, POLYC_DYNAMIC);
    __asan_poison_memory_region(polyc_dynamic + dynamic, POLYC_DYNAMIC - dynamic);
#endif
    (void)dynamic;
}

#ifdef POLYC_TSAN
/* Making a thread of ThreadSanitizer takes a third of a millisecond, so CUDA threads go round a ring of
   them, each with a stack of its own: threads of two blocks count as ordered only when as many others run
   between them. Threads come after what came before their launch, and before what comes after it. */
enum { POLYC_RING = 2048 }; /* at least the threads of a block */
static char polyc_begin, polyc_end;
static void *polyc_ring[POLYC_RING];
static unsigned polyc_ring_next, polyc_ring_used;

POLYC_PLAIN static void polyc_as_thread(void *thread, void (*call)(void *), void *sync) {
    __tsan_switch_to_fiber(thread, 1);
    call(sync);
    __tsan_switch_to_fiber(polyc_scheduler_tsan, 1);
}
POLYC_PLAIN static void *polyc_tsan_thread(unsigned number) {
    void **at = &polyc_ring[number];
    if (!*at) *at = __tsan_create_fiber(0);
    if (polyc_ring_used < POLYC_RING) polyc_ring_used++, polyc_as_thread(*at, __tsan_acquire, &polyc_begin);
    return *at;
}
POLYC_PLAIN static void polyc_begin_launch(void) {
    polyc_ring_next = polyc_ring_used = 0;
    __tsan_release(&polyc_begin);
}
POLYC_PLAIN static void polyc_end_launch(void) {
    for (unsigned k = 0; k < polyc_ring_used; k++) polyc_as_thread(polyc_ring[k], __tsan_release, &polyc_end);
    __tsan_acquire(&polyc_end);
}
#else
static void polyc_begin_launch(void) {}
static void polyc_end_launch(void) {}
#endif

POLYC_PLAIN static void polyc_block(const unsigned *order, char *stacks, size_t stack) {
    for (unsigned t = 0; t < polyc_threads; t++) {
        PolycFiber *f = &polyc_fibers[t];
        f->state = POLYC_READY;
        f->waits = 0;
        f->copy_count = 0;
        f->groups = 0;
#ifdef POLYC_TSAN
        unsigned place = polyc_ring_next++ % POLYC_RING;
        f->tsan = polyc_tsan_thread(place);
#else
        unsigned place = t;
#endif
        polyc_prepare(f, stacks + place * stack, stack);
    }
    do {
        for (unsigned k = 0; k < polyc_threads; k++) {
            PolycFiber *f = &polyc_fibers[order[k]];
            if (f->state != POLYC_READY) continue;
            polyc_now = f;
#ifdef POLYC_TSAN
            __tsan_switch_to_fiber(f->tsan, 1);
#endif
            polyc_switch(&polyc_scheduler_sp, f->sp);
        }
    } while (polyc_next_phase());
}

/* One launch. `arguments` point to the values; `fibers` 0: threads run to their ends one by one. */
extern "C" POLYC_PLAIN int polyc_launch(const PolycKernel *kernel, const unsigned *grid, const unsigned *block,
                                        size_t dynamic, void **arguments, int fibers, int order, uint64_t seed) {
    const size_t stack = 256 << 10;
    unsigned blocks = grid[0] * grid[1] * grid[2], n = block[0] * block[1] * block[2];
    unsigned *threads_at = (unsigned *)malloc(n * sizeof(unsigned));
    unsigned *blocks_at = (unsigned *)malloc((size_t)blocks * sizeof(unsigned));
    PolycFiber *all = (PolycFiber *)calloc(n, sizeof(PolycFiber));
    char *stacks = 0;
    polyc_seed = seed;
    polyc_permute(blocks_at, blocks, order);
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    polyc_threads = n;
    polyc_entry = kernel->call;
    polyc_arguments = arguments;
#ifdef POLYC_TSAN
    polyc_scheduler_tsan = __tsan_get_current_fiber();
    fibers = 1;
#endif
    for (unsigned t = 0; t < n; t++) {
        all[t].index = {t % block[0], t / block[0] % block[1], t / block[0] / block[1]};
        all[t].lane = t & 31;
        all[t].warp = t / 32;
    }
#ifdef POLYC_TSAN
    const size_t room = POLYC_RING * stack;
#else
    const size_t room = n * stack;
#endif
    if (fibers) {
        stacks = (char *)mmap(0, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) return 1;
    }
    polyc_fibers = fibers ? all : 0;
    polyc_begin_launch();
    for (unsigned k = 0; k < blocks; k++) {
        unsigned b = blocks_at[k];
        blockIdx = {b % grid[0], b / grid[0] % grid[1], b / grid[0] / grid[1]};
        polyc_clean_shared(dynamic);
        polyc_permute(threads_at, n, order);
        if (fibers) polyc_block(threads_at, stacks, stack);
        else for (unsigned t = 0; t < n; t++) polyc_now = &all[threads_at[t]], polyc_entry(arguments);
    }
    polyc_end_launch();
    if (stacks) munmap(stacks, room);
    for (unsigned t = 0; t < n; t++) free(all[t].copies);
    free(threads_at), free(blocks_at), free(all);
    return 0;
}

extern "C" const PolycKernel *polyc_find(const char *name) {
    for (unsigned k = 0; k < polyc_kernel_count; k++)
        if (!strcmp(polyc_kernels[k].name, name)) return &polyc_kernels[k];
    return 0;
}

#ifdef POLYC_MAIN
/* A job: order, seed, arrays, launches, as 64-bit words; arrays are written back into the file. */
static uint64_t polyc_word(FILE *f) {
    uint64_t w;
    if (fread(&w, 8, 1, f) != 1) fprintf(stderr, "polyc shim: the job is cut off\n"), _Exit(68);
    return w;
}
int main(int, char **argv) {
    FILE *f = fopen(argv[1], "r+b");
    if (!f) return 68;
    int order = (int)polyc_word(f);
    uint64_t seed = polyc_word(f), arrays = polyc_word(f);
    char **data = (char **)calloc(arrays + 1, sizeof(char *));
    uint64_t *bytes = (uint64_t *)calloc(arrays + 1, 8);
    long *at = (long *)calloc(arrays + 1, sizeof(long));
    for (uint64_t k = 0; k < arrays; k++) {
        bytes[k] = polyc_word(f);
        at[k] = ftell(f);
        if (posix_memalign((void **)&data[k], 256, bytes[k]) || fread(data[k], 1, bytes[k], f) != bytes[k]) return 68;
    }
    for (uint64_t calls = polyc_word(f); calls; calls--) {
        const PolycKernel *kernel = &polyc_kernels[polyc_word(f)];
        unsigned grid[3], block[3];
        for (int k = 0; k < 3; k++) grid[k] = (unsigned)polyc_word(f);
        for (int k = 0; k < 3; k++) block[k] = (unsigned)polyc_word(f);
        uint64_t dynamic = polyc_word(f);
        int fibers = (int)polyc_word(f);
        int64_t *values = (int64_t *)calloc(kernel->arguments + 1, 8);
        void **arguments = (void **)calloc(kernel->arguments + 1, sizeof(void *));
        for (unsigned k = 0; k < kernel->arguments; k++) {
            uint64_t is_array = polyc_word(f), value = polyc_word(f);
            values[k] = is_array ? (int64_t)data[value] : (int64_t)value;
            arguments[k] = &values[k];
        }
        if (polyc_launch(kernel, grid, block, dynamic, arguments, fibers, order, seed)) return 68;
        free(values), free(arguments);
    }
    for (uint64_t k = 0; k < arrays; k++) {
        fseek(f, at[k], SEEK_SET);
        if (fwrite(data[k], 1, bytes[k], f) != bytes[k]) return 68;
        free(data[k]);
    }
    free(data), free(bytes), free(at);
    return fclose(f) ? 68 : 0;
}
#endif
