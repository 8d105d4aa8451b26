package tool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"perdure.dev/perdure/internal/model"
)

// abs resolves a path against the home directory. Without a Home that is left to the workspace, which knows it
// as ~, and where its commands start as . (see Env.Here).
func (e Env) abs(p string) (string, error) {
	switch {
	case p == "":
		return "", badArg("path is empty")
	case strings.ContainsRune(p, 0):
		return "", badArg("path contains a NUL byte")
	case path.IsAbs(p):
		return path.Clean(p), nil
	case p == "~" || strings.HasPrefix(p, "~/"):
		p = strings.TrimPrefix(p, "~")
	case e.Home == "" && e.Here:
		return "./" + path.Clean(p), nil
	}
	if e.Home == "" {
		return "~" + path.Clean("/"+p), nil
	}
	return path.Join(e.Home, p), nil
}

type readArgs struct {
	Path   string `json:"path"`
	Start  int    `json:"start_line"`
	End    int    `json:"end_line"`
	Offset *int64 `json:"offset"`
	Length *int64 `json:"length"`
}

func readFile() Tool {
	return Tool{
		Class: ClassRepeat,
		Spec: model.ToolSpec{
			Name: "read_file",
			Description: "Read a text file, or lines of it (start_line to end_line, from 1, both included), or bytes of it (offset, length). " +
				"Bytes of a binary file are shown as a hex dump.",
			Schema: schema(`"path":{"type":"string"},`+
				`"start_line":{"type":"integer","minimum":1},"end_line":{"type":"integer","minimum":1},`+
				`"offset":{"type":"integer","minimum":0},"length":{"type":"integer","minimum":1}`, "path"),
		},
		Run: func(ctx context.Context, env Env, call Call) (Result, error) {
			var a readArgs
			if err := decode(call.Args, &a); err != nil {
				return Result{}, err
			}
			p, err := env.abs(a.Path)
			if err != nil {
				return Result{}, err
			}
			bytesAsked := a.Offset != nil || a.Length != nil
			switch linesAsked := a.Start != 0 || a.End != 0; {
			case linesAsked && bytesAsked:
				return Result{}, badArg("give lines or bytes, not both")
			case a.Start < 0 || a.End < 0 || a.End > 0 && a.End < max(a.Start, 1):
				return Result{}, badArg("start_line and end_line must be at least 1 and in order")
			case bytesAsked:
				return env.readBytes(ctx, p, a)
			case linesAsked:
				return env.readLines(ctx, p, max(a.Start, 1), a.End)
			}
			return env.readWhole(ctx, p)
		},
	}
}

// sniff is how much of a file is looked at to tell text from binary.
const sniff = 8000

func isBinary(b []byte) bool { return bytes.IndexByte(b[:min(len(b), sniff)], 0) >= 0 }

func binaryResult(p string, size int64) Result {
	return Errorf("%s is a binary file of %d bytes; read bytes of it with offset and length, or use python", p, size)
}

func (e Env) readWhole(ctx context.Context, p string) (Result, error) {
	r, size, err := e.Sandbox.Files().Read(ctx, p, 0, -1)
	if err != nil {
		return Result{}, err
	}
	first := make([]byte, sniff)
	n, err := readFull(r, first)
	closeErr := r.Close()
	if err != nil {
		return Result{}, err
	}
	if closeErr != nil {
		return Result{}, closeErr
	}
	if isBinary(first[:n]) {
		return binaryResult(p, size), nil
	}
	src := source{size: size, open: func(off int64) (io.ReadCloser, error) {
		rc, _, err := e.Sandbox.Files().Read(ctx, p, off, -1)
		return rc, err
	}}
	// The file itself is the whole: no artifact is made of it.
	out, err := src.clip(e.maxOutput(), "")
	if err != nil {
		return Result{}, err
	}
	if out == "" {
		out = "(the file is empty)"
	}
	if size > int64(e.maxOutput()) {
		out += "\n[read the rest with start_line and end_line, or offset and length]"
	}
	return ok("%s", out), nil
}

func (e Env) readLines(ctx context.Context, p string, start, end int) (Result, error) {
	r, size, err := e.Sandbox.Files().Read(ctx, p, 0, -1)
	if err != nil {
		return Result{}, err
	}
	defer r.Close()
	br := bufio.NewReaderSize(r, 64<<10)
	if first, _ := br.Peek(sniff); isBinary(first) {
		return binaryResult(p, size), nil
	}
	var out bytes.Buffer
	line, shown := 0, 0
	for end == 0 || line < end {
		text, err := br.ReadBytes('\n')
		if len(text) > 0 {
			line++
			if line >= start {
				if out.Len()+len(text) > e.maxOutput() && shown > 0 {
					return ok("%s", join(clean(out.Bytes()), fmt.Sprintf("[the limit of %d bytes is reached; go on with start_line=%d]", e.maxOutput(), line))), nil
				}
				out.Write(text[:min(len(text), e.maxOutput())])
				shown++
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Result{}, err
		}
	}
	if shown == 0 {
		return Errorf("%s has only %d lines", p, line), nil
	}
	return ok("%s", clean(out.Bytes())), nil
}

func (e Env) readBytes(ctx context.Context, p string, a readArgs) (Result, error) {
	off, length := int64(0), int64(e.maxOutput())
	if a.Offset != nil {
		off = *a.Offset
	}
	if a.Length != nil {
		length = min(*a.Length, length)
	}
	if off < 0 || length < 1 {
		return Result{}, badArg("offset must be at least 0 and length at least 1")
	}
	r, size, err := e.Sandbox.Files().Read(ctx, p, off, length)
	if err != nil {
		return Result{}, err
	}
	defer r.Close()
	if off >= size {
		return Errorf("%s has only %d bytes", p, size), nil
	}
	b, err := io.ReadAll(io.LimitReader(r, length))
	if err != nil {
		return Result{}, err
	}
	note := fmt.Sprintf("[bytes %d to %d of %d]", off, off+int64(len(b)), size)
	if isBinary(b) {
		const maxDump = 4096
		b = b[:min(len(b), maxDump)]
		return ok("%s[bytes %d to %d of %d]", hex.Dump(b), off, off+int64(len(b)), size), nil
	}
	return ok("%s", join(clean(b), note)), nil
}

// readFull reads until buf is full or r ends.
func readFull(r io.Reader, buf []byte) (int, error) {
	n, err := io.ReadFull(r, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, err
}
