/*
 * The OCI configuration that runsc reads. Root and mounts come from the scaffold; what the sandbox writes is memory of
 * gVisor's own, because gVisor can give files only to users that the launcher's user namespace knows, and that is one.
 */
#include "backend/local/launcher/launch.h"
#include "backend/local/protocol.h"
#include "base/buffer.h"
#include "base/json.h"

#include <inttypes.h>
#include <string.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

static int write_strings(struct buffer *config, const char *const *strings) {
  int failed = 0;
  for (size_t i = 0; strings[i] != NULL; i++) {
    failed |= i > 0 ? buffer_append_byte(config, ',') : 0;
    failed |= json_write_string(config, strings[i], strlen(strings[i]));
  }
  return failed;
}

static int write_process(struct buffer *config) {
  static const char *const arguments[] = {"/run/guest",      "guest",         "/run/channel/" LAUNCH_CHANNEL_SOCKET,
                                          TEXT(SANDBOX_UID), "/run/sandboxd", "serve",
                                          "--listen-fd",     TEXT(3),         NULL};
  int failed = buffer_append_string(config, "\"process\":{\"user\":{\"uid\":0,\"gid\":0},\"cwd\":\"" SANDBOX_WORKSPACE
                                            "\",\"noNewPrivileges\":true,\"args\":[");
  failed |= write_strings(config, arguments);
  failed |= buffer_append_string(config, "],\"env\":[");
  failed |= write_strings(config, launch_environment);
  /* For the guest program's first moment: it becomes the sandbox's user and has none afterwards. */
  failed |= buffer_append_string(config, "],\"capabilities\":{");
  static const char *const sets[] = {"bounding", "effective", "permitted"};
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
    failed |= buffer_append_format(config, "%s\"%s\":[\"CAP_SETUID\",\"CAP_SETGID\"]", i > 0 ? "," : "", sets[i]);
  return failed | buffer_append_string(config, "}},");
}

static int write_memory_mount(struct buffer *config, const char *path, const char *mode, uint64_t bytes) {
  return buffer_append_format(
      config,
      ",{\"destination\":\"%s\",\"type\":\"tmpfs\",\"source\":\"tmpfs\",\"options\":[\"nosuid\","
      "\"nodev\",\"mode=%s\",\"size=%" PRIu64 "\"]}",
      path, mode, bytes);
}

static int write_mounts(const struct launch *launch, struct buffer *config) {
  int failed = buffer_append_string(
    config, "\"mounts\":[{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"},"
            "{\"destination\":\"/dev\",\"type\":\"tmpfs\",\"source\":\"tmpfs\",\"options\":[\"nosuid\",\"mode=755\"]},"
            "{\"destination\":\"/run/channel\",\"type\":\"bind\",\"source\":\"" LAUNCH_CHANNEL
            "\",\"options\":[\"rw\",\"rbind\"]}");
  failed |= write_memory_mount(config, SANDBOX_WORKSPACE, "1777", launch->bytes);
  failed |= write_memory_mount(config, SANDBOX_HOME, "1777", launch->bytes / LAUNCH_GVISOR_PART);
  failed |= write_memory_mount(config, "/tmp", "1777", launch->bytes / LAUNCH_GVISOR_PART);
  failed |= write_memory_mount(config, "/dev/shm", "1777", launch->bytes / LAUNCH_GVISOR_PART);
  return failed | buffer_append_string(config, "],");
}

int launch_config(const struct launch *launch, struct buffer *config) {
  int failed = buffer_append_string(
      config, "{\"ociVersion\":\"1.0.0\",\"hostname\":\"sandbox\",\"root\":{\"path\":\"" LAUNCH_SCAFFOLD
              "/root\",\"readonly\":true},");
  failed |= write_process(config);
  failed |= write_mounts(launch, config);
  failed |= buffer_append_string(
      config, "\"linux\":{\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"network\"},{\"type\":\"ipc\"},"
              "{\"type\":\"uts\"},{\"type\":\"mount\"}]}}");
  return failed != 0 ? -1 : 0;
}
