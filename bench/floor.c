/* SPDX-License-Identifier: Apache-2.0 */
/* The floor for an exporter: the same driver calls, one after another, from C.
 *
 *     cc -O2 -Wall -Wextra -o floor floor.c -ldl
 *     floor [-n passes] [-w warm-up passes] [-l] CALLS.txt
 *
 * CALLS.txt has one call a line, with the integer arguments that stand between the handle and the
 * outputs; `#` starts a comment line:
 *
 *     nvmlDeviceGetTemperature 0
 *     nvmlDeviceGetFieldValues 82:0 83:0 186:0     id:scope; one call, its array made once
 *     nvmlDeviceGetComputeRunningProcesses_v3 2    2: ask for the size first (default 1 call)
 *     nvmlDeviceGetCount_v2                        calls without a handle: once a pass
 *
 * A pass makes every call for every GPU. Printed is one line of name=value; -l adds the mean time
 * of each line as statements for the stand-in library's control file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_CALLS = 512, MAX_GPUS = 64, MAX_FIELDS = 512, OUTS = 4, OUT_SIZE = 16 * 1024 };

/* The shapes of the signatures; "dev" is the handle, "out" a pointer to be written. */
typedef enum {
    OUTPUTS,   /* dev, [0-3 ints], 1-4 outs */
    TEXT,      /* dev, buffer, length */
    VERSIONED, /* dev, structure with its version in front, [an int in the second word] */
    PROCESSES, /* dev, count, array */
    PAGES,     /* dev, cause, count, arrays */
    FIELDS,    /* dev, n, array */
    SYS_TEXT,  /* buffer, length */
    SYS_OUT,   /* out */
    HANDLE,    /* index, out: the handle of a GPU, taken again */
} Shape;

typedef struct {
    const char *name;
    Shape shape;
    uint32_t version;
} Signature;

#define VERSION(size, number) ((size) | (number) << 24)
/* Any other function of a device is OUTPUTS. */
static const Signature signatures[] = {
    {"nvmlDeviceGetUUID", TEXT, 0},
    {"nvmlDeviceGetName", TEXT, 0},
    {"nvmlDeviceGetSerial", TEXT, 0},
    {"nvmlDeviceGetBoardPartNumber", TEXT, 0},
    {"nvmlDeviceGetVbiosVersion", TEXT, 0},
    {"nvmlDeviceGetInforomImageVersion", TEXT, 0},
    {"nvmlDeviceGetMemoryInfo_v2", VERSIONED, VERSION(40, 2)},
    {"nvmlDeviceGetTemperatureV", VERSIONED, VERSION(12, 1)},
    {"nvmlDeviceGetMarginTemperature", VERSIONED, VERSION(8, 1)},
    {"nvmlDeviceGetRepairStatus", VERSIONED, VERSION(12, 1)},
    {"nvmlDeviceGetSramEccErrorStatus", VERSIONED, VERSION(104, 1)},
    {"nvmlDeviceGetGpuFabricInfoV", VERSIONED, VERSION(40, 3)},
    {"nvmlDeviceGetComputeRunningProcesses", PROCESSES, 0},
    {"nvmlDeviceGetComputeRunningProcesses_v2", PROCESSES, 0},
    {"nvmlDeviceGetComputeRunningProcesses_v3", PROCESSES, 0},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", PROCESSES, 0},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v3", PROCESSES, 0},
    {"nvmlDeviceGetRetiredPages", PAGES, 0},
    {"nvmlDeviceGetRetiredPages_v2", PAGES, 0},
    {"nvmlDeviceGetFieldValues", FIELDS, 0},
    {"nvmlSystemGetDriverVersion", SYS_TEXT, 0},
    {"nvmlSystemGetNVMLVersion", SYS_TEXT, 0},
    {"nvmlSystemGetCudaDriverVersion", SYS_OUT, 0},
    {"nvmlSystemGetCudaDriverVersion_v2", SYS_OUT, 0},
    {"nvmlDeviceGetCount_v2", SYS_OUT, 0},
    {"nvmlDeviceGetHandleByIndex_v2", HANDLE, 0},
};

typedef struct {
    uint32_t id, scope;
    int64_t timestamp, latency;
    int type, code;
    uint64_t value;
} Field;
_Static_assert(sizeof(Field) == 40, "the driver's layout");

typedef struct {
    char name[64];
    Signature signature;
    void *function;
    int nargs, args[3];
    int fields;
    Field *field;
    double total_us;
    uint64_t failures;
} Line;

static Line lines[MAX_CALLS];
static int line_count;
static void *gpus[MAX_GPUS];
static unsigned gpu_count;
static uint64_t outs[OUTS][OUT_SIZE / sizeof(uint64_t)];
static uint64_t calls, failures;

static void die(const char *what, const char *more)
{
    fprintf(stderr, "floor: %s%s\n", what, more);
    exit(2);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static Signature signature_of(const char *name)
{
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
        if (strcmp(signatures[i].name, name) == 0)
            return signatures[i];
    if (strncmp(name, "nvmlDeviceGet", 13) != 0)
        die("do not know how to call ", name);
    return (Signature){name, OUTPUTS, 0};
}

static void read_line(char *text, void *library)
{
    char *save, *word = strtok_r(text, " \t\n", &save);
    if (!word || word[0] == '#')
        return;
    if (line_count == MAX_CALLS)
        die("too many lines", "");
    Line *l = &lines[line_count];
    snprintf(l->name, sizeof l->name, "%s", word);
    l->signature = signature_of(l->name);
    l->function = dlsym(library, l->name);
    if (!l->function) {
        fprintf(stderr, "floor: this driver lacks %s: left out\n", l->name);
        return;
    }
    if (l->signature.shape == FIELDS)
        l->field = calloc(MAX_FIELDS, sizeof *l->field);
    while ((word = strtok_r(NULL, " \t\n", &save))) {
        if (l->signature.shape == FIELDS) {
            if (l->fields == MAX_FIELDS)
                die("too many fields in ", l->name);
            Field *f = &l->field[l->fields++];
            char *colon = strchr(word, ':');
            f->id = (uint32_t)strtoul(word, NULL, 0);
            f->scope = colon ? (uint32_t)strtoul(colon + 1, NULL, 0) : 0;
        } else if (l->nargs == 3) {
            die("more than three arguments for ", l->name);
        } else {
            l->args[l->nargs++] = (int)strtoul(word, NULL, 0);
        }
    }
    line_count++;
}

/* All output pointers are passed whatever the number wanted: every ABI that the driver exists for
 * hands these few arguments over in registers, where one too many does no harm. */
static int call_out(const Line *l, void *gpu)
{
    const int *a = l->args;
    void *o0 = outs[0], *o1 = outs[1], *o2 = outs[2], *o3 = outs[3];
    switch (l->nargs) {
    case 0:
        return ((int (*)(void *, void *, void *, void *, void *))l->function)(gpu, o0, o1, o2, o3);
    case 1:
        return ((int (*)(void *, int, void *, void *))l->function)(gpu, a[0], o0, o1);
    case 2:
        return ((int (*)(void *, int, int, void *))l->function)(gpu, a[0], a[1], o0);
    default:
        return ((int (*)(void *, int, int, int, void *))l->function)(gpu, a[0], a[1], a[2], o0);
    }
}

static int call_handle(const Line *l, const void *gpu)
{
    unsigned index = 0;
    while (gpus[index] != gpu)
        index++;
    return ((int (*)(unsigned, void *))l->function)(index, outs[0]);
}

static int call_processes(const Line *l, void *gpu)
{
    int (*function)(void *, unsigned *, void *) = l->function;
    unsigned count = 0;
    if (l->nargs && l->args[0] == 2) {
        int code = function(gpu, &count, NULL);
        if (code != 7) /* 0: there are none; 7 is the usual answer, with the size */
            return code;
        calls++;
    }
    count = OUT_SIZE / 32;
    return function(gpu, &count, outs[0]);
}

static int call(const Line *l, void *gpu)
{
    calls++;
    switch (l->signature.shape) {
    case TEXT:
        return ((int (*)(void *, void *, unsigned))l->function)(gpu, outs[0], 96);
    case VERSIONED:
        memcpy(outs[0], (uint32_t[]){l->signature.version, (uint32_t)l->args[0]}, 8);
        return ((int (*)(void *, void *))l->function)(gpu, outs[0]);
    case PROCESSES:
        return call_processes(l, gpu);
    case PAGES: {
        unsigned count = OUT_SIZE / sizeof(uint64_t);
        return ((int (*)(void *, int, unsigned *, void *, void *))l->function)(
            gpu, l->args[0], &count, outs[0], outs[1]);
    }
    case FIELDS:
        return ((int (*)(void *, int, void *))l->function)(gpu, l->fields, l->field);
    case SYS_TEXT:
        return ((int (*)(void *, unsigned))l->function)(outs[0], 96);
    case HANDLE:
        return call_handle(l, gpu);
    case SYS_OUT:
        return ((int (*)(void *))l->function)(outs[0]);
    default:
        return call_out(l, gpu);
    }
}

static bool needs_gpu(const Line *l)
{
    return l->signature.shape != SYS_TEXT && l->signature.shape != SYS_OUT;
}

static void make(Line *l, void *gpu, bool timed)
{
    double begin = timed ? now_us() : 0;
    bool failed = call(l, gpu) != 0;
    if (timed)
        l->total_us += now_us() - begin;
    l->failures += failed;
    failures += failed;
}

static double pass(bool timed)
{
    double begin = now_us();
    for (int i = 0; i < line_count; i++)
        if (!needs_gpu(&lines[i]))
            make(&lines[i], NULL, timed);
    for (unsigned g = 0; g < gpu_count; g++)
        for (int i = 0; i < line_count; i++)
            if (needs_gpu(&lines[i]))
                make(&lines[i], gpus[g], timed);
    return (now_us() - begin) / 1e3;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void open_gpus(void *library)
{
    int (*init)(void) = dlsym(library, "nvmlInit_v2");
    int (*count)(unsigned *) = dlsym(library, "nvmlDeviceGetCount_v2");
    int (*by_index)(unsigned, void **) = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    if (!init || !count || !by_index)
        die("not a driver library", "");
    if (init() != 0 || count(&gpu_count) != 0)
        die("the driver does not initialise", "");
    unsigned listed = gpu_count < MAX_GPUS ? gpu_count : MAX_GPUS;
    gpu_count = 0;
    for (unsigned i = 0; i < listed; i++)
        if (by_index(i, &gpus[gpu_count]) == 0)
            gpu_count++;
    if (gpu_count == 0)
        die("no GPU can be opened", "");
}

static void print_latencies(void)
{
    for (int i = 0; i < line_count; i++) {
        const Line *l = &lines[i];
        double mean = l->total_us / (needs_gpu(l) ? gpu_count : 1);
        printf("latency_us %.0f spin %s # %.2f us, args", mean, l->name, mean);
        for (int a = 0; a < l->nargs; a++)
            printf(" %d", l->args[a]);
        printf(", %d fields, %s\n", l->fields, l->failures ? "not answered" : "answered");
    }
}

int main(int argc, char **argv)
{
    int passes = 200, warm_up = 10, i = 1;
    bool latencies = false;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "-l") == 0)
            latencies = true;
        else if (strcmp(argv[i], "-n") == 0 && i + 1 < argc)
            passes = atoi(argv[++i]);
        else if (strcmp(argv[i], "-w") == 0 && i + 1 < argc)
            warm_up = atoi(argv[++i]);
        else
            die("unknown option ", argv[i]);
    }
    if (i + 1 != argc || passes < 1)
        die("usage: floor [-n passes] [-w warm-up passes] [-l] CALLS.txt", "");
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library)
        die("", dlerror());
    FILE *file = fopen(argv[i], "r");
    if (!file)
        die("cannot read ", argv[i]);
    char text[16384];
    while (fgets(text, sizeof text, file))
        read_line(text, library);
    fclose(file);
    open_gpus(library);
    for (int p = 0; p < warm_up; p++)
        pass(false);
    double *ms = calloc((size_t)passes, sizeof *ms);
    calls = failures = 0;
    for (int p = 0; p < passes; p++)
        ms[p] = pass(false);
    uint64_t per_pass = calls / (uint64_t)passes, failed = failures / (uint64_t)passes;
    qsort(ms, (size_t)passes, sizeof *ms, by_size);
    printf("gpus=%u passes=%d calls=%llu not_answered=%llu min_ms=%.4f median_ms=%.4f p99_ms=%.4f\n",
           gpu_count, passes, (unsigned long long)per_pass, (unsigned long long)failed, ms[0],
           ms[passes / 2], ms[(int)((passes - 1) * 0.99)]);
    if (latencies) {
        for (int p = 0; p < passes; p++)
            pass(true);
        for (int k = 0; k < line_count; k++)
            lines[k].total_us /= passes;
        print_latencies();
    }
    free(ms);
    return 0;
}
