package ref

import (
	"strings"
	"testing"
)

func TestParsePoint(t *testing.T) {
	for in, want := range map[string]Point{
		"a": {"a", ""}, "a@ckpt_1": {"a", "ckpt_1"}, "a@two words": {"a", "two words"}, "a@me@home": {"a", "me@home"}, "sess_x@y": {"sess_x", "y"},
	} {
		if got, err := ParsePoint(in); err != nil || got != want {
			t.Errorf("ParsePoint(%q) = %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "@x", "a@", "a b@x", "a/b", "a:b"} {
		if got, err := ParsePoint(in); err == nil {
			t.Errorf("ParsePoint(%q) = %+v", in, got)
		}
	}
}

func TestParseLocation(t *testing.T) {
	for in, want := range map[string]Location{
		"file": {"", "file"}, "./a:b": {"", "./a:b"}, "/a:b": {"", "/a:b"}, "dir/a:b": {"", "dir/a:b"}, "-": {"", "-"}, ":x": {"", ":x"},
		"s:/x": {"s", "/x"}, "s:x": {"s", "~/x"}, "s:~/x": {"s", "~/x"}, "s:~": {"s", "~"}, "s:/a:b": {"s", "/a:b"}, "s.1:/x": {"s.1", "/x"}, "../x:y": {"", "../x:y"},
	} {
		if got, err := ParseLocation(in); err != nil || got != want {
			t.Errorf("ParseLocation(%q) = %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "s:", "a\x00b"} {
		if got, err := ParseLocation(in); err == nil {
			t.Errorf("ParseLocation(%q) = %+v", in, got)
		}
	}
}

func FuzzParsePoint(f *testing.F) {
	for _, s := range []string{"a", "a@b", "@", "a@b@c", "a b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePoint(s)
		if err != nil {
			return
		}
		if p.String() != s {
			t.Fatalf("%q is read as %+v and written as %q", s, p, p.String())
		}
		if p.Session == "" || strings.ContainsAny(p.Session, "@/: ") {
			t.Fatalf("%q names the session %q", s, p.Session)
		}
	})
}

func FuzzParseLocation(f *testing.F) {
	for _, s := range []string{"a", "a:b", "a:/b", "./a:b", "-", ":", "a:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ParseLocation(s)
		if err != nil {
			return
		}
		if l.Session != "" && !strings.HasPrefix(l.Path, "/") && l.Path != "~" && !strings.HasPrefix(l.Path, "~/") {
			t.Fatalf("%q is the relative path %q in a workspace", s, l.Path)
		}
		again, err := ParseLocation(l.String())
		if err != nil || again != l {
			t.Fatalf("%q is read as %+v, and that as %+v, %v", s, l, again, err)
		}
	})
}
