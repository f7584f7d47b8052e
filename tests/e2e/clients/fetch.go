// SPDX-License-Identifier: Apache-2.0
// One request with net/http: fetch URL. Prints the body; a failure is Go's own error.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	answer, err := http.Get(os.Args[1])
	if err == nil {
		_, err = io.Copy(os.Stdout, answer.Body)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
