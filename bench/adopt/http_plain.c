/* examples/http_server.c as it would be without epochs: each request frees what it took. http_server.py loads both. */
#include <microhttpd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

enum { THREADS = 2, MOST_BODY = 1 << 20 };

struct request {
  size_t length;
  char *body;
};

static enum MHD_Result request_append(struct request *request, const char *data, size_t size) {
  if (size > MOST_BODY - request->length) return MHD_NO;
  char *const longer = realloc(request->body, request->length + size);
  if (longer == NULL) return MHD_NO;
  memcpy(longer + request->length, data, size);
  request->body = longer;
  request->length += size;
  return MHD_YES;
}

static char *work(const struct request *request) {
  json_t *const numbers = json_loadb(request->body, request->length, 0, NULL), *value;
  double sum = 0;
  size_t i;
  char *text = NULL;
  if (json_is_array(numbers)) {
    json_array_foreach(numbers, i, value) sum += json_number_value(value);
    json_t *const answer = json_pack("{s:i, s:f}", "count", (int)json_array_size(numbers), "sum", sum);
    text = json_dumps(answer, 0);
    json_decref(answer);
  }
  json_decref(numbers);
  return text ? text : strdup("{\"error\": \"an array of numbers, please\"}");
}

static enum MHD_Result answer(struct MHD_Connection *connection, const struct request *request) {
  char *const text = work(request);
  if (text == NULL) return MHD_NO;
  struct MHD_Response *const response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_COPY);
  const enum MHD_Result queued = MHD_queue_response(connection, MHD_HTTP_OK, response);
  MHD_destroy_response(response);
  free(text);
  return queued;
}

static enum MHD_Result serve(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                             const char *version, const char *data, size_t *size, void **state) {
  (void)arg, (void)url, (void)method, (void)version;
  if (*state == NULL) return (*state = calloc(1, sizeof(struct request))) != NULL ? MHD_YES : MHD_NO;
  if (*size == 0) return answer(connection, *state);
  const enum MHD_Result appended = request_append(*state, data, *size);
  *size = 0;
  return appended;
}

static void over(void *arg, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode why) {
  (void)arg, (void)connection, (void)why;
  struct request *const request = *state;
  if (request != NULL) free(request->body);
  free(request);
}

int main(int argc, char **argv) {
  const int port = argc > 1 ? atoi(argv[1]) : 8080;
  struct MHD_Daemon *const daemon =
    MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, (uint16_t)port, NULL, NULL, serve, NULL,
                     MHD_OPTION_THREAD_POOL_SIZE, THREADS, MHD_OPTION_NOTIFY_COMPLETED, over, NULL, MHD_OPTION_END);
  if (daemon == NULL) return 1;
  printf("port %d\n", (int)MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
  fflush(stdout);
  while (getchar() != EOF) {}
  MHD_stop_daemon(daemon);
  return 0;
}
