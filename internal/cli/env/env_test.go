package env

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestBytes(t *testing.T) {
	for in, want := range map[string]Bytes{"0": 0, "512": 512, "1K": 1 << 10, "512M": 512 << 20, "2g": 2 << 30, "2GB": 2 << 30, "2GiB": 2 << 30, "1T": 1 << 40} {
		var b Bytes
		if err := b.Set(in); err != nil || b != want {
			t.Errorf("%q = %d, %v; want %d", in, b, err, want)
		}
	}
	for _, in := range []string{"", "M", "-1", "1.5G", "x", "99999999T", "1MM"} {
		var b Bytes
		if err := b.Set(in); err == nil {
			t.Errorf("%q = %d", in, b)
		}
	}
}

func TestOneLineIsSafeOnATerminal(t *testing.T) {
	if got := OneLine("a\x1b]0;evil\x07b\nc\td\u009b1m", 80); strings.ContainsAny(got, "\x1b\x07\n\t\u009b") {
		t.Errorf("OneLine = %q", got)
	}
	if got := OneLine("ééééé", 3); got != "éé…" {
		t.Errorf("OneLine = %q", got)
	}
}

type terminal struct {
	Terminal
	tty bool
}

func (t terminal) Err() bool { return t.tty }

func TestProgress(t *testing.T) {
	for _, x := range []struct {
		tty, json bool
		want      string
	}{{true, false, "\r\x1b[K"}, {false, false, "working …\n"}, {true, true, ""}, {false, true, ""}} {
		var errs bytes.Buffer
		e := &Env{Err: &errs, Terminal: terminal{tty: x.tty}, JSON: x.json}
		v, err := Progress(e, "working", func() (int, error) { time.Sleep(2 * quiet); return 7, nil }) // the work is the waiting
		if v != 7 || err != nil || !strings.HasSuffix(errs.String(), x.want) || x.want == "" && errs.Len() > 0 {
			t.Errorf("tty %t, json %t: %d, %v, %q", x.tty, x.json, v, err, errs.String())
		}
		errs.Reset()
		if _, err := Progress(e, "working", func() (int, error) { return 0, nil }); err != nil || errs.Len() > 0 {
			t.Errorf("short work shows %q, %v", errs.String(), err)
		}
	}
}

func TestInterrupts(t *testing.T) {
	var i Interrupts
	if i.Deliver() {
		t.Error("nobody took it")
	}
	ch := make(chan struct{}, 1)
	restore := i.Divert(ch)
	if !i.Deliver() || i.Deliver() {
		t.Error("the channel takes one")
	}
	restore()
	<-ch
	if i.Deliver() {
		t.Error("it was given back")
	}
}

func TestDataDir(t *testing.T) {
	vars := map[string]string{}
	e := &Env{Getenv: func(k string) string { return vars[k] }}
	e.Data = "/x/../y"
	if got, err := e.DataDir(); got != "/y" || err != nil {
		t.Errorf("--data: %q, %v", got, err)
	}
	e.Data = ""
	vars["PERDURE_DATA"] = "/env"
	if got, err := e.DataDir(); got != "/env" || err != nil {
		t.Errorf("PERDURE_DATA: %q, %v", got, err)
	}
}
