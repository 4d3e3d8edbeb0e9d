/* Preloaded into a process: its clocks are ahead by the whole seconds that the file $CLOCK_OFFSETS_FILE holds, the time
   of day by the first number and the monotonic clock by the second. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long offset(clockid_t clock) {
    long of_day = 0, elapsed = 0;
    const char *path = getenv("CLOCK_OFFSETS_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file) {
        if (fscanf(file, "%ld %ld", &of_day, &elapsed) != 2) of_day = elapsed = 0;
        fclose(file);
    }
    return clock == CLOCK_REALTIME ? of_day : elapsed;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, time);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC)) time->tv_sec += offset(clock);
    return failed;
}
