/*
 * An agent in the same process that does what a test tells it to: the hostile party. It comes with a transport in
 * memory that can be refused, cut and split, and with a wire in the server's role; or it is no wire at all, and a test
 * sends raw bytes.
 */
#ifndef TESTS_UNIT_SESSION_AGENT_DOUBLE_H
#define TESTS_UNIT_SESSION_AGENT_DOUBLE_H

#include "backend/session/session.h"
#include "backend/wire/wire.h"
#include "base/buffer.h"
#include "sandbox/agent/v1/agent.pb-c.h"

struct agent_double;

/* One call at the agent. */
struct agent_call {
  struct agent_double *agent;
  struct wire_call *call; /* NULL once over */
  char method[32];        /* "Run" */
  int status;             /* how it ended at the agent's side: -1 while open */
  bool half_closed;
  bool hold;              /* received messages are not consumed */
  struct buffer messages; /* each with 4 bytes of length in front */
  size_t count;
  /* Run: what the first message said, and all later ones. */
  Sandbox__Agent__V1__RunStart *start; /* owned by `first` */
  Sandbox__Agent__V1__RunAttach *attach;
  Sandbox__Agent__V1__RunRequest *first;
  struct buffer input;   /* standard input, in order; offsets are checked */
  uint64_t input_offset; /* expected next */
  bool input_ended;
  int signals[64];
  size_t signal_count;
  /* ReadFile and WriteFile. */
  struct buffer content;
  void *user; /* the test's */
};

struct agent_script {
  /* A call's message came (after what is above was filled in); index from 0. NULL: nothing is answered. */
  void (*message)(struct agent_call *call, size_t index);
  void (*half_closed)(struct agent_call *call);
  void (*writable)(struct agent_call *call);
  void (*flushed)(struct agent_double *agent); /* what was queued has left; not within the wire */
};

struct agent_double {
  uv_loop_t *loop;
  struct transport transport; /* the session's */
  struct transport_events events;
  uv_idle_t pump;
  uv_timer_t later;
  const struct agent_script *script;
  void *user;
  struct wire *wire;
  size_t call_window; /* 0: 256 KiB */
  bool raw;           /* no wire: bytes come from agent_double_raw */
  struct buffer to_session, to_agent;
  bool open, connecting, freed, paused;
  bool mute;          /* bytes from the session are dropped, and none are sent */
  bool stuck;         /* bytes from the session are kept and never taken */
  enum reason refuse; /* connections fail with this, unless REASON_NONE */
  bool never;         /* connections neither stand nor fail */
  bool no_configure;  /* Configure is left to the script */
  uint8_t instance[16];
  size_t split;  /* the session gets at most so many bytes at once; 0: all */
  unsigned seed; /* random splits, if not 0 */
  unsigned connects, configures;
  uint64_t deadline; /* as Configure told it */
  size_t received;   /* bytes from the session */
  size_t most_queued;
  struct agent_call *calls[4096]; /* all there ever were */
  size_t call_count;
};

void agent_double_init(struct agent_double *agent, uv_loop_t *loop, const struct agent_script *script);
/* After the session was closed and the loop has run dry. */
void agent_double_free(struct agent_double *agent);
/* The connection breaks; the session is told. what is still on its way is lost. */
void agent_double_cut(struct agent_double *agent);
/* Sends bytes that come from no wire. */
void agent_double_raw(struct agent_double *agent, const void *bytes, size_t length);
/* Lets what was queued on the wire leave. */
void agent_double_flush(struct agent_double *agent);
/* The latest call of this method, or NULL. */
struct agent_call *agent_double_call(struct agent_double *agent, const char *method);

/* Answers. */
void agent_send(struct agent_call *call, const ProtobufCMessage *message);
void agent_started(struct agent_call *call, uint64_t stdin_offset);
void agent_output(struct agent_call *call, unsigned stream, uint64_t offset, const void *bytes, size_t length);
void agent_end(struct agent_call *call, int ended_by, int exit_code, int signal, uint64_t out, uint64_t err);
void agent_info(struct agent_call *call, uint64_t size, const uint8_t *sha256);
void agent_data(struct agent_call *call, const void *bytes, size_t length);
void agent_finish(struct agent_call *call, int status, const char *text);

#endif
