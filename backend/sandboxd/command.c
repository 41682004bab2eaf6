/*
 * Commands: see command.h. One function, command_advance, moves a command on after every event: output as far as it
 * goes, the supervisor released when all output is read, and the end told when all output is sent.
 */
#include "backend/sandboxd/command.h"

#include "backend/sandboxd/input.h"
#include "backend/sandboxd/reply.h"
#include "backend/sandboxd/script.h"
#include "backend/sandboxd/stream.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMAND_SILENCE (10 * CLOCK_MILLISECOND) /* before RunStarted is sent alone */

struct command {
  struct command_table *table;
  struct command *previous, *next;
  uint8_t id[COMMAND_ID_BYTES];
  struct command_call attached;         /* call NULL: detached */
  struct crew_supervisor *supervisor;   /* NULL: released */
  struct stream streams[2];
  struct input input;
  size_t input_owed;                    /* message bytes to be consumed on the call when the input has drained */
  Sandbox__Agent__V1__RunEndedBy cause; /* why it was killed, or UNSPECIFIED */
  bool cancelled;                       /* nobody wants it any more */
  bool ended;                           /* how and status are known */
  bool told;                            /* RunEnd and the call's status were sent */
  bool remembered;
  enum crew_ended how;
  int status;
  uint64_t memory_kills;                /* of the group when it began */
  size_t remembered_bytes;
  bool unannounced;                     /* RunStarted is still to be sent */
  struct loop_timer announce;
  struct loop_timer timeout;
  struct loop_timer patience;           /* for an attach, or for being remembered */
};

static void command_advance(struct command *command);

/* --- making and unmaking --- */

static struct command *command_find(const struct command_table *table, const ProtobufCBinaryData *id) {
  struct command *command = table->all;
  while (command && (id->len != COMMAND_ID_BYTES || memcmp(command->id, id->data, COMMAND_ID_BYTES)))
    command = command->next;
  return command;
}

static void command_free(struct command *command) {
  struct command_table *table = command->table;
  loop_timer_stop(table->loop, &command->announce);
  loop_timer_stop(table->loop, &command->timeout);
  loop_timer_stop(table->loop, &command->patience);
  stream_free(&command->streams[0]);
  stream_free(&command->streams[1]);
  input_close(&command->input);
  *(command->previous ? &command->previous->next : &table->all) = command->next;
  *(command->next ? &command->next->previous : &table->last) = command->previous;
  if (command->remembered) {
    table->remembered--;
    table->remembered_bytes -= command->remembered_bytes;
  } else {
    table->count--;
  }
  memory_free(command);
}

static void command_link(struct command_table *table, struct command *command) {
  command->previous = table->last;
  command->next = NULL;
  *(table->last ? &table->last->next : &table->all) = command;
  table->last = command;
}

void command_table_free(struct command_table *table) {
  while (table->all)
    command_free(table->all);
}

/* --- beginning --- */

/* Before anything else on a call. */
static int command_tell_started(struct command *command) {
  Sandbox__Agent__V1__RunStarted started = SANDBOX__AGENT__V1__RUN_STARTED__INIT;
  Sandbox__Agent__V1__RunResponse response = SANDBOX__AGENT__V1__RUN_RESPONSE__INIT;
  started.stdin_offset = command->input.taken;
  response.response_case = SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_STARTED;
  response.started = &started;
  loop_timer_stop(command->table->loop, &command->announce);
  command->unannounced = false;
  return reply_message(command->attached.call, &response.base);
}

/* --- ending --- */

static void command_kill(struct command *command, Sandbox__Agent__V1__RunEndedBy cause) {
  if (!command->cause && !command->ended)
    command->cause = cause;
  if (command->supervisor)
    crew_kill(command->supervisor);
}

static void command_timed_out(void *context) {
  struct command *command = context;
  command_kill(command, SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_TIMED_OUT);
}

/* The main process ended, or never began. */
static void command_ended(void *context, enum crew_ended how, int status) {
  struct command *command = context;
  command->ended = true;
  command->how = how;
  command->status = status;
  loop_timer_stop(command->table->loop, &command->timeout);
  input_close(&command->input);
  stream_bound(&command->streams[0]);
  stream_bound(&command->streams[1]);
  command_advance(command);
}

/* Says what is certain. SIGKILL is called out of memory if we did not send it and the kernel counted a kill since the
 * command began. */
static Sandbox__Agent__V1__RunEndedBy command_ended_by(const struct command *command) {
  bool killed = command->how == CREW_ENDED && WIFSIGNALED(command->status) && WTERMSIG(command->status) == SIGKILL;
  if (command->cause == SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_OUTPUT_LIMIT ||
      (command->cause && (killed || command->how == CREW_LOST)))
    return command->cause;
  if (command->how != CREW_ENDED)
    return SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_LOST;
  if (killed && memory_events_kills(&command->table->memory_events) > command->memory_kills)
    return SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_OUT_OF_MEMORY;
  return WIFSIGNALED(command->status) ? SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_SIGNALLED
                                      : SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_EXITED;
}

static int command_tell_end(struct command *command) {
  Sandbox__Agent__V1__RunEnd end = SANDBOX__AGENT__V1__RUN_END__INIT;
  Sandbox__Agent__V1__RunResponse response = SANDBOX__AGENT__V1__RUN_RESPONSE__INIT;
  end.ended_by = command_ended_by(command);
  if (command->how == CREW_ENDED && WIFEXITED(command->status)) {
    end.exit_code = WEXITSTATUS(command->status);
  } else if (command->how == CREW_ENDED) {
    end.signal = WTERMSIG(command->status);
    end.exit_code = 128 + end.signal;
  }
  end.stdout_bytes = command->streams[0].spool.end;
  end.stderr_bytes = command->streams[1].spool.end;
  response.response_case = SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_END;
  response.end = &end;
  if (reply_message(command->attached.call, &response.base))
    return -1;
  wire_call_finish(command->attached.call, WIRE_OK, "");
  command->told = true;
  return 0;
}

/* --- moving on --- */

/* Memory has run out, or the call broke in a way that will be told soon: the command cannot be served. */
static void command_fail(struct command *command) {
  command_kill(command, SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_LOST);
  if (command->attached.call)
    wire_call_finish(command->attached.call, WIRE_RESOURCE_EXHAUSTED, "INTERNAL out of memory");
}

static void command_pump(struct command *command) {
  for (int i = 0; i < 2; i++) {
    enum stream_result result;
    if (stream_pump(&command->streams[i], command->attached.call, &result)) {
      command_fail(command);
      return;
    }
    if (result != STREAM_EXCEEDED)
      continue;
    /* Also of a command that had ended before its last output was read. */
    if (!command->cause)
      command->cause = SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_OUTPUT_LIMIT;
    command_kill(command, SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_OUTPUT_LIMIT);
  }
}

/* What the command left behind lives on. Until here it is still part of the command, and dies if the call is reset. */
static void command_release(struct command *command) {
  if (!command->supervisor)
    return;
  const int pipes[2] = {stream_take_pipe(&command->streams[0]), stream_take_pipe(&command->streams[1])};
  crew_release(command->supervisor, pipes);
  command->supervisor = NULL;
}

static void command_advance(struct command *command) {
  if (command->told)
    return;
  if (command->unannounced && command_tell_started(command))
    command_fail(command);
  if (!command->cancelled)
    command_pump(command);
  if (!command->ended)
    return;
  if (command->cancelled) {
    command_release(command);
    command_free(command);
    return;
  }
  if (!command->attached.call || !stream_complete(&command->streams[0]) || !stream_complete(&command->streams[1]))
    return;
  if (command_tell_end(command))
    command_fail(command);
  else
    command_release(command);
}

static void command_output_ready(void *context, uint32_t events) {
  (void)events;
  command_advance(context);
}

void command_writable(struct command *command) { command_advance(command); }

/* --- standard input and signals --- */

static void command_input_drained(void *context) {
  struct command *command = context;
  if (command->attached.call && command->input_owed)
    wire_call_consume(command->attached.call, command->input_owed);
  command->input_owed = 0;
}

int command_stdin(struct command *command, const Sandbox__Agent__V1__StdinChunk *chunk, size_t message_length,
                  struct error **err) {
  command->input_owed += message_length;
  if (chunk->data.len > 65536)
    return error_set_field(err, REASON_INVALID_REQUEST, "data", "'data' is longer than 65,536 bytes");
  if (input_take(&command->input, chunk->offset, chunk->data.data, chunk->data.len, err))
    return -1;
  if (input_idle(&command->input))
    command_input_drained(command);
  return 0;
}

void command_stdin_end(struct command *command) { input_end(&command->input); }

int command_signal(struct command *command, int number, struct error **err) {
  if (number < 1 || number > 64)
    return error_set_field(err, REASON_INVALID_REQUEST, "number", "'number' must be between 1 and 64");
  if (command->supervisor && !command->ended)
    crew_signal(command->supervisor, number);
  return 0;
}

/* --- starting --- */

struct command_pipes {
  int given[3]; /* to the command */
  int kept[3];  /* here: stdin's write end or -1, the read ends of the others */
};

static void command_pipes_close(int descriptors[static 3]) {
  for (int i = 0; i < 3; i++)
    if (descriptors[i] >= 0)
      close(descriptors[i]);
}

static int command_pipe(int *read_end, int *write_end, int *kept) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC))
    return -1;
  *read_end = ends[0];
  *write_end = ends[1];
  return fcntl(*kept, F_SETFL, O_NONBLOCK);
}

/* Leaves nothing open when it fails. Without stdin the command gets /dev/null, which stays open here. */
static int command_pipes_open(struct command_pipes *pipes, bool input, struct error **err) {
  *pipes = (struct command_pipes){{-1, -1, -1}, {-1, -1, -1}};
  if ((!input || !command_pipe(&pipes->given[0], &pipes->kept[0], &pipes->kept[0])) &&
      !command_pipe(&pipes->kept[1], &pipes->given[1], &pipes->kept[1]) &&
      !command_pipe(&pipes->kept[2], &pipes->given[2], &pipes->kept[2]))
    return 0;
  int number = errno;
  command_pipes_close(pipes->given);
  command_pipes_close(pipes->kept);
  return error_set_errno(err, number, "pipe");
}

static void command_silent_too_long(void *context) { command_advance(context); }

static void command_init(struct command *command, const Sandbox__Agent__V1__RunStart *start, const int kept[static 3]) {
  struct loop *loop = command->table->loop;
  memcpy(command->id, start->id.data, COMMAND_ID_BYTES);
  input_init(&command->input, loop, kept[0], command_input_drained, command);
  for (uint32_t i = 0; i < 2; i++)
    stream_init(&command->streams[i], loop, i + 1, kept[i + 1], start->output_limit_bytes, command_output_ready,
                command);
  command->memory_kills = memory_events_kills(&command->table->memory_events);
  command->announce = (struct loop_timer){.fired = command_silent_too_long, .context = command};
  command->timeout = (struct loop_timer){.fired = command_timed_out, .context = command};
  if (start->timeout_milliseconds && start->timeout_milliseconds < INT64_MAX / CLOCK_MILLISECOND / 2)
    loop_timer_set(loop, &command->timeout, clock_boot() + (int64_t)start->timeout_milliseconds * CLOCK_MILLISECOND);
}

/* The call has the command from here on: RunStarted, then output and end as far as they are there. */
static void command_attached(struct command *command, const struct command_call *call) {
  command->attached = *call;
  command->unannounced = true;
  command_advance(command);
}

/* Has just been started. A command that is over in a moment needs no message, and no wake-up of the control plane, to
 * say that it has begun: RunStarted goes out with what comes first, or after a while. */
static void command_begin(struct command *command, const struct command_call *call, bool input) {
  command->attached = *call;
  command->unannounced = true;
  if (stream_watch(&command->streams[0]) || stream_watch(&command->streams[1]))
    command_fail(command);
  else if (input)
    command_advance(command);
  else
    loop_timer_set(command->table->loop, &command->announce, clock_boot() + COMMAND_SILENCE);
}

static void command_patience_over(void *context);

static struct command *command_run(struct command_table *table, const Sandbox__Agent__V1__RunStart *start,
                                   const struct buffer *script, struct error **err) {
  struct command_pipes pipes;
  struct command *command = memory_zero(sizeof *command);
  if (!command) {
    error_set_memory(err);
    return NULL;
  }
  if (command_pipes_open(&pipes, start->stdin, err)) {
    memory_free(command);
    return NULL;
  }
  const int given[3] = {start->stdin ? pipes.given[0] : table->null, pipes.given[1], pipes.given[2]};
  command->supervisor = crew_start(table->crew, buffer_text(script), script->length, given, command_ended, command,
                                   err);
  command_pipes_close(pipes.given);
  if (!command->supervisor) {
    command_pipes_close(pipes.kept);
    memory_free(command);
    return NULL;
  }
  command->table = table;
  command->patience = (struct loop_timer){.fired = command_patience_over, .context = command};
  command_init(command, start, pipes.kept);
  command_link(table, command);
  table->count++;
  return command;
}

struct command *command_start(struct command_table *table, const Sandbox__Agent__V1__RunStart *start,
                              const struct command_call *call, struct error **err) {
  CLEANUP_BUFFER struct buffer script;
  buffer_init(&script, SCRIPT_LIMIT);
  if (script_build(start, &script, err))
    return NULL;
  if (command_find(table, &start->id)) {
    error_set_field(err, REASON_INVALID_REQUEST, "id", "a command of this 'id' was started before");
    return NULL;
  }
  if (table->count >= COMMAND_RECORDS) {
    error_set_detail(err, REASON_SANDBOX_NOT_READY, "%d commands are here already", COMMAND_RECORDS);
    return NULL;
  }
  struct command *command = command_run(table, start, &script, err);
  if (command)
    command_begin(command, call, start->stdin);
  return command;
}

/* --- calls come and go --- */

static bool command_table_remembers_too_much(const struct command_table *table) {
  return table->remembered > COMMAND_REMEMBERED || table->remembered_bytes > COMMAND_REMEMBERED_BYTES;
}

/* Forgets the remembered ones that are too many, the oldest first. */
static void command_table_trim(struct command_table *table) {
  struct command *next, *command = table->all;
  for (; command && command_table_remembers_too_much(table); command = next) {
    next = command->next;
    if (command->remembered)
      command_free(command);
  }
}

static void command_recall(struct command *command) {
  struct command_table *table = command->table;
  loop_timer_stop(table->loop, &command->patience);
  if (!command->remembered)
    return;
  command->remembered = false;
  table->remembered--;
  table->remembered_bytes -= command->remembered_bytes;
  table->count++;
}

struct command *command_attach(struct command_table *table, const Sandbox__Agent__V1__RunAttach *attach,
                               const struct command_call *call, struct error **err) {
  struct command *command = command_find(table, &attach->id);
  if (!command || command->cancelled) {
    error_set_field(err, REASON_NOT_FOUND, "id", "there is no command of this 'id'");
    return NULL;
  }
  struct spool *out = &command->streams[0].spool, *errors = &command->streams[1].spool;
  if (attach->stdout_offset < out->start || attach->stdout_offset > out->end || attach->stderr_offset < errors->start ||
      attach->stderr_offset > errors->end) {
    error_set_field(err, REASON_INVALID_REQUEST, "stdout_offset", "output from this offset on is not here");
    return NULL;
  }
  if (command->attached.call) {
    struct command_call former = command->attached;
    command_lost(command);
    wire_call_finish(former.call, WIRE_CANCELLED, "ABORTED another call took the command");
    former.taken(former.context);
  }
  spool_rewind(out, attach->stdout_offset);
  spool_rewind(errors, attach->stderr_offset);
  command_recall(command);
  command->told = false;
  command_attached(command, call);
  return command;
}

static void command_patience_over(void *context) {
  struct command *command = context;
  if (command->remembered)
    command_free(command);
  else
    command_cancel(command);
}

void command_lost(struct command *command) {
  struct command_table *table = command->table;
  command->attached = (struct command_call){0};
  command->unannounced = false;
  loop_timer_stop(table->loop, &command->announce);
  command->input_owed = 0;
  command->told = false;
  loop_timer_set(table->loop, &command->patience, clock_boot() + table->reattach);
  command_advance(command);
}

void command_cancel(struct command *command) {
  command->attached = (struct command_call){0};
  command->unannounced = false;
  command->cancelled = true;
  loop_timer_stop(command->table->loop, &command->patience);
  command_kill(command, SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_LOST);
  stream_free(&command->streams[0]);
  stream_free(&command->streams[1]);
  command_advance(command);
}

void command_delivered(struct command *command) {
  struct command_table *table = command->table;
  if (!command->told) { /* another status than that of its end */
    command_cancel(command);
    return;
  }
  command->attached = (struct command_call){0};
  command->told = false;
  command->remembered = true;
  for (int i = 0; i < 2; i++)
    spool_trim(&command->streams[i].spool);
  command->remembered_bytes = command->streams[0].spool.capacity + command->streams[1].spool.capacity;
  table->count--;
  table->remembered++;
  table->remembered_bytes += command->remembered_bytes;
  loop_timer_set(table->loop, &command->patience, clock_boot() + table->reattach);
  command_table_trim(table);
}
