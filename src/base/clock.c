// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

const char *clock_text(char buf[CLOCK_TEXT_SIZE]) {
    // Of the second that was asked for last: a log has many lines of one.
    static time_t second = -1;
    static char seconds[CLOCK_TEXT_SIZE];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != second) {
        struct tm parts;
        gmtime_r(&now.tv_sec, &parts);
        strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S.000Z", &parts);
        second = now.tv_sec;
    }
    unsigned milliseconds = (unsigned)(now.tv_nsec / 1000000);
    memcpy(buf, seconds, CLOCK_TEXT_SIZE);
    for (char *digit = buf + strlen(buf) - 2; milliseconds; milliseconds /= 10) *digit-- = (char)('0' + milliseconds % 10);
    return buf;
}
