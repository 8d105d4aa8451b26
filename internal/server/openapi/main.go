// Command openapi writes the API's OpenAPI description, as the server itself has it, to a file.
package main

import (
	"flag"
	"fmt"
	"os"

	"perdure.dev/perdure/internal/server"
)

func main() {
	out := flag.String("o", "openapi.yaml", "file to write")
	flag.Parse()
	spec, err := server.Spec()
	if err == nil {
		err = os.WriteFile(*out, spec, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}
