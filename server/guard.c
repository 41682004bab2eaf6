#include "server/guard.h"

#include "base/clock.h"

#include <string.h>

enum { FRAME_HEADERS = 1, FRAME_RST_STREAM = 3, FRAME_SETTINGS = 4, FLAG_ACK = 1 };

static const char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/* Budgets */

void guard_budget_init(struct guard_budget *budget, unsigned per_second, unsigned at_once) {
  int64_t cost = CLOCK_SECOND / per_second;
  *budget = (struct guard_budget){.cost = cost, .ahead = cost * at_once};
}

static int64_t budget_wait(const struct guard_budget *budget, int64_t now) {
  int64_t wait = budget->spent + budget->cost - budget->ahead - now;
  return wait > 0 ? wait : 0;
}

static void budget_spend(struct guard_budget *budget, int64_t now) {
  budget->spent = (budget->spent > now ? budget->spent : now) + budget->cost;
}

static void spend(struct guard *guard, int64_t now) {
  budget_spend(guard->own, now);
  budget_spend(guard->all, now);
}

int64_t guard_wait(const struct guard *guard, int64_t now) {
  int64_t own = budget_wait(guard->own, now), all = budget_wait(guard->all, now);
  return own > all ? own : all;
}

/* Frames */

/* Skips what is left of a payload. Returns how many bytes. */
static size_t side_skip(struct guard_side *side, size_t length) {
  size_t skipped = side->left < length ? side->left : length;
  side->left -= (uint32_t)skipped;
  return skipped;
}

/* Takes one byte of a frame's head. True if the head is whole. */
static bool side_take(struct guard_side *side, uint8_t byte) {
  side->head[side->have++] = byte;
  return side->have == sizeof side->head;
}

/* The head has been judged; its payload comes. */
static void side_next(struct guard_side *side) {
  side->left = (uint32_t)side->head[0] << 16 | (uint32_t)side->head[1] << 8 | side->head[2];
  side->have = 0;
}

static enum guard_verdict judge(struct guard *guard, int64_t now) {
  uint8_t type = guard->client.head[3], flags = guard->client.head[4];
  switch (type) {
  case FRAME_HEADERS:
    return !guard->settings_known && ++guard->early_calls > GUARD_EARLY_CALLS ? GUARD_REFUSE : GUARD_PASS;
  case FRAME_RST_STREAM:
    if (guard_wait(guard, now) > 0)
      return GUARD_WAIT;
    spend(guard, now);
    return GUARD_PASS;
  case FRAME_SETTINGS:
    if (!(flags & FLAG_ACK))
      return GUARD_PASS;
    /* One that comes before them would have gRPC take its limits for acknowledged that it has not sent yet. */
    guard->settings_known = guard->settings_sent;
    return guard->settings_sent ? GUARD_PASS : GUARD_REFUSE;
  default:
    return GUARD_PASS;
  }
}

void guard_init(struct guard *guard, struct guard_budget *own, struct guard_budget *all) {
  *guard = (struct guard){.own = own, .all = all};
}

static enum guard_verdict take_preface(struct guard *guard, const uint8_t *bytes, size_t length, size_t *passed) {
  size_t missing = sizeof PREFACE - 1 - guard->preface;
  size_t count = missing < length ? missing : length;
  if (memcmp(PREFACE + guard->preface, bytes, count) != 0)
    return GUARD_REFUSE;
  guard->preface = (uint8_t)(guard->preface + count);
  *passed = count;
  return GUARD_PASS;
}

enum guard_verdict guard_client(struct guard *guard, const uint8_t *bytes, size_t length, int64_t now, size_t *passed) {
  struct guard_side *side = &guard->client;
  *passed = 0;
  if (take_preface(guard, bytes, length, passed) == GUARD_REFUSE)
    return GUARD_REFUSE;
  while (*passed < length) {
    if (side->left > 0) {
      *passed += side_skip(side, length - *passed);
      continue;
    }
    if (side_take(side, bytes[*passed])) {
      enum guard_verdict verdict = judge(guard, now);
      if (verdict != GUARD_PASS) {
        side->have--; /* the head's last byte waits, and is judged again */
        return verdict;
      }
      side_next(side);
    }
    ++*passed;
  }
  return GUARD_PASS;
}

void guard_server(struct guard *guard, const uint8_t *bytes, size_t length, int64_t now) {
  struct guard_side *side = &guard->server;
  size_t at = 0;
  while (at < length) {
    if (side->left > 0) {
      at += side_skip(side, length - at);
      continue;
    }
    if (side_take(side, bytes[at])) {
      if (side->head[3] == FRAME_RST_STREAM)
        spend(guard, now);
      else if (side->head[3] == FRAME_SETTINGS && !(side->head[4] & FLAG_ACK))
        guard->settings_sent = true;
      side_next(side);
    }
    at++;
  }
}
