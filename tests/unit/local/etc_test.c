/* The /etc of sandboxes: its own files, places for the host's, and nothing that lives in it replaced. */
#include "backend/local/etc.h"
#include "tests/unit/local/check.h"
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/etc_test.XXXXXX";

static const char *path_of(const char *name) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void write_file(const char *name, const char *text) {
  int file = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  assert_true(file >= 0);
  assert_int_equal(write(file, text, strlen(text)), strlen(text));
  close(file);
}

static ino_t number_of(const char *name) {
  struct stat status;
  assert_int_equal(stat(path_of(name), &status), 0);
  return status.st_ino;
}

static int make_folder(void **state) {
  (void)state;
  if (mkdtemp(folder) == NULL || mkdir(path_of("host"), 0755) != 0)
    return -1;
  write_file("host/services", "ssh 22/tcp\n");
  write_file("host/shadow", "secret\n");
  return mkdir(path_of("host/ssl"), 0755) | mkdir(path_of("host/ssl/certs"), 0755) |
         mkdir(path_of("host/java-17-openjdk"), 0755);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place) {
  (void)status;
  (void)type;
  (void)place;
  return remove(path);
}

static int drop_folder(void **state) {
  (void)state;
  return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static int make(struct local_etc *etc, struct error **err) {
  char directory[64], host[64];
  snprintf(directory, sizeof directory, "%s/etc", folder);
  snprintf(host, sizeof host, "%s/host", folder);
  return local_etc_make(directory, host, etc, err);
}

static bool has(const struct local_etc *etc, const char *name) {
  for (size_t i = 0; i < etc->live_count; i++)
    if (strcmp(etc->live[i], name) == 0)
      return true;
  return false;
}

static void it_has_its_own_files_and_places_for_some_of_the_hosts(void **state) {
  (void)state;
  CLEANUP_ERROR struct error *err = NULL;
  struct local_etc etc;
  struct stat status;
  assert_int_equal(make(&etc, &err), 0);
  assert_int_equal(etc.live_count, 3);
  assert_true(has(&etc, "services") && has(&etc, "ssl/certs") && has(&etc, "java-17-openjdk"));
  assert_int_equal(stat(path_of("etc/passwd"), &status), 0);
  assert_int_equal(status.st_mode & 0777, 0644);
  assert_int_equal(stat(path_of("etc/services"), &status), 0);
  assert_int_equal(status.st_size, 0); /* a place, to be mounted on */
  assert_int_equal(stat(path_of("etc/ssl/certs"), &status), 0);
  assert_true(S_ISDIR(status.st_mode));
  assert_int_not_equal(access(path_of("etc/shadow"), F_OK), 0);
}

/* Living sandboxes have these very files mounted. */
static void what_is_right_is_left_alone(void **state) {
  (void)state;
  CLEANUP_ERROR struct error *err = NULL;
  struct local_etc etc;
  ino_t passwd = number_of("etc/passwd"), services = number_of("etc/services"), hosts = number_of("etc/hosts");
  write_file("etc/hosts", "127.0.0.1 elsewhere\n");
  assert_int_equal(make(&etc, &err), 0);
  assert_int_equal(number_of("etc/passwd"), passwd);
  assert_int_equal(number_of("etc/services"), services);
  assert_int_not_equal(number_of("etc/hosts"), hosts); /* wrong: made anew */
}

static void what_cannot_be_made_is_told(void **state) {
  (void)state;
  CLEANUP_ERROR struct error *err = NULL;
  struct local_etc etc;
  assert_int_equal(local_etc_make("/nowhere/etc", "/etc", &etc, &err), -1);
  assert_non_null(strstr(error_detail(err), "/nowhere/etc"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(it_has_its_own_files_and_places_for_some_of_the_hosts),
    cmocka_unit_test(what_is_right_is_left_alone),
    cmocka_unit_test(what_cannot_be_made_is_told),
  };
  return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
