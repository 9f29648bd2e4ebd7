/* Records the random bytes that a program is given, and gives them back (Chen et al., ICSE 2022, section 3.2).
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
 * Each thread has a stream of its own, so that threads that draw at the same time do not exchange bytes.
 * A thread is named by its lineage: by whom it was started, with which start routine, as which of them.
 * So the streams of Python's threads do not move when OpenMP starts more threads or fewer. A process is
 * named by its lineage too where it was forked, and by its program and order of arrival where that
 * program was started anew.
 *
 * Environment: VBSTUDY_REPLAY_MODE is `record` or `replay`, VBSTUDY_REPLAY_FOLDER the folder of the streams.
 * A stream is a file of events: kind (1 byte), length of the site (2), size (4), little-endian, then the
 * site that asked and the bytes. guest/replay/streams.py reads the same.
 *
 * Not seen: bytes drawn by an instruction of the program itself, by a system call made without libc, by
 * mapping a device; the kernel's own bytes for a process (AT_RANDOM); and seeds made of clocks or process
 * numbers, which the hooks in Python take care of. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#undef fread_unlocked /* macros in some headers */
#undef getc

#define NAME_BYTES 200
#define PATH_BYTES 4096
#define ROUTINES 64
#define REPLAY_FAILED 5 /* the exit status of a process whose draws are not those recorded */

enum mode { OFF, RECORD, REPLAY };

static enum mode mode = OFF;
static char folder[PATH_BYTES];
static char process_name[NAME_BYTES]; /* "" until the first draw, but for the program itself */
static atomic_int forks;
static atomic_int device_streams; /* FILEs of the devices that were opened; mostly none */
static pthread_mutex_t naming = PTHREAD_MUTEX_INITIALIZER;

/* This thread: its stream, and how many threads it has started with each routine. */
struct thread {
    char name[NAME_BYTES];
    int stream; /* descriptor + 1; 0: not open yet */
    int used;   /* replay: descriptor + 1 of the file that says how far the stream was read */
    off_t position;
    long draws;
    int inside; /* drawing, so that what this library calls itself is not recorded */
    struct { char routine[NAME_BYTES]; int count; } started[ROUTINES];
};
static __thread struct thread self;

static long (*real_syscall)(long, ...);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static ssize_t (*real_readv)(int, const struct iovec *, int);
static size_t (*real_fread)(void *, size_t, size_t, FILE *);
static size_t (*real_fread_unlocked)(void *, size_t, size_t, FILE *);
static int (*real_fgetc)(FILE *);
static int (*real_getc)(FILE *);
static FILE *(*real_fopen)(const char *, const char *);
static FILE *(*real_fopen64)(const char *, const char *);
static FILE *(*real_fdopen)(int, const char *);
static int (*real_pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* ---- start ----------------------------------------------------------------------------------- */

static void find_real(void) {
    if (real_pthread_create)
        return;
    real_syscall = dlsym(RTLD_NEXT, "syscall");
    real_read = dlsym(RTLD_NEXT, "read");
    real_pread = dlsym(RTLD_NEXT, "pread");
    real_readv = dlsym(RTLD_NEXT, "readv");
    real_fread = dlsym(RTLD_NEXT, "fread");
    real_fread_unlocked = dlsym(RTLD_NEXT, "fread_unlocked");
    real_fgetc = dlsym(RTLD_NEXT, "fgetc");
    real_getc = dlsym(RTLD_NEXT, "getc");
    real_fopen = dlsym(RTLD_NEXT, "fopen");
    real_fopen64 = dlsym(RTLD_NEXT, "fopen64");
    real_fdopen = dlsym(RTLD_NEXT, "fdopen");
    real_pthread_create = dlsym(RTLD_NEXT, "pthread_create");
}

static void before_fork(void) { atomic_fetch_add(&forks, 1); }

static void after_fork_in_child(void) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, "-f%d", atomic_load(&forks));
    strncat(process_name, suffix, sizeof process_name - strlen(process_name) - 1);
    atomic_store(&forks, 0);
    pthread_mutex_init(&naming, NULL); /* another thread may have held it */
    if (self.stream)
        close(self.stream - 1);
    if (self.used)
        close(self.used - 1);
    memset(&self, 0, sizeof self);
    strcpy(self.name, "main");
}

/* Claims a name among all processes of the program; false when another process has it. */
static int claim(const char *name) {
    char path[PATH_BYTES + NAME_BYTES + 16];
    snprintf(path, sizeof path, "%s/claims/%s", folder, name);
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor < 0)
        return 0;
    close(descriptor);
    return 1;
}

__attribute__((constructor)) static void start(void) {
    const char *asked = getenv("VBSTUDY_REPLAY_MODE"), *where = getenv("VBSTUDY_REPLAY_FOLDER");
    find_real();
    if (!asked || !where || strlen(where) >= sizeof folder)
        return;
    strcpy(folder, where);
    strcpy(self.name, "main");
    if (claim("main"))
        strcpy(process_name, "main");
    pthread_atfork(before_fork, NULL, after_fork_in_child);
    mode = strcmp(asked, "record") == 0 ? RECORD : REPLAY;
}

/* ---- names ----------------------------------------------------------------------------------- */

static void clean(char *text) { /* into what may stand in a file's name */
    for (; *text; text++)
        if (!((*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
              (*text >= '0' && *text <= '9') || strchr("-_.+:", *text)))
            *text = '_';
}

/* `libtorch_cpu.so:_ZN2at...` where the address has a symbol, else `libtorch_cpu.so+1a2b`. */
static void describe(const void *address, char *into, size_t size) {
    Dl_info found;
    if (!dladdr(address, &found) || !found.dli_fname) {
        snprintf(into, size, "unknown");
        return;
    }
    const char *slash = strrchr(found.dli_fname, '/');
    const char *file = slash ? slash + 1 : found.dli_fname;
    if (found.dli_sname)
        snprintf(into, size, "%.60s:%.120s", file, found.dli_sname);
    else
        snprintf(into, size, "%.60s+%lx", file,
                 (unsigned long)((const char *)address - (const char *)found.dli_fbase));
}

/* A process that was not forked but started as a program of its own: `python3.1`, `python3.2`, by arrival. */
static void name_process(void) {
    pthread_mutex_lock(&naming);
    if (!process_name[0] || process_name[0] == '-') {
        char forked[NAME_BYTES], name[NAME_BYTES];
        strcpy(forked, process_name); /* it may have forked before it drew anything */
        for (int i = 1; i < 1000000; i++) {
            snprintf(name, sizeof name, "%.100s.%d", program_invocation_short_name, i);
            clean(name);
            if (claim(name))
                break;
        }
        snprintf(process_name, sizeof process_name, "%.120s%.70s", name, forked);
    }
    pthread_mutex_unlock(&naming);
}

static void name_child_thread(char *into, void *routine) {
    char text[NAME_BYTES];
    int i = 0;
    describe(routine, text, sizeof text);
    clean(text);
    while (i < ROUTINES - 1 && self.started[i].routine[0] && strcmp(self.started[i].routine, text) != 0)
        i++;
    strcpy(self.started[i].routine, text);
    int count = ++self.started[i].count;
    if (strlen(self.name) + strlen(text) + 12 < NAME_BYTES) {
        snprintf(into, NAME_BYTES, "%s-%s.%d", self.name, text, count);
        return;
    }
    uint64_t hash = 14695981039346656037u; /* a long lineage is told apart by its hash (FNV-1a) */
    for (const char *c = self.name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    snprintf(into, NAME_BYTES, "%016llx-%.140s.%d", (unsigned long long)hash, text, count);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Writes the report (the first of all processes does) and ends the process. */
static void fail(const char *format, ...) {
    char path[PATH_BYTES + 16], text[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof text - 2)
        length = sizeof text - 2;
    text[length++] = '\n';
    snprintf(path, sizeof path, "%s/error.part.%d", folder, (int)getpid());
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (descriptor >= 0) {
        ssize_t written = write(descriptor, text, length);
        (void)written;
        /* Python's own functions, where this is Python: they need no lock and allocate nothing. */
        void *(*this_thread)(void) = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
        void (*dump)(int, void *) = dlsym(RTLD_DEFAULT, "_Py_DumpTraceback");
        void *state = this_thread && dump ? this_thread() : NULL;
        if (state)
            dump(descriptor, state);
        void *frames[64];
        dprintf(descriptor, "C stack (most recent call first):\n");
        backtrace_symbols_fd(frames, backtrace(frames, 64), descriptor);
        close(descriptor);
        char whole[PATH_BYTES + 16];
        snprintf(whole, sizeof whole, "%s/error", folder);
        if (link(path, whole) != 0 && errno != EEXIST)
            text[length - 1] = '\n'; /* the disk is full: the exit status tells */
        unlink(path);
    }
    _exit(REPLAY_FAILED);
}

/* ---- one draw -------------------------------------------------------------------------------- */

static const char *kind_name(char kind) {
    switch (kind) {
    case 'r': return "getrandom";
    case 'e': return "getentropy";
    case 'd': return "the random device";
    case 'v': return "std::random_device";
    case 'a': return "arc4random";
    default: return "an unknown source";
    }
}

static int open_stream(const char *ending, int flags) {
    char path[PATH_BYTES + 2 * NAME_BYTES + 32];
    snprintf(path, sizeof path, "%s/streams/%s,%s%s", folder, process_name, self.name, ending);
    return open(path, flags | O_CLOEXEC, 0600);
}

static void fill_by_kernel(unsigned char *buffer, size_t size) {
    while (size > 0) {
        long got = real_syscall(SYS_getrandom, buffer, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            fail("the kernel gives no random bytes: %s", strerror(errno));
        buffer += got;
        size -= (size_t)got;
    }
}

static void write_whole(int descriptor, const unsigned char *data, size_t size) {
    while (size > 0) {
        ssize_t done = write(descriptor, data, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            fail("the recording cannot be written: %s", strerror(errno));
        data += done;
        size -= (size_t)done;
    }
}

static void read_whole(void *into, size_t size) {
    if (size > 0 && real_pread(self.stream - 1, into, size, self.position) != (ssize_t)size)
        fail("the stream of %s, thread %s, is cut off", process_name, self.name);
    self.position += (off_t)size;
}

static void record(char kind, const char *site, unsigned char *buffer, size_t size) {
    if (!self.stream) {
        int descriptor = open_stream("", O_WRONLY | O_CREAT | O_APPEND);
        if (descriptor < 0)
            fail("the recording cannot be written: %s", strerror(errno));
        self.stream = descriptor + 1;
    }
    unsigned char header[7] = {(unsigned char)kind};
    uint16_t length = (uint16_t)strlen(site);
    uint32_t bytes = (uint32_t)size;
    memcpy(header + 1, &length, 2);
    memcpy(header + 3, &bytes, 4);
    fill_by_kernel(buffer, size);
    write_whole(self.stream - 1, header, sizeof header);
    write_whole(self.stream - 1, (const unsigned char *)site, length);
    write_whole(self.stream - 1, buffer, size);
}

static void replay(char kind, const char *site, unsigned char *buffer, size_t size) {
    if (!self.stream) {
        int descriptor = open_stream("", O_RDONLY);
        if (descriptor < 0)
            fail("%s of %zu bytes is asked for at %s by %s, thread %s, which asked for nothing when it was "
                 "recorded", kind_name(kind), size, site, process_name, self.name);
        self.stream = descriptor + 1;
        self.used = open_stream(".used", O_WRONLY | O_CREAT) + 1;
    }
    unsigned char header[7];
    ssize_t got = real_pread(self.stream - 1, header, sizeof header, self.position);
    if (got != (ssize_t)sizeof header)
        fail("the recording runs out: %s of %zu bytes is asked for at %s by %s, thread %s, which drew %ld "
             "times when it was recorded", kind_name(kind), size, site, process_name, self.name, self.draws);
    self.position += (off_t)sizeof header;
    uint16_t length;
    uint32_t bytes;
    char recorded[512] = "";
    memcpy(&length, header + 1, 2);
    memcpy(&bytes, header + 3, 4);
    if (length >= sizeof recorded)
        fail("the stream of %s, thread %s, is damaged", process_name, self.name);
    read_whole(recorded, length);
    if (header[0] != (unsigned char)kind || bytes != size || strcmp(recorded, site) != 0)
        fail("the program asks differently: draw %ld of %s, thread %s, is %s of %zu bytes at %s; recorded was "
             "%s of %u bytes at %s", self.draws + 1, process_name, self.name, kind_name(kind), size, site,
             kind_name((char)header[0]), bytes, recorded);
    read_whole(buffer, size);
    if (self.used) {
        uint64_t position = (uint64_t)self.position;
        if (pwrite(self.used - 1, &position, sizeof position, 0) != sizeof position)
            fail("%s cannot be written: %s", folder, strerror(errno));
    }
}

/* Fills `buffer` as `mode` says. False when this library has no part in it. */
static int draw(char kind, const void *caller, void *buffer, size_t size) {
    if (mode == OFF || self.inside)
        return 0;
    int kept = errno;
    char site[NAME_BYTES];
    self.inside = 1;
    if (!process_name[0] || process_name[0] == '-')
        name_process();
    if (!self.name[0])
        strcpy(self.name, "unknown"); /* a thread made by clone itself */
    describe(caller, site, sizeof site);
    (mode == RECORD ? record : replay)(kind, site, buffer, size);
    self.draws++;
    self.inside = 0;
    errno = kept;
    return 1;
}

#define CALLER __builtin_return_address(0)

/* ---- what programs call ---------------------------------------------------------------------- */

ssize_t getrandom(void *buffer, size_t size, unsigned flags) {
    find_real();
    if (draw('r', CALLER, buffer, size))
        return (ssize_t)size;
    return real_syscall(SYS_getrandom, buffer, size, flags);
}

int getentropy(void *buffer, size_t size) {
    find_real();
    if (size > 256) {
        errno = EIO;
        return -1;
    }
    if (!draw('e', CALLER, buffer, size))
        fill_by_kernel(buffer, size);
    return 0;
}

uint32_t arc4random(void) {
    uint32_t value;
    find_real();
    if (!draw('a', CALLER, &value, sizeof value))
        fill_by_kernel((unsigned char *)&value, sizeof value);
    return value;
}

void arc4random_buf(void *buffer, size_t size) {
    find_real();
    if (!draw('a', CALLER, buffer, size))
        fill_by_kernel(buffer, size);
}

uint32_t arc4random_uniform(uint32_t bound) { /* values that would favour small remainders are drawn anew */
    uint32_t value, least = bound < 2 ? 0 : -bound % bound;
    find_real();
    do {
        if (!draw('a', CALLER, &value, sizeof value))
            fill_by_kernel((unsigned char *)&value, sizeof value);
    } while (value < least);
    return bound < 2 ? 0 : value % bound;
}

long syscall(long number, ...) {
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    find_real();
    if (number == SYS_getrandom && draw('r', CALLER, (void *)a[0], (size_t)a[1]))
        return a[1];
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* std::random_device::_M_getval() and its form of before C++11's new strings */
unsigned _ZNSt13random_device9_M_getvalEv(void *device) {
    unsigned value;
    (void)device;
    find_real();
    if (!draw('v', CALLER, &value, sizeof value))
        fill_by_kernel((unsigned char *)&value, sizeof value);
    return value;
}

unsigned _ZNSt13random_device16_M_getval_pretr1Ev(void *device) {
    unsigned value;
    (void)device;
    find_real();
    if (!draw('v', CALLER, &value, sizeof value))
        fill_by_kernel((unsigned char *)&value, sizeof value);
    return value;
}

/* ---- the devices ----------------------------------------------------------------------------- */

/* By what the descriptor is, not by how it was opened: copies and inherited ones are devices too. */
static int is_device(int descriptor) {
    if (mode == OFF || self.inside)
        return 0;
    struct stat found;
    int kept = errno;
    int device = fstat(descriptor, &found) == 0 && S_ISCHR(found.st_mode) && major(found.st_rdev) == 1 &&
                 (minor(found.st_rdev) == 8 || minor(found.st_rdev) == 9);
    errno = kept;
    return device;
}

ssize_t read(int descriptor, void *buffer, size_t size) {
    find_real();
    if (is_device(descriptor) && draw('d', CALLER, buffer, size))
        return (ssize_t)size;
    return real_read(descriptor, buffer, size);
}

ssize_t __read_chk(int descriptor, void *buffer, size_t size, size_t room) {
    find_real();
    if (size > room)
        abort(); /* as libc does */
    if (is_device(descriptor) && draw('d', CALLER, buffer, size))
        return (ssize_t)size;
    return real_read(descriptor, buffer, size);
}

ssize_t pread(int descriptor, void *buffer, size_t size, off_t offset) {
    find_real();
    if (is_device(descriptor) && draw('d', CALLER, buffer, size))
        return (ssize_t)size;
    return real_pread(descriptor, buffer, size, offset);
}

ssize_t pread64(int descriptor, void *buffer, size_t size, off_t offset) {
    find_real();
    if (is_device(descriptor) && draw('d', CALLER, buffer, size))
        return (ssize_t)size;
    return real_pread(descriptor, buffer, size, offset);
}

ssize_t readv(int descriptor, const struct iovec *parts, int count) {
    find_real();
    if (!is_device(descriptor))
        return real_readv(descriptor, parts, count);
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
    if (file && is_device(fileno(file)))
        atomic_fetch_add(&device_streams, 1);
    return file;
}

FILE *fopen(const char *path, const char *how) {
    find_real();
    return opened(real_fopen(path, how));
}

FILE *fopen64(const char *path, const char *how) {
    find_real();
    return opened(real_fopen64(path, how));
}

FILE *fdopen(int descriptor, const char *how) {
    find_real();
    return opened(real_fdopen(descriptor, how));
}

static int is_device_stream(FILE *file) {
    return atomic_load(&device_streams) > 0 && is_device(fileno(file));
}

size_t fread(void *buffer, size_t size, size_t count, FILE *file) {
    find_real();
    if (is_device_stream(file) && draw('d', CALLER, buffer, size * count))
        return count;
    return real_fread(buffer, size, count, file);
}

size_t fread_unlocked(void *buffer, size_t size, size_t count, FILE *file) {
    find_real();
    if (is_device_stream(file) && draw('d', CALLER, buffer, size * count))
        return count;
    return real_fread_unlocked(buffer, size, count, file);
}

int fgetc(FILE *file) {
    unsigned char value;
    find_real();
    return is_device_stream(file) && draw('d', CALLER, &value, 1) ? value : real_fgetc(file);
}

int getc(FILE *file) {
    unsigned char value;
    find_real();
    return is_device_stream(file) && draw('d', CALLER, &value, 1) ? value : real_getc(file);
}

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

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument) {
    find_real();
    struct beginning *child = mode == OFF ? NULL : malloc(sizeof *child);
    if (!child)
        return real_pthread_create(thread, attributes, routine, argument);
    child->routine = routine;
    child->argument = argument;
    name_child_thread(child->name, (void *)routine);
    int failed = real_pthread_create(thread, attributes, begin, child);
    if (failed)
        free(child);
    return failed;
}
