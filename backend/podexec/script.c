/*
 * Bringing sandboxd up in a container: see script.h.
 */
#include "backend/podexec/script.h"

#include <stdio.h>
#include <string.h>

/* $1 digest, $2 size, $3 workspace, $4 an installed program or nothing, then the directories to try. An installed
 * program that is another one (exit code 3) or does not run here is passed over. A directory is good when a file made
 * in it can be run. */
static const char script_text[] =
    "digest=$1 size=$2 workspace=$3 program=$4\n"
    "shift 4\n"
    "if [ -n \"$program\" ] && [ -x \"$program\" ]; then\n"
    "  \"$program\" connect --digest \"$digest\" --workspace \"$workspace\"\n"
    "  case $? in 3 | 126 | 127) ;; *) exit ;; esac\n"
    "fi\n"
    "umask 077\n"
    "for directory; do\n"
    "  file=$directory/.sandboxd-$$\n"
    "  { printf '#!/bin/sh\\n' >\"$file\" && chmod 700 \"$file\" && \"$file\"; } 2>/dev/null || {\n"
    "    rm -f \"$file\" 2>/dev/null\n"
    "    continue\n"
    "  }\n"
    "  command -v head >/dev/null || {\n"
    "    rm -f \"$file\"\n"
    "    break\n"
    "  }\n"
    "  echo 'sandboxd: want'\n"
    "  head -c \"$size\" >\"$file\"\n"
    "  exec 3<\"$file\"\n"
    "  rm -f \"$file\"\n"
    "  exec /proc/self/fd/3 connect --digest \"$digest\" --workspace \"$workspace\"\n"
    "done\n"
    "echo 'sandboxd: none'\n";

/* --- the request --- */

static int append_encoded(struct buffer *out, const char *text) {
  static const char unreserved[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  for (; *text; text++)
    if (strchr(unreserved, *text) ? buffer_append(out, text, 1)
                                  : buffer_append_format(out, "%%%02X", (unsigned)(unsigned char)*text))
      return -1;
  return 0;
}

static int append_part(struct buffer *out, const char *name, const char *text) {
  return buffer_append_string(out, name) != 0 || append_encoded(out, text) != 0 ? -1 : 0;
}

int script_target(struct buffer *out, const char *prefix, const struct podexec_options *where,
                  const char *const *words) {
  if (buffer_append_string(out, prefix) != 0 || append_part(out, "/api/v1/namespaces/", where->namespace_) != 0 ||
      append_part(out, "/pods/", where->pod) != 0 ||
      buffer_append_string(out, "/exec?stdin=true&stdout=true&stderr=true&tty=false") != 0 ||
      (where->container && append_part(out, "&container=", where->container) != 0))
    return -1;
  for (; *words; words++)
    if (append_part(out, "&command=", *words) != 0)
      return -1;
  return 0;
}

void script_words(const struct podexec_options *where, const char *words[static 16], char *size) {
  const char *workspace = where->workspace ? where->workspace : "/workspace";
  const char *installed = where->installed ? where->installed : "";
  const char *digest = where->program->digest;
  const char *const all[] = {"sh",      "-c",       script_text, "sandboxd", digest, size,      workspace,
                             installed, "/dev/shm", "/tmp",      "/var/tmp", "/run", workspace, NULL};
  snprintf(size, 24, "%zu", where->program->length);
  memcpy(words, all, sizeof all);
}

int script_target_start(struct buffer *out, const char *prefix, const struct podexec_options *where) {
  const char *words[16];
  char size[24];
  script_words(where, words, size);
  return script_target(out, prefix, where, words);
}

/* --- its answers --- */

static enum script_answer read_line(const struct script_reader *reader) {
  static const struct {
    const char *line;
    enum script_answer answer;
  } answers[] = {
      {"sandboxd: want", SCRIPT_WANT}, {"sandboxd: none", SCRIPT_NONE}, {"sandboxd: ready", SCRIPT_READY}};
  for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
    if (reader->length == strlen(answers[i].line) && memcmp(reader->line, answers[i].line, reader->length) == 0)
      return answers[i].answer;
  return SCRIPT_NOTHING;
}

enum script_answer script_read(struct script_reader *reader, const uint8_t *bytes, size_t length, size_t *used) {
  for (*used = 0; *used < length;) {
    uint8_t byte = bytes[(*used)++];
    reader->noise++;
    if (byte != '\n') {
      if (reader->length < sizeof reader->line)
        reader->line[reader->length] = (char)byte;
      reader->length += reader->length <= sizeof reader->line;
      continue;
    }
    enum script_answer answer = read_line(reader);
    reader->length = 0;
    if (answer != SCRIPT_NOTHING)
      return answer;
  }
  return SCRIPT_NOTHING;
}
