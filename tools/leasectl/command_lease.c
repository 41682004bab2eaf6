/*
 * acquire, list, get, release, delete, token: one call and its answer.
 */
#include "base/buffer.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/text.h"
#include "tools/leasectl/commands.h"
#include "tools/leasectl/output.h"
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVICE "/sandbox.lease.v1.LeaseService/"

enum { OUTPUT_LIMIT = 4194304 };

static int lease_print(const struct invocation *invocation, const Sandbox__Lease__V1__Lease *lease, const char *before,
                       const char *after) {
  if (!invocation->json) {
    output_lease_table((Sandbox__Lease__V1__Lease *const[]){(Sandbox__Lease__V1__Lease *)lease}, 1, true);
    return 0;
  }
  CLEANUP_BUFFER struct buffer out;
  buffer_init(&out, OUTPUT_LIMIT);
  if (buffer_append_string(&out, before) < 0 || output_lease_json(&out, lease) < 0 ||
      buffer_append_string(&out, after) < 0 || output_write(&out) < 0)
    return 1;
  return 0;
}

static ProtobufCMessage *lease_call(struct invocation *invocation, const char *method, const ProtobufCMessage *request,
                                    const ProtobufCMessageDescriptor *response, struct error **err) {
  if (!invocation->connection && invocation_connect(invocation, err) < 0)
    return NULL;
  return connection_call(invocation->connection, method, request, response, err);
}

static int answer_failed(const struct invocation *invocation, struct error **err) {
  int status = output_failure(*err, invocation->json);
  error_free(err);
  return status;
}

/* A key nobody else uses: the acquire is then not a replay of anything. */
static void key_make(char key[static 33]) {
  uint8_t bytes[16];
  random_bytes(bytes, sizeof bytes);
  text_hex(bytes, sizeof bytes, key);
}

int command_acquire(struct invocation *invocation, int count, char **arguments) {
  static const struct option options[] = {{"pool", required_argument, NULL, 'p'},
                                          {"ttl", required_argument, NULL, 't'},
                                          {"key", required_argument, NULL, 'k'},
                                          COMMON_OPTIONS};
  Sandbox__Lease__V1__AcquireLeaseRequest request = SANDBOX__LEASE__V1__ACQUIRE_LEASE_REQUEST__INIT;
  char fresh[33];
  key_make(fresh);
  request.pool = (char *)"coding";
  request.idempotency_key = fresh;
  for (int option; (option = getopt_long(count, arguments, "p:t:k:", options, NULL)) != -1;) {
    long seconds;
    if (option == 'p')
      request.pool = optarg;
    else if (option == 'k')
      request.idempotency_key = optarg;
    else if (option == 't' && number_parse(optarg, 1, INT_MAX, &seconds) == 0) {
      request._ttl_seconds_case = SANDBOX__LEASE__V1__ACQUIRE_LEASE_REQUEST___TTL_SECONDS_TTL_SECONDS;
      request.ttl_seconds = seconds;
    } else if (!invocation_option(invocation, option))
      return option == 't' ? usage_error("acquire", "--ttl wants a number of seconds, 1 or more") : usage_refused();
  }
  if (optind != count)
    return usage_error("acquire", "takes no argument: %s", arguments[optind]);
  CLEANUP_ERROR struct error *err = NULL;
  Sandbox__Lease__V1__AcquireLeaseResponse *response = (Sandbox__Lease__V1__AcquireLeaseResponse *)lease_call(
      invocation, SERVICE "AcquireLease", &request.base, &sandbox__lease__v1__acquire_lease_response__descriptor, &err);
  if (!response)
    return answer_failed(invocation, &err);
  int status = 1;
  if (!response->lease)
    fprintf(stderr, "leasectl: the answer holds no Lease\n");
  else if (invocation->json)
    status = lease_print(invocation, response->lease,
                         "{\"lease\":", response->replayed ? ",\"replayed\":true}\n" : ",\"replayed\":false}\n");
  else
    status = puts(response->lease->id) < 0;
  protobuf_c_message_free_unpacked(&response->base, NULL);
  return status;
}

static int page_print(const struct invocation *invocation, const Sandbox__Lease__V1__ListLeasesResponse *page,
                      bool first) {
  if (!invocation->json) {
    if (first && page->n_leases == 0)
      puts("No active Leases.");
    else if (page->n_leases)
      output_lease_table(page->leases, page->n_leases, first);
    return 0;
  }
  CLEANUP_BUFFER struct buffer out;
  buffer_init(&out, OUTPUT_LIMIT);
  for (size_t i = 0; i < page->n_leases; i++)
    if ((!(first && i == 0) && buffer_append_byte(&out, ',') < 0) || output_lease_json(&out, page->leases[i]) < 0)
      return -1;
  return output_write(&out);
}

int command_list(struct invocation *invocation, int count, char **arguments) {
  static const struct option options[] = {{"pool", required_argument, NULL, 'p'}, COMMON_OPTIONS};
  Sandbox__Lease__V1__ListLeasesRequest request = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST__INIT;
  for (int option; (option = getopt_long(count, arguments, "p:", options, NULL)) != -1;) {
    if (invocation_option(invocation, option))
      continue;
    if (option != 'p')
      return usage_refused();
    request._pool_case = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___POOL_POOL;
    request.pool = optarg;
  }
  if (optind != count)
    return usage_error("list", "takes no argument: %s", arguments[optind]);
  request._limit_case = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___LIMIT_LIMIT;
  request.limit = LIMIT_LIST_MAX;
  CLEANUP_MEMORY char *cursor = NULL;
  for (bool first = true, more = true; more; first = false) {
    CLEANUP_ERROR struct error *err = NULL;
    Sandbox__Lease__V1__ListLeasesResponse *page = (Sandbox__Lease__V1__ListLeasesResponse *)lease_call(
        invocation, SERVICE "ListLeases", &request.base, &sandbox__lease__v1__list_leases_response__descriptor, &err);
    if (!page)
      return answer_failed(invocation, &err);
    if (first && invocation->json)
      fputs("{\"leases\":[", stdout);
    int failed = page_print(invocation, page, first);
    more = page->_next_cursor_case == SANDBOX__LEASE__V1__LIST_LEASES_RESPONSE___NEXT_CURSOR_NEXT_CURSOR;
    memory_free(cursor);
    cursor = more ? memory_string(page->next_cursor) : NULL;
    protobuf_c_message_free_unpacked(&page->base, NULL);
    if (failed || (more && !cursor))
      return 1;
    request._cursor_case = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___CURSOR_CURSOR;
    request.cursor = cursor;
  }
  return invocation->json && puts("]}") < 0;
}

static const char *one_lease(struct invocation *invocation, int count, char **arguments) {
  static const struct option options[] = {COMMON_OPTIONS};
  const char *command = arguments[0];
  for (int option; (option = getopt_long(count, arguments, "", options, NULL)) != -1;) {
    if (!invocation_option(invocation, option)) {
      usage_refused();
      return NULL;
    }
  }
  if (optind + 1 != count) {
    usage_error(command, "wants one Lease id");
    return NULL;
  }
  return arguments[optind];
}

int command_get(struct invocation *invocation, int count, char **arguments) {
  Sandbox__Lease__V1__GetLeaseRequest request = SANDBOX__LEASE__V1__GET_LEASE_REQUEST__INIT;
  request.lease_id = (char *)one_lease(invocation, count, arguments);
  if (!request.lease_id)
    return 2;
  CLEANUP_ERROR struct error *err = NULL;
  Sandbox__Lease__V1__GetLeaseResponse *response = (Sandbox__Lease__V1__GetLeaseResponse *)lease_call(
      invocation, SERVICE "GetLease", &request.base, &sandbox__lease__v1__get_lease_response__descriptor, &err);
  if (!response)
    return answer_failed(invocation, &err);
  int status = response->lease ? lease_print(invocation, response->lease, "{\"lease\":", "}\n") : 1;
  protobuf_c_message_free_unpacked(&response->base, NULL);
  return status;
}

int command_release(struct invocation *invocation, int count, char **arguments) {
  Sandbox__Lease__V1__ReleaseLeaseRequest request = SANDBOX__LEASE__V1__RELEASE_LEASE_REQUEST__INIT;
  request.lease_id = (char *)one_lease(invocation, count, arguments);
  if (!request.lease_id)
    return 2;
  CLEANUP_ERROR struct error *err = NULL;
  Sandbox__Lease__V1__ReleaseLeaseResponse *response = (Sandbox__Lease__V1__ReleaseLeaseResponse *)lease_call(
      invocation, SERVICE "ReleaseLease", &request.base, &sandbox__lease__v1__release_lease_response__descriptor, &err);
  if (!response)
    return answer_failed(invocation, &err);
  int status = response->lease ? lease_print(invocation, response->lease, "{\"lease\":", "}\n") : 1;
  protobuf_c_message_free_unpacked(&response->base, NULL);
  return status;
}

int command_delete(struct invocation *invocation, int count, char **arguments) {
  Sandbox__Lease__V1__DeleteLeaseRequest request = SANDBOX__LEASE__V1__DELETE_LEASE_REQUEST__INIT;
  request.lease_id = (char *)one_lease(invocation, count, arguments);
  if (!request.lease_id)
    return 2;
  CLEANUP_ERROR struct error *err = NULL;
  ProtobufCMessage *response = lease_call(invocation, SERVICE "DeleteLease", &request.base,
                                          &sandbox__lease__v1__delete_lease_response__descriptor, &err);
  if (!response)
    return answer_failed(invocation, &err);
  protobuf_c_message_free_unpacked(response, NULL);
  return invocation->json && puts("{}") < 0;
}

int command_token(struct invocation *invocation, int count, char **arguments) {
  static const struct option options[] = {{"lifetime", required_argument, NULL, 'l'}, COMMON_OPTIONS};
  long lifetime = LIMIT_TOKEN_LIFETIME_SECONDS;
  for (int option; (option = getopt_long(count, arguments, "l:", options, NULL)) != -1;)
    if (!invocation_option(invocation, option) &&
        (option != 'l' || number_parse(optarg, 1, LIMIT_TOKEN_LIFETIME_SECONDS, &lifetime) < 0))
      return option == 'l' ? usage_error("token", "--lifetime wants 1 to 300 seconds") : usage_refused();
  if (optind != count)
    return usage_error("token", "takes no argument: %s", arguments[optind]);
  CLEANUP_ERROR struct error *err = NULL;
  CLEANUP_MEMORY char *token =
      invocation_settle(invocation, &err) == 0 ? settings_mint(&invocation->settings, (int)lifetime, &err) : NULL;
  if (!token)
    return answer_failed(invocation, &err);
  return (invocation->json ? printf("{\"token\":\"%s\"}\n", token) : printf("%s\n", token)) < 0;
}
