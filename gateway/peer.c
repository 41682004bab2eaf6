/*
 * Plain sockets are read here, a bounded piece at a time, into the loop's one input area: an idle connection holds no
 * buffer. TLS sockets are read by h2o, which decrypts into a buffer of the socket.
 */
#include "gateway/peer.h"

#include "base/memory.h"
#include "gateway/exchange.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  PIECES = 3,
  WRITE_BYTES = 262144, /* handed to the socket at once; the client has the write timer's time for each */
};

struct peer {
  struct connection connection;
  struct loop *loop;
  h2o_socket_t *socket; /* NULL once closed */
  h2o_linklist_t link;  /* loop->peers or loop->closed */
  h2o_timeout_entry_t timer, again;
  struct http_text pieces[PIECES]; /* still to be written */
  size_t piece, piece_count;
  bool is_tls, handshaking, reading;
};

#define PEER_OF(pointer, member) ((struct peer *)(void *)((char *)(uintptr_t)(pointer)-offsetof(struct peer, member)))

struct loop *peer_loop(const struct connection *connection) { return PEER_OF(connection, connection)->loop; }

/* Reading */

static void read_plain(h2o_socket_t *socket, const char *failure) {
  struct peer *peer = socket->data;
  (void)failure; /* h2o only says that there is something to read */
  ssize_t length;
  do
    length = read(h2o_socket_get_fd(socket), peer->loop->input, sizeof peer->loop->input);
  while (length < 0 && errno == EINTR);
  if (length > 0)
    connection_input(&peer->connection, peer->loop->input, (size_t)length);
  else if (length == 0)
    connection_input_ended(&peer->connection);
  else if (errno != EAGAIN)
    connection_lost(&peer->connection);
}

/* Gives what h2o has decrypted, as long as it is wanted. */
static void give_decrypted(struct peer *peer) {
  while (peer->socket && peer->reading && peer->socket->input->size > 0) {
    size_t size = peer->socket->input->size;
    size_t length = size < CONNECTION_INPUT_BYTES ? size : CONNECTION_INPUT_BYTES;
    connection_input(&peer->connection, peer->socket->input->bytes, length);
    if (peer->socket)
      h2o_buffer_consume(&peer->socket->input, length);
  }
  if (!peer->socket || peer->socket->input->size > 0)
    return;
  h2o_buffer_dispose(&peer->socket->input);
  h2o_buffer_init(&peer->socket->input, &h2o_socket_buffer_prototype);
}

static void read_tls(h2o_socket_t *socket, const char *failure) {
  struct peer *peer = socket->data;
  give_decrypted(peer);
  if (!failure || !peer->socket)
    return;
  if (failure == h2o_socket_error_closed)
    connection_input_ended(&peer->connection);
  else
    connection_lost(&peer->connection);
}

/* Goes on with what was decrypted while reading was not wanted. */
static void read_again(h2o_timeout_entry_t *entry) { give_decrypted(PEER_OF(entry, again)); }

static void on_reading(struct connection *connection, bool wanted) {
  struct peer *peer = PEER_OF(connection, connection);
  peer->reading = wanted;
  if (!wanted) {
    h2o_socket_read_stop(peer->socket);
    return;
  }
  h2o_socket_read_start(peer->socket, peer->is_tls ? read_tls : read_plain);
  if (peer->is_tls && peer->socket->input->size > 0 && !h2o_timeout_is_linked(&peer->again))
    h2o_timeout_link(peer->loop->evloop, &peer->loop->timers[CONNECTION_TIMER_NONE], &peer->again);
}

/* Writing */

static void on_timer(struct connection *connection, enum connection_timer timer);
static void written(h2o_socket_t *socket, const char *failure);

static void write_next(struct peer *peer) {
  h2o_iovec_t vectors[PIECES];
  size_t count = 0, left = WRITE_BYTES;
  while (peer->piece < peer->piece_count && left > 0) {
    struct http_text *piece = &peer->pieces[peer->piece];
    size_t length = piece->length < left ? piece->length : left;
    vectors[count++] = h2o_iovec_init(piece->data, length);
    piece->data += length;
    piece->length -= length;
    left -= length;
    if (piece->length == 0)
      peer->piece++;
  }
  h2o_socket_write(peer->socket, vectors, count, written);
}

static void written(h2o_socket_t *socket, const char *failure) {
  struct peer *peer = socket->data;
  if (failure) {
    connection_lost(&peer->connection);
  } else if (peer->piece < peer->piece_count) {
    on_timer(&peer->connection, CONNECTION_TIMER_WRITE);
    write_next(peer);
  } else {
    connection_written(&peer->connection);
  }
}

static void on_write(struct connection *connection, const struct http_text *pieces, size_t count) {
  struct peer *peer = PEER_OF(connection, connection);
  peer->piece = peer->piece_count = 0;
  for (size_t i = 0; i < count; i++)
    if (pieces[i].length > 0)
      peer->pieces[peer->piece_count++] = pieces[i];
  write_next(peer);
}

/* TLS has no half-close that h2o would offer; the client has the answer's length and "Connection: close". */
static void on_end(struct connection *connection) {
  struct peer *peer = PEER_OF(connection, connection);
  if (!peer->is_tls)
    shutdown(h2o_socket_get_fd(peer->socket), SHUT_WR);
}

/* Time */

static void timeout(h2o_timeout_entry_t *entry) { connection_timeout(&PEER_OF(entry, timer)->connection); }

static void on_timer(struct connection *connection, enum connection_timer timer) {
  struct peer *peer = PEER_OF(connection, connection);
  if (h2o_timeout_is_linked(&peer->timer))
    h2o_timeout_unlink(&peer->timer);
  if (timer != CONNECTION_TIMER_NONE)
    h2o_timeout_link(peer->loop->evloop, &peer->loop->timers[timer], &peer->timer);
}

/* Life */

static void on_close(struct connection *connection) {
  struct peer *peer = PEER_OF(connection, connection);
  struct loop *loop = peer->loop;
  on_timer(connection, CONNECTION_TIMER_NONE);
  if (h2o_timeout_is_linked(&peer->again))
    h2o_timeout_unlink(&peer->again);
  h2o_socket_close(peer->socket);
  peer->socket = NULL;
  h2o_linklist_unlink(&peer->link);
  h2o_linklist_insert(&loop->closed, &peer->link);
  loop->peer_count--;
  loop_released(loop);
}

static const struct connection_io io = {
    .write = on_write, .end = on_end, .close = on_close, .timer = on_timer, .reading = on_reading};

static void handshaken(h2o_socket_t *socket, const char *failure) {
  struct peer *peer = socket->data;
  peer->handshaking = false;
  if (failure) {
    connection_lost(&peer->connection);
    return;
  }
  on_timer(&peer->connection, CONNECTION_TIMER_IDLE);
  on_reading(&peer->connection, true);
}

void peer_start(struct loop *loop, h2o_socket_t *socket, SSL_CTX *tls) {
  struct peer *peer = memory_zero(sizeof *peer);
  if (!peer) {
    h2o_socket_close(socket);
    return;
  }
  peer->loop = loop;
  peer->socket = socket;
  peer->is_tls = peer->handshaking = tls != NULL;
  peer->timer.cb = timeout;
  peer->again.cb = read_again;
  socket->data = peer;
  h2o_linklist_insert(&loop->peers, &peer->link);
  loop->peer_count++;
  connection_init(&peer->connection, &io, &exchange_connection_handler);
  if (tls) {
    on_timer(&peer->connection, CONNECTION_TIMER_HEAD);
    h2o_socket_ssl_handshake(socket, tls, NULL, handshaken);
  } else {
    h2o_socket_dont_read(socket, 1);
    on_reading(&peer->connection, true);
  }
}

/* Many at once */

bool peer_close_idle(struct loop *loop) {
  h2o_linklist_t *idle = &loop->timers[CONNECTION_TIMER_IDLE]._entries;
  if (h2o_linklist_is_empty(idle))
    return false;
  h2o_timeout_entry_t *oldest = H2O_STRUCT_FROM_MEMBER(h2o_timeout_entry_t, _link, idle->next);
  connection_lost(&PEER_OF(oldest, timer)->connection);
  return true;
}

/* Calls `tell` for each peer; it may close that one. */
static void for_each(struct loop *loop, void (*tell)(struct connection *connection)) {
  h2o_linklist_t *next;
  for (h2o_linklist_t *at = loop->peers.next; at != &loop->peers; at = next) {
    next = at->next;
    tell(&PEER_OF(at, link)->connection);
  }
}

void peer_stop_all(struct loop *loop) { for_each(loop, connection_stop); }
void peer_close_all(struct loop *loop) { for_each(loop, connection_lost); }

void peer_free_closed(struct loop *loop) {
  while (!h2o_linklist_is_empty(&loop->closed)) {
    struct peer *peer = PEER_OF(loop->closed.next, link);
    h2o_linklist_unlink(&peer->link);
    connection_free(&peer->connection);
    memory_free(peer);
  }
}
