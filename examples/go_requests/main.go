// A Go service whose requests call C: what the C side of a request allocates lies in the request's epoch, and goes when
// the request ends, whatever the C code forgot to free.
//
// A scope belongs to a thread, and a goroutine may move to another thread between two calls of C, so inScope holds the
// goroutine on its thread. Go's own memory is not affected: Go does not take it by malloc.
package main

/*
#include <stdlib.h>
#include <string.h>
#include <tslab/tslab.h>

// Stands for a C library: it counts the words of a text, and frees nothing of what it takes.
static size_t words(const char *text) {
  char *copy = strdup(text), *rest = NULL;
  size_t count = 0;
  for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
    if (strdup(word)) count++;
  return count;
}

static tslab_epoch request_open(void) {
  const tslab_epoch_options options = {
    .struct_size = sizeof options, .label = "request", .flags = TSLAB_EPOCH_DESTROYABLE
  };
  return tslab_epoch_open_with(&options);
}
*/
import "C"

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// inScope calls work with an epoch of its own, in which C's malloc allocates; the epoch ends with it.
func inScope(work func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	epoch := C.request_open() // 0 if it cannot be opened: then C allocates as ever
	if epoch != 0 && C.tslab_epoch_enter(epoch) == 0 {
		defer C.tslab_epoch_destroy(epoch, nil)
		defer C.tslab_epoch_leave(epoch)
	}
	work()
}

func count(answer http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	inScope(func() {
		text := C.CString(string(body)) // by C's malloc, so it is the request's as well
		fmt.Fprint(answer, C.words(text))
	})
}

func ask(address string, words int) error {
	answer, err := http.Post(address, "text/plain", strings.NewReader(strings.Repeat("word ", words)))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err == nil && string(said) != fmt.Sprint(words) {
		err = fmt.Errorf("%d words, and the answer is %q", words, said)
	}
	return err
}

func main() {
	const clients, requests = 4, 250
	server := httptest.NewServer(http.HandlerFunc(count))
	var waiting sync.WaitGroup
	failed := make(chan error, clients*requests)
	for client := range clients {
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			for i := range requests {
				if err := ask(server.URL, 1+(client*requests+i)%100); err != nil {
					failed <- err
				}
			}
		}()
	}
	waiting.Wait()
	server.Close()
	close(failed)
	for err := range failed {
		fmt.Println(err)
		os.Exit(1)
	}

	var row C.tslab_label_stats
	for i := C.uint(0); C.tslab_stats_label(i, &row, C.size_t(unsafe.Sizeof(row))) == 0; i++ {
		if C.GoString(&row.label[0]) == "request" {
			fmt.Printf("%d requests, %d allocations, %d bytes live\n", row.opened, row.allocations, row.live_bytes)
			if row.opened == clients*requests && row.open == 0 && row.allocations > row.opened && row.live_bytes == 0 {
				return
			}
		}
	}
	os.Exit(1)
}
