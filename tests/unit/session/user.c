#include "tests/unit/session/user.h"

#include "base/memory.h"
#include "tests/unit/session/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- commands --- */

static void on_started(void *context) {
  struct user_run *run = context;
  assert_false(run->started || run->ended);
  run->started = true;
}

static void on_output(void *context, int stream, uint64_t offset, const uint8_t *bytes, size_t length) {
  struct user_run *run = context;
  assert_true(run->started && !run->ended);
  assert_in_range(stream, 1, 2);
  assert_int_equal(offset, run->out[stream - 1].length);
  assert_true(length > 0);
  assert_int_equal(buffer_append(&run->out[stream - 1], bytes, length), 0);
  run->held += length;
  if (!run->hold) {
    session_exec_consume(run->exec, run->held);
    run->held = 0;
  }
  if (run->on_output)
    run->on_output(run);
}

static void on_stdin_wanted(void *context) {
  struct user_run *run = context;
  assert_false(run->ended);
  run->wanted++;
}

static void on_exec_ended(void *context, const struct session_end *end, struct error *err) {
  struct user_run *run = context;
  assert_false(run->ended);
  assert_true((end == NULL) == (err != NULL));
  run->ended = true;
  run->exec = NULL;
  if (end)
    run->end = *end;
  if (err) {
    run->reason = error_reason(err);
    snprintf(run->detail, sizeof run->detail, "%s", error_detail(err));
  }
  if (run->on_end)
    run->on_end(run);
}

static const struct session_exec_events exec_events = {
    .started = on_started, .output = on_output, .stdin_wanted = on_stdin_wanted, .ended = on_exec_ended};

void user_run_start(struct user_run *run, struct session *session, const struct session_command *command) {
  buffer_init(&run->out[0], 256 * 1024 * 1024);
  buffer_init(&run->out[1], 256 * 1024 * 1024);
  run->exec = session_exec_start(session, command, &exec_events, run);
  if (!run->exec) { /* without memory */
    run->ended = true;
    run->reason = REASON_INTERNAL;
  }
  assert_false(run->started);
}

void user_run_free(struct user_run *run) {
  buffer_free(&run->out[0]);
  buffer_free(&run->out[1]);
}

/* --- files --- */

static void on_info(void *context, uint64_t size, const uint8_t *sha256) {
  struct transfer *transfer = context;
  (void)sha256;
  assert_false(transfer->informed || transfer->ended);
  transfer->informed = true;
  transfer->size = size;
}

static void on_data(void *context, const uint8_t *bytes, size_t length) {
  struct transfer *transfer = context;
  assert_true(transfer->informed && !transfer->ended && length > 0);
  assert_int_equal(buffer_append(&transfer->content, bytes, length), 0);
  transfer->held += length;
  assert_true(transfer->content.length <= transfer->size);
  if (transfer->hold)
    return;
  session_read_consume(transfer->read, transfer->held);
  transfer->held = 0;
}

static void on_wanted(void *context) {
  struct transfer *transfer = context;
  assert_false(transfer->ended);
  transfer->wanted++;
}

static void on_transfer_ended(void *context, struct error *err) {
  struct transfer *transfer = context;
  assert_false(transfer->ended);
  transfer->ended = true;
  transfer->read = NULL;
  transfer->write = NULL;
  transfer->reason = err ? error_reason(err) : REASON_NONE;
  snprintf(transfer->detail, sizeof transfer->detail, "%s", err ? error_detail(err) : "");
}

static const struct session_read_events read_events = {.info = on_info, .data = on_data, .ended = on_transfer_ended};
static const struct session_write_events write_events = {.wanted = on_wanted, .ended = on_transfer_ended};

void transfer_read(struct transfer *transfer, struct session *session, const char *path, uint64_t max, bool digest) {
  buffer_init(&transfer->content, 256 * 1024 * 1024);
  transfer->read = session_read_start(session, path, max, digest, &read_events, transfer);
  if (!transfer->read) {
    transfer->ended = true;
    transfer->reason = REASON_INTERNAL;
  }
}

void transfer_write(struct transfer *transfer, struct session *session, const char *path, uint64_t size,
                    const uint8_t *sha256) {
  buffer_init(&transfer->content, 256 * 1024 * 1024);
  transfer->write = session_write_start(session, path, size, sha256, true, &write_events, transfer);
  if (!transfer->write) {
    transfer->ended = true;
    transfer->reason = REASON_INTERNAL;
  }
}

void transfer_free(struct transfer *transfer) {
  buffer_free(&transfer->content);
}

uint8_t *user_pattern(size_t length) {
  uint8_t *bytes = malloc(length + 1);
  assert_non_null(bytes);
  for (size_t i = 0; i < length; i++)
    bytes[i] = (uint8_t)(i * 7 + (i >> 9) * 3);
  return bytes;
}

/* --- the loop --- */

struct limit {
  uv_timer_t timer;
  bool over;
};

static void on_limit(uv_timer_t *timer) {
  ((struct limit *)timer->data)->over = true;
}

static void on_limit_closed(uv_handle_t *handle) {
  free(handle->data);
}

static void run_loop(uv_loop_t *loop, const bool *flag, uint64_t milliseconds) {
  struct limit *limit = calloc(1, sizeof *limit);
  assert_non_null(limit);
  uv_timer_init(loop, &limit->timer);
  limit->timer.data = limit;
  uv_timer_start(&limit->timer, on_limit, milliseconds, 0);
  while (!limit->over && !(flag && *flag))
    uv_run(loop, UV_RUN_ONCE);
  uv_close((uv_handle_t *)&limit->timer, on_limit_closed);
  if (flag && !*flag)
    fail_msg("it did not happen in time");
}

void run_until_within(uv_loop_t *loop, const bool *flag, int seconds) {
  run_loop(loop, flag, (uint64_t)seconds * 1000);
}

void run_until(uv_loop_t *loop, const bool *flag) {
  run_loop(loop, flag, 10000);
}

void run_a_little(uv_loop_t *loop, int *left) {
  if ((*left)-- == 0)
    fail_msg("it did not happen in time");
  run_loop(loop, NULL, 1);
}

void run_for(uv_loop_t *loop, int milliseconds) {
  run_loop(loop, NULL, (uint64_t)milliseconds);
}
