/* Records the random bytes that a program is given, and gives them back (Chen et al., ICSE 2022,
 * section 3.2).
 *
 * `vbstudy record` and `vbstudy replay` preload this library (LD_PRELOAD) into a program that they start.
 * It stands before libc's and libstdc++'s functions that hand out random bytes:
 *
 *     getrandom, getentropy, arc4random*          and syscall(SYS_getrandom, ...)
 *     read, pread, readv, fread, fgetc, getc      of the devices /dev/random and /dev/urandom
 *     std::random_device                          whatever it would read: it may be an instruction (RDRAND)
 *
 * While recording, each draw is filled by the kernel and appended to a stream. While replaying, it is
 * filled from the stream, and a draw that the stream does not have next ends the process: the file
 * `error` of the folder then says what was asked for, with the Python stack and the C stack.
 *
 * The main thread and each thread of Python's have a stream of their own, so that threads that draw at the
 * same time do not exchange bytes; they are named by who started them, as which. The threads that code in C
 * and C++ starts share a stream for each call site, for which thread of a pool draws first is chance. So no
 * stream moves when OpenMP starts more threads or fewer. A process that was forked is named by who forked
 * it, as which; a program that was not forked by its name, what it was started to do, and order of arrival.
 *
 * Environment: VBSTUDY_REPLAY_MODE is `record` or `replay`, VBSTUDY_REPLAY_FOLDER the folder of the streams.
 * A stream is a file of events: kind (1 byte), length of the site (2), size (4), little-endian, then the
 * site that asked and the bytes. guest/replay/streams.py reads the same.
 *
 * Not seen: bytes drawn by an instruction of the program itself, by a system call made without libc, by
 * mapping a device; the kernel's own bytes for a process (AT_RANDOM); and seeds made of clocks or process
 * numbers, which the hooks in Python take care of. */

#define _GNU_SOURCE
#include "preload.h"

#undef fread_unlocked /* macros in some headers */
#undef getc

static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_readv)(int, const struct iovec *, int);
static size_t (*real_fread)(void *, size_t, size_t, FILE *);
static size_t (*real_fread_unlocked)(void *, size_t, size_t, FILE *);
static int (*real_fgetc)(FILE *);
static FILE *(*real_fopen)(const char *, const char *);
static FILE *(*real_fdopen)(int, const char *);
static int (*real_pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static void find_real(void) {
    if (real_pthread_create) return;
    real_syscall = dlsym(RTLD_NEXT, "syscall");
    real_read = dlsym(RTLD_NEXT, "read");
    real_pread = dlsym(RTLD_NEXT, "pread");
    real_readv = dlsym(RTLD_NEXT, "readv");
    real_fread = dlsym(RTLD_NEXT, "fread");
    real_fread_unlocked = dlsym(RTLD_NEXT, "fread_unlocked");
    real_fgetc = dlsym(RTLD_NEXT, "fgetc");
    real_fopen = dlsym(RTLD_NEXT, "fopen");
    real_fdopen = dlsym(RTLD_NEXT, "fdopen");
    real_pthread_create = dlsym(RTLD_NEXT, "pthread_create");
}

#define CALLER __builtin_return_address(0)
#define SAME_AS(function) __attribute__((alias(#function)))

/* Recorded or replayed bytes; else the kernel's. */
static void give(char kind, const void *caller, void *buffer, size_t size) {
    find_real();
    if (!draw(kind, caller, buffer, size)) fill_by_kernel(buffer, size);
}

/* ---- what programs call ---------------------------------------------------------------------- */

ssize_t getrandom(void *buffer, size_t size, unsigned flags) {
    find_real();
    if (draw('r', CALLER, buffer, size)) return (ssize_t)size;
    return real_syscall(SYS_getrandom, buffer, size, flags);
}

int getentropy(void *buffer, size_t size) {
    if (size > 256) {
        errno = EIO;
        return -1;
    }
    give('e', CALLER, buffer, size);
    return 0;
}

uint32_t arc4random(void) {
    uint32_t value;
    give('a', CALLER, &value, sizeof value);
    return value;
}

void arc4random_buf(void *buffer, size_t size) { give('a', CALLER, buffer, size); }

uint32_t arc4random_uniform(uint32_t bound) { /* values that would favour small remainders are drawn again */
    uint32_t value, least = bound < 2 ? 0 : -bound % bound;
    do {
        give('a', CALLER, &value, sizeof value);
    } while (value < least);
    return bound < 2 ? 0 : value % bound;
}

long syscall(long number, ...) {
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(arguments, long);
    va_end(arguments);
    find_real();
    if (number == SYS_getrandom && draw('r', CALLER, (void *)a[0], (size_t)a[1])) return a[1];
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* std::random_device::_M_getval() and its form of before C++11's new strings */
unsigned _ZNSt13random_device9_M_getvalEv(void *device) {
    unsigned value;
    (void)device;
    give('v', CALLER, &value, sizeof value);
    return value;
}

unsigned _ZNSt13random_device16_M_getval_pretr1Ev(void *device) SAME_AS(_ZNSt13random_device9_M_getvalEv);

/* ---- the devices ----------------------------------------------------------------------------- */

/* By what the descriptor is, not by how it was opened: copies and inherited ones are devices too. */
static int is_device(int descriptor) {
    if (mode == OFF || self.inside) return 0;
    struct stat found;
    int kept = errno;
    int device = fstat(descriptor, &found) == 0 && S_ISCHR(found.st_mode) && major(found.st_rdev) == 1 &&
                 (minor(found.st_rdev) == 8 || minor(found.st_rdev) == 9);
    errno = kept;
    return device;
}

ssize_t read(int descriptor, void *buffer, size_t size) {
    find_real();
    if (is_device(descriptor) && draw('d', CALLER, buffer, size)) return (ssize_t)size;
    return real_read(descriptor, buffer, size);
}

ssize_t __read_chk(int descriptor, void *buffer, size_t size, size_t room) {
    find_real();
    if (size > room) abort(); /* as libc does */
    if (is_device(descriptor) && draw('d', CALLER, buffer, size)) return (ssize_t)size;
    return real_read(descriptor, buffer, size);
}

ssize_t pread(int descriptor, void *buffer, size_t size, off_t offset) {
    find_real();
    if (is_device(descriptor) && draw('d', CALLER, buffer, size)) return (ssize_t)size;
    return real_pread(descriptor, buffer, size, offset);
}

ssize_t pread64(int descriptor, void *buffer, size_t size, off_t offset) SAME_AS(pread);

ssize_t readv(int descriptor, const struct iovec *parts, int count) {
    find_real();
    if (!is_device(descriptor)) return real_readv(descriptor, parts, count);
    ssize_t total = 0;
    for (int i = 0; i < count; i++) {
        if (!draw('d', CALLER, parts[i].iov_base, parts[i].iov_len))
            return real_readv(descriptor, parts, count);
        total += (ssize_t)parts[i].iov_len;
    }
    return total;
}

/* libc's streams read by a way of their own, so their functions are stood before as well; only once a
 * device was opened as a stream is each call looked at. */

static FILE *opened(FILE *file) {
    if (file && is_device(fileno(file))) atomic_fetch_add(&device_streams, 1);
    return file;
}

FILE *fopen(const char *path, const char *how) {
    find_real();
    return opened(real_fopen(path, how));
}

FILE *fopen64(const char *path, const char *how) SAME_AS(fopen);

FILE *fdopen(int descriptor, const char *how) {
    find_real();
    return opened(real_fdopen(descriptor, how));
}

static int is_device_stream(FILE *file) {
    return atomic_load(&device_streams) > 0 && is_device(fileno(file));
}

size_t fread(void *buffer, size_t size, size_t count, FILE *file) {
    find_real();
    if (is_device_stream(file) && draw('d', CALLER, buffer, size * count)) return count;
    return real_fread(buffer, size, count, file);
}

size_t fread_unlocked(void *buffer, size_t size, size_t count, FILE *file) {
    find_real();
    if (is_device_stream(file) && draw('d', CALLER, buffer, size * count)) return count;
    return real_fread_unlocked(buffer, size, count, file);
}

int fgetc(FILE *file) {
    unsigned char value;
    find_real();
    return is_device_stream(file) && draw('d', CALLER, &value, 1) ? value : real_fgetc(file);
}

int getc(FILE *file) SAME_AS(fgetc);

/* ---- threads --------------------------------------------------------------------------------- */

struct beginning {
    void *(*routine)(void *);
    void *argument;
    char name[NAME_BYTES];
};

static void *begin(void *data) {
    struct beginning *mine = data;
    void *(*routine)(void *) = mine->routine;
    void *argument = mine->argument;
    strcpy(self.name, mine->name);
    free(mine);
    return routine(argument);
}

int pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument) {
    find_real();
    struct beginning *child = mode == OFF ? NULL : malloc(sizeof *child);
    if (!child) return real_pthread_create(thread, attributes, routine, argument);
    child->routine = routine;
    child->argument = argument;
    name_child_thread(child->name, (void *)routine);
    int failed = real_pthread_create(thread, attributes, begin, child);
    if (failed) free(child);
    return failed;
}
