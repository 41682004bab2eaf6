#include "backend/kubernetes/exec_plugin.h"

#include "base/buffer.h"
#include "base/memory.h"
#include <signal.h>
#include <stdbool.h>
#include <string.h>

enum { OUTPUT_BYTES = 1 << 20, PLUGIN_MILLISECONDS = 60000, ENVIRONMENT_MAX = 4096 };

extern char **environ;

struct exec_plugin {
  const struct kubeconfig *config;
  exec_plugin_done *done; /* NULL once cancelled */
  void *context;
  uv_process_t process;
  uv_pipe_t output;
  uv_timer_t timer;
  struct buffer text;
  unsigned handles; /* open */
  bool exited, ended, late;
  int64_t status;
  int signal;
};

static void plugin_free(uv_handle_t *handle) {
  struct exec_plugin *plugin = handle->data;
  if (--plugin->handles > 0)
    return;
  if (plugin->text.data)
    memory_wipe(plugin->text.data, plugin->text.capacity);
  buffer_free(&plugin->text);
  memory_free(plugin);
}

static void plugin_close(struct exec_plugin *plugin) {
  uv_handle_t *handles[] = {(uv_handle_t *)&plugin->process, (uv_handle_t *)&plugin->output,
                            (uv_handle_t *)&plugin->timer};
  for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++)
    if (handles[i]->data && !uv_is_closing(handles[i]))
      uv_close(handles[i], plugin_free);
}

static int plugin_read(struct exec_plugin *plugin, struct exec_credential *credential, struct error **err) {
  if (plugin->late)
    return error_set_detail(err, REASON_SERVER_UNAVAILABLE, "it took longer than 60 s");
  if (plugin->status != 0 || plugin->signal != 0)
    return error_set_detail(err, REASON_SERVER_UNAVAILABLE, "it ended with code %lld, signal %d",
                            (long long)plugin->status, plugin->signal);
  return exec_credential_parse(credential, buffer_text(&plugin->text), plugin->text.length,
                               plugin->config->exec.api_version, err);
}

/* It has exited and its output has ended: there is nothing more to come. */
static void plugin_settle(struct exec_plugin *plugin) {
  if (!plugin->exited || !plugin->ended)
    return;
  struct exec_credential credential = {.expires = INT64_MAX};
  CLEANUP_ERROR struct error *err = NULL;
  exec_plugin_done *done = plugin->done;
  plugin->done = NULL;
  plugin_close(plugin);
  if (!done)
    return;
  if (plugin_read(plugin, &credential, &err) < 0) {
    error_context(&err, "credential plug-in %s", plugin->config->exec.command);
    done(plugin->context, NULL, err);
  } else {
    done(plugin->context, &credential, NULL);
  }
  exec_credential_free(&credential);
}

static void on_exit(uv_process_t *process, int64_t status, int signal) {
  struct exec_plugin *plugin = process->data;
  plugin->exited = true;
  plugin->status = status;
  plugin->signal = signal;
  plugin_settle(plugin);
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room) {
  struct exec_plugin *plugin = handle->data;
  (void)suggested;
  *room = uv_buf_init(NULL, 0);
  uint8_t *space = buffer_reserve(&plugin->text, 4096);
  if (space)
    *room = uv_buf_init((char *)space, 4096);
}

static void on_output(uv_stream_t *stream, ssize_t length, const uv_buf_t *room) {
  struct exec_plugin *plugin = stream->data;
  (void)room;
  if (length > 0) {
    buffer_commit(&plugin->text, (size_t)length);
    return;
  }
  if (length == 0)
    return;
  if (length == UV_ENOBUFS) /* more than anybody needs */
    uv_process_kill(&plugin->process, SIGKILL);
  uv_read_stop(stream);
  plugin->ended = true;
  plugin_settle(plugin);
}

static void on_late(uv_timer_t *timer) {
  struct exec_plugin *plugin = timer->data;
  plugin->late = true;
  plugin->ended = true; /* a child of it may hold the pipe open */
  uv_read_stop((uv_stream_t *)&plugin->output);
  uv_process_kill(&plugin->process, SIGKILL);
  plugin_settle(plugin);
}

/* Our environment without the platform's settings, then what the kubeconfig adds, then `info`. The array alone is
 * allocated. */
static char **environment_make(const struct kubeconfig *config, char *info) {
  char **list = memory_array(ENVIRONMENT_MAX + 2, sizeof *list);
  size_t count = 0;
  if (!list)
    return NULL;
  for (char **at = environ; *at && count < ENVIRONMENT_MAX / 2; at++)
    if (strncmp(*at, "SANDBOX_", 8) != 0 && strncmp(*at, "KUBERNETES_EXEC_INFO=", 21) != 0)
      list[count++] = *at;
  for (char **at = config->exec.environment; *at && count < ENVIRONMENT_MAX; at++)
    list[count++] = *at;
  list[count] = info;
  return list;
}

static int plugin_spawn(struct exec_plugin *plugin, uv_loop_t *loop) {
  const struct kubeconfig_exec *exec = &plugin->config->exec;
  CLEANUP_BUFFER struct buffer info;
  buffer_init(&info, OUTPUT_BYTES);
  if (buffer_append_string(&info, "KUBERNETES_EXEC_INFO=") < 0 || exec_credential_info(&info, plugin->config) < 0)
    return UV_ENOMEM;
  size_t count = 0;
  while (exec->arguments[count])
    count++;
  CLEANUP_MEMORY char **arguments = memory_array(count + 2, sizeof(char *));
  CLEANUP_MEMORY char **environment = environment_make(plugin->config, (char *)info.data);
  if (!arguments || !environment)
    return UV_ENOMEM;
  arguments[0] = exec->command;
  memcpy(arguments + 1, exec->arguments, count * sizeof(char *));
  uv_stdio_container_t streams[3] = {
      {.flags = UV_IGNORE},
      {.flags = (uv_stdio_flags)(UV_CREATE_PIPE | UV_WRITABLE_PIPE), .data.stream = (uv_stream_t *)&plugin->output},
      {.flags = UV_IGNORE}};
  const uv_process_options_t options = {.file = exec->command,
                                        .args = arguments,
                                        .env = environment,
                                        .stdio = streams,
                                        .stdio_count = 3,
                                        .exit_cb = on_exit};
  plugin->process.data = plugin;
  plugin->handles++;
  return uv_spawn(loop, &plugin->process, &options);
}

struct exec_plugin *exec_plugin_run(uv_loop_t *loop, const struct kubeconfig *config, exec_plugin_done *done,
                                    void *context, struct error **err) {
  struct exec_plugin *plugin = memory_zero(sizeof *plugin);
  if (!plugin) {
    error_set_memory(err);
    return NULL;
  }
  plugin->config = config;
  buffer_init(&plugin->text, OUTPUT_BYTES);
  uv_pipe_init(loop, &plugin->output, 0);
  uv_timer_init(loop, &plugin->timer);
  plugin->output.data = plugin->timer.data = plugin;
  plugin->handles = 2;
  int failure = plugin_spawn(plugin, loop);
  if (failure == 0)
    failure = uv_read_start((uv_stream_t *)&plugin->output, on_room, on_output);
  if (failure < 0) {
    error_set_detail(err, REASON_SERVER_UNAVAILABLE, "credential plug-in %s: %s", config->exec.command,
                     uv_strerror(failure));
    plugin_close(plugin);
    return NULL;
  }
  plugin->done = done;
  plugin->context = context;
  uv_timer_start(&plugin->timer, on_late, PLUGIN_MILLISECONDS, 0);
  return plugin;
}

void exec_plugin_cancel(struct exec_plugin *plugin) {
  plugin->done = NULL;
  uv_process_kill(&plugin->process, SIGKILL);
  plugin->ended = true;
  uv_read_stop((uv_stream_t *)&plugin->output);
  plugin_settle(plugin);
}
