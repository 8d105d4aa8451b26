// Package snapshottest holds implementations of snapshot.Bucket and snapshot.Keys against what they promise, and breaks them on purpose.
package snapshottest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/snapshot"
)

// Run holds a bucket against snapshot.Bucket. open returns an empty one, and reopens one that it has returned before if it is given its handle.
func Run(t *testing.T, open func(t *testing.T) snapshot.Bucket) {
	for _, c := range []struct {
		name string
		test func(*testing.T, snapshot.Bucket)
	}{
		{"what is put is got, in ranges too", testRanges},
		{"a put replaces", testReplace},
		{"a list is in order and of its prefix", testList},
		{"what is not there is missing, and deleting it is no error", testMissing},
		{"many goroutines put, get, list and delete", testMany},
		{"a context that has ended stores nothing", testCanceled},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

func testRanges(t *testing.T, b snapshot.Bucket) {
	data := bytes.Repeat([]byte("0123456789"), 1000)
	put(t, b, "lin/packs/a", data)
	for _, c := range []struct{ offset, length, from, to int64 }{
		{0, -1, 0, 10000}, {0, 10000, 0, 10000}, {0, 3, 0, 3}, {9995, 5, 9995, 10000}, {5, -1, 5, 10000},
		{9995, 100, 9995, 10000}, {10000, -1, 10000, 10000}, {20000, 5, 10000, 10000}, {7, 0, 7, 7},
	} {
		if got := get(t, b, "lin/packs/a", c.offset, c.length); !bytes.Equal(got, data[c.from:c.to]) {
			t.Errorf("Get(%d, %d) gives %d bytes, want %d", c.offset, c.length, len(got), c.to-c.from)
		}
	}
	put(t, b, "lin/empty", nil)
	if got := get(t, b, "lin/empty", 0, -1); len(got) != 0 {
		t.Errorf("an empty object has %d bytes", len(got))
	}
}

func testReplace(t *testing.T, b snapshot.Bucket) {
	put(t, b, "lin/a", []byte("the first one"))
	put(t, b, "lin/a", []byte("another"))
	if got := get(t, b, "lin/a", 0, -1); string(got) != "another" {
		t.Errorf("it is %q", got)
	}
}

func testList(t *testing.T, b snapshot.Bucket) {
	for _, name := range []string{"b/packs/2", "b/packs/10", "b-1/x", "b.c/x", "a/manifests/x", "b/manifests/z", "b/packs/1"} {
		put(t, b, name, []byte(name))
	}
	for prefix, want := range map[string][]string{
		"":          {"a/manifests/x", "b-1/x", "b.c/x", "b/manifests/z", "b/packs/1", "b/packs/10", "b/packs/2"},
		"b/":        {"b/manifests/z", "b/packs/1", "b/packs/10", "b/packs/2"},
		"b/packs/1": {"b/packs/1", "b/packs/10"},
		"c/":        nil,
	} {
		got, err := names(b.List(t.Context(), prefix))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("List(%q): %q, %v; want %q", prefix, got, err, want)
		}
	}
	for o, err := range b.List(t.Context(), "b/") {
		if err != nil || o.Size != int64(len(o.Name)) || o.Changed.IsZero() {
			t.Errorf("%+v, %v", o, err)
		}
		break // a caller may stop
	}
}

func testMissing(t *testing.T, b snapshot.Bucket) {
	check := func() {
		t.Helper()
		if _, err := b.Get(t.Context(), "lin/a", 0, -1); errdefs.CodeOf(err) != snapshot.CodeObjectMissing {
			t.Errorf("Get of what is not there: %v", err)
		}
		if err := b.Delete(t.Context(), "lin/a"); err != nil {
			t.Errorf("Delete of what is not there: %v", err)
		}
	}
	check()
	put(t, b, "lin/a", []byte("x"))
	if err := b.Delete(t.Context(), "lin/a"); err != nil {
		t.Fatal(err)
	}
	check()
	put(t, b, "lin/a", []byte("y"))
}

func testMany(t *testing.T, b snapshot.Bucket) {
	var g sync.WaitGroup
	errs := make([]error, 8)
	for w := range errs {
		g.Go(func() {
			for i := range 20 {
				name := fmt.Sprintf("lin%d/packs/%d", w%4, w*100+i)
				err := b.Put(t.Context(), name, []byte(name))
				if r, gerr := b.Get(t.Context(), name, 0, -1); gerr == nil {
					got, rerr := io.ReadAll(r)
					if err = errors.Join(err, rerr, r.Close()); string(got) != name {
						err = errors.Join(err, fmt.Errorf("%s holds %q", name, got))
					}
				} else {
					err = errors.Join(err, gerr)
				}
				_, lerr := names(b.List(t.Context(), ""))
				errs[w] = errors.Join(errs[w], err, lerr, b.Delete(t.Context(), name))
			}
		})
	}
	g.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if left, err := names(b.List(t.Context(), "")); err != nil || len(left) > 0 {
		t.Errorf("%q is left, %v", left, err)
	}
}

func testCanceled(t *testing.T, b snapshot.Bucket) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Put(ctx, "lin/a", []byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("it says %v", err)
	}
	if left, _ := names(b.List(t.Context(), "")); len(left) > 0 {
		t.Errorf("it stored %q", left)
	}
}

// RunKeys holds an implementation against snapshot.Keys. open opens the same keys each time.
func RunKeys(t *testing.T, open func() snapshot.Keys) {
	k := open()
	if _, err := k.Key(t.Context(), "a", false); errdefs.CodeOf(err) != snapshot.CodeKeyMissing {
		t.Errorf("no key yet: %v", err)
	}
	var g sync.WaitGroup
	keys, errs := make([]snapshot.Key, 8), make([]error, 8)
	for i := range keys {
		g.Go(func() { keys[i], errs[i] = open().Key(t.Context(), "a", true) })
	}
	g.Wait()
	for i, key := range keys {
		if errs[i] != nil || key != keys[0] || key == (snapshot.Key{}) {
			t.Fatalf("callers at the same time got different keys, or %v", errs[i])
		}
	}
	other, err := k.Key(t.Context(), "b", true)
	if err != nil || other == keys[0] {
		t.Fatalf("two lineages have one key, or %v", err)
	}
	if again, err := open().Key(t.Context(), "a", false); err != nil || again != keys[0] {
		t.Errorf("it did not stay: %v", err)
	}
	if err := k.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Key(t.Context(), "a", false); errdefs.CodeOf(err) != snapshot.CodeKeyMissing {
		t.Errorf("it is still there: %v", err)
	}
	if err := k.Destroy(t.Context(), "a"); err != nil {
		t.Errorf("once more: %v", err)
	}
	if anew, err := k.Key(t.Context(), "a", true); err != nil || anew == keys[0] {
		t.Errorf("a destroyed key came back, or %v", err)
	}
	var all []string
	for l, err := range k.Lineages(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(l))
	}
	if slices.Sort(all); !slices.Equal(all, []string{"a", "b"}) {
		t.Errorf("lineages %q", all)
	}
}

func put(t *testing.T, b snapshot.Bucket, name string, data []byte) {
	t.Helper()
	if err := b.Put(t.Context(), name, data); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, b snapshot.Bucket, name string, offset, length int64) []byte {
	t.Helper()
	r, err := b.Get(t.Context(), name, offset, length)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func names(list iter.Seq2[snapshot.Object, error]) ([]string, error) {
	var all []string
	for o, err := range list {
		if err != nil {
			return all, err
		}
		all = append(all, o.Name)
	}
	return all, nil
}
