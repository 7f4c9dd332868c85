/* Memory that OpenSSL keeps for each thread and for the process. */
#include "hazards.h"

#include <openssl/err.h>
#include <openssl/evp.h>

static void thread_errors_first(void) {
  ERR_clear_error();
  ERR_raise_data(ERR_LIB_USER, 42, "raised %s", "inside");
}
static void thread_errors_later(void) {
  CHECK_COUNT(ERR_GET_REASON(ERR_get_error()), ==, 42);
  CHECK_COUNT(ERR_get_error(), ==, 0);
}

static void hash(void) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length;
  CHECK(EVP_Digest("abc", 3, digest, &length, EVP_sha256(), NULL) == 1);
  CHECK_COUNT(length, ==, 32);
  CHECK_COUNT(digest[0], ==, 0xBA);
}
static void algorithms_first(void) { hash(); }
static void algorithms_later(void) { hash(); }

CACHES(thread_errors);
CACHES(algorithms);
