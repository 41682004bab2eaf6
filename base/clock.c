/*
 * Time: reading the clocks, RFC 3339 both ways, and durations. Dates are computed here, by the proleptic Gregorian
 * calendar, so that neither locale nor time zone of the process matters.
 */
#include "base/clock.h"
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

enum { SECONDS_PER_DAY = 86400 };

static int64_t clock_read(clockid_t id) {
  struct timespec now;
  clock_gettime(id, &now);
  return (int64_t)now.tv_sec * CLOCK_SECOND + now.tv_nsec;
}

int64_t clock_wall(void) {
  return clock_read(CLOCK_REALTIME);
}

int64_t clock_boot(void) {
  return clock_read(CLOCK_BOOTTIME);
}

/* Days from 1970-01-01. Years are counted from March, so that the leap day is a year's last; 400 years have 146,097
 * days. */
static int64_t days_from_date(int year, int month, int day) {
  int64_t y = month <= 2 ? year - 1 : year;
  int64_t era = (y >= 0 ? y : y - 399) / 400;
  int64_t year_of_era = y - era * 400;
  int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

static void date_from_days(int64_t days, int *year, int *month, int *day) {
  days += 719468;
  int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  int64_t day_of_era = days - era * 146097;
  int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  int64_t month_from_march = (5 * day_of_year + 2) / 153;
  *day = (int)(day_of_year - (153 * month_from_march + 2) / 5 + 1);
  *month = (int)(month_from_march < 10 ? month_from_march + 3 : month_from_march - 9);
  *year = (int)(year_of_era + era * 400 + (*month <= 2 ? 1 : 0));
}

static int days_in_month(int year, int month) {
  static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return month == 2 && leap ? 29 : days[month - 1];
}

void clock_format(int64_t wall, char text[static CLOCK_TEXT_SIZE]) {
  int64_t seconds = wall / CLOCK_SECOND;
  int64_t nanoseconds = wall % CLOCK_SECOND;
  if (nanoseconds < 0) {
    nanoseconds += CLOCK_SECOND;
    seconds--;
  }
  int64_t days = seconds / SECONDS_PER_DAY;
  int64_t of_day = seconds % SECONDS_PER_DAY;
  if (of_day < 0) {
    of_day += SECONDS_PER_DAY;
    days--;
  }
  int year, month, day;
  date_from_days(days, &year, &month, &day);
  snprintf(text, CLOCK_TEXT_SIZE, "%04u-%02u-%02uT%02u:%02u:%02u.%09uZ", (unsigned)year % 10000, (unsigned)month % 100,
           (unsigned)day % 100, (unsigned)(of_day / 3600) % 100, (unsigned)(of_day / 60 % 60), (unsigned)(of_day % 60),
           (unsigned)nanoseconds);
}

/* Text not read yet. */
struct rest {
  const char *at, *end;
};

static bool take(struct rest *rest, char wanted) {
  if (rest->at == rest->end || *rest->at != wanted)
    return false;
  rest->at++;
  return true;
}

/* Exactly `count` digits. */
static bool take_digits(struct rest *rest, int count, int *value) {
  *value = 0;
  for (int i = 0; i < count; i++) {
    if (rest->at == rest->end || *rest->at < '0' || *rest->at > '9')
      return false;
    *value = *value * 10 + (*rest->at++ - '0');
  }
  return true;
}

/* "" or "." and 1 to 9 digits. */
static bool take_fraction(struct rest *rest, int64_t *nanoseconds) {
  *nanoseconds = 0;
  if (!take(rest, '.'))
    return true;
  int64_t unit = CLOCK_SECOND / 10;
  int digit;
  if (rest->at == rest->end || *rest->at < '0' || *rest->at > '9')
    return false;
  while (unit > 0 && take_digits(rest, 1, &digit)) {
    *nanoseconds += digit * unit;
    unit /= 10;
  }
  return true;
}

/* "Z", "+hh:mm" or "-hh:mm". */
static bool take_offset(struct rest *rest, int *seconds) {
  *seconds = 0;
  if (take(rest, 'Z') || take(rest, 'z'))
    return true;
  int sign = take(rest, '+') ? 1 : take(rest, '-') ? -1 : 0;
  int hours, minutes;
  if (sign == 0 || !take_digits(rest, 2, &hours) || !take(rest, ':') || !take_digits(rest, 2, &minutes))
    return false;
  *seconds = sign * (hours * 3600 + minutes * 60);
  return hours <= 23 && minutes <= 59;
}

int clock_parse(const char *text, size_t length, int64_t *wall) {
  struct rest rest = {text, text + length};
  int year, month, day, hour, minute, second, offset;
  int64_t fraction;
  if (!take_digits(&rest, 4, &year) || !take(&rest, '-') || !take_digits(&rest, 2, &month) || !take(&rest, '-') ||
      !take_digits(&rest, 2, &day) || !(take(&rest, 'T') || take(&rest, 't')) || !take_digits(&rest, 2, &hour) ||
      !take(&rest, ':') || !take_digits(&rest, 2, &minute) || !take(&rest, ':') || !take_digits(&rest, 2, &second) ||
      !take_fraction(&rest, &fraction) || !take_offset(&rest, &offset) || rest.at != rest.end)
    return -1;
  if (month < 1 || month > 12 || day < 1 || day > days_in_month(year, month) || hour > 23 || minute > 59 || second > 60)
    return -1;
  int64_t seconds = days_from_date(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset;
  /* A leap second ends a day of UTC; it reads as the first second of the next day. */
  if (second == 60 && seconds % SECONDS_PER_DAY != 0)
    return -1;
  int64_t result;
  if (__builtin_mul_overflow(seconds, CLOCK_SECOND, &result) || __builtin_add_overflow(result, fraction, &result))
    return -1;
  *wall = result;
  return 0;
}

/* "h", "m", "s" or "ms", longest unit first: the unit's place in the order, or -1. */
static int take_unit(struct rest *rest, int64_t *nanoseconds) {
  if (take(rest, 'h')) {
    *nanoseconds = 3600 * CLOCK_SECOND;
    return 1;
  }
  if (take(rest, 's')) {
    *nanoseconds = CLOCK_SECOND;
    return 3;
  }
  if (!take(rest, 'm'))
    return -1;
  if (take(rest, 's')) {
    *nanoseconds = CLOCK_MILLISECOND;
    return 4;
  }
  *nanoseconds = 60 * CLOCK_SECOND;
  return 2;
}

int clock_parse_duration(const char *text, int64_t *duration) {
  const int64_t longest = 24 * 3600 * CLOCK_SECOND;
  struct rest rest = {text, text};
  while (*rest.end != '\0')
    rest.end++;
  int64_t total = 0;
  int last_unit = 0;
  while (rest.at != rest.end) {
    int64_t number = 0, unit;
    int digit;
    const char *start = rest.at;
    while (rest.at - start < 9 && take_digits(&rest, 1, &digit))
      number = number * 10 + digit;
    if (rest.at == start)
      return -1;
    int place = take_unit(&rest, &unit);
    /* Each unit once, in falling order: "90s" and "1m30s", never "30s1m". */
    if (place <= last_unit || number > longest / unit)
      return -1;
    last_unit = place;
    total += number * unit;
  }
  if (total <= 0 || total > longest)
    return -1;
  *duration = total;
  return 0;
}
