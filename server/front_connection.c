/*
 * One TCP connection: bytes go both ways between the client and gRPC's end of a socket pair. What cannot be passed on
 * waits in a buffer, and as long as anything waits, its side is not read: an idle connection holds no buffer, a busy
 * one at most two areas.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "server/front_state.h"

#include <errno.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  ROUNDS = 8,         /* of reading and writing before other connections have their turn */
  OPENING_MS = 10000, /* for TLS, the preface and the acknowledgement of our SETTINGS */
  WAIT_MS = 20,       /* the least time that a client without budget waits */
  ENDING_MS = 1000,   /* for the client to end once gRPC has */
  HANDLES = 3,
};

/* What came of an attempt to read or write: a number of bytes, or one of these. */
enum { NOTHING_NOW = -1, OVER = 0 };

struct front_connection {
  struct front *front;
  struct front_connection *previous, *next;
  int client, inner; /* inner: ours of the pair; -1 until gRPC has the other */
  SSL *ssl;
  uv_poll_t client_poll, inner_poll;
  uv_timer_t timer;
  int client_events, inner_events; /* asked for at present */
  unsigned open_handles;
  struct guard guard;
  struct guard_budget resets;
  int64_t born;            /* boot clock */
  struct buffer up, down;  /* read, and not yet passed to gRPC or to the client */
  size_t up_passed;        /* bytes of `up` that the guard has let pass */
  bool is_open;            /* TLS is done, gRPC has its end */
  bool ssl_wants_write;    /* the handshake does */
  bool is_waiting;         /* for budget */
  bool is_unheard;         /* gRPC reads no more: what the client still sends is thrown away */
  bool is_ending;          /* gRPC has ended: the client is told, and gets a moment to end, too */
  bool is_closing;
};

/* Life */

static void connection_free(struct front_connection *connection) {
  struct front *front = connection->front;
  SSL_free(connection->ssl);
  close(connection->client);
  if (connection->inner >= 0)
    close(connection->inner);
  buffer_free(&connection->up);
  buffer_free(&connection->down);
  if (connection->previous)
    connection->previous->next = connection->next;
  else
    front->connections = connection->next;
  if (connection->next)
    connection->next->previous = connection->previous;
  memory_free(connection);
  front_connection_gone(front);
}

static void handle_closed(uv_handle_t *handle) {
  struct front_connection *connection = handle->data;
  if (--connection->open_handles == 0)
    connection_free(connection);
}

void front_connection_close(struct front_connection *connection) {
  if (connection->is_closing)
    return;
  connection->is_closing = true;
  uv_close((uv_handle_t *)&connection->client_poll, handle_closed);
  uv_close((uv_handle_t *)&connection->timer, handle_closed);
  if (connection->inner >= 0)
    uv_close((uv_handle_t *)&connection->inner_poll, handle_closed);
}

struct front_connection *front_connection_next(const struct front_connection *connection) { return connection->next; }

bool front_connection_idle(const struct front_connection *connection) { return !connection->is_open; }

static void on_timer(uv_timer_t *timer);

/* Reading and writing, without waiting */

static ssize_t ssl_result(struct front_connection *connection, int result) {
  int error = SSL_get_error(connection->ssl, result);
  ERR_clear_error();
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? NOTHING_NOW : OVER;
}

static ssize_t socket_result(ssize_t result) {
  if (result >= 0)
    return result;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? NOTHING_NOW : OVER;
}

static ssize_t client_read(struct front_connection *connection, uint8_t *bytes, size_t size) {
  if (!connection->ssl)
    return socket_result(recv(connection->client, bytes, size, 0));
  int result = SSL_read(connection->ssl, bytes, (int)size);
  return result > 0 ? result : ssl_result(connection, result);
}

static ssize_t client_write(struct front_connection *connection, const uint8_t *bytes, size_t length) {
  if (!connection->ssl)
    return socket_result(send(connection->client, bytes, length, MSG_NOSIGNAL));
  int result = SSL_write(connection->ssl, bytes, (int)length);
  return result > 0 ? result : ssl_result(connection, result);
}

/* To gRPC */

/* Passes what may go on. Returns how many bytes, or -1 if the connection is to be closed. */
static ssize_t pass_up(struct front_connection *connection, const uint8_t *bytes, size_t length) {
  if (connection->is_unheard)
    return (ssize_t)length;
  size_t more = 0;
  enum guard_verdict verdict = guard_client(&connection->guard, bytes + connection->up_passed,
                                            length - connection->up_passed, clock_boot(), &more);
  if (verdict == GUARD_REFUSE)
    return -1;
  connection->is_waiting = verdict == GUARD_WAIT;
  connection->up_passed += more;
  if (connection->up_passed == 0)
    return 0;
  ssize_t sent = socket_result(send(connection->inner, bytes, connection->up_passed, MSG_NOSIGNAL));
  if (sent == OVER) /* what gRPC wrote before it closed its end is still to be passed to the client */
    connection->is_unheard = true;
  if (sent == OVER)
    return (ssize_t)length;
  if (sent == NOTHING_NOW)
    return 0;
  connection->up_passed -= (size_t)sent;
  return sent;
}

/* The directions return 1 if there may be more to do at once, 0 if not, -1 if the connection is over. */

static int move_up(struct front_connection *connection) {
  struct buffer *up = &connection->up;
  if (connection->is_unheard)
    buffer_free(up);
  if (up->length > 0) {
    ssize_t passed = pass_up(connection, up->data, up->length);
    if (passed < 0)
      return -1;
    if ((size_t)passed == up->length)
      buffer_free(up);
    else
      buffer_consume(up, (size_t)passed);
    return passed > 0;
  }
  uint8_t *area = connection->front->area;
  ssize_t got = client_read(connection, area, FRONT_AREA_BYTES);
  if (got == NOTHING_NOW)
    return 0;
  ssize_t passed = got == OVER ? -1 : pass_up(connection, area, (size_t)got);
  if (passed < 0)
    return -1;
  return passed < got && buffer_append(up, area + passed, (size_t)(got - passed)) < 0 ? -1 : 1;
}

/* To the client */

static int write_down(struct front_connection *connection, const uint8_t *bytes, size_t length, size_t *written) {
  ssize_t sent = client_write(connection, bytes, length);
  if (sent == OVER)
    return -1;
  *written = sent == NOTHING_NOW ? 0 : (size_t)sent;
  return 0;
}

/* Closing at once, with bytes of the client unread, would reset the connection, and take from the client what it has
 * not read yet. */
static void connection_end(struct front_connection *connection) {
  connection->is_ending = connection->is_unheard = true;
  connection->is_waiting = false;
  if (connection->ssl)
    SSL_shutdown(connection->ssl);
  ERR_clear_error();
  shutdown(connection->client, SHUT_WR);
  uv_timer_start(&connection->timer, on_timer, ENDING_MS, 0);
}

static int move_down(struct front_connection *connection) {
  struct buffer *down = &connection->down;
  size_t written = 0;
  if (down->length > 0) {
    if (write_down(connection, down->data, down->length, &written) < 0)
      return -1;
    if (written == down->length)
      buffer_free(down);
    else
      buffer_consume(down, written);
    return written > 0;
  }
  if (connection->is_ending)
    return 0;
  uint8_t *area = connection->front->area;
  ssize_t got = socket_result(recv(connection->inner, area, FRONT_AREA_BYTES, 0));
  if (got == NOTHING_NOW)
    return 0;
  if (got == OVER) {
    connection_end(connection);
    return 1;
  }
  guard_server(&connection->guard, area, (size_t)got, clock_boot());
  if (write_down(connection, area, (size_t)got, &written) < 0)
    return -1;
  return (ssize_t)written < got && buffer_append(down, area + written, (size_t)got - written) < 0 ? -1 : 1;
}

/* Opening */

/* Gives gRPC its end of the pair. */
static int connection_hand_over(struct front_connection *connection) {
  struct front *front = connection->front;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
    return -1;
  connection->inner = pair[0];
  uv_poll_init(&front->loop, &connection->inner_poll, pair[0]);
  connection->inner_poll.data = connection;
  connection->open_handles++;
  pthread_mutex_lock(&front->mutex);
  bool refused = front->is_refusing;
  if (!refused) {
    grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
    grpc_server_add_channel_from_fd(front->server, pair[1], credentials);
    grpc_server_credentials_release(credentials);
  }
  pthread_mutex_unlock(&front->mutex);
  if (refused)
    close(pair[1]);
  return refused ? -1 : 0;
}

/* 1: open; 0: not yet; -1: never. */
static int connection_shake_hands(struct front_connection *connection) {
  if (connection->ssl) {
    int result = SSL_accept(connection->ssl);
    connection->ssl_wants_write = result <= 0 && SSL_get_error(connection->ssl, result) == SSL_ERROR_WANT_WRITE;
    if (result <= 0)
      return ssl_result(connection, result) == OVER ? -1 : 0;
  }
  if (connection_hand_over(connection) < 0)
    return -1;
  connection->is_open = true;
  return 1;
}

/* Turns */

static void on_client(uv_poll_t *poll, int status, int events);
static void on_inner(uv_poll_t *poll, int status, int events);

static void poll_for(uv_poll_t *poll, int *asked, int wanted, uv_poll_cb run) {
  if (*asked == wanted)
    return;
  *asked = wanted;
  if (wanted)
    uv_poll_start(poll, wanted, run);
  else
    uv_poll_stop(poll);
}

static void ask_for_events(struct front_connection *connection) {
  bool reads = connection->up.length == 0;
  bool writes = connection->down.length > 0 || connection->ssl_wants_write;
  poll_for(&connection->client_poll, &connection->client_events, (reads ? UV_READABLE : 0) | (writes ? UV_WRITABLE : 0),
           on_client);
  bool from_grpc = connection->down.length == 0 && !connection->is_ending;
  bool to_grpc = connection->up_passed > 0 && !connection->is_unheard;
  if (connection->is_open)
    poll_for(&connection->inner_poll, &connection->inner_events,
             (from_grpc ? UV_READABLE : 0) | (to_grpc ? UV_WRITABLE : 0), on_inner);
}

static void set_timer(struct front_connection *connection) {
  if (connection->is_ending)
    return;
  if (connection->is_waiting) {
    int64_t wait = guard_wait(&connection->guard, clock_boot()) / CLOCK_MILLISECOND + 1;
    uv_timer_start(&connection->timer, on_timer, (uint64_t)(wait > WAIT_MS ? wait : WAIT_MS), 0);
  } else if (connection->guard.settings_known) {
    uv_timer_stop(&connection->timer);
  } else if (!uv_is_active((uv_handle_t *)&connection->timer)) {
    uv_timer_start(&connection->timer, on_timer, OPENING_MS, 0);
  }
}

/* One round. Returns as the directions do. */
static int move(struct front_connection *connection) {
  if (!connection->is_open)
    return connection_shake_hands(connection);
  int down = move_down(connection);
  int up = down < 0 ? -1 : move_up(connection);
  return up < 0 ? -1 : up | down;
}

static void turn(struct front_connection *connection) {
  int more = 1;
  for (int i = 0; i < ROUNDS && more > 0; i++)
    more = move(connection);
  if (more < 0) {
    front_connection_close(connection);
    return;
  }
  ask_for_events(connection);
  set_timer(connection);
}

/* libuv stops asking when a socket has an error; what was sent before it can still be read, and reading tells the rest.
 */
static void on_client(uv_poll_t *poll, int status, int events) {
  (void)events;
  struct front_connection *connection = poll->data;
  if (status < 0)
    connection->client_events = 0;
  turn(connection);
}

static void on_inner(uv_poll_t *poll, int status, int events) {
  (void)events;
  struct front_connection *connection = poll->data;
  if (status < 0)
    connection->inner_events = 0;
  turn(connection);
}

static void on_timer(uv_timer_t *timer) {
  struct front_connection *connection = timer->data;
  bool opens = !connection->guard.settings_known;
  if (connection->is_ending || (opens && clock_boot() - connection->born >= OPENING_MS * CLOCK_MILLISECOND))
    front_connection_close(connection);
  else
    turn(connection);
}

static int ssl_make(struct front_connection *connection, struct certificates *certificates) {
  connection->ssl = SSL_new(certificates_context(certificates));
  if (!connection->ssl || SSL_set_fd(connection->ssl, connection->client) != 1)
    return -1;
  SSL_set_accept_state(connection->ssl);
  return 0;
}

void front_connection_open(struct front_listener *listener, int fd) {
  struct front *front = listener->front;
  struct front_connection *connection = memory_zero(sizeof *connection);
  if (!connection) {
    close(fd);
    return;
  }
  connection->front = front;
  connection->client = fd;
  connection->inner = -1;
  connection->born = clock_boot();
  guard_budget_init(&connection->resets, GUARD_RESETS_PER_SECOND, GUARD_RESETS_AT_ONCE);
  guard_init(&connection->guard, &connection->resets, &front->resets);
  buffer_init(&connection->up, FRONT_AREA_BYTES);
  buffer_init(&connection->down, FRONT_AREA_BYTES);
  connection->next = front->connections;
  if (connection->next)
    connection->next->previous = connection;
  front->connections = connection;
  front->connection_count++;
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  uv_poll_init(&front->loop, &connection->client_poll, fd);
  uv_timer_init(&front->loop, &connection->timer);
  connection->client_poll.data = connection->timer.data = connection;
  connection->open_handles = HANDLES - 1;
  if (listener->certificates && ssl_make(connection, listener->certificates) < 0)
    front_connection_close(connection);
  else
    turn(connection);
}
