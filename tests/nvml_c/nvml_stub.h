/* SPDX-License-Identifier: Apache-2.0 */
/* Shared declarations of the stand-in driver library. The format of the control file is
 * described at the top of stub.py; control.c reads it and decides what a call does, nvml_stub.c
 * and lists.c hold the exported functions. Own declarations: no vendor header is needed. */
#ifndef NVML_STUB_H
#define NVML_STUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_GPUS = 32, MAX_MIGS = 16, MAX_FIELDS = 512, MAX_ARGS = 3, MAX_NUMBERS = 13 };

typedef int Code; /* the driver's return codes */
enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    VERSION_MISMATCH = 25,
    GPU_NOT_FOUND = 28,
    GO = -1, /* ours: nothing stops the call, the table is locked for reading */
};

/* Every function that we export, each with the one whose VALUE it shares when it has none of its
 * own (faults are never shared). stub.py reads the names from here. */
#define FUNCTIONS(X)                                                                   \
    X(nvmlInit_v2, nvmlInit_v2)                                                        \
    X(nvmlInitWithFlags, nvmlInitWithFlags)                                            \
    X(nvmlShutdown, nvmlShutdown)                                                      \
    X(nvmlErrorString, nvmlErrorString)                                                \
    X(nvmlSystemGetDriverVersion, nvmlSystemGetDriverVersion)                          \
    X(nvmlSystemGetNVMLVersion, nvmlSystemGetNVMLVersion)                              \
    X(nvmlSystemGetCudaDriverVersion_v2, nvmlSystemGetCudaDriverVersion_v2)            \
    X(nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2)               \
    X(nvmlSystemGetDriverBranch, nvmlSystemGetDriverBranch)                            \
    X(nvmlDeviceGetCount_v2, nvmlDeviceGetCount_v2)                                    \
    X(nvmlDeviceGetHandleByIndex_v2, nvmlDeviceGetHandleByIndex_v2)                    \
    X(nvmlDeviceGetHandleByPciBusId_v2, nvmlDeviceGetHandleByPciBusId_v2)              \
    X(nvmlDeviceGetHandleByUUID, nvmlDeviceGetHandleByUUID)                            \
    X(nvmlDeviceGetUUID, nvmlDeviceGetUUID)                                            \
    X(nvmlDeviceGetName, nvmlDeviceGetName)                                            \
    X(nvmlDeviceGetSerial, nvmlDeviceGetSerial)                                        \
    X(nvmlDeviceGetBoardPartNumber, nvmlDeviceGetBoardPartNumber)                      \
    X(nvmlDeviceGetVbiosVersion, nvmlDeviceGetVbiosVersion)                            \
    X(nvmlDeviceGetInforomImageVersion, nvmlDeviceGetInforomImageVersion)              \
    X(nvmlDeviceGetGspFirmwareVersion, nvmlDeviceGetGspFirmwareVersion)                \
    X(nvmlDeviceGetPciInfo_v3, nvmlDeviceGetPciInfo_v3)                                \
    X(nvmlDeviceGetMinorNumber, nvmlDeviceGetMinorNumber)                              \
    X(nvmlDeviceGetIndex, nvmlDeviceGetIndex)                                          \
    X(nvmlDeviceGetBrand, nvmlDeviceGetBrand)                                          \
    X(nvmlDeviceGetModuleId, nvmlDeviceGetModuleId)                                    \
    X(nvmlDeviceGetNumaNodeId, nvmlDeviceGetNumaNodeId)                                \
    X(nvmlDeviceGetVirtualizationMode, nvmlDeviceGetVirtualizationMode)                \
    X(nvmlDeviceGetArchitecture, nvmlDeviceGetArchitecture)                            \
    X(nvmlDeviceGetCudaComputeCapability, nvmlDeviceGetCudaComputeCapability)          \
    X(nvmlDeviceGetMemoryInfo_v2, nvmlDeviceGetMemoryInfo_v2)                          \
    X(nvmlDeviceGetMemoryInfo, nvmlDeviceGetMemoryInfo)                                \
    X(nvmlDeviceGetBAR1MemoryInfo, nvmlDeviceGetBAR1MemoryInfo)                        \
    X(nvmlDeviceGetConfComputeMemSizeInfo, nvmlDeviceGetConfComputeMemSizeInfo)        \
    X(nvmlDeviceGetUtilizationRates, nvmlDeviceGetUtilizationRates)                    \
    X(nvmlDeviceGetEncoderUtilization, nvmlDeviceGetEncoderUtilization)                \
    X(nvmlDeviceGetDecoderUtilization, nvmlDeviceGetDecoderUtilization)                \
    X(nvmlDeviceGetJpgUtilization, nvmlDeviceGetJpgUtilization)                        \
    X(nvmlDeviceGetOfaUtilization, nvmlDeviceGetOfaUtilization)                        \
    X(nvmlDeviceGetTemperature, nvmlDeviceGetTemperature)                              \
    X(nvmlDeviceGetTemperatureV, nvmlDeviceGetTemperature)                             \
    X(nvmlDeviceGetTemperatureThreshold, nvmlDeviceGetTemperatureThreshold)            \
    X(nvmlDeviceGetMarginTemperature, nvmlDeviceGetMarginTemperature)                  \
    X(nvmlDeviceGetNumFans, nvmlDeviceGetNumFans)                                      \
    X(nvmlDeviceGetFanSpeed, nvmlDeviceGetFanSpeed_v2)                                 \
    X(nvmlDeviceGetFanSpeed_v2, nvmlDeviceGetFanSpeed_v2)                              \
    X(nvmlDeviceGetPowerUsage, nvmlDeviceGetPowerUsage)                                \
    X(nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetEnforcedPowerLimit)                \
    X(nvmlDeviceGetPowerManagementLimit, nvmlDeviceGetPowerManagementLimit)            \
    X(nvmlDeviceGetPowerManagementDefaultLimit, nvmlDeviceGetPowerManagementDefaultLimit) \
    X(nvmlDeviceGetPowerManagementLimitConstraints,                                    \
      nvmlDeviceGetPowerManagementLimitConstraints)                                    \
    X(nvmlDeviceGetTotalEnergyConsumption, nvmlDeviceGetTotalEnergyConsumption)        \
    X(nvmlDeviceGetClockInfo, nvmlDeviceGetClockInfo)                                  \
    X(nvmlDeviceGetMaxClockInfo, nvmlDeviceGetMaxClockInfo)                            \
    X(nvmlDeviceGetPerformanceState, nvmlDeviceGetPerformanceState)                    \
    X(nvmlDeviceGetCurrentClocksEventReasons, nvmlDeviceGetCurrentClocksEventReasons)  \
    X(nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDeviceGetCurrentClocksEventReasons) \
    X(nvmlDeviceGetSupportedClocksEventReasons, nvmlDeviceGetSupportedClocksEventReasons) \
    X(nvmlDeviceGetSupportedClocksThrottleReasons,                                     \
      nvmlDeviceGetSupportedClocksEventReasons)                                        \
    X(nvmlDeviceGetEccMode, nvmlDeviceGetEccMode)                                      \
    X(nvmlDeviceGetTotalEccErrors, nvmlDeviceGetTotalEccErrors)                        \
    X(nvmlDeviceGetMemoryErrorCounter, nvmlDeviceGetMemoryErrorCounter)                \
    X(nvmlDeviceGetSramEccErrorStatus, nvmlDeviceGetSramEccErrorStatus)                \
    X(nvmlDeviceGetRemappedRows, nvmlDeviceGetRemappedRows)                            \
    X(nvmlDeviceGetRowRemapperHistogram, nvmlDeviceGetRowRemapperHistogram)            \
    X(nvmlDeviceGetRetiredPages, nvmlDeviceGetRetiredPages_v2)                         \
    X(nvmlDeviceGetRetiredPages_v2, nvmlDeviceGetRetiredPages_v2)                      \
    X(nvmlDeviceGetRetiredPagesPendingStatus, nvmlDeviceGetRetiredPagesPendingStatus)  \
    X(nvmlDeviceGetRepairStatus, nvmlDeviceGetRepairStatus)                            \
    X(nvmlDeviceGetUnrepairableMemoryFlag_v1, nvmlDeviceGetUnrepairableMemoryFlag_v1)  \
    X(nvmlDeviceGetCurrPcieLinkGeneration, nvmlDeviceGetCurrPcieLinkGeneration)        \
    X(nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetCurrPcieLinkWidth)                  \
    X(nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetMaxPcieLinkGeneration)          \
    X(nvmlDeviceGetMaxPcieLinkWidth, nvmlDeviceGetMaxPcieLinkWidth)                    \
    X(nvmlDeviceGetGpuMaxPcieLinkGeneration, nvmlDeviceGetGpuMaxPcieLinkGeneration)    \
    X(nvmlDeviceGetPcieReplayCounter, nvmlDeviceGetPcieReplayCounter)                  \
    X(nvmlDeviceGetPcieThroughput, nvmlDeviceGetPcieThroughput)                        \
    X(nvmlDeviceGetNvLinkState, nvmlDeviceGetNvLinkState)                              \
    X(nvmlDeviceGetNvLinkErrorCounter, nvmlDeviceGetNvLinkErrorCounter)                \
    X(nvmlDeviceGetGpuFabricInfoV, nvmlDeviceGetGpuFabricInfoV)                        \
    X(nvmlDeviceGetGpuFabricInfo, nvmlDeviceGetGpuFabricInfoV)                         \
    X(nvmlDeviceGetPersistenceMode, nvmlDeviceGetPersistenceMode)                      \
    X(nvmlDeviceGetComputeMode, nvmlDeviceGetComputeMode)                              \
    X(nvmlDeviceGetMigMode, nvmlDeviceGetMigMode)                                      \
    X(nvmlDeviceGetMaxMigDeviceCount, nvmlDeviceGetMaxMigDeviceCount)                  \
    X(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDeviceGetMigDeviceHandleByIndex)        \
    X(nvmlDeviceGetGpuInstanceId, nvmlDeviceGetGpuInstanceId)                          \
    X(nvmlDeviceGetComputeInstanceId, nvmlDeviceGetComputeInstanceId)                  \
    X(nvmlDeviceGetAttributes_v2, nvmlDeviceGetAttributes_v2)                          \
    X(nvmlDeviceIsMigDeviceHandle, nvmlDeviceIsMigDeviceHandle)                        \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle,                                    \
      nvmlDeviceGetDeviceHandleFromMigDeviceHandle)                                    \
    X(nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetComputeRunningProcesses_v3)   \
    X(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3) \
    X(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetComputeRunningProcesses_v3) \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses_v3) \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlDeviceGetMPSComputeRunningProcesses_v3) \
    X(nvmlDeviceGetRunningProcessDetailList, nvmlDeviceGetRunningProcessDetailList)    \
    X(nvmlDeviceGetFieldValues, nvmlDeviceGetFieldValues)                              \
    X(nvmlEventSetCreate, nvmlEventSetCreate)                                          \
    X(nvmlDeviceGetSupportedEventTypes, nvmlDeviceGetSupportedEventTypes)              \
    X(nvmlDeviceRegisterEvents, nvmlDeviceRegisterEvents)                              \
    X(nvmlEventSetWait_v2, nvmlEventSetWait_v2)                                        \
    X(nvmlEventSetFree, nvmlEventSetFree)

typedef enum {
#define X(name, shared) FN_##name,
    FUNCTIONS(X)
#undef X
    FN_everything, /* pseudo function of the control file */
    FN_COUNT
} Fn;

/* What a handle points at. Only its address counts; the driver's handles are opaque too. */
typedef struct {
    int gpu;
    int mig; /* -1: the whole GPU */
} Device;

typedef enum { VALUE, FAIL, HANG, FINE } Kind;

/* One statement of the control file. */
typedef struct Rule {
    struct Rule *next;
    Kind kind;
    int mig;
    int nargs, args[MAX_ARGS]; /* for a field: nargs 1 and the scope, or nargs 0 for any scope */
    int code;                  /* FAIL */
    int type;                  /* field: the driver's value type */
    int count;                 /* how many of the numbers were given */
    uint64_t number[MAX_NUMBERS];
    double real;
    const char *text; /* the bytes after "= "; NUL-terminated, length in size */
    size_t size;
} Rule;

typedef struct {
    uint64_t id, type, data;
    int gpu;
    uint32_t gi, ci;
} Event;

typedef struct {
    uint32_t us;
    bool sleeps, set;
} Latency;

/* The whole control file, parsed. Never changed once in use; replaced as one. */
typedef struct {
    char *buffer;
    Rule *rules;
    Rule *head[FN_COUNT][MAX_GPUS + 1]; /* [0] is scope "*", [n + 1] is GPU n */
    Rule **fields[MAX_GPUS + 1];        /* each NULL or MAX_FIELDS lists */
    int faults[FN_COUNT], field_faults;
    Latency latency, latency_fn[FN_COUNT], latency_gpu[MAX_GPUS];
    int listed, order[MAX_GPUS], position[MAX_GPUS]; /* position -1: not listed */
    Code lost[MAX_GPUS]; /* 0, or what acquiring a handle of that lost GPU answers */
    uint32_t migs[MAX_GPUS];
    Event *events;
    int event_count;
    uint64_t last_event;
    int process_stride, field_default, fabric_version;
    uint32_t field_latency_us;
    bool ecc_off_garbage;
} Table;

/* One call under way. */
typedef struct Call {
    Fn fn;
    int gpu, mig; /* -1: none */
    int nargs, args[MAX_ARGS];
    int fields; /* how many field values it asks for */
    Code (*locate)(struct Call *, const void *key, uint64_t number);
    const void *key;
    uint64_t number;
    const Rule *value; /* valid while the table is locked, that is until leave() */
    bool burned, hung;
} Call;

extern Table *table; /* read only between enter() == GO and leave() */
extern Device devices[MAX_GPUS], mig_devices[MAX_GPUS][MAX_MIGS];
extern _Atomic int init_count;

/* Count the call, wait out latency and hangs, then GO (table locked for reading, c->value
 * looked up) or the code that the call must return at once. */
int enter(Call *c);
/* Let go of the table for some time, then decide anew; same results as enter(). */
int pause_call(Call *c, long nanoseconds);
/* The same, counted as a hang: for a hang that only the function itself can see. */
int stay_hung(Call *c);
Code leave(Call *c, Code code);
/* The lookups below need the table locked. */
const Rule *value_of(Fn fn, int gpu, int mig);
const Rule *field_rule(int gpu, int mig, unsigned id, unsigned scope, bool fault);
/* After fork: forget all event sets. */
void forget_event_sets(void);

#define API __attribute__((visibility("default")))

/* enter() for a call on a device handle; a bad handle is INVALID_ARGUMENT. */
int enter_device(Call *c, const Device *d);

#define STOP_UNLESS_GO(entering)   \
    do {                           \
        int stop_ = (entering);    \
        if (stop_ != GO)           \
            return stop_;          \
    } while (0)
#define SYSTEM(function)                                    \
    Call c = {.fn = FN_##function, .gpu = -1, .mig = -1};   \
    STOP_UNLESS_GO(enter(&c))
/* The arguments (as many as `count` says) are what a rule of the control file may name. */
#define DEVICE(function, device, count, ...)                                        \
    Call c = {.fn = FN_##function, .nargs = (count), .args = {__VA_ARGS__}};        \
    STOP_UNLESS_GO(enter_device(&c, device))

#endif
