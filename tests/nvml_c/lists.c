/* SPDX-License-Identifier: Apache-2.0 */
/* The exported functions that answer with lists: pages, processes, field values, events. */
#define _GNU_SOURCE
#include "nvml_stub.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- retired pages ---------------------------------------------------------------------- */

/* The next blank-separated "a:b:c..." of a list; absent parts keep what they were. */
static bool next_entry(const char **cursor, uint64_t *parts, int n)
{
    const char *at = *cursor + strspn(*cursor, " \t");
    if (!*at)
        return false;
    for (int i = 0; i < n; i++) {
        char *end;
        uint64_t value = strtoull(at, &end, 0);
        if (end != at)
            parts[i] = value;
        at = end;
        if (*at != ':')
            break;
        at++;
    }
    *cursor = at + strcspn(at, " \t");
    return true;
}

static unsigned entries_in(const char *list)
{
    unsigned n = 0;
    while (next_entry(&list, NULL, 0))
        n++;
    return n;
}

/* Value per cause: "address:timestamp ..." */
static Code give_pages(Call *c, unsigned *count, uint64_t *addresses, uint64_t *times)
{
    if (!count)
        return leave(c, INVALID_ARGUMENT);
    if (!c->value)
        return leave(c, NOT_SUPPORTED);
    const char *list = c->value->text;
    unsigned have = entries_in(list), room = *count;
    *count = have;
    if (have > room || (have && !addresses))
        return leave(c, INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < have; i++) {
        uint64_t page[2] = {0, 0};
        next_entry(&list, page, 2);
        addresses[i] = page[0];
        if (times)
            times[i] = page[1];
    }
    return leave(c, OK);
}

API Code nvmlDeviceGetRetiredPages(const Device *d, int cause, unsigned *count,
                                   uint64_t *addresses)
{
    DEVICE(nvmlDeviceGetRetiredPages, d, 1, cause);
    return give_pages(&c, count, addresses, NULL);
}

API Code nvmlDeviceGetRetiredPages_v2(const Device *d, int cause, unsigned *count,
                                      uint64_t *addresses, uint64_t *times)
{
    DEVICE(nvmlDeviceGetRetiredPages_v2, d, 1, cause);
    return give_pages(&c, count, addresses, times);
}

/* ---- processes -------------------------------------------------------------------------- */

/* One entry at its longest; the older layouts are its first 16 or 24 bytes. */
typedef struct {
    unsigned pid;
    uint64_t memory;
    unsigned gi, ci;
    uint64_t protected_memory;
} Process;

/* Value: "pid:memory[:gpu-instance[:compute-instance[:protected]]] ..."; memory 0xffffffffffffffff
 * is the driver's "not available". */
static Code give_processes(Call *c, const Rule *value, unsigned *count, char *out, size_t stride)
{
    if (!count)
        return leave(c, INVALID_ARGUMENT);
    if (!value)
        return leave(c, NOT_SUPPORTED);
    const char *list = value->text;
    unsigned have = entries_in(list), room = *count;
    *count = have;
    if (have > room || (have && !out))
        return leave(c, INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < have; i++) {
        uint64_t part[5] = {0, 0, UINT32_MAX, UINT32_MAX, 0};
        next_entry(&list, part, 5);
        Process p;
        memset(&p, 0, sizeof p); /* the gap after the pid as well */
        p.pid = (unsigned)part[0];
        p.memory = part[1];
        p.gi = (unsigned)part[2];
        p.ci = (unsigned)part[3];
        p.protected_memory = part[4];
        memcpy(out + i * stride, &p, stride);
    }
    return leave(c, OK);
}

#define PROCESSES(name, stride)                                         \
    API Code name(const Device *d, unsigned *count, void *out)          \
    {                                                                   \
        DEVICE(name, d, 0, 0);                                          \
        return give_processes(&c, c.value, count, out, stride);         \
    }
/* The early R535 drivers wrote 32-byte entries through the _v3 symbols. */
#define STRIDE (table->process_stride == 32 ? 32U : 24U)
PROCESSES(nvmlDeviceGetComputeRunningProcesses, 16)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, 24)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, STRIDE)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, STRIDE)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, STRIDE)

API Code nvmlDeviceGetRunningProcessDetailList(const Device *d, void *list)
{
    static const Fn per_mode[] = {FN_nvmlDeviceGetComputeRunningProcesses_v3,
                                  FN_nvmlDeviceGetGraphicsRunningProcesses_v3,
                                  FN_nvmlDeviceGetMPSComputeRunningProcesses_v3};
    struct {
        unsigned version, mode, count;
        char *entries;
    } *l = list;
    DEVICE(nvmlDeviceGetRunningProcessDetailList, d, 1, l ? (int)l->mode : 0);
    if (!l || l->mode > 2)
        return leave(&c, INVALID_ARGUMENT);
    if (l->version != (24 | 1 << 24))
        return leave(&c, VERSION_MISMATCH);
    const Rule *value = c.value ? c.value : value_of(per_mode[l->mode], c.gpu, c.mig);
    return give_processes(&c, value, &l->count, l->entries, sizeof(Process));
}

/* ---- field values ----------------------------------------------------------------------- */

typedef struct {
    unsigned id, scope;
    int64_t timestamp, latency;
    int type, code;
    union {
        double real;
        uint64_t whole;
    } value;
} Field;

static void fill_field(const Call *c, Field *f, int64_t now)
{
    f->timestamp = now;
    f->latency = 1 + table->field_latency_us;
    f->code = OK;
    const Rule *fault = field_rule(c->gpu, c->mig, f->id, f->scope, true);
    if (fault && fault->kind == FAIL) {
        f->code = fault->code;
        return;
    }
    if (table->ecc_off_garbage && f->id >= 3 && f->id <= 28) {
        f->type = 0;
        f->latency = 0;
        f->value.whole = 0x00007f3ac0de0000ULL + f->id;
        return;
    }
    const Rule *r = field_rule(c->gpu, c->mig, f->id, f->scope, false);
    if (!r) {
        f->code = table->field_default;
        return;
    }
    f->type = r->type;
    if (r->type == 0)
        f->value.real = r->real;
    else if (r->type == 1 || r->type == 5) /* 32 bits: the upper half is cleared */
        f->value.whole = (uint32_t)r->number[0];
    else if (r->type == 6)
        f->value.whole = (uint16_t)r->number[0];
    else
        f->value.whole = r->number[0];
}

static bool a_field_hangs(const Call *c, const Field *f, int count)
{
    for (int i = 0; table->field_faults && i < count; i++) {
        const Rule *r = field_rule(c->gpu, c->mig, f[i].id, f[i].scope, true);
        if (r && r->kind == HANG)
            return true;
    }
    return false;
}

API Code nvmlDeviceGetFieldValues(const Device *d, int count, Field *f)
{
    Call c = {.fn = FN_nvmlDeviceGetFieldValues, .fields = count > 0 ? count : 0};
    STOP_UNLESS_GO(enter_device(&c, d));
    if (!f || count <= 0)
        return leave(&c, INVALID_ARGUMENT);
    while (a_field_hangs(&c, f, count))
        STOP_UNLESS_GO(stay_hung(&c));
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t stamp = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
    for (int i = 0; i < count; i++)
        fill_field(&c, &f[i], stamp);
    return leave(&c, OK);
}

/* ---- events ----------------------------------------------------------------------------- */

/* Events come from the control file. Each set keeps, per GPU, what it asked for and the last
 * event it was given, so nothing from before the registration is ever delivered. */
enum { MAX_SETS = 64 };

typedef struct {
    bool used;
    uint64_t mask[MAX_GPUS], seen[MAX_GPUS];
} EventSet;

typedef struct {
    const Device *device;
    uint64_t type, data;
    unsigned gi, ci;
} EventData;

static EventSet sets[MAX_SETS];
static pthread_mutex_t sets_lock = PTHREAD_MUTEX_INITIALIZER; /* taken after the table's lock */

void forget_event_sets(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    sets_lock = fresh;
    memset(sets, 0, sizeof sets);
}

static bool in_use(const EventSet *s)
{
    uintptr_t at = (uintptr_t)s, first = (uintptr_t)sets;
    return at >= first && at < first + sizeof sets && (at - first) % sizeof *s == 0 && s->used;
}

API Code nvmlEventSetCreate(EventSet **out)
{
    SYSTEM(nvmlEventSetCreate);
    Code code = out ? INSUFFICIENT_SIZE : INVALID_ARGUMENT;
    pthread_mutex_lock(&sets_lock);
    for (int i = 0; out && i < MAX_SETS; i++) {
        if (sets[i].used)
            continue;
        memset(&sets[i], 0, sizeof sets[i]);
        sets[i].used = true;
        *out = &sets[i];
        code = OK;
        break;
    }
    pthread_mutex_unlock(&sets_lock);
    return leave(&c, code);
}

API Code nvmlEventSetFree(EventSet *s)
{
    SYSTEM(nvmlEventSetFree);
    pthread_mutex_lock(&sets_lock);
    Code code = in_use(s) ? OK : INVALID_ARGUMENT;
    if (code == OK)
        s->used = false;
    pthread_mutex_unlock(&sets_lock);
    return leave(&c, code);
}

API Code nvmlDeviceGetSupportedEventTypes(const Device *d, uint64_t *out)
{
    DEVICE(nvmlDeviceGetSupportedEventTypes, d, 0, 0);
    if (!out)
        return leave(&c, INVALID_ARGUMENT);
    if (!c.value)
        return leave(&c, NOT_SUPPORTED);
    *out = c.value->number[0];
    return leave(&c, OK);
}

API Code nvmlDeviceRegisterEvents(const Device *d, uint64_t types, EventSet *s)
{
    DEVICE(nvmlDeviceRegisterEvents, d, 0, 0);
    if (c.mig >= 0)
        return leave(&c, INVALID_ARGUMENT); /* only whole GPUs have events */
    const Rule *known = value_of(FN_nvmlDeviceGetSupportedEventTypes, c.gpu, -1);
    if (!known || (types & ~known->number[0]))
        return leave(&c, NOT_SUPPORTED);
    pthread_mutex_lock(&sets_lock);
    Code code = in_use(s) ? OK : INVALID_ARGUMENT;
    if (code == OK) {
        if (!s->mask[c.gpu])
            s->seen[c.gpu] = table->last_event;
        s->mask[c.gpu] |= types;
    }
    pthread_mutex_unlock(&sets_lock);
    return leave(&c, code);
}

/* TIMEOUT: nothing there yet. */
static Code next_event(EventSet *s, EventData *out)
{
    if (!in_use(s))
        return INVALID_ARGUMENT;
    for (int i = 0; i < table->event_count; i++) {
        const Event *e = &table->events[i];
        if (!(s->mask[e->gpu] & e->type) || e->id <= s->seen[e->gpu])
            continue;
        s->seen[e->gpu] = e->id;
        *out = (EventData){&devices[e->gpu], e->type, e->data, e->gi, e->ci};
        return OK;
    }
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        if (s->mask[gpu] && table->lost[gpu])
            return GPU_IS_LOST; /* at once and again and again, as drivers do */
    return TIMEOUT;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

API Code nvmlEventSetWait_v2(EventSet *s, EventData *out, unsigned timeout_ms)
{
    int64_t deadline = now_ms() + timeout_ms;
    SYSTEM(nvmlEventSetWait_v2);
    if (!out)
        return leave(&c, INVALID_ARGUMENT);
    for (;;) {
        pthread_mutex_lock(&sets_lock);
        Code code = next_event(s, out);
        pthread_mutex_unlock(&sets_lock);
        if (code != TIMEOUT || now_ms() >= deadline)
            return leave(&c, code);
        STOP_UNLESS_GO(pause_call(&c, 2 * 1000 * 1000));
    }
}
