#include "backend/transport_unix.h"

#include "base/memory.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { READ_BYTES = 262144, SOCKET_BYTES = 1048576 };

/* One connection. It outlives its transport's interest in it until libuv has closed it. */
struct connection {
  uv_pipe_t pipe;
  uv_connect_t connect;
  struct transport_unix *transport; /* NULL once disconnected */
  bool connected;
};

struct transport_unix {
  struct transport transport;
  uv_loop_t *loop;
  struct transport_events events;
  struct connection *connection;
  size_t queued;
  bool paused;
  char path[sizeof((struct sockaddr_un *)NULL)->sun_path];
};

/* What did not leave at once. */
struct pending_write {
  uv_write_t request;
  struct connection *connection;
  size_t length;
  uint8_t bytes[];
};

/* Of one loop, and used only within one callback at a time. */
static uint8_t read_bytes[READ_BYTES];

static struct transport_unix *unix_of(struct transport *transport)
{
  return (struct transport_unix *)(void *)transport;
}

static void on_closed(uv_handle_t *handle)
{
  memory_free(handle->data);
}

static void connection_drop(struct transport_unix *transport)
{
  struct connection *connection = transport->connection;
  transport->connection = NULL;
  transport->queued = 0;
  if (!connection)
    return;
  connection->transport = NULL;
  uv_close((uv_handle_t *)&connection->pipe, on_closed);
}

static void unix_lost(struct transport_unix *transport, const char *what)
{
  CLEANUP_ERROR struct error *err = NULL;
  struct transport_events events = transport->events;
  connection_drop(transport);
  error_set_detail(&err, REASON_SANDBOX_NOT_READY, "connection to the agent: %s", what);
  events.lost(events.context, err);
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
  (void)handle;
  (void)suggested;
  *buffer = uv_buf_init((char *)read_bytes, sizeof read_bytes);
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer)
{
  struct connection *connection = stream->data;
  struct transport_unix *transport = connection->transport;
  if (!transport || length == 0)
    return;
  if (length < 0)
    unix_lost(transport, uv_strerror((int)length));
  else
    transport->events.received(transport->events.context, (const uint8_t *)buffer->base, (size_t)length);
}

static void on_connected(uv_connect_t *request, int status)
{
  struct connection *connection = request->data;
  struct transport_unix *transport = connection->transport;
  if (!transport)
    return;
  struct transport_events events = transport->events;
  if (status == 0)
    status = uv_read_start((uv_stream_t *)&connection->pipe, on_room, on_read);
  if (status == 0) {
    connection->connected = true;
    int bytes = SOCKET_BYTES; /* a hint: the system may give less */
    uv_send_buffer_size((uv_handle_t *)&connection->pipe, &bytes);
    events.connected(events.context, NULL);
    return;
  }
  CLEANUP_ERROR struct error *err = NULL;
  connection_drop(transport);
  bool gone = status == UV_ENOENT || status == UV_ECONNREFUSED;
  error_set_detail(&err, gone ? REASON_LEASE_NOT_FOUND : REASON_SANDBOX_NOT_READY, "cannot reach the agent: %s", uv_strerror(status));
  events.connected(events.context, err);
}

static void unix_connect(struct transport *base, const struct transport_events *events)
{
  struct transport_unix *transport = unix_of(base);
  struct connection *connection = memory_zero(sizeof *connection);
  transport->events = *events;
  transport->paused = false;
  if (!connection) {
    CLEANUP_ERROR struct error *err = NULL;
    error_set_memory(&err);
    events->connected(events->context, err);
    return;
  }
  transport->connection = connection;
  connection->transport = transport;
  connection->connect.data = connection->pipe.data = connection;
  uv_pipe_init(transport->loop, &connection->pipe, 0);
  connection->pipe.data = connection;
  uv_pipe_connect(&connection->connect, &connection->pipe, transport->path, on_connected);
}

static void on_written(uv_write_t *request, int status)
{
  struct pending_write *write = request->data;
  struct transport_unix *transport = write->connection->transport;
  size_t length = write->length;
  memory_free(write);
  if (!transport)
    return;
  if (status < 0) {
    unix_lost(transport, uv_strerror(status));
    return;
  }
  transport->queued -= length;
  if (transport->queued == 0)
    transport->events.drained(transport->events.context);
}

static int unix_write(struct transport *base, const uint8_t *bytes, size_t length)
{
  struct transport_unix *transport = unix_of(base);
  struct connection *connection = transport->connection;
  if (!connection || !connection->connected)
    return -1;
  if (transport->queued == 0) {
    uv_buf_t buffer = uv_buf_init((char *)bytes, (unsigned)length);
    int sent = uv_try_write((uv_stream_t *)&connection->pipe, &buffer, 1);
    if (sent < 0 && sent != UV_EAGAIN)
      return -1; /* reading reports the loss */
    if (sent > 0) {
      bytes += sent;
      length -= (size_t)sent;
    }
  }
  if (length == 0)
    return 0;
  struct pending_write *write = memory_new(sizeof *write + length);
  if (!write)
    return -1;
  write->connection = connection;
  write->length = length;
  write->request.data = write;
  memcpy(write->bytes, bytes, length);
  uv_buf_t buffer = uv_buf_init((char *)write->bytes, (unsigned)length);
  if (uv_write(&write->request, (uv_stream_t *)&connection->pipe, &buffer, 1, on_written) < 0) {
    memory_free(write);
    return -1;
  }
  transport->queued += length;
  return 0;
}

static size_t unix_queued(const struct transport *base)
{
  return ((const struct transport_unix *)(const void *)base)->queued;
}

static void unix_pause(struct transport *base, bool paused)
{
  struct transport_unix *transport = unix_of(base);
  struct connection *connection = transport->connection;
  if (!connection || !connection->connected || transport->paused == paused)
    return;
  transport->paused = paused;
  if (paused)
    uv_read_stop((uv_stream_t *)&connection->pipe);
  else
    uv_read_start((uv_stream_t *)&connection->pipe, on_room, on_read);
}

static void unix_disconnect(struct transport *base)
{
  connection_drop(unix_of(base));
}

static void unix_free(struct transport *base)
{
  connection_drop(unix_of(base));
  memory_free(base);
}

struct transport *transport_unix_new(uv_loop_t *loop, const char *path)
{
  static const struct transport_operations operations = {.connect = unix_connect, .write = unix_write, .queued = unix_queued,
                                                         .pause = unix_pause, .disconnect = unix_disconnect, .free = unix_free};
  struct transport_unix *transport = memory_zero(sizeof *transport);
  size_t length = strlen(path);
  if (!transport || length >= sizeof transport->path) {
    memory_free(transport);
    return NULL;
  }
  transport->transport.operations = &operations;
  transport->loop = loop;
  memcpy(transport->path, path, length + 1);
  return &transport->transport;
}
