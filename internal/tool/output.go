package tool

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"perdure.dev/perdure/internal/id"
)

// source is an output that can be read more than once without being held in memory.
type source struct {
	size int64
	open func(offset int64) (io.ReadCloser, error)
}

func textSource(s string) source {
	return source{size: int64(len(s)), open: func(off int64) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(s[off:])), nil
	}}
}

func (s source) read(offset, n int64) ([]byte, error) {
	r, err := s.open(offset)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, n))
}

// clip returns the output for the model: whole if it fits into limit bytes, else its head and its tail with a line in
// between that says how much is missing; what then stands for the artifact is filled in by keep.
func (s source) clip(limit int, artifact id.Artifact) (string, error) {
	if s.size <= int64(limit) {
		b, err := s.read(0, s.size)
		return clean(b), err
	}
	half := int64(limit) / 2
	head, err := s.read(0, half)
	if err != nil {
		return "", err
	}
	tail, err := s.read(s.size-half, half)
	if err != nil {
		return "", err
	}
	head, tail = trimRunes(head, tail)
	cut := s.size - int64(len(head)) - int64(len(tail))
	note := fmt.Sprintf("\n[… %d of %d bytes left out here", cut, s.size)
	if artifact != "" {
		note += fmt.Sprintf("; the whole output is artifact %s", artifact)
	}
	return clean(head) + note + " …]\n" + clean(tail), nil
}

// trimRunes removes what a cut left of a character at the end of head and at the start of tail.
func trimRunes(head, tail []byte) ([]byte, []byte) {
	for i := 1; i <= utf8.UTFMax && i <= len(head); i++ {
		if b := head[len(head)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(head[len(head)-i:]) {
				head = head[:len(head)-i]
			}
			break
		}
	}
	for i := 0; i < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
	}
	return head, tail
}

// clean makes text of bytes that models and JSON take.
func clean(b []byte) string {
	return strings.ReplaceAll(string(bytes.ToValidUTF8(b, []byte("\uFFFD"))), "\x00", "\uFFFD")
}

// keep stores the source whole as an artifact if it does not fit, and returns its id.
func (e Env) keep(ctx context.Context, name string, limit int, s source) (id.Artifact, error) {
	if s.size <= int64(limit) || e.Artifacts == nil {
		return "", nil
	}
	r, err := s.open(0)
	if err != nil {
		return "", err
	}
	defer r.Close()
	art, _, err := e.Artifacts.Put(ctx, e.Session, name, r)
	return art, err
}

// text turns a long text into a result.
func (e Env) text(ctx context.Context, name, s string) (Result, error) {
	src := textSource(s)
	art, err := e.keep(ctx, name, e.maxOutput(), src)
	if err != nil {
		return Result{}, err
	}
	out, err := src.clip(e.maxOutput(), art)
	if err != nil {
		return Result{}, err
	}
	if out == "" {
		out = "(empty)"
	}
	r := ok("%s", out)
	r.Artifact = art
	return r, nil
}
