// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

const char *clock_text(char buf[CLOCK_TEXT_SIZE]) {
    struct timespec now;
    struct tm parts;
    char seconds[CLOCK_TEXT_SIZE];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(buf, CLOCK_TEXT_SIZE, "%.20s.%03uZ", seconds, (unsigned)(now.tv_nsec / 1000000) % 1000);
    return buf;
}
