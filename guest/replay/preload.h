/* The streams of preload.c: who draws, what was drawn, and what is said when a replay is asked for something
 * else. Included by it alone. */

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

#define NAME_BYTES 200
#define PATH_BYTES 4096
#define STREAM_BYTES (2 * NAME_BYTES + 2)
#define REPLAY_FAILED 5 /* the exit status of a process whose draws are not those recorded */

enum mode { OFF, RECORD, REPLAY };

static enum mode mode = OFF;
static char folder[PATH_BYTES];
static char process_name[NAME_BYTES]; /* "" until the first draw, but for the program itself */
static atomic_int forks;
static atomic_int device_streams; /* FILEs of the devices that were opened; mostly none */

/* Several threads may draw from one stream. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* This thread. */
struct thread {
    char name[NAME_BYTES]; /* "" for a thread that code in C or C++ has started */
    int inside;            /* drawing, so that what this library calls itself is not recorded */
    int started;           /* threads of Python's */
};
static __thread struct thread self;

static long (*real_syscall)(long, ...);
static ssize_t (*real_pread)(int, void *, size_t, off_t);

/* ---- start ----------------------------------------------------------------------------------- */

static void before_fork(void) {
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&forks, 1);
}

static void after_fork_in_parent(void) { pthread_mutex_unlock(&lock); }

static void after_fork_in_child(void) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, "-f%d", atomic_load(&forks));
    strncat(process_name, suffix, sizeof process_name - strlen(process_name) - 1);
    atomic_store(&forks, 0);
    memset(&self, 0, sizeof self);
    strcpy(self.name, "main");
    pthread_mutex_init(&lock, NULL);
}

/* Claims a name among all processes of the program; false when another process has it. */
static int claim(const char *name) {
    char path[PATH_BYTES + NAME_BYTES + 16];
    snprintf(path, sizeof path, "%s/claims/%s", folder, name);
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor < 0) return 0;
    close(descriptor);
    return 1;
}

__attribute__((constructor)) static void start(void) {
    const char *asked = getenv("VBSTUDY_REPLAY_MODE"), *where = getenv("VBSTUDY_REPLAY_FOLDER");
    if (!asked || !where || strlen(where) >= sizeof folder) return;
    strcpy(folder, where);
    strcpy(self.name, "main");
    if (claim("main")) strcpy(process_name, "main");
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
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

/* What a process was started to do, as a hash (FNV-1a): its options and the first argument after them,
 * without digits and folders. Numbers of descriptors, files to write and the like differ from run to run. */
static uint32_t purpose(void) {
    char text[PATH_BYTES];
    uint32_t hash = 2166136261u;
    int descriptor = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = descriptor < 0 ? 0 : real_pread(descriptor, text, sizeof text - 1, 0);
    if (descriptor >= 0) close(descriptor);
    text[size > 0 ? size : 0] = 0;
    for (char *word = text + strlen(text) + 1; word < text + size; word += strlen(word) + 1) {
        char *slash = strrchr(word, '/');
        int option = *word == '-';
        for (char *c = slash && !option ? slash : word; *c; c++)
            if (*c < '0' || *c > '9') hash = (hash ^ (unsigned char)*c) * 16777619u;
        if (!option) break;
    }
    return hash;
}

/* A process that was not forked but started as a program of its own: by what it was started to do, and order
 * of arrival. */
static void name_process(void) {
    if (process_name[0] && process_name[0] != '-') return;
    char forked[NAME_BYTES], name[NAME_BYTES];
    strcpy(forked, process_name); /* it may have forked before it drew anything */
    for (int i = 1; i < 1000000; i++) {
        snprintf(name, sizeof name, "%.100s-%08x.%d", program_invocation_short_name, purpose(), i);
        clean(name);
        if (claim(name)) break;
    }
    snprintf(process_name, sizeof process_name, "%.120s%.70s", name, forked);
}

/* Whether a thread with this start routine is one of Python's: it is where Python's own functions are. */
static int is_pythons(void *routine) {
    void *function = dlsym(RTLD_DEFAULT, "PyThread_start_new_thread");
    Dl_info python, found;
    return function && dladdr(function, &python) && dladdr(routine, &found) &&
           python.dli_fbase == found.dli_fbase;
}

static void name_child_thread(char *into, void *routine) {
    into[0] = 0;
    if (!self.name[0] || !is_pythons(routine)) return;
    snprintf(into, NAME_BYTES, "%.150s-t%d", self.name, ++self.started);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Writes the report (the first of all processes does) and ends the process. */
static void fail(const char *format, ...) {
    char path[PATH_BYTES + 16], text[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof text - 2) length = sizeof text - 2;
    text[length++] = '\n';
    snprintf(path, sizeof path, "%s/error.part.%d", folder, (int)getpid());
    close(STDIN_FILENO); /* the program may have no descriptor left, and the report needs one */
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (descriptor >= 0) {
        ssize_t written = write(descriptor, text, length);
        (void)written;
        /* Python's own functions, where this is Python: they need no lock and allocate nothing. */
        void *(*this_thread)(void) = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
        void (*dump)(int, void *) = dlsym(RTLD_DEFAULT, "_Py_DumpTraceback");
        void *state = this_thread && dump ? this_thread() : NULL;
        if (state) dump(descriptor, state);
        void *frames[64];
        dprintf(descriptor, "C stack (most recent call first):\n");
        backtrace_symbols_fd(frames, backtrace(frames, 64), descriptor);
        close(descriptor);
        char whole[PATH_BYTES + 16];
        snprintf(whole, sizeof whole, "%s/error", folder);
        (void)link(path, whole); /* another process was first, or the disk is full: the exit status tells */
        unlink(path);
    }
    _exit(REPLAY_FAILED);
}

/* Ends the process, for something cannot be kept. The disk may be full: removing a file works even then, and
 * tells that what lies there is not whole. */
static void fail_to_keep(void) {
    char path[PATH_BYTES + 16];
    int why = errno;
    snprintf(path, sizeof path, "%s/whole", folder);
    unlink(path);
    fail("%s cannot be written: %s", folder, strerror(why));
}

/* ---- one draw -------------------------------------------------------------------------------- */

static const char *kind_name(char kind) {
    switch (kind) {
        case 'r':
            return "getrandom";
        case 'e':
            return "getentropy";
        case 'd':
            return "the random device";
        case 'v':
            return "std::random_device";
        case 'a':
            return "arc4random";
        default:
            return "an unknown source";
    }
}

/* A file of the recording is open during a draw alone: the program may close any descriptor, and start any
 * number of threads. */
static int open_file(const char *kind, const char *stream, int flags) {
    char path[PATH_BYTES + STREAM_BYTES + 16];
    snprintf(path, sizeof path, "%s/%s/%s", folder, kind, stream);
    int descriptor = open(path, flags | O_CLOEXEC, 0600);
    if (descriptor < 0 && !(mode == REPLAY && errno == ENOENT)) fail_to_keep();
    return descriptor;
}

/* The stream of this thread; of a thread that code in C or C++ has started, that of the call site. Which of
 * such threads does a piece of work first is chance, and so is in whose name it draws. */
static void name_stream(char *name, const char *site) {
    char who[NAME_BYTES];
    name_process();
    snprintf(who, sizeof who, "%.199s", self.name[0] ? self.name : site);
    clean(who);
    snprintf(name, STREAM_BYTES, "%s,%s", process_name, who);
}

static void fill_by_kernel(void *into, size_t size) {
    unsigned char *buffer = into;
    while (size > 0) {
        long got = real_syscall(SYS_getrandom, buffer, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail("the kernel gives no random bytes: %s", strerror(errno));
        buffer += got;
        size -= (size_t)got;
    }
}

static void write_whole(int descriptor, const unsigned char *data, size_t size) {
    while (size > 0) {
        ssize_t done = write(descriptor, data, size);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail_to_keep();
        data += done;
        size -= (size_t)done;
    }
}

static void record(
    const char *stream, char kind, const char *site, unsigned char *buffer, size_t size) {
    unsigned char header[7] = {(unsigned char)kind};
    uint16_t length = (uint16_t)strlen(site);
    uint32_t bytes = (uint32_t)size;
    int file = open_file("streams", stream, O_WRONLY | O_CREAT | O_APPEND);
    memcpy(header + 1, &length, 2);
    memcpy(header + 3, &bytes, 4);
    fill_by_kernel(buffer, size);
    write_whole(file, header, sizeof header);
    write_whole(file, (const unsigned char *)site, length);
    write_whole(file, buffer, size);
    close(file);
}

/* The bytes at `*position`, which moves behind them. */
static void read_whole(const char *stream, int file, void *into, size_t size, uint64_t *position) {
    if (size > 0 && real_pread(file, into, size, (off_t)*position) != (ssize_t)size)
        fail("the stream %s is cut off", stream);
    *position += size;
}

static void replay(
    const char *stream, char kind, const char *site, unsigned char *buffer, size_t size) {
    int file = open_file("streams", stream, O_RDONLY);
    if (file < 0)
        fail(
            "%s of %zu bytes is asked for at %s by %s, thread %s, where nothing was asked for when it was "
            "recorded",
            kind_name(kind), size, site, process_name, self.name[0] ? self.name : "of a pool");
    int used = open_file("used", stream, O_RDWR | O_CREAT);
    uint64_t position = 0;
    ssize_t kept = real_pread(used, &position, sizeof position, 0);
    unsigned char header[7];
    if (kept < 0 || real_pread(file, header, sizeof header, (off_t)position) != (ssize_t)sizeof header)
        fail("the recording runs out: %s of %zu bytes is asked for at %s, after all draws of %s",
            kind_name(kind), size, site, stream);
    position += sizeof header;
    uint16_t length;
    uint32_t bytes;
    char recorded[512] = "";
    memcpy(&length, header + 1, 2);
    memcpy(&bytes, header + 3, 4);
    if (length >= sizeof recorded) fail("the stream %s is damaged", stream);
    read_whole(stream, file, recorded, length, &position);
    if (header[0] != (unsigned char)kind || bytes != size || strcmp(recorded, site) != 0)
        fail(
            "the program asks differently: the next draw of %s is %s of %zu bytes at %s; recorded was %s of "
            "%u bytes at %s",
            stream, kind_name(kind), size, site, kind_name((char)header[0]), bytes, recorded);
    read_whole(stream, file, buffer, size, &position);
    if (pwrite(used, &position, sizeof position, 0) != sizeof position) fail_to_keep();
    close(file);
    close(used);
}

/* TensorFlow numbers its executions with a generator of each pool thread. Which threads of a pool have work
 * is chance; the numbers tell executions apart and enter no result. */
static int is_number_of_an_execution(void) {
    void *frames[8];
    Dl_info found;
    int count = backtrace(frames, 8);
    for (int i = 0; i < count; i++)
        if (dladdr(frames[i], &found) && found.dli_sname && strstr(found.dli_sname, "ThreadLocalNew64"))
            return 1;
    return 0;
}

/* Fills `buffer` as `mode` says. False when this library has no part in it. */
static int draw(char kind, const void *caller, void *buffer, size_t size) {
    if (mode == OFF || self.inside) return 0;
    int kept = errno;
    char site[NAME_BYTES], stream[STREAM_BYTES];
    self.inside = 1;
    if (kind == 'v' && is_number_of_an_execution()) {
        fill_by_kernel(buffer, size);
    } else {
        describe(caller, site, sizeof site);
        pthread_mutex_lock(&lock);
        name_stream(stream, site);
        (mode == RECORD ? record : replay)(stream, kind, site, buffer, size);
        pthread_mutex_unlock(&lock);
    }
    self.inside = 0;
    errno = kept;
    return 1;
}
