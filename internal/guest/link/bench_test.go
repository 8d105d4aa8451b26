package link_test

import (
	"testing"

	"perdure.dev/perdure/internal/sandbox"
)

// BenchmarkShellCommand is a command in the persistent shell, from start to known end, without a new process.
func BenchmarkShellCommand(b *testing.B) {
	r := newRig(b)
	r.run(shell("true"))
	for b.Loop() {
		r.run(shell("echo x"))
	}
}

// BenchmarkProcess is a new process, from start to known end.
func BenchmarkProcess(b *testing.B) {
	r := newRig(b)
	for b.Loop() {
		r.run(process("/bin/true"))
	}
}

// BenchmarkPython is a call of the persistent Python.
func BenchmarkPython(b *testing.B) {
	r := newRig(b)
	r.run(python("1"))
	for b.Loop() {
		r.run(python("1"))
	}
}

// BenchmarkOutput100MB is 100 MB of output of one process, from start to known end.
func BenchmarkOutput100MB(b *testing.B) {
	r := newRig(b)
	b.SetBytes(100 << 20)
	for b.Loop() {
		exec := r.start(process("head", "-c", "104857600", "/dev/zero"))
		if st := r.wait(exec); st.StdoutSize != 100<<20 || code(st) != 0 {
			b.Fatalf("%+v", st)
		}
	}
}

// BenchmarkInput100MB is 100 MB of input.
func BenchmarkInput100MB(b *testing.B) {
	r := newRig(b)
	data := make([]byte, 100<<20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		spec := process("wc", "-c")
		spec.Stdin = true
		exec := r.start(spec)
		if err := r.link.Execs().Stdin(b.Context(), exec, 0, data, true); err != nil {
			b.Fatal(err)
		}
		if st := r.wait(exec); code(st) != 0 || r.output(exec, sandbox.Stdout) != "104857600\n" {
			b.Fatalf("%+v", st)
		}
	}
}
