/*
 * When a call to the API server is tried again, and when it is given up. Pure: time and chance are handed in. Thread:
 * any.
 */
#ifndef KUBERNETES_RETRY_H
#define KUBERNETES_RETRY_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { RETRY_ATTEMPTS = 8 };

struct retry {
  unsigned attempts; /* that failed so far */
};

struct retry_failure {
  int code;            /* HTTP status, or 0: there was no answer */
  int64_t retry_after; /* nanoseconds the answer asked for, or 0 */
};

/* Is it a failure that may pass? No answer, 408, 429, 500, 502, 503, 504. */
bool retry_may_pass(int code);
/* Nanoseconds to wait before the next attempt; or -1: no further one, because the failure will not pass, there were
 * enough of them, or the attempt would begin behind the deadline. The wait doubles from 50 ms to 5 s, and a random part
 * of it, up to one half, is taken off; never less than Retry-After, to which up to a fifth is added. `chance`: any
 * random number. */
int64_t retry_next(struct retry *retry, const struct retry_failure *failure, int64_t now, int64_t deadline,
                   uint32_t chance);
/* The wait before a watch or a list is begun again: the same doubling, no end. */
int64_t retry_forever(struct retry *retry, int64_t retry_after, uint32_t chance);

/* An HTTP date (RFC 9110, section 5.6.7, without its two obsolete forms) as seconds since 1970; -1 if it is none. */
time_t retry_date_parse(const char *value);
/* The value of a Retry-After header: seconds, or an HTTP date, as nanoseconds from `wall`; 0 if it is neither, at most
 * 60 s. */
int64_t retry_after_parse(const char *value, int64_t wall);

#endif
