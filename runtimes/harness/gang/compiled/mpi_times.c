/* MPI times: how long each rank of a program waits in MPI, and how many bytes it sends (MPI standard, section 15.2).
 *
 * Loaded before the MPI library (LD_PRELOAD), it stands before the functions that block or send, and calls those that
 * the standard names PMPI_... It knows no MPI's header: handles are numbers in MPICH and addresses in Open MPI, and all
 * arguments are passed on as they come. At the end of the process it writes four numbers to the file that
 * WINDTUNNEL_MPI_TIMES names, if it called MPI at all: seconds, bytes, the seconds of MPI_Allreduce alone, and 1 if it
 * called MPI_Finalize, or 0. Sends of persistent requests (MPI_Start) are not counted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* As many as MPI_Sendrecv has, which has the most. */
#define PARAMETERS long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l
#define ARGUMENTS a, b, c, d, e, f, g, h, i, j, k, l
typedef long (*function)(PARAMETERS);
typedef long (*question)(long, int *);

static __thread int inside; /* of a function that is counted: a library may call its own */
static _Atomic unsigned long long waited, sent, reduced; /* nanoseconds, bytes, nanoseconds in MPI_Allreduce */
static _Atomic int finished;                             /* whether MPI_Finalize was called */

/* Look for a function in a loaded object. A module of Python has its MPI library to itself (RTLD_LOCAL). */
static int look(struct dl_phdr_info *object, size_t size, void *found) {
    (void)size;
    void *handle = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) return 0;
    void *real = dlsym(handle, *(const char **)found);
    dlclose(handle);
    if (real) *(void **)found = real;
    return real != NULL;
}

/* Return a function; ``or``: another, which takes the same arguments, where the library is too old to have it. */
static void *find(const char *name, const char *or) {
    const void *found = name, *instead = or;
    if (dl_iterate_phdr(look, &found)) return (void *)found;
    if (or && dl_iterate_phdr(look, &instead)) return (void *)instead;
    fprintf(stderr, "windtunnel: the MPI library has no %s\n", name);
    abort();
}

static unsigned long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* Ask MPI about a handle: a number, or 0. */
static long ask(const char *name, question *real, long handle) {
    int answer = 0;
    if (!*real) *real = find(name, NULL);
    return (*real)(handle, &answer) ? 0 : answer;
}

static long size_of(long type) {
    static question real;
    return ask("PMPI_Type_size", &real, type);
}

static long ranks(long communicator) {
    static question real;
    return ask("PMPI_Comm_size", &real, communicator);
}

static int is_root(long root, long communicator) {
    static question real;
    return ask("PMPI_Comm_rank", &real, communicator) == (int)root;
}

/* Of an address that MPI_IN_PLACE is not: (void *)1 in Open MPI, (void *)-1 in MPICH. Its type may be any. */
static int is_buffer(long address) { return address != 1 && address != -1; }

static unsigned long long bytes(long count, long type) { return count > 0 ? (unsigned long long)count * size_of(type) : 0; }

static unsigned long long sum(const int *counts, long number, long type) {
    long items = 0;
    for (long rank = 0; rank < number; rank++) items += counts[rank];
    return bytes(items, type);
}

#define COUNTED(NAME, OR, BYTES) COUNTED_IN(NAME, OR, BYTES, waited)
/* WHERE: what the time is added to, besides `waited`. */
#define COUNTED_IN(NAME, OR, BYTES, WHERE)         \
    long MPI_##NAME(PARAMETERS) {                  \
        static function real;                      \
        if (!real) real = find("PMPI_" #NAME, OR); \
        if (inside) return real(ARGUMENTS);        \
        inside = 1;                                \
        sent += BYTES;                             \
        unsigned long long began = now();          \
        long code = real(ARGUMENTS);               \
        const unsigned long long spent = now() - began; \
        waited += spent;                           \
        if (&WHERE != &waited) WHERE += spent;     \
        inside = 0;                                \
        return code;                               \
    }
#define WAITS(NAME) COUNTED(NAME, NULL, 0)
/* With an array of counts. That for large counts is not here: where the library has none, it would seem to. */
#define SENDS_EACH(NAME, BYTES) COUNTED(NAME, NULL, BYTES)
/* A function and that for large counts. A count of type int is the lower half of its register. */
#define SENDS(NAME, COUNT, BYTES) SENDS_IN(NAME, COUNT, BYTES, waited)
#define SENDS_IN(NAME, COUNT, BYTES, WHERE)                                                                \
    COUNTED_IN(NAME, NULL, ({ const long n = (int)(COUNT); (void)n; (unsigned long long)(BYTES); }), WHERE) \
    COUNTED_IN(NAME##_c, "PMPI_" #NAME, ({ const long n = (COUNT); (void)n; (unsigned long long)(BYTES); }), WHERE)

/* To another rank: address, count, type. */
SENDS(Send, b, bytes(n, c))
SENDS(Ssend, b, bytes(n, c))
SENDS(Rsend, b, bytes(n, c))
SENDS(Bsend, b, bytes(n, c))
SENDS(Isend, b, bytes(n, c))
SENDS(Issend, b, bytes(n, c))
SENDS(Sendrecv, b, bytes(n, c))
SENDS(Sendrecv_replace, b, bytes(n, c))
SENDS(Put, b, bytes(n, c))
SENDS(Accumulate, b, bytes(n, c))
/* To all, or to one of them. */
SENDS(Bcast, b, is_root(d, e) ? bytes(n, c) : 0)
SENDS(Ibcast, b, is_root(d, e) ? bytes(n, c) : 0)
SENDS(Reduce, c, bytes(n, d))
SENDS(Ireduce, c, bytes(n, d))
SENDS_IN(Allreduce, c, bytes(n, d), reduced)
SENDS(Iallreduce, c, bytes(n, d))
SENDS(Scan, c, bytes(n, d))
SENDS(Exscan, c, bytes(n, d))
SENDS(Reduce_scatter_block, c, bytes(n, d) * ranks(f))
SENDS(Gather, b, is_buffer(a) ? bytes(n, c) : 0)
SENDS(Allgather, b, is_buffer(a) ? bytes(n, c) : 0)
SENDS(Scatter, b, is_root(g, h) ? bytes(n, c) * ranks(h) : 0)
SENDS(Alltoall, b, is_buffer(a) ? bytes(n, c) * ranks(g) : 0)
SENDS(Ialltoall, b, is_buffer(a) ? bytes(n, c) * ranks(g) : 0)
SENDS_EACH(Alltoallv, is_buffer(a) ? sum((int *)b, ranks(i), d) : 0)
SENDS_EACH(Gatherv, is_buffer(a) ? bytes((int)b, c) : 0)
SENDS_EACH(Allgatherv, is_buffer(a) ? bytes((int)b, c) : 0)
SENDS_EACH(Scatterv, is_root(h, i) ? sum((int *)b, ranks(i), d) : 0)
SENDS_EACH(Reduce_scatter, sum((int *)c, ranks(f), d))

SENDS(Recv, b, 0)
SENDS(Mrecv, b, 0)
SENDS(Neighbor_alltoall, b, 0)
SENDS(Neighbor_allgather, b, 0)
WAITS(Probe)
WAITS(Mprobe)
WAITS(Wait)
WAITS(Waitall)
WAITS(Waitany)
WAITS(Waitsome)
WAITS(Test)
WAITS(Testall)
WAITS(Testany)
WAITS(Testsome)
WAITS(Barrier)
WAITS(Win_fence)
WAITS(Win_wait)
WAITS(Win_lock)
WAITS(Win_unlock)
WAITS(Win_flush)

int MPI_Finalize(void) {
    static int (*real)(void);
    if (!real) real = find("PMPI_Finalize", NULL);
    finished = 1;
    return real();
}

__attribute__((destructor)) static void tell(void) {
    if (!waited && !finished) return; /* a shell, or a program that the rank started */
    const char *path = getenv("WINDTUNNEL_MPI_TIMES");
    FILE *file = path ? fopen(path, "we") : NULL;
    if (!file) return;
    fprintf(file, "%.6f %llu %.6f %d\n", waited * 1e-9, (unsigned long long)sent, reduced * 1e-9, finished);
    fclose(file);
}
