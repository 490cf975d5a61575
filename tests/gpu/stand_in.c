/* A stand-in for NVIDIA's driver, for tests: one "device" that is this process. Memory is malloc's, a
   module is a shared object made from CUDA text by emit.gpu.devices.shim, a launch runs it at once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int R;
typedef uint64_t Ptr;
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, UNSUPPORTED = 801 };

R cuInit(unsigned f) { (void)f; return OK; }
R cuDriverGetVersion(int *v) { *v = 13000; return OK; }
R cuGetErrorName(R e, const char **s) { (void)e; *s = "CUDA_ERROR_STAND_IN"; return OK; }
R cuGetErrorString(R e, const char **s) { (void)e; *s = "the stand-in driver does not do this"; return OK; }
R cuDeviceGetCount(int *n) { *n = 1; return OK; }
R cuDeviceGet(int *d, int n) { *d = n; return n ? INVALID : OK; }
R cuDeviceGetName(char *s, int n, int d) { (void)d; snprintf(s, n, "stand-in"); return OK; }
R cuDeviceGetAttribute(int *v, int what, int d) { (void)d; *v = what == 75 ? 8 : what == 76 ? 0 : 1024; return OK; }
R cuDeviceComputeCapability(int *a, int *b, int d) { (void)d; *a = 8; *b = 0; return OK; }
R cuDeviceTotalMem_v2(size_t *n, int d) { (void)d; *n = (size_t)1 << 32; return OK; }

static int context_object;
static void *current;
R cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; *c = &context_object; return OK; }
R cuDevicePrimaryCtxRelease_v2(int d) { (void)d; return OK; }
R cuCtxSetCurrent(void *c) { current = c; return OK; }
R cuCtxGetCurrent(void **c) { *c = current; return OK; }
R cuCtxPushCurrent_v2(void *c) { current = c; return OK; }
R cuCtxPopCurrent_v2(void **c) { if (c) *c = current; current = 0; return OK; }
R cuCtxGetDevice(int *d) { *d = 0; return OK; }
R cuCtxGetApiVersion(void *c, unsigned *v) { (void)c; *v = 13000; return OK; }
R cuCtxSynchronize(void) { return OK; }
R cuCtxDetach(void *c) { (void)c; return OK; }
R cuCtxDestroy_v2(void *c) { (void)c; return OK; }

R cuMemAlloc_v2(Ptr *p, size_t n) { void *m; if (posix_memalign(&m, 256, n)) return OUT_OF_MEMORY; memset(m, 0xff, n); *p = (Ptr)m; return OK; }
R cuMemFree_v2(Ptr p) { free((void *)p); return OK; }
R cuMemcpyHtoD_v2(Ptr d, const void *s, size_t n) { memcpy((void *)d, s, n); return OK; }
R cuMemcpyDtoH_v2(void *d, Ptr s, size_t n) { memcpy(d, (void *)s, n); return OK; }
R cuMemcpyDtoD_v2(Ptr d, Ptr s, size_t n) { memmove((void *)d, (void *)s, n); return OK; }
R cuMemcpyHtoDAsync_v2(Ptr d, const void *s, size_t n, void *q) { (void)q; return cuMemcpyHtoD_v2(d, s, n); }
R cuMemcpyDtoHAsync_v2(void *d, Ptr s, size_t n, void *q) { (void)q; return cuMemcpyDtoH_v2(d, s, n); }

typedef struct { void *library; } Module;
typedef struct { const void *kernel; R (*launch)(const void *, const unsigned *, const unsigned *, size_t, void **, int, int, uint64_t); unsigned count; unsigned block[3]; } Function;

/* The driver is not told how long an image is: of an ELF file the section headers come last. */
R cuModuleLoadData(Module **m, const void *image) {
    const Elf64_Ehdr *h = image;
    char path[] = "/tmp/stand-in-XXXXXX";
    if (memcmp(h->e_ident, ELFMAG, SELFMAG)) return INVALID;
    int f = mkstemp(path);
    size_t size = h->e_shoff + (size_t)h->e_shnum * h->e_shentsize;
    if (f < 0 || write(f, image, size) != (ssize_t)size) return INVALID;
    close(f);
    Module *made = calloc(1, sizeof *made);
    made->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    if (!made->library) { fprintf(stderr, "stand-in: %s\n", dlerror()); return INVALID; }
    *m = made;
    return OK;
}
R cuModuleLoadDataEx(Module **m, const void *image, unsigned n, void *o, void **v) { (void)n, (void)o, (void)v; return cuModuleLoadData(m, image); }
R cuModuleUnload(Module *m) { dlclose(m->library); free(m); return OK; }
R cuModuleGetFunction(Function **f, Module *m, const char *name) {
    const void *(*find)(const char *) = (const void *(*)(const char *))dlsym(m->library, "polyc_find");
    Function *made = calloc(1, sizeof *made);
    made->kernel = find ? find(name) : 0;
    if (!made->kernel) return NOT_FOUND;
    *(void **)&made->launch = dlsym(m->library, "polyc_launch");
    made->count = *(const unsigned *)((const char *)made->kernel + 16);
    *f = made;
    return OK;
}
R cuFuncSetAttribute(Function *f, int a, int v) { (void)f, (void)a, (void)v; return OK; }
R cuFuncGetAttribute(int *v, int a, Function *f) { (void)a, (void)f; *v = 0; return OK; }
R cuFuncSetBlockShape(Function *f, int x, int y, int z) { f->block[0] = x, f->block[1] = y, f->block[2] = z; return OK; }
R cuFuncSetSharedSize(Function *f, unsigned n) { (void)f, (void)n; return OK; }

/* What a stream that is being captured was given, in order: copies, and launches with the values of their arguments. */
typedef struct Node { struct Node *next; Function *f; unsigned grid[3], block[3]; size_t shared; uint64_t values[256]; Ptr to, from; size_t bytes; } Node;
typedef struct { Node *first, **end; } Graph;
static void *captured;
static Graph *recording;
static Node *node(void) { Node *n = calloc(1, sizeof *n); *recording->end = n; recording->end = &n->next; return n; }

R cuMemcpyDtoDAsync_v2(Ptr d, Ptr s, size_t n, void *q) {
    if (!q || q != captured) return cuMemcpyDtoD_v2(d, s, n);
    Node *made = node();
    made->to = d, made->from = s, made->bytes = n;
    return OK;
}
R cuStreamBeginCapture_v2(void *q, int mode) {
    (void)mode;
    if (!q || captured) return INVALID;
    captured = q, recording = calloc(1, sizeof *recording), recording->end = &recording->first;
    return OK;
}
R cuStreamEndCapture(void *q, Graph **g) { if (q != captured) return INVALID; captured = 0, *g = recording, recording = 0; return OK; }
R cuGraphInstantiateWithFlags(Graph **x, Graph *g, uint64_t f) { (void)f; *x = malloc(sizeof **x), **x = *g; return OK; }
R cuGraphDestroy(Graph *g) { free(g); return OK; }
R cuGraphExecDestroy(Graph *g) { for (Node *n = g->first, *m; n; n = m) m = n->next, free(n); free(g); return OK; }
R cuGraphLaunch(Graph *g, void *q) {
    (void)q;
    R wrong = OK;
    for (Node *n = g->first; n && !wrong; n = n->next) {
        void *values[256];
        for (unsigned k = 0; n->f && k < n->f->count; k++) values[k] = &n->values[k];
        if (!n->f) wrong = cuMemcpyDtoD_v2(n->to, n->from, n->bytes);
        else wrong = n->f->launch(n->f->kernel, n->grid, n->block, n->shared, values, 1, 0, 0) ? INVALID : OK;
    }
    return wrong;
}

R cuLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                 unsigned shared, void *q, void **arguments, void **extra) {
    unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    void *values[256];
    if (!arguments && extra) { /* 1, buffer, 2, &size, 0: every argument of ours takes 8 bytes */
        char *buffer = 0;
        for (int k = 0; extra[k]; k += 2) if (extra[k] == (void *)1) buffer = extra[k + 1];
        for (unsigned k = 0; buffer && k < f->count; k++) values[k] = buffer + 8 * k;
        arguments = values;
    }
    if (q && q == captured) {
        Node *n = node();
        n->f = f, n->shared = shared, memcpy(n->grid, grid, sizeof grid), memcpy(n->block, block, sizeof block);
        for (unsigned k = 0; k < f->count; k++) memcpy(&n->values[k], arguments[k], 8);
        return OK;
    }
    return f->launch(f->kernel, grid, block, shared, arguments, 1, 0, 0) ? INVALID : OK;
}

R cuStreamCreate(void **s, unsigned f) { (void)f; *s = malloc(8); return OK; }
R cuStreamDestroy_v2(void *s) { free(s); return OK; }
R cuStreamSynchronize(void *s) { (void)s; return OK; }
R cuEventCreate(double **e, unsigned f) { (void)f; *e = calloc(1, sizeof(double)); return OK; }
R cuEventDestroy_v2(double *e) { free(e); return OK; }
R cuEventRecord(double *e, void *s) { (void)s; struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); *e = 1e3 * t.tv_sec + 1e-6 * t.tv_nsec; return OK; }
R cuEventSynchronize(double *e) { (void)e; return OK; }
R cuEventElapsedTime_v2(float *ms, double *a, double *b) { *ms = (float)(*b - *a); return OK; }
R cuEventElapsedTime(float *ms, double *a, double *b) { return cuEventElapsedTime_v2(ms, a, b); }

/* The newest version that is implemented here: `_v2` where there is one. */
R cuGetProcAddress_v2(const char *name, void **p, int version, uint64_t flags, int *status) {
    char newer[200];
    (void)version, (void)flags;
    snprintf(newer, sizeof newer, "%s_v2", name);
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *p = dlsym(self, newer);
    if (!*p) *p = dlsym(self, name);
    if (status) *status = *p ? 0 : 1;
    return *p ? OK : NOT_FOUND;
}
R cuGetProcAddress(const char *name, void **p, int version, uint64_t flags) { return cuGetProcAddress_v2(name, p, version, flags, 0); }
