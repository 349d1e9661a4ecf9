/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the control file, keeps the shared counters, decides what each call does. */
#define _GNU_SOURCE
#include "nvml_stub.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *const names[FN_COUNT] = {
#define X(name, shared) [FN_##name] = #name,
    FUNCTIONS(X)
#undef X
    [FN_everything] = "everything",
};
static const Fn shares_value_of[FN_COUNT] = {
#define X(name, shared) [FN_##name] = FN_##shared,
    FUNCTIONS(X)
#undef X
    [FN_everything] = FN_everything,
};

/* The layout of the counter file; stub.py reads it with the same numbers. */
typedef struct {
    char name[64];
    _Atomic uint64_t calls, hangs, open;
    _Atomic uint64_t threads[4]; /* bit n: the thread with number n (mod 256) made a call */
    _Atomic uint64_t per_gpu[MAX_GPUS];
} Counter;
typedef struct {
    char magic[8];
    _Atomic uint64_t generation; /* the Python side adds one after each new control file */
    uint64_t functions;
    _Atomic uint64_t next_thread;
    uint64_t spare[4];
    Counter counter[FN_COUNT];
} Shared;
enum { SHARED_FILE_SIZE = 64 * 1024 };
_Static_assert(sizeof(Counter) == 376 && offsetof(Shared, counter) == 64, "stub.py knows these");
_Static_assert(sizeof(Shared) <= SHARED_FILE_SIZE, "the counters fit the file");

Table *table;
Device devices[MAX_GPUS], mig_devices[MAX_GPUS][MAX_MIGS];
_Atomic int init_count;

static Shared private_counters;
static Shared *shared = &private_counters;
static char control_path[4096];
static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_mutex_t reload_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t loaded_generation, checked_ms;
static struct stat loaded_file;
static _Thread_local uint64_t thread_number; /* 0: not yet numbered */

/* ---- parsing ---------------------------------------------------------------------------- */

static void complain(int line, const char *what)
{
    fprintf(stderr, "nvml_stub: %s line %d: %s\n", control_path, line, what);
}

/* Cut the next word off; exactly one blank after it is consumed. */
static char *word(char **cursor)
{
    char *start = *cursor + strspn(*cursor, " \t");
    if (!*start) {
        *cursor = start;
        return NULL;
    }
    char *end = start + strcspn(start, " \t");
    *cursor = *end ? end + 1 : end;
    *end = '\0';
    return start;
}

static bool next_number(char **cursor, uint64_t *out)
{
    char *start = *cursor + strspn(*cursor, " \t"), *end;
    uint64_t value = strtoull(start, &end, 0);
    if (end == start || (*end && *end != ' ' && *end != '\t'))
        return false;
    *cursor = end;
    *out = value;
    return true;
}

static int next_int(char **cursor, int fallback)
{
    uint64_t value;
    return next_number(cursor, &value) ? (int)value : fallback;
}

static int function_named(const char *name)
{
    for (int fn = 0; fn < FN_COUNT; fn++)
        if (strcmp(names[fn], name) == 0)
            return fn;
    return -1;
}

/* "hex:f8fd0a" is decoded in place, anything else is taken as it stands. */
static void set_text(Rule *r, char *text)
{
    r->text = text;
    r->size = strlen(text);
    if (strncmp(text, "hex:", 4) != 0)
        return;
    char *to = text;
    unsigned byte;
    for (char *from = text + 4; sscanf(from, "%2x", &byte) == 1; from += 2) {
        *to++ = (char)byte;
        if (!from[1])
            break;
    }
    *to = '\0';
    r->size = (size_t)(to - text);
}

static void parse_value(Rule *r, char *text, bool field)
{
    char *cursor = text;
    r->kind = VALUE;
    r->real = strtod(text, NULL);
    for (char *end; r->count < MAX_NUMBERS; cursor = end) {
        uint64_t value = strtoull(cursor, &end, 0);
        if (end == cursor)
            break;
        r->number[r->count++] = value;
    }
    if (field) {
        const char *type = strstr(text, "type ");
        int64_t n = (int64_t)r->number[0];
        r->type = type ? atoi(type + 5) : n < 0 ? 4 : n > UINT32_MAX ? 3 : 1;
    } else {
        set_text(r, text);
    }
}

/* The verb and what follows it: "= value", "! code", "hang" or "ok". */
static bool parse_verb(Rule *r, char *verb, char *rest, bool field)
{
    if (strcmp(verb, "=") == 0) {
        parse_value(r, rest, field);
    } else if (strcmp(verb, "!") == 0) {
        r->kind = FAIL;
        r->code = next_int(&rest, 999);
    } else if (strcmp(verb, "hang") == 0) {
        r->kind = HANG;
    } else if (strcmp(verb, "ok") == 0) {
        r->kind = FINE;
    } else {
        return false;
    }
    return true;
}

static bool parse_field(Table *t, Rule *r, int gpu, char *cursor)
{
    uint64_t id;
    if (!next_number(&cursor, &id) || id >= MAX_FIELDS)
        return false;
    char *verb = word(&cursor);
    if (verb && strcmp(verb, "scope") == 0) {
        r->nargs = 1;
        r->args[0] = next_int(&cursor, 0);
        verb = word(&cursor);
    }
    if (!verb || !parse_verb(r, verb, cursor, true))
        return false;
    if (!t->fields[gpu + 1])
        t->fields[gpu + 1] = calloc(MAX_FIELDS, sizeof(Rule *));
    r->next = t->fields[gpu + 1][id];
    t->fields[gpu + 1][id] = r;
    t->field_faults += r->kind != VALUE;
    return true;
}

static bool parse_function(Table *t, Rule *r, int gpu, Fn fn, char *cursor)
{
    uint64_t arg;
    while (r->nargs < MAX_ARGS && next_number(&cursor, &arg))
        r->args[r->nargs++] = (int)arg;
    char *verb = word(&cursor);
    if (!verb || !parse_verb(r, verb, cursor, false))
        return false;
    if (r->mig >= 0 && gpu >= 0 && r->kind == VALUE)
        t->migs[gpu] |= 1U << r->mig;
    r->next = t->head[fn][gpu + 1];
    t->head[fn][gpu + 1] = r;
    t->faults[fn] += r->kind != VALUE;
    return true;
}

static bool parse_latency(Table *t, int gpu, char *cursor)
{
    Latency latency = {.us = (uint32_t)next_int(&cursor, 0), .set = true};
    char *mode = word(&cursor);
    latency.sleeps = mode && strcmp(mode, "sleep") == 0;
    char *name = word(&cursor);
    int fn = name ? function_named(name) : -1;
    if (name && fn < 0)
        return false;
    *(fn >= 0 ? &t->latency_fn[fn] : gpu >= 0 ? &t->latency_gpu[gpu] : &t->latency) = latency;
    return true;
}

static bool parse_event(Table *t, char *cursor)
{
    Event e = {.id = (uint64_t)next_int(&cursor, 0), .gi = UINT32_MAX, .ci = UINT32_MAX};
    for (char *key; (key = word(&cursor));) {
        uint64_t value;
        if (!next_number(&cursor, &value))
            return false;
        if (strcmp(key, "gpu") == 0)
            e.gpu = (int)value;
        else if (strcmp(key, "type") == 0)
            e.type = value;
        else if (strcmp(key, "data") == 0)
            e.data = value;
        else if (strcmp(key, "gi") == 0)
            e.gi = (uint32_t)value;
        else if (strcmp(key, "ci") == 0)
            e.ci = (uint32_t)value;
    }
    if (e.gpu < 0 || e.gpu >= MAX_GPUS)
        return false;
    t->events[t->event_count++] = e;
    if (e.id > t->last_event)
        t->last_event = e.id;
    return true;
}

static bool parse_option(Table *t, const char *name, char *cursor)
{
    if (strcmp(name, "count") == 0) {
        t->listed = next_int(&cursor, 0);
        if (t->listed < 0 || t->listed > MAX_GPUS)
            return false;
        for (int i = 0; i < t->listed; i++)
            t->order[i] = i;
    } else if (strcmp(name, "order") == 0) {
        uint64_t gpu;
        for (t->listed = 0; t->listed < MAX_GPUS && next_number(&cursor, &gpu); t->listed++)
            t->order[t->listed] = (int)(gpu % MAX_GPUS);
    } else if (strcmp(name, "process_stride") == 0) {
        t->process_stride = next_int(&cursor, 24);
    } else if (strcmp(name, "ecc_off_garbage") == 0) {
        t->ecc_off_garbage = next_int(&cursor, 0) != 0;
    } else if (strcmp(name, "field_default") == 0) {
        t->field_default = next_int(&cursor, NOT_SUPPORTED);
    } else if (strcmp(name, "field_latency_us") == 0) {
        t->field_latency_us = (uint32_t)next_int(&cursor, 0);
    } else if (strcmp(name, "fabric_version") == 0) {
        t->fabric_version = next_int(&cursor, 3);
    } else {
        return strcmp(name, "missing") == 0; /* a remark: the build leaves symbols out */
    }
    return true;
}

static bool parse_line(Table *t, Rule *r, char *cursor)
{
    int gpu = -1;
    char *head = word(&cursor);
    r->mig = -1;
    if (!head || head[0] == '#')
        return true;
    if (strcmp(head, "event") == 0)
        return parse_event(t, cursor);
    if (strcmp(head, "gpu") == 0) {
        gpu = next_int(&cursor, -1);
        if (gpu < 0 || gpu >= MAX_GPUS)
            return false;
        head = word(&cursor);
    } else if (strcmp(head, "*") == 0) {
        head = word(&cursor);
    }
    if (head && strcmp(head, "mig") == 0) {
        r->mig = next_int(&cursor, -1);
        if (r->mig < 0 || r->mig >= MAX_MIGS)
            return false;
        head = word(&cursor);
    }
    if (!head)
        return false;
    if (strcmp(head, "lost") == 0) {
        for (int g = gpu < 0 ? 0 : gpu; g < (gpu < 0 ? MAX_GPUS : gpu + 1); g++) {
            char *copy = cursor;
            t->lost[g] = next_int(&copy, GPU_IS_LOST);
        }
        return true;
    }
    if (strcmp(head, "field") == 0)
        return parse_field(t, r, gpu, cursor);
    if (strcmp(head, "latency_us") == 0)
        return parse_latency(t, gpu, cursor);
    int fn = function_named(head);
    return fn >= 0 ? parse_function(t, r, gpu, (Fn)fn, cursor) : parse_option(t, head, cursor);
}

static Table *parse(char *text)
{
    Table *t = calloc(1, sizeof *t);
    size_t lines = 1;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    t->buffer = text;
    t->rules = calloc(lines, sizeof *t->rules);
    t->events = calloc(lines, sizeof *t->events);
    t->listed = 1;
    t->process_stride = 24;
    t->field_default = NOT_SUPPORTED;
    t->fabric_version = 3;
    Rule *r = t->rules;
    int number = 0;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        number++;
        if (!parse_line(t, r++, line))
            complain(number, "not understood");
    }
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        t->position[gpu] = -1;
    for (int i = 0; i < t->listed; i++)
        t->position[t->order[i]] = i;
    return t;
}

static void discard(Table *t)
{
    if (!t)
        return;
    for (int i = 0; i <= MAX_GPUS; i++)
        free(t->fields[i]);
    free(t->events);
    free(t->rules);
    free(t->buffer);
    free(t);
}

/* ---- reloading -------------------------------------------------------------------------- */

static uint64_t coarse_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static char *read_control(struct stat *st)
{
    int fd = open(control_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    char *text = NULL;
    if (fstat(fd, st) == 0 && (text = malloc((size_t)st->st_size + 1))) {
        ssize_t got = read(fd, text, (size_t)st->st_size);
        text[got > 0 ? got : 0] = '\0';
    }
    close(fd);
    return text;
}

static void reload(uint64_t generation)
{
    struct stat st = {0};
    char *text = read_control(&st);
    if (!text && table)
        return; /* unreadable for a moment: the old one stays */
    Table *fresh = parse(text ? text : calloc(1, 1));
    pthread_rwlock_wrlock(&table_lock);
    Table *old = table;
    table = fresh;
    pthread_rwlock_unlock(&table_lock);
    discard(old);
    loaded_file = st;
    loaded_generation = generation;
}

static bool file_changed(void)
{
    struct stat st;
    return stat(control_path, &st) == 0 &&
           (st.st_mtim.tv_sec != loaded_file.st_mtim.tv_sec ||
            st.st_mtim.tv_nsec != loaded_file.st_mtim.tv_nsec ||
            st.st_size != loaded_file.st_size || st.st_ino != loaded_file.st_ino);
}

/* A new generation number is acted on by the very next call; an edit by hand within about 1 ms. */
static void refresh(void)
{
    uint64_t generation = shared->generation, now = coarse_ms();
    bool told = generation != loaded_generation;
    if (!told && now == checked_ms)
        return;
    if (told || !checked_ms)
        pthread_mutex_lock(&reload_lock);
    else if (pthread_mutex_trylock(&reload_lock) != 0)
        return; /* someone else is looking */
    generation = shared->generation;
    if (!table || generation != loaded_generation || file_changed())
        reload(generation);
    checked_ms = now;
    pthread_mutex_unlock(&reload_lock);
}

/* ---- start, fork ------------------------------------------------------------------------ */

/* The driver's state does not outlive fork: the child has to initialise for itself. Locks may
 * have been held by threads that the child does not have, so they are made anew. */
static void after_fork_in_child(void)
{
    static const pthread_rwlock_t free_rwlock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    static const pthread_mutex_t free_mutex = PTHREAD_MUTEX_INITIALIZER;
    table_lock = free_rwlock;
    reload_lock = free_mutex;
    init_count = 0;
    thread_number = 0;
    forget_event_sets();
}

__attribute__((constructor)) static void start(void)
{
    for (int g = 0; g < MAX_GPUS; g++) {
        devices[g] = (Device){.gpu = g, .mig = -1};
        for (int m = 0; m < MAX_MIGS; m++)
            mig_devices[g][m] = (Device){.gpu = g, .mig = m};
    }
    pthread_atfork(NULL, NULL, after_fork_in_child);
    const char *path = getenv("NVML_STUB_CONTROL");
    if (!path || strlen(path) + 8 > sizeof control_path)
        return;
    strcpy(control_path, path);
    char counters[sizeof control_path];
    snprintf(counters, sizeof counters, "%.4080s.calls", path);
    int fd = open(counters, O_RDWR | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && st.st_size >= SHARED_FILE_SIZE) {
        void *map = mmap(NULL, SHARED_FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map != MAP_FAILED) {
            shared = map;
            shared->functions = FN_COUNT;
            for (int fn = 0; fn < FN_COUNT; fn++)
                strncpy(shared->counter[fn].name, names[fn], sizeof shared->counter[fn].name - 1);
        }
    }
    close(fd);
}

/* ---- finding rules ---------------------------------------------------------------------- */

/* The newest rule with the most arguments that all agree. */
static const Rule *pick(const Rule *r, int nargs, const int *args, int mig, bool fault)
{
    const Rule *best = NULL;
    for (; r; r = r->next) {
        if ((r->kind != VALUE) != fault || r->mig != mig || r->nargs > nargs)
            continue;
        if (memcmp(r->args, args, (size_t)r->nargs * sizeof *args) != 0)
            continue;
        if (!best || r->nargs > best->nargs)
            best = r;
    }
    return best;
}

static const Rule *find(const Call *c, Fn fn, int mig, bool fault)
{
    const Rule *r = NULL;
    if (c->gpu >= 0)
        r = pick(table->head[fn][c->gpu + 1], c->nargs, c->args, mig, fault);
    return r ? r : pick(table->head[fn][0], c->nargs, c->args, mig, fault);
}

static const Rule *find_value(const Call *c)
{
    const Rule *r = find(c, c->fn, c->mig, false);
    Fn other = shares_value_of[c->fn];
    return r || other == c->fn ? r : find(c, other, c->mig, false);
}

const Rule *value_of(Fn fn, int gpu, int mig)
{
    const Call c = {.fn = fn, .gpu = gpu, .mig = mig};
    return find(&c, fn, mig, false);
}

const Rule *field_rule(int gpu, int mig, unsigned id, unsigned scope, bool fault)
{
    const int args[1] = {(int)scope};
    if (id >= MAX_FIELDS || (fault && !table->field_faults))
        return NULL;
    const Rule *r = NULL;
    if (table->fields[gpu + 1])
        r = pick(table->fields[gpu + 1][id], 1, args, mig, fault);
    if (!r && table->fields[0])
        r = pick(table->fields[0][id], 1, args, mig, fault);
    return r;
}

/* ---- one call --------------------------------------------------------------------------- */

typedef struct {
    Kind kind; /* FINE: nothing stops the call */
    Code code;
} Verdict;

static Verdict judge(const Call *c)
{
    if (c->gpu >= 0) {
        if (table->lost[c->gpu])
            return (Verdict){FAIL, c->locate ? table->lost[c->gpu] : GPU_IS_LOST};
        if (table->position[c->gpu] < 0)
            return (Verdict){FAIL, GPU_IS_LOST};
        if (c->mig >= 0 && !(table->migs[c->gpu] >> c->mig & 1))
            return (Verdict){FAIL, INVALID_ARGUMENT};
    }
    const Rule *own = table->faults[c->fn] ? find(c, c->fn, c->mig, true) : NULL;
    if (own && own->kind == FINE)
        return (Verdict){FINE, OK};
    if (table->faults[FN_everything]) {
        const Rule *all = find(c, FN_everything, -1, true);
        own = all ? all : own;
    }
    return own ? (Verdict){own->kind, own->code} : (Verdict){FINE, OK};
}

static Latency latency_of(const Call *c)
{
    Latency l = table->latency;
    if (table->latency_fn[c->fn].set)
        l = table->latency_fn[c->fn];
    else if (c->gpu >= 0 && table->latency_gpu[c->gpu].set)
        l = table->latency_gpu[c->gpu];
    l.us += table->field_latency_us * (uint32_t)c->fields;
    return l;
}

static void nap(long nanoseconds)
{
    struct timespec left = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    while (nanosleep(&left, &left) != 0)
        continue;
}

/* Spinning is measured in CPU time of the thread: what a system call of that cost would take. */
static void burn(Latency latency)
{
    struct timespec now;
    if (latency.sleeps) {
        nap((long)latency.us * 1000);
        return;
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    int64_t end = now.tv_sec * 1000000000LL + now.tv_nsec + latency.us * 1000LL;
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while (now.tv_sec * 1000000000LL + now.tv_nsec < end);
}

static void count(const Call *c)
{
    Counter *k = &shared->counter[c->fn];
    if (!thread_number)
        thread_number = 1 + shared->next_thread++ % 256;
    uint64_t bit = 1ULL << ((thread_number - 1) % 64);
    _Atomic uint64_t *mask = &k->threads[(thread_number - 1) / 64];
    if (!(*mask & bit))
        *mask |= bit;
    k->calls++;
    k->open++;
    if (c->gpu >= 0)
        k->per_gpu[c->gpu]++;
}

static Code close_call(const Call *c, Code code)
{
    shared->counter[c->fn].open--;
    return code;
}

static Verdict locate_and_judge(Call *c)
{
    if (!c->locate)
        return judge(c);
    c->gpu = c->mig = -1;
    Verdict verdict = judge(c);
    if (verdict.kind != FINE)
        return verdict;
    Code code = c->locate(c, c->key, c->number);
    return code == OK ? judge(c) : (Verdict){FAIL, code};
}

static int decide(Call *c)
{
    for (;;) {
        refresh();
        pthread_rwlock_rdlock(&table_lock);
        Latency latency = latency_of(c);
        if (latency.us && !c->burned) {
            pthread_rwlock_unlock(&table_lock);
            burn(latency);
            c->burned = true;
            continue;
        }
        Verdict verdict = locate_and_judge(c);
        if (verdict.kind == FINE) {
            c->value = find_value(c);
            return GO;
        }
        pthread_rwlock_unlock(&table_lock);
        if (verdict.kind == FAIL)
            return close_call(c, verdict.code);
        if (!c->hung)
            shared->counter[c->fn].hangs++;
        c->hung = true;
        nap(10 * 1000 * 1000);
    }
}

int enter(Call *c)
{
    count(c);
    bool starts = c->fn == FN_nvmlInit_v2 || c->fn == FN_nvmlInitWithFlags;
    if (!starts && c->fn != FN_nvmlErrorString && init_count == 0)
        return close_call(c, UNINITIALIZED);
    return decide(c);
}

int pause_call(Call *c, long nanoseconds)
{
    pthread_rwlock_unlock(&table_lock);
    nap(nanoseconds);
    return decide(c);
}

int stay_hung(Call *c)
{
    if (!c->hung)
        shared->counter[c->fn].hangs++;
    c->hung = true;
    return pause_call(c, 10 * 1000 * 1000);
}

Code leave(Call *c, Code code)
{
    pthread_rwlock_unlock(&table_lock);
    return close_call(c, code);
}
