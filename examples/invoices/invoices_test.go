package invoices_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"perdure.dev/perdure/examples/invoices"
	"perdure.dev/perdure/internal/model/scripted"
)

func TestDataFileIsWhatTheGeneratorWrites(t *testing.T) {
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if err := invoices.Generate(b); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Fatal("two runs of the generator differ")
	}
	z, err := gzip.NewReader(strings.NewReader(invoices.Data()))
	if err != nil {
		t.Fatal(err)
	}
	stored, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored, first.Bytes()) {
		t.Fatalf("%s is stale: run go generate in this directory", invoices.DataName)
	}
}

func TestDataIsDirtyInEveryWay(t *testing.T) {
	f, err := invoices.Count()
	if err != nil {
		t.Fatal(err)
	}
	if f.Rows != invoices.Rows || f.Lines >= f.Rows || f.Invoices >= f.Lines {
		t.Fatalf("copies and corrections are missing: %+v", f)
	}
	var b strings.Builder
	if err := invoices.Generate(&b); err != nil {
		t.Fatal(err)
	}
	for what, part := range map[string]string{
		"a date in another notation": ".01.2025,", "an amount in another notation": ",\"1.", "an empty due date": ",,", "a lower-case currency": ",eur,",
		"a padded name": ", ", "a credit note": ",-",
	} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("there is no row with %s (%q)", what, part)
		}
	}
}

func TestScriptIsValid(t *testing.T) {
	s, err := scripted.Load(invoices.ScriptName)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Turns) < 10 {
		t.Fatalf("%d turns", len(s.Turns))
	}
	if _, err := scripted.Parse(invoices.ScriptName, []byte(invoices.Script())); err != nil {
		t.Fatalf("the embedded copy: %v", err)
	}
}
