/* SPDX-License-Identifier: Apache-2.0 */
/* The exported functions, those of lists.c apart. One without a value answers NOT_SUPPORTED. */
#define _GNU_SOURCE
#include "nvml_stub.h"

#include <stdio.h>
#include <string.h>

/* ---- entering a call on a device -------------------------------------------------------- */

static bool is_device(const Device *d)
{
    uintptr_t at = (uintptr_t)d, whole = (uintptr_t)devices, mig = (uintptr_t)mig_devices;
    if (at >= whole && at < whole + sizeof devices)
        return (at - whole) % sizeof *d == 0;
    return at >= mig && at < mig + sizeof mig_devices && (at - mig) % sizeof *d == 0;
}

int enter_device(Call *c, const Device *d)
{
    bool good = is_device(d);
    c->gpu = good ? d->gpu : -1;
    c->mig = good ? d->mig : -1;
    int stop = enter(c);
    if (stop == GO && !good)
        return leave(c, INVALID_ARGUMENT);
    return stop;
}

/* ---- handing values out (each ends the call) -------------------------------------------- */

static Code give_words(Call *c, int n, unsigned **out)
{
    for (int i = 0; i < n; i++)
        if (!out[i])
            return leave(c, INVALID_ARGUMENT);
    if (!c->value)
        return leave(c, NOT_SUPPORTED);
    for (int i = 0; i < n; i++)
        *out[i] = (unsigned)c->value->number[i];
    return leave(c, OK);
}

static Code give_long(Call *c, uint64_t *out)
{
    if (!out)
        return leave(c, INVALID_ARGUMENT);
    if (!c->value)
        return leave(c, NOT_SUPPORTED);
    *out = c->value->number[0];
    return leave(c, OK);
}

/* A structure of `words` 32-bit numbers followed by `longs` 64-bit ones, at an 8-byte boundary
 * after `skip` bytes that stay as the caller set them. */
static Code give_struct(Call *c, void *out, size_t skip, int words, int longs)
{
    if (!out)
        return leave(c, INVALID_ARGUMENT);
    if (!c->value)
        return leave(c, NOT_SUPPORTED);
    char *to = (char *)out + skip;
    for (int i = 0; i < words; i++, to += sizeof(uint32_t))
        memcpy(to, &(uint32_t){(uint32_t)c->value->number[i]}, sizeof(uint32_t));
    for (int i = 0; i < longs; i++, to += sizeof(uint64_t))
        memcpy(to, &c->value->number[words + i], sizeof(uint64_t));
    return leave(c, OK);
}

static Code give_bytes(Call *c, const char *text, size_t size, char *out, unsigned length)
{
    if (!out)
        return leave(c, INVALID_ARGUMENT);
    if (size + 1 > length)
        return leave(c, INSUFFICIENT_SIZE);
    memcpy(out, text, size);
    out[size] = '\0';
    return leave(c, OK);
}

static Code give_text(Call *c, char *out, unsigned length)
{
    if (!c->value)
        return leave(c, NOT_SUPPORTED);
    return give_bytes(c, c->value->text, c->value->size, out, length);
}

#define TEXT(name)                                                  \
    API Code name(const Device *d, char *out, unsigned length)      \
    {                                                               \
        DEVICE(name, d, 0, 0);                                      \
        return give_text(&c, out, length);                          \
    }
#define WORD(name)                                                  \
    API Code name(const Device *d, unsigned *out)                   \
    {                                                               \
        DEVICE(name, d, 0, 0);                                      \
        return give_words(&c, 1, (unsigned *[]){out});              \
    }
#define WORD_OF(name)                                               \
    API Code name(const Device *d, int which, unsigned *out)        \
    {                                                               \
        DEVICE(name, d, 1, which);                                  \
        return give_words(&c, 1, (unsigned *[]){out});              \
    }
#define TWO_WORDS(name)                                             \
    API Code name(const Device *d, unsigned *first, unsigned *second) \
    {                                                               \
        DEVICE(name, d, 0, 0);                                      \
        return give_words(&c, 2, (unsigned *[]){first, second});    \
    }
#define LONG(name)                                                  \
    API Code name(const Device *d, uint64_t *out)                   \
    {                                                               \
        DEVICE(name, d, 0, 0);                                      \
        return give_long(&c, out);                                  \
    }
#define STRUCT(name, words, longs)                                  \
    API Code name(const Device *d, void *out)                       \
    {                                                               \
        DEVICE(name, d, 0, 0);                                      \
        return give_struct(&c, out, 0, words, longs);               \
    }
/* A structure that starts with its version: size | number << 24. */
#define VERSIONED(name, size, number, skip, words, longs)           \
    API Code name(const Device *d, void *out)                       \
    {                                                               \
        DEVICE(name, d, 0, 0);                                      \
        if (out && *(unsigned *)out != ((size) | (number) << 24))   \
            return leave(&c, VERSION_MISMATCH);                     \
        return give_struct(&c, out, skip, words, longs);            \
    }

/* ---- library and system ----------------------------------------------------------------- */

static Code start(Call *c, bool without_gpus)
{
    if (table->listed == 0 && !without_gpus)
        return leave(c, GPU_NOT_FOUND);
    init_count++;
    return leave(c, OK);
}

API Code nvmlInit_v2(void)
{
    SYSTEM(nvmlInit_v2);
    return start(&c, false);
}

API Code nvmlInitWithFlags(unsigned flags)
{
    SYSTEM(nvmlInitWithFlags);
    return start(&c, flags & 1);
}

API Code nvmlShutdown(void)
{
    SYSTEM(nvmlShutdown);
    init_count--;
    return leave(&c, OK);
}

API const char *nvmlErrorString(Code code)
{
    static const char *const words[] = {
        [0] = "no error",         [1] = "not initialised",   [2] = "bad argument",
        [3] = "not supported",    [4] = "no permission",     [6] = "not found",
        [7] = "buffer too small", [9] = "driver not loaded", [10] = "timed out",
        [15] = "GPU lost",        [16] = "reset required",   [25] = "version mismatch",
    };
    Call c = {.fn = FN_nvmlErrorString, .gpu = -1, .mig = -1};
    if (enter(&c) == GO)
        leave(&c, OK);
    bool known = code >= 0 && code < (int)(sizeof words / sizeof *words) && words[code];
    return known ? words[code] : "stub error";
}

#define SYSTEM_TEXT(name)                           \
    API Code name(char *out, unsigned length)       \
    {                                               \
        SYSTEM(name);                               \
        return give_text(&c, out, length);          \
    }
SYSTEM_TEXT(nvmlSystemGetDriverVersion)
SYSTEM_TEXT(nvmlSystemGetNVMLVersion)

API Code nvmlSystemGetCudaDriverVersion_v2(unsigned *out)
{
    SYSTEM(nvmlSystemGetCudaDriverVersion_v2);
    return give_words(&c, 1, &out);
}

API Code nvmlSystemGetCudaDriverVersion(unsigned *out)
{
    SYSTEM(nvmlSystemGetCudaDriverVersion);
    return give_words(&c, 1, &out);
}

API Code nvmlSystemGetDriverBranch(unsigned *info, unsigned length)
{
    SYSTEM(nvmlSystemGetDriverBranch);
    if (info && *info != (84 | 1 << 24))
        return leave(&c, VERSION_MISMATCH);
    return give_text(&c, info ? (char *)(info + 1) : NULL, length < 80 ? length : 80);
}

/* ---- handles and identity --------------------------------------------------------------- */

typedef struct {
    unsigned domain, bus, device, id, subsystem;
} Pci;

static Pci pci_of(int gpu)
{
    Pci p = {.domain = 0, .bus = 0x10 + (unsigned)gpu};
    const Rule *r = value_of(FN_nvmlDeviceGetPciInfo_v3, gpu, -1);
    if (r)
        sscanf(r->text, "%x:%x:%x.%*x %x %x", &p.domain, &p.bus, &p.device, &p.id, &p.subsystem);
    return p;
}

static size_t uuid_of(int gpu, int mig, char out[96])
{
    const Rule *r = value_of(FN_nvmlDeviceGetUUID, gpu, mig);
    if (r && r->size < 96) {
        memcpy(out, r->text, r->size);
        out[r->size] = '\0';
        return r->size;
    }
    return (size_t)snprintf(out, 96, "%s-00000000-0000-4000-8000-%06x%06x",
                            mig < 0 ? "GPU" : "MIG", mig + 1, gpu);
}

static Code locate_index(Call *c, const void *key, uint64_t index)
{
    (void)key;
    if (index >= (uint64_t)table->listed)
        return INVALID_ARGUMENT;
    c->gpu = table->order[index];
    return OK;
}

static Code locate_pci(Call *c, const void *key, uint64_t number)
{
    (void)number;
    Pci want;
    if (!key || sscanf(key, "%x:%x:%x", &want.domain, &want.bus, &want.device) != 3)
        return INVALID_ARGUMENT;
    for (int i = 0; i < table->listed; i++) {
        Pci p = pci_of(table->order[i]);
        if (p.domain == want.domain && p.bus == want.bus && p.device == want.device) {
            c->gpu = table->order[i];
            return OK;
        }
    }
    return NOT_FOUND;
}

static Code locate_uuid(Call *c, const void *key, uint64_t number)
{
    (void)number;
    char uuid[96];
    if (!key)
        return INVALID_ARGUMENT;
    for (int i = 0; i < table->listed; i++) {
        int gpu = table->order[i];
        for (int mig = -1; mig < MAX_MIGS; mig++) {
            if (mig >= 0 && !(table->migs[gpu] >> mig & 1))
                continue;
            uuid_of(gpu, mig, uuid);
            if (strcmp(uuid, key) == 0) {
                c->gpu = gpu;
                c->mig = mig;
                return OK;
            }
        }
    }
    return NOT_FOUND;
}

static Code give_handle(Call *c, const Device **out)
{
    if (!out)
        return leave(c, INVALID_ARGUMENT);
    *out = c->mig < 0 ? &devices[c->gpu] : &mig_devices[c->gpu][c->mig];
    return leave(c, OK);
}

API Code nvmlDeviceGetCount_v2(unsigned *out)
{
    SYSTEM(nvmlDeviceGetCount_v2);
    if (!out)
        return leave(&c, INVALID_ARGUMENT);
    *out = c.value ? (unsigned)c.value->number[0] : (unsigned)table->listed;
    return leave(&c, OK);
}

API Code nvmlDeviceGetHandleByIndex_v2(unsigned index, const Device **out)
{
    Call c = {.fn = FN_nvmlDeviceGetHandleByIndex_v2, .locate = locate_index, .number = index};
    c.gpu = c.mig = -1;
    STOP_UNLESS_GO(enter(&c));
    return give_handle(&c, out);
}

API Code nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, const Device **out)
{
    Call c = {.fn = FN_nvmlDeviceGetHandleByPciBusId_v2, .locate = locate_pci, .key = bus_id};
    c.gpu = c.mig = -1;
    STOP_UNLESS_GO(enter(&c));
    return give_handle(&c, out);
}

API Code nvmlDeviceGetHandleByUUID(const char *uuid, const Device **out)
{
    Call c = {.fn = FN_nvmlDeviceGetHandleByUUID, .locate = locate_uuid, .key = uuid};
    c.gpu = c.mig = -1;
    STOP_UNLESS_GO(enter(&c));
    return give_handle(&c, out);
}

API Code nvmlDeviceGetUUID(const Device *d, char *out, unsigned length)
{
    DEVICE(nvmlDeviceGetUUID, d, 0, 0);
    char uuid[96];
    size_t size = uuid_of(c.gpu, c.mig, uuid);
    return give_bytes(&c, uuid, size, out, length);
}

API Code nvmlDeviceGetPciInfo_v3(const Device *d, void *info)
{
    struct {
        char legacy[16];
        unsigned domain, bus, device, id, subsystem;
        char bus_id[32];
    } out = {.legacy = ""};
    DEVICE(nvmlDeviceGetPciInfo_v3, d, 0, 0);
    if (!info)
        return leave(&c, INVALID_ARGUMENT);
    Pci p = pci_of(c.gpu);
    snprintf(out.legacy, sizeof out.legacy, "%04X:%02X:%02X.0", p.domain & 0xffff, p.bus & 0xff,
             p.device & 0xff);
    snprintf(out.bus_id, sizeof out.bus_id, "%08X:%02X:%02X.0", p.domain, p.bus, p.device);
    memcpy(&out.domain, &p, sizeof p);
    memcpy(info, &out, sizeof out);
    return leave(&c, OK);
}

API Code nvmlDeviceGetIndex(const Device *d, unsigned *out)
{
    DEVICE(nvmlDeviceGetIndex, d, 0, 0);
    if (!out)
        return leave(&c, INVALID_ARGUMENT);
    *out = c.value ? (unsigned)c.value->number[0] : (unsigned)table->position[c.gpu];
    return leave(&c, OK);
}

API Code nvmlDeviceGetMinorNumber(const Device *d, unsigned *out)
{
    DEVICE(nvmlDeviceGetMinorNumber, d, 0, 0);
    if (!out)
        return leave(&c, INVALID_ARGUMENT);
    *out = c.value ? (unsigned)c.value->number[0] : (unsigned)c.gpu;
    return leave(&c, OK);
}

TEXT(nvmlDeviceGetName)
TEXT(nvmlDeviceGetSerial)
TEXT(nvmlDeviceGetBoardPartNumber)
TEXT(nvmlDeviceGetVbiosVersion)
TEXT(nvmlDeviceGetInforomImageVersion)
WORD(nvmlDeviceGetBrand)
WORD(nvmlDeviceGetModuleId)
WORD(nvmlDeviceGetNumaNodeId)
WORD(nvmlDeviceGetVirtualizationMode)
WORD(nvmlDeviceGetArchitecture)
TWO_WORDS(nvmlDeviceGetCudaComputeCapability)

API Code nvmlDeviceGetGspFirmwareVersion(const Device *d, char *out)
{
    DEVICE(nvmlDeviceGetGspFirmwareVersion, d, 0, 0);
    return give_text(&c, out, 64);
}

/* ---- plain readings --------------------------------------------------------------------- */

/* Value: total reserved free used. Without one of its own the old call derives it, with the
 * reserved part counted as used. */
VERSIONED(nvmlDeviceGetMemoryInfo_v2, 40, 2, 8, 0, 4)

API Code nvmlDeviceGetMemoryInfo(const Device *d, uint64_t *out)
{
    DEVICE(nvmlDeviceGetMemoryInfo, d, 0, 0);
    const Rule *v2 = value_of(FN_nvmlDeviceGetMemoryInfo_v2, c.gpu, c.mig);
    if (c.value || !v2 || !out)
        return give_struct(&c, out, 0, 0, 3);
    out[0] = v2->number[0];
    out[1] = v2->number[2];
    out[2] = v2->number[1] + v2->number[3];
    return leave(&c, OK);
}

STRUCT(nvmlDeviceGetBAR1MemoryInfo, 0, 3)
STRUCT(nvmlDeviceGetConfComputeMemSizeInfo, 0, 2)
STRUCT(nvmlDeviceGetUtilizationRates, 2, 0)
TWO_WORDS(nvmlDeviceGetEncoderUtilization)
TWO_WORDS(nvmlDeviceGetDecoderUtilization)
TWO_WORDS(nvmlDeviceGetJpgUtilization)
TWO_WORDS(nvmlDeviceGetOfaUtilization)
WORD_OF(nvmlDeviceGetTemperature)
WORD_OF(nvmlDeviceGetTemperatureThreshold)
VERSIONED(nvmlDeviceGetMarginTemperature, 8, 1, 4, 1, 0)

API Code nvmlDeviceGetTemperatureV(const Device *d, unsigned *info)
{
    DEVICE(nvmlDeviceGetTemperatureV, d, 1, info ? (int)info[1] : 0);
    if (info && *info != (12 | 1 << 24))
        return leave(&c, VERSION_MISMATCH);
    return give_struct(&c, info, 8, 1, 0);
}

WORD(nvmlDeviceGetNumFans)
WORD(nvmlDeviceGetFanSpeed)
WORD_OF(nvmlDeviceGetFanSpeed_v2)
WORD(nvmlDeviceGetPowerUsage)
WORD(nvmlDeviceGetEnforcedPowerLimit)
WORD(nvmlDeviceGetPowerManagementLimit)
WORD(nvmlDeviceGetPowerManagementDefaultLimit)
TWO_WORDS(nvmlDeviceGetPowerManagementLimitConstraints)
LONG(nvmlDeviceGetTotalEnergyConsumption)
WORD_OF(nvmlDeviceGetClockInfo)
WORD_OF(nvmlDeviceGetMaxClockInfo)
WORD(nvmlDeviceGetPerformanceState)
LONG(nvmlDeviceGetCurrentClocksEventReasons)
LONG(nvmlDeviceGetCurrentClocksThrottleReasons)
LONG(nvmlDeviceGetSupportedClocksEventReasons)
LONG(nvmlDeviceGetSupportedClocksThrottleReasons)
WORD(nvmlDeviceGetCurrPcieLinkGeneration)
WORD(nvmlDeviceGetCurrPcieLinkWidth)
WORD(nvmlDeviceGetMaxPcieLinkGeneration)
WORD(nvmlDeviceGetMaxPcieLinkWidth)
WORD(nvmlDeviceGetGpuMaxPcieLinkGeneration)
WORD(nvmlDeviceGetPcieReplayCounter)
WORD_OF(nvmlDeviceGetPcieThroughput)
WORD_OF(nvmlDeviceGetNvLinkState)
WORD(nvmlDeviceGetPersistenceMode)
WORD(nvmlDeviceGetComputeMode)

API Code nvmlDeviceGetNvLinkErrorCounter(const Device *d, unsigned link, int kind, uint64_t *out)
{
    DEVICE(nvmlDeviceGetNvLinkErrorCounter, d, 2, (int)link, kind);
    return give_long(&c, out);
}

/* ---- ECC and repair --------------------------------------------------------------------- */

TWO_WORDS(nvmlDeviceGetEccMode)

API Code nvmlDeviceGetTotalEccErrors(const Device *d, int type, int counter, uint64_t *out)
{
    DEVICE(nvmlDeviceGetTotalEccErrors, d, 2, type, counter);
    return give_long(&c, out);
}

API Code nvmlDeviceGetMemoryErrorCounter(const Device *d, int type, int counter, int location,
                                         uint64_t *out)
{
    DEVICE(nvmlDeviceGetMemoryErrorCounter, d, 3, type, counter, location);
    return give_long(&c, out);
}

/* Value: 11 counts in the order of the structure, then the threshold flag. */
API Code nvmlDeviceGetSramEccErrorStatus(const Device *d, void *out)
{
    DEVICE(nvmlDeviceGetSramEccErrorStatus, d, 0, 0);
    if (out && *(unsigned *)out != (104 | 1 << 24))
        return leave(&c, VERSION_MISMATCH);
    if (out && c.value)
        ((unsigned *)out)[24] = (unsigned)c.value->number[11];
    return give_struct(&c, out, 8, 0, 11);
}

API Code nvmlDeviceGetRemappedRows(const Device *d, unsigned *corrected, unsigned *uncorrected,
                                   unsigned *pending, unsigned *failed)
{
    DEVICE(nvmlDeviceGetRemappedRows, d, 0, 0);
    return give_words(&c, 4, (unsigned *[]){corrected, uncorrected, pending, failed});
}

STRUCT(nvmlDeviceGetRowRemapperHistogram, 5, 0)
WORD(nvmlDeviceGetRetiredPagesPendingStatus)
VERSIONED(nvmlDeviceGetRepairStatus, 12, 1, 4, 2, 0)
WORD(nvmlDeviceGetUnrepairableMemoryFlag_v1)

/* ---- fabric ----------------------------------------------------------------------------- */

/* Value: uuid-as-32-hex-digits status clique state health-mask summary. The three layouts
 * differ by the version word in front and by what follows the state. */
static void fill_fabric(const Rule *value, int version, void *out)
{
    struct {
        unsigned version;
        unsigned char uuid[16];
        unsigned status, clique;
        unsigned char state;
        unsigned mask;
        unsigned char summary;
    } full = {.version = 0};
    static const size_t sizes[] = {[1] = 28, [2] = 36, [3] = 40};
    char hex[33] = "";
    unsigned state = 0, summary = 0, byte;
    sscanf(value->text, "%32s %u %u %u %i %u", hex, &full.status, &full.clique, &state,
           (int *)&full.mask, &summary);
    for (int i = 0; i < 16 && sscanf(hex + 2 * i, "%2x", &byte) == 1; i++)
        full.uuid[i] = (unsigned char)byte;
    full.state = (unsigned char)state;
    full.summary = (unsigned char)summary;
    size_t skip = sizeof full.version;
    if (version == 1)
        memcpy(out, (char *)&full + skip, sizes[1]);
    else
        memcpy((char *)out + skip, (char *)&full + skip, sizes[version] - skip);
}

API Code nvmlDeviceGetGpuFabricInfo(const Device *d, void *out)
{
    DEVICE(nvmlDeviceGetGpuFabricInfo, d, 0, 0);
    if (!out || !c.value)
        return leave(&c, out ? NOT_SUPPORTED : INVALID_ARGUMENT);
    fill_fabric(c.value, 1, out);
    return leave(&c, OK);
}

API Code nvmlDeviceGetGpuFabricInfoV(const Device *d, unsigned *out)
{
    DEVICE(nvmlDeviceGetGpuFabricInfoV, d, 0, 0);
    if (!out)
        return leave(&c, INVALID_ARGUMENT);
    int version = *out == (36 | 2 << 24) ? 2 : *out == (40 | 3 << 24) ? 3 : 0;
    if (!version || version > table->fabric_version)
        return leave(&c, VERSION_MISMATCH);
    if (!c.value)
        return leave(&c, NOT_SUPPORTED);
    fill_fabric(c.value, version, out);
    return leave(&c, OK);
}

/* ---- MIG -------------------------------------------------------------------------------- */

TWO_WORDS(nvmlDeviceGetMigMode)
WORD(nvmlDeviceGetMaxMigDeviceCount)
WORD(nvmlDeviceGetGpuInstanceId)
WORD(nvmlDeviceGetComputeInstanceId)
STRUCT(nvmlDeviceGetAttributes_v2, 8, 1)

API Code nvmlDeviceGetMigDeviceHandleByIndex(const Device *d, unsigned index, const Device **out)
{
    DEVICE(nvmlDeviceGetMigDeviceHandleByIndex, d, 1, (int)index);
    const Rule *limit = value_of(FN_nvmlDeviceGetMaxMigDeviceCount, c.gpu, -1);
    if (!out || c.mig >= 0 || index >= MAX_MIGS || (limit && index >= limit->number[0]))
        return leave(&c, INVALID_ARGUMENT);
    if (!limit)
        return leave(&c, NOT_SUPPORTED);
    if (!(table->migs[c.gpu] >> index & 1))
        return leave(&c, NOT_FOUND);
    *out = &mig_devices[c.gpu][index];
    return leave(&c, OK);
}

API Code nvmlDeviceIsMigDeviceHandle(const Device *d, unsigned *out)
{
    DEVICE(nvmlDeviceIsMigDeviceHandle, d, 0, 0);
    if (!out)
        return leave(&c, INVALID_ARGUMENT);
    *out = c.mig >= 0;
    return leave(&c, OK);
}

API Code nvmlDeviceGetDeviceHandleFromMigDeviceHandle(const Device *d, const Device **out)
{
    DEVICE(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, d, 0, 0);
    if (!out || c.mig < 0)
        return leave(&c, INVALID_ARGUMENT);
    *out = &devices[c.gpu];
    return leave(&c, OK);
}
