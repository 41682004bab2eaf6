/*
 * Who is killed first: see oom_score.h.
 */
#include "backend/sandboxd/oom_score.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OOM_SCORE_MORE 300 /* of 1,000: as if commands used so much more of the memory */
#define OOM_SCORE_MAX 1000

void oom_score_init(struct oom_score *score, int descriptor) {
  char text[16];
  ssize_t length = descriptor < 0 ? -1 : pread(descriptor, text, sizeof text - 1, 0);
  *score = (struct oom_score){.descriptor = length > 0 ? descriptor : -1};
  if (length <= 0)
    return;
  text[length] = 0;
  score->own = (int)strtol(text, NULL, 10);
  score->commands = score->own + OOM_SCORE_MORE < OOM_SCORE_MAX ? score->own + OOM_SCORE_MORE : OOM_SCORE_MAX;
}

static void oom_score_set(const struct oom_score *score, int value) {
  char text[16];
  int length = snprintf(text, sizeof text, "%d", value);
  if (score->descriptor >= 0 && pwrite(score->descriptor, text, (size_t)length, 0) < 0)
    return;
}

void oom_score_raise(const struct oom_score *score) { oom_score_set(score, score->commands); }

void oom_score_restore(const struct oom_score *score) { oom_score_set(score, score->own); }
