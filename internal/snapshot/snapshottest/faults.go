package snapshottest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"sync"

	"perdure.dev/perdure/internal/snapshot"
)

// ErrInjected is what a broken operation says.
var ErrInjected = errors.New("injected fault")

// Faults is a bucket that breaks when told to. It counts its operations from 0.
type Faults struct {
	snapshot.Bucket
	// Before and After, if set, are asked before and after each operation, with its number and name ("put", "get", "list", "delete"). An error
	// is what the caller gets, although, from After, the operation has been done.
	Before, After func(n int, op, object string) error

	mu sync.Mutex // guards n
	n  int
}

// Operations is how many there have been.
func (f *Faults) Operations() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

func (f *Faults) around(op, object string, do func() error) error {
	f.mu.Lock()
	n := f.n
	f.n++
	f.mu.Unlock()
	if f.Before != nil {
		if err := f.Before(n, op, object); err != nil {
			return err
		}
	}
	err := do()
	if f.After != nil {
		err = cmp.Or(f.After(n, op, object), err)
	}
	return err
}

// Put implements snapshot.Bucket.
func (f *Faults) Put(ctx context.Context, name string, data []byte) error {
	return f.around("put", name, func() error { return f.Bucket.Put(ctx, name, data) })
}

// Get implements snapshot.Bucket.
func (f *Faults) Get(ctx context.Context, name string, offset, length int64) (r io.ReadCloser, err error) {
	err = f.around("get", name, func() error {
		r, err = f.Bucket.Get(ctx, name, offset, length)
		return err
	})
	return r, err
}

// List implements snapshot.Bucket.
func (f *Faults) List(ctx context.Context, prefix string) iter.Seq2[snapshot.Object, error] {
	return func(yield func(snapshot.Object, error) bool) {
		if err := f.around("list", prefix, func() error { return nil }); err != nil {
			yield(snapshot.Object{}, err)
			return
		}
		f.Bucket.List(ctx, prefix)(yield)
	}
}

// Delete implements snapshot.Bucket.
func (f *Faults) Delete(ctx context.Context, name string) error {
	return f.around("delete", name, func() error { return f.Bucket.Delete(ctx, name) })
}

// DieAt returns hooks of a machine that dies at the n-th operation, before it is done or after: nothing works from then on.
func DieAt(n int, after bool) (hookBefore, hookAfter func(int, string, string) error) {
	var mu sync.Mutex
	dead := false
	hook := func(mine bool) func(int, string, string) error {
		return func(at int, _, _ string) error {
			mu.Lock()
			defer mu.Unlock()
			if dead || mine && at == n {
				dead = true
				return ErrInjected
			}
			return nil
		}
	}
	return hook(!after), hook(after)
}
