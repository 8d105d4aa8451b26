// Command generate writes the data file of the example into the current directory.
package main

import (
	"compress/gzip"
	"fmt"
	"os"

	"perdure.dev/perdure/examples/invoices"
)

func main() {
	if err := run(invoices.DataName); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := invoices.Generate(z); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}
