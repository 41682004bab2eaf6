/*
 * Time. Wall time is for what people and other machines read; deadlines and ages are measured on the boot clock, which
 * goes on during suspend and never jumps when the wall clock is set. Nanoseconds throughout. Thread: any.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define CLOCK_SECOND INT64_C(1000000000)
#define CLOCK_MILLISECOND INT64_C(1000000)

/* Since 1970-01-01T00:00:00Z. */
int64_t clock_wall(void);
/* CLOCK_BOOTTIME. */
int64_t clock_boot(void);

/* "2026-01-02T03:04:05.123456789Z": always nine digits. The years 1970 to 2261. Needs CLOCK_TEXT_SIZE bytes. */
#define CLOCK_TEXT_SIZE 32
void clock_format(int64_t wall, char text[static CLOCK_TEXT_SIZE]);
/* RFC 3339 with any offset and 0 to 9 digits of fraction. Returns 0, or -1 for anything else. */
int clock_parse(const char *text, size_t length, int64_t *wall);

/* "90s", "2m", "1m30s", "500ms", "1h": to nanoseconds. Returns 0, or -1 if malformed, zero or over 24 h. */
int clock_parse_duration(const char *text, int64_t *duration);

#endif
