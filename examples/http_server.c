/* An HTTP server with an epoch a request, on unmodified Debian libraries: libmicrohttpd serves, jansson parses JSON.
 * POST a JSON array of numbers; the answer is {"count": ..., "sum": ...}.
 *
 * The server never frees the memory of a request, jansson's tree included: destroy releases all of it when the request
 * is over. The answer of libmicrohttpd outlives the request, so it is made outside its scope.
 *
 *   ./http_server 8080        until its standard input ends; port 0 takes a free one */
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <tslab/tslab.h>

enum { THREADS = 2, MOST_BODY = 1 << 20 };

struct request {
  tslab_epoch epoch; /* in which this lies, too */
  size_t length;
  char *body;
};

static struct request *request_begin(void) {
  const tslab_epoch_options options = {
    .struct_size = sizeof options, .label = "request", .flags = TSLAB_EPOCH_DESTROYABLE
  };
  const tslab_epoch epoch = tslab_epoch_open_with(&options);
  struct request *const request = epoch != 0 ? tslab_epoch_calloc(epoch, 1, sizeof *request) : NULL;
  if (request != NULL) request->epoch = epoch;
  return request;
}

static enum MHD_Result request_append(struct request *request, const char *data, size_t size) {
  if (size > MOST_BODY - request->length) return MHD_NO;
  tslab_epoch_enter(request->epoch);
  char *const longer = realloc(request->body, request->length + size);
  tslab_epoch_leave(request->epoch);
  if (longer == NULL) return MHD_NO;
  memcpy(longer + request->length, data, size);
  request->body = longer;
  request->length += size;
  return MHD_YES;
}

/* The text of the answer. This function and jansson allocate in the request's epoch. */
static const char *work(const struct request *request) {
  json_t *const numbers = json_loadb(request->body, request->length, 0, NULL), *value;
  double sum = 0;
  size_t i;
  if (!json_is_array(numbers)) return "{\"error\": \"an array of numbers, please\"}";
  json_array_foreach(numbers, i, value) sum += json_number_value(value);
  return json_dumps(json_pack("{s:i, s:f}", "count", (int)json_array_size(numbers), "sum", sum), 0);
}

static enum MHD_Result answer(struct MHD_Connection *connection, const struct request *request) {
  tslab_epoch_enter(request->epoch);
  const char *const text = work(request);
  tslab_epoch_leave(request->epoch);
  if (text == NULL) return MHD_NO;
  struct MHD_Response *const response =
    MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
  const enum MHD_Result queued = MHD_queue_response(connection, MHD_HTTP_OK, response);
  MHD_destroy_response(response);
  return queued;
}

/* libmicrohttpd calls this when a request's head has come, for each piece of its body, and at last without one. */
static enum MHD_Result serve(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                             const char *version, const char *data, size_t *size, void **state) {
  (void)arg, (void)url, (void)method, (void)version;
  if (*state == NULL) return (*state = request_begin()) != NULL ? MHD_YES : MHD_NO;
  if (*size == 0) return answer(connection, *state);
  const enum MHD_Result appended = request_append(*state, data, *size);
  *size = 0;
  return appended;
}

static void over(void *arg, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode why) {
  (void)arg, (void)connection, (void)why;
  struct request *const request = *state;
  if (request != NULL) tslab_epoch_destroy(request->epoch, NULL);
}

int main(int argc, char **argv) {
  const int port = argc > 1 ? atoi(argv[1]) : 8080;
  json_object_seed(0); /* jansson makes its permanent table now, outside every request */
  struct MHD_Daemon *const daemon =
    MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, (uint16_t)port, NULL, NULL, serve, NULL,
                     MHD_OPTION_THREAD_POOL_SIZE, THREADS, MHD_OPTION_NOTIFY_COMPLETED, over, NULL, MHD_OPTION_END);
  if (daemon == NULL) return 1;
  printf("port %d\n", (int)MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
  fflush(stdout);
  while (getchar() != EOF) {}
  MHD_stop_daemon(daemon);

  tslab_label_stats row;
  for (unsigned i = 0; tslab_stats_label(i, &row, sizeof row) == 0; i++) {
    if (strcmp(row.label, "request") == 0)
      printf("%llu requests, %llu allocations, %llu epochs open\n", (unsigned long long)row.opened,
             (unsigned long long)row.allocations, (unsigned long long)row.open);
  }
  return 0;
}
