/* NVML's C interface for one device, on machines without a driver. It answers each call with the numbers
   that the file $STUB_NVML_PROFILE has now, a line `function[.argument] number ...`; a function that is not
   there is not supported, and `error N` is that error of NVML. A driver before 535 is built with OLD_DRIVER. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };
typedef unsigned long long Number;

static char the_device;

static int read_text(const char *key, char *text, size_t size) {
    const char *path = getenv("STUB_NVML_PROFILE");
    FILE *profile = path ? fopen(path, "r") : NULL;
    if (!profile) return DRIVER_NOT_LOADED;
    int result = NOT_SUPPORTED;
    char line[512];
    size_t length = strlen(key);
    while (fgets(line, sizeof line, profile)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, key, length) || (line[length] && line[length] != ' ')) continue;
        if (sscanf(line + length, " error %d", &result) != 1) {
            snprintf(text, size, "%s", line[length] ? line + length + 1 : "");
            result = SUCCESS;
        }
        break;
    }
    fclose(profile);
    return result;
}

/* Reads up to `most` numbers; returns NVML's status. */
static int read_numbers(const char *key, int most, Number *numbers, int *count) {
    char text[512], *rest = text;
    int result = read_text(key, text, sizeof text);
    *count = 0;
    if (result) return result;
    for (char *word; *count < most && (word = strtok_r(rest, " ", &rest));) numbers[(*count)++] = strtoull(word, NULL, 0);
    return SUCCESS;
}

static int read_number(const void *device, const char *key, Number *number) {
    int count;
    if (device != &the_device) return INVALID_ARGUMENT;
    return read_numbers(key, 1, number, &count);
}

static int log_call(const char *call, unsigned first, unsigned second) {
    char path[512];
    snprintf(path, sizeof path, "%s.calls", getenv("STUB_NVML_PROFILE"));
    FILE *calls = fopen(path, "a");
    fprintf(calls, "%s %u %u\n", call, first, second);
    return fclose(calls);
}

#define GETTER(name, type)                              \
    int name(const void *device, type *value) {         \
        Number number = 0;                              \
        int result = read_number(device, #name, &number); \
        *value = (type)number;                          \
        return result;                                  \
    }

#define GETTER_OF(name, type)                                       \
    int name(const void *device, unsigned argument, type *value) {  \
        char key[64];                                               \
        Number number = 0;                                          \
        snprintf(key, sizeof key, #name ".%u", argument);           \
        int result = read_number(device, key, &number);             \
        *value = (type)number;                                      \
        return result;                                              \
    }

#define GETTER_OF_TWO(name)                                                          \
    int name(const void *device, unsigned *current, unsigned *pending) {            \
        Number numbers[2] = {0};                                                    \
        int count, result = read_numbers(#name, 2, numbers, &count);                \
        if (device != &the_device) return INVALID_ARGUMENT;                         \
        *current = (unsigned)numbers[0], *pending = (unsigned)numbers[1];           \
        return result;                                                              \
    }

int nvmlInitWithFlags(unsigned flags) {
    Number numbers[1];
    int count, result = read_numbers("nvmlInitWithFlags", 1, numbers, &count);
    return flags ? INVALID_ARGUMENT : result == NOT_SUPPORTED ? SUCCESS : result;
}

/* torch calls these two */
int nvmlInit(void) { return nvmlInitWithFlags(0); }

int nvmlDeviceGetCount_v2(int *count) {
    *count = 1;
    return SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int result) { return result == SUCCESS ? "Success" : "An error of the stub"; }

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    return read_text("nvmlSystemGetDriverVersion", version, size);
}

static int find_device(const char *key, const char *wanted, const void **device) {
    char name[96];
    int result = read_text(key, name, sizeof name);
    *device = &the_device;
    return result ? result : strcmp(name, wanted) ? NOT_FOUND : SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, const void **device) {
    return find_device("nvmlDeviceGetUUID", uuid, device);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, const void **device) {
    return find_device("nvmlDeviceGetHandleByPciBusId_v2", address, device);
}

int nvmlDeviceGetUUID(const void *device, char *uuid, unsigned size) {
    return device == &the_device ? read_text("nvmlDeviceGetUUID", uuid, size) : INVALID_ARGUMENT;
}

GETTER_OF_TWO(nvmlDeviceGetEccMode)
GETTER_OF_TWO(nvmlDeviceGetMigMode)
GETTER(nvmlDeviceGetPersistenceMode, unsigned)
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned)
GETTER(nvmlDeviceIsMigDeviceHandle, unsigned)
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, Number)
GETTER(nvmlDeviceGetPowerUsage, unsigned)
GETTER(nvmlDeviceGetTotalEnergyConsumption, Number)
GETTER(nvmlDeviceGetPerformanceState, unsigned)
GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned)
GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned)
GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned)
GETTER_OF(nvmlDeviceGetClockInfo, unsigned)
GETTER_OF(nvmlDeviceGetTemperature, unsigned)

#ifndef OLD_DRIVER
GETTER(nvmlDeviceGetCurrentClocksEventReasons, Number)

int nvmlDeviceGetRemappedRows(const void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    Number numbers[4] = {0};
    int count, result = read_numbers("nvmlDeviceGetRemappedRows", 4, numbers, &count);
    if (device != &the_device) return INVALID_ARGUMENT;
    *corrected = (unsigned)numbers[0], *uncorrected = (unsigned)numbers[1];
    *pending = (unsigned)numbers[2], *failed = (unsigned)numbers[3];
    return result;
}

struct process {
    unsigned id;
    Number memory_bytes;
    unsigned gpu_instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(const void *device, unsigned *count, struct process *processes) {
    Number ids[64];
    int process_count, result = read_numbers("nvmlDeviceGetComputeRunningProcesses", 64, ids, &process_count);
    if (device != &the_device) return INVALID_ARGUMENT;
    if (result) return result;
    unsigned room = *count;
    *count = (unsigned)process_count;
    if (room < *count) return INSUFFICIENT_SIZE;
    for (int index = 0; index < process_count; index++)
        processes[index] = (struct process){(unsigned)ids[index], 1 << 30, ~0u, ~0u};
    return SUCCESS;
}
#endif

int nvmlDeviceGetTotalEccErrors(const void *device, unsigned kind, unsigned counter, Number *errors) {
    char key[64];
    snprintf(key, sizeof key, "nvmlDeviceGetTotalEccErrors.%u.%u", kind, counter);
    return read_number(device, key, errors);
}

struct field_value {
    uint32_t field, scope;
    int64_t timestamp_us, latency_us;
    int type, result;
    union {
        double as_double;
        unsigned as_unsigned;
        unsigned long as_long;
        Number as_number;
        int as_signed;
    } value;
};

/* The line of a field has the type of its value before it. */
int nvmlDeviceGetFieldValues(const void *device, int count, struct field_value *values) {
    if (device != &the_device) return INVALID_ARGUMENT;
    for (int index = 0; index < count; index++) {
        char key[64];
        Number numbers[2];
        int number_count;
        struct field_value *value = &values[index];
        snprintf(key, sizeof key, "nvmlDeviceGetFieldValues.%u", value->field);
        memset(&value->value, 0xff, sizeof value->value);
        value->result = read_numbers(key, 2, numbers, &number_count);
        if (value->result) continue;
        value->type = (int)numbers[0];
        if (value->type == 0) value->value.as_double = (double)numbers[1];
        else if (value->type == 1) value->value.as_unsigned = (unsigned)numbers[1];
        else if (value->type == 2) value->value.as_long = (unsigned long)numbers[1];
        else if (value->type == 5) value->value.as_signed = (int)numbers[1];
        else value->value.as_number = numbers[1];
    }
    return SUCCESS;
}

int nvmlDeviceSetGpuLockedClocks(const void *device, unsigned lowest_mhz, unsigned highest_mhz) {
    Number number;
    int result = read_number(device, "nvmlDeviceSetGpuLockedClocks", &number);
    return result ? result : log_call("lock", lowest_mhz, highest_mhz);
}

int nvmlDeviceResetGpuLockedClocks(const void *device) {
    Number number;
    int result = read_number(device, "nvmlDeviceResetGpuLockedClocks", &number);
    return result ? result : log_call("reset", 0, 0);
}
