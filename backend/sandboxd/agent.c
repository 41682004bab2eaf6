/*
 * The whole of sandboxd: see agent.h.
 */
#include "backend/sandboxd/agent.h"

#include "backend/sandboxd/connection.h"
#include "backend/sandboxd/handover.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/socket.h>
#include <unistd.h>

#define AGENT_ORPHAN_DEFAULT (60 * CLOCK_SECOND)
#define AGENT_REATTACH_DEFAULT (30 * CLOCK_SECOND)
#define AGENT_TIDY_BYTES (1 << 20)
#define AGENT_TIDY_AFTER (CLOCK_SECOND / 2)
#define AGENT_TIME_MAX UINT64_C(31536000000) /* milliseconds: a year; longer is taken as so long */

static int64_t agent_nanoseconds(uint64_t milliseconds, int64_t otherwise) {
  if (!milliseconds)
    return otherwise;
  return (int64_t)(milliseconds < AGENT_TIME_MAX ? milliseconds : AGENT_TIME_MAX) * CLOCK_MILLISECOND;
}

static void agent_life_over(void *context) {
  struct agent *agent = context;
  log_write(LOG_INFO, agent->bound ? "deadline" : "orphaned", LOG_NUMBER("connections", agent->connection_count));
  loop_stop(&agent->loop);
}

static void agent_wait_orphaned(struct agent *agent) {
  if (!agent->bound && !agent->connections)
    loop_timer_set(&agent->loop, &agent->life, clock_boot() + agent->orphan);
}

int agent_configure(struct agent *agent, const Sandbox__Agent__V1__ConfigureRequest *request, struct error **err) {
  if (request->protocol != AGENT_PROTOCOL)
    return error_set_field(err, REASON_INVALID_REQUEST, "protocol", "'protocol' must be 1");
  agent->orphan = agent_nanoseconds(request->orphan_milliseconds, AGENT_ORPHAN_DEFAULT);
  agent->commands.reattach = agent_nanoseconds(request->reattach_milliseconds, AGENT_REATTACH_DEFAULT);
  /* Once bound to a Lease, always bound: a deadline can move but not be taken away. */
  if (request->deadline_milliseconds) {
    agent->bound = true;
    loop_timer_set(&agent->loop, &agent->life, clock_boot() + agent_nanoseconds(request->deadline_milliseconds, 0));
  }
  crew_prepare(&agent->crew);
  return 0;
}

/* What a large transfer needed is not kept: the sandbox has better uses for memory. */
static void agent_tidy(void *context) {
  struct agent *agent = context;
  agent->moved = 0;
  malloc_trim(0);
}

void agent_count(struct agent *agent, size_t bytes) {
  agent->moved += bytes;
  if (agent->moved >= AGENT_TIDY_BYTES && !agent->tidy.armed)
    loop_timer_set(&agent->loop, &agent->tidy, clock_boot() + AGENT_TIDY_AFTER);
}

/* --- connections --- */

void agent_connection_closed(struct agent *agent) {
  if (agent->listener.descriptor < 0) /* nobody can come any more */
    loop_stop(&agent->loop);
  agent_wait_orphaned(agent);
}

int agent_connect(struct agent *agent, int input, int output, int holder, struct error **err) {
  if (agent->connection_count >= AGENT_CONNECTIONS)
    connection_close_oldest(agent);
  if (connection_open(agent, input, output, holder, err))
    return -1;
  if (!agent->bound)
    loop_timer_stop(&agent->loop, &agent->life);
  return 0;
}

static void agent_listener_ready(void *context, uint32_t events) {
  struct agent *agent = context;
  CLEANUP_ERROR struct error *err = NULL;
  (void)events;
  int input = accept4(agent->listener.descriptor, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (input < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
    connection_close_oldest(agent); /* or the listener would call without end */
  if (input < 0)
    return;
  if (agent->handover) {
    handover_welcome(agent, input);
    return;
  }
  int output = fcntl(input, F_DUPFD_CLOEXEC, 0);
  if (output < 0)
    close(input);
  else if (agent_connect(agent, input, output, -1, &err))
    log_write(LOG_WARNING, "connection_refused", LOG_DETAIL(err));
}

/* Answers leave once for each round, whatever made them. */
static void agent_settle(void *context) {
  struct agent *agent = context;
  connection_flush_all(agent);
}

/* --- life --- */

static int agent_listen(struct agent *agent, const struct agent_options *options, struct error **err) {
  if (options->listener < 0)
    return agent_connect(agent, options->input, options->output, -1, err);
  if (fcntl(options->listener, F_SETFL, O_NONBLOCK) || loop_watch_set(&agent->loop, &agent->listener, EPOLLIN))
    return error_set_errno(err, errno, "the listening socket cannot be used");
  return 0;
}

int agent_init(struct agent *agent, const struct agent_options *options, struct error **err) {
  *agent = (struct agent){.orphan = AGENT_ORPHAN_DEFAULT};
  if (loop_init(&agent->loop, err) || crew_init(&agent->crew, &agent->loop, options->crew, err) ||
      path_root_open(&agent->root, options->workspace, options->walk, err))
    return -1;
  random_bytes(agent->instance, sizeof agent->instance);
  agent->handover = options->handover;
  agent->loop.settle = agent_settle;
  agent->loop.settle_context = agent;
  agent->life = (struct loop_timer){.fired = agent_life_over, .context = agent};
  agent->tidy = (struct loop_timer){.fired = agent_tidy, .context = agent};
  agent->listener = (struct loop_watch){.descriptor = options->listener, .ready = agent_listener_ready,
                                        .context = agent};
  agent->commands = (struct command_table){.loop = &agent->loop, .crew = &agent->crew,
                                           .reattach = AGENT_REATTACH_DEFAULT};
  agent->commands.null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (agent->commands.null < 0)
    return error_set_errno(err, errno, "/dev/null");
  memory_events_open(&agent->commands.memory_events, options->memory_events);
  if (agent_listen(agent, options, err))
    return -1;
  agent_wait_orphaned(agent);
  return 0;
}

int agent_run(struct agent *agent, struct error **err) {
  int result = loop_run(&agent->loop, err);
  if (getpid() == 1)
    return result;
  crew_end(&agent->crew);
  while (agent->connections)
    connection_close_oldest(agent);
  command_table_free(&agent->commands);
  path_root_close(&agent->root);
  loop_free(&agent->loop);
  return result;
}
