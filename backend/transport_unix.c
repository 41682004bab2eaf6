/*
 * The unix-domain transport on libuv: see transport_unix.h.
 */
#include "backend/transport_unix.h"

#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { READ_BYTES = 262144, SOCKET_BYTES = 1048576, ADDRESS_BYTES = sizeof((struct sockaddr_un *)NULL)->sun_path };

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
  char path[];
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

static struct transport_unix *unix_of(struct transport *transport) {
  return (struct transport_unix *)(void *)transport;
}

static void on_closed(uv_handle_t *handle) {
  memory_free(handle->data);
}

static void connection_drop(struct transport_unix *transport) {
  struct connection *connection = transport->connection;
  transport->connection = NULL;
  transport->queued = 0;
  if (!connection)
    return;
  connection->transport = NULL;
  uv_close((uv_handle_t *)&connection->pipe, on_closed);
}

static void unix_lost(struct transport_unix *transport, const char *what) {
  CLEANUP_ERROR struct error *err = NULL;
  struct transport_events events = transport->events;
  connection_drop(transport);
  error_set_detail(&err, REASON_SANDBOX_NOT_READY, "connection to the agent: %s", what);
  events.lost(events.context, err);
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
  (void)handle;
  (void)suggested;
  *buffer = uv_buf_init((char *)read_bytes, sizeof read_bytes);
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer) {
  struct connection *connection = stream->data;
  struct transport_unix *transport = connection->transport;
  if (!transport || length == 0)
    return;
  if (length < 0)
    unix_lost(transport, uv_strerror((int)length));
  else
    transport->events.received(transport->events.context, (const uint8_t *)buffer->base, (size_t)length);
}

static void connect_failed(struct transport_unix *transport, int status) {
  CLEANUP_ERROR struct error *err = NULL;
  struct transport_events events = transport->events;
  connection_drop(transport);
  bool gone = status == UV_ENOENT || status == UV_ENOTDIR || status == UV_ECONNREFUSED;
  error_set_detail(&err, gone ? REASON_LEASE_NOT_FOUND : REASON_SANDBOX_NOT_READY, "cannot reach the agent: %s",
                   uv_strerror(status));
  events.connected(events.context, err);
}

static void on_connected(uv_connect_t *request, int status) {
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
  connect_failed(transport, status);
}

/* A path that an address cannot hold is reached through its directory's descriptor, *directory, to be closed. Returns
 * 0, or errno. */
static int short_path(const char *path, char out[static ADDRESS_BYTES], int *directory) {
  const char *slash = strrchr(path, '/');
  *directory = -1;
  if (strlen(path) < ADDRESS_BYTES) {
    memcpy(out, path, strlen(path) + 1);
    return 0;
  }
  if (!slash || slash == path)
    return ENAMETOOLONG;
  CLEANUP_MEMORY char *parent = memory_string_of(path, (size_t)(slash - path));
  if (!parent)
    return ENOMEM;
  *directory = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (*directory < 0)
    return errno;
  int length = snprintf(out, ADDRESS_BYTES, "/proc/self/fd/%d%s", *directory, slash);
  return length < ADDRESS_BYTES ? 0 : ENAMETOOLONG;
}

/* libuv cuts a long path short, so it only gets the descriptor. Returns 0, or an error of libuv. */
static int connection_connect(struct connection *connection, const char *path) {
  char address[ADDRESS_BYTES];
  int directory;
  int error = short_path(path, address, &directory);
  if (error == 0)
    uv_pipe_connect(&connection->connect, &connection->pipe, address, on_connected);
  if (directory >= 0)
    close(directory);
  return uv_translate_sys_error(error);
}

static void unix_connect(struct transport *base, const struct transport_events *events) {
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
  int status = connection_connect(connection, transport->path);
  if (status != 0)
    connect_failed(transport, status);
}

static void on_written(uv_write_t *request, int status) {
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

static int unix_write(struct transport *base, const uint8_t *bytes, size_t length) {
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

static size_t unix_queued(const struct transport *base) {
  return ((const struct transport_unix *)(const void *)base)->queued;
}

static void unix_pause(struct transport *base, bool paused) {
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

static void unix_disconnect(struct transport *base) {
  connection_drop(unix_of(base));
}

static void unix_free(struct transport *base) {
  connection_drop(unix_of(base));
  memory_free(base);
}

struct transport *transport_unix_new(uv_loop_t *loop, const char *path) {
  static const struct transport_operations operations = {.connect = unix_connect,
                                                         .write = unix_write,
                                                         .queued = unix_queued,
                                                         .pause = unix_pause,
                                                         .disconnect = unix_disconnect,
                                                         .free = unix_free};
  size_t length = strlen(path);
  struct transport_unix *transport = memory_zero(sizeof *transport + length + 1);
  if (!transport)
    return NULL;
  transport->transport.operations = &operations;
  transport->loop = loop;
  memcpy(transport->path, path, length + 1);
  return &transport->transport;
}
