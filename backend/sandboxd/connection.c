/*
 * Connections: see connection.h.
 */
#include "backend/sandboxd/connection.h"

#include "backend/sandboxd/service.h"
#include "backend/wire/wire.h"
#include "base/buffer.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define CONNECTION_READ (128 * 1024)
#define CONNECTION_PENDING (4 * 1048576) /* far more than one piece of the wire's output */
#define CONNECTION_WINDOW (256 * 1024)
#define CONNECTION_CALLS 512
#define CONNECTION_CONTROL (64 * 1024) /* see wire_options.output_limit */
/* A RunStart at its limits, and what is around it. */
#define CONNECTION_MESSAGE (LIMIT_COMMAND_BYTES + LIMIT_ENV_BYTES + LIMIT_PATH_BYTES + 32 * LIMIT_ENV_ENTRIES + 1024)

struct connection {
  struct agent *agent;
  struct connection *previous, *next;
  struct loop_watch input, output, holder;
  struct wire *wire;
  struct service service;
  struct buffer pending; /* a piece of the wire's output that the kernel did not take yet */
};

static void connection_close(struct connection *connection, struct error *why) {
  struct agent *agent = connection->agent;
  log_write(LOG_INFO, "connection_closed", LOG_DETAIL(why));
  wire_free(connection->wire);
  loop_watch_set(&agent->loop, &connection->input, 0);
  loop_watch_set(&agent->loop, &connection->output, 0);
  close(connection->input.descriptor);
  close(connection->output.descriptor);
  if (connection->holder.descriptor >= 0) {
    loop_watch_set(&agent->loop, &connection->holder, 0);
    close(connection->holder.descriptor);
  }
  buffer_free(&connection->pending);
  *(connection->previous ? &connection->previous->next : &agent->connections) = connection->next;
  if (connection->next)
    connection->next->previous = connection->previous;
  agent->connection_count--;
  memory_free(connection);
  agent_connection_closed(agent);
}

void connection_close_oldest(struct agent *agent) {
  struct connection *oldest = agent->connections;
  while (oldest && oldest->next)
    oldest = oldest->next;
  if (oldest)
    connection_close(oldest, NULL);
}

/* --- out --- */

/* Returns what the kernel took, 0 if it is full, or -1 and *err. */
static ssize_t connection_write(struct connection *connection, const uint8_t *bytes, size_t length,
                                struct error **err) {
  ssize_t written = write(connection->output.descriptor, bytes, length);
  if (written >= 0) {
    agent_count(connection->agent, (size_t)written);
    return written;
  }
  if (errno == EAGAIN || errno == EINTR)
    return 0;
  return error_set_errno(err, errno, "write");
}

static int connection_write_pending(struct connection *connection, struct error **err) {
  if (!connection->pending.length)
    return 0;
  ssize_t written = connection_write(connection, connection->pending.data, connection->pending.length, err);
  if (written < 0)
    return -1;
  buffer_consume(&connection->pending, (size_t)written);
  return 0;
}

static int connection_transmit(struct connection *connection, struct error **err) {
  const uint8_t *bytes;
  if (connection_write_pending(connection, err))
    return -1;
  while (!connection->pending.length) {
    long length = wire_transmit(connection->wire, &bytes, err);
    if (length <= 0)
      return (int)length;
    ssize_t written = connection_write(connection, bytes, (size_t)length, err);
    if (written < 0)
      return -1;
    if (buffer_append(&connection->pending, bytes + written, (size_t)(length - written)))
      return error_set_memory(err);
  }
  return 0;
}

/* Returns 0, or -1 if the connection is gone. */
static int connection_flush(struct connection *connection) {
  struct error *err = NULL;
  if (!connection_transmit(connection, &err) &&
      !loop_watch_set(&connection->agent->loop, &connection->output, connection->pending.length ? EPOLLOUT : 0))
    return 0;
  connection_close(connection, err);
  error_free(&err);
  return -1;
}

static void connection_output_ready(void *context, uint32_t events) {
  (void)events;
  connection_flush(context);
}

void connection_flush_all(struct agent *agent) {
  for (struct connection *next, *connection = agent->connections; connection; connection = next) {
    next = connection->next;
    if (!connection->pending.length && wire_wants_transmit(connection->wire))
      connection_flush(connection);
  }
}

/* --- in --- */

static int connection_receive(struct connection *connection, struct error **err) {
  static uint8_t bytes[CONNECTION_READ];
  ssize_t length = read(connection->input.descriptor, bytes, sizeof bytes);
  if (length > 0) {
    agent_count(connection->agent, (size_t)length);
    return wire_receive(connection->wire, bytes, (size_t)length, err);
  }
  if (length < 0 && (errno == EAGAIN || errno == EINTR))
    return 0;
  return length < 0 ? error_set_errno(err, errno, "read") : -1;
}

static void connection_input_ready(void *context, uint32_t events) {
  struct connection *connection = context;
  struct error *err = NULL;
  (void)events;
  if (connection_receive(connection, &err))
    connection_close(connection, err);
  error_free(&err);
}

/* Nothing is ever said there: whoever brought the connection is gone. */
static void connection_holder_ready(void *context, uint32_t events) {
  (void)events;
  connection_close(context, NULL);
}

/* --- opening --- */

static const struct wire_events connection_events = {.opened = service_call_opened};

static struct connection *connection_new(struct agent *agent, int input, int output, int holder) {
  const struct wire_options options = {.role = WIRE_SERVER,
                                       .message_limit = CONNECTION_MESSAGE,
                                       .call_window = CONNECTION_WINDOW,
                                       .calls_limit = CONNECTION_CALLS,
                                       .output_limit = CONNECTION_CONTROL};
  struct connection *connection = memory_zero(sizeof *connection);
  if (!connection)
    return NULL;
  connection->agent = agent;
  connection->service.agent = agent;
  connection->input = (struct loop_watch){.descriptor = input, .ready = connection_input_ready, .context = connection};
  connection->output = (struct loop_watch){.descriptor = output, .ready = connection_output_ready,
                                           .context = connection};
  connection->holder = (struct loop_watch){.descriptor = holder, .ready = connection_holder_ready,
                                           .context = connection};
  buffer_init(&connection->pending, CONNECTION_PENDING);
  connection->wire = wire_new(&options, &connection_events, &connection->service);
  if (connection->wire)
    return connection;
  memory_free(connection);
  return NULL;
}

/* Nothing was told of it yet. */
static int connection_refuse(struct connection *connection, int input, int output, int holder, struct error **err) {
  error_set_errno(err, connection ? errno : ENOMEM, "a connection cannot be served");
  if (connection) {
    loop_watch_set(&connection->agent->loop, &connection->input, 0);
    wire_free(connection->wire);
  }
  memory_free(connection);
  close(input);
  close(output);
  if (holder >= 0)
    close(holder);
  return -1;
}

int connection_open(struct agent *agent, int input, int output, int holder, struct error **err) {
  struct connection *connection = connection_new(agent, input, output, holder);
  if (!connection || fcntl(input, F_SETFL, O_NONBLOCK) || fcntl(output, F_SETFL, O_NONBLOCK) ||
      loop_watch_set(&agent->loop, &connection->input, EPOLLIN) ||
      (holder >= 0 && loop_watch_set(&agent->loop, &connection->holder, EPOLLIN)))
    return connection_refuse(connection, input, output, holder, err);
  connection->next = agent->connections;
  if (agent->connections)
    agent->connections->previous = connection;
  agent->connections = connection;
  agent->connection_count++;
  return 0;
}
