#include "backend/kubernetes/retry.h"

#include "base/clock.h"
#include <stdlib.h>
#include <string.h>

#define WAIT_FIRST (50 * CLOCK_MILLISECOND)
#define WAIT_MAX (5 * CLOCK_SECOND)
#define RETRY_AFTER_MAX (60 * CLOCK_SECOND)

bool retry_may_pass(int code) {
  switch (code) {
  case 0:
  case 408:
  case 429:
  case 500:
  case 502:
  case 503:
  case 504:
    return true;
  default:
    return false;
  }
}

/* `amount` scaled by chance / 2^32. */
static int64_t share(int64_t amount, uint32_t chance) {
  return (int64_t)(((uint64_t)(amount / 1024) * chance) >> 22);
}

int64_t retry_forever(struct retry *retry, int64_t retry_after, uint32_t chance) {
  unsigned shift = retry->attempts < 10 ? retry->attempts : 10;
  int64_t wait = WAIT_FIRST << shift;
  if (wait > WAIT_MAX)
    wait = WAIT_MAX;
  if (retry->attempts < RETRY_ATTEMPTS * 1000)
    retry->attempts++;
  if (retry_after > RETRY_AFTER_MAX)
    retry_after = RETRY_AFTER_MAX;
  if (retry_after >= wait)
    return retry_after + share(retry_after / 5, chance);
  wait -= share(wait / 2, chance);
  return wait > retry_after ? wait : retry_after;
}

int64_t retry_next(struct retry *retry, const struct retry_failure *failure, int64_t now, int64_t deadline,
                   uint32_t chance) {
  if (!retry_may_pass(failure->code) || retry->attempts + 1 >= RETRY_ATTEMPTS)
    return -1;
  int64_t wait = retry_forever(retry, failure->retry_after, chance);
  return deadline - now > wait ? wait : -1;
}

/* RFC 9110, section 5.6.7; its two obsolete forms are not known. */
time_t retry_date_parse(const char *value) {
  struct tm parts = {0};
  const char *end = strptime(value, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return end && *end == 0 ? timegm(&parts) : -1;
}

int64_t retry_after_parse(const char *value, int64_t wall) {
  int64_t wait;
  size_t digits = strspn(value, "0123456789");
  if (digits > 0 && value[digits] == 0) {
    wait = digits > 6 ? RETRY_AFTER_MAX : (int64_t)strtol(value, NULL, 10) * CLOCK_SECOND;
  } else {
    time_t when = retry_date_parse(value);
    if (when < 0 || when > INT32_MAX * INT64_C(2))
      return 0;
    wait = (int64_t)when * CLOCK_SECOND - wall;
  }
  return wait < 0 ? 0 : wait > RETRY_AFTER_MAX ? RETRY_AFTER_MAX : wait;
}
