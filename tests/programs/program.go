// Goroutines that hand memory to C and back: C.CString and C.malloc are malloc of whatever is preloaded.
package main

/*
#include <stdlib.h>
#include <string.h>

static char *twice(const char *word) {
	size_t length = strlen(word);
	char *result = malloc(2 * length + 1);
	memcpy(result, word, length);
	memcpy(result + length, word, length + 1);
	return result;
}
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"
)

func work(part, count int) int {
	sum := 0
	kept := make([]*C.char, 100)
	for i := 0; i < count; i++ {
		word := C.CString(strings.Repeat("x", i%50) + strconv.Itoa(part))
		result := C.twice(word)
		C.free(unsafe.Pointer(word))
		sum += len(C.GoString(result))
		C.free(unsafe.Pointer(kept[i%100]))
		kept[i%100] = result
	}
	for _, word := range kept {
		C.free(unsafe.Pointer(word))
	}
	return sum
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	sums := make([]int, 8)
	var all sync.WaitGroup
	for part := range sums {
		all.Add(1)
		go func(part int) {
			defer all.Done()
			sums[part] = work(part, count/8)
		}(part)
	}
	all.Wait()
	fmt.Println(sums)
	C.exit(11) // os.Exit leaves without C's exit, and so without a word from the library
}
